"""The published end: visibility of appends that are held until a flush."""

from __future__ import annotations

from itertools import product

import pytest

from storage.contract import LogStore
from storage.errors import OffsetOutOfRange, RecordNotFound
from storage.model import OffsetBounds, ProducerSequence, Record, TopicPartition
from tests.contract.harness import StoreFactory, texts, values

STEPS = ("publish", "hold", "flush")


def expected_ends(steps: tuple[str, ...]) -> list[int]:
    """Apply the rule: a published append is visible at once unless an earlier append is held; a flush shows all."""
    stored = shown = 0
    ends = []
    for step in steps:
        if step == "flush":
            shown = stored
        else:
            shown += step == "publish" and shown == stored
            stored += 1
        ends.append(shown)
    return ends


@pytest.mark.parametrize("first", STEPS)
def test_table(store: LogStore, partition: TopicPartition, first: str) -> None:
    """In all orders of four steps, the end and the readable records follow the rule after each step."""
    for rest in product(STEPS, repeat=3):
        steps = (first, *rest)
        base = store.bounds(partition).end
        for step, end in zip(steps, expected_ends(steps), strict=True):
            if step == "flush":
                store.flush([partition])
            else:
                store.append(partition, texts(step), publish=step == "publish")
            assert store.bounds(partition) == OffsetBounds(0, base + end, base + end), steps
            page = store.read(partition, base)
            assert [r.offset for r in page.records] == list(range(base, base + end)), steps
            assert page.next_offset == base + end
        store.flush()


def test_held_append_shows_whole(store: LogStore, partition: TopicPartition) -> None:
    """Of an append with several records, readers see nothing or all."""
    result = store.append(partition, texts("a", "b", "c"), publish=False)
    assert result[:2] == (0, 2)
    assert values(store.read(partition, 0)) == []
    store.flush([partition])
    assert values(store.read(partition, 0)) == [b"a", b"b", b"c"]


def test_offset_behind_the_published_end(store: LogStore, partition: TopicPartition) -> None:
    """For readers a held record does not exist: its end is out of range, and its offset returns an empty page."""
    store.append(partition, texts("held"), publish=False)
    assert list(store.read(partition, 0).records) == []
    with pytest.raises(OffsetOutOfRange) as refused:
        store.read(partition, 1)
    assert refused.value.latest == 0


def test_held_record_cannot_be_found(
    store_factory: StoreFactory, store: LogStore, partition: TopicPartition
) -> None:
    """A held record is not found by time, key, id or scan; after the flush each of them finds it."""
    store_factory.clock.now_ms = 1000
    held = Record(b"k", b"v", (), 1000)
    result = store.append(partition, [held], publish=False)
    record_id = store.record_id(partition, result.locators[0])
    assert store.offset_for_time(partition, 0) is None
    assert list(store.find("events", key="k").records) == []
    assert list(store.scan(partition)) == []
    with pytest.raises(RecordNotFound):
        store.find_by_id(record_id)

    store.flush([partition])
    found = store.offset_for_time(partition, 0)
    assert found is not None
    assert found[:2] == (0, 1000)
    assert len(store.find("events", key="k").records) == 1
    assert len(list(store.scan(partition))) == 1
    assert store.find_by_id(record_id)[1].value == b"v"


def test_flush_is_by_partition(store: LogStore, partition: TopicPartition) -> None:
    """A flush publishes the partitions it names, or all partitions if it names none."""
    other = TopicPartition("events", 1)
    store.append(partition, texts("a"), publish=False)
    store.append(other, texts("b"), publish=False)
    store.flush([other])
    assert (store.bounds(partition).end, store.bounds(other).end) == (0, 1)
    store.flush([])
    assert store.bounds(partition).end == 0
    store.flush()
    assert store.bounds(partition).end == 1


def test_flush_takes_any_iterable(store: LogStore, partition: TopicPartition) -> None:
    """The partitions of a flush may be any iterable, and may be repeated."""
    store.append(partition, texts("a"), publish=False)
    store.flush(p for p in (partition, partition))
    assert store.bounds(partition).end == 1


def test_repeat_of_a_held_append(store: LogStore, partition: TopicPartition) -> None:
    """A producer's repeat of a held append is a duplicate and does not publish it."""
    mark = ProducerSequence(1, 0, 0)
    store.append(partition, texts("a"), producer=mark, publish=False)
    again = store.append(partition, texts("a"), producer=mark)
    assert (again.base_offset, again.duplicate) == (0, True)
    assert store.bounds(partition).end == 0
    store.flush()
    assert values(store.read(partition, 0)) == [b"a"]
