"""A failed write or sync of the log, on every backend: nothing of it is stored, or the store refuses all changes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from storage import LogStore, Record
from storage.errors import DiskFull, StoreFenced
from storage.files import FileSystem, OverlayFileSystem
from tests.robustness.crash.faulty import FaultyFileSystem, fails, no_fault
from tests.robustness.crash.torn import T0
from tests.unit.kafka.workshop import Workshop as KafkaWorkshop
from tests.unit.rocketmq.workshop import ROOT, put_sequenced
from tests.unit.rocketmq.workshop import Workshop as RocketMQWorkshop

Workshop: TypeAlias = KafkaWorkshop | RocketMQWorkshop


class Backend(NamedTuple):
    """One backend: workshop, first log file, check for the mark of a clean stop, findings of a start.

    `after_half_a_write`: the findings that a start reports for half a write at the end.
    """

    workshop: type[Workshop]
    log: Path
    is_clean: Callable[[FileSystem], bool]
    after_half_a_write: list[str]


BACKENDS = {
    "kafka": Backend(
        KafkaWorkshop,
        ROOT / "t-0" / f"{0:020}.log",
        lambda fs: fs.exists(ROOT / ".kafka_cleanshutdown"),
        ["torn-tail"],
    ),
    "rocketmq": Backend(
        RocketMQWorkshop,
        ROOT / "commitlog" / f"{0:020}",
        lambda fs: not fs.exists(ROOT / "abort"),
        [],
    ),
}


@pytest.fixture(params=list(BACKENDS))
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each backend in turn."""
    return BACKENDS[request.param]


@pytest.fixture
def faulty() -> FaultyFileSystem:
    """The disk of `shop`."""
    return FaultyFileSystem(OverlayFileSystem())


@pytest.fixture
def shop(backend: Backend, faulty: FaultyFileSystem) -> Workshop:
    """A workshop for one store on a disk with injected faults."""
    return backend.workshop(faulty)


def put_value(store: LogStore, value: bytes) -> None:
    store.append(T0, [Record(None, value)])


def values(store: LogStore) -> list[bytes | None]:
    return [record.value for record in store.scan(T0)]


def test_nothing_of_an_append_stays_on_a_full_disk(
    backend: Backend, shop: Workshop, faulty: FaultyFileSystem
) -> None:
    store = shop.open_with_topic()
    put_value(store, b"before")
    log = faulty.read_bytes(backend.log)
    faulty.fault = fails(errno.ENOSPC, "write", name=str(backend.log))
    for _ in range(3):
        with pytest.raises(DiskFull) as failure:
            put_sequenced(store, 7, 0)
        assert failure.value.facts()["path"] == str(backend.log)
    assert faulty.read_bytes(backend.log) == log, "half of it had been written"
    assert store.bounds(T0).end == 1
    assert store.stats().fenced is None
    faulty.fault = no_fault
    assert put_sequenced(store, 7, 0).base_offset == 1, "no duplicate: the first try is forgotten"
    store.close()
    assert values(shop.open()) == [b"before", b"7/0"]


def test_a_failed_write_fences(backend: Backend, shop: Workshop, faulty: FaultyFileSystem) -> None:
    store = shop.open_with_topic()
    put_value(store, b"before")
    store.flush()
    faulty.fault = fails(errno.EIO, "write", name=str(backend.log))
    with pytest.raises(StoreFenced):
        put_value(store, b"lost")
    faulty.fault = no_fault
    assert store.stats().fenced is not None
    for refused in (
        lambda: put_value(store, b"x"),
        lambda: store.create_topic("u"),
        store.new_producer_id,
        store.checkpoint,
        lambda: store.delete_topic("t"),
        lambda: store.enforce_retention(0),
    ):
        with pytest.raises(StoreFenced):
            refused()
    assert values(store) == [b"before"], "what there was is still served"
    store.close()
    assert not backend.is_clean(faulty)
    with shop.open() as again:
        assert not again.recovery.clean_shutdown
        assert values(again) == [b"before"]
        assert [f.code for f in again.recovery.findings] == backend.after_half_a_write


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_failed_sync_fences_and_publishes_nothing(
    backend: Backend,
    shop: Workshop,
    faulty: FaultyFileSystem,
    number: int,
) -> None:
    store = shop.open_with_topic()
    put_value(store, b"before")
    store.flush()
    store.append(T0, [Record(None, b"unsure")], publish=False)
    faulty.fault = fails(number, "datasync", name=str(backend.log))
    with pytest.raises(StoreFenced):
        store.flush()
    faulty.fault = no_fault
    assert store.bounds(T0).end == 1
    with pytest.raises(StoreFenced):
        store.flush()
    assert store.bounds(T0).end == 1, "a sync that failed is never tried again"
    assert values(store) == [b"before"]
    store.close()
    assert not backend.is_clean(faulty)
    with shop.open() as again:
        assert values(again) == [b"before", b"unsure"], "it had been written, and now it is synced"
