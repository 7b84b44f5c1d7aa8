"""The new group protocol under churn: clients come, go, crash and come back, and answers are lost, against a model.

The model knows what every client reads. It checks after every step that no partition is read by two clients at once,
that epochs only rise, and in the end that every partition has exactly one reader, evenly.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from logserver.groups.classic.values import Caller, Refusal
from logserver.groups.modern.group import EMPTY_KEPT_MS, FENCED_COMMITS_FROM
from logserver.groups.modern.values import AWAY_EPOCH, GroupState
from storage.groups import Slot
from tests.unit.groups.modern_clients import LIMITS, SESSION_MS, Client, World, settle

COUNTS: Final = {"t": 7, "tu": 4, "v": 1}
SUBSCRIPTIONS: Final = (("t",), ("t",), ("t",), ("t", "v"), ("tu",), ("v", "tu"), ())


class Model:
    """A group, its clients, and the epochs that were seen."""

    def __init__(self, interval_ms: int = LIMITS.assignment_interval_ms) -> None:
        self.world = World(LIMITS._replace(assignment_interval_ms=interval_ms), **COUNTS)
        self.clients: list[Client] = []
        self._made = 0
        self._epochs = (0, 0)

    def add(
        self, *, instance: int | None = None, topics: Sequence[str] = ("t",), pattern: bool = False
    ) -> None:
        """Start a client."""
        self._made += 1
        self.clients.append(
            Client(
                self.world,
                f"m{self._made:03}",
                instance_id=None if instance is None else f"i{instance}",
                topics=topics,
                pattern="t" if pattern else None,
                assignor=("range", "uniform", None)[self._made % 3],
            )
        )

    def check(self) -> None:
        """Compare the group with what its clients read."""
        group = self.world.group
        for client in self.clients:
            client.give_up()
        self._check_readers()
        epochs = group.epoch, group.assignment_epoch
        assert epochs[0] >= self._epochs[0]
        assert epochs[1] >= self._epochs[1]
        assert epochs[1] <= epochs[0]
        self._epochs = epochs
        view = group.view()
        given = Counter(slot for member in view.members for slot in member.assigned)
        assert all(count == 1 for count in given.values()), "a partition that two members may have"
        target = Counter(slot for member in view.members for slot in member.target)
        assert all(count == 1 for count in target.values())
        assert (group.state is GroupState.EMPTY) == (not view.members)
        assert self.world.held.size_bytes == sum(
            member.current_size_bytes() for member in group._members.values()
        )

    def _check_readers(self) -> None:
        """No partition has two readers, but for clients that may hear of it late: see Client. Their commits fail."""
        readers = Counter(slot for client in self.clients for slot in client.owned)
        sure = Counter(slot for one in self.clients for slot in one.owned - one.doubtful)
        assert all(count == 1 for count in sure.values()), "a partition with two readers"
        for client in self.clients:
            for slot in client.owned & client.doubtful:
                if readers[slot] > 1:
                    assert self._may_commit(client, slot) is Refusal.STALE_MEMBER_EPOCH

    def _may_commit(self, client: Client, slot: Slot) -> Refusal:
        caller = Caller(client.member_id, client.epoch, client.instance_id)
        return self.world.group.check_commit(
            caller, [slot], FENCED_COMMITS_FROM, transactional=False
        )

    def drop_fenced(self) -> None:
        """End the clients whose instance id another has."""
        self.clients = [client for client in self.clients if not client.is_fenced]

    def settle(self) -> None:
        """Let everything come to rest: then the members are the clients, and share all partitions evenly."""
        self.world.advance(2 * SESSION_MS)
        settle(self.world, self.clients)
        self.drop_fenced()
        settle(self.world, self.clients)
        self.check()
        wanted = self.world.topics.slots({name for one in self.clients for name in one.subscribed})
        assert {slot for one in self.clients for slot in one.owned} == wanted
        members = {one.member_id for one in self.world.group.view().members}
        assert members == {one.member_id for one in self.clients}
        if self.clients:
            assert self.world.group.state is GroupState.STABLE
        subscriptions = {frozenset(one.subscribed) for one in self.clients}
        if len(subscriptions) == 1 and self.world.group.view().assignor == "uniform":
            sizes = [len(one.owned) for one in self.clients]
            assert max(sizes) - min(sizes) <= 1

    def end(self) -> None:
        """Let all clients leave: the group is empty, and forgotten after a while."""
        for client in self.clients:
            assert client.leave() is Refusal.NONE
        assert self.world.group.state is GroupState.EMPTY
        assert self.world.held.size_bytes == 0
        self.world.advance(EMPTY_KEPT_MS + 1)
        assert self.world.group.is_dead(self.world.now_ms)


class Churn(RuleBasedStateMachine):
    """Hypothesis chooses what happens next."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()

    def client(self, index: int) -> Client:
        """Return one of the clients."""
        return self.model.clients[index % len(self.model.clients)]

    @rule(
        instance=st.one_of(st.none(), st.integers(0, 2)),
        topics=st.sampled_from(SUBSCRIPTIONS),
        pattern=st.booleans(),
    )
    def come(self, instance: int | None, topics: tuple[str, ...], pattern: bool) -> None:
        """A client starts."""
        if len(self.model.clients) < 8:
            self.model.add(instance=instance, topics=topics, pattern=pattern)

    @precondition(lambda self: self.model.clients)
    @rule(which=st.randoms(use_true_random=False), times=st.integers(1, 8), both=st.booleans())
    def act(self, which: random.Random, times: int, both: bool) -> None:
        """Some clients send heartbeats; some have not revoked yet what they must."""
        for _ in range(times):
            client = which.choice(self.model.clients)
            client.step()
            client.revoke()
            if both or which.random() < 0.5:
                client.take()
        self.model.drop_fenced()

    @precondition(lambda self: self.model.clients)
    @rule(index=st.integers(0, 7), request=st.booleans())
    def lose(self, index: int, request: bool) -> None:
        """A heartbeat or its answer is lost."""
        self.client(index).step(lose_request=request, lose_answer=not request)

    @precondition(lambda self: self.model.clients)
    @rule(index=st.integers(0, 7))
    def hang(self, index: int) -> None:
        """A client sends heartbeats, and does not give up its partitions."""
        self.client(index).step()

    @precondition(lambda self: self.model.clients)
    @rule(index=st.integers(0, 7), topics=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, index: int, topics: tuple[str, ...]) -> None:
        """A client changes its subscription."""
        self.client(index).subscribe(topics)

    @precondition(lambda self: self.model.clients)
    @rule(index=st.integers(0, 7))
    def restart(self, index: int) -> None:
        """A client forgets everything and joins again under the same id."""
        self.client(index).restart()

    @precondition(lambda self: self.model.world.group.assignment_epoch)
    @rule()
    def restart_server(self) -> None:
        """The server is killed, and started again."""
        before = self.model.world.group.view()
        self.model.world.restart()
        after = self.model.world.group.view()
        assert after.members == before.members
        assert (after.epoch, after.assignment_epoch) >= (before.epoch, before.assignment_epoch)

    @precondition(lambda self: self.model.clients)
    @rule(index=st.integers(0, 7))
    def crash(self, index: int) -> None:
        """A client ends without a word."""
        self.model.clients.pop(index % len(self.model.clients))

    @precondition(lambda self: self.model.clients)
    @rule(index=st.integers(0, 7))
    def leave(self, index: int) -> None:
        """A client leaves; a static one for a while."""
        client = self.model.clients.pop(index % len(self.model.clients))
        client.leave(AWAY_EPOCH if client.instance_id is not None else -1)

    @rule(counts=st.fixed_dictionaries({"t": st.integers(7, 9), "tw": st.integers(1, 3)}))
    def change_topics(self, counts: dict[str, int]) -> None:
        """Topics are created, extended and deleted."""
        self.model.world.change_topics(**{**COUNTS, **counts})

    @rule(milliseconds=st.sampled_from((0, 10, 1_000, 5_000, 10_000, 31_000)))
    def wait(self, milliseconds: int) -> None:
        """Time passes."""
        if not self.model.world.group.is_idle:
            self.model.world.advance(milliseconds)

    @invariant()
    def consistent(self) -> None:
        """Check after every step."""
        self.model.check()

    def teardown(self) -> None:
        """In the end everything comes to rest."""
        self.model.settle()
        self.model.end()


Churn.TestCase.settings = settings(stateful_step_count=50, deadline=None)
TestChurn = Churn.TestCase


@pytest.mark.parametrize("interval_ms", [0, 1_000])
def test_a_storm_of_200_members_in_50_groups(interval_ms: int) -> None:
    rng = random.Random(7)
    models = [Model(interval_ms) for _ in range(50)]
    for model in models:
        for _ in range(4):
            model.add()
    for _ in range(200):
        for model in models:
            _churn(model, rng)
            model.check()
    for model in models:
        model.settle()
        model.end()


def _churn(model: Model, rng: random.Random) -> None:
    """Let one second pass in a group in which members come and go, and answers are lost."""
    chance = rng.random()
    if chance < 0.05 and len(model.clients) > 1:
        model.clients.pop(rng.randrange(len(model.clients)))
    elif chance < 0.1 and len(model.clients) > 1:
        model.clients.pop(rng.randrange(len(model.clients))).leave()
    elif chance < 0.25 and len(model.clients) < 8:
        topics = rng.choice(SUBSCRIPTIONS)
        model.add(instance=rng.choice((None, None, 1)), topics=topics, pattern=rng.random() < 0.3)
    for client in rng.sample(model.clients, len(model.clients)):
        client.step(lose_answer=rng.random() < 0.05)
        if rng.random() < 0.8:
            client.revoke()
            client.take()
    model.drop_fenced()
    model.world.advance(1_000)
