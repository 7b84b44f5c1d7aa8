"""Batches from clients: their header fields are checked before any byte is stored."""

from __future__ import annotations

import pytest

from storage import Record
from storage.errors import InvalidBatch, OutOfOrderSequence
from storage.kafka.store import KafkaStore
from tests.unit.kafka.log.batches import data_batch, lying
from tests.unit.kafka.workshop import T0, Workshop, put_value, values


@pytest.fixture
def store(shop: Workshop) -> KafkaStore:
    return shop.open_with_topic()


LIES = {
    "a producer without a sequence": ({"producer_id": 5, "producer_epoch": 0}, "base_sequence"),
    "a producer without an epoch": ({"producer_id": 5, "base_sequence": 0}, "producer_epoch"),
    "a producer id below -1": ({"producer_id": -7}, "producer_id"),
    "more records than bytes": ({"count": 2**31 - 1, "last_offset_delta": 2**31 - 2}, "count"),
    "no records": ({"count": 0, "last_offset_delta": 0}, "count"),
}


@pytest.mark.parametrize(("fields", "named"), LIES.values(), ids=LIES.keys())
def test_a_batch_that_lies_is_refused(
    store: KafkaStore, fields: dict[str, int], named: str
) -> None:
    """A batch with a valid CRC and wrong header fields is rejected: the CRC covers the bytes, not their meaning."""
    with pytest.raises(InvalidBatch) as refused:
        store.append_batches(T0, lying(data_batch(), **fields))
    assert refused.value.facts()["field"] == named
    assert store.bounds(T0).end == 0


def test_a_set_wider_than_a_segment_is_refused(store: KafkaStore) -> None:
    """Kept offsets may jump, but within one append no further than the relative offsets of a segment reach."""
    far = lying(data_batch(), base_offset=2**31 + 5)
    with pytest.raises(InvalidBatch):
        store.append_batches(T0, data_batch() + far, keep_offsets=True)
    put_value(store, b"next")
    assert values(store) == [b"next"]


def test_a_repeat_of_several_batches_gets_its_first_offsets(store: KafkaStore) -> None:
    """All batches of the repeated request are known, so no record is stored twice."""
    both = data_batch(count=2, producer=(7, 0, 0)) + data_batch(value=b"c", producer=(7, 0, 2))
    first = store.append_batches(T0, both)
    again = store.append_batches(T0, both)
    assert (again[:2], again.duplicate) == (first[:2], True)
    assert values(store) == [b"x", b"x", b"c"]


def test_a_sequenced_batch_behind_an_unsequenced_one_is_checked(store: KafkaStore) -> None:
    """A request with sequenced and unsequenced batches is rejected: its repeat could not be recognised."""
    with pytest.raises(InvalidBatch):
        store.append_batches(T0, data_batch() + data_batch(producer=(7, 0, 5)))
    store.append_batches(T0, data_batch(producer=(7, 0, 0)))
    with pytest.raises(OutOfOrderSequence):
        store.append_batches(T0, data_batch(producer=(7, 0, 5)))


def test_batches_stored_apart_are_no_repeat_of_one_request(store: KafkaStore) -> None:
    """Batches with other records stored between them are no repeat: the answer could not be one range of offsets."""
    first = data_batch(value=b"a", producer=(7, 0, 0))
    second = data_batch(value=b"b", producer=(7, 0, 1))
    store.append_batches(T0, first)
    store.append(T0, [Record(None, b"between")])
    store.append_batches(T0, second)
    with pytest.raises(OutOfOrderSequence):
        store.append_batches(T0, first + second)
    assert values(store) == [b"a", b"between", b"b"]


def test_a_preview_refuses_what_the_append_would(store: KafkaStore) -> None:
    """A preview rejects the batches that the append rejects, so that no empty topic is created for them."""
    with pytest.raises(InvalidBatch):
        store.preview_topic("new", data_batch() + data_batch(producer=(7, 0, 5)))
    assert store.preview_topic("new", data_batch()).name == "new"
