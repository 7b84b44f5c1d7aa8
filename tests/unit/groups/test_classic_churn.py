"""The classic group protocol under churn: clients come, go, crash and come back in any order, against a simple model.

The model knows the last answer to every client. It checks that a generation has one leader and one list of members,
that no partition has two owners in a generation, and that the group settles with exactly the clients that are left.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from logserver.groups.classic.group import EMPTY_KEPT_MS, MEMBER_BYTES
from logserver.groups.classic.values import Refusal, State
from tests.unit.groups.clients import LIMITS, PARTITIONS, Client, World, settle


class Model:
    """A group, its clients, and what was seen of each generation."""

    def __init__(self, initial_delay_ms: int) -> None:
        self.world = World(LIMITS._replace(initial_delay_ms=initial_delay_ms))
        self.clients: list[Client] = []
        self._made = 0
        self._leaders: dict[int, str] = {}

    def add(self, *, instance: int | None, known_id: bool, skips: bool) -> None:
        """Start a client; one with the instance id of another takes its place."""
        instance_id = None if instance is None else f"i{instance}"
        if instance_id is not None:
            self.clients = [one for one in self.clients if one.instance_id != instance_id]
        protocols = ("range", "sticky")[:: 1 if self._made % 3 else -1]
        self._made += 1
        self.clients.append(
            Client(
                self.world,
                f"c{self._made}",
                instance_id=instance_id,
                protocols=protocols,
                known_id=known_id,
                skips=skips,
            )
        )

    def check(self) -> None:
        """Compare the group with the answers to its clients."""
        group = self.world.group
        view = group.view()
        ids = [member.member_id for member in view.members]
        assert len(ids) == len(set(ids))
        instances = [member.instance_id for member in view.members if member.instance_id]
        assert len(instances) == len(set(instances))
        assert (group.state in (State.EMPTY, State.DEAD)) <= (not ids)
        held = sum(
            MEMBER_BYTES
            + sum(map(len, (one.member_id, one.instance_id or "", one.client_id, one.client_host)))
            + len(one.assignment)
            + sum(
                len(offer.name) + len(offer.metadata)
                for offer in group._members[one.member_id].offers
            )
            for one in view.members
        )
        given_out = sum(MEMBER_BYTES + len(member_id) for member_id in group._joining)
        assert self.world.held.size_bytes == held + given_out
        if group.state in (State.COMPLETING, State.STABLE):
            assert group.leader in ids
            assert group.protocol in ("range", "sticky")
        for client in self.clients:
            self._check_client(client, dict(zip(ids, view.members, strict=True)))
        self._check_partitions()

    def _check_client(self, client: Client, members: dict[str, object]) -> None:
        group = self.world.group
        joined = client.joined
        if joined is None:
            return
        assert joined.generation <= group.generation
        if joined.members:
            leader = self._leaders.setdefault(joined.generation, joined.leader)
            if client.instance_id is None and not joined.skip_assignment:
                assert joined.leader == leader or joined.leader in members

    def _check_partitions(self) -> None:
        """No partition has two owners among the members that have the group's generation."""
        group = self.world.group
        current = [
            client.assignment
            for client in self.clients
            if client.assignment is not None and client.generation == group.generation
        ]
        owned = b"".join(current)
        assert len(owned) == len(set(owned))

    def settle(self) -> None:
        """Let everything come to rest: then the members are exactly the clients, and share all partitions."""
        settle(self.world, self.clients, 120)
        members = self.world.group.view().members
        assert {one.member_id for one in members} == {one.member_id for one in self.clients}
        owned = b"".join(one.assignment or b"" for one in self.clients)
        assert sorted(owned) == (list(PARTITIONS) if self.clients else [])
        assert len({one.generation for one in self.clients}) <= 1

    def end(self) -> None:
        """Let all clients leave: the group is empty, and forgotten after a while."""
        for client in self.clients:
            assert client.leave() is Refusal.NONE
        self.world.advance(120_000)
        assert self.world.state() in (State.EMPTY, State.DEAD)
        assert not self.world.group.size
        self.world.advance(EMPTY_KEPT_MS * 2)
        assert self.world.state() is State.DEAD
        assert self.world.group.next_deadline_ms() is None


class Churn(RuleBasedStateMachine):
    """Hypothesis chooses what happens next."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(initial_delay_ms=0)

    @rule(
        instance=st.one_of(st.none(), st.integers(0, 2)), known=st.booleans(), skips=st.booleans()
    )
    def come(self, instance: int | None, known: bool, skips: bool) -> None:
        """A client starts; with a known instance id it replaces that client."""
        if len(self.model.clients) < 8:
            self.model.add(instance=instance, known_id=known, skips=skips)

    @precondition(lambda self: self.model.clients)
    @rule(which=st.randoms(use_true_random=False), times=st.integers(1, 6))
    def act(self, which: random.Random, times: int) -> None:
        """Some clients go on."""
        for _ in range(times):
            which.choice(self.model.clients).step()

    @precondition(lambda self: self.model.clients)
    @rule(index=st.integers(0, 7))
    def crash(self, index: int) -> None:
        """A client ends without a word."""
        self.model.clients.pop(index % len(self.model.clients))

    @precondition(lambda self: self.model.clients)
    @rule(index=st.integers(0, 7))
    def leave(self, index: int) -> None:
        """A client that is a member leaves."""
        client = self.model.clients.pop(index % len(self.model.clients))
        client.receive()
        client.leave()

    @rule(milliseconds=st.sampled_from((0, 10, 1_000, 5_000, 10_000, 31_000)))
    def wait(self, milliseconds: int) -> None:
        """Time passes."""
        self.model.world.advance(milliseconds)

    @invariant()
    def consistent(self) -> None:
        """Check after every step."""
        self.model.check()

    def teardown(self) -> None:
        """In the end everything comes to rest."""
        if self.model.world.state() is not State.DEAD:
            self.model.settle()
            self.model.end()


Churn.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestChurn = Churn.TestCase


@pytest.mark.parametrize("initial_delay_ms", [0, 3_000])
def test_a_storm_of_200_members_in_50_groups(initial_delay_ms: int) -> None:
    rng = random.Random(7)
    models = [Model(initial_delay_ms) for _ in range(50)]
    for _ in range(4):
        for model in models:
            model.add(instance=None, known_id=True, skips=True)
    for _ in range(300):
        for model in models:
            _churn(model, rng)
            model.check()
    for model in models:
        model.settle()
        model.end()


def _churn(model: Model, rng: random.Random) -> None:
    """Let one second pass in a group in which members come and go."""
    chance = rng.random()
    if chance < 0.05 and len(model.clients) > 1:
        model.clients.pop(rng.randrange(len(model.clients)))
    elif chance < 0.1 and len(model.clients) > 1:
        client = model.clients.pop(rng.randrange(len(model.clients)))
        client.receive()
        client.leave()
    elif chance < 0.25 and len(model.clients) < 8:
        model.add(instance=rng.choice((None, None, 1)), known_id=rng.random() < 0.7, skips=True)
    order: Sequence[Client] = rng.sample(model.clients, len(model.clients))
    for client in order:
        client.step()
    model.world.advance(1_000)
