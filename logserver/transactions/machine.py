"""The states of a transactional id, and the changes between them: a coordinator without IO and without a clock.

Owns the rules: producer ids and epochs, fencing, epochs that are used up, time-outs, and the answer to a repeated
request. Must not store anything: each function returns the next state, which counts once the store has it. From Kafka's
TransactionCoordinator and TransactionMetadata, for both versions of the protocol:

    status           next                                 by
    Empty            Ongoing                              the first partition
    Ongoing          Ongoing                              more partitions
                     PrepareCommit, PrepareAbort          the end; a time-out; a new producer with the same id
    PrepareX         CompleteX                            markers in all partitions
    CompleteX        Ongoing                              the first partition of the next transaction
                     PrepareX                             the end of a transaction without a partition
    Empty, CompleteX Empty                                a new producer with the same id: a higher epoch
                     Dead                                 unused for a long time: the id is removed

With `bump` (transaction.version 2) the end of a transaction raises the epoch, so that no late record of it can be
stored after its marker. Without it (clients of an older protocol) the epoch stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from logserver.errors import TransactionEnded, UnknownTransaction
from storage import (
    ProducerEpoch,
    TopicPartition,
    TransactionLimits,
    TransactionMarker,
    TransactionState,
    TransactionStatus,
)
from storage.errors import FencedProducer, InvalidArgument
from storage.transactions import EPOCH_A_TRANSACTION, EXHAUSTED_EPOCH, NO_TIME

NO_PRODUCER: Final = -1
MAX_ID_BYTES: Final = 255
PREPARED: Final = frozenset({TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT})
COMPLETE: Final = frozenset({TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT})
IDLE: Final = COMPLETE | {TransactionStatus.EMPTY}
COMMITS: Final = frozenset({TransactionStatus.PREPARE_COMMIT, TransactionStatus.COMPLETE_COMMIT})


class Ending(NamedTuple):
    """The end of a transaction: the state that fixes the outcome, and the state once all markers are written.

    `is_decided`: the first of them is stored already.
    """

    prepared: TransactionState
    completed: TransactionState
    is_decided: bool = False

    def marker(self) -> TransactionMarker:
        """Return the marker of each of its partitions."""
        state = self.prepared
        return TransactionMarker(
            state.transactional_id, state.producer_id, state.epoch, state.status in COMMITS
        )


class Answered(Enum):
    """The answer to a repeated request: nothing is left to do."""

    BEFORE = "before"


# ---- checks --------------------------------------------------------------------------------------


def check_id(transactional_id: str) -> None:
    """Raise InvalidArgument unless the id is 1 to 255 bytes of printable text."""
    size_bytes = len(transactional_id.encode("utf-8", "surrogatepass"))
    if not 1 <= size_bytes <= MAX_ID_BYTES or not transactional_id.isprintable():
        raise InvalidArgument(
            f"transactional_id {transactional_id[:80]!r} is not 1 to {MAX_ID_BYTES} bytes of printable text",
            field="transactional_id",
        )


def check_timeout(timeout_ms: int, limits: TransactionLimits) -> None:
    """Raise InvalidArgument for a time-out that is not above 0, or over the store's limit."""
    if not 0 < timeout_ms <= limits.max_timeout_ms:
        raise InvalidArgument(
            f"timeout_ms is {timeout_ms}, it must be 1 to {limits.max_timeout_ms} "
            "(transaction.max.timeout.ms)",
            field="timeout_ms",
        )


def check_producer(state: TransactionState | None, producer: ProducerEpoch) -> TransactionState:
    """Return the state of a transactional id whose current producer this is.

    Raises UnknownTransaction for an unknown id or another producer id, FencedProducer for another epoch.
    """
    if state is None or state.producer_id != producer.producer_id:
        raise UnknownTransaction(
            f"producer {producer.producer_id} has no transactional id here, or a newer producer has taken it over",
            producer_id=producer.producer_id,
        )
    if state.epoch != producer.epoch:
        raise fenced(producer, state)
    return state


def fenced(producer: ProducerEpoch, state: TransactionState) -> FencedProducer:
    """Return the error for a producer whose epoch is not the current one."""
    return FencedProducer(
        f"producer {producer.producer_id} has epoch {state.epoch}: epoch {producer.epoch} is fenced",
        producer_id=producer.producer_id,
        epoch=producer.epoch,
        current_epoch=state.epoch,
    )


def ended(state: TransactionState, why: str = "") -> TransactionEnded:
    """Return the error for a request to a transaction that has ended, or has never begun."""
    name = state.transactional_id
    return TransactionEnded(
        f"transaction of {name!r}: {why or 'it has ended'}: its state is {state.status.label}",
        transactional_id=name,
        state=state.status.label,
    )


# ---- a producer ----------------------------------------------------------------------------------


def needs_producer_id(state: TransactionState | None) -> bool:
    """Return whether the next producer with this transactional id gets a new producer id."""
    return state is None or state.epoch >= EXHAUSTED_EPOCH


def initialised(
    state: TransactionState | None,
    transactional_id: str,
    timeout_ms: int,
    now_ms: int,
    *,
    new_id: int = NO_PRODUCER,
) -> TransactionState:
    """Return the state with a producer that fences all earlier ones with its transactional id.

    `new_id`: a new producer id, if `needs_producer_id`. The status of `state` must be Empty or Complete.
    """
    if state is None:
        return TransactionState(
            transactional_id,
            new_id,
            0,
            timeout_ms,
            TransactionStatus.EMPTY,
            now_ms,
            previous_producer_id=new_id,
        )
    rotates = needs_producer_id(state)
    return TransactionState(
        transactional_id,
        new_id if rotates else state.producer_id,
        0 if rotates else state.epoch + 1,
        timeout_ms,
        TransactionStatus.EMPTY,
        now_ms,
        previous_producer_id=state.producer_id,
    )


# ---- a transaction -------------------------------------------------------------------------------


def with_partitions(
    state: TransactionState,
    partitions: Iterable[TopicPartition],
    now_ms: int,
    *,
    version: int = EPOCH_A_TRANSACTION,
) -> TransactionState:
    """Return the state with these partitions in its transaction; the same state if it has all of them.

    The first partition begins the transaction. `version`: of the client's protocol. Raises TransactionEnded if the
    outcome is fixed already.
    """
    if state.status.is_prepared:
        raise ended(state, "its outcome is fixed")
    is_open = state.status is TransactionStatus.ONGOING
    known = state.partitions if is_open else frozenset()
    if is_open and known.issuperset(partitions):
        return state
    return state._replace(
        status=TransactionStatus.ONGOING,
        partitions=known.union(partitions),
        start_ms=state.start_ms if is_open else now_ms,
        update_ms=now_ms,
        previous_producer_id=state.producer_id,
        next_producer_id=NO_PRODUCER,
        client_version=version,
    )


def needs_next_producer_id(state: TransactionState, *, bump: bool) -> bool:
    """Return whether the end of the transaction uses up the last epoch of its producer id."""
    return bump and not state.status.is_prepared and state.epoch >= EXHAUSTED_EPOCH


def ending(
    state: TransactionState, *, commit: bool, now_ms: int, bump: bool, next_id: int = NO_PRODUCER
) -> Ending:
    """Return the end of a transaction that is open, or that has no partition yet.

    `next_id`: a new producer id, if `needs_next_producer_id`.
    """
    is_open = state.status is TransactionStatus.ONGOING
    prepared = state._replace(
        status=TransactionStatus.PREPARE_COMMIT if commit else TransactionStatus.PREPARE_ABORT,
        epoch=state.epoch + 1 if bump else state.epoch,
        partitions=state.partitions if is_open else frozenset(),
        start_ms=state.start_ms if is_open else now_ms,
        update_ms=now_ms,
        previous_producer_id=state.producer_id,
        next_producer_id=next_id,
        client_version=EPOCH_A_TRANSACTION if bump else 0,
    )
    return Ending(prepared, completed(prepared, now_ms))


def resumed(state: TransactionState, now_ms: int) -> Ending:
    """Return the rest of an end whose outcome is stored, after a stop or an error in the middle."""
    return Ending(state, completed(state, now_ms), is_decided=True)


def completed(prepared: TransactionState, now_ms: int) -> TransactionState:
    """Return the state once all markers are written: no partitions, and a new producer id if the epochs are used up."""
    commit = prepared.status is TransactionStatus.PREPARE_COMMIT
    rotates = prepared.next_producer_id != NO_PRODUCER
    return prepared._replace(
        status=TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT,
        producer_id=prepared.next_producer_id if rotates else prepared.producer_id,
        epoch=0 if rotates else prepared.epoch,
        partitions=frozenset(),
        update_ms=now_ms,
        previous_producer_id=prepared.producer_id,
        next_producer_id=NO_PRODUCER,
    )


def end_of(
    state: TransactionState | None,
    producer: ProducerEpoch,
    *,
    commit: bool,
    bump: bool,
    now_ms: int,
) -> TransactionState | Ending | Answered:
    """Return what a request to end a transaction means in a state:

    - the state, if the transaction is to be ended now: see `ending`
    - the rest of its end, if the same outcome is stored but not complete
    - `Answered.BEFORE`, if it has ended with the same outcome: a repeated request

    Raises TransactionEnded for the other outcome, and for a commit of a transaction that has not begun. Raises
    UnknownTransaction, FencedProducer.
    """
    repeated = state is not None and is_end_of(state, producer)
    if state is None or not repeated:
        state = check_producer(state, producer)
    is_commit = state.status in COMMITS
    if state.status.is_prepared:
        if commit == is_commit:
            return resumed(state, now_ms)
        raise ended(state, "its outcome is fixed")
    if state.status in COMPLETE and (repeated or not bump):
        if commit == is_commit:
            return Answered.BEFORE
        raise ended(state)
    if state.status is not TransactionStatus.ONGOING and (commit or not bump):
        raise ended(state, "it has not begun")
    return state


def is_end_of(state: TransactionState, producer: ProducerEpoch) -> bool:
    """Return whether the state is the end of the transaction that this producer and epoch began.

    The end has raised the epoch, or replaced the producer id by a new one with epoch 0.
    """
    if state.client_version < EPOCH_A_TRANSACTION or state.status not in COMPLETE | PREPARED:
        return False
    if state.producer_id == producer.producer_id:
        return state.epoch == producer.epoch + 1
    is_rotated = state.epoch == 0 and producer.epoch == EXHAUSTED_EPOCH
    return is_rotated and state.previous_producer_id == producer.producer_id


def transaction_of(state: TransactionState) -> ProducerEpoch:
    """Return the producer and epoch of the newest transaction of a state, as its client knows them."""
    if state.client_version < EPOCH_A_TRANSACTION or state.status not in COMPLETE | PREPARED:
        return ProducerEpoch(state.producer_id, state.epoch)
    if state.epoch == 0:  # the producer id was replaced
        return ProducerEpoch(state.previous_producer_id, EXHAUSTED_EPOCH)
    return ProducerEpoch(state.producer_id, state.epoch - 1)


# ---- time ----------------------------------------------------------------------------------------


def is_overdue(state: TransactionState, now_ms: int) -> bool:
    """Return whether an open transaction has lasted longer than its time-out."""
    if state.status is not TransactionStatus.ONGOING or state.start_ms == NO_TIME:
        return False
    return state.start_ms + state.timeout_ms <= now_ms


def is_unused(state: TransactionState, now_ms: int, limits: TransactionLimits) -> bool:
    """Return whether the id has been unused for so long that it is removed."""
    return state.status in IDLE and state.update_ms + limits.id_expiration_ms <= now_ms


def dead(state: TransactionState, now_ms: int) -> TransactionState:
    """Return the state that removes the id."""
    return state._replace(status=TransactionStatus.DEAD, update_ms=now_ms, partitions=frozenset())
