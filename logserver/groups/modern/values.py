"""Requests, answers and views of the groups of Kafka's new protocol (KIP-848): values only.

Owns the content of a heartbeat and its answer, as the machine in `group.py` takes and gives them, and the checks that
need no group. Must not know the bytes of a request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Protocol

from logserver.groups.classic.values import Refusal
from storage.groups import Slot

JOIN_EPOCH: Final = 0
"""The epoch of a member that joins, or joins again without partitions."""
LEAVE_EPOCH: Final = -1
AWAY_EPOCH: Final = -2
"""The epoch of a static member that leaves for a while: its partitions stay reserved until its session ends."""
NO_TIMEOUT: Final = -1
DEFAULT_ASSIGNOR: Final = "uniform"


class GroupState(Enum):
    """The state of a group; the values are the names that Kafka's tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """How far a member is on its way to its target. The numbers are from Kafka's records (MemberState)."""

    STABLE = 1
    UNREVOKED = 2
    UNRELEASED = 3


class Refused(Exception):  # an answer, not a fault
    """A request that is refused. `refusal`: Kafka's number; the text is for people."""

    def __init__(self, refusal: Refusal, text: str) -> None:
        super().__init__(text)
        self.refusal = refusal


class Topic(NamedTuple):
    """A topic that exists."""

    topic_id: bytes
    partitions: Sequence[int]


class Topics(Protocol):
    """The topics of the server at the moment."""

    def find(self, name: str) -> Topic | None:
        """Return a topic; None if it does not exist."""

    def matching(self, pattern: str) -> Collection[str]:
        """Return the names that a pattern matches. The pattern is valid."""


class Limits(NamedTuple):
    """The settings of all groups. `max_bytes`: of the members of all groups together (`HeldBytes`)."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    max_size: int
    max_bytes: int


class Beat(NamedTuple):
    """A heartbeat: it joins, goes on, changes the subscription, reports partitions, or leaves.

    None in a field: unchanged since the last one. `owned`: the partitions that the member has. `rebalance_timeout_ms`
    may be NO_TIMEOUT. `pattern_problem`: why `pattern` is invalid.
    """

    member_id: str
    epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    topics: Sequence[str] | None = None
    pattern: str | None = None
    pattern_problem: str | None = None
    assignor: str | None = None
    owned: Collection[Slot] | None = None

    @property
    def is_full(self) -> bool:
        """True if the member shows all of its state, so that it wants to see its whole assignment."""
        shows_all = None not in (self.topics, self.owned)
        return self.epoch == JOIN_EPOCH or (shows_all and self.rebalance_timeout_ms != NO_TIMEOUT)


class BeatAnswer(NamedTuple):
    """The answer to a heartbeat. `assigned` None: unchanged."""

    refusal: Refusal = Refusal.NONE
    text: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: Sequence[Slot] | None = None


class ModernMemberView(NamedTuple):
    """One member of a group. `assigned`: the partitions that it has, with those that it must give up; `target`: those
    that it will have.
    """

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    epoch: int
    topics: Sequence[str]
    pattern: str | None
    assigned: Sequence[Slot]
    target: Sequence[Slot]


class ModernGroupView(NamedTuple):
    """A group as tools show it."""

    name: str
    state: GroupState
    epoch: int
    assignment_epoch: int
    assignor: str
    members: Sequence[ModernMemberView]


def check_beat(beat: Beat, group: str, version: int, assignors: Mapping[str, object]) -> None:
    """Raise Refused for a heartbeat that no group would take. From GroupCoordinatorService."""
    if not beat.member_id and (version > 0 or beat.epoch > 0 or beat.epoch == LEAVE_EPOCH):
        raise _invalid("MemberId can't be empty.")
    for name, value in (
        ("GroupId", group),
        ("InstanceId", beat.instance_id),
        ("RackId", beat.rack_id),
    ):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    if beat.epoch == JOIN_EPOCH:
        _check_join(beat)
    elif beat.epoch == AWAY_EPOCH and beat.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif beat.epoch < AWAY_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if beat.assignor is not None and beat.assignor not in assignors:
        raise Refused(
            Refusal.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {beat.assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(beat: Beat) -> None:
    if beat.rebalance_timeout_ms == NO_TIMEOUT:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if beat.owned is None or beat.owned:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if beat.topics is None and beat.pattern is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def _invalid(text: str) -> Refused:
    return Refused(Refusal.INVALID_REQUEST, text)
