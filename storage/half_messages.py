"""Transactions of RocketMQ: messages that wait in the log until their producer commits them or rolls them back.

Owns these values and the contract of a store that keeps such messages; must not decide who may end a transaction: that
is the server (`logserver/transactions/half.py`). In RocketMQ's words:

    half message    a message that waits, in a topic of the broker's own; consumers of its real topic do not see it
    op record       says that half messages have ended
    check           of a half message that waits for too long: it is written again with the number of its checks, and
                    its producers are asked (here they poll the list of open transactions)

From TransactionalMessageServiceImpl and TransactionalMessageBridge of RocketMQ 5.5.0. The broker has one message in a
transaction. Here it has any number: their half messages name it.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from storage.errors import StorageError
from storage.model import Record, TopicPartition


class HalfOutcome(enum.Enum):
    """How a transaction has ended. DISCARDED: after too many checks, or because its messages are too old."""

    COMMITTED = "c"
    ROLLED_BACK = "r"
    DISCARDED = "d"


class Prepared(NamedTuple):
    """The transaction that a half message names: its id, the group of its producers, and the time after which they are
    asked.
    """

    id: str
    group: str
    timeout_ms: int


class HalfTransaction(NamedTuple):
    """An open transaction with half messages in the store.

    - `is_ours`: begun by this program. Another one is a single message of a RocketMQ client, by its unique id.
    - `group`: of its producers, empty if the messages name none.
    - `partitions`: where a commit puts the messages. `messages`: their number. `record_id`: of the first half message.
    - `started_ms`: when the first message was prepared. `updated_ms`: when the newest half message was stored.
    - `timeout_ms`: after it the producers are asked. `checks`: how often they were.
    """

    id: str
    group: str
    is_ours: bool
    partitions: Sequence[TopicPartition]
    messages: int
    record_id: str
    started_ms: int
    updated_ms: int
    timeout_ms: int
    checks: int

    def is_unknown(self, now_ms: int) -> bool:
        """Return whether its producers are asked for the outcome at a time."""
        return self.checks > 0 or now_ms - self.started_ms > self.timeout_ms


class HalfEnd(NamedTuple):
    """The wish to end a transaction."""

    id: str
    commit: bool


class HalfEnded(NamedTuple):
    """The result of a `HalfEnd`: the outcome, which an earlier call may have decided; None if no transaction has the
    id. `partitions`: with new messages. `error`: it is not ended, or not durable; the same wish can be repeated.
    """

    outcome: HalfOutcome | None
    partitions: Sequence[TopicPartition] = ()
    error: StorageError | None = None


class HalfChecked(NamedTuple):
    """The result of a check: the number of messages that were written again, and the transactions that were ended.
    `partitions`: with new messages. `waiting`: the ids of the transactions with messages that wait still.
    """

    checked: int
    ended: Sequence[str]
    partitions: Sequence[TopicPartition]
    waiting: Collection[str]


class HalfMessages(Protocol):
    """The half messages of a store. Thread-safe. An open transaction survives a restart with all its messages."""

    topics: frozenset[str]
    """The topics of half messages and of their ends. Without either, transactions are lost, or open again."""

    group: str
    """The group whose offsets in these topics are the progress of `check`. If a client changes them, transactions are
    lost.
    """

    check_interval_ms: int
    """The time between two calls of `check`."""

    @property
    def max_timeout_ms(self) -> int:
        """The longest time-out of a transaction: later its messages may be deleted with the log."""
        ...

    @property
    def count(self) -> int:
        """The number of open transactions at the last call; does no IO."""
        ...

    def check_group(self, group: str) -> None:
        """Raise InvalidArgument (group) for a group that no half message can name."""

    def prepared(
        self, record: Record, partition: TopicPartition, transaction: Prepared
    ) -> tuple[TopicPartition, Record]:
        """Return where to append a record, and in which form, so that a commit of the transaction puts it in
        `partition`.
        """

    def transactions(self) -> Sequence[HalfTransaction]:
        """Return the open transactions with messages in the store, in the order of their first messages."""

    def find(self, transaction_id: str) -> HalfTransaction | HalfOutcome | None:
        """Return an open transaction, or the outcome of an ended one as far as it is remembered: of the newest ten
        thousand. None: no transaction has the id.
        """

    def end(self, ends: Sequence[HalfEnd]) -> Sequence[HalfEnded]:
        """End transactions, and return a result for each. An error of one does not stop the others.

        On return the messages of committed ones are in their partitions, visible and durable, and so is the outcome. A
        wish that is repeated delivers nothing twice, also after a crash. A message with a delay level waits for it.
        A commit fails, with nothing delivered, if one of its partitions was deleted (UnknownTopic, UnknownPartition).

        Raises StoreReadOnly, StoreFenced, StoreClosed.
        """

    def check(self, now_ms: int) -> HalfChecked:
        """Check the messages that wait for longer than their time-out, and write the progress of the broker's check.

        Messages that were checked too often, or that are older than the log's time, go to the broker's topic for them,
        with all messages of their transaction. So do the messages that are left of a transaction, if the others were
        deleted with the head of the log.

        Raises StoreReadOnly, StoreFenced, StoreClosed, DiskFull.
        """


@runtime_checkable
class SupportsHalfMessages(Protocol):
    """A store with half messages."""

    @property
    def half_messages(self) -> HalfMessages:
        """The half messages."""
        ...
