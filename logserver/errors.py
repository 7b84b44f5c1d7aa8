"""Errors of the service in front of a store, and of its clients.

Owns the classes only; must not know HTTP or click. They extend the tree of storage errors, so one table maps all of
them to HTTP, and one to exit codes.

    StorageError
      ServiceError     Busy NotReady TimedOut KeyReused SettingsError CannotListen
                       UnknownTransaction TransactionEnded TopicInUse
        GroupError     UnknownConsumer UnknownGroup ConsumerExists ConsumerState InvalidGroup
                       InvalidConsumerConfig
      ClientError      ServerRefused ServerUnreachable StrangeAnswer ServerNotStarted
        ServerRefused  PartlyStored
      SparkFailed
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from storage import StorageError

DAMAGED: Final = 50010
"""The error code of an answer to a read of damaged data."""


class ServiceError(StorageError):
    """Base class of errors that the service itself raises."""

    code = "service-error"


class Busy(ServiceError):
    """Too many requests or bytes are in flight; nothing was stored. Facts: in_flight_bytes, limit_bytes (if the limit
    is one of bytes).
    """

    code = "busy"


class NotReady(ServiceError):
    """The store is not open: starting, recovering or stopping. Facts: state, and progress while recovering."""

    code = "not-ready"


class TimedOut(ServiceError):
    """The write was not confirmed in time: the records may be stored or not. Facts: timeout_ms."""

    code = "timed-out"


class KeyReused(ServiceError):
    """The key of a produce request was already used by another request. Facts: key."""

    code = "key-reused"


class SettingsError(ServiceError):
    """A setting is unknown or has an invalid value. Facts: setting, source (flag, environment, file or default)."""

    code = "settings-error"


class CannotListen(ServiceError):
    """The address cannot be bound: in use, not an address of this machine, or not allowed. Facts: listen, errno."""

    code = "cannot-listen"


class ClientError(StorageError):
    """Base class of errors that a client of a running server raises."""

    code = "client-error"


class ServerRefused(ClientError):
    """The server answered with an error. `facts()` also holds the facts of the answer, such as `earliest` and
    `latest`. Facts: status, error_code.
    """

    code = "server-refused"

    def __init__(
        self, message: str, *, status: int, error_code: int, answer: Mapping[str, object]
    ) -> None:
        super().__init__(message, status=status, error_code=error_code)
        self.status = status
        self.error_code = error_code
        self._answer = answer

    def facts(self) -> dict[str, object]:
        """Return the facts of the answer, with status and error code."""
        return {**self._answer, **super().facts()}

    @property
    def next_good_offset(self) -> int | None:
        """The offset after the damage that the answer reports, or None if the answer reports no such offset."""
        following = self._answer.get("next_good_offset")
        return following if self.error_code == DAMAGED and isinstance(following, int) else None


class PartlyStored(ServerRefused):
    """Some records of a request were stored, others rejected. `rows` has an entry for each record, in the order of
    the request. The status is the status of the first rejected record. Facts: rows.
    """

    code = "partly-stored"


class ServerUnreachable(ClientError):
    """No answer arrived: the connection failed, or the answer did not arrive in time. The request may have been
    executed or not. Facts: url.
    """

    code = "server-unreachable"


class StrangeAnswer(ClientError):
    """The answer is not an answer of a log server. Facts: status."""

    code = "strange-answer"


class ServerNotStarted(ClientError):
    """An embedded server ended, or reported nothing in time, instead of serving. Facts: exit_code (None if the
    process did not end by itself).
    """

    code = "server-not-started"


class SparkFailed(StorageError):
    """Spark ended a job, for a reason that is not in the store: no space for its files, no memory, a lost worker."""

    code = "spark-failed"


class GroupError(ServiceError):
    """Base class of errors of consumer groups."""

    code = "group-error"


class UnknownConsumer(GroupError):
    """The group has no such consumer instance: never created, deleted, or idle for too long. Facts: group, instance."""

    code = "unknown-consumer"

    def __init__(self, *, group: str, instance: str) -> None:
        super().__init__(
            f"group {group!r} has no consumer instance {instance!r}: it was deleted, or idle for "
            "longer than consumer_idle_ms, or never made",
            group=group,
            instance=instance,
        )


class UnknownGroup(GroupError):
    """The group does not exist: it has neither members nor committed offsets. Facts: group."""

    code = "unknown-group"

    def __init__(self, group: str) -> None:
        super().__init__(
            f"group {group!r} does not exist: it has neither members nor committed offsets",
            group=group,
        )


class ConsumerExists(GroupError):
    """The group already has a consumer instance with this name. Facts: group, instance."""

    code = "consumer-exists"


class ConsumerState(GroupError):
    """The state of a consumer instance or group does not allow this operation. Facts: group, instance, topic,
    partition, members (only facts that apply).
    """

    code = "consumer-state"


class InvalidGroup(GroupError):
    """The name of a group or consumer instance is invalid. Facts: field."""

    code = "invalid-group"


class InvalidConsumerConfig(GroupError):
    """A setting of a consumer has an invalid value. Facts: name, value."""

    code = "invalid-consumer-config"


class UnknownTransaction(ServiceError):
    """No transaction has this id, or another producer has its transactional id now. Facts: id or producer_id."""

    code = "unknown-transaction"


class TransactionEnded(ServiceError):
    """The transaction was committed or rolled back, or its outcome is fixed, so the request came too late. Facts:
    transactional_id, state.
    """

    code = "transaction-ended"


class TopicInUse(ServiceError):
    """A topic of the broker's own cannot be deleted: open transactions need it. Facts: topic, transactional_id."""

    code = "topic-in-use"
