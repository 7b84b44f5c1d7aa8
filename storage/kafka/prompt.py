"""The calls of a Kafka store that wait for nothing: see storage.prompt.

Owns the way from a store to its partitions for these calls; must not read files. A partition decides whether an append
only hands bytes to the kernel, and whether a read finds all its bytes in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from storage.errors import Corrupt, IoFailure
from storage.files import PromptBudget, WouldWait
from storage.kafka.log.encoding import BatchRules
from storage.kafka.partition import Partition
from storage.model import (
    AppendResult,
    Isolation,
    ProducerEpoch,
    Record,
    TopicPartition,
)
from storage.prompt import BatchView


class WorksPromptly(ABC):
    """The calls of SupportsPromptAppend and PromptBatches for a store of partitions."""

    @abstractmethod
    def partition(self, address: TopicPartition) -> Partition:
        """Return a partition. Raises UnknownTopic, UnknownPartition."""

    def append_promptly(
        self, partition: TopicPartition, records: Sequence[Record], born_hosts: Sequence[bytes] = ()
    ) -> AppendResult | None:
        """See SupportsPromptAppend."""
        return self.partition(partition).append_promptly(records)

    def append_batches_promptly(
        self,
        partition: TopicPartition,
        data: bytes,
        *,
        checked: bool = False,
        transaction: ProducerEpoch | None = None,
    ) -> AppendResult | None:
        """See PromptBatches."""
        rules = BatchRules(checked=checked, transaction=transaction)
        return self.partition(partition).append_batches_promptly(data, rules)

    def read_batches_promptly(
        self, partition: TopicPartition, offset: int, *, max_bytes: int, isolation: Isolation
    ) -> BatchView | None:
        """See PromptBatches."""
        found = self.partition(partition)
        try:
            return found.view_batches(offset, max_bytes, isolation, PromptBudget())
        except (WouldWait, Corrupt, IoFailure):  # another thread finds out which
            return None
