"""All groups of Kafka's new protocol on the event loop: heartbeats in, answers out, deadlines on timers.

Owns the table of groups, their timers, the names that patterns match, the rule which requests of a group that does not
exist are answered how, and the order of an answer and its write. Must not know the protocol's bytes, nor how a group
works (`group.py`). A change is stored before the heartbeat that made it is answered, so after a restart the members go
on. Where a store keeps no members they are unknown then, and join again. Use it on the event loop only.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from logserver.errors import InvalidGroup
from logserver.groups.classic.values import Caller, HeldBytes, Leaving, Refusal
from logserver.groups.members_log import Changes, MembersLog
from logserver.groups.modern.assignors import ASSIGNORS
from logserver.groups.modern.group import ModernGroup
from logserver.groups.modern.values import (
    JOIN_EPOCH,
    Beat,
    BeatAnswer,
    Limits,
    ModernGroupView,
    Refused,
    Topic,
    check_beat,
)
from logserver.groups.offsets import Offsets
from logserver.groups.registry import Registry
from logserver.groups.timers import Timers, now_ms
from logserver.groups.topic_pattern import TopicPattern
from logserver.service.topics import TopicCatalog
from storage import Clock, StoredModernGroup, TopicPartition
from storage.errors import InvalidArgument
from storage.groups import Slot


class KnownTopics:
    """The topics of the catalogue that are for Kafka clients, and those that each pattern of a group matches."""

    def __init__(self, catalog: TopicCatalog) -> None:
        self._catalog = catalog
        self._matches: dict[str, set[str]] = {}

    def find(self, name: str) -> Topic | None:
        """Return a topic; None if it does not exist."""
        info = self._catalog.get(name) if self._catalog.serves(name) else None
        return None if info is None else Topic(self._catalog.ids.id_of(name), info.partitions)

    async def learn(self, pattern: str) -> None:
        """Find the names that a pattern matches, in a thread. Raises InvalidArgument for an invalid pattern."""
        run = self._catalog.access.run
        compiled = await run(TopicPattern, pattern)
        found = await run(compiled.matching, tuple(self._catalog))
        # Topics may have come and gone meanwhile.
        self._matches[pattern] = {
            name
            for name in filter(self._catalog.serves, self._catalog)
            if (found[name] if name in found else compiled.matches(name))
        }

    def matching(self, pattern: str) -> Collection[str]:
        """Return the names that a pattern matches. It was learnt before, and is a member's."""
        return self._matches.get(pattern, ())

    def knows(self, pattern: str) -> bool:
        """Return whether the names of a pattern are known."""
        return pattern in self._matches

    def changed(self, name: str) -> None:
        """Note that a topic was created, altered or deleted."""
        exists = name in self._catalog and self._catalog.serves(name)
        for pattern, names in self._matches.items():
            names.discard(name)
            if exists and TopicPattern(pattern).matches(name):
                names.add(name)

    def keep(self, patterns: Collection[str]) -> None:
        """Forget all other patterns."""
        for pattern in self._matches.keys() - patterns:
            del self._matches[pattern]

    def slots(self, partitions: Iterable[TopicPartition]) -> Collection[Slot]:
        """Return the partitions with topic ids, of topics that exist."""
        ids = self._catalog.ids
        return [
            (ids.id_of(topic), number) for topic, number in partitions if topic in self._catalog
        ]

    def partitions(self, slots: Iterable[Slot]) -> Sequence[TopicPartition]:
        """Return the partitions with topic names, of topics that exist."""
        name_of = self._catalog.ids.name_of
        named = ((name_of(topic_id), number) for topic_id, number in slots)
        return sorted(TopicPartition(name, number) for name, number in named if name is not None)


class ModernGroups:
    """The groups of one server."""

    def __init__(
        self,
        registry: Registry,
        offsets: Offsets,
        topics: TopicCatalog,
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
        self.topics = KnownTopics(topics)
        self._registry = registry
        self._groups = registry.modern
        self._offsets = offsets
        self._limits = limits
        self._check_name = check_name
        self._held = HeldBytes()
        self._timers = Timers(self._expire)
        self._changes = Changes(members, offsets, self._snapshot)
        self._clock = clock
        # Sessions of the earlier process have ended after this time. Until then its members may come back.
        self._forgotten_ms = now_ms() + limits.session_timeout_ms if is_restart else 0
        self._stopped = False
        topics.listeners.append(self._topic_changed)

    def stop(self) -> None:
        """End all groups: later requests are refused."""
        self._stopped = True
        self._timers.stop()
        for group in self._groups.values():
            group.close()
        self._groups.clear()

    async def restore(self, groups: Iterable[StoredModernGroup]) -> None:
        """Go on with the members of an earlier process, but for names that others took meanwhile."""
        for stored in groups:
            for pattern in {row.pattern for row in stored.members if row.pattern}:
                with suppress(
                    InvalidArgument
                ):  # another program may take it: it matches nothing here
                    await self.topics.learn(pattern)
            if self._stopped or self._registry.remembers(stored.name):
                continue
            group = ModernGroup(stored.name, self._limits, now_ms(), self._held)
            group.restore(stored, self.topics, now_ms())
            self._groups[stored.name] = group
            self._timers.arm(stored.name, group.next_deadline_ms())

    def _snapshot(self, name: str) -> StoredModernGroup | None:
        group = self._groups.get(name)
        return None if group is None else group.stored(self._clock(), self.topics)

    def _topic_changed(self, name: str) -> None:
        self.topics.changed(name)
        for group in self._groups.values():
            group.topics_changed()

    # -- members

    async def heartbeat(self, name: str, beat: Beat, version: int) -> BeatAnswer:
        """Apply a member's heartbeat; what it changes is stored before the answer, also if the caller is cancelled.

        Raises Busy for one group too many.
        """
        try:
            check_beat(beat, name, version, ASSIGNORS)
        except Refused as refused:
            return BeatAnswer(refused.refusal, str(refused))
        beat = await self._with_pattern(beat)
        if not beat.member_id:
            beat = beat._replace(member_id=str(uuid.uuid4()))
        refusal = self._refuse(name, beat)
        if refusal:
            return BeatAnswer(refusal, f"Group {name} not found.")
        group = self._groups.get(name)
        if group is None:
            self._offsets.admit(name)
            self._registry.forget_idle(name)
            group = ModernGroup(name, self._limits, now_ms(), self._held)
            self._groups[name] = group
        with self._changes.of(group):
            answer = group.heartbeat(beat, self.topics, now_ms())
        if not group.size and group.assignment_epoch == 0:
            del self._groups[name]  # the join was refused: the group never was
        else:
            self._timers.arm(name, group.next_deadline_ms())
        if answer.refusal:
            return answer
        if await self._changes.is_stored(name):
            group.extend(beat.member_id, now_ms())  # the time of the write is not the member's
            return answer
        return BeatAnswer(
            Refusal.COORDINATOR_NOT_AVAILABLE, f"The change of group {name} could not be stored."
        )

    async def _with_pattern(self, beat: Beat) -> Beat:
        """Check a heartbeat's pattern and find its topics, in a thread: thousands of long names take a while."""
        text = beat.pattern
        if not text or self.topics.knows(text):
            return beat
        try:
            await self.topics.learn(text)
        except InvalidArgument as error:
            return beat._replace(pattern_problem=str(error))
        self.topics.keep({text}.union(*(group.patterns for group in self._groups.values())))
        return beat

    def _refuse(self, name: str, beat: Beat) -> Refusal:
        if self._stopped:
            return Refusal.COORDINATOR_NOT_AVAILABLE
        if name in self._groups:
            return Refusal.NONE
        if name in self._registry:
            return Refusal.GROUP_ID_NOT_FOUND
        if beat.epoch != JOIN_EPOCH:
            # A group that has offsets lost its members by a restart: they join again, where 69 would end them.
            known = now_ms() < self._forgotten_ms or self._offsets.may_know(name)
            return Refusal.UNKNOWN_MEMBER_ID if known else Refusal.GROUP_ID_NOT_FOUND
        try:
            self._check_name(name)
        except InvalidGroup:
            return Refusal.INVALID_GROUP_ID
        return Refusal.NONE

    def has(self, name: str) -> bool:
        """Return whether there is a group of this protocol and name."""
        return name in self._groups

    def leave(self, name: str, leaving: Sequence[Leaving]) -> Sequence[Refusal]:
        """Remove members, named as in the classic protocol; return a result for each."""
        group = self._groups[name]
        with self._changes.of(group):
            results = group.leave(leaving, self.topics, now_ms())
        self._timers.arm(name, group.next_deadline_ms())
        return results

    def describe(self, name: str) -> ModernGroupView | None:
        """Return a group as tools see it; None if there is no group of this protocol and name."""
        group = self._groups.get(name)
        return None if group is None else group.view()

    # -- offsets

    def check_commit(
        self,
        name: str,
        caller: Caller,
        partitions: Iterable[TopicPartition],
        version: int,
        *,
        transactional: bool = False,
    ) -> Refusal:
        """Return whether a client may commit offsets of these partitions for a group of this protocol."""
        slots = self.topics.slots(partitions)
        return self._groups[name].check_commit(caller, slots, version, transactional=transactional)

    def check_fetch(self, name: str, member_id: str | None, epoch: int) -> Refusal:
        """Return whether a client may fetch a group's offsets as this member."""
        group = self._groups.get(name)
        return Refusal.NONE if group is None else group.check_fetch(member_id, epoch)

    def forget(self, name: str) -> None:
        """Forget a group without members."""
        group = self._groups.get(name)
        if group is not None and group.is_idle:
            self._drop(group)

    # -- time

    def _expire(self, name: str) -> None:
        group = self._groups.get(name)
        if group is None:
            return  # it was given up for a group of the classic protocol
        if self._changes.wait(name, lambda: self._timers.arm(name, now_ms())):
            return  # members that wait for a write do not expire
        with self._changes.of(group):
            group.expire(self.topics, now_ms())
        if group.is_dead(now_ms()):
            self._drop(group)
            if not self._stopped:
                self._changes.forget(name)
        else:
            self._timers.arm(name, group.next_deadline_ms())

    def _drop(self, group: ModernGroup) -> None:
        group.close()
        self._groups.pop(group.name, None)
        self._changes.drop(group.name)
        self._timers.cancel(group.name)
