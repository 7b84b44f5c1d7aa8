"""The producer state of a partition: sequences, epochs and open transactions (ProducerStateManager).

Owns the entries of a `.snapshot` and the last stable offset; must not do IO, nor contain the rules of sequences
(storage.shared.sequencing). Appends and recovery add every batch in log order. Not thread-safe: the partition's append
lock guards it. The partition changes it under its state lock too, and reads `first_unstable_offset` under the state
lock alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from storage.errors import DataError, FencedCoordinator, InvalidArgument
from storage.kafka.format.batch import (
    ABORT,
    COMMIT,
    BatchHeader,
    ControlMarker,
    decode_control,
)
from storage.kafka.format.producer_snapshot import ProducerEntry
from storage.kafka.format.txn_index import AbortedTransaction
from storage.model import ProducerSequence
from storage.shared.sequencing import (
    KEPT_BATCHES,
    NO_PRODUCER,
    NO_SEQUENCE,
    SEQUENCES,
    SequencedBatch,
    check_next,
    fenced,
    find_batch,
    highest_id,
    next_sequence,
)
from storage.transactions import EPOCH_A_TRANSACTION, PartitionMarker


class LastOfProducer(NamedTuple):
    """The last data offset of an active producer in the partition (-1: none), and its epoch."""

    offset: int
    epoch: int


class _Producer:
    """The state of one producer id: the fields of ProducerEntry, and the last few batches."""

    def __init__(self, entry: ProducerEntry) -> None:
        self.entry = entry
        self.batches: deque[SequencedBatch] = deque(maxlen=KEPT_BATCHES)
        if entry.last_sequence >= 0 and entry.last_offset >= 0:
            base = (entry.last_sequence - entry.offset_delta) % SEQUENCES
            self.batches.append(
                SequencedBatch(
                    base,
                    entry.last_sequence,
                    entry.last_offset - entry.offset_delta,
                    entry.last_offset,
                )
            )


def open_transactions(entries: Iterable[ProducerEntry]) -> Mapping[int, int]:
    """Return the first offset of every open transaction in the entries of a snapshot, by producer id."""
    return {
        entry.producer_id: entry.current_txn_first_offset
        for entry in entries
        if entry.current_txn_first_offset >= 0
    }


class ProducerStates:
    """All producers of one partition."""

    @classmethod
    def with_open(cls, transactions: Mapping[int, int]) -> ProducerStates:
        """Return the states of producers with known open transactions (from `open_transactions`) and nothing else."""
        return cls(
            ProducerEntry(producer_id, -1, -1, -1, 0, -1, -1, first)
            for producer_id, first in transactions.items()
        )

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._producers: dict[int, _Producer] = {e.producer_id: _Producer(e) for e in entries}
        self._open = dict(open_transactions(self.entries()))
        self._ended: deque[tuple[int, int]] = (
            deque()
        )  # (first offset, marker offset); the marker is unpublished

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def highest_id(self) -> int:
        """The highest producer id known here; see storage.shared.sequencing."""
        return highest_id(self._producers)

    @property
    def open_transactions(self) -> Mapping[int, int]:
        """The first offset of every open transaction, by producer id."""
        return dict(self._open)

    def entries(self) -> Sequence[ProducerEntry]:
        """Return the entries of a snapshot of the current state."""
        return [producer.entry for producer in self._producers.values()]

    def find_duplicate(
        self, producer_id: int, *, epoch: int, base_sequence: int, last_sequence: int
    ) -> SequencedBatch | None:
        """Return the stored batch with this producer, epoch and sequences; None if it is not among the last few."""
        producer = self._producers.get(producer_id)
        if producer is None or producer.entry.epoch != epoch:
            return None
        return find_batch(
            producer.batches, base_sequence=base_sequence, last_sequence=last_sequence
        )

    def check(self, mark: ProducerSequence) -> None:
        """Raise FencedProducer or OutOfOrderSequence unless a batch with this mark may come next. A producer id without
        history may begin at any sequence.

        Raises InvalidArgument for a batch outside of the producer's open transaction (as in ProducerAppendInfo).
        """
        producer = self._producers.get(mark.producer_id)
        if producer is None:
            return
        check_next(
            mark, current_epoch=producer.entry.epoch, last_sequence=producer.entry.last_sequence
        )
        if producer.entry.current_txn_first_offset >= 0 and not mark.transactional:
            raise InvalidArgument(
                f"producer {mark.producer_id} has an open transaction: all its batches must belong to it",
                field="transaction",
            )

    def check_end(self, marker: PartitionMarker) -> None:
        """Raise FencedProducer or FencedCoordinator unless this marker may come next (ProducerAppendInfo).

        The end of a transaction raises the epoch if its `client_version` is EPOCH_A_TRANSACTION, so the epoch of an
        open transaction itself is too old then.
        """
        producer = self._producers.get(marker.producer_id)
        if producer is None:
            return
        entry = producer.entry
        is_open = entry.current_txn_first_offset >= 0
        raises_epoch = marker.client_version >= EPOCH_A_TRANSACTION
        if marker.epoch < entry.epoch + (is_open and raises_epoch):
            raise fenced(marker.producer_id, marker.epoch, entry.epoch)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise FencedCoordinator(
                f"a coordinator of epoch {entry.coordinator_epoch} has ended a transaction of producer "
                f"{marker.producer_id}: a marker of coordinator epoch {marker.coordinator_epoch} is fenced",
                producer_id=marker.producer_id,
                epoch=marker.epoch,
                coordinator_epoch=marker.coordinator_epoch,
                current_epoch=entry.coordinator_epoch,
            )

    def numbered(self, mark: ProducerSequence) -> ProducerSequence:
        """Return the mark with the producer's next sequence number, if it has none."""
        if mark.sequence != NO_SEQUENCE:
            return mark
        producer = self._producers.get(mark.producer_id)
        if producer is None or producer.entry.epoch != mark.epoch:
            return mark._replace(sequence=0)
        return mark._replace(sequence=next_sequence(producer.entry.last_sequence, 1))

    def update(self, header: BatchHeader, data: bytes, at: int) -> AbortedTransaction | None:
        """Add the log's next batch, at `data[at:]`, to the state.

        For an abort marker that ends a transaction with data, return the entry for the transaction index; else None.
        """
        marker = _marker(data, at) if header.is_control else None
        if header.producer_id == NO_PRODUCER or (header.is_control and marker is None):
            return None
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = _Producer(
                ProducerEntry(header.producer_id, header.producer_epoch, -1, -1, 0, -1, -1, -1)
            )
        if producer.entry.epoch != header.producer_epoch:
            producer.batches.clear()
            producer.entry = producer.entry._replace(
                epoch=header.producer_epoch, last_sequence=-1, last_offset=-1, offset_delta=0
            )
        if marker is not None:
            return self._end_transaction(producer, header, marker)
        self._add_batch(producer, header)
        return None

    def _add_batch(self, producer: _Producer, header: BatchHeader) -> None:
        entry = producer.entry
        opened = entry.current_txn_first_offset
        if header.is_transactional and opened < 0:
            opened = header.base_offset
            self._open[header.producer_id] = opened
        producer.entry = entry._replace(
            last_sequence=header.last_sequence,
            last_offset=header.last_offset,
            offset_delta=header.last_offset_delta,
            timestamp_ms=header.max_timestamp,
            current_txn_first_offset=opened,
        )
        if header.base_sequence < 0:
            return
        producer.batches.append(
            SequencedBatch(
                header.base_sequence, header.last_sequence, header.base_offset, header.last_offset
            )
        )

    def _end_transaction(
        self, producer: _Producer, header: BatchHeader, marker: ControlMarker
    ) -> AbortedTransaction | None:
        first_offset = producer.entry.current_txn_first_offset
        producer.entry = producer.entry._replace(
            timestamp_ms=marker.timestamp_ms,
            coordinator_epoch=marker.coordinator_epoch,
            current_txn_first_offset=-1,
        )
        if first_offset < 0:
            return None
        del self._open[header.producer_id]
        self._ended.append((first_offset, header.last_offset))
        if marker.type != ABORT:
            return None
        stable = min(self._open.values(), default=header.last_offset + 1)
        return AbortedTransaction(
            producer.entry.producer_id, first_offset, header.last_offset, stable
        )

    def first_unstable_offset(self, published_end: int) -> int | None:
        """Return the first offset of the oldest transaction without a published marker; None if there is none."""
        while self._ended and self._ended[0][1] < published_end:
            self._ended.popleft()
        if not self._open and not self._ended:
            return None
        firsts = [*self._open.values(), *(first for first, _ in self._ended)]
        return min(firsts)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove producers that have been silent for `expiration_ms` and have no open transaction."""
        self._producers = {
            producer_id: producer
            for producer_id, producer in self._producers.items()
            if producer.entry.current_txn_first_offset >= 0
            or now_ms - producer.entry.timestamp_ms < expiration_ms
        }


def _marker(data: bytes, at: int) -> ControlMarker | None:
    """Return the marker of a control batch. Return None for:

    - a batch that compaction emptied;
    - a batch that cannot be decoded;
    - a marker type that ends no transaction (types of the controller, and of later versions).
    """
    try:
        marker = decode_control(data, at)
    except DataError:
        return None
    return marker if marker is not None and marker.type in (ABORT, COMMIT) else None
