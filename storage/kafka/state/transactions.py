"""The states of transactions, stored as the broker does: as records of `__transaction_state`.

Owns which partition the records of a transactional id go to, which record counts, and the epoch in the markers; must
not know the bytes of a record, nor when a transaction ends. As in TransactionStateManager:

- The partition of an id is its hash modulo the number of partitions, as for groups. The last record of an id counts.
- The coordinator's epoch in a marker is the leader epoch of that partition.

No state is kept apart from the log: the server's coordinator has it in memory.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from storage.errors import (
    Corrupt,
    DataError,
    InvalidArgument,
    MissingPartitions,
    OffsetOutOfRange,
    UnknownPartition,
    UnknownTopic,
)
from storage.kafka.format import names
from storage.kafka.format.batch import (
    decode_header,
    decode_records,
    is_marked_transactional,
    split_batches,
)
from storage.kafka.format.producer_snapshot import ProducerEntry
from storage.kafka.format.transaction_records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from storage.kafka.state.group_offsets import READ_BYTES, GroupOffsets, OffsetsPartition, home_of
from storage.model import Isolation, ProducerEpoch, Record, TopicPartition
from storage.transactions import (
    ActiveProducer,
    PartitionMarker,
    TransactionMarker,
    TransactionState,
    TransactionStatus,
)


class TransactionPartition(OffsetsPartition, Protocol):
    """The calls to a partition: one of `__transaction_state`, or one with records of a transaction."""

    @property
    def leader_epoch(self) -> int: ...

    def producer_entries(self) -> Sequence[ProducerEntry]: ...

    def append_markers(
        self,
        markers: Sequence[PartitionMarker],
        *,
        publish: bool,
        are_checked: bool = True,
    ) -> None: ...


class Home(Protocol):
    """The calls to the store that the transactions belong to."""

    def partition(self, address: TopicPartition) -> TransactionPartition:
        """Return a partition. Raises UnknownTopic, UnknownPartition, MissingPartitions."""

    def transactions_count(self) -> int:
        """Return the partition count of `__transaction_state`, missing partitions included; 0 without the topic."""

    def create_transactions_topic(self) -> None:
        """Create `__transaction_state`; durable on return."""


class TransactionLog:
    """The states of a store's transactions; see SupportsTransactions. Thread-safe."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._creating = threading.Lock()

    def _address(self, transactional_id: str) -> TopicPartition:
        count = self._home.transactions_count()
        return TopicPartition(names.TRANSACTION_STATE_TOPIC, home_of(transactional_id, count))

    # ---- reading ----

    def states(self) -> Sequence[TransactionState]:
        """Return the newest state of every id. A partition that is not served has none."""
        found: dict[str, TransactionState] = {}
        for number in range(self._home.transactions_count()):
            with suppress(MissingPartitions, UnknownPartition):
                address = TopicPartition(names.TRANSACTION_STATE_TOPIC, number)
                for key, value in _records(self._home.partition(address)):
                    with suppress(DataError):
                        transactional_id = decode_key(key)
                        if value is None:
                            found.pop(transactional_id, None)
                        else:
                            found[transactional_id] = decode_value(transactional_id, value)
        return list(found.values())

    def producers(self, partition: TopicPartition) -> Sequence[ActiveProducer]:
        """Return the producers that a partition knows, by producer id."""
        return [
            ActiveProducer(
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.timestamp_ms,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
            for entry in sorted(self._home.partition(partition).producer_entries())
        ]

    # ---- writing ----

    def write(self, states: Sequence[TransactionState], *, durable: bool) -> None:
        """Append a record for each state."""
        with self._creating:
            if states and not self._home.transactions_count():
                self._home.create_transactions_topic()
        runs: dict[TopicPartition, list[Record]] = {}
        for state in states:
            key = encode_key(state.transactional_id)
            value = None if state.status is TransactionStatus.DEAD else encode_value(state)
            runs.setdefault(self._address(state.transactional_id), []).append(Record(key, value))
        partitions = [(self._home.partition(address), run) for address, run in runs.items()]
        for partition, records in partitions:
            partition.append(records, compression="none", producer=None, publish=not durable)
        if durable:
            for partition, _ in partitions:
                partition.flush()

    def end(
        self, markers: Mapping[TopicPartition, Sequence[TransactionMarker]], *, durable: bool
    ) -> None:
        """Append markers to the partitions that exist."""
        epochs = {marker.transactional_id: 0 for listed in markers.values() for marker in listed}
        for transactional_id in epochs:
            address = self._address(transactional_id)
            epochs[transactional_id] = self._home.partition(address).leader_epoch
        written: list[TransactionPartition] = []
        for address, listed in markers.items():
            with suppress(UnknownTopic, UnknownPartition):
                partition = self._home.partition(address)
                own = [
                    PartitionMarker(producer_id, epoch, commit, epochs[transactional_id])
                    for transactional_id, producer_id, epoch, commit in listed
                ]
                partition.append_markers(own, publish=not durable)
                written.append(partition)
        if durable:
            for partition in written:
                partition.flush()

    def mark_end(self, address: TopicPartition, marker: PartitionMarker) -> None:
        """Append one marker, checked as a real broker checks a marker of its coordinator."""
        partition = self._home.partition(address)
        partition.append_markers([marker], publish=False, are_checked=False)
        partition.flush()


def _records(partition: TransactionPartition) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield key and value of each record, in order. Damage is skipped: `verify` and a start report it."""
    offset = partition.bounds().start
    while offset < (end := partition.bounds().end):
        try:
            page = partition.read_batches(
                offset, max_bytes=READ_BYTES, isolation=Isolation.READ_UNCOMMITTED
            )
        except OffsetOutOfRange:  # segments were deleted meanwhile
            offset = partition.bounds().start
            continue
        except Corrupt as error:
            following: object = error.facts().get("next_good_offset")
            offset = following if isinstance(following, int) and following > offset else end
            continue
        for at, header in split_batches(page.data):
            if not header.is_control:
                with suppress(DataError):
                    for _, _, key, value, _ in decode_records(page.data, at, header=header):
                        if key is not None:
                            yield key, value
        offset = page.next_offset if page.next_offset > offset else end


class KeepsTransactions(ABC):
    """The calls of SupportsTransactions for a store that has a TransactionLog."""

    _transactions: TransactionLog
    _group_offsets: GroupOffsets

    @abstractmethod
    def _check_open(self) -> None:
        """Raise StoreClosed if the store is closed."""

    @abstractmethod
    def _check_writable(self) -> None:
        """Raise StoreClosed, StoreReadOnly or StoreFenced if the store cannot be written."""

    def transactions(self) -> Sequence[TransactionState]:
        """See SupportsTransactions."""
        self._check_open()
        return self._transactions.states()

    def write_transactions(
        self, states: Sequence[TransactionState], *, durable: bool = True
    ) -> None:
        """See SupportsTransactions."""
        self._check_writable()
        self._transactions.write(states, durable=durable)

    def end_transactions(
        self, markers: Mapping[TopicPartition, Sequence[TransactionMarker]], *, durable: bool = True
    ) -> None:
        """See SupportsTransactions."""
        self._check_writable()
        self._transactions.end(markers, durable=durable)

    def mark_end(self, partition: TopicPartition, marker: PartitionMarker) -> None:
        """See SupportsTransactions."""
        self._check_writable()
        for name, number in (("producer_id", marker.producer_id), ("epoch", marker.epoch)):
            if number < 0:
                raise InvalidArgument(f"{name} {number} of a marker is negative", field=name)
        self._transactions.mark_end(partition, marker)

    def transaction_of(self, data: bytes) -> ProducerEpoch | None:
        """See SupportsTransactions."""
        if not is_marked_transactional(data):
            return None
        try:
            header = decode_header(data, 0)
        except DataError:
            return None
        if not header.is_transactional:
            return None
        return ProducerEpoch(header.producer_id, header.producer_epoch)

    def active_producers(self, partition: TopicPartition) -> Sequence[ActiveProducer]:
        """See SupportsTransactions."""
        self._check_open()
        return self._transactions.producers(partition)

    def offsets_partition(self, group: str) -> TopicPartition:
        """See SupportsTransactions."""
        self._check_writable()
        return self._group_offsets.home(group)
