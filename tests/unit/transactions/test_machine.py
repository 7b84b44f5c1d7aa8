"""The rules of the coordinator: every change of every state, as values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logserver.errors import TransactionEnded, UnknownTransaction
from logserver.transactions import machine
from logserver.transactions.machine import Answered, Ending
from storage import (
    ProducerEpoch,
    TopicPartition,
    TransactionLimits,
    TransactionState,
    TransactionStatus,
)
from storage.errors import FencedProducer, InvalidArgument
from storage.transactions import EXHAUSTED_EPOCH

S = TransactionStatus
P, NEW = 100, 200
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
EMPTY = machine.initialised(None, "tx", 1000, 5, new_id=P)
OPEN = machine.with_partitions(EMPTY, [T0], 10)
LIMITS = TransactionLimits(900_000, 7_000)


def end_of(
    state: TransactionState | None, epoch: int, *, commit: bool = True, bump: bool = True
) -> TransactionState | Ending | Answered:
    owner = ProducerEpoch(P, epoch)
    return machine.end_of(state, owner, commit=commit, bump=bump, now_ms=50)


def test_a_first_producer() -> None:
    assert machine.needs_producer_id(None)
    assert TransactionState("tx", P, 0, 1000, S.EMPTY, 5, previous_producer_id=P) == EMPTY


def test_each_producer_of_an_id_has_a_higher_epoch() -> None:
    second = machine.initialised(EMPTY, "tx", 2000, 9)
    assert (second.producer_id, second.epoch, second.timeout_ms) == (P, 1, 2000)
    assert (second.status, second.start_ms, second.update_ms) == (S.EMPTY, -1, 9)


def test_used_up_epochs_give_a_new_producer_id() -> None:
    last = EMPTY._replace(epoch=EXHAUSTED_EPOCH)
    assert not machine.needs_producer_id(EMPTY._replace(epoch=EXHAUSTED_EPOCH - 1))
    assert machine.needs_producer_id(last)
    state = machine.initialised(last, "tx", 1000, 9, new_id=NEW)
    assert (state.producer_id, state.epoch, state.previous_producer_id) == (NEW, 0, P)


def test_partitions_begin_the_transaction_and_join_it() -> None:
    assert (OPEN.status, OPEN.start_ms, OPEN.partitions) == (S.ONGOING, 10, frozenset({T0}))
    assert machine.with_partitions(OPEN, [T0], 20) is OPEN
    more = machine.with_partitions(OPEN, [T0, T1], 20)
    assert (more.start_ms, more.update_ms, more.partitions) == (10, 20, frozenset({T0, T1}))


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("bump", [True, False])
def test_an_end(commit: bool, bump: bool) -> None:
    prepared, completed, decided = machine.ending(OPEN, commit=commit, now_ms=50, bump=bump)
    epoch, version = (1, 2) if bump else (0, 0)
    wanted = (
        (S.PREPARE_COMMIT, S.COMPLETE_COMMIT) if commit else (S.PREPARE_ABORT, S.COMPLETE_ABORT)
    )
    assert (prepared.status, completed.status) == wanted
    assert (prepared.epoch, completed.epoch, prepared.client_version) == (epoch, epoch, version)
    assert [prepared.partitions, completed.partitions] == [frozenset({T0}), frozenset()]
    assert prepared.start_ms == completed.start_ms == 10
    assert not decided
    marker = Ending(prepared, completed).marker()
    assert marker == ("tx", P, epoch, commit)
    following = machine.with_partitions(completed, [T1], 60)
    assert (following.epoch, following.start_ms, following.partitions) == (
        epoch,
        60,
        frozenset({T1}),
    )


def test_an_end_that_uses_up_the_epochs() -> None:
    last = OPEN._replace(epoch=EXHAUSTED_EPOCH)
    assert machine.needs_next_producer_id(last, bump=True)
    assert not machine.needs_next_producer_id(last, bump=False)
    ending = machine.ending(last, commit=True, now_ms=50, bump=True, next_id=NEW)
    assert (ending.prepared.producer_id, ending.prepared.epoch) == (P, EXHAUSTED_EPOCH + 1)
    assert ending.prepared.next_producer_id == NEW
    completed = ending.completed
    assert (completed.producer_id, completed.epoch, completed.previous_producer_id) == (NEW, 0, P)
    assert completed.next_producer_id == -1
    assert end_of(completed, EXHAUSTED_EPOCH) is Answered.BEFORE
    assert machine.transaction_of(completed) == (P, EXHAUSTED_EPOCH)


def states() -> dict[str, TransactionState]:
    """Every kind of state of producer P, each with the epoch that its next transaction has."""
    found = {"empty": EMPTY, "open": OPEN}
    for commit in (True, False):
        for bump in (True, False):
            prepared, completed, _ = machine.ending(OPEN, commit=commit, now_ms=50, bump=bump)
            name = f"{'commit' if commit else 'abort'} {'raised' if bump else 'same'}"
            found |= {f"prepared {name}": prepared, f"complete {name}": completed}
    return found


# (state, epoch of the request, commit, bump) -> the meaning; every other combination is an error
_ENDS = {
    ("open", 0, True, True): "now",
    ("open", 0, False, True): "now",
    ("open", 0, True, False): "now",
    ("open", 0, False, False): "now",
    ("empty", 0, False, True): "now",  # only raises the epoch
    ("complete commit raised", 1, False, True): "now",  # an empty transaction after it
    ("complete abort raised", 1, False, True): "now",
    ("complete commit same", 0, False, True): "now",
    ("complete abort same", 0, False, True): "now",
    ("prepared commit raised", 0, True, True): "rest",
    ("prepared abort raised", 0, False, True): "rest",
    ("prepared commit raised", 1, True, True): "rest",
    ("prepared abort raised", 1, False, True): "rest",
    ("prepared commit same", 0, True, True): "rest",
    ("prepared abort same", 0, False, True): "rest",
    ("complete commit raised", 0, True, True): "before",
    ("complete abort raised", 0, False, True): "before",
}
for (_name, _epoch, _commit, _bump), _meaning in list(_ENDS.items()):
    if _meaning != "now":
        _ENDS[_name, _epoch, _commit, False] = _meaning
_ENDS |= {
    ("complete commit same", 0, True, False): "before",
    ("complete abort same", 0, False, False): "before",
    ("complete commit raised", 1, True, False): "before",
    ("complete abort raised", 1, False, False): "before",
}


@pytest.mark.parametrize("bump", [True, False])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("epoch", [0, 1, 2])
@pytest.mark.parametrize("name", states())
def test_what_a_request_to_end_means(name: str, epoch: int, commit: bool, bump: bool) -> None:
    state = states()[name]
    meaning = _ENDS.get((name, epoch, commit, bump))
    if meaning is None:
        with pytest.raises((TransactionEnded, FencedProducer)):
            end_of(state, epoch, commit=commit, bump=bump)
        return
    found = end_of(state, epoch, commit=commit, bump=bump)
    if meaning == "now":
        assert found is state
    elif meaning == "before":
        assert found is Answered.BEFORE
    else:
        assert isinstance(found, Ending)
        assert found.is_decided
        assert found.prepared is state
        assert found.completed.status in machine.COMPLETE


def test_a_fenced_producer() -> None:
    with pytest.raises(FencedProducer) as refusal:
        machine.check_producer(OPEN._replace(epoch=3), ProducerEpoch(P, 2))
    assert refusal.value.facts() == {"producer_id": P, "epoch": 2, "current_epoch": 3}
    with pytest.raises(UnknownTransaction):
        machine.check_producer(OPEN, ProducerEpoch(P + 1, 0))
    with pytest.raises(UnknownTransaction):
        machine.check_producer(None, ProducerEpoch(P, 0))


def test_no_partition_joins_after_the_outcome_is_fixed() -> None:
    prepared = machine.ending(OPEN, commit=True, now_ms=50, bump=True).prepared
    with pytest.raises(TransactionEnded, match="PrepareCommit"):
        machine.with_partitions(prepared, [T1], 60)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_time_out_outside_its_limits(timeout_ms: int) -> None:
    with pytest.raises(InvalidArgument, match=r"1 to 900000 \(transaction.max.timeout.ms\)") as no:
        machine.check_timeout(timeout_ms, LIMITS)
    assert no.value.facts() == {"field": "timeout_ms"}
    machine.check_timeout(900_000, LIMITS)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256, "\ud800"])
def test_an_id_that_is_no_text(name: str) -> None:
    with pytest.raises(InvalidArgument):
        machine.check_id(name)


def test_times() -> None:
    assert [machine.is_overdue(OPEN, now) for now in (1009, 1010)] == [False, True]
    assert not machine.is_overdue(EMPTY, 10**9)
    unused: Callable[[TransactionState, int], bool] = lambda state, now: machine.is_unused(  # noqa: E731
        state, now, LIMITS
    )
    assert [unused(EMPTY, now) for now in (7004, 7005)] == [False, True]
    assert not unused(OPEN, 10**9)
    assert machine.dead(EMPTY, 9).status is S.DEAD
