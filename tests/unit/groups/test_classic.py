"""The classic group protocol: the answers of Kafka's coordinator (GroupMetadataManager, 4.3.1) state by state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logserver.groups.classic.group import EMPTY_KEPT_MS, NEW_MEMBER_TIMEOUT_MS
from logserver.groups.classic.values import (
    NO_GENERATION,
    NO_MEMBER,
    Caller,
    JoinAnswer,
    Leaving,
    Limits,
    Offer,
    Refusal,
    State,
    Sync,
    SyncAnswer,
)
from tests.unit.groups.clients import (
    LIMITS,
    REBALANCE_MS,
    SESSION_MS,
    Client,
    Once,
    World,
    settle,
)


def stable(*names: str, world: World | None = None) -> tuple[World, list[Client]]:
    """Return a stable group of these members; the first is its leader."""
    world = world or World()
    clients = [Client(world, name) for name in names]
    settle(world, clients[:1], 4)
    settle(world, clients, 12)
    return world, clients


def preparing() -> tuple[World, list[Client]]:
    """Return a group of a and b, of which a has joined again."""
    world, (a, b) = stable("a", "b")
    a.join()
    assert world.state() is State.PREPARING
    return world, [a, b]


def completing() -> tuple[World, list[Client]]:
    """Return a group of a and b whose leader a has not sent the assignment."""
    world, (a, b) = preparing()
    b.join()
    for client in (a, b):
        client.receive()
    assert world.state() is State.COMPLETING
    return world, [a, b]


def joined(client: Client) -> JoinAnswer:
    """Return the answer that the client got to its join."""
    client.receive()
    assert client.joined is not None
    return client.joined


def sync_answer(world: World, caller: Caller, **changes: object) -> SyncAnswer:
    """Return the answer to a sync that must not wait."""
    once = Once()
    request = Sync(caller, "consumer", "range", ())._replace(**changes)  # type: ignore[arg-type]
    world.group.sync(request, world.now_ms, once)
    (answer,) = once.answers
    assert isinstance(answer, SyncAnswer)
    return answer


def join_refusal(client: Client, **changes: object) -> Refusal:
    """Return the refusal of a join, which must not wait."""
    once = Once()
    client.world.group.join(client.request(**changes), client.world.now_ms, once)
    (answer,) = once.answers
    assert isinstance(answer, JoinAnswer)
    return answer.refusal


# -- the first members


def test_a_first_member_gets_an_id_then_leads_a_generation() -> None:
    world = World()
    a = Client(world, "a")
    a.join()
    a.receive()
    assert (a.last, a.member_id) == (Refusal.MEMBER_ID_REQUIRED, "a-0")
    assert world.state() is State.EMPTY
    a.join()
    assert a.is_waiting
    world.advance(0)
    answer = joined(a)
    assert answer[:6] == (Refusal.NONE, "a-0", 1, "consumer", "range", "a-0")
    assert [tuple(member) for member in answer.members] == [("a-0", None, b"range of a")]
    a.sync()
    a.receive()
    assert a.assignment == bytes(range(12))
    assert world.group.view()[1:5] == (State.STABLE, 1, "consumer", "range")


def test_an_old_client_is_a_member_with_its_first_join() -> None:
    world = World()
    a = Client(world, "a", known_id=False)
    a.join()
    world.advance(0)
    assert joined(a).member_id == "a-0"


def test_the_first_rebalance_waits_for_more_members_but_not_for_ever() -> None:
    world = World(LIMITS._replace(initial_delay_ms=3_000))
    clients = [Client(world, name, known_id=False) for name in "abcdefghijklmnop"]
    for client in clients[:2]:
        client.join()
        world.advance(2_000)
    world.advance(1_000)  # the first delay is over; b came within it
    assert world.state() is State.PREPARING
    world.advance(3_000)
    assert world.state() is State.COMPLETING
    assert len(joined(clients[0]).members) == 2

    late = World(LIMITS._replace(initial_delay_ms=3_000))
    for number in range(20):  # new members without an end: the rebalance timeout is the limit
        Client(late, f"c{number}", known_id=False).join()
        late.advance(2_000)
        if late.state() is State.COMPLETING:
            break
    assert late.now_ms - 1_000_000 <= REBALANCE_MS + 2_000


# -- rebalances


def test_a_member_that_comes_and_one_that_leaves_rebalance_the_group() -> None:
    world, (a, b) = stable("a", "b")
    assert joined(a).leader == a.member_id
    generation = a.generation
    c = Client(world, "c")
    settle(world, [a, b, c], 5)
    assert world.group.generation == generation + 1
    assert sorted(a.assignment + b.assignment + c.assignment) == list(range(12))  # type: ignore[operator]
    assert b.leave() is Refusal.NONE
    settle(world, [a, c], 5)
    assert world.group.generation == generation + 2
    assert sorted(a.assignment + c.assignment) == list(range(12))  # type: ignore[operator]


def test_the_leader_may_ask_for_a_rebalance_a_follower_may_not() -> None:
    world, (a, b) = stable("a", "b")
    generation = world.group.generation
    b.join()
    answer = joined(b)
    assert (answer.generation, answer.leader, answer.members) == (generation, a.member_id, [])
    a.join()
    assert a.is_waiting
    assert world.state() is State.PREPARING


def test_changed_metadata_rebalances() -> None:
    world, (_, b) = stable("a", "b")
    b.name = "b with other topics"
    b.join()
    assert world.state() is State.PREPARING


def test_a_join_again_in_the_same_words_gets_the_same_generation() -> None:
    world, (a, b) = completing()
    generation = world.group.generation
    for client, seen in ((a, 2), (b, 0)):
        client.join()
        answer = joined(client)
        assert (answer.generation, len(answer.members)) == (generation, seen)
    assert world.state() is State.COMPLETING


def test_members_that_do_not_join_again_in_time_are_removed() -> None:
    world, (a, b) = stable("a", "b")
    a.join()
    for _ in range(int(REBALANCE_MS / 5_000)):
        assert world.group.heartbeat(b.caller, world.now_ms) is Refusal.REBALANCE_IN_PROGRESS
        world.advance(5_000)
    assert [member.member_id for member in joined(a).members] == [a.member_id]
    assert world.group.heartbeat(b.caller, world.now_ms) is Refusal.UNKNOWN_MEMBER_ID


def test_members_that_do_not_sync_in_time_are_removed() -> None:
    world, (a, b) = completing()
    a.sync()
    a.receive()
    assert world.state() is State.STABLE
    for _ in range(int(REBALANCE_MS / 5_000)):
        world.group.heartbeat(b.caller, world.now_ms)
        world.group.heartbeat(a.caller, world.now_ms)
        world.advance(5_000)
    assert world.group.member_ids() == [a.member_id]
    assert world.state() is State.PREPARING


def test_a_follower_that_syncs_waits_for_the_leader_and_hears_of_a_rebalance() -> None:
    world, (a, b) = completing()
    b.sync()
    assert b.is_waiting
    a.leave()
    b.receive()
    assert b.last is Refusal.REBALANCE_IN_PROGRESS
    assert world.group.leader == b.member_id


def test_votes_decide_between_protocols_that_all_support() -> None:
    world = World()
    clients = [
        Client(world, "a", protocols=("range", "sticky", "own")),
        Client(world, "b", protocols=("sticky", "range")),
        Client(world, "c", protocols=("sticky", "other", "range")),
    ]
    settle(world, clients, 10)
    assert world.group.protocol == "sticky"
    assert {joined(client).protocol for client in clients} == {"sticky"}


def test_the_last_member_that_leaves_ends_the_generation_and_the_group_is_forgotten() -> None:
    world, (a,) = stable("a")
    generation = world.group.generation
    a.leave()
    assert world.group.view()[1:] == (State.EMPTY, generation + 1, "consumer", "", [])
    world.advance(EMPTY_KEPT_MS)
    assert world.state() is State.DEAD
    assert join_refusal(a) is Refusal.COORDINATOR_NOT_AVAILABLE
    assert world.group.next_deadline_ms() is None


# -- sessions


def test_a_silent_member_is_removed_a_waiting_one_is_not() -> None:
    world, (a, _) = stable("a", "b")
    a.join()  # waits for the other
    world.advance(SESSION_MS)
    assert world.group.member_ids() == [a.member_id]
    assert [member.member_id for member in joined(a).members] == [a.member_id]


def test_heartbeats_and_commits_extend_the_session() -> None:
    world, (a,) = stable("a")
    for _ in range(5):
        world.advance(SESSION_MS - 1)
        assert world.group.heartbeat(a.caller, world.now_ms) is Refusal.NONE
        world.advance(SESSION_MS - 1)
        checked = world.group.check_commit(a.caller, world.now_ms, transactional=False)
        assert checked is Refusal.NONE
    world.advance(SESSION_MS)
    assert world.state() is State.EMPTY


def test_an_id_that_is_not_used_is_forgotten_and_holds_up_a_rebalance_until_then() -> None:
    world, (a,) = stable("a")
    b = Client(world, "b")
    b.join()
    b.receive()
    a.join()
    waiting = [a.is_waiting]  # the first rebalance is over: the joins wait for b
    world.advance(SESSION_MS)
    assert [*waiting, a.is_waiting] == [True, False]
    assert join_refusal(b) is Refusal.UNKNOWN_MEMBER_ID


def test_a_first_join_waits_for_five_minutes_at_most() -> None:
    world = World(LIMITS._replace(initial_delay_ms=NEW_MEMBER_TIMEOUT_MS * 2))
    a = Client(world, "a", known_id=False)
    a.join()
    world.advance(NEW_MEMBER_TIMEOUT_MS)
    a.receive()
    assert a.last is Refusal.UNKNOWN_MEMBER_ID


# -- static members


@pytest.mark.parametrize("skips", [True, False])
@pytest.mark.parametrize("leads", [True, False])
def test_a_static_member_that_comes_back_goes_on_without_a_rebalance(
    leads: bool, skips: bool
) -> None:
    world = World()
    static = Client(world, "s", instance_id="i", skips=skips)
    other = Client(world, "o")
    order = [static, other] if leads else [other, static]
    settle(world, order[:1], 3)
    settle(world, order, 10)
    generation, former_id, assigned = world.group.generation, static.member_id, static.assignment
    former = static.caller

    again = Client(world, "s", instance_id="i", skips=skips)
    again.join()
    answer = joined(again)
    assert (answer.generation, world.state()) == (generation, State.STABLE)
    assert answer.member_id != former_id
    if not leads:
        assert answer.leader == other.member_id
    elif skips:
        assert (answer.leader, answer.skip_assignment) == (again.member_id, True)
        assert len(answer.members) == 2
    else:
        assert (answer.leader, answer.members) == (former_id, [])
    again.sync()
    again.receive()
    assert again.assignment == assigned
    assert world.group.heartbeat(former, world.now_ms) is Refusal.FENCED_INSTANCE_ID
    assert world.group.check_commit(former, world.now_ms, transactional=False) is (
        Refusal.FENCED_INSTANCE_ID
    )


def test_a_static_member_with_another_choice_of_protocol_rebalances() -> None:
    world = World()
    static = Client(world, "s", instance_id="i", protocols=("range", "sticky"))
    settle(world, [static], 5)
    again = Client(world, "s", instance_id="i", protocols=("sticky", "range"))
    again.join()
    assert world.state() is State.COMPLETING
    assert joined(again).protocol == "sticky"


def test_a_static_member_is_fenced_where_it_waits() -> None:
    world = World(LIMITS._replace(initial_delay_ms=1_000))
    first, second = (Client(world, name, instance_id="i") for name in "ab")
    first.join()
    assert first.is_waiting
    second.join()
    first.receive()
    assert first.last is Refusal.FENCED_INSTANCE_ID
    world.advance(5_000)
    assert [member.instance_id for member in joined(second).members] == ["i"]


def test_a_static_member_that_is_replaced_before_the_assignment_rebalances() -> None:
    world = World()
    static, other = Client(world, "s", instance_id="i"), Client(world, "o")
    settle(world, [static, other], 8)
    other.join()
    static.join()
    other.join(offers=other.request().offers[:1])
    while world.state() is not State.COMPLETING:
        world.advance(1_000)
    generation = world.group.generation
    again = Client(world, "s", instance_id="i")
    again.join()
    assert world.state() is State.PREPARING
    other.receive()
    other.join()
    assert joined(again).generation == generation + 1


def test_a_static_member_keeps_its_place_while_its_session_lasts() -> None:
    world = World()
    static = Client(world, "s", instance_id="i")
    other = Client(world, "o")
    settle(world, [static, other], 8)
    third = Client(world, "t", known_id=False)
    third.join()
    other.join()  # the static member is away
    world.advance(SESSION_MS)
    assert {m.instance_id for m in world.group.view().members} == {None}


def test_an_operator_removes_a_static_member_by_its_instance_id() -> None:
    world = World()
    static = Client(world, "s", instance_id="i")
    settle(world, [static], 4)
    results = world.group.leave(
        [Leaving("", "i"), Leaving("", "none"), Leaving("unknown"), Leaving("x", "i")], world.now_ms
    )
    assert results == [Refusal.NONE] + [Refusal.UNKNOWN_MEMBER_ID] * 3
    assert world.state() is State.EMPTY


# -- refusals: request, state, answer

NOT_THERE = Caller("nobody-1", 1)
Build = Callable[[], tuple[World, list[Client]]]


def empty() -> tuple[World, list[Client]]:
    """Return a group that a has left."""
    world, (a,) = stable("a")
    a.leave()
    return world, [a]


def dead() -> tuple[World, list[Client]]:
    """Return a group that has ended; a was a member."""
    world, clients = stable("a")
    world.group.close()
    return world, clients


def steady() -> tuple[World, list[Client]]:
    """Return a stable group of a and b."""
    return stable("a", "b")


@pytest.mark.parametrize(
    ("build", "heartbeat", "sync", "commit", "simple"),
    [
        # a member's heartbeat, sync and commit; the commit of a client without a member id
        (empty, "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID", "NONE"),
        (
            preparing,
            "REBALANCE_IN_PROGRESS",
            "REBALANCE_IN_PROGRESS",
            "NONE",
            "UNKNOWN_MEMBER_ID",
        ),
        (completing, "NONE", None, "REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID"),
        (steady, "NONE", "NONE", "NONE", "UNKNOWN_MEMBER_ID"),
        (dead, *["COORDINATOR_NOT_AVAILABLE"] * 4),
    ],
)
def test_a_known_member_in_each_state(
    build: Build, heartbeat: str, sync: str | None, commit: str, simple: str
) -> None:
    world, clients = build()
    group, now_ms = world.group, world.now_ms
    caller = Caller(clients[-1].member_id or "gone-1", world.group.generation)
    assert group.heartbeat(caller, now_ms).name == heartbeat
    assert group.check_commit(caller, now_ms, transactional=False).name == commit
    nobody = Caller(NO_MEMBER, NO_GENERATION)
    assert group.check_commit(nobody, now_ms, transactional=False).name == simple
    if sync is not None:
        assert sync_answer(world, caller).refusal.name == sync


@pytest.mark.parametrize("build", [preparing, completing, steady])
def test_strangers_and_old_generations_in_each_state(build: Build) -> None:
    world, clients = build()
    group, now_ms = world.group, world.now_ms
    old = Caller(clients[-1].member_id, group.generation - 1)
    for caller, refusal in (
        (NOT_THERE, Refusal.UNKNOWN_MEMBER_ID),
        (old, Refusal.ILLEGAL_GENERATION),
        (old._replace(instance_id="i"), Refusal.UNKNOWN_MEMBER_ID),
    ):
        assert group.heartbeat(caller, now_ms) is refusal
        assert group.check_commit(caller, now_ms, transactional=False) is refusal
        assert sync_answer(world, caller).refusal is refusal
    stranger = Client(world, "stranger")
    assert join_refusal(stranger, member_id="nobody-1") is Refusal.UNKNOWN_MEMBER_ID
    assert group.leave([Leaving("nobody-1")], now_ms) == [Refusal.UNKNOWN_MEMBER_ID]


def test_a_transaction_without_a_member_commits_at_any_time() -> None:
    world, _ = steady()
    nobody = Caller(NO_MEMBER, NO_GENERATION)
    assert world.group.check_commit(nobody, world.now_ms, transactional=True) is Refusal.NONE


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"session_timeout_ms": 5_999}, Refusal.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 60_001}, Refusal.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": ""}, Refusal.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, Refusal.INCONSISTENT_GROUP_PROTOCOL),
        ({"offers": ()}, Refusal.INCONSISTENT_GROUP_PROTOCOL),
        ({"session_timeout_ms": 6_000}, Refusal.MEMBER_ID_REQUIRED),
        ({"session_timeout_ms": 60_000}, Refusal.MEMBER_ID_REQUIRED),
    ],
)
def test_a_join_that_does_not_fit(changes: dict[str, object], refusal: Refusal) -> None:
    world, _ = steady()
    assert join_refusal(Client(world, "c"), **changes) is refusal
    other = Client(world, "c", protocols=("sticky",))
    assert join_refusal(other) is Refusal.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"protocol_type": "connect"}, Refusal.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": "sticky"}, Refusal.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": None, "protocol_type": None}, Refusal.NONE),
    ],
)
def test_a_sync_with_another_protocol(changes: dict[str, object], refusal: Refusal) -> None:
    world, (a, _) = steady()
    assert sync_answer(world, a.caller, **changes).refusal is refusal


def test_a_full_group_takes_no_more_members_and_keeps_the_first_of_a_rebalance() -> None:
    world, (a, b) = stable("a", "b", world=World(LIMITS._replace(max_size=2)))
    c = Client(world, "c")
    assert join_refusal(c) is Refusal.GROUP_MAX_SIZE_REACHED
    a.join()
    c.known_id = False
    c.join()  # there is a place in this rebalance until b comes
    b.join()
    b.receive()
    assert b.last is Refusal.GROUP_MAX_SIZE_REACHED
    assert len(joined(a).members) == 2


def test_a_rebalance_without_any_member_in_time_waits_for_the_sessions() -> None:
    world = World(Limits(0, 1, 600_000, 10, 1 << 20))
    static = Client(world, "s", instance_id="i")
    static.join(session_timeout_ms=600_000, rebalance_timeout_ms=500)
    world.advance(0)
    static.receive()
    static.sync()
    static.receive()
    other = Client(world, "o", known_id=False)
    other.join(rebalance_timeout_ms=500)
    (joining,) = {*world.group.member_ids()} - {static.member_id}
    assert world.group.leave([Leaving(joining)], world.now_ms) == [Refusal.NONE]
    world.advance(60_000)
    assert world.group.member_ids() == [static.member_id]
    assert world.state() is State.PREPARING
    world.advance(600_000)
    assert world.state() is State.EMPTY


def test_the_bytes_of_all_members_are_limited() -> None:
    world, (a, b) = stable("a", "b", world=World(LIMITS._replace(max_bytes=3_000)))
    c = Client(world, "c")
    large = [Offer("range", bytes(2_000))]
    c.join(offers=large)
    c.receive()
    assert c.last is Refusal.GROUP_MAX_SIZE_REACHED
    assert world.state() is State.STABLE
    a.join(offers=[Offer("range", bytes(1_000))])  # the new bytes take the place of the old ones
    b.join()
    assert len(joined(a).members) == 2
    too_large = [(a.member_id, bytes(3_000))]
    assert sync_answer(world, a.caller, assignments=too_large).refusal is (
        Refusal.GROUP_MAX_SIZE_REACHED
    )
    a.sync()
    assert world.state() is State.STABLE
    world.group.leave([Leaving(a.member_id), Leaving(b.member_id)], world.now_ms)
    assert world.held.size_bytes == 0


def test_ids_that_were_given_out_count_until_they_expire() -> None:
    world = World(LIMITS._replace(max_bytes=2_000))
    clients = [Client(world, "x" * 200) for _ in range(4)]
    for client in clients:
        client.join()
        client.receive()
    refusals = [client.last for client in clients]
    assert refusals == 2 * [Refusal.MEMBER_ID_REQUIRED] + 2 * [Refusal.GROUP_MAX_SIZE_REACHED]
    world.advance(SESSION_MS)
    assert world.held.size_bytes == 0
