"""All groups of Kafka's classic protocol on the event loop: requests in, answers out, deadlines on timers.

Owns the table of groups, their timers, and the rule which requests of a group that does not exist are answered how.
Must not know the protocol's bytes, nor how a group works (`classic.py`). Groups are in memory: after a restart their
members are unknown and join again, and go on at their committed offsets. Use it on the event loop only.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from logserver.errors import InvalidGroup
from logserver.groups.classic import ClassicGroup
from logserver.groups.classic_values import (
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
from logserver.groups.consumer_protocol import PROTOCOL_TYPE, decode_subscription
from logserver.groups.offsets import Offsets
from logserver.groups.registry import Registry
from storage import CommittedOffset, TopicPartition

_Answer = TypeVar("_Answer")

TICK_MS: Final = 1  # a timer of the loop may fire a moment early


class ClassicGroups:
    """The groups of one server."""

    def __init__(
        self,
        registry: Registry,
        offsets: Offsets,
        limits: Limits,
        check_name: Callable[[str], None],
        *,
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
        self._forgotten_ms = _now_ms() + limits.max_session_timeout_ms if is_restart else 0
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._stopped = False

    def stop(self) -> None:
        """End all groups: requests that wait are answered, later ones refused."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for group in self._groups.values():
            group.close()
        self._groups.clear()

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
            group = ClassicGroup(name, self._limits, _new_id, _now_ms(), self._held)
            self._groups[name] = group
        answer: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        group.join(request, _now_ms(), _deliver(answer))
        if not group.size and group.generation == 0:
            del self._groups[name]  # the join was refused: the group never was
        else:
            self._arm(group)
        return await answer

    def _refuse_join(self, name: str, request: Join) -> Refusal:
        if self._stopped:
            return Refusal.COORDINATOR_NOT_AVAILABLE
        if name not in self._groups and not self._is_valid(name):
            return Refusal.INVALID_GROUP_ID
        if name in self._registry.http:
            return Refusal.INCONSISTENT_GROUP_PROTOCOL
        if name not in self._groups and request.member_id != NO_MEMBER:
            return Refusal.UNKNOWN_MEMBER_ID
        return Refusal.NONE

    def _is_valid(self, name: str) -> bool:
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
        group.sync(request, _now_ms(), _deliver(answer))
        self._arm(group)
        return await answer

    def heartbeat(self, name: str, caller: Caller) -> Refusal:
        """Extend a member's session."""
        group, refusal = self._find(name)
        return refusal if group is None else group.heartbeat(caller, _now_ms())

    def leave(self, name: str, leaving: Sequence[Leaving]) -> Sequence[Refusal]:
        """Remove members; return a result for each."""
        group, refusal = self._find(name)
        if group is None:
            return [refusal] * len(leaving)
        results = group.leave(leaving, _now_ms())
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
        if name in self._registry.http:
            return Refusal.UNKNOWN_MEMBER_ID
        group = self._groups.get(name)
        if group is not None:
            return group.check_commit(caller, _now_ms(), transactional=transactional)
        if not self._is_valid(name):
            return Refusal.INVALID_GROUP_ID
        if caller.generation < 0:
            return Refusal.NONE
        known = _now_ms() < self._forgotten_ms or self._offsets.may_know(name)
        return Refusal.UNKNOWN_MEMBER_ID if known else Refusal.GROUP_ID_NOT_FOUND

    async def commit(
        self, name: str, caller: Caller, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Refusal:
        """Commit offsets if the client may; durable on return as the flush mode requires. Raises what
        `Offsets.commit` raises.
        """
        refusal = self.check_commit(name, caller)
        if not refusal and offsets:
            await self._offsets.commit(name, offsets)
        return refusal

    def subscribed(self, name: str) -> frozenset[str] | None:
        """Return the topics that members of a group subscribe to, of either kind; none of a group without members.

        None: the group has members whose protocol does not show their topics.
        """
        http, classic = self._registry.http.get(name), self._registry.classic_in_use(name)
        if http is not None:
            return frozenset(
                at.topic for member in http.members.values() for at in member.partitions
            )
        if classic is None:
            return frozenset()
        if classic.protocol_type != PROTOCOL_TYPE:
            return None
        return frozenset(
            topic for metadata in classic.metadata() for topic in decode_subscription(metadata)
        )

    def forget(self, name: str) -> None:
        """Forget a group without members."""
        group = self._groups.get(name)
        if group is not None and group.is_idle:
            self._drop(group)

    # -- time

    def _arm(self, group: ClassicGroup) -> None:
        """Set the group's timer. A timer that fires too early is set again: a heartbeat need not touch it."""
        deadline_ms = group.next_deadline_ms()
        timer = self._timers.get(group.name)
        if deadline_ms is None:
            return
        at_s = (deadline_ms + TICK_MS) / 1000
        if timer is not None:
            if timer.when() <= at_s:
                return
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[group.name] = loop.call_at(at_s, self._expire, group)

    def _expire(self, group: ClassicGroup) -> None:
        self._timers.pop(group.name, None)
        group.expire(_now_ms())
        if group.state is State.DEAD:
            self._drop(group)
        else:
            self._arm(group)

    def _drop(self, group: ClassicGroup) -> None:
        group.close()
        del self._groups[group.name]
        timer = self._timers.pop(group.name, None)
        if timer is not None:
            timer.cancel()


def _now_ms() -> int:
    """Return the loop's time, which only rises."""
    return int(asyncio.get_running_loop().time() * 1000)


def _new_id(prefix: str) -> str:
    return f"{prefix}{uuid.uuid4()}"


def _deliver(answer: asyncio.Future[_Answer]) -> Callable[[_Answer], None]:
    """Return a callback that completes the future, unless its caller was cancelled meanwhile."""

    def deliver(value: _Answer) -> None:
        if not answer.done():
            answer.set_result(value)

    return deliver
