"""One member of a group of Kafka's new protocol, and its way to the partitions that it should have.

Owns a member's fields, the check of its epoch, and the steps toward its target. Must not know other members: a
caller says which partitions others still have. The steps come from Kafka's CurrentAssignmentBuilder:

    STABLE      has all of its target, at the target's epoch
    UNREVOKED   must first give partitions up; it keeps its epoch until it reports that it has
    UNRELEASED  is at the target's epoch; waits for partitions that others must give up

A partition is given to a member only when no other has it or must still give it up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from logserver.groups.classic.group import MEMBER_BYTES
from logserver.groups.classic.values import Refusal
from logserver.groups.modern.values import (
    AWAY_EPOCH,
    JOIN_EPOCH,
    NO_TIMEOUT,
    Beat,
    MemberState,
    Refused,
    Topics,
)
from storage import StoredModernMember
from storage.groups import Slot


class Member:
    """A member. `assigned` and `revoking`: partitions with the epoch at which the member got each."""

    __slots__ = (
        "assigned", "assignor", "client_host", "client_id", "epoch", "expires_ms", "instance_id", "member_id",
        "pattern", "previous_epoch", "rack_id", "rebalance_timeout_ms", "revoke_deadline_ms", "revoking", "size_bytes",
        "state", "topics",
    )  # fmt: skip

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.instance_id: str | None = None
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.rebalance_timeout_ms = 0
        self.assignor: str | None = None
        self.topics: Sequence[str] = ()
        self.pattern: str | None = None
        self.epoch = JOIN_EPOCH
        self.previous_epoch = JOIN_EPOCH
        self.state = MemberState.STABLE
        self.assigned: dict[Slot, int] = {}
        self.revoking: dict[Slot, int] = {}
        self.expires_ms: int | None = None
        self.revoke_deadline_ms: int | None = None
        self.size_bytes = 0  # as it is counted

    def stored(self, target: Collection[Slot]) -> StoredModernMember:
        """Return the member as a store keeps it."""
        return StoredModernMember(
            self.member_id,
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.assignor,
            self.topics,
            self.pattern,
            self.epoch,
            self.previous_epoch,
            self.state,
            dict(self.assigned),
            dict(self.revoking),
            target,
        )

    @staticmethod
    def restored(row: StoredModernMember) -> Member:
        """Return a member of an earlier process."""
        member = Member(row.member_id)
        member.instance_id, member.rack_id = row.instance_id, row.rack_id
        member.client_id, member.client_host = row.client_id, row.client_host
        member.rebalance_timeout_ms = row.rebalance_timeout_ms
        member.assignor, member.topics, member.pattern = row.assignor, row.topics, row.pattern
        member.epoch, member.previous_epoch = row.epoch, row.previous_epoch
        known = {state.value for state in MemberState}
        member.state = MemberState(row.state) if row.state in known else MemberState.UNRELEASED
        member.assigned, member.revoking = dict(row.assigned), dict(row.revoking)
        return member

    def update(self, beat: Beat) -> bool:
        """Take what a heartbeat says. Return whether the subscription has changed."""
        before = self.topics, self.pattern
        self.client_id, self.client_host = beat.client_id, beat.client_host
        self.instance_id = beat.instance_id or self.instance_id
        self.rack_id = beat.rack_id or self.rack_id
        self.assignor = beat.assignor or self.assignor
        if beat.rebalance_timeout_ms != NO_TIMEOUT:
            self.rebalance_timeout_ms = beat.rebalance_timeout_ms
        if beat.topics is not None:
            self.topics = tuple(sorted(set(beat.topics)))
        if beat.pattern is not None:
            self.pattern = beat.pattern or None
        return before != (self.topics, self.pattern)

    @staticmethod
    def size_of(beat: Beat) -> int:
        """Return about what a member that sends this heartbeat holds."""
        names = (
            beat.member_id,
            beat.instance_id,
            beat.rack_id,
            beat.client_id,
            beat.client_host,
            beat.pattern,
        )
        return MEMBER_BYTES + sum(len(name or "") for name in (*names, *(beat.topics or ())))

    def current_size_bytes(self) -> int:
        """Return about what the member holds."""
        names = (
            self.member_id,
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.pattern,
        )
        return MEMBER_BYTES + sum(len(name or "") for name in (*names, *self.topics))

    def subscribed(self, topics: Topics) -> Collection[str]:
        """Return the topics of the subscription: those named, and those that the pattern matches."""
        return {*self.topics, *(topics.matching(self.pattern) if self.pattern else ())}

    def is_at(self, assignment_epoch: int) -> bool:
        """Return whether the member has reached its target."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def check_epoch(self, beat: Beat) -> None:
        """Raise Refused for an epoch that is not the member's.

        The epoch before is accepted as long as the member reports none but its own partitions: the answer with its
        new epoch may have been lost.
        """
        if beat.epoch == self.epoch:
            return
        returns = beat.epoch == self.previous_epoch and beat.epoch < self.epoch
        if returns and beat.owned is not None and self.assigned.keys() >= {*beat.owned}:
            return
        side = "greater" if beat.epoch > self.epoch else "smaller"
        raise Refused(
            Refusal.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {side} member epoch ({beat.epoch}) than the one known by the group "
            f"coordinator ({self.epoch}). The member must abandon all its partitions and rejoin.",
        )

    def had(self, slots: Collection[Slot], epoch: int) -> bool:
        """Return whether these partitions were the member's at an epoch, and still are or must be given up."""
        since = {**self.revoking, **self.assigned}
        return all(slot in since and since[slot] <= epoch for slot in slots)

    def is_late(self, now_ms: int) -> bool:
        """Return whether the member's session, or its time to give up partitions, is over."""
        deadlines = self.expires_ms, self.revoke_deadline_ms
        return any(time_ms is not None and time_ms <= now_ms for time_ms in deadlines)

    def go_away(self) -> None:
        """Leave for a while: the partitions stay reserved. Only a static member can."""
        self.epoch = AWAY_EPOCH
        self.revoking = {}
        self.assigned = dict.fromkeys(self.assigned, JOIN_EPOCH)
        self.revoke_deadline_ms = None

    def set_epoch(self, epoch: int) -> None:
        """Enter an epoch; the one before is remembered."""
        self.previous_epoch, self.epoch = self.epoch, epoch


def reconcile(
    member: Member,
    target_epoch: int,
    target: Collection[Slot],
    others: Collection[Slot],
    owned: Collection[Slot] | None,
    *,
    subscribed: Collection[bytes] | None,
) -> None:
    """Take the next step toward the target. `others`: partitions of the target that other members have.

    `owned`: the partitions that the member reports, None if it reports none. `subscribed`: the topics of its
    subscription if that has changed, else None.
    """
    if member.is_at(target_epoch) or (
        member.state is MemberState.UNREVOKED and _owns(owned, member.revoking)
    ):
        if subscribed is not None:
            _unsubscribe(member, subscribed, owned)
        return
    kept = {slot: since for slot, since in member.assigned.items() if slot in target}
    leaving = {slot: since for slot, since in member.assigned.items() if slot not in target}
    if leaving and _owns(owned, leaving):
        member.state = MemberState.UNREVOKED
        member.set_epoch(member.epoch)
        member.assigned, member.revoking = kept, leaving
        return
    free = [slot for slot in target if slot not in kept and slot not in others]
    waits = any(slot not in kept for slot in others)
    member.state = MemberState.UNRELEASED if waits else MemberState.STABLE
    member.set_epoch(target_epoch)
    member.assigned, member.revoking = kept | dict.fromkeys(free, target_epoch), {}


def _unsubscribe(
    member: Member, subscribed: Collection[bytes], owned: Collection[Slot] | None
) -> None:
    """Take away the partitions of topics that the member no longer subscribes to, before there is a new target."""
    leaving = {slot: since for slot, since in member.assigned.items() if slot[0] not in subscribed}
    if not leaving:
        return
    member.assigned = {
        slot: since for slot, since in member.assigned.items() if slot not in leaving
    }
    pending = {**member.revoking, **leaving}
    member.revoking = pending if _owns(owned, pending) else {}
    if member.revoking:
        member.state = MemberState.UNREVOKED
        member.set_epoch(member.epoch)


def _owns(owned: Collection[Slot] | None, slots: Collection[Slot]) -> bool:
    """Return whether a member may still have one of these partitions, by its own report."""
    return owned is None or any(slot in slots for slot in owned)
