"""Record batches between Kafka clients and a store: the contract, and its form for a store that keeps batches.

Owns what a front end of Kafka's protocol needs of a store; must not know that protocol. A store that
keeps batches takes and hands out their bytes as they are. Another store has an adapter, which converts the records:
`storage.client_batches_of` returns the one or the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from storage.contract import (
    DEFAULT_MAX_BYTES,
    LogStore,
    SupportsBatchBytes,
    SupportsLeaderEpochs,
    SupportsTopicConfigs,
)
from storage.kafka.format.names import validate_new_topic
from storage.model import (
    AppendResult,
    BatchPage,
    EpochEnd,
    Isolation,
    OffsetBounds,
    ProducerEpoch,
    TopicConfig,
    TopicPartition,
)
from storage.transactions import SupportsTransactions


class ClientBatches(Protocol):
    """The batches and topics of a store as Kafka clients see them. Thread-safe; calls block as the store's calls do.

    The methods with the names of SupportsBatchBytes, SupportsLeaderEpochs, SupportsTopicConfigs and LogStore do what
    they do there.
    """

    @property
    def has_transactions(self) -> bool:
        """Whether batches may belong to a transaction."""
        ...

    def serves(self, topic: str) -> bool:
        """Return whether clients may use a topic of this name. Does not block, and says nothing of its existence."""
        ...

    def check_name(self, topic: str) -> None:
        """Raise InvalidTopic for a name that no topic for clients can have. Does not block."""
        ...

    def append_batches(
        self,
        partition: TopicPartition,
        data: bytes,
        *,
        publish: bool = True,
        checked: bool = False,
        transaction: ProducerEpoch | None = None,
        born_host: bytes | None = None,
    ) -> AppendResult:
        """Append a client's whole batches: all of their records, or none.

        `checked`: the data is the result of `check_client_batches`. `born_host`: the address of the client, for a store
        that keeps it. Raises InvalidBatch, the errors of `LogStore.append`, and for batches that a client must not send
        NotOffered or UnrepresentableRecord.
        """
        ...

    def check_client_batches(
        self, topic: str, data: bytes, transaction: ProducerEpoch | None = None
    ) -> bytes:
        """See SupportsBatchBytes. An adapter may leave the check of single records to the append."""
        ...

    def are_compressed(self, data: bytes) -> bool:
        """See SupportsBatchBytes."""
        ...

    def read_batches(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> BatchPage:
        """See SupportsBatchBytes."""
        ...

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        """See LogStore."""
        ...

    def leader_epoch(self, partition: TopicPartition) -> int:
        """See SupportsBatchBytes. Does not block."""
        ...

    def end_of_epoch(self, partition: TopicPartition, leader_epoch: int) -> EpochEnd | None:
        """See SupportsLeaderEpochs."""
        ...

    def describe_configs(self, topic: str) -> Sequence[TopicConfig]:
        """See SupportsTopicConfigs."""
        ...

    def default_configs(self) -> Sequence[TopicConfig]:
        """See SupportsTopicConfigs."""
        ...

    def check_configs(self, configs: Mapping[str, str]) -> None:
        """See SupportsTopicConfigs."""
        ...


class _BatchStore(SupportsBatchBytes, SupportsLeaderEpochs, SupportsTopicConfigs, Protocol):
    """A store that keeps batches."""


class StoredBatches:
    """The batches of a store that keeps them. All of its topics are for clients."""

    def __init__(self, store: LogStore) -> None:
        """Use a store that keeps batches."""
        batches = self._batches = cast("_BatchStore", store)
        self.has_transactions = isinstance(store, SupportsTransactions)
        self.bounds = store.bounds
        self.check_client_batches = batches.check_client_batches
        self.are_compressed = batches.are_compressed
        self.read_batches = batches.read_batches
        self.leader_epoch = batches.leader_epoch
        self.end_of_epoch = batches.end_of_epoch
        self.describe_configs = batches.describe_configs
        self.default_configs = batches.default_configs
        self.check_configs = batches.check_configs

    def serves(self, topic: str) -> bool:
        return True

    def check_name(self, topic: str) -> None:
        validate_new_topic(topic)

    def append_batches(
        self,
        partition: TopicPartition,
        data: bytes,
        *,
        publish: bool = True,
        checked: bool = False,
        transaction: ProducerEpoch | None = None,
        born_host: bytes | None = None,
    ) -> AppendResult:
        """See ClientBatches. A batch has no room for the address of its client."""
        return self._batches.append_batches(
            partition,
            data,
            publish=publish,
            client=True,
            checked=checked,
            transaction=transaction,
        )
