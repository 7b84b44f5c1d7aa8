"""The writes of changes of transactions, many at once, in the order that a crash at any moment allows.

Owns this order; must not decide anything about a transaction, nor know asyncio. It blocks. A round of many changes
costs as few writes and syncs as one change:

    1  sync the records of the transactions that end     before their outcome is fixed
    2  write and sync the states                         Ongoing, PrepareCommit, ...: from here on the outcome is fixed
    3  write and sync the markers                        readers of committed records see the outcome
    4  write the states CompleteCommit, CompleteAbort    not synced: if they are lost, step 3 is repeated, which is
                                                         harmless, and before the next transaction of the id step 2
                                                         syncs them too
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from logserver.transactions.machine import Ending
from storage import (
    StorageError,
    SupportsTransactions,
    TopicPartition,
    TransactionMarker,
    TransactionState,
)
from storage.errors import CallerError, DiskFull


class TransactionStore(SupportsTransactions, Protocol):
    """The calls to a store with transactions; see LogStore for those that every store has."""

    read_only: bool

    def flush(self, partitions: Iterable[TopicPartition] | None = None) -> None: ...

    def new_producer_id(self) -> int: ...


@dataclass(slots=True, eq=False)
class Change:
    """A change of one transactional id: a new state, or the end of its transaction.

    `stored` is the newest state that the store has. `error`: the reason why the change is not complete.
    """

    wanted: TransactionState | Ending
    stored: TransactionState | None = None
    error: StorageError | None = None


def perform(store: TransactionStore, changes: Sequence[Change], *, durable: bool) -> None:
    """Make changes of different ids, and set `stored` and `error` of each. An error of one does not stop the others,
    unless the store fails as a whole.

    `durable` False: nothing is synced.
    """
    ends = [change for change in changes if isinstance(change.wanted, Ending)]
    if durable:
        _sync_records(store, ends)
    states = [change for change in changes if change.error is None and not _is_decided(change)]
    _each(states, lambda listed: _write_states(store, listed, durable=durable))
    ends = [change for change in ends if change.error is None]
    _each(ends, lambda listed: _write_markers(store, listed, durable=durable))
    ends = [change for change in ends if change.error is None]
    _each(ends, lambda listed: _complete(store, listed))


def _each(changes: Sequence[Change], write: Callable[[Sequence[Change]], None]) -> None:
    """Make a write for all changes at once. If that fails, make it for each one, so that each has its own result:
    a write that is repeated is harmless.
    """
    if not changes:
        return
    try:
        write(changes)
    except (CallerError, DiskFull) as error:
        if len(changes) == 1:
            changes[0].error = error
            return
        for change in changes:
            _each([change], write)
    except StorageError as error:
        for change in changes:
            change.error = error


def _is_decided(change: Change) -> bool:
    if isinstance(change.wanted, Ending) and change.wanted.is_decided:
        change.stored = change.wanted.prepared
        return True
    return False


def _sync_records(store: TransactionStore, ends: Sequence[Change]) -> None:
    """Sync the records of transactions. A partition that was deleted has none."""
    partitions = {p for end in ends for p in _ending(end).prepared.partitions}
    if not partitions:
        return
    try:
        try:
            store.flush(partitions)
        except CallerError:
            for partition in partitions:
                _flush_if_there(store, partition)
    except StorageError as error:
        for end in ends:
            end.error = error


def _flush_if_there(store: TransactionStore, partition: TopicPartition) -> None:
    try:
        store.flush([partition])
    except CallerError:
        return


def _write_states(store: TransactionStore, changes: Sequence[Change], *, durable: bool) -> None:
    states = [
        change.wanted.prepared if isinstance(change.wanted, Ending) else change.wanted
        for change in changes
    ]
    store.write_transactions(states, durable=durable)
    for change, state in zip(changes, states, strict=True):
        change.stored = state


def _write_markers(store: TransactionStore, ends: Sequence[Change], *, durable: bool) -> None:
    markers: dict[TopicPartition, list[TransactionMarker]] = {}
    for end in ends:
        marker = _ending(end).marker()
        for partition in _ending(end).prepared.partitions:
            markers.setdefault(partition, []).append(marker)
    if markers:
        store.end_transactions(markers, durable=durable)


def _complete(store: TransactionStore, ends: Sequence[Change]) -> None:
    states = [_ending(end).completed for end in ends]
    store.write_transactions(states, durable=False)
    for end, state in zip(ends, states, strict=True):
        end.stored = state


def _ending(change: Change) -> Ending:
    assert isinstance(change.wanted, Ending)
    return change.wanted
