"""All groups of Kafka's classic protocol on the event loop: requests in, answers out, deadlines on timers.

Owns the table of groups, their timers, the rule which requests of a group that does not exist are answered how, and
the order of an answer and its write. Must not know the protocol's bytes, nor how a group works (`group.py`). A
generation is stored before a member gets its assignment, so after a restart the members go on. Where a store keeps no
members they are unknown then, and join again. Use it on the event loop only.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from logserver.errors import InvalidGroup
from logserver.groups.classic.group import ClassicGroup
from logserver.groups.classic.values import (
    NO_MEMBER,
    Caller,
    HeldBytes,
    Join,
    JoinAnswer,
    Leaving,
    Limits,
    Refusal,
    State,
    Sync,
    SyncAnswer,
)
from logserver.groups.members_log import Changes, MembersLog
from logserver.groups.offsets import Offsets
from logserver.groups.registry import Registry
from logserver.groups.timers import Timers, now_ms
from storage import Clock, StoredGroup

_Answer = TypeVar("_Answer")


class ClassicGroups:
    """The groups of one server."""

    def __init__(
        self,
        registry: Registry,
        offsets: Offsets,
        limits: Limits,
        check_name: Callable[[str], None],
        *,
        members: MembersLog,
        clock: Clock,
        is_restart: bool,
    ) -> None:
        """Create the table, without groups. `check_name` raises InvalidGroup for a name that no new group may have.
        `is_restart`: clients may be members of groups of an earlier process.
        """
        self._check_name = check_name
        self._registry = registry
        self._groups = registry.classic
        self._offsets = offsets
        self._limits = limits
        self._held = HeldBytes()
        # Sessions of the earlier process have ended after this time. Until then its members may still commit.
        self._forgotten_ms = now_ms() + limits.max_session_timeout_ms if is_restart else 0
        self._timers = Timers(self._expire)
        self._changes = Changes(members, offsets, self._snapshot)
        self._clock = clock
        self._stopped = False

    def stop(self) -> None:
        """End all groups: requests that wait are answered, later ones refused."""
        self._stopped = True
        self._timers.stop()
        for group in self._groups.values():
            group.close()
        self._groups.clear()

    def restore(self, groups: Iterable[StoredGroup]) -> None:
        """Go on with the members of an earlier process, but for names that others took meanwhile."""
        for stored in groups:
            if self._stopped or self._registry.remembers(stored.name):
                continue
            group = ClassicGroup(stored.name, self._limits, _new_id, now_ms(), self._held)
            group.restore(stored, now_ms())
            self._groups[stored.name] = group
            self._arm(group)

    @property
    def waiting(self) -> int:
        """The number of requests that wait for other members."""
        return sum(group.waiting for group in self._groups.values())

    # -- members

    async def join(self, name: str, request: Join) -> JoinAnswer:
        """Join a group; waits for the other members. Cancelling the caller leaves the member in the group.

        Raises Busy for one group too many.
        """
        refusal = self._refuse_join(name, request)
        if refusal:
            return JoinAnswer(refusal, request.member_id)
        group = self._groups.get(name)
        if group is None:
            self._offsets.admit(name)
            self._registry.forget_idle(name)
            group = ClassicGroup(name, self._limits, _new_id, now_ms(), self._held)
            self._groups[name] = group
        answer: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        with self._changes.of(group):
            group.join(request, now_ms(), _deliver(answer))
        if not group.size and group.generation == 0:
            del self._groups[name]  # the join was refused: the group never was
        else:
            self._arm(group)
        joined = await answer
        if joined.refusal or await self._changes.is_stored(name):
            return joined
        return JoinAnswer(Refusal.COORDINATOR_NOT_AVAILABLE, request.member_id)

    def _refuse_join(self, name: str, request: Join) -> Refusal:
        if self._stopped:
            return Refusal.COORDINATOR_NOT_AVAILABLE
        if name not in self._groups and not self.is_valid(name):
            return Refusal.INVALID_GROUP_ID
        if name in self._registry.http or self._registry.modern_in_use(name) is not None:
            return Refusal.INCONSISTENT_GROUP_PROTOCOL
        if name not in self._groups and request.member_id != NO_MEMBER:
            return Refusal.UNKNOWN_MEMBER_ID
        return Refusal.NONE

    def is_valid(self, name: str) -> bool:
        """Return whether a new group may have this name."""
        try:
            self._check_name(name)
        except InvalidGroup:
            return False
        return True

    async def sync(self, name: str, request: Sync) -> SyncAnswer:
        """Return a member's assignment; waits for the leader. Cancelling the caller leaves the member in the group."""
        group, refusal = self._find(name)
        if group is None:
            return SyncAnswer(refusal)
        answer: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        with self._changes.of(group):
            group.sync(request, now_ms(), _deliver(answer))
        self._arm(group)
        synced = await answer
        if synced.refusal:
            return synced
        if await self._changes.is_stored(name):
            group.heartbeat(request.caller, now_ms())  # the time of the write is not the member's
            return synced
        return SyncAnswer(Refusal.COORDINATOR_NOT_AVAILABLE)

    def _snapshot(self, name: str) -> StoredGroup | None:
        group = self._groups.get(name)
        return None if group is None else group.stored(self._clock())

    def heartbeat(self, name: str, caller: Caller) -> Refusal:
        """Extend a member's session."""
        group, refusal = self._find(name)
        return refusal if group is None else group.heartbeat(caller, now_ms())

    def leave(self, name: str, leaving: Sequence[Leaving]) -> Sequence[Refusal]:
        """Remove members; return a result for each."""
        group, refusal = self._find(name)
        if group is None:
            return [refusal] * len(leaving)
        with self._changes.of(group):
            results = group.leave(leaving, now_ms())
        self._arm(group)
        return results

    def _find(self, name: str) -> tuple[ClassicGroup | None, Refusal]:
        """Return the group of a request by a member, or why there is none."""
        if self._stopped:
            return None, Refusal.COORDINATOR_NOT_AVAILABLE
        if not name:
            return None, Refusal.INVALID_GROUP_ID
        return self._groups.get(name), Refusal.UNKNOWN_MEMBER_ID

    # -- offsets

    def check_commit(self, name: str, caller: Caller, *, transactional: bool = False) -> Refusal:
        """Return whether a client may commit offsets for a group. A group that does not exist is created by a client
        that names no generation; for any other client the answer is GROUP_ID_NOT_FOUND, which clients take as final.
        A group that has offsets lost its members by a restart: they get UNKNOWN_MEMBER_ID, and join again. For the
        longest session after a restart, so do members of a group without offsets: it may not have committed yet.
        """
        if self._stopped:
            return Refusal.COORDINATOR_NOT_AVAILABLE
        group = self._groups.get(name)
        if group is not None:
            return group.check_commit(caller, now_ms(), transactional=transactional)
        if name and not self.is_valid(name):
            return Refusal.INVALID_GROUP_ID
        if caller.generation < 0:
            return Refusal.NONE
        known = now_ms() < self._forgotten_ms or self._offsets.may_know(name)
        return Refusal.UNKNOWN_MEMBER_ID if known else Refusal.GROUP_ID_NOT_FOUND

    def forget(self, name: str) -> None:
        """Forget a group without members."""
        group = self._groups.get(name)
        if group is not None and group.is_idle:
            self._drop(group)

    # -- time

    def _arm(self, group: ClassicGroup) -> None:
        """Set the group's timer."""
        self._timers.arm(group.name, group.next_deadline_ms())

    def _expire(self, name: str) -> None:
        group = self._groups.get(name)
        if group is None:
            return  # it was given up for a group of the new protocol
        if self._changes.wait(name, lambda: self._timers.arm(name, now_ms())):
            return  # members that wait for a write do not expire
        with self._changes.of(group):
            group.expire(now_ms())
        if group.state is State.DEAD:
            self._drop(group)
            if not self._stopped:
                self._changes.forget(name)
        else:
            self._arm(group)

    def _drop(self, group: ClassicGroup) -> None:
        group.close()
        del self._groups[group.name]
        self._changes.drop(group.name)
        self._timers.cancel(group.name)


def _new_id(prefix: str) -> str:
    return f"{prefix}{uuid.uuid4()}"


def _deliver(answer: asyncio.Future[_Answer]) -> Callable[[_Answer], None]:
    """Return a callback that completes the future, unless its caller was cancelled meanwhile."""

    def deliver(value: _Answer) -> None:
        if not answer.done():
            answer.set_result(value)

    return deliver
