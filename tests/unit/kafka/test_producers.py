"""Producer states of a partition, batch by batch."""

from __future__ import annotations

import pytest

from storage.errors import FencedProducer, InvalidArgument, OutOfOrderSequence
from storage.kafka.format.producer_snapshot import ProducerEntry
from storage.kafka.format.txn_index import AbortedTransaction
from storage.kafka.state.producers import ProducerStates
from storage.model import ProducerSequence
from storage.shared.sequencing import SEQUENCES
from tests.unit.kafka.log.batches import data_batch, header_of, marker

P = 7


def take_in(states: ProducerStates, *batches: bytes) -> list[AbortedTransaction]:
    """Apply batches; return the entries for the transaction index."""
    entries = [states.update(header_of(data), data, 0) for data in batches]
    return [entry for entry in entries if entry is not None]


def transaction(base_offset: int, producer_id: int, sequence: int = 0, epoch: int = 0) -> bytes:
    return data_batch(base_offset, producer=(producer_id, epoch, sequence), transactional=True)


def entry_of(states: ProducerStates, producer_id: int = P) -> ProducerEntry:
    (found,) = [entry for entry in states.entries() if entry.producer_id == producer_id]
    return found


def test_plain_batches_leave_no_trace() -> None:
    states = ProducerStates()
    take_in(states, data_batch(0), data_batch(1))
    assert (len(states), states.highest_id, states.entries()) == (0, -1, [])


def test_an_entry_holds_the_last_batch() -> None:
    states = ProducerStates()
    take_in(
        states,
        data_batch(4, times_ms=(10, 30, 20), producer=(P, 2, 100)),
        data_batch(9, times_ms=(40, 15), producer=(P, 2, 103)),
    )
    assert states.entries() == [
        ProducerEntry(
            producer_id=P,
            epoch=2,
            last_sequence=104,
            last_offset=10,
            offset_delta=1,
            timestamp_ms=40,
            coordinator_epoch=-1,
            current_txn_first_offset=-1,
        )
    ]


def test_the_next_sequence_goes_on_from_the_last() -> None:
    states = ProducerStates()
    take_in(states, data_batch(0, count=3, producer=(P, 0, 10)))
    states.check(ProducerSequence(P, 0, 13))
    for wrong in (10, 12, 14, 0):
        with pytest.raises(OutOfOrderSequence) as refusal:
            states.check(ProducerSequence(P, 0, wrong))
        assert refusal.value.facts() == {"producer_id": P, "sequence": wrong, "expected": 13}


@pytest.mark.parametrize("last", [SEQUENCES - 1, SEQUENCES - 2])
def test_sequences_wrap_to_zero(last: int) -> None:
    states = ProducerStates()
    take_in(states, data_batch(0, count=1, producer=(P, 0, last)))
    following = (last + 1) % SEQUENCES
    states.check(ProducerSequence(P, 0, following))
    take_in(states, data_batch(1, count=4, producer=(P, 0, following)))
    states.check(ProducerSequence(P, 0, (following + 4) % SEQUENCES))
    assert entry_of(states).last_sequence == (following + 3) % SEQUENCES


def test_a_batch_across_the_wrap_is_recognised_again_after_a_restart() -> None:
    states = ProducerStates()
    take_in(states, data_batch(0, count=4, producer=(P, 0, SEQUENCES - 2)))
    for again in (states, ProducerStates(states.entries())):
        found = again.find_duplicate(P, epoch=0, base_sequence=SEQUENCES - 2, last_sequence=1)
        assert found is not None
        assert (found.base_offset, found.last_offset) == (0, 3)


def test_a_new_epoch_begins_at_zero_and_an_old_one_is_fenced() -> None:
    states = ProducerStates()
    take_in(states, data_batch(0, producer=(P, 3, 50)))
    states.check(ProducerSequence(P, 4, 0))
    with pytest.raises(OutOfOrderSequence):
        states.check(ProducerSequence(P, 4, 51))
    with pytest.raises(FencedProducer) as refusal:
        states.check(ProducerSequence(P, 2, 51))
    assert refusal.value.facts() == {"producer_id": P, "epoch": 2, "current_epoch": 3}


def test_an_unknown_producer_may_begin_anywhere() -> None:
    ProducerStates().check(ProducerSequence(99, 5, 1234))


def test_the_last_five_batches_are_recognised() -> None:
    states = ProducerStates()
    take_in(states, *(data_batch(n, producer=(P, 0, n)) for n in range(7)))
    known = [
        n
        for n in range(7)
        if states.find_duplicate(P, epoch=0, base_sequence=n, last_sequence=n) is not None
    ]
    assert known == [2, 3, 4, 5, 6]
    assert states.find_duplicate(P, epoch=0, base_sequence=5, last_sequence=6) is None
    assert states.find_duplicate(P, epoch=1, base_sequence=5, last_sequence=5) is None
    assert states.find_duplicate(8, epoch=0, base_sequence=5, last_sequence=5) is None


def test_a_new_epoch_forgets_the_batches() -> None:
    states = ProducerStates()
    take_in(states, data_batch(0, producer=(P, 0, 0)), data_batch(1, producer=(P, 1, 0)))
    found = states.find_duplicate(P, epoch=1, base_sequence=0, last_sequence=0)
    assert found is not None
    assert found.base_offset == 1


def test_a_snapshot_remembers_the_last_batch_only() -> None:
    states = ProducerStates()
    take_in(states, *(data_batch(2 * n, count=2, producer=(P, 0, 2 * n)) for n in range(3)))
    again = ProducerStates(states.entries())
    assert again.find_duplicate(P, epoch=0, base_sequence=2, last_sequence=3) is None
    found = again.find_duplicate(P, epoch=0, base_sequence=4, last_sequence=5)
    assert found is not None
    assert (found.base_offset, found.last_offset) == (4, 5)
    again.check(ProducerSequence(P, 0, 6))


# ---- transactions ----------------------------------------------------------------------------------------------------


def test_a_commit_ends_a_transaction() -> None:
    states = ProducerStates()
    take_in(states, transaction(5, P))
    assert states.first_unstable_offset(6) == 5
    assert entry_of(states).current_txn_first_offset == 5
    assert take_in(states, marker(6, P, commit=True, time_ms=77)) == []
    assert states.first_unstable_offset(7) is None
    entry = entry_of(states)
    assert (entry.current_txn_first_offset, entry.coordinator_epoch) == (-1, 3)
    assert (entry.timestamp_ms, entry.last_sequence) == (77, 0)


def test_a_marker_that_is_not_published_leaves_the_transaction_open_for_readers() -> None:
    states = ProducerStates()
    take_in(states, transaction(5, P), marker(6, P, commit=True))
    assert states.first_unstable_offset(6) == 5
    assert states.first_unstable_offset(7) is None


def test_an_abort_is_for_the_index() -> None:
    states = ProducerStates()
    take_in(states, transaction(5, P), transaction(6, P, 1))
    assert take_in(states, marker(7, P, commit=False)) == [AbortedTransaction(P, 5, 7, 8)]


def test_the_stable_offset_of_an_abort_is_the_oldest_other_transaction() -> None:
    states = ProducerStates()
    take_in(states, transaction(0, 1), transaction(1, 2), transaction(2, 3))
    assert take_in(states, marker(3, 2, commit=False)) == [AbortedTransaction(2, 1, 3, 0)]
    assert take_in(states, marker(4, 1, commit=False)) == [AbortedTransaction(1, 0, 4, 2)]
    assert take_in(states, marker(5, 3, commit=False)) == [AbortedTransaction(3, 2, 5, 6)]


def test_an_abort_without_data_is_for_nobody() -> None:
    states = ProducerStates()
    assert take_in(states, marker(0, P, commit=False)) == []
    take_in(states, transaction(1, P), marker(2, P, commit=False))
    assert take_in(states, marker(3, P, commit=False)) == []


def test_plain_data_of_the_producer_opens_nothing() -> None:
    states = ProducerStates()
    take_in(states, data_batch(0, producer=(P, 0, 0)))
    assert states.first_unstable_offset(1) is None


def test_a_marker_of_the_next_epoch_clears_the_sequences() -> None:
    states = ProducerStates()
    take_in(states, transaction(0, P, sequence=4))
    take_in(states, marker(1, P, commit=True, producer_epoch=1))
    entry = entry_of(states)
    assert (entry.epoch, entry.last_sequence, entry.last_offset, entry.offset_delta) == (
        1,
        -1,
        -1,
        0,
    )
    states.check(ProducerSequence(P, 1, 0))


def test_open_transactions_come_back_from_a_snapshot() -> None:
    states = ProducerStates()
    take_in(states, transaction(4, P))
    again = ProducerStates(states.entries())
    assert again.first_unstable_offset(9) == 4
    assert take_in(again, marker(9, P, commit=False)) == [AbortedTransaction(P, 4, 9, 10)]


# ---- expiry ----------------------------------------------------------------------------------------------------------


def test_silent_producers_are_forgotten_but_not_in_a_transaction() -> None:
    states = ProducerStates()
    take_in(
        states,
        data_batch(0, times_ms=(1000,), producer=(1, 0, 0)),
        data_batch(1, times_ms=(1001,), producer=(2, 0, 0)),
        data_batch(2, times_ms=(1000,), producer=(3, 0, 0), transactional=True),
    )
    states.expire(1500, 500)
    assert {entry.producer_id for entry in states.entries()} == {2, 3}
    states.check(ProducerSequence(1, 0, 55))


def test_ids_that_nobody_hands_out_do_not_count() -> None:
    states = ProducerStates()
    take_in(states, data_batch(0, producer=(41, 0, 0)), data_batch(1, producer=(1 << 62, 0, 0)))
    assert states.highest_id == 41


def test_a_mark_without_a_sequence_gets_the_next_one() -> None:
    states = ProducerStates()
    mark = ProducerSequence(P, 1, -1, transactional=True)
    assert states.numbered(mark).sequence == 0, "an unknown producer"
    take_in(states, data_batch(0, count=3, producer=(P, 1, 10)))
    assert states.numbered(mark) == ProducerSequence(P, 1, 13, transactional=True)
    assert states.numbered(mark._replace(epoch=2)).sequence == 0
    assert states.numbered(mark._replace(sequence=7)).sequence == 7
    take_in(states, data_batch(3, count=1, producer=(P, 1, SEQUENCES - 1)))
    assert states.numbered(mark).sequence == 0, "it wraps"


def test_a_producer_with_an_open_transaction_appends_only_to_it() -> None:
    states = ProducerStates()
    take_in(states, transaction(0, P))
    states.check(ProducerSequence(P, 0, 1, transactional=True))
    with pytest.raises(InvalidArgument, match="open transaction"):
        states.check(ProducerSequence(P, 0, 1))
    take_in(states, marker(1, P, commit=True))
    states.check(ProducerSequence(P, 0, 1))
