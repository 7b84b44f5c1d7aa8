"""The log's files: where records go at the end of a file, the bytes of a full file, the order of syncs at a roll."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from storage import Record
from storage.errors import DiskFull, RecordTooLarge
from storage.files.failures import io_failure
from storage.model import RawMessage
from storage.rocketmq.format.message import MAGIC_PADDING
from storage.rocketmq.store import RocketMQStore
from tests.robustness.crash.faulty import FaultyFileSystem, fails, no_fault
from tests.unit.rocketmq.workshop import (
    LOG_BYTES,
    T0,
    Workshop,
    check_lookups,
    place_of,
    put_value,
    values,
)

FIXED = 91 + len("t")
LARGEST = LOG_BYTES - 8


def of_size(size: int, fill: bytes = b"x") -> RawMessage:
    """Return a message that takes a record of `size` bytes in t."""
    return RawMessage(fill * (size - FIXED), b"")


def put(store: RocketMQStore, *sizes: int) -> Sequence[int]:
    """Append records of these sizes in one batch; return their physical offsets."""
    messages = [of_size(size, b"%d" % (n % 10)) for n, size in enumerate(sizes)]
    return [locator % (1 << 64) for locator in store.append_messages(T0, messages).locators]


@pytest.mark.parametrize("left", range(60, 140))
def test_a_record_leaves_room_for_a_padding(shop: Workshop, left: int) -> None:
    """The record goes into the file if 8 bytes remain after it; otherwise a padding fills the rest of the file."""
    store = shop.open_with_topic()
    put(store, LOG_BYTES - 200 - left, 200)
    (place,) = put(store, 100)
    fits = left >= 108
    assert place == (LOG_BYTES - left if fits else LOG_BYTES)
    if not fits:
        padding = shop.log_bytes()[LOG_BYTES - left : LOG_BYTES]
        assert padding[:4] == left.to_bytes(4, "big")
        assert int.from_bytes(padding[4:8], "big", signed=True) == MAGIC_PADDING
        assert padding[8:].strip(b"\0") == b""
    store.close()
    for clean in (True, False):
        if not clean:
            shop.fs.open(Path("/w/store/abort"), create=True).close()
        with shop.open() as again:
            assert again.recovery.clean_shutdown is clean
            assert [len(value or b"") + FIXED for value in values(again)] == [
                LOG_BYTES - 200 - left,
                200,
                100,
            ]


def test_the_largest_record_fills_a_file(shop: Workshop) -> None:
    store = shop.open_with_topic()
    assert put(store, LARGEST) == [0]
    assert put(store, LARGEST) == [LOG_BYTES]
    log = shop.log_bytes()
    assert log[LARGEST:LOG_BYTES] == (8).to_bytes(4, "big") + MAGIC_PADDING.to_bytes(
        4, "big", signed=True
    )
    with pytest.raises(RecordTooLarge) as refused:
        put(store, LARGEST + 1)
    assert refused.value.facts() == {
        "size_bytes": LARGEST + 1,
        "limit_bytes": LARGEST,
        "index": 0,
    }
    store.close()
    assert len(values(shop.open())) == 2


def test_a_batch_is_not_split(shop: Workshop) -> None:
    """The whole batch is stored after the padding, with consecutive offsets and positions."""
    store = shop.open_with_topic()
    put(store, 600)
    assert put(store, 200, 200, 110) == [LOG_BYTES, LOG_BYTES + 200, LOG_BYTES + 400]
    assert put(store, 150, 150) == [LOG_BYTES + 510, LOG_BYTES + 660]
    assert [record.offset for record in store.scan(T0)] == list(range(6))


def test_a_batch_longer_than_a_file_goes_in_several(shop: Workshop) -> None:
    store = shop.open_with_topic()
    result = store.append(T0, [Record(None, b"%02d" % n * 100) for n in range(12)])
    assert result[:2] == (0, 11)
    assert values(store) == [b"%02d" % n * 100 for n in range(12)]
    assert len(shop.log_bases()) > 3
    check_lookups(store)


def test_a_refused_record_leaves_nothing(shop: Workshop) -> None:
    store = shop.open_with_topic()
    put_value(store, b"before")
    log = shop.log_bytes()
    with pytest.raises(RecordTooLarge) as refused:
        put(store, 100, 100, LARGEST + 1)
    assert refused.value.facts()["index"] == 2
    assert shop.log_bytes() == log
    assert store.bounds(T0).end == 1


def test_a_spare_file_is_made_at_a_roll_and_goes_at_a_stop(shop: Workshop) -> None:
    store = shop.open_with_topic()
    put(store, LARGEST)
    assert shop.log_bases() == [0]
    put(store, 100)
    assert shop.log_bases() == [0, LOG_BYTES, 2 * LOG_BYTES]
    assert {len(shop.fs.read_bytes(shop.log_path(base))) for base in shop.log_bases()} == {
        LOG_BYTES
    }
    store.close()
    assert shop.log_bases() == [0, LOG_BYTES]
    again = shop.open()
    assert again.log.end == LOG_BYTES + 100
    assert again.log.run.limit == 2 * LOG_BYTES


def test_a_roll_syncs_the_old_file_first() -> None:
    """Nothing is written to a new file before the whole old file, its padding included, is on disk."""
    faulty = FaultyFileSystem(Workshop().fs)
    shop = Workshop(faulty)
    store = shop.open_with_topic()
    put(store, LARGEST - 50)
    done: list[tuple[str, str]] = []
    faulty.fault = lambda operation, path: done.append((operation, path.name))
    put(store, 100)
    old, new, spare = (shop.log_path(n * LOG_BYTES).name for n in range(3))
    assert done == [
        ("create", new),
        ("truncate", new),
        ("datasync", new),
        ("sync_dir", "commitlog"),
        ("write", old),
        ("datasync", old),
        ("create", spare),
        ("truncate", spare),
        ("datasync", spare),
        ("sync_dir", "commitlog"),
        ("write", new),
    ]


def test_a_flush_that_has_nothing_to_do_syncs_nothing() -> None:
    faulty = FaultyFileSystem(Workshop().fs)
    store = Workshop(faulty).open_with_topic()
    put_value(store, b"v")
    store.flush()
    done: list[str] = []
    faulty.fault = lambda operation, path: done.append(operation)
    store.flush()
    store.flush([T0])
    assert done == []
    put_value(store, b"v")
    store.flush([T0])
    assert done == ["write", "datasync"]


def test_a_log_may_begin_anywhere_while_it_is_empty(shop: Workshop) -> None:
    store = shop.open_with_topic()
    start = 5 * LOG_BYTES
    result = store.append_messages(T0, [of_size(100)], start_physical_offset=start)
    assert place_of(result) == start
    assert shop.log_bases() == [start]
    store.close()
    with shop.open() as again:
        assert again.stats().details["min_physical_offset"] == start
        assert len(values(again)) == 1
        assert put_value(again, b"next").base_offset == 1


def test_what_follows_a_roll_that_was_taken_back_is_synced(faulty: FaultyFileSystem) -> None:
    """The roll syncs the old file up to its end. After it is taken back, no byte above the new end counts as synced."""
    shop = Workshop(faulty)
    store = shop.open_with_topic()
    put(store, LOG_BYTES - 300)
    store.flush()
    faulty.fault = fails(errno.ENOSPC, "write", name=shop.log_path(LOG_BYTES).name)
    with pytest.raises(DiskFull):
        put(store, 400)
    faulty.fault = no_fault
    assert store.log.flushed <= store.log.end == LOG_BYTES - 300
    synced: list[str] = []
    faulty.fault = lambda operation, path: (
        synced.append(path.name) if operation == "datasync" else None
    )
    put(store, 100)
    store.flush()
    assert shop.log_path(0).name in synced, "acknowledged only when it is on disk"
    assert store.log.flushed == store.log.end


@pytest.mark.parametrize("sizes", [[400, 400], [900], [100, 100, 900]])
def test_the_synced_end_is_never_above_the_end(faulty: FaultyFileSystem, sizes: list[int]) -> None:
    """This holds for each write of an append that finds the disk full."""
    shop = Workshop(faulty)
    store = shop.open_with_topic()
    put(store, 200)
    for count in range(1, 6):
        writes = 0

        def full(operation: str, path: Path, last: int = count) -> None:
            nonlocal writes
            writes += operation == "write"
            if writes == last and operation == "write":
                raise io_failure(errno.ENOSPC, path, operation)

        faulty.fault = full
        with suppress(DiskFull):
            put(store, *sizes)
        faulty.fault = no_fault
        assert store.log.flushed <= store.log.end
