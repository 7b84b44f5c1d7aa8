"""Idempotent appends: which sequence may come next, what was stored already, which ids are taken.

Owns the rules of a sequenced append (those of Kafka's ProducerStateManager, which every backend
keeps), what one partition remembers of its producers, and the handing out of producer ids; must not
know a backend's files. A sequence counts records from 0 to 2^31 - 1 and begins again at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from storage.errors import FencedProducer, OutOfOrderSequence
from storage.model import ProducerSequence

NO_PRODUCER: Final = -1
NO_SEQUENCE: Final = -1
KEPT_BATCHES: Final = 5  # how many of a producer's last batches are recognised (ProducerStateEntry)
SEQUENCES: Final = 2**31
MADE_UP_IDS: Final = 1 << 62
PRODUCER_ID_BLOCK: Final = 1000
FIRST_BESIDE_BROKER: Final = 1 << 50
"""Where ids begin in a directory that a Kafka may get: its controller gives out ids from 0, without a look at ours, and
takes one that both gave out for one producer. A whole number of JSON (below 2^53), which no controller reaches."""
PRODUCER_EXPIRATION_MS: Final = 86_400_000  # producer.id.expiration.ms


class SequencedBatch(NamedTuple):
    """One remembered batch (or append) of a producer."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


def next_sequence(sequence: int, count: int) -> int:
    """The sequence behind `count` records, the first of which has `sequence`: they begin anew at 2^31."""
    return (sequence + count) % SEQUENCES


def last_sequence_of(base_sequence: int, count: int) -> int:
    """The sequence of the last of `count` records, the first of which has `base_sequence`."""
    return next_sequence(base_sequence, count - 1)


def find_batch(
    batches: Iterable[SequencedBatch], *, base_sequence: int, last_sequence: int
) -> SequencedBatch | None:
    """The batch with these sequences, None when it is not among them."""
    for batch in batches:
        if (batch.base_sequence, batch.last_sequence) == (base_sequence, last_sequence):
            return batch
    return None


def check_next(producer: ProducerSequence, *, current_epoch: int, last_sequence: int) -> None:
    """Raise FencedProducer or OutOfOrderSequence unless a batch with this mark may come next.

    As ProducerAppendInfo: a new epoch begins at 0. `last_sequence` is NO_SEQUENCE for a producer of
    which none is known: it may begin anywhere, since its records may have been deleted.
    """
    producer_id, epoch, sequence = producer
    if epoch < current_epoch:
        raise FencedProducer(
            f"producer {producer_id} has epoch {current_epoch}: epoch {epoch} is fenced",
            producer_id=producer_id,
            epoch=epoch,
            current_epoch=current_epoch,
        )
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


def highest_id(producer_ids: Iterable[int]) -> int:
    """The highest of these ids, NO_PRODUCER when there is none.

    Ids from 2^62 on, which no broker has ever given out, do not count: one client that makes up
    such an id must not use up all the others.
    """
    known = (producer_id for producer_id in producer_ids if producer_id < MADE_UP_IDS)
    return max(known, default=NO_PRODUCER)


class ProducerState(msgspec.Struct, kw_only=True):
    """What is known of one producer: its newest epoch, the last batches of it (newest last), and
    the time of the newest. Written down as it stands here.
    """

    producer_id: int
    epoch: int
    timestamp_ms: int
    batches: list[SequencedBatch]


class Producers:
    """All producers of one partition. Not thread-safe: whoever orders the appends guards it."""

    def __init__(self, states: Iterable[ProducerState] = ()) -> None:
        self._states = {state.producer_id: state for state in states}

    def __len__(self) -> int:
        return len(self._states)

    @property
    def highest_id(self) -> int:
        """See `highest_id`."""
        return highest_id(self._states)

    def states(self) -> Sequence[ProducerState]:
        """What is to be written down: a copy that later appends leave alone."""
        return [
            msgspec.structs.replace(state, batches=list(state.batches))
            for state in self._states.values()
        ]

    def find_duplicate(self, producer: ProducerSequence, count: int) -> SequencedBatch | None:
        """The stored batch that an append of `count` records with this mark repeats, if it is one
        of the last few.
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
        """Take in an append of `count` records that has been stored from `base_offset` on."""
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
        """Forget producers whose newest batch is older than `before_ms`."""
        self._states = {
            producer_id: state
            for producer_id, state in self._states.items()
            if state.timestamp_ms >= before_ms
        }


class ProducerIds:
    """Hands out producer ids, a block at a time written down first, so that none is given twice.

    `write_next_id` makes a number durable that is above all ids handed out; `next_id` is what it
    was last called with. Not thread-safe: the store's lock guards it.
    """

    def __init__(self, next_id: int, write_next_id: Callable[[int], None]) -> None:
        self._next_id = next_id
        self._write_next_id = write_next_id
        self._block = iter(range(0))
        self._remembered = NO_PRODUCER  # may lie inside the block that is being handed out

    def remember(self, seen: int) -> None:
        """Note that ids up to `seen` are taken, durably, before the records that tell it are gone."""
        self._remembered = max(self._remembered, seen)
        self._write(max(self._next_id, seen + 1))

    def next_above(self, seen: int) -> int:
        """A new id above `seen`, the highest id met in the logs, and above all handed out before."""
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
