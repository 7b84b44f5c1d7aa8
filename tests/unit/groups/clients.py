"""Simulated members of a group of Kafka's classic protocol, and a group with a clock that stands still."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from logserver.groups.classic.group import ClassicGroup
from logserver.groups.classic.values import (
    NO_GENERATION,
    NO_MEMBER,
    Caller,
    HeldBytes,
    Join,
    JoinAnswer,
    Leaving,
    Limits,
    Offer,
    Refusal,
    State,
    Sync,
    SyncAnswer,
)

SESSION_MS = 10_000
REBALANCE_MS = 30_000
PARTITIONS = range(12)
LIMITS = Limits(0, 6_000, 60_000, 100, 1 << 20)


class World:
    """A group and its time."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.now_ms = 1_000_000
        self._ids = count()
        self.held = HeldBytes()
        self.group = ClassicGroup(
            "g", limits, lambda prefix: f"{prefix}{next(self._ids)}", self.now_ms, self.held
        )

    def state(self) -> State:
        """Return the state of the group now."""
        return self.group.state

    def advance(self, milliseconds: int) -> None:
        """Let time pass; every deadline on the way is applied at its time."""
        end_ms = self.now_ms + milliseconds
        while True:
            deadline_ms = self.group.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self.group.expire(self.now_ms)
            later_ms = self.group.next_deadline_ms()
            assert later_ms is None or later_ms > self.now_ms, "the same deadline again"
        self.now_ms = end_ms


class Once:
    """A callback of a request that waits: it counts as a fault if it is called twice."""

    def __init__(self) -> None:
        self.answers: list[object] = []

    def __call__(self, answer: object) -> None:
        assert not self.answers, "a request was answered twice"
        self.answers.append(answer)


class Client:
    """A client that behaves as Kafka's consumers do. Call `step` again and again; `stop` makes it a crashed one."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        instance_id: str | None = None,
        protocols: Sequence[str] = ("range",),
        known_id: bool = True,
        skips: bool = True,
    ) -> None:
        self.world = world
        self.name = name
        self.instance_id = instance_id
        self.protocols = tuple(protocols)
        self.known_id = known_id
        self.skips = skips
        self.member_id = NO_MEMBER
        self.generation = NO_GENERATION
        self.assignment: bytes | None = None
        self.last: Refusal = Refusal.NONE
        self.joined: JoinAnswer | None = None
        self._waits: Once | None = None

    @property
    def caller(self) -> Caller:
        """The member as it names itself."""
        return Caller(self.member_id, self.generation, self.instance_id)

    @property
    def is_waiting(self) -> bool:
        """True while a request of this client has no answer."""
        return self._waits is not None and not self._waits.answers

    def request(self, **changes: object) -> Join:
        """Return the client's join."""
        offers = [Offer(name, f"{name} of {self.name}".encode()) for name in self.protocols]
        join = Join(
            self.member_id, self.instance_id, self.name, "/127.0.0.1", SESSION_MS, REBALANCE_MS,
            "consumer", offers, self.known_id, self.skips,
        )  # fmt: skip
        return join._replace(**changes)  # type: ignore[arg-type]

    def join(self, **changes: object) -> None:
        """Send a join."""
        self.joined = self.assignment = None
        self._waits = Once()
        self.world.group.join(self.request(**changes), self.world.now_ms, self._waits)

    def sync(self) -> None:
        """Ask for the assignment; a leader sends it."""
        assert self.joined is not None
        self._waits = Once()
        answer = self.joined
        assigned: list[tuple[str, bytes]] = []
        if answer.members and not answer.skip_assignment:
            owners = [member.member_id for member in answer.members]
            shares = {owner: bytearray() for owner in owners}
            for number in PARTITIONS:
                shares[owners[number % len(owners)]].append(number)
            assigned = [(owner, bytes(share)) for owner, share in shares.items()]
        request = Sync(self.caller, answer.protocol_type, answer.protocol, assigned)
        self.world.group.sync(request, self.world.now_ms, self._waits)

    def receive(self) -> None:
        """Take the answer of the request that waited, if there is one."""
        if self._waits is None or not self._waits.answers:
            return
        (answer,) = self._waits.answers
        self._waits = None
        if isinstance(answer, JoinAnswer):
            self._take_join(answer)
        elif isinstance(answer, SyncAnswer):
            self._refused(answer.refusal)
            if not answer.refusal:
                self.assignment = answer.assignment

    def _take_join(self, answer: JoinAnswer) -> None:
        self.last = answer.refusal
        if answer.refusal is Refusal.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif answer.refusal:
            self._refused(answer.refusal)
        else:
            self.member_id, self.generation = answer.member_id, answer.generation
            self.joined = answer

    def _refused(self, refusal: Refusal) -> None:
        self.last = refusal
        if not refusal:
            return
        self.joined = self.assignment = None
        if refusal is not Refusal.REBALANCE_IN_PROGRESS:
            self.member_id, self.generation = NO_MEMBER, NO_GENERATION

    def step(self) -> None:
        """Do what a consumer does next."""
        self.receive()
        if self.is_waiting:
            return
        if self.assignment is not None:
            self._refused(self.world.group.heartbeat(self.caller, self.world.now_ms))
        elif self.joined is not None:
            self.sync()
        else:
            self.join()

    def leave(self) -> Refusal:
        """Leave the group."""
        (result,) = self.world.group.leave(
            [Leaving(self.member_id, self.instance_id)], self.world.now_ms
        )
        self.member_id, self.generation = NO_MEMBER, NO_GENERATION
        self.joined = self.assignment = None
        self._waits = None
        return result


def settle(world: World, clients: Sequence[Client], rounds: int = 60) -> None:
    """Let the clients act, a second apart, until the group is stable with all of them."""
    for _ in range(rounds):
        for client in clients:
            client.step()
        world.advance(1_000)
    for client in clients:
        client.step()
    if clients:
        assert world.state() is State.STABLE
