"""One group of Kafka's classic protocol: a state machine without IO, clock or threads.

Owns the members of a group, its generations, the choice of protocol and leader, and every deadline. Must not know
offsets, bytes on a connection, or what the members' metadata and assignments mean. The rules come from Kafka's
GroupMetadataManager and ClassicGroup, with KIP-345 (static members), KIP-394 (known member ids), KIP-814 (a returning
leader keeps the assignment).

                     first join                       all have joined, or time is up
    Empty  ------------------------->  Preparing  ------------------------------------>  Completing
      ^                                  ^     |                                          |      |
      |   no member is left              |     |      join, leave, expiry, no sync        |      | the leader
      +----------------------------------------+  <---------------------------------------+      | syncs
                                         |                                                       v
                                         +-------------------  join, leave, expiry  ---------  Stable

Every call gets the time in milliseconds, of any clock that only rises. A join or a sync may wait; its callback gets
the answer, at the latest when the member's time is up. `next_deadline_ms` says when `expire` must be called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from logserver.groups.classic.values import (
    NO_GENERATION,
    NO_MEMBER,
    AnswerJoin,
    AnswerSync,
    Caller,
    GroupView,
    HeldBytes,
    Join,
    JoinAnswer,
    JoinedMember,
    Leaving,
    Limits,
    MemberView,
    Offer,
    Refusal,
    State,
    Sync,
    SyncAnswer,
)
from storage import StoredGroup, StoredMember

NEW_MEMBER_TIMEOUT_MS: Final = 300_000
"""How long the first join of a member may wait. Its session has not begun: it cannot send heartbeats."""
EMPTY_KEPT_MS: Final = 600_000
"""How long a group without members is remembered. Its offsets are elsewhere, and stay."""
MEMBER_BYTES: Final = 500
"""About what a member holds besides its strings and bytes."""
RETRY_MS: Final = 1000
"""The shortest wait for members when none of them joined in time."""


class _Member:
    """A member. `join` and `sync` are the callbacks of its requests that wait; `expires_ms` None: it has no deadline,
    since one of them waits.
    """

    __slots__ = (
        "assignment", "client_host", "client_id", "expires_ms", "instance_id", "is_new", "join", "member_id", "offers",
        "rebalance_timeout_ms", "session_timeout_ms", "size_bytes", "sync",
    )  # fmt: skip

    def __init__(self, member_id: str, request: Join) -> None:
        self.member_id = member_id
        self.instance_id = request.instance_id
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.assignment = b""
        self.is_new = True
        self.expires_ms: int | None = None
        self.join: AnswerJoin | None = None
        self.sync: AnswerSync | None = None
        self.session_timeout_ms = 0
        self.rebalance_timeout_ms = 0
        self.size_bytes = 0  # as it is counted
        self.offers: Sequence[Offer] = ()
        self.update(request)

    def update(self, request: Join) -> None:
        """Take what a newer join says."""
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = max(request.rebalance_timeout_ms, 0)
        self.offers = tuple(request.offers)

    def metadata(self, protocol: str | None) -> bytes:
        """Return the metadata for a protocol; empty if the member does not support it."""
        return next((offer.metadata for offer in self.offers if offer.name == protocol), b"")

    def answer_join(self, answer: JoinAnswer) -> None:
        """Answer the join that waits, if any."""
        waiting, self.join = self.join, None
        if waiting is not None:
            waiting(answer)

    def answer_sync(self, answer: SyncAnswer) -> None:
        """Answer the sync that waits, if any."""
        waiting, self.sync = self.sync, None
        if waiting is not None:
            waiting(answer)


def _size_bytes(client: _Member | Join) -> int:
    """Return about what a member holds, or would hold after this request, without its assignment."""
    strings = client.member_id, client.instance_id or "", client.client_id, client.client_host
    offers = sum(len(offer.name) + len(offer.metadata) for offer in client.offers)
    return MEMBER_BYTES + sum(map(len, strings)) + offers


class ClassicGroup:
    """The members of one group. `new_id(prefix)` returns a member id that was never used. `held`: the count of the
    bytes of all groups, which `limits.max_bytes` limits. `revision` rises when `stored` changes in a way that a restart
    must not forget: with an assignment, a member id that replaces another, and the end of the last member.
    """

    def __init__(
        self,
        name: str,
        limits: Limits,
        new_id: Callable[[str], str],
        now_ms: int,
        held: HeldBytes,
    ) -> None:
        self.name = name
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self._agreed: Sequence[bytes] | None = None
        self._limits = limits
        self._new_id = new_id
        self._held = held
        self._members: dict[str, _Member] = {}  # in the order in which they joined
        self._static: dict[str, str] = {}  # member ids by instance id
        # Deadlines of the ids that were given out and have not joined yet.
        self._joining: dict[str, int] = {}
        self._unsynced: set[str] = (
            set()
        )  # members of this generation that have not asked for the assignment
        self._join_deadline_ms: int | None = None
        self._sync_deadline_ms: int | None = None
        self._dead_at_ms: int | None = now_ms + EMPTY_KEPT_MS
        # In the first rebalance of a group only: the time by which its delay may still grow, None later.
        self._initial_left_ms: int | None = None
        self._joined_meanwhile = False
        self.revision = 0

    # -- what others ask

    @property
    def size(self) -> int:
        """The number of members, those that are still joining included."""
        return len(self._members) + len(self._joining)

    @property
    def is_idle(self) -> bool:
        """True if the group has no members. Ids that were given out do not count."""
        return not self._members

    @property
    def waiting(self) -> int:
        """The number of joins and syncs that wait."""
        members = self._members.values()
        return sum((one.join is not None) + (one.sync is not None) for one in members)

    def member_ids(self) -> Sequence[str]:
        """Return the ids of the members, in order."""
        return sorted(self._members)

    def metadata(self) -> Sequence[bytes]:
        """Return each member's metadata of the last generation, before there is one for the protocol it prefers."""
        if self._agreed is not None:
            return self._agreed
        return [
            member.metadata(self.protocol) or member.offers[0].metadata
            for member in self._members.values()
        ]

    def view(self) -> GroupView:
        """Return the group as tools show it."""
        stable = self.state is State.STABLE
        protocol = self.protocol if stable and self.protocol is not None else ""
        members = [
            MemberView(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                metadata=member.metadata(protocol) if stable else b"",
                assignment=member.assignment,
            )
            for member in self._members.values()
        ]
        return GroupView(
            self.name, self.state, self.generation, self.protocol_type, protocol, members
        )

    # -- over a restart

    def stored(self, changed_ms: int) -> StoredGroup:
        """Return the group as a store keeps it. `changed_ms`: the wall clock's time."""
        members = [
            StoredMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                subscription=member.metadata(self.protocol),
                assignment=member.assignment,
            )
            for member in self._members.values()
        ]
        return StoredGroup(
            self.name,
            self.protocol_type,
            self.generation,
            self.protocol,
            self.leader,
            changed_ms,
            members,
        )

    def restore(self, stored: StoredGroup, now_ms: int) -> None:
        """Go on with the members of an earlier process; each has a whole session to show that it is there."""
        self.protocol_type, self.generation = stored.protocol_type, stored.generation
        for row in stored.members:
            request = Join(
                row.member_id,
                row.instance_id,
                row.client_id,
                row.client_host,
                row.session_timeout_ms,
                row.rebalance_timeout_ms,
                stored.protocol_type,
                [Offer(stored.protocol or "", row.subscription)],
                needs_known_id=True,
                can_skip_assignment=True,
            )
            member = _Member(row.member_id, request)
            member.is_new, member.assignment = False, row.assignment
            self._members[row.member_id] = member
            self._count(member)
            if row.instance_id is not None:
                self._static[row.instance_id] = row.member_id
            self._extend(member, now_ms)
        if self._members:
            known = stored.leader in self._members
            self.protocol = stored.protocol
            self.leader = stored.leader if known else next(iter(self._members))
            self.state, self._dead_at_ms = State.STABLE, None

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next call of `expire`; None if nothing is due ever."""
        times: list[int | None] = [
            self._join_deadline_ms,
            self._sync_deadline_ms,
            self._dead_at_ms,
            *self._joining.values(),
            *(member.expires_ms for member in self._members.values()),
        ]
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    # -- joining

    def join(self, request: Join, now_ms: int, answer: AnswerJoin) -> None:
        """Let a client join, or a member join again. `answer` is called now or later, exactly once."""
        refusal = self._refuse_join(request)
        if refusal is Refusal.GROUP_MAX_SIZE_REACHED:
            self._forget(request.member_id)
            answer(JoinAnswer(refusal))
        elif refusal:
            answer(JoinAnswer(refusal, request.member_id))
        elif request.member_id == NO_MEMBER:
            self._join_unknown(request, now_ms, answer)
        elif request.member_id in self._joining:
            self._forget(request.member_id)
            self._add(request.member_id, request, now_ms, answer)
        else:
            self._join_again(self._members[request.member_id], request, now_ms, answer)
        self._settle(now_ms)

    def _refuse_join(self, request: Join) -> Refusal:
        limits = self._limits
        timeouts = range(limits.min_session_timeout_ms, limits.max_session_timeout_ms + 1)
        if request.session_timeout_ms not in timeouts:
            return Refusal.INVALID_SESSION_TIMEOUT
        if self.state is State.DEAD:
            return Refusal.COORDINATOR_NOT_AVAILABLE
        if not self._has_room(request) or not self._has_bytes(request):
            return Refusal.GROUP_MAX_SIZE_REACHED
        if not self._supports(request):
            return Refusal.INCONSISTENT_GROUP_PROTOCOL
        if request.member_id == NO_MEMBER:
            return Refusal.NONE
        if request.member_id in self._joining and request.instance_id is None:
            return Refusal.NONE
        return self._refuse_member(request.member_id, request.instance_id)

    def _has_room(self, request: Join) -> bool:
        """Return whether the group may take the client. In a rebalance the first to join have the places."""
        if request.member_id in self._joining or request.instance_id in self._static:
            return True
        if self.state is State.PREPARING:
            member = self._members.get(request.member_id)
            waiting = len(self._waiting()) + len(self._joining)
            return (member is not None and member.join is not None) or (
                waiting < self._limits.max_size
            )
        return request.member_id in self._members or self.size < self._limits.max_size

    def _has_bytes(self, request: Join) -> bool:
        """Return whether the bytes of the request fit, in place of those that its member holds."""
        member_id = self._static.get(request.instance_id or NO_MEMBER, request.member_id)
        member = self._members.get(member_id)
        freed = 0 if member is None else member.size_bytes - len(member.assignment)
        return self._held.size_bytes - freed + _size_bytes(request) <= self._limits.max_bytes

    def _supports(self, request: Join) -> bool:
        """Return whether the client can be a member together with the others."""
        if not request.protocol_type or not request.offers:
            return False
        if not self._members:
            return True
        common = self._common_protocols()
        return request.protocol_type == self.protocol_type and any(
            offer.name in common for offer in request.offers
        )

    def _join_unknown(self, request: Join, now_ms: int, answer: AnswerJoin) -> None:
        instance_id = request.instance_id
        if instance_id is not None:
            member_id = self._new_id(f"{instance_id}-")
            if instance_id in self._static:
                self._replace(member_id, request, now_ms, answer)
            else:
                self._add(member_id, request, now_ms, answer)
        elif request.needs_known_id:
            member_id = self._new_id(f"{request.client_id}-")
            self._joining[member_id] = now_ms + request.session_timeout_ms
            self._held.size_bytes += MEMBER_BYTES + len(member_id)
            answer(JoinAnswer(Refusal.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(self._new_id(f"{request.client_id}-"), request, now_ms, answer)

    def _add(self, member_id: str, request: Join, now_ms: int, answer: AnswerJoin) -> None:
        member = _Member(member_id, request)
        if not self._members:
            self.protocol_type = request.protocol_type
        if self.leader is None:
            self.leader = member_id
        self._joined_meanwhile |= self._initial_left_ms is not None
        self._members[member_id] = member
        self._count(member)
        if member.instance_id is not None:
            self._static[member.instance_id] = member_id
        member.join = answer
        member.expires_ms = now_ms + NEW_MEMBER_TIMEOUT_MS
        self._dead_at_ms = None
        self._rebalance(now_ms)

    def _replace(self, member_id: str, request: Join, now_ms: int, answer: AnswerJoin) -> None:
        """Let a static member that came back take the place of its former self, which is fenced (KIP-345)."""
        assert request.instance_id is not None
        former_id = self._static[request.instance_id]
        former_leader = self.leader or NO_MEMBER
        member = self._members[former_id]
        member.answer_join(JoinAnswer(Refusal.FENCED_INSTANCE_ID, former_id))
        member.answer_sync(SyncAnswer(Refusal.FENCED_INSTANCE_ID))
        self._members = {
            (member_id if name == former_id else name): other
            for name, other in self._members.items()
        }
        self._static[request.instance_id] = member_id
        self._unsynced.discard(former_id)
        if self.leader == former_id:
            self.leader = member_id
        member.member_id = member_id
        member.client_id, member.client_host = request.client_id, request.client_host
        member.update(request)
        self._count(member)
        self._extend(member, now_ms)
        member.join = answer
        if self.state is not State.STABLE or self._chosen_protocol() != self.protocol:
            self._rebalance(now_ms)
        else:
            self.revision += 1
            member.answer_join(self._answer_returning(member, request, former_leader))

    def _answer_returning(self, member: _Member, request: Join, former_leader: str) -> JoinAnswer:
        """Return the answer to a static member that goes on in the same generation. A leader whose client cannot skip
        the assignment is shown its former id as the leader, so that it does not assign.
        """
        leads = self.leader == member.member_id
        current = self._current(member, shows_members=leads and request.can_skip_assignment)
        if request.can_skip_assignment:
            return current._replace(skip_assignment=leads)
        return current._replace(leader=former_leader)

    def _join_again(self, member: _Member, request: Join, now_ms: int, answer: AnswerJoin) -> None:
        unchanged = tuple(request.offers) == member.offers
        leads = self.leader == member.member_id
        if self.state is State.COMPLETING and unchanged:
            # The member missed the answer to its last join.
            answer(self._current(member, shows_members=leads))
            return
        if self.state is State.STABLE and unchanged and not leads:
            answer(self._current(member, shows_members=False))
            return
        # A leader that joins again asks for a rebalance: for instance its topics have new partitions.
        member.answer_join(JoinAnswer(Refusal.REBALANCE_IN_PROGRESS, member.member_id))
        member.update(request)
        self._count(member)
        member.join = answer
        self._rebalance(now_ms)

    # -- rebalances

    def _rebalance(self, now_ms: int) -> None:
        """Begin a rebalance; one that has begun goes on."""
        if self.state is State.PREPARING:
            return
        for member in self._members.values():
            if self.state is State.COMPLETING:
                self._give(member, b"")
            if member.sync is not None:
                self._extend(member, now_ms)
                member.answer_sync(SyncAnswer(Refusal.REBALANCE_IN_PROGRESS))
        self._sync_deadline_ms = None
        wait_ms = self._rebalance_timeout_ms()
        if self.state is State.EMPTY:
            wait_ms, whole_ms = self._limits.initial_delay_ms, wait_ms
            self._initial_left_ms = max(whole_ms - wait_ms, 0)
            self._joined_meanwhile = False
        self._join_deadline_ms = now_ms + wait_ms
        self.state = State.PREPARING

    def _settle(self, now_ms: int) -> None:
        """Complete the joins if no member is missing. The first rebalance of a group waits for its delay."""
        if (
            self.state is State.PREPARING
            and self._initial_left_ms is None
            and len(self._waiting()) == len(self._members)
            and not (self._members and self._joining)
        ):
            self._complete_joins(now_ms)

    def _end_of_joins(self, now_ms: int) -> None:
        """End the time to join; new members extend the delay of a first rebalance."""
        left_ms = self._initial_left_ms
        if self._joined_meanwhile and left_ms:
            self._joined_meanwhile = False
            delay_ms = min(self._limits.initial_delay_ms, left_ms)
            self._initial_left_ms = left_ms - delay_ms
            self._join_deadline_ms = now_ms + max(delay_ms, 1)
            return
        self._complete_joins(now_ms)

    def _complete_joins(self, now_ms: int) -> None:
        """Begin a generation of the members that have joined. Static members have time until their session ends."""
        for member in list(self._members.values()):
            if member.join is None and member.instance_id is None:
                self._forget(member.member_id)
        self._initial_left_ms = None
        self._joined_meanwhile = False
        if self._members and not self._elect():
            self._join_deadline_ms = now_ms + max(self._rebalance_timeout_ms(), RETRY_MS)
            return
        self._join_deadline_ms = None
        self.generation += 1
        self._unsynced = set(self._members)
        if not self._members:
            self._end(now_ms)
            return
        self.protocol = self._chosen_protocol()
        self._agreed = [member.metadata(self.protocol) for member in self._members.values()]
        self.state = State.COMPLETING
        self._sync_deadline_ms = now_ms + max(self._rebalance_timeout_ms(), 1)
        for member in self._members.values():
            self._extend(member, now_ms)
            member.is_new = False
            member.answer_join(self._current(member, shows_members=self.leader == member.member_id))

    def _elect(self) -> bool:
        """Choose another leader if the leader has not joined. Return false if no member has."""
        leader = self._members.get(self.leader or NO_MEMBER)
        if leader is None or leader.join is None:
            waiting = self._waiting()
            if not waiting:
                return False
            self.leader = waiting[0].member_id
        return True

    def _end(self, now_ms: int) -> None:
        """Note that the group has no members."""
        self.revision += 1
        self.state = State.EMPTY
        self.protocol = self.leader = self._agreed = None
        self._dead_at_ms = now_ms + EMPTY_KEPT_MS

    def _current(self, member: _Member, *, shows_members: bool) -> JoinAnswer:
        """Return the answer to a join in the current generation."""
        members = [
            JoinedMember(other.member_id, other.instance_id, other.metadata(self.protocol))
            for other in (self._members.values() if shows_members else ())
        ]
        return JoinAnswer(
            Refusal.NONE, member.member_id, self.generation, self.protocol_type, self.protocol,
            self.leader or NO_MEMBER, members,
        )  # fmt: skip

    def _common_protocols(self) -> set[str]:
        """Return the names of the protocols that every member supports."""
        offers = [{offer.name for offer in member.offers} for member in self._members.values()]
        return set.intersection(*offers)

    def _chosen_protocol(self) -> str:
        """Return the protocol with most votes: each member votes for the first of its own that all support. Among
        equals the one that the longest member prefers.
        """
        common = self._common_protocols()
        votes = Counter(
            next(offer.name for offer in member.offers if offer.name in common)
            for member in self._members.values()
        )
        return votes.most_common(1)[0][0]

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self._members.values()), default=0)

    def _waiting(self) -> Sequence[_Member]:
        """Return the members whose join waits."""
        return [member for member in self._members.values() if member.join is not None]

    # -- requests of members

    def sync(self, request: Sync, now_ms: int, answer: AnswerSync) -> None:
        """Give a member its assignment, when the leader has sent it. `answer` is called now or later, exactly once."""
        refusal = self._refuse_sync(request)
        if refusal:
            answer(SyncAnswer(refusal))
            return
        member = self._members[request.caller.member_id]
        self._unsynced.discard(member.member_id)
        if self.state is State.STABLE:
            answer(self._assigned(member))
            return
        member.answer_sync(SyncAnswer(Refusal.REBALANCE_IN_PROGRESS))
        member.sync = answer
        if self.leader == member.member_id:
            self._assign(dict(request.assignments), now_ms)

    def _refuse_sync(self, request: Sync) -> Refusal:
        refusal = self._refuse_caller(request.caller)
        if refusal:
            return refusal
        if request.protocol_type not in (None, self.protocol_type) or (
            request.protocol not in (None, self.protocol)
        ):
            return Refusal.INCONSISTENT_GROUP_PROTOCOL
        given = sum(len(assignment) for _, assignment in request.assignments)
        if self._held.size_bytes + given > self._limits.max_bytes:
            return Refusal.GROUP_MAX_SIZE_REACHED
        return self._refuse_in(State.PREPARING)

    def _assign(self, assignments: dict[str, bytes], now_ms: int) -> None:
        self.state = State.STABLE
        self.revision += 1
        for member in self._members.values():
            self._give(member, assignments.get(member.member_id, b""))
            self._extend(member, now_ms)
            member.answer_sync(self._assigned(member))

    def _give(self, member: _Member, assignment: bytes) -> None:
        member.assignment = assignment
        self._count(member)

    def _count(self, member: _Member) -> None:
        """Count what a member holds now."""
        size_bytes = _size_bytes(member) + len(member.assignment)
        self._held.size_bytes += size_bytes - member.size_bytes
        member.size_bytes = size_bytes

    def _assigned(self, member: _Member) -> SyncAnswer:
        return SyncAnswer(Refusal.NONE, self.protocol_type, self.protocol, member.assignment)

    def heartbeat(self, caller: Caller, now_ms: int) -> Refusal:
        """Extend a member's session. REBALANCE_IN_PROGRESS asks the member to join again."""
        refusal = self._refuse_caller(caller)
        if refusal:
            return refusal
        self._extend(self._members[caller.member_id], now_ms)
        return self._refuse_in(State.PREPARING)

    def check_commit(self, caller: Caller, now_ms: int, *, transactional: bool) -> Refusal:
        """Return whether a client may commit offsets; the commit of a member extends its session.

        A client that names neither a member nor a generation may commit while the group has no members; with a
        transaction always, since older clients do not say who they are.
        """
        if self.state is State.DEAD:
            return Refusal.COORDINATOR_NOT_AVAILABLE
        if caller.generation < 0 and self.state is State.EMPTY:
            return Refusal.NONE
        if caller.generation < 0 and caller.member_id == NO_MEMBER and caller.instance_id is None:
            return Refusal.NONE if transactional else Refusal.UNKNOWN_MEMBER_ID
        refusal = self._refuse_caller(caller)
        if refusal:
            return refusal
        self._extend(self._members[caller.member_id], now_ms)
        return self._refuse_in(State.COMPLETING)

    def leave(self, leaving: Iterable[Leaving], now_ms: int) -> Sequence[Refusal]:
        """Remove members. Return a result for each, in order."""
        if self.state is State.DEAD:
            return [Refusal.COORDINATOR_NOT_AVAILABLE for _ in leaving]
        results = [self._leave(member) for member in leaving]
        if Refusal.NONE in results:
            self._after_removal(now_ms)
        return results

    def _leave(self, leaving: Leaving) -> Refusal:
        member_id = leaving.member_id
        if member_id == NO_MEMBER and leaving.instance_id is not None:
            member_id = self._static.get(leaving.instance_id, NO_MEMBER)
        elif member_id not in self._joining:
            refusal = self._refuse_member(member_id, leaving.instance_id)
            if refusal:
                return refusal
        return Refusal.NONE if self._forget(member_id) else Refusal.UNKNOWN_MEMBER_ID

    def _refuse_caller(self, caller: Caller) -> Refusal:
        if self.state is State.DEAD:
            return Refusal.COORDINATOR_NOT_AVAILABLE
        refusal = self._refuse_member(caller.member_id, caller.instance_id)
        if refusal:
            return refusal
        return Refusal.NONE if caller.generation == self.generation else Refusal.ILLEGAL_GENERATION

    def _refuse_member(self, member_id: str, instance_id: str | None) -> Refusal:
        if instance_id is not None:
            known = self._static.get(instance_id)
            if known is None:
                return Refusal.UNKNOWN_MEMBER_ID
            if known != member_id:
                return Refusal.FENCED_INSTANCE_ID
        return Refusal.NONE if member_id in self._members else Refusal.UNKNOWN_MEMBER_ID

    def _refuse_in(self, state: State) -> Refusal:
        return Refusal.REBALANCE_IN_PROGRESS if self.state is state else Refusal.NONE

    # -- time

    def expire(self, now_ms: int) -> None:
        """Apply every deadline that has passed."""
        gone = [
            member_id for member_id, deadline_ms in self._joining.items() if deadline_ms <= now_ms
        ]
        for member in self._members.values():
            if member.expires_ms is None or member.expires_ms > now_ms:
                continue
            if not member.is_new and (member.join is not None or member.sync is not None):
                member.expires_ms = None  # it is alive: it waits for us
            else:
                gone.append(member.member_id)
        for member_id in gone:
            self._forget(member_id)
        if gone:
            self._after_removal(now_ms)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._end_of_syncs(now_ms)
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            self._end_of_joins(now_ms)
        if self._dead_at_ms is not None and self._dead_at_ms <= now_ms:
            if self._joining:
                self._dead_at_ms = now_ms + EMPTY_KEPT_MS
            else:
                self.close()

    def _end_of_syncs(self, now_ms: int) -> None:
        """Remove the members that did not ask for their assignment in time."""
        self._sync_deadline_ms = None
        gone = list(self._unsynced)
        for member_id in gone:
            self._forget(member_id)
        if gone:
            self._after_removal(now_ms)

    def close(self) -> None:
        """End the group: every request that waits, and every later one, gets COORDINATOR_NOT_AVAILABLE."""
        self.state = State.DEAD
        for member in self._members.values():
            member.answer_join(JoinAnswer(Refusal.COORDINATOR_NOT_AVAILABLE, member.member_id))
            member.answer_sync(SyncAnswer(Refusal.COORDINATOR_NOT_AVAILABLE))
            self._held.size_bytes -= member.size_bytes
        for member_id in list(self._joining):
            self._forget(member_id)
        self._members.clear()
        self._static.clear()
        self._join_deadline_ms = self._sync_deadline_ms = self._dead_at_ms = None

    def _extend(self, member: _Member, now_ms: int) -> None:
        """Begin the member's session time again."""
        member.expires_ms = now_ms + member.session_timeout_ms

    def _after_removal(self, now_ms: int) -> None:
        if self.state in (State.COMPLETING, State.STABLE):
            self._rebalance(now_ms)
        self._settle(now_ms)

    def _forget(self, member_id: str) -> bool:
        """Remove a member, or an id that was given out; answer its requests. Return false if it is unknown."""
        if self._joining.pop(member_id, None) is not None:
            self._held.size_bytes -= MEMBER_BYTES + len(member_id)
            return True
        member = self._members.pop(member_id, None)
        if member is None:
            return False
        self._held.size_bytes -= member.size_bytes
        member.answer_join(JoinAnswer(Refusal.UNKNOWN_MEMBER_ID, generation=NO_GENERATION))
        member.answer_sync(SyncAnswer(Refusal.UNKNOWN_MEMBER_ID))
        if member.instance_id is not None:
            self._static.pop(member.instance_id, None)
        self._unsynced.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)
        return True
