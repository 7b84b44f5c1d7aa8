"""What a log goes through: more partitions, deleted records, the ends of epochs, the newest time."""

from __future__ import annotations

import threading

import pytest

from storage.contract import LogStore, SupportsDeleteRecords, SupportsLeaderEpochs
from storage.errors import (
    InvalidArgument,
    OffsetOutOfRange,
    StoreReadOnly,
    UnknownPartition,
    UnknownTopic,
)
from storage.model import EpochEnd, OffsetBounds, Record, TopicPartition
from tests.contract.harness import (
    START_MS,
    StoreFactory,
    append_each,
    at_times,
    read_all,
    texts,
    values,
)

NONE = TopicPartition("none", 0)
EPOCH = {True: 0, False: None}  # of the first records, by whether the store keeps epochs


@pytest.fixture
def deleting(store: LogStore) -> SupportsDeleteRecords:
    """The `store`, if its partitions have logs of their own."""
    assert isinstance(store, SupportsDeleteRecords) != (store.capabilities.backend == "rocketmq")
    if not isinstance(store, SupportsDeleteRecords):
        pytest.skip("one log holds all queues")
    return store


@pytest.fixture
def epochal(store: LogStore) -> SupportsLeaderEpochs:
    """The `store`, if it keeps leader epochs."""
    assert isinstance(store, SupportsLeaderEpochs) == store.capabilities.leader_epochs
    if not isinstance(store, SupportsLeaderEpochs):
        pytest.skip(f"{store.capabilities.backend} keeps no leader epochs")
    return store


# ---- partitions ------------------------------------------------------------------------------------------------------


def test_more_partitions_are_empty_and_take_records(store: LogStore) -> None:
    """The new partitions begin at 0; those that were there keep their records."""
    configs = store.create_topic("a", 2).configs
    store.append(TopicPartition("a", 1), texts("kept"))
    info = store.add_partitions("a", 5)
    assert (list(info.partitions), info.configs) == ([0, 1, 2, 3, 4], configs)
    assert store.topics()["a"] == info
    assert store.bounds(TopicPartition("a", 4)) == OffsetBounds(0, 0, 0)
    store.append(TopicPartition("a", 4), texts("new"))
    assert values(read_all(store, TopicPartition("a", 4))) == [b"new"]
    assert values(read_all(store, TopicPartition("a", 1))) == [b"kept"]


def test_the_present_number_changes_nothing(store: LogStore) -> None:
    """So a request may be repeated."""
    info = store.create_topic("a", 3)
    assert store.add_partitions("a", 3) == info


@pytest.mark.parametrize("partitions", [2, 0, -1])
def test_fewer_partitions_are_refused(store: LogStore, partitions: int) -> None:
    """No partition can be taken away: its records would be lost."""
    info = store.create_topic("a", 3)
    with pytest.raises(InvalidArgument) as refused:
        store.add_partitions("a", partitions)
    assert refused.value.facts()["field"] == "partitions"
    assert store.topics()["a"] == info


def test_more_partitions_outlive_the_process(durable_factory: StoreFactory) -> None:
    """They are durable on return, with the records that followed."""
    store = durable_factory.open()
    store.create_topic("a", 1)
    store.add_partitions("a", 3)
    store.append(TopicPartition("a", 2), texts("v"))
    store.flush()
    killed = durable_factory.after_kill()
    assert list(killed.topics()["a"].partitions) == [0, 1, 2]
    assert values(read_all(killed, TopicPartition("a", 2))) == [b"v"]
    again = durable_factory.reopen(store)
    assert list(again.topics()["a"].partitions) == [0, 1, 2]


# ---- deleted records -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [1, 3, 5])
def test_records_below_an_offset_are_gone(
    store: LogStore, partition: TopicPartition, deleting: SupportsDeleteRecords, before: int
) -> None:
    """The start moves, also into a batch; later records keep their offsets, and nothing finds earlier ones."""
    store.append(partition, [Record(b"k", str(n).encode()) for n in range(5)])
    assert deleting.delete_records(partition, before) == OffsetBounds(before, 5, 5)
    assert store.bounds(partition) == OffsetBounds(before, 5, 5)
    assert [r.offset for r in read_all(store, partition)] == list(range(before, 5))
    found = store.find("events", key="k").records
    assert [record.offset for _, record in found] == list(range(before, 5))
    with pytest.raises(OffsetOutOfRange) as refused:
        store.read(partition, before - 1)
    assert (refused.value.earliest, refused.value.latest) == (before, 5)
    assert store.append(partition, texts("next")).base_offset == 5


def test_offsets_below_the_start_change_nothing(
    store: LogStore, partition: TopicPartition, deleting: SupportsDeleteRecords
) -> None:
    """So a request may be repeated, and an older one may come late."""
    append_each(store, partition, texts("a", "b", "c"))
    deleting.delete_records(partition, 2)
    for before in (0, 1, 2):
        assert deleting.delete_records(partition, before) == OffsetBounds(2, 3, 3)


@pytest.mark.parametrize("before", [-1, 4, 1 << 62])
def test_offsets_that_are_not_there_are_refused(
    store: LogStore, partition: TopicPartition, deleting: SupportsDeleteRecords, before: int
) -> None:
    """An offset above the end deletes nothing at all."""
    append_each(store, partition, texts("a", "b", "c"))
    with pytest.raises(OffsetOutOfRange) as refused:
        deleting.delete_records(partition, before)
    assert (refused.value.earliest, refused.value.latest) == (0, 3)
    assert store.bounds(partition) == OffsetBounds(0, 3, 3)


def test_what_is_not_published_is_not_deleted(
    store: LogStore, partition: TopicPartition, deleting: SupportsDeleteRecords
) -> None:
    """The limit is the end that readers see."""
    append_each(store, partition, texts("a"))
    store.append(partition, texts("b"), publish=False)
    with pytest.raises(OffsetOutOfRange):
        deleting.delete_records(partition, 2)
    store.flush([partition])
    assert deleting.delete_records(partition, 2) == OffsetBounds(2, 2, 2)


def test_deletion_of_the_unknown(store: LogStore, deleting: SupportsDeleteRecords) -> None:
    store.create_topic("events", 2)
    with pytest.raises(UnknownTopic):
        deleting.delete_records(NONE, 0)
    with pytest.raises(UnknownPartition):
        deleting.delete_records(TopicPartition("events", 2), 0)


def test_deleted_records_stay_deleted(durable_factory: StoreFactory) -> None:
    """The new start is durable on return, though no record before it was synced."""
    store = durable_factory.open()
    if not isinstance(store, SupportsDeleteRecords):
        pytest.skip("one log holds all queues")
    store.create_topic("events", 2)
    partition = TopicPartition("events", 1)
    append_each(store, partition, texts("a", "b", "c"))
    store.delete_records(partition, 2)
    killed = durable_factory.after_kill()
    assert not killed.recovery.losses
    assert not killed.recovery.findings
    assert killed.bounds(partition) == OffsetBounds(2, 3, 3)
    assert durable_factory.reopen(store).bounds(partition) == OffsetBounds(2, 3, 3)


class Reader(threading.Thread):
    """Reads all pages again and again until `done`, each value being its offset, and notes anything else."""

    def __init__(self, store: LogStore, partition: TopicPartition, done: threading.Event) -> None:
        super().__init__()
        self.store = store
        self.partition = partition
        self.done = done
        self.wrong: list[object] = []

    def run(self) -> None:
        offset = 0
        while not self.done.is_set():
            try:
                page = self.store.read(self.partition, offset, max_records=3)
            except OffsetOutOfRange as error:
                self.note(error, is_right=offset < error.earliest <= error.latest)
                offset = error.earliest
                continue
            for expected, record in enumerate(page.records, offset):
                self.note(
                    record, is_right=record.value == b"%d" % record.offset == b"%d" % expected
                )
            offset = page.next_offset if page.records else self.store.bounds(self.partition).start

    def note(self, found: object, *, is_right: bool) -> None:
        if not is_right:
            self.wrong.append(found)


@pytest.mark.usefixtures("quick_turns")
def test_readers_in_the_middle_get_records_or_the_bounds(
    store: LogStore, partition: TopicPartition, deleting: SupportsDeleteRecords
) -> None:
    """A reader whose records are deleted meanwhile gets both bounds, and never another record."""
    done = threading.Event()
    readers = [Reader(store, partition, done) for _ in range(3)]
    for reader in readers:
        reader.start()
    for base in range(0, 600, 6):
        store.append(partition, texts(*(str(base + n) for n in range(6))))
        if base >= 12:
            deleting.delete_records(partition, base - 7)
    done.set()
    for reader in readers:
        reader.join()
    assert [reader.wrong for reader in readers] == [[], [], []]


# ---- epochs and times ------------------------------------------------------------------------------------------------


def test_the_newest_epoch_ends_at_the_end(
    store: LogStore, partition: TopicPartition, epochal: SupportsLeaderEpochs
) -> None:
    """No epoch above the newest one has an end."""
    append_each(store, partition, texts("a", "b"))
    assert epochal.end_of_epoch(partition, 0) == EpochEnd(0, 2)
    assert epochal.end_of_epoch(partition, 1) is None
    assert epochal.end_of_epoch(partition, -1) is None
    with pytest.raises(UnknownTopic):
        epochal.end_of_epoch(NONE, 0)


def test_each_start_has_an_epoch(durable_factory: StoreFactory) -> None:
    """An epoch ends where the next begins."""
    store = durable_factory.open()
    store.create_topic("events")
    partition = TopicPartition("events", 0)
    for _ in range(3):
        append_each(store, partition, texts("a", "b"))
        store = durable_factory.reopen(store)
    if not isinstance(store, SupportsLeaderEpochs):
        pytest.skip("no leader epochs")
    assert [store.end_of_epoch(partition, epoch) for epoch in range(4)] == [
        EpochEnd(0, 2),
        EpochEnd(1, 4),
        EpochEnd(2, 6),
        None,
    ]


def test_the_newest_time(store_factory: StoreFactory) -> None:
    """It is that of the first record with the largest time; nothing in an empty partition."""
    store = store_factory.open()
    store.create_topic("events", 2)
    partition = TopicPartition("events", 0)
    assert store.newest_time(partition) is None
    times = [START_MS + n for n in (1, 2, 5)]
    store_factory.put(store, partition, at_times(*times), per_append=1)
    newest = store.newest_time(partition)
    assert newest is not None
    assert (newest.offset, newest.timestamp_ms) == (2, START_MS + 5)


def test_the_newest_time_is_the_largest_of_what_is_visible(store_factory: StoreFactory) -> None:
    """Times need not ascend; of equal ones the first counts, and a record that is not visible yet does not."""
    store = store_factory.open()
    if store.capabilities.time_axis != "timestamp":
        pytest.skip("store times ascend")
    store.create_topic("events", 1)
    partition = TopicPartition("events", 0)
    append_each(store, partition, at_times(*(START_MS + n for n in (2, 9, 7, 9, 3))))
    store.append(partition, at_times(START_MS + 100), publish=False)
    assert store.newest_time(partition) == (
        1,
        START_MS + 9,
        EPOCH[store.capabilities.leader_epochs],
    )
    store.flush()
    assert store.newest_time(partition) == (
        5,
        START_MS + 100,
        EPOCH[store.capabilities.leader_epochs],
    )


def test_a_record_without_a_time_before_one_with_a_time(store_factory: StoreFactory) -> None:
    """From LogSegment.timeWaitedForRoll: a time does not count from one that is not there, so no segment begins. In a
    segment without any time a lookup by time would end.
    """
    store = store_factory.open()
    if store.capabilities.time_axis != "timestamp":
        pytest.skip("store times ascend")
    store.create_topic("events", 1)
    partition = TopicPartition("events", 0)
    append_each(store, partition, at_times(-1, START_MS))
    found = store.offset_for_time(partition, 0)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (1, START_MS)


def test_calls_for_the_unknown(store: LogStore) -> None:
    """As everywhere: UnknownTopic, UnknownPartition."""
    store.create_topic("a", 2)
    with pytest.raises(UnknownTopic):
        store.add_partitions("none", 2)
    with pytest.raises(UnknownTopic):
        store.newest_time(NONE)
    with pytest.raises(UnknownPartition):
        store.newest_time(TopicPartition("a", 2))


def test_a_read_only_store_refuses(durable_factory: StoreFactory) -> None:
    """Neither partitions nor deletions are possible there."""
    store = durable_factory.open()
    store.create_topic("a", 2)
    store = durable_factory.reopen(store, read_only=True)
    with pytest.raises(StoreReadOnly):
        store.add_partitions("a", 3)
    if isinstance(store, SupportsDeleteRecords):
        with pytest.raises(StoreReadOnly):
            store.delete_records(TopicPartition("a", 0), 0)
