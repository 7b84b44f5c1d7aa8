"""Members of consumer groups as a store keeps them: a group's last generation, and the calls of a store that has them.

Owns these values and the contract; must not decide who is a member: that is the coordinator of the server
(`logserver/groups`). It writes a group before it answers the group's members, so a member never acts on a generation
that a restart may forget. From Kafka's GroupMetadataValue and GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

Slot: TypeAlias = tuple[bytes, int]
"""A partition: the id of its topic, and its number."""


class StoredMember(NamedTuple):
    """A member of a group of Kafka's classic protocol. `subscription` and `assignment` are bytes of the clients."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class StoredGroup(NamedTuple):
    """A generation of a group of Kafka's classic protocol. Without members it has neither `protocol` nor `leader`.

    `changed_ms`: the time of the change, in milliseconds since the epoch; -1: not known.
    """

    name: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    changed_ms: int
    members: Sequence[StoredMember]


class StoredModernMember(NamedTuple):
    """A member of a group of Kafka's new protocol. `state`: the number of MemberState in Kafka. `assigned`, `revoking`:
    the partitions that it has and must give up, with the epoch at which it got each; `target`: those it will have.
    """

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    assignor: str | None
    topics: Sequence[str]
    pattern: str | None
    epoch: int
    previous_epoch: int
    state: int
    assigned: Mapping[Slot, int]
    revoking: Mapping[Slot, int]
    target: Collection[Slot]


class StoredModernGroup(NamedTuple):
    """A group of Kafka's new protocol (KIP-848).

    `topics_hash`: of the topics that the group subscribes to; two programs have different ones. `assigned_ms`: the time
    of the assignment, in milliseconds since the epoch. `patterns`: the topics that each pattern of a member matches.
    """

    name: str
    epoch: int
    topics_hash: int
    assignment_epoch: int
    assigned_ms: int
    members: Sequence[StoredModernMember]
    patterns: Mapping[str, Collection[str]]


AnyStoredGroup: TypeAlias = StoredGroup | StoredModernGroup


@runtime_checkable
class SupportsGroupMembers(Protocol):
    """The members of consumer groups, stored where the real server stores them. Thread-safe."""

    def stored_groups(self) -> Sequence[AnyStoredGroup]:
        """Return the newest state of every group, by name in order."""

    def write_groups(self, groups: Sequence[AnyStoredGroup], *, durable: bool = True) -> None:
        """Store these groups; `stored_groups` returns them on return. `durable`: they are synced too.

        The changes of a group are one append. What it has of the other protocol is deleted: a group has one kind.
        Raises StoreReadOnly, StoreFenced, DiskFull, InvalidArgument (group).
        """

    def forget_groups(self, names: Iterable[str]) -> None:
        """Delete these groups, of any protocol; durable on return. Their offsets stay. A group that is not stored is
        not an error. Raises StoreReadOnly, StoreFenced, DiskFull.
        """
