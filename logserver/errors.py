"""Errors of the service in front of a store, and of its clients; they join the storage tree, so that
one table maps all of them to HTTP, and one to exit codes.

Owns the classes only; must not know HTTP or click.

    StorageError
      ServiceError     Busy NotReady TimedOut KeyReused SettingsError CannotListen
        GroupError     UnknownConsumer UnknownGroup ConsumerExists ConsumerState InvalidGroup
                       InvalidConsumerConfig
      ClientError      ServerRefused ServerUnreachable StrangeAnswer ServerNotStarted
        ServerRefused  PartlyStored
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from storage import StorageError

DAMAGED: Final = 50010
"""The code of a server's answer to a read of damaged data."""


class ServiceError(StorageError):
    """Root of what the service itself refuses or fails at."""

    code = "service-error"


class Busy(ServiceError):
    """Too much is in flight; nothing was stored. Facts: in_flight_bytes, limit_bytes (where it is
    bytes that are too many).
    """

    code = "busy"


class NotReady(ServiceError):
    """The store is not open: starting, recovering or stopping. Facts: state, and progress while
    recovering.
    """

    code = "not-ready"


class TimedOut(ServiceError):
    """The write was not confirmed in time: it may be stored or not. Facts: timeout_ms."""

    code = "timed-out"


class KeyReused(ServiceError):
    """The key of a produce request belongs to another request. Facts: key."""

    code = "key-reused"


class SettingsError(ServiceError):
    """A setting is unknown or has a bad value. Facts: setting, source (flag, environment, file or
    default).
    """

    code = "settings-error"


class CannotListen(ServiceError):
    """The address cannot be bound: in use, not ours, not allowed. Facts: listen, errno."""

    code = "cannot-listen"


class ClientError(StorageError):
    """Root of what a client of a running server meets."""

    code = "client-error"


class ServerRefused(ClientError):
    """The server answered with an error. `facts()` holds those of the answer too, such as `earliest`
    and `latest`. Facts: status, error_code.
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
        """Status and code, and the facts of the answer."""
        return {**self._answer, **super().facts()}

    @property
    def next_good_offset(self) -> int | None:
        """The offset after the damage that the answer reports; None where it reports no such offset."""
        following = self._answer.get("next_good_offset")
        return following if self.error_code == DAMAGED and isinstance(following, int) else None


class PartlyStored(ServerRefused):
    """Some records of a request were stored, others refused: `rows` of the facts tells of each, in the
    order of the request; the status is that of the first refused one. Facts: rows.
    """

    code = "partly-stored"


class ServerUnreachable(ClientError):
    """No answer came: no connection, or none in time. What was asked for may have been done or not.
    Facts: url.
    """

    code = "server-unreachable"


class StrangeAnswer(ClientError):
    """What came back is not what a log server answers. Facts: status."""

    code = "strange-answer"


class ServerNotStarted(ClientError):
    """An embedded server ended, or told nothing in time, instead of serving. Facts: exit_code (None
    if it had to be stopped).
    """

    code = "server-not-started"


class GroupError(ServiceError):
    """Root of what consumer groups refuse."""

    code = "group-error"


class UnknownConsumer(GroupError):
    """The group has no such consumer instance: never made, deleted, or idle for too long. Facts:
    group, instance.
    """

    code = "unknown-consumer"

    def __init__(self, *, group: str, instance: str) -> None:
        super().__init__(
            f"group {group!r} has no consumer instance {instance!r}: it was deleted, or idle for "
            "longer than consumer_idle_ms, or never made",
            group=group,
            instance=instance,
        )


class UnknownGroup(GroupError):
    """No such group: it has neither members nor committed offsets. Facts: group."""

    code = "unknown-group"

    def __init__(self, group: str) -> None:
        super().__init__(
            f"group {group!r} does not exist: it has neither members nor committed offsets",
            group=group,
        )


class ConsumerExists(GroupError):
    """The group has a consumer instance of that name. Facts: group, instance."""

    code = "consumer-exists"


class ConsumerState(GroupError):
    """A consumer instance or group is in a state in which this cannot be done. Facts:
    group, instance, topic, partition, members (those that apply).
    """

    code = "consumer-state"


class InvalidGroup(GroupError):
    """The name of a group or consumer instance breaks the rules. Facts: field."""

    code = "invalid-group"


class InvalidConsumerConfig(GroupError):
    """A consumer's setting has a bad value. Facts: name, value."""

    code = "invalid-consumer-config"
