"""One group of Kafka's new protocol (KIP-848): a state machine without IO, clock or threads.

Owns the members of a group, the three kinds of epoch, the target of each member and every deadline. Must not know
bytes, timers or where topics come from. The rules come from Kafka's GroupMetadataManager, ConsumerGroup,
TargetAssignmentBuilder and (in `member.py`) CurrentAssignmentBuilder.

    group epoch       rises when a member joins, leaves or changes its subscription, or its topics change
    assignment epoch  the group epoch for which the assignor chose a target for every member
    member epoch      the assignment epoch that a member has reached: it has nothing more to give up

Everything happens in heartbeats: a heartbeat of any member may let the assignor run, and moves that one member toward
its target. No member waits for another but for the partitions that the other one still has.

`revision` rises with every change that a restart must not forget (`stored`, `restore`).

Every call gets the time in milliseconds, of any clock that only rises. `next_deadline_ms` says when `expire` must be
called.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Final

from logserver.groups.classic.values import Caller, HeldBytes, Leaving, Refusal
from logserver.groups.modern.assignors import ASSIGNORS, Assignment, Subscriber
from logserver.groups.modern.member import Member, reconcile
from logserver.groups.modern.values import (
    AWAY_EPOCH,
    DEFAULT_ASSIGNOR,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    Beat,
    BeatAnswer,
    GroupState,
    Limits,
    MemberState,
    ModernGroupView,
    ModernMemberView,
    Refused,
    Topic,
    Topics,
)
from storage import StoredModernGroup, StoredModernMember
from storage.groups import Slot

EMPTY_KEPT_MS: Final = 600_000
"""How long a group without members is remembered. Its offsets are elsewhere, and stay."""
FENCED_COMMITS_FROM: Final = 9
"""The first version of OffsetCommit that carries a member's epoch."""


class ModernGroup:
    """The members of one group. `held`: the count of the bytes of all groups, which `limits.max_bytes` limits."""

    def __init__(self, name: str, limits: Limits, now_ms: int, held: HeldBytes) -> None:
        self.name = name
        self.epoch = 1
        self.assignment_epoch = 0
        self.revision = 0
        self._limits = limits
        self._held = held
        self._members: dict[str, Member] = {}
        self._static: dict[str, str] = {}  # member ids by instance id
        self._target: Assignment = {}
        self._holders: dict[Slot, str] = {}  # who has each partition, or must still give it up
        self._topics: Mapping[str, Topic] = {}  # of all subscriptions, as the assignor knows them
        self._assigned_ms: int | None = None
        self._stamp = (0, 0)  # an assignment epoch, and the wall clock's time of its assignment
        self._topics_changed = False
        self._dead_at_ms: int | None = now_ms + EMPTY_KEPT_MS

    # -- what others ask

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self._members)

    @property
    def is_idle(self) -> bool:
        """True if the group has no members."""
        return not self._members

    @property
    def state(self) -> GroupState:
        """The state as tools show it."""
        if not self._members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_at(self.assignment_epoch) for member in self._members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    @property
    def patterns(self) -> Collection[str]:
        """The patterns of the members' subscriptions."""
        return {member.pattern for member in self._members.values() if member.pattern}

    def member_ids(self) -> Sequence[str]:
        """Return the ids of the members, in order."""
        return sorted(self._members)

    def subscribed(self, topics: Topics) -> frozenset[str]:
        """Return the names of the topics that members subscribe to."""
        return frozenset().union(*(member.subscribed(topics) for member in self._members.values()))

    def view(self) -> ModernGroupView:
        """Return the group as tools show it."""
        members = [
            ModernMemberView(
                member.member_id,
                member.instance_id,
                member.rack_id,
                member.client_id,
                member.client_host,
                member.epoch,
                member.topics,
                member.pattern,
                sorted({*member.assigned, *member.revoking}),
                sorted(self._target.get(member.member_id, ())),
            )
            for member in self._members.values()
        ]
        return ModernGroupView(
            self.name, self.state, self.epoch, self.assignment_epoch, self._assignor(), members
        )

    def stored(self, clock_ms: int, topics: Topics) -> StoredModernGroup:
        """Return the group as a store keeps it. `clock_ms`: the wall clock's time."""
        if self._stamp[0] != self.assignment_epoch:
            self._stamp = self.assignment_epoch, clock_ms
        return StoredModernGroup(
            self.name,
            self.epoch,
            _hash(self._topics),
            self.assignment_epoch,
            self._stamp[1],
            [
                member.stored(self._target.get(member.member_id, frozenset()))
                for member in self._members.values()
            ],
            {pattern: topics.matching(pattern) for pattern in self.patterns},
        )

    def restore(self, stored: StoredModernGroup, topics: Topics, now_ms: int) -> None:
        """Go on with the members of an earlier process; each has a whole session to show that it is there."""
        self.epoch, self.assignment_epoch = stored.epoch, max(stored.assignment_epoch, 0)
        self._stamp = self.assignment_epoch, stored.assigned_ms
        for row in stored.members:
            member = Member.restored(row)
            self._members[row.member_id] = member
            if row.instance_id is not None:
                self._static[row.instance_id] = row.member_id
            self._target[row.member_id] = frozenset(row.target)
            self._holders |= dict.fromkeys((*row.assigned, *row.revoking), row.member_id)
            self._count(member)
            member.expires_ms = now_ms + self._limits.session_timeout_ms
            if member.state is MemberState.UNREVOKED:
                member.revoke_deadline_ms = now_ms + member.rebalance_timeout_ms
        self._note_topics(topics)
        if self._members:
            self._dead_at_ms = None
            if (
                _hash(self._topics) != stored.topics_hash
            ):  # topics have changed, or another program has stored it
                self.epoch += 1

    def extend(self, member_id: str, now_ms: int) -> None:
        """Begin a member's session again."""
        member = self._members.get(member_id)
        if member is not None:
            member.expires_ms = now_ms + self._limits.session_timeout_ms

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next call of `expire`; None if nothing is due ever."""
        times = [self._dead_at_ms]
        for member in self._members.values():
            times += member.expires_ms, member.revoke_deadline_ms
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def topics_changed(self) -> None:
        """Look at the topics again at the next heartbeat."""
        self._topics_changed = True

    # -- heartbeats

    def heartbeat(self, beat: Beat, topics: Topics, now_ms: int) -> BeatAnswer:
        """Apply a heartbeat that passed `check_beat`, and return its answer; also for a refusal."""
        try:
            if beat.epoch in (LEAVE_EPOCH, AWAY_EPOCH):
                return self._leave(beat, topics, now_ms)
            return self._go_on(beat, topics, now_ms)
        except Refused as refused:
            return BeatAnswer(refused.refusal, str(refused))

    def _go_on(self, beat: Beat, topics: Topics, now_ms: int) -> BeatAnswer:
        self._check_room(beat)
        if beat.pattern_problem is not None:
            raise Refused(Refusal.INVALID_REGULAR_EXPRESSION, beat.pattern_problem)
        known = self._known(beat)
        member = self._joined(beat) if known is None else known
        before = self._mark(member), known is None
        assigned_before = member.assigned.keys()
        changed = member.update(beat)
        self._count(member)
        if changed or self._topics_changed:
            self._refresh(topics, changed=changed)
        self._assign(topics, now_ms)
        self._move(member, topics, beat.owned, now_ms, changed=changed)
        member.expires_ms = now_ms + self._limits.session_timeout_ms
        if before != (self._mark(member), False):
            self.revision += 1
        shows = beat.is_full or member.assigned.keys() != assigned_before
        return BeatAnswer(
            member_id=member.member_id,
            epoch=member.epoch,
            heartbeat_interval_ms=self._limits.heartbeat_interval_ms,
            assigned=sorted(member.assigned) if shows else None,
        )

    def _mark(self, member: Member) -> tuple[int, int, StoredModernMember]:
        """Return everything of the group that a heartbeat of a member may change."""
        return self.epoch, self.assignment_epoch, member.stored(())

    def _check_room(self, beat: Beat) -> None:
        """Raise Refused if the group has no room for a new member, or no bytes for a larger subscription."""
        member = self._members.get(beat.member_id)
        if member is not None and beat.topics is None and beat.pattern is None:
            return
        freed = 0 if member is None else member.size_bytes
        if (member is None and len(self._members) >= self._limits.max_size) or (
            self._held.size_bytes - freed + Member.size_of(beat) > self._limits.max_bytes
        ):
            raise Refused(
                Refusal.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self._limits.max_size} members.",
            )

    def _known(self, beat: Beat) -> Member | None:
        """Return the member that sends a heartbeat; None for a member that joins."""
        if beat.instance_id is not None:
            member = self._known_static(beat)
        else:
            member = self._members.get(beat.member_id)
            if member is None and beat.epoch != JOIN_EPOCH:
                raise self._unknown(beat.member_id)
        if member is not None and beat.epoch != JOIN_EPOCH:
            member.check_epoch(beat)
        return member

    def _known_static(self, beat: Beat) -> Member | None:
        assert beat.instance_id is not None
        member_id = self._static.get(beat.instance_id)
        if beat.epoch != JOIN_EPOCH:
            return self._of_instance(beat.instance_id, beat.member_id)
        if member_id is None:
            return None
        member = self._members[member_id]
        if member.epoch != AWAY_EPOCH:
            raise Refused(
                Refusal.UNRELEASED_INSTANCE_ID,
                f"Static member {beat.member_id} with instance id {beat.instance_id} cannot join the group because "
                f"the instance id is owned by {member_id} member.",
            )
        return self._replaced(member, beat.member_id)

    def _of_instance(self, instance_id: str, member_id: str) -> Member:
        """Return the static member of an instance, for a request by this member id."""
        known = self._static.get(instance_id)
        if known is None:
            raise Refused(Refusal.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if known != member_id:
            raise Refused(
                Refusal.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {known}.",
            )
        return self._members[known]

    def _unknown(self, member_id: str) -> Refused:
        return Refused(
            Refusal.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.name}."
        )

    def _joined(self, beat: Beat) -> Member:
        member = Member(beat.member_id)
        self._members[member.member_id] = member
        if beat.instance_id is not None:
            self._static[beat.instance_id] = member.member_id
        self._dead_at_ms = None
        return member

    def _replaced(self, member: Member, member_id: str) -> Member:
        """Let a static member that came back under another member id take the place of its former self."""
        former_id, member.member_id = member.member_id, member_id
        self._members[member_id] = self._members.pop(former_id)
        assert member.instance_id is not None
        self._static[member.instance_id] = member_id
        self._target[member_id] = self._target.pop(former_id, frozenset())
        self._holders = {
            slot: member_id if holder == former_id else holder
            for slot, holder in self._holders.items()
        }
        member.epoch = member.previous_epoch = JOIN_EPOCH
        self.revision += 1
        return member

    def _count(self, member: Member) -> None:
        """Count what a member holds now."""
        size_bytes = member.current_size_bytes()
        self._held.size_bytes += size_bytes - member.size_bytes
        member.size_bytes = size_bytes

    # -- the target

    def _refresh(self, topics: Topics, *, changed: bool) -> None:
        """Look at the topics of all subscriptions; a change of them or of a subscription begins an epoch."""
        self._topics_changed = False
        before = self._topics
        self._note_topics(topics)
        if changed or self._topics != before:
            self.epoch += 1

    def _assign(self, topics: Topics, now_ms: int) -> None:
        """Let the assignor run if the group has changed, and not again within its interval."""
        if self.epoch <= self.assignment_epoch:
            return
        interval_ms = self._limits.assignment_interval_ms
        if self._assigned_ms is not None and now_ms < self._assigned_ms + interval_ms:
            return
        members = {
            member_id: Subscriber(
                member.instance_id,
                frozenset(self._ids(member, topics)),
                self._target.get(member_id, frozenset()),
            )
            for member_id, member in self._members.items()
        }
        existing = {topic.topic_id: topic for topic in self._topics.values()}
        self._target = ASSIGNORS[self._assignor()](members, existing)
        self.assignment_epoch = self.epoch
        self._assigned_ms = now_ms

    def _assignor(self) -> str:
        """Return the assignor that most members ask for."""
        names = (member.assignor for member in self._members.values())
        asked = Counter(name for name in names if name is not None)
        return asked.most_common(1)[0][0] if asked else DEFAULT_ASSIGNOR

    def _ids(self, member: Member, topics: Topics) -> Collection[bytes]:
        """Return the ids of the topics that exist of a member's subscription."""
        return {
            self._topics[name].topic_id
            for name in member.subscribed(topics)
            if name in self._topics
        }

    def _move(
        self,
        member: Member,
        topics: Topics,
        owned: Collection[Slot] | None,
        now_ms: int,
        *,
        changed: bool,
    ) -> None:
        """Move a member toward its target as far as its own partitions and other members allow."""
        before = member.state, member.epoch
        ids = self._ids(member, topics)
        target = {slot for slot in self._target.get(member.member_id, ()) if slot[0] in ids}
        others = {
            slot for slot in target if self._holders.get(slot, member.member_id) != member.member_id
        }
        for slot in (*member.assigned, *member.revoking):
            self._holders.pop(slot, None)
        reconcile(
            member,
            self.assignment_epoch,
            target,
            others,
            owned,
            subscribed=ids if changed else None,
        )
        for slot in (*member.assigned, *member.revoking):
            self._holders[slot] = member.member_id
        if member.state is not MemberState.UNREVOKED:
            member.revoke_deadline_ms = None
        elif before != (member.state, member.epoch) or member.revoke_deadline_ms is None:
            member.revoke_deadline_ms = now_ms + member.rebalance_timeout_ms

    # -- leaving

    def _leave(self, beat: Beat, topics: Topics, now_ms: int) -> BeatAnswer:
        member = self._named(Leaving(beat.member_id, beat.instance_id))
        if beat.epoch == AWAY_EPOCH:
            self._set_away(member)
        else:
            self._remove(member)
            self._after_removal(topics, now_ms)
        return BeatAnswer(member_id=beat.member_id, epoch=beat.epoch)

    def _set_away(self, member: Member) -> None:
        """Reserve a static member's partitions until its session ends."""
        for slot in member.revoking:
            self._holders.pop(slot, None)
        member.go_away()
        self.revision += 1

    def leave(self, leaving: Sequence[Leaving], topics: Topics, now_ms: int) -> Sequence[Refusal]:
        """Remove members, named as in the classic protocol. Return a result for each, in order."""
        results = []
        for one in leaving:
            try:
                self._remove(self._named(one))
            except Refused as refused:
                results.append(refused.refusal)
            else:
                results.append(Refusal.NONE)
        if Refusal.NONE in results:
            self._after_removal(topics, now_ms)
        return results

    def _named(self, leaving: Leaving) -> Member:
        """Return the member that an operator or a member itself names: a static one perhaps by its instance alone."""
        if leaving.instance_id is not None:
            known = self._static.get(leaving.instance_id, "")
            return self._of_instance(leaving.instance_id, leaving.member_id or known)
        member = self._members.get(leaving.member_id)
        if member is None:
            raise self._unknown(leaving.member_id)
        return member

    def _remove(self, member: Member) -> None:
        del self._members[member.member_id]
        if member.instance_id is not None:
            self._static.pop(member.instance_id, None)
        self._target.pop(member.member_id, None)
        for slot in (*member.assigned, *member.revoking):
            self._holders.pop(slot, None)
        self._held.size_bytes -= member.size_bytes
        self.epoch += 1
        self.revision += 1

    def _note_topics(self, topics: Topics) -> None:
        """Note the topics of all subscriptions that exist."""
        found = {name: topics.find(name) for name in sorted(self.subscribed(topics))}
        self._topics = {name: topic for name, topic in found.items() if topic is not None}

    def _after_removal(self, topics: Topics, now_ms: int) -> None:
        """Note the topics of the members that are left: their partitions are shared at the next heartbeat."""
        self._note_topics(topics)
        if not self._members:
            self._dead_at_ms = now_ms + EMPTY_KEPT_MS

    # -- offsets

    def check_commit(
        self, caller: Caller, slots: Collection[Slot], version: int, *, transactional: bool
    ) -> Refusal:
        """Return whether a client may commit offsets of these partitions.

        A member may lack the answer with its new epoch: it is enough that the partition was its own at the epoch that
        it names (KIP-1251).
        """
        if caller.generation < 0 and not self._members:
            return Refusal.NONE
        nameless = caller.generation == -1 and not caller.member_id and caller.instance_id is None
        if transactional and nameless:
            return Refusal.NONE
        member = self._members.get(caller.member_id)
        if member is None:
            return Refusal.UNKNOWN_MEMBER_ID
        if not transactional and version < FENCED_COMMITS_FROM:
            return Refusal.UNSUPPORTED_VERSION
        if caller.generation == member.epoch:
            return Refusal.NONE
        if caller.generation > member.epoch or not member.had(slots, caller.generation):
            return Refusal.STALE_MEMBER_EPOCH
        return Refusal.NONE

    def check_fetch(self, member_id: str | None, epoch: int) -> Refusal:
        """Return whether a client may fetch offsets as this member; without a member id anyone may."""
        if member_id is None and epoch < 0:
            return Refusal.NONE
        member = self._members.get(member_id or "")
        if member is None:
            return Refusal.UNKNOWN_MEMBER_ID
        return Refusal.NONE if epoch == member.epoch else Refusal.STALE_MEMBER_EPOCH

    # -- time

    def expire(self, topics: Topics, now_ms: int) -> None:
        """Apply every deadline that has passed: of sessions, and of partitions that a member does not give up."""
        gone = [member for member in self._members.values() if member.is_late(now_ms)]
        for member in gone:
            self._remove(member)
        if gone:
            self._after_removal(topics, now_ms)

    def is_dead(self, now_ms: int) -> bool:
        """Return whether the group has been empty for so long that it is forgotten."""
        return self._dead_at_ms is not None and self._dead_at_ms <= now_ms

    def close(self) -> None:
        """End the group: its members are forgotten."""
        for member in self._members.values():
            self._held.size_bytes -= member.size_bytes
        self._members.clear()
        self._static.clear()
        self._holders.clear()
        self._target.clear()
        self._dead_at_ms = None


def _hash(topics: Mapping[str, Topic]) -> int:
    """Return a number of 64 bits that changes with the topics, and is 0 without any."""
    if not topics:
        return 0
    rows = [
        [name, topic.topic_id.hex(), [*topic.partitions]] for name, topic in sorted(topics.items())
    ]
    return int.from_bytes(sha256(json.dumps(rows).encode()).digest()[:8], "big", signed=True)
