"""Commits of Kafka's clients: who may commit and fetch offsets for a group, whatever its kind.

Owns the choice of the kind that decides, and the answer for a group that has none. Must not know how a kind fences its
members (`classic`, `modern`), nor where offsets are stored (`offsets.py`). Use it on the event loop only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from logserver.groups.classic.consumer_protocol import PROTOCOL_TYPE, decode_subscription
from logserver.groups.classic.groups import ClassicGroups
from logserver.groups.classic.values import Caller, Refusal
from logserver.groups.modern.groups import ModernGroups
from logserver.groups.offsets import Offsets
from logserver.groups.registry import Registry
from storage import CommittedOffset, TopicPartition


class Commits:
    """Commits for the groups of one server."""

    def __init__(
        self,
        registry: Registry,
        offsets: Offsets,
        classic: ClassicGroups,
        modern: ModernGroups,
        *,
        nameless: bool,
    ) -> None:
        """Use the groups of every kind. `nameless`: clients without a group may commit, under an empty name. From
        GroupCoordinatorService.commitOffsets: that group has offsets, and never members.
        """
        self._registry = registry
        self._offsets = offsets
        self._classic = classic
        self._modern = modern
        self._nameless = nameless

    def may_exist(self, name: str) -> bool:
        """Return False for a name that no group has, and that no new group may have."""
        if not name:
            return self._nameless
        return self._offsets.may_know(name) or self._classic.is_valid(name)

    def check(
        self,
        name: str,
        caller: Caller,
        partitions: Collection[TopicPartition],
        version: int,
        *,
        transactional: bool = False,
    ) -> Refusal:
        """Return whether a client may commit offsets of these partitions. `version`: of its request."""
        if not name and (transactional or not self._nameless):
            return Refusal.INVALID_GROUP_ID
        if name in self._registry.http:
            return Refusal.UNKNOWN_MEMBER_ID
        if name in self._registry.modern:
            return self._modern.check_commit(
                name, caller, partitions, version, transactional=transactional
            )
        return self._classic.check_commit(name, caller, transactional=transactional)

    async def commit(
        self,
        name: str,
        caller: Caller,
        offsets: Mapping[TopicPartition, CommittedOffset],
        version: int,
    ) -> Refusal:
        """Commit offsets if the client may; durable on return as the flush mode requires. Raises what
        `Offsets.commit` raises.
        """
        refusal = self.check(name, caller, offsets.keys(), version)
        if not refusal and offsets:
            await self._offsets.commit(name, offsets)
        return refusal

    def check_fetch(self, name: str, member_id: str | None, epoch: int) -> Refusal:
        """Return whether a client may fetch offsets. Members of the classic protocol do not name themselves."""
        return self._modern.check_fetch(name, member_id, epoch)

    def subscribed(self, name: str) -> frozenset[str] | None:
        """Return the topics that members of a group subscribe to, of any kind; none of a group without members.

        None: the group has members whose protocol does not show their topics.
        """
        http, classic = self._registry.http.get(name), self._registry.classic_in_use(name)
        modern = self._registry.modern_in_use(name)
        if http is not None:
            return frozenset(
                at.topic for member in http.members.values() for at in member.partitions
            )
        if modern is not None:
            return modern.subscribed(self._modern.topics)
        if classic is None:
            return frozenset()
        if classic.protocol_type != PROTOCOL_TYPE:
            return None
        return frozenset(
            topic for metadata in classic.metadata() for topic in decode_subscription(metadata)
        )
