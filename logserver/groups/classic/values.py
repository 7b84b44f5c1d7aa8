"""Requests and answers of Kafka's classic group protocol: values only.

Owns the states of a group, the protocol's refusals and the content of its messages, as the machine in `group.py`
takes and gives them. Must not know the bytes of a request or the version that a client speaks: a front end turns a
version's rules into the flags of `Join`. Metadata and assignments are bytes of the clients; nothing here reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, IntEnum
from typing import Final, NamedTuple, TypeAlias

NO_MEMBER: Final = ""
"""The member id of a client that has none yet."""
NO_GENERATION: Final = -1
"""The generation of a client that is no member: it commits offsets only."""


class State(Enum):
    """The state of a group; the values are the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Refusal(IntEnum):
    """Why a request of the protocol is refused; the numbers are Kafka's own."""

    NONE = 0
    COORDINATOR_NOT_AVAILABLE = 15
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    INVALID_REGULAR_EXPRESSION = 128


class Limits(NamedTuple):
    """The limits of all groups. `max_size` counts the members of one group, those that are still joining included.
    `max_bytes`: of the members of all groups together (`HeldBytes`).
    """

    initial_delay_ms: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    max_size: int
    max_bytes: int


class HeldBytes:
    """The bytes that the members of all groups hold: ids, metadata and assignments, and a constant for each member."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0


class Offer(NamedTuple):
    """A protocol (an assignor) that a member supports, with the member's metadata for it."""

    name: str
    metadata: bytes


class Join(NamedTuple):
    """A request to join a group. `offers`: in the member's order of preference.

    `needs_known_id` (KIP-394, from version 4 on): a client without a member id gets one and must join again with it.
    `can_skip_assignment` (KIP-814, from version 9 on): a leader that comes back as a static member is shown as the
    leader, and keeps the assignment by `JoinAnswer.skip_assignment`.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    offers: Sequence[Offer]
    needs_known_id: bool
    can_skip_assignment: bool


class JoinedMember(NamedTuple):
    """A member as the leader sees it: with its metadata for the chosen protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """The answer to a join. `members` is empty, but for the leader."""

    refusal: Refusal = Refusal.NONE
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER
    members: Sequence[JoinedMember] = ()
    skip_assignment: bool = False


class Caller(NamedTuple):
    """The member that a request after the join names, and the generation that it knows."""

    member_id: str
    generation: int
    instance_id: str | None = None


class Sync(NamedTuple):
    """A request for the assignment. `protocol_type` and `protocol`: None if the version does not send them.

    `assignments`: by member id; given by the leader only.
    """

    caller: Caller
    protocol_type: str | None
    protocol: str | None
    assignments: Sequence[tuple[str, bytes]]


class SyncAnswer(NamedTuple):
    """The answer to a sync."""

    refusal: Refusal = Refusal.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Leaving(NamedTuple):
    """A member to remove. An operator may name a static member by its instance id alone."""

    member_id: str
    instance_id: str | None = None


class MemberView(NamedTuple):
    """One member of a group. `metadata` is empty unless the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupView(NamedTuple):
    """A group as tools show it. `protocol` is empty unless the group is stable."""

    name: str
    state: State
    generation: int
    protocol_type: str
    protocol: str
    members: Sequence[MemberView]


AnswerJoin: TypeAlias = Callable[[JoinAnswer], None]
AnswerSync: TypeAlias = Callable[[SyncAnswer], None]
