"""Queue entries and files built from the log: entries in order, files and folders durable before their entries."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from storage.errors import DiskFull
from storage.model import RawMessage, TopicPartition
from storage.rocketmq.format.message import MAGIC_V1
from storage.rocketmq.format.message_encoding import Placement, encode_messages
from storage.rocketmq.format.queue_entry import UNIT
from storage.rocketmq.index.dispatcher import Builder, BuildOptions
from storage.rocketmq.store import RocketMQStore
from tests.robustness.crash.faulty import SYNCS, FaultyFileSystem, fails
from tests.unit.rocketmq.workshop import T0, Workshop

T1 = TopicPartition("t", 1)


def builder_of(store: RocketMQStore, *, with_fillers: bool = False) -> Builder:
    """Return a builder over the store's queues, without an index."""
    return Builder(store.queues, None, {}, BuildOptions(with_fillers=with_fillers))


class Given(NamedTuple):
    """A record of t."""

    queue_id: int
    offset: int
    physical_offset: int
    sys_flag: int


def dispatch(offset: int, physical_offset: int, *, sys_flag: int = 0) -> Given:
    """Return a record of t-0."""
    return Given(0, offset, physical_offset, sys_flag)


def build(builder: Builder, records: Sequence[Given]) -> None:
    """Build from records of 100 bytes."""
    message = RawMessage(b"12345678", b"", 0, 0, 1, bytes(8), 0, 0)
    for queue_id, offset, at, sys_flag in records:
        place = Placement(b"t", MAGIC_V1, queue_id, offset, at, 1, bytes(8))
        (record,) = encode_messages([message._replace(sys_flag=sys_flag)], place)
        assert len(record) == 100
        builder.take(record, at, len(record))
    builder.build()


def test_what_is_there_is_left_as_it_is(shop: Workshop) -> None:
    store = shop.open_with_topic()
    builder, queue = builder_of(store), store.queue(T0)
    build(builder, [dispatch(0, 0), dispatch(1, 100)])
    build(builder, [dispatch(0, 0), dispatch(1, 100), dispatch(2, 200)])
    build(builder, [dispatch(1, 900)])
    assert [unit.physical_offset for unit in queue.units.read(0, 9)] == [0, 100, 200]


def test_a_queue_that_begins_later_is_filled(shop: Workshop) -> None:
    """As in the real store, only the first file of the queue holds fillers, before the first entry."""
    store = shop.open_with_topic()
    queue = store.queue(T0)
    build(builder_of(store), [dispatch(7, 700), dispatch(8, 800)])
    assert shop.queue_bases() == [100]
    assert (queue.units.start, queue.units.end) == (7, 9)
    raw = shop.fs.read_bytes(queue.units.directory / f"{100:020d}")
    filler = (0).to_bytes(8, "big") + 0x7FFFFFFF.to_bytes(4, "big") + bytes(8)
    assert raw[:40] == filler * 2


def of_queue(queue_id: int, offset: int, physical_offset: int) -> Given:
    """Return a record of this queue of topic t."""
    return Given(queue_id, offset, physical_offset, 0)


class Syncs:
    """A recorder of the changes to the queues' files, in their order."""

    def __init__(self, faulty: FaultyFileSystem) -> None:
        self.seen: list[tuple[str, Path]] = []
        faulty.fault = self.note

    def note(self, operation: str, path: Path) -> None:
        if "consumequeue" in path.parts:
            self.seen.append((operation, path))

    def take(self) -> list[tuple[str, set[Path]]]:
        """Return each run of one operation since the last call, with the paths that it changed."""
        runs: list[tuple[str, set[Path]]] = []
        for operation, path in self.seen:
            kind = "sync" if operation in SYNCS else "write" if operation == "write" else "make"
            if not runs or runs[-1][0] != kind:
                runs.append((kind, set()))
            runs[-1][1].add(path)
        self.seen.clear()
        return runs


def folders_of(store: RocketMQStore, count: int) -> list[Path]:
    """Return the folders of the topic's first queues, then the topic's folder, then consumequeue."""
    topic = store.queue(T0).units.directory.parent
    return [*(topic / str(number) for number in range(count)), topic, topic.parent]


def test_files_of_many_new_queues_are_made_before_any_is_synced(faulty: FaultyFileSystem) -> None:
    """One commit of the file system's journal covers all new files; a sync after each new file cost one commit each.

    The files and their folders are durable before an entry is written.
    """
    store = Workshop(faulty).open_with_topic(partitions=3)
    builder, syncs = builder_of(store), Syncs(faulty)
    build(builder, [of_queue(number, 0, 100 * number) for number in range(3)])
    folders = folders_of(store, 3)
    files = {folder / f"{0:020d}" for folder in folders[:3]}
    made, synced, written = syncs.take()
    assert [made[0], synced[0], written[0]] == ["make", "sync", "write"]
    assert files <= made[1]
    assert synced[1] == {*files, *folders}
    assert written[1] == files
    build(builder, [of_queue(number, 1, 300 + 100 * number) for number in range(3)])
    assert syncs.take() == [("write", files)]


def test_a_file_that_was_made_before_the_disk_was_full_is_synced_before_its_units(
    faulty: FaultyFileSystem,
) -> None:
    store = Workshop(faulty).open_with_topic(partitions=2)
    builder = builder_of(store)
    records = [of_queue(number, 0, 100 * number) for number in range(2)]
    full = fails(errno.ENOSPC, "create")
    faulty.fault = lambda done, path: full(done, path) if path.parent.name == "1" else None
    with pytest.raises(DiskFull):
        build(builder, records)
    syncs = Syncs(faulty)
    build(builder, records)
    made, synced, written = syncs.take()
    files = {store.queue(at).units.directory / f"{0:020d}" for at in (T0, T1)}
    assert written == ("write", files)
    assert synced[1] == {*files, *folders_of(store, 2)}
    assert made[1] & files == {store.queue(T1).units.directory / f"{0:020d}"}


GAPS = {
    "one": [0, 2],
    "several": [0, 3, 4, 9],
    "after a file": [0, 1, 2, 3, 4, 5, 8],
    "at every record": [0, 2, 4, 6, 8],
}


@pytest.mark.parametrize("offsets", GAPS.values(), ids=GAPS)
def test_behind_missing_records_an_entry_goes_to_the_end(
    shop: Workshop, offsets: list[int]
) -> None:
    """As in the real store: when a pull there meets a filler, it skips all records of the first log file."""
    store = shop.open_with_topic()
    builder, queue = builder_of(store), store.queue(T0)
    build(builder, [dispatch(offset, 100 * n) for n, offset in enumerate(offsets)])
    units = queue.units.read(0, 99)
    assert [unit.physical_offset for unit in units] == [100 * n for n in range(len(offsets))]
    assert not any(unit.is_filler for unit in units)
    first = next(n for n, offset in enumerate(offsets) if offset != n)
    assert builder.moved["t", 0].physical_offset == 100 * first


def test_without_the_first_log_file_a_gap_is_filled_and_a_jump_refused(shop: Workshop) -> None:
    """A record keeps its own offset, so that it is never read under another offset; a damaged offset is refused."""
    store = shop.open_with_topic()
    builder, queue = builder_of(store, with_fillers=True), store.queue(T0)
    build(builder, [dispatch(0, 0), dispatch(3, 300), dispatch(1 << 40, 400), dispatch(4, 500)])
    units = queue.units.read(0, 9)
    assert [(unit.physical_offset, unit.is_filler) for unit in units] == [
        (0, False),
        (0, True),
        (0, True),
        (300, False),
        (500, False),
    ]
    assert [refused.physical_offset for refused in builder.refused] == [400]
    assert not builder.moved


FALSE = {
    # case: (offsets in the log, offset of the first entry, records with an entry, refused records)
    "first of many": ([9, 1, 2, 3], 1, [1, 2, 3], [0]),
    "first of two": ([9, 1], 1, [1], [0]),
    "first, no position in a file": ([1 << 62, 1, 2], 1, [1, 2], [0]),
    "first, the largest number": ([(1 << 63) - 1, 1, 2], 1, [1, 2], [0]),
    "first, negative": ([-1, 1, 2], 1, [1, 2], [0]),
    "first two": ([5, 9, 2, 3, 4], 2, [2, 3, 4], [0, 1]),
    "first two, descending": ([9, 5, 2, 3, 4], 2, [2, 3, 4], [0, 1]),
    "first, after a deleted head": ([900, 101, 102], 101, [1, 2], [0]),
    "second, after a deleted head": ([100, 5, 102, 103], 100, [0, 2, 3], [1]),
    "last, negative": ([0, 1, -7], 0, [0, 1], [2]),
    "last, taken": ([0, 1, 1], 0, [0, 1], [2]),
    "only, no position in a file": ([1 << 62], 0, [], [0]),
    "only, negative": ([-(1 << 63)], 0, [], [0]),
}


@pytest.mark.parametrize("case", FALSE.values(), ids=FALSE)
@pytest.mark.parametrize("with_fillers", [False, True])
def test_a_damaged_offset_costs_no_other_record(
    shop: Workshop,
    case: tuple[list[int], int, list[int], list[int]],
    with_fillers: bool,
) -> None:
    """The real store begins a queue at any offset of its first record, and skips the records below it. It writes an
    entry for a negative offset only by chance. Here such a record has no entry, and a finding names it.
    """
    offsets, start, placed, refused = case
    store = shop.open_with_topic()
    builder, queue = builder_of(store, with_fillers=with_fillers), store.queue(T0)
    build(builder, [dispatch(offset, 100 * n) for n, offset in enumerate(offsets)])
    assert [one.physical_offset for one in builder.refused] == [100 * n for n in refused]
    units = [unit for unit in queue.units.read(start, 99) if not unit.is_filler]
    assert [unit.physical_offset for unit in units] == [100 * n for n in placed]


@pytest.mark.parametrize("together", [1, 2, 5])
@pytest.mark.parametrize("false", [7000, 1 << 30, 1 << 62])
@pytest.mark.parametrize("before", [0, 500])
def test_a_queue_that_began_at_a_damaged_offset_begins_again(
    shop: Workshop, before: int, false: int, together: int
) -> None:
    """Its first records may come alone, in a store with many queues."""
    store = shop.open_with_topic()
    builder, queue = builder_of(store), store.queue(T0)
    records = [dispatch(before + n if n else false, 100 * n) for n in range(40)]
    for first in range(0, len(records), together):
        build(builder, records[first : first + together])
    assert [one.physical_offset for one in builder.refused] == [0]
    assert (queue.units.start, queue.units.end) == (before + 1, before + 40)
    units = queue.units.read(before + 1, 99)
    assert [unit.physical_offset for unit in units] == [100 * n for n in range(1, 40)]


def test_records_that_have_entries_are_not_refused(shop: Workshop) -> None:
    """A start passes over records again."""
    store = shop.open_with_topic()
    builder, queue = builder_of(store), store.queue(T0)
    records = [dispatch(offset, 100 * n) for n, offset in enumerate([0, 1, 4, 5])]
    build(builder, records)
    build(builder, records)
    build(builder, records[2:])
    assert queue.units.end == 4
    assert builder.refused == []


@pytest.mark.parametrize("transaction", [4, 12])
def test_prepared_and_rolled_back_records_have_no_unit(shop: Workshop, transaction: int) -> None:
    store = shop.open_with_topic()
    build(builder_of(store), [dispatch(0, 0, sys_flag=transaction), dispatch(0, 100)])
    assert [unit.physical_offset for unit in store.queue(T0).units.read(0, 9)] == [100]


def test_deleted_records_are_not_built(shop: Workshop) -> None:
    store = shop.open_with_topic()
    builder = Builder(store.queues, None, {"t": 200}, BuildOptions(with_fillers=False))
    build(builder, [dispatch(0, 100), dispatch(0, 200)])
    assert [unit.physical_offset for unit in store.queue(T0).units.read(0, 9)] == [200]


@pytest.mark.parametrize(
    ("places", "sound"),
    [
        ([0, 100, 200], 3),
        ([0, 100, 100, 200], 2),
        ([0, 0], 1),
        ([0, 100, 200, 100], 3),
        ([500, 100], 1),
    ],
)
def test_an_entry_that_repeats_an_earlier_one_is_not_sound(
    shop: Workshop, places: list[int], sound: int
) -> None:
    """Each entry must point beyond all earlier entries: a repeat would return one record under two offsets."""
    units = shop.open_with_topic().queue(T0).units
    units.append(b"".join(UNIT.pack(place, 100, 7) for place in places), 0, places[-1] + 100)
    assert units.sound_end(0) == sound
