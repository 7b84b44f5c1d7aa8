"""Transactions over several partitions: the state of a transaction, and the calls of a store that keeps it.

Owns these values and the contract; must not decide when a transaction ends or times out: that is the coordinator of the
server (`logserver/transactions`), which calls the store in this order. From Kafka's TransactionMetadata and
TransactionStateManager:

    write_transactions   Ongoing, with the partition       before the first record of a partition
    append, commit_offsets                                 records and offsets of the transaction
    flush                                                  the records of all its partitions
    write_transactions   PrepareCommit or PrepareAbort     from here on the outcome is fixed
    end_transactions     a marker in each partition        readers of committed records see the outcome
    write_transactions   CompleteCommit or CompleteAbort

A store that stops between two steps is continued from the states that it returns at its next start.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

from storage.model import ProducerEpoch, TopicPartition

NO_TIME: Final = -1
LAST_EPOCH: Final = 2**15 - 1
EXHAUSTED_EPOCH: Final = LAST_EPOCH - 1
"""A producer id with this epoch gets no further one: the last epoch is for the coordinator's own markers."""
EPOCH_A_TRANSACTION: Final = 2
"""The version of the protocol in which each end of a transaction raises the producer's epoch (transaction.version)."""


class TransactionStatus(enum.IntEnum):
    """The state of a transactional id, by the numbers in `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def label(self) -> str:
        """The name that Kafka's tools show, such as PrepareCommit."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is fixed and markers may be missing."""
        return self in {TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT}


class TransactionState(NamedTuple):
    """The newest state of a transactional id.

    `previous_producer_id` is the id before this state was written. `next_producer_id` replaces the id when the
    transaction is complete, because its epochs are used up; -1: none. `client_version` is EPOCH_A_TRANSACTION if the
    end of the transaction raised the epoch. Times are milliseconds since the epoch; `start_ms` is NO_TIME before the
    first transaction.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    status: TransactionStatus
    update_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    previous_producer_id: int = -1
    next_producer_id: int = -1
    client_version: int = 0


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction in one partition."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool


class PartitionMarker(NamedTuple):
    """The end of a producer's transaction as a partition stores it. `client_version` as in TransactionState."""

    producer_id: int
    epoch: int
    commit: bool
    coordinator_epoch: int
    client_version: int = 0


class ActiveProducer(NamedTuple):
    """The state of one producer in a partition.

    `last_sequence`: of its last record, -1 for none in its epoch. `timestamp_ms`: of its last batch or marker.
    `coordinator_epoch`: of its last marker, -1 for none. `open_from`: the first offset of its open transaction, -1 for
    none.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    timestamp_ms: int
    coordinator_epoch: int
    open_from: int


class TransactionLimits(NamedTuple):
    """The settings of the store: the longest time-out of a transaction, and the time after which an unused
    transactional id is forgotten.
    """

    max_timeout_ms: int
    id_expiration_ms: int


@runtime_checkable
class SupportsTransactions(Protocol):
    """Transactions whose state is stored where the real server stores it. Thread-safe.

    Appends of a transaction are appends with a producer sequence whose `transactional` is True, `append_batches` with
    `transaction`, and `commit_offsets` with `transaction`. Until the transaction ends, `OffsetBounds.stable` stays at
    its first record, and its offsets do not count.
    """

    @property
    def transaction_limits(self) -> TransactionLimits:
        """The limits of the store's settings."""
        ...

    @property
    def transactions_topic(self) -> str:
        """The topic whose records are the states; the first `write_transactions` creates it."""
        ...

    def transactions(self) -> Sequence[TransactionState]:
        """Return the newest state of every transactional id. Reads the whole state, so call it once, at a start.

        A record that cannot be decoded is left out.
        """
        ...

    def write_transactions(
        self, states: Sequence[TransactionState], *, durable: bool = True
    ) -> None:
        """Store new states, at most one for an id; the status DEAD removes its id. With `durable` they are synced on
        return, otherwise at least written to the operating system.

        Raises InvalidArgument for an id that cannot be stored, RecordTooLarge, StoreReadOnly, StoreFenced, DiskFull.
        After an error some of the states may be stored.
        """
        ...

    def end_transactions(
        self,
        markers: Mapping[TopicPartition, Sequence[TransactionMarker]],
        *,
        durable: bool = True,
    ) -> None:
        """Write the markers of each partition, in order. A partition that does not exist any more is left out.

        A marker for a producer without an open transaction changes nothing that readers see, so a repeat is harmless.
        With `durable` they are synced and then visible on return. Raises StoreReadOnly, StoreFenced, DiskFull; after
        an error some of the markers may be stored.
        """
        ...

    def mark_end(self, partition: TopicPartition, marker: PartitionMarker) -> None:
        """Write the end of a producer's transaction in one partition; durable and visible on return. For tools that end
        a transaction which no coordinator knows. Without an open transaction it changes nothing that readers see.

        Raises FencedProducer for an epoch that the partition does not accept, FencedCoordinator, InvalidArgument for a
        negative producer id or epoch; UnknownTopic, UnknownPartition, StoreReadOnly, StoreFenced, DiskFull.
        """
        ...

    def transaction_of(self, data: bytes) -> ProducerEpoch | None:
        """Return the producer whose transaction a client's first record batch belongs to; None for a batch outside of
        transactions, and for bytes that are no batch. Only the header of that batch is looked at.
        """
        ...

    def active_producers(self, partition: TopicPartition) -> Sequence[ActiveProducer]:
        """Return the producers that a partition knows, by producer id. Raises UnknownTopic, UnknownPartition."""
        ...

    def offsets_partition(self, group: str) -> TopicPartition:
        """Return the partition that stores the offsets of a group. A transaction that commits offsets of the group
        must name it first. Creates the topic of offsets if it is missing.

        Raises StoreReadOnly, StoreFenced, DiskFull.
        """
        ...
