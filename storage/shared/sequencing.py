"""Idempotent appends: the next allowed sequence number, the detection of duplicates, and the used producer ids.

Owns the rules of a sequenced append (from Kafka's ProducerStateManager, for every backend), the producer state of one
partition, and the assignment of producer ids; must not know a backend's files. A sequence number counts records from 0
to 2^31 - 1 and then starts again at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from storage.errors import FencedProducer, OutOfOrderSequence
from storage.model import ProducerSequence

NO_PRODUCER: Final = -1
NO_SEQUENCE: Final = -1
KEPT_BATCHES: Final = 5  # the number of remembered batches per producer (ProducerStateEntry)
SEQUENCES: Final = 2**31
MADE_UP_IDS: Final = 1 << 62
PRODUCER_ID_BLOCK: Final = 1000
FIRST_BESIDE_BROKER: Final = 1 << 50
"""The first id assigned in a directory that a Kafka broker may open later. Its controller assigns ids from 0 without
reading ours. If both assigned the same id, the broker would treat two producers as one. The value is an exact JSON
integer (below 2^53), and no controller reaches it.
"""
PRODUCER_EXPIRATION_MS: Final = 86_400_000  # producer.id.expiration.ms


class SequencedBatch(NamedTuple):
    """A remembered batch (or append) of a producer."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


def next_sequence(sequence: int, count: int) -> int:
    """Return the sequence number after `count` records, the first of which has `sequence`; it wraps to 0 at 2^31."""
    return (sequence + count) % SEQUENCES


def last_sequence_of(base_sequence: int, count: int) -> int:
    """Return the sequence number of the last of `count` records, the first of which has `base_sequence`."""
    return next_sequence(base_sequence, count - 1)


def find_batch(
    batches: Iterable[SequencedBatch], *, base_sequence: int, last_sequence: int
) -> SequencedBatch | None:
    """Return the batch with these sequence numbers; None if no batch has them."""
    for batch in batches:
        if (batch.base_sequence, batch.last_sequence) == (base_sequence, last_sequence):
            return batch
    return None


def check_next(producer: ProducerSequence, *, current_epoch: int, last_sequence: int) -> None:
    """Raise FencedProducer or OutOfOrderSequence unless a batch with this mark may come next.

    As in ProducerAppendInfo, a new epoch begins at 0. `last_sequence` is NO_SEQUENCE for a producer with no known
    batch. Such a producer may begin at any number, because its records may have been deleted.
    """
    producer_id, epoch, sequence, _ = producer
    if epoch < current_epoch:
        raise fenced(producer_id, epoch, current_epoch)
    if epoch > current_epoch:
        expected = 0
    elif last_sequence < 0:
        return
    else:
        expected = next_sequence(last_sequence, 1)
    if sequence != expected:
        raise OutOfOrderSequence(
            f"sequence {sequence} of producer {producer_id} is out of order: expected {expected}",
            producer_id=producer_id,
            sequence=sequence,
            expected=expected,
        )


def fenced(producer_id: int, epoch: int, current_epoch: int) -> FencedProducer:
    """Return the error for an epoch that is too old."""
    return FencedProducer(
        f"producer {producer_id} has epoch {current_epoch}: epoch {epoch} is fenced",
        producer_id=producer_id,
        epoch=epoch,
        current_epoch=current_epoch,
    )


def highest_id(producer_ids: Iterable[int]) -> int:
    """Return the highest of these ids; NO_PRODUCER if there is none.

    Ids from 2^62 on do not count, because no broker ever assigns them: a client that invents such an id must not use up
    all other ids.
    """
    known = (producer_id for producer_id in producer_ids if producer_id < MADE_UP_IDS)
    return max(known, default=NO_PRODUCER)


class ProducerState(msgspec.Struct, kw_only=True):
    """The state of one producer: its newest epoch, its last batches (newest last), and the time of the newest batch. It
    is stored in this form.
    """

    producer_id: int
    epoch: int
    timestamp_ms: int
    batches: list[SequencedBatch]


class Producers:
    """All producers of one partition. Not thread-safe: the lock that orders the appends guards it."""

    def __init__(self, states: Iterable[ProducerState] = ()) -> None:
        self._states = {state.producer_id: state for state in states}

    def __len__(self) -> int:
        return len(self._states)

    @property
    def highest_id(self) -> int:
        """See `highest_id`."""
        return highest_id(self._states)

    def states(self) -> Sequence[ProducerState]:
        """Return a copy of the states, to be stored; later appends do not change the copy."""
        return [
            msgspec.structs.replace(state, batches=list(state.batches))
            for state in self._states.values()
        ]

    def find_duplicate(self, producer: ProducerSequence, count: int) -> SequencedBatch | None:
        """Return the stored batch that an append of `count` records with this mark repeats, if it is one of the last
        few batches.
        """
        state = self._states.get(producer.producer_id)
        if state is None or state.epoch != producer.epoch:
            return None
        return find_batch(
            state.batches,
            base_sequence=producer.sequence,
            last_sequence=last_sequence_of(producer.sequence, count),
        )

    def check(self, producer: ProducerSequence) -> None:
        """Raise FencedProducer or OutOfOrderSequence unless an append with this mark may come next."""
        state = self._states.get(producer.producer_id)
        if state is not None:
            check_next(
                producer,
                current_epoch=state.epoch,
                last_sequence=state.batches[-1].last_sequence if state.batches else NO_SEQUENCE,
            )

    def add(
        self, producer: ProducerSequence, count: int, *, base_offset: int, timestamp_ms: int
    ) -> None:
        """Add an append of `count` records that has been stored from `base_offset` on."""
        state = self._states.get(producer.producer_id)
        if state is None or state.epoch != producer.epoch:
            state = self._states[producer.producer_id] = ProducerState(
                producer_id=producer.producer_id,
                epoch=producer.epoch,
                timestamp_ms=timestamp_ms,
                batches=[],
            )
        last = last_sequence_of(producer.sequence, count)
        state.timestamp_ms = timestamp_ms
        state.batches.append(
            SequencedBatch(producer.sequence, last, base_offset, base_offset + count - 1)
        )
        del state.batches[:-KEPT_BATCHES]

    def expire(self, before_ms: int) -> None:
        """Remove producers whose newest batch is older than `before_ms`."""
        self._states = {
            producer_id: state
            for producer_id, state in self._states.items()
            if state.timestamp_ms >= before_ms
        }


class ProducerIds:
    """An allocator of producer ids. A block of ids is made durable first, so that no id is assigned twice.

    `write_next_id` makes a number durable that is above all assigned ids; `next_id` is its last argument. Not
    thread-safe: the store's lock guards it.
    """

    def __init__(self, next_id: int, write_next_id: Callable[[int], None]) -> None:
        self._next_id = next_id
        self._write_next_id = write_next_id
        self._block = iter(range(0))
        self._remembered = NO_PRODUCER  # may be inside the block that is being assigned

    def remember(self, seen: int) -> None:
        """Make durable that ids up to `seen` are used, before the records that contain them are deleted."""
        self._remembered = max(self._remembered, seen)
        self._write(max(self._next_id, seen + 1))

    def next_above(self, seen: int) -> int:
        """Return a new id above `seen`, the highest id found in the logs, and above all ids assigned before."""
        seen = max(seen, self._remembered)
        new = next(self._block, None)
        if new is None or new <= seen:
            first = max(self._next_id, seen + 1)
            self._write(first + PRODUCER_ID_BLOCK)
            self._block = iter(range(first, first + PRODUCER_ID_BLOCK))
            new = next(self._block)
        return new

    def _write(self, next_id: int) -> None:
        if next_id != self._next_id:
            self._write_next_id(next_id)
            self._next_id = next_id
