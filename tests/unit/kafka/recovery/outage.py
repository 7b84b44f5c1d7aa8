"""Stores on a disk that loses its power: steps to fill them, and checks of the state that the next start finds."""

from __future__ import annotations

from storage import Isolation, LogStore
from storage.files import FileSystem, make_root
from storage.kafka.store import KafkaStore
from tests.robustness.crash.power import Power
from tests.unit.kafka.log.batches import data_batch, marker
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_value

SETTINGS = {"internal.segment.bytes": "300", "index.interval.bytes": "80"}
VALUES = [b"value %2d" % n for n in range(14)]


def safe_place(power: Power) -> Workshop:
    """Return a workshop for one store in an empty folder that is durable on the disk."""
    make_root(power, ROOT)
    return Workshop(power)


def on(fs: FileSystem, shop: Workshop) -> Workshop:
    """Return the same workshop on another disk."""
    found = Workshop(fs)
    found.clock.now_ms = shop.clock.now_ms
    return found


def after_cut(power: Power, shop: Workshop) -> Workshop:
    """Return the workshop that the next start finds if the power fails now."""
    return on(power.cut(), shop)


def fill(shop: Workshop, store: LogStore, written: list[bytes]) -> None:
    """Append the values as single records, one millisecond apart; nothing is flushed."""
    for value in written:
        shop.clock.now_ms += 1
        put_value(store, value)


def sync_files(power: Power, shop: Workshop, suffix: str) -> None:
    """Sync the files of t-0 with this suffix, without the knowledge of the store."""
    for base in shop.bases(suffix):
        file = power.open(shop.path(base, suffix), write=True)
        file.datasync()
        file.close()


def committed(store: LogStore) -> list[bytes | None]:
    """Return the values that a reader of committed records gets."""
    return [record.value for record in store.scan(T0, isolation=Isolation.READ_COMMITTED)]


def folder(shop: Workshop) -> dict[str, bytes]:
    """Return the files of t-0."""
    return {name: shop.fs.read_bytes(ROOT / "t-0" / name) for name in shop.names()}


def check_whole(shop: Workshop, wanted: list[bytes]) -> None:
    """Check that a start finds exactly these records and no findings, and that each time leads to its record."""
    with shop.open(SETTINGS) as store:
        assert (store.recovery.findings, store.recovery.losses) == ([], [])
        records = list(store.scan(T0))
        assert [record.value for record in records] == wanted
        for record in records:
            found = store.offset_for_time(T0, record.timestamp_ms)
            assert found is not None
            assert found.offset == record.offset


def abort_one(store: KafkaStore) -> None:
    """Append an aborted transaction of two batches and a record after it."""
    for sequence in range(2):
        part = data_batch(0, value=b"gone", producer=(9, 0, sequence), transactional=True)
        store.append_batches(T0, part)
    store.append_batches(T0, marker(0, 9, commit=False))
    put_value(store, b"stays")
