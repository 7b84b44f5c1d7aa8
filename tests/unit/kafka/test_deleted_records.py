"""Records deleted by offset, and partitions added: the files, and a power loss at every moment."""

from __future__ import annotations

import pytest

from storage import LogStore, Record, TopicPartition
from storage.errors import DiskFull, InvalidTopic, NotOffered, UnknownTopic
from storage.files import FileSystem
from storage.kafka.store import KafkaStore
from tests.robustness.crash.faulty import FaultyFileSystem, at_change, disk_full, no_fault
from tests.robustness.crash.power import Power, moments
from tests.unit.kafka.recovery.outage import on, safe_place
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_value, values

STARTS = "log-start-offset-checkpoint"
POINTS = "recovery-point-offset-checkpoint"
THREE = {"internal.segment.bytes": "300"}  # three of these records fill a segment
COUNT = 10


@pytest.fixture
def shop(power: Power) -> Workshop:
    """A workshop on a disk that can lose its power."""
    return safe_place(power)


def filled(shop: Workshop) -> KafkaStore:
    """Write ten records of 30 bytes, in segments of three."""
    store = shop.open_with_topic(THREE)
    for n in range(COUNT):
        store.append(T0, [Record(None, b"%030d" % n)])
    return store


def numbers(store: LogStore) -> list[int]:
    return [int(value or b"-1") for value in values(store)]


def test_segments_below_the_offset_go_and_the_checkpoint_has_the_rest(shop: Workshop) -> None:
    """The start is in the middle of a segment: its earlier records stay in the file, hidden."""
    store = filled(shop)
    bases = shop.bases()
    store.delete_records(T0, 5)
    kept = [base for base in bases if base > 5]
    first = max(base for base in bases if base <= 5)
    assert shop.bases() == [first, *kept]
    assert shop.offsets(STARTS) == {T0: 5}
    assert shop.offsets(POINTS)[T0] >= 5, "a start above it would be doubtful"
    assert shop.epochs() == [(0, 5)]
    assert numbers(store) == list(range(5, COUNT))
    store.delete_records(T0, COUNT)
    assert shop.bases() == bases[-1:], "the active segment stays"
    assert (numbers(store), store.bounds(T0)) == ([], (COUNT, COUNT, COUNT))


def test_a_power_loss_during_a_deletion_leaves_the_old_start_or_the_new(
    power: Power, shop: Workshop
) -> None:
    """At no moment is a record lost that was not to be deleted, or is a deleted record back after the return."""
    store = filled(shop)
    store.flush()
    cuts = moments(power, lambda: store.delete_records(T0, 7))
    found = []
    for cut in cuts:
        with on(cut, shop).open(THREE) as again:
            assert not again.recovery.losses
            assert [f.code for f in again.recovery.findings] == []
            found.append(again.bounds(T0).start)
            assert numbers(again) == list(range(found[-1], COUNT))
    assert sorted(set(found)) == [0, 7]
    assert found == sorted(found)
    assert found[-1] == 7


def test_unflushed_records_are_flushed_first(power: Power, shop: Workshop) -> None:
    """Else a log could end below its start after a power loss."""
    store = filled(shop)
    for cut in moments(power, lambda: store.delete_records(T0, COUNT)):
        with on(cut, shop).open(THREE) as again:
            start, _, end = again.bounds(T0)
            assert (start, not again.recovery.losses) in {(0, True), (COUNT, True)}
            assert start == 0 or end == COUNT


def test_a_full_disk_deletes_nothing() -> None:
    """The checkpoint comes first: without it no file is removed, and the start stays."""
    faulty = FaultyFileSystem(Workshop().fs)
    shop = Workshop(faulty)
    store = filled(shop)
    store.flush()
    bases, fs = shop.bases(), faulty
    fs.fault = at_change(fs, 1, disk_full)
    with pytest.raises(DiskFull):
        store.delete_records(T0, 7)
    fs.fault = no_fault
    assert (store.bounds(T0).start, shop.bases()) == (0, bases)
    assert store.delete_records(T0, 7).start == 7


def test_a_compacted_topic_keeps_its_records(shop: Workshop) -> None:
    """As in the broker (Partition.deleteRecordsOnLeader)."""
    store = shop.open()
    store.create_topic("__transaction_state", 1)
    with pytest.raises(NotOffered) as refused:
        store.delete_records(TopicPartition("__transaction_state", 0), 0)
    assert refused.value.facts()["feature"] == "delete-records"


def test_a_deletion_that_meets_the_topic_s_deletion(shop: Workshop) -> None:
    store = filled(shop)
    partition = store.partition(T0)
    store.delete_topic("t")
    with pytest.raises(UnknownTopic):
        partition.check_deletion(3)
    with pytest.raises(UnknownTopic):
        partition.delete_records(3)


def test_a_power_loss_while_partitions_are_added_leaves_the_first_ones(
    power: Power, shop: Workshop
) -> None:
    """Never a gap in the numbers, never half a folder, and the old partition keeps its records."""
    store = shop.open_with_topic()
    put_value(store, b"kept")
    store.flush()
    found = []
    for cut in moments(power, lambda: store.add_partitions("t", 4)):
        after = on(cut, shop)
        with after.open() as again:
            assert again.recovery.findings == []
            topic = again.topics()["t"]
            assert not topic.missing
            assert topic.partitions == tuple(range(len(topic.partitions)))
            found.append(len(topic.partitions))
            assert values(again) == [b"kept"]
        left = [name for name in after.fs.list_dir(ROOT) if name.startswith("t-")]
        assert left == [f"t-{number}" for number in topic.partitions]
        ids = {_metadata(after.fs, number) for number in topic.partitions}
        assert len(ids) == 1
    assert found == sorted(found)
    assert set(found) == {1, 2, 3, 4}


def _metadata(fs: FileSystem, number: int) -> bytes:
    return fs.read_bytes(ROOT / f"t-{number}" / "partition.metadata")


def test_a_full_disk_adds_no_partition() -> None:
    """What was built is removed again, and the next call succeeds."""
    refused = 0
    for change in range(1, 40):
        faulty = FaultyFileSystem(Workshop().fs)
        store = Workshop(faulty).open_with_topic()
        before = faulty.list_dir(ROOT)
        faulty.fault = at_change(faulty, change, disk_full)
        try:
            store.add_partitions("t", 3)
        except DiskFull:
            refused += 1
            assert store.topics()["t"].partitions == (0,)
            assert faulty.list_dir(ROOT) == before
        faulty.fault = no_fault
        assert store.add_partitions("t", 3).partitions == (0, 1, 2)
    assert refused > 10


def test_the_offsets_topic_keeps_its_partitions(shop: Workshop) -> None:
    """A group's partition follows from their number."""
    store = shop.open({"offsets.topic.num.partitions": "2"})
    store.create_offsets_topic()
    with pytest.raises(InvalidTopic):
        store.add_partitions("__consumer_offsets", 3)
