"""Simulated members of a group of Kafka's new protocol, and a group with a clock that stands still.

A client keeps what a real one would read: it drops a partition before it reports that it has, and takes one only from
an answer. What a heartbeat loses, the request or its answer, the client does not know.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from logserver.groups.classic.values import HeldBytes, Refusal
from logserver.groups.modern.group import ModernGroup
from logserver.groups.modern.values import (
    AWAY_EPOCH,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_TIMEOUT,
    Beat,
    BeatAnswer,
    Limits,
    Topic,
)
from storage.groups import Slot

SESSION_MS = 10_000
REBALANCE_MS = 30_000
LIMITS = Limits(SESSION_MS, 3_000, 1_000, 100, 1 << 20)
OUT = (Refusal.UNKNOWN_MEMBER_ID, Refusal.FENCED_MEMBER_EPOCH, Refusal.GROUP_ID_NOT_FOUND)


class FakeTopics:
    """Topics by name, with a partition count; a pattern matches the names that begin with it."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.incarnation = 0

    def find(self, name: str) -> Topic | None:
        count = self.counts.get(name)
        return None if count is None else Topic(self._id(name), range(count))

    def _id(self, name: str) -> bytes:
        return f"{name}-{self.incarnation}".encode()

    def matching(self, pattern: str) -> Collection[str]:
        return [name for name in self.counts if name.startswith(pattern)]

    def slots(self, names: Collection[str]) -> set[Slot]:
        """Return all partitions of these topics."""
        return {
            (self._id(name), number)
            for name in names
            if name in self.counts
            for number in range(self.counts[name])
        }


class World:
    """A group, its topics and its time."""

    def __init__(self, limits: Limits = LIMITS, **counts: int) -> None:
        self.now_ms = 1_000_000
        self.held = HeldBytes()
        self.limits = limits
        self.topics = FakeTopics(**(counts or {"t": 12}))
        self.group = ModernGroup("g", limits, self.now_ms, self.held)

    def beat(self, member_id: str, epoch: int, **fields: object) -> BeatAnswer:
        """Send one heartbeat."""
        joins = epoch == JOIN_EPOCH
        defaults: dict[str, object] = {"topics": ["t"], "owned": (), "rebalance_timeout_ms": 30_000}
        beat = Beat(member_id, epoch, "client", "/host")
        beat = beat._replace(**{**(defaults if joins else {}), **fields})  # type: ignore[arg-type]
        return self.group.heartbeat(beat, self.topics, self.now_ms)

    def change_topics(self, **counts: int) -> None:
        """Create, delete and extend topics."""
        self.topics.counts = counts
        self.group.topics_changed()

    def restart(self) -> None:
        """End the server and start it again: the group is what was stored."""
        stored = self.group.stored(self.now_ms, self.topics)
        self.group.close()
        self.group = ModernGroup("g", self.limits, self.now_ms, self.held)
        self.group.restore(stored, self.topics, self.now_ms)
        assert self.group.stored(self.now_ms + 1, self.topics)[3:] == stored[3:]

    def advance(self, milliseconds: int) -> None:
        """Let time pass; every deadline on the way is applied at its time."""
        end_ms = self.now_ms + milliseconds
        while not self.group.is_dead(self.now_ms):
            deadline_ms = self.group.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self.group.expire(self.topics, self.now_ms)
            later_ms = self.group.next_deadline_ms()
            assert self.group.is_dead(self.now_ms) or later_ms is None or later_ms > self.now_ms
        self.now_ms = end_ms


class Client:
    """A client that behaves as Kafka's consumers do. `owned`: the partitions that it reads now.

    `doubtful`: partitions that it was given, and had not taken when it sent a heartbeat whose answer was lost. By the
    broker's rule (CurrentAssignmentBuilder.ownsRevokedPartitions; `_reports` in tests/wire/modern_exchanges.py is the
    real broker's answer) a partition that a member does not report is given up, and another member may get it. The
    client does not know that until its next heartbeat, and may begin to read.
    """

    def __init__(
        self,
        world: World,
        member_id: str,
        *,
        instance_id: str | None = None,
        topics: Sequence[str] = ("t",),
        pattern: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self.world = world
        self.member_id = member_id
        self.instance_id = instance_id
        self.topics = topics
        self.pattern = pattern
        self.assignor = assignor
        self.epoch = JOIN_EPOCH
        self.owned: set[Slot] = set()
        self.target: set[Slot] | None = None  # of the last answer, until it is reached
        self.doubtful: set[Slot] = set()
        self.heard_ms = world.now_ms
        self.is_fenced = False
        self._shows_all = True

    @property
    def subscribed(self) -> set[str]:
        """The topics that the client subscribes to now."""
        found = self.world.topics.matching(self.pattern) if self.pattern else ()
        return {*self.topics, *found}

    def subscribe(self, topics: Sequence[str]) -> None:
        """Change the subscription with the next heartbeat."""
        self.topics = topics
        self._shows_all = True

    def revoke(self) -> None:
        """Stop to read partitions that are no longer assigned."""
        if self.target is not None:
            self.owned &= self.target
            self.doubtful &= self.target

    def take(self) -> None:
        """Begin to read what was assigned."""
        if self.target is not None:
            self.owned, self.target = set(self.target), None

    def give_up(self) -> None:
        """Stop to read, when the session is over by the client's own clock: the server may have ended it."""
        if self.world.now_ms - self.heard_ms >= SESSION_MS:
            self.restart()

    def restart(self) -> None:
        """Lose everything, and join again."""
        self.epoch = JOIN_EPOCH
        self.owned, self.target, self.doubtful = set(), None, set()
        self._shows_all = True

    def step(self, *, lose_request: bool = False, lose_answer: bool = False) -> Refusal:
        """Send a heartbeat and follow its answer."""
        self.give_up()
        if lose_request:
            self._shows_all = True
            return Refusal.NONE
        beat = Beat(
            self.member_id,
            self.epoch,
            "client",
            "/host",
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if self._shows_all else NO_TIMEOUT,
            topics=self.topics if self._shows_all else None,
            pattern=self.pattern if self._shows_all else None,
            assignor=self.assignor,
            owned=frozenset(self.owned),
        )
        sent_ms = self.world.now_ms
        answer = self.world.group.heartbeat(beat, self.world.topics, sent_ms)
        if lose_answer:
            self._shows_all = True  # as clients do after an error
            self.doubtful |= (self.target or set()) - self.owned
            return Refusal.NONE
        return self._follow(answer, sent_ms)

    def _follow(self, answer: BeatAnswer, sent_ms: int) -> Refusal:
        if answer.refusal in OUT:
            self.restart()
        elif answer.refusal in (Refusal.FENCED_INSTANCE_ID, Refusal.UNRELEASED_INSTANCE_ID):
            self.restart()
            self.is_fenced = True
        elif answer.refusal is Refusal.NONE:
            self.heard_ms = sent_ms
            self.epoch = answer.epoch
            self._shows_all = False
            if answer.assigned is not None:
                self.target = set(answer.assigned)
                self.doubtful = (self.doubtful & self.owned) - self.target
        return answer.refusal

    def leave(self, epoch: int = LEAVE_EPOCH) -> Refusal:
        """Leave; with AWAY_EPOCH a static member leaves for a while."""
        assert epoch in (LEAVE_EPOCH, AWAY_EPOCH)
        beat = Beat(self.member_id, epoch, "client", "/host", instance_id=self.instance_id)
        self.restart()
        return self.world.group.heartbeat(beat, self.world.topics, self.world.now_ms).refusal


def settle(world: World, clients: Sequence[Client], rounds: int = 60) -> None:
    """Let all clients send heartbeats until everything has come to rest."""
    for _ in range(rounds):
        for client in clients:
            client.step()
            client.revoke()
            client.take()
        world.advance(1_000)
