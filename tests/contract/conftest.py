"""Fixtures of the contract suites: each test runs once for each flavour of a backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.contract import LogStore, SupportsBatchBytes
from storage.files import OverlayFileSystem, RealFileSystem
from storage.model import TopicPartition
from tests.contract.batches import BatchStore
from tests.contract.flavours import FLAVOURS, Flavour
from tests.contract.harness import StoreFactory


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    """The backend under test, with its differences."""
    return FLAVOURS[request.param]


@pytest.fixture
def store_factory(flavour: Flavour) -> Iterator[StoreFactory]:
    """A factory of stores in a file system in memory, where a sync costs nothing."""
    factory = StoreFactory(flavour, Path("/store"), OverlayFileSystem())
    yield factory
    factory.close_all()


@pytest.fixture
def disk_factory(flavour: Flavour, tmp_path: Path) -> Iterator[StoreFactory]:
    """A factory of stores on the real disk, in a directory that does not exist yet."""
    factory = StoreFactory(flavour, tmp_path / "store", RealFileSystem())
    yield factory
    factory.close_all()


@pytest.fixture
def durable_factory(disk_factory: StoreFactory) -> StoreFactory:
    """The `disk_factory` for tests that need a backend with data that outlives the process."""
    if not disk_factory.flavour.durable:
        pytest.skip(f"{disk_factory.flavour.backend} forgets everything at close")
    return disk_factory


@pytest.fixture
def store(store_factory: StoreFactory) -> LogStore:
    """An open, empty, writable store."""
    return store_factory.open()


@pytest.fixture
def partition(store: LogStore) -> TopicPartition:
    """An empty partition of `store`: events-0 of two."""
    store.create_topic("events", 2)
    return TopicPartition("events", 0)


@pytest.fixture
def batches(store: LogStore) -> BatchStore:
    """The `store`, if it accepts batches."""
    assert isinstance(store, SupportsBatchBytes) == store.capabilities.batch_bytes
    if not store.capabilities.batch_bytes:
        pytest.skip(f"{store.capabilities.backend} keeps no batches")
    return store  # type: ignore[return-value]
