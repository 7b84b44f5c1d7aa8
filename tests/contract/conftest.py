"""Fixtures of the contract suites: each test runs once for each backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.interface import LogStore
from storage.model import TopicPartition
from tests.contract.harness import StoreFactory

BACKENDS = ("memory", "kafka")


@pytest.fixture(params=BACKENDS)
def store_factory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFactory]:
    """Opens stores of the backend under test in a directory that is not there yet."""
    factory = StoreFactory(str(request.param), tmp_path / "store")
    yield factory
    factory.close_all()


@pytest.fixture
def durable_factory(store_factory: StoreFactory) -> StoreFactory:
    """As `store_factory`, for what only a backend that outlives its process can show."""
    if not store_factory.durable:
        pytest.skip(f"{store_factory.backend} forgets everything at close")
    return store_factory


@pytest.fixture
def store(store_factory: StoreFactory) -> LogStore:
    """An open, empty, writable store."""
    return store_factory.open()


@pytest.fixture
def partition(store: LogStore) -> TopicPartition:
    """An empty partition of `store`: events-0 of two."""
    store.create_topic("events", 2)
    return TopicPartition("events", 0)
