"""Calls to a store that wait for nothing, for a thread that must not wait, such as that of an event loop.

Owns the contract of these calls; must not do one. Each returns None, with nothing done, in the cases in which the
ordinary call of the same name has to be made in another thread. A caller limits what it asks for, since the copy and
the checksum of many bytes take time too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from storage.contract import LogStore
from storage.model import (
    AbortedTransaction,
    AppendResult,
    BatchPage,
    Isolation,
    OffsetBounds,
    ProducerEpoch,
    Record,
    TopicPartition,
)


@runtime_checkable
class SupportsPromptAppend(Protocol):
    """Appends of records."""

    def append_promptly(
        self, partition: TopicPartition, records: Sequence[Record], born_hosts: Sequence[bytes] = ()
    ) -> AppendResult | None:
        """Append and publish like `LogStore.append`, if this only hands bytes to the kernel. Return None, with nothing
        stored, if it needs a lock that another thread holds, a file to be created, closed or synced, or compression.
        """


class BatchView(NamedTuple):
    """The fields of a BatchPage, with bytes that the caller owns: a bytearray may be what was read, without a copy."""

    data: bytes | bytearray
    next_offset: int
    bounds: OffsetBounds
    aborted: Sequence[AbortedTransaction] = ()


Batches: TypeAlias = BatchPage | BatchView
"""What a read of whole batches returns, made promptly or not."""


class PromptBatches(Protocol):
    """Appends and reads of whole batches, of a store that `SupportsBatchBytes`."""

    def append_batches_promptly(
        self,
        partition: TopicPartition,
        data: bytes,
        *,
        checked: bool = False,
        transaction: ProducerEpoch | None = None,
    ) -> AppendResult | None:
        """Append and publish a client's batches, in the cases in which SupportsPromptAppend appends; else None."""

    def read_batches_promptly(
        self, partition: TopicPartition, offset: int, *, max_bytes: int, isolation: Isolation
    ) -> BatchView | None:
        """Return what `SupportsBatchBytes.read_batches` returns, if the kernel has all bytes in its page cache.

        Return None if a file has to be opened, an index has to be loaded, more than `PROMPT_READ_BYTES` or
        `PROMPT_BATCHES` have to be read, or the batches are damaged. Raises the errors of `read_batches` for the
        partition and the offset.
        """


def prompt_batches_of(store: LogStore) -> PromptBatches | None:
    """Return the store if it has batches, else None."""
    return cast("PromptBatches", store) if store.capabilities.batch_bytes else None
