"""Sequenced appends, for every backend: which appends are repeats, which may come next, and which ids are free."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import DiskFull, FencedProducer, OutOfOrderSequence
from storage.model import ProducerSequence
from storage.shared.sequencing import (
    KEPT_BATCHES,
    MADE_UP_IDS,
    NO_PRODUCER,
    PRODUCER_ID_BLOCK,
    SEQUENCES,
    ProducerIds,
    Producers,
    ProducerState,
    highest_id,
    last_sequence_of,
)

P = 7


def put(
    producers: Producers, sequence: int, count: int = 1, *, epoch: int = 0, at_ms: int = 0
) -> None:
    """Check and add an append as a store does."""
    mark = ProducerSequence(P, epoch, sequence)
    assert producers.find_duplicate(mark, count) is None
    producers.check(mark)
    producers.add(mark, count, base_offset=1000 + sequence, timestamp_ms=at_ms)


def refusal(producers: Producers, sequence: int, *, epoch: int = 0) -> object:
    """Return the expected sequence number, or the current epoch, from the error of a refused append."""
    with pytest.raises((OutOfOrderSequence, FencedProducer)) as refused:
        producers.check(ProducerSequence(P, epoch, sequence))
    facts = refused.value.facts()
    return facts.get("expected", facts.get("current_epoch"))


def test_a_producer_begins_anywhere_and_goes_on_without_a_gap() -> None:
    producers = Producers()
    put(producers, 40, 3)
    assert refusal(producers, 42) == 43
    assert refusal(producers, 44) == 43
    put(producers, 43)
    producers.check(ProducerSequence(P + 1, 0, 9))


def test_the_last_few_are_recognised() -> None:
    producers = Producers()
    for sequence in range(0, 2 * (KEPT_BATCHES + 1), 2):
        put(producers, sequence, 2)
    assert producers.find_duplicate(ProducerSequence(P, 0, 0), 2) is None
    for sequence in range(2, 2 * (KEPT_BATCHES + 1), 2):
        mark = ProducerSequence(P, 0, sequence)
        found = producers.find_duplicate(mark, 2)
        assert found == (sequence, sequence + 1, 1000 + sequence, 1001 + sequence)
        assert producers.find_duplicate(mark, 1) is None
        assert producers.find_duplicate(mark._replace(epoch=1), 2) is None
        assert producers.find_duplicate(mark._replace(producer_id=8), 2) is None


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    producers = Producers()
    put(producers, 5)
    assert refusal(producers, 6, epoch=1) == 0
    put(producers, 0, epoch=1)
    assert refusal(producers, 6, epoch=0) == 1
    assert producers.find_duplicate(ProducerSequence(P, 0, 5), 1) is None
    put(producers, 1, epoch=1)


@given(st.integers(0, SEQUENCES - 1), st.integers(1, 10_000))
def test_sequences_wrap(first: int, count: int) -> None:
    producers = Producers()
    put(producers, first, count)
    expected = (first + count) % SEQUENCES
    assert last_sequence_of(first, count) == (expected - 1) % SEQUENCES
    producers.check(ProducerSequence(P, 0, expected))
    assert refusal(producers, (expected + 1) % SEQUENCES) == expected


def test_states_are_written_down_and_read_back() -> None:
    producers = Producers()
    put(producers, 0, 4, at_ms=5)
    states = producers.states()
    put(producers, 4, at_ms=6)
    assert len(states[0].batches) == 1, "a snapshot stays as it is"
    data = msgspec.json.encode(producers.states())
    again = Producers(msgspec.json.decode(data, type=list[ProducerState]))
    assert again.states() == producers.states()
    assert again.find_duplicate(ProducerSequence(P, 0, 0), 4) == (0, 3, 1000, 1003)
    assert refusal(again, 4) == 5


def test_a_state_without_batches_begins_anywhere() -> None:
    producers = Producers([ProducerState(producer_id=P, epoch=3, timestamp_ms=0, batches=[])])
    producers.check(ProducerSequence(P, 3, 77))
    assert refusal(producers, 77, epoch=2) == 3


def test_silent_producers_are_forgotten() -> None:
    producers = Producers()
    put(producers, 0, at_ms=100)
    put(producers, 1, at_ms=200)
    producers.expire(200)
    assert len(producers) == 1
    producers.expire(201)
    assert (len(producers), producers.highest_id) == (0, NO_PRODUCER)


def test_made_up_ids_do_not_use_up_the_others() -> None:
    assert highest_id([]) == NO_PRODUCER
    assert highest_id([3, MADE_UP_IDS, 9, MADE_UP_IDS - 1]) == MADE_UP_IDS - 1
    assert highest_id([MADE_UP_IDS]) == NO_PRODUCER


def test_ids_are_written_down_before_they_are_given() -> None:
    written: list[int] = []
    ids = ProducerIds(0, written.append)
    assert [ids.next_above(-1) for _ in range(PRODUCER_ID_BLOCK)] == list(range(PRODUCER_ID_BLOCK))
    assert written == [PRODUCER_ID_BLOCK]
    assert ids.next_above(-1) == PRODUCER_ID_BLOCK
    assert written == [PRODUCER_ID_BLOCK, 2 * PRODUCER_ID_BLOCK]
    after_a_crash = ProducerIds(written[-1], written.append)
    assert after_a_crash.next_above(-1) == 2 * PRODUCER_ID_BLOCK


def test_ids_are_above_what_was_seen() -> None:
    written: list[int] = []
    ids = ProducerIds(0, written.append)
    assert ids.next_above(4711) == 4712
    ids.remember(4715)
    ids.remember(4713)
    assert written == [4712 + PRODUCER_ID_BLOCK], "nothing new to report"
    assert ids.next_above(-1) == 4712 + PRODUCER_ID_BLOCK
    ids.remember(1_000_000)
    assert written[-1] == 1_000_001
    assert ids.next_above(-1) == 1_000_001


def test_an_id_that_could_not_be_written_down_is_not_given() -> None:
    full = True
    written: list[int] = []

    def write(next_id: int) -> None:
        if full:
            raise DiskFull("full", path="/s", operation="write", errno=28)
        written.append(next_id)

    ids = ProducerIds(5, write)
    with pytest.raises(DiskFull):
        ids.next_above(-1)
    with pytest.raises(DiskFull):
        ids.remember(9)
    full = False
    assert ids.next_above(-1) == 10
    assert written == [10 + PRODUCER_ID_BLOCK]
