"""Groups over Kafka's wire protocol: members, offsets and administration, in every version that is offered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from api.kafka.apis import SERVED
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.cluster import (
    FindCoordinatorRequest,
)
from api.kafka.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from api.kafka.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    JoinGroupRequestProtocol,
)
from api.kafka.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from logserver.groups.classic.consumer_protocol import (
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from logserver.groups.members_log import MembersLog
from storage import TopicPartition
from storage.errors import DiskFull
from tests.http.test_security import PRODUCER, READER, token_file
from tests.wire.group_requests import (
    BY_ID_FROM,
    alone,
    commit,
    delete,
    delete_offsets,
    describe,
    fetched,
    heartbeat,
    join,
    joined,
    leave,
    listing,
    offers,
    sync,
)
from tests.wire.harness import BOTH, Broker, Connection, batch, broker, produce

COMMIT, FETCH, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 11, 12, 13, 14
FIND, DESCRIBE, LIST, DELETE, OFFSET_DELETE = 10, 15, 16, 42, 47


def versions(key: int) -> range:
    """Return the versions of an API that are offered."""
    return range(SERVED[key].first, SERVED[key].last + 1)


@pytest.fixture
async def topics(kafka: Broker, connection: Connection) -> None:
    """The topic t with two partitions, of which the first has five records."""
    await kafka.api.create("t", 2)
    await connection.call(produce("t", (0, batch(b"a", b"b", b"c", b"d", b"e"))), 9)


@pytest.mark.parametrize("version", versions(FIND))
async def test_the_coordinator_is_this_node(
    kafka: Broker, connection: Connection, version: int
) -> None:
    request = FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"])
    found = await connection.call(request, version)
    rows = found.coordinators if version >= 4 else [found]
    assert len(rows) == (2 if version >= 4 else 1)
    assert {(row.error_code, f"{row.host}:{row.port}") for row in rows} == {(0, kafka.address)}


@BOTH
@pytest.mark.parametrize("version", versions(JOIN))
async def test_join_every_version(connection: Connection, version: int) -> None:
    first = await connection.call(join(), version)
    if version >= 4:
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert first.protocol_name == (None if version >= 7 else "")
        first = await connection.call(join(member_id=first.member_id), version)
    assert (first.error_code, first.generation_id, first.protocol_name) == (0, 1, "range")
    assert first.member_id.startswith("test-")
    assert (first.leader, [one.member_id for one in first.members]) == (
        first.member_id,
        [first.member_id],
    )
    assert first.protocol_type == ("consumer" if version >= 7 else None)


@BOTH
@pytest.mark.parametrize("version", versions(SYNC))
async def test_sync_every_version(connection: Connection, version: int) -> None:
    answer = await joined(connection)
    request = sync(answer.member_id, answer.generation_id, {answer.member_id: b"mine"})
    synced = await connection.call(request, version)
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    if version >= 5:
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
        for name in ("sticky", None):
            request.protocol_name = name
            refused = await connection.call(request, version)
            assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@BOTH
@pytest.mark.parametrize("version", versions(HEARTBEAT))
async def test_heartbeat_every_version(connection: Connection, version: int) -> None:
    answer = await alone(connection)
    good = heartbeat(answer.member_id, answer.generation_id)
    codes = [
        (await connection.call(request, version)).error_code
        for request in (
            good,
            heartbeat(answer.member_id, 7),
            heartbeat("nobody", 1),
            heartbeat("nobody", 1, group_id="none"),
            heartbeat("nobody", 1, group_id=""),
        )
    ]
    assert codes == [0, 22, 25, 25, 24]


@BOTH
@pytest.mark.parametrize("version", versions(LEAVE))
async def test_leave_every_version(connection: Connection, version: int) -> None:
    answer = await alone(connection)
    left = await connection.call(leave((answer.member_id, None), ("nobody", None)), version)
    if version >= 3:
        assert [(one.member_id, one.error_code) for one in left.members] == [
            (answer.member_id, 0),
            ("nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        ]
    assert left.error_code == 0
    again = await connection.call(leave(("nobody", None), group="none"), version)
    code = again.members[0].error_code if version >= 3 else again.error_code
    assert code == ErrorCode.UNKNOWN_MEMBER_ID
    nameless = await connection.call(leave(("nobody", None), group=""), version)
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


@BOTH
async def test_two_members_share_and_a_rebalance_reaches_the_first(kafka: Broker) -> None:
    async with kafka.connect() as first, kafka.connect() as second:
        a = await alone(first)
        coming = asyncio.create_task(joined(second))
        beat = heartbeat(a.member_id, a.generation_id)
        while (await first.call(beat, 4)).error_code == 0:  # noqa: ASYNC110  # the other has not joined yet
            await asyncio.sleep(0.01)
        a = await first.call(join(member_id=a.member_id), 9)
        b = await coming
        assert a.generation_id == b.generation_id == 2
        assert {one.member_id for one in a.members} == {a.member_id, b.member_id}
        assert b.members == []
        waiting = asyncio.create_task(second.call(sync(b.member_id, 2), 5))
        shares = {a.member_id: b"left", b.member_id: b"right"}
        assert (await first.call(sync(a.member_id, 2, shares), 5)).assignment == b"left"
        assert (await waiting).assignment == b"right"


@BOTH
async def test_a_static_member_comes_back_and_fences_its_former_self(kafka: Broker) -> None:
    async with kafka.connect() as first, kafka.connect() as second:
        old = await alone(first, group_instance_id="i")
        new = await joined(second, group_instance_id="i")
        assert (new.generation_id, new.skip_assignment) == (old.generation_id, True)
        assert new.leader == new.member_id != old.member_id
        assert (await second.call(sync(new.member_id, 1), 5)).assignment == b"mine"
        fenced = heartbeat(old.member_id, 1, group_instance_id="i")
        assert (await first.call(fenced, 4)).error_code == ErrorCode.FENCED_INSTANCE_ID
        left = await second.call(leave(("", "i")), 5)
        assert left.members[0].error_code == 0


@BOTH
async def test_joins_that_do_not_fit(kafka: Broker, connection: Connection) -> None:
    await alone(connection)
    async with kafka.connect() as other:
        for request, code in (
            (join(group=""), ErrorCode.INVALID_GROUP_ID),
            (join(group="line\n"), ErrorCode.INVALID_GROUP_ID),
            (join(session_timeout_ms=1), ErrorCode.INVALID_SESSION_TIMEOUT),
            (join(protocol_type="connect"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            (join(protocols=offers("sticky")), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            (join(protocols=[]), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            (join(member_id="nobody"), ErrorCode.UNKNOWN_MEMBER_ID),
            (join(group="none", member_id="nobody"), ErrorCode.UNKNOWN_MEMBER_ID),
        ):
            assert (await other.call(request, 9)).error_code == code


async def test_a_session_that_ends_frees_the_partitions(tmp_path: Path) -> None:
    async with (
        broker(tmp_path / "store", group_min_session_timeout_ms=1) as kafka,
        kafka.connect() as first,
        kafka.connect() as second,
    ):
        a = await alone(first, session_timeout_ms=200)
        b = await alone(second)  # the join waits for the session of the first to end
        assert b.generation_id == a.generation_id + 1
        refused = await first.call(heartbeat(a.member_id, a.generation_id), 4)
        assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@BOTH
async def test_a_stop_answers_members_that_wait(kafka: Broker) -> None:
    async with kafka.connect() as first, kafka.connect() as second:
        await alone(first)
        waiting = asyncio.create_task(joined(second))
        while not kafka.service.groups.classic.waiting:  # noqa: ASYNC110  # a group has no event for tests
            await asyncio.sleep(0.01)
        kafka.service.begin_stop()
        assert (await waiting).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


# -- offsets


def _unknown(version: int) -> ErrorCode:
    by_id = version >= BY_ID_FROM
    return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@BOTH
@pytest.mark.parametrize("version", versions(COMMIT))
async def test_commit_every_version(
    topics: None, kafka: Broker, connection: Connection, version: int
) -> None:
    request = commit({("t", 0): 2, ("t", 1): 0, ("t", 2): 0, ("no", 0): 1}, metadata="m")
    names = await connection.name_by_id(*request.topics)
    answer = await connection.call(request, version)
    assert {
        (topic.name or names[topic.topic_id], row.partition_index): row.error_code
        for topic in answer.topics
        for row in topic.partitions
    } == {("t", 0): 0, ("t", 1): 0, ("t", 2): 3, ("no", 0): _unknown(version)}
    kept = (0 if version >= 6 else -1, "m") if kafka.keeps_batches else (-1, "")
    assert await fetched(connection, 9, None) == {
        ("t", 0): (2, *kept, 0),
        ("t", 1): (0, *kept, 0),
    }
    lag = (await kafka.api.get("/groups/g")).json["partitions"]
    assert [(row["partition"], row["committed"], row["lag"]) for row in lag] == [
        (0, 2, 3),
        (1, 0, 0),
    ]


@BOTH
@pytest.mark.parametrize("version", versions(FETCH))
async def test_fetch_every_version(
    topics: None, kafka: Broker, connection: Connection, version: int
) -> None:
    await connection.call(commit({("t", 0): 3}, metadata=None), 9)
    epoch = 0 if version >= 5 and kafka.keeps_batches else -1
    stored = (3, epoch, "", 0)
    assert await fetched(connection, version, {"t": [0, 1], "no": [0]}) == {
        ("t", 0): stored,
        ("t", 1): (-1, -1, "", 0),
        ("no", 0): (-1, -1, "", _unknown(version) if version >= BY_ID_FROM else 0),
    }
    if 2 <= version < BY_ID_FROM:
        assert await fetched(connection, version, None) == {("t", 0): stored}
    assert await fetched(connection, version, {"t": [0]}, group="other", stable=version >= 7) == {
        ("t", 0): (-1, -1, "", 0)
    }


@BOTH
async def test_offsets_beyond_the_end_and_long_metadata(
    topics: None, connection: Connection
) -> None:
    """An offset beyond the end is stored, as the real server does."""
    for offset, metadata, code in ((99, "x" * 4096, 0), (1, "x" * 4097, 12)):
        answer = await connection.call(commit({("t", 0): offset}, metadata=metadata), 9)
        assert answer.topics[0].partitions[0].error_code == code
    assert (await fetched(connection, 9, None))["t", 0][0] == 99


@BOTH
async def test_a_negative_offset_is_none_for_http(
    topics: None, kafka: Broker, connection: Connection
) -> None:
    """A client such as kafkajs commits -1 or -2 to reset a group. An HTTP consumer has no offset then."""
    await connection.call(commit({("t", 0): 3}), 9)
    answer = await connection.call(commit({("t", 0): -2}), 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    found = await fetched(connection, 9, {"t": [0]})
    assert found["t", 0][0] == (-2 if kafka.keeps_batches else -1)  # RocketMQ has none
    if kafka.keeps_batches:
        assert (await kafka.api.get("/groups/g")).json["lag"] == 5
    consumer = {"name": "one", "format": "binary", "auto.offset.reset": "earliest"}
    await kafka.api.post("/consumers/g", consumer)
    await kafka.api.post("/consumers/g/instances/one/subscription", {"topics": ["t"]})
    records = (await kafka.api.get("/consumers/g/instances/one/records")).json
    assert [record["offset"] for record in records] == [0, 1, 2, 3, 4]


@BOTH
async def test_who_may_commit(topics: None, connection: Connection) -> None:
    me = await alone(connection)
    unknown, generation, rebalance = 25, 22, 27
    for changed, code in (
        ({}, unknown),  # a client that is no member, while there are members
        ({"member_id": me.member_id, "generation": me.generation_id}, 0),
        ({"member_id": me.member_id, "generation": 7}, generation),
        ({"member_id": "nobody", "generation": 1}, unknown),
        ({"group": "none", "member_id": "nobody", "generation": 1}, 69),
        ({"group": "none"}, 0),
        ({"group": "line\n"}, 24),
    ):
        answer = await connection.call(commit({("t", 0): 1}, **changed), 9)
        assert answer.topics[0].partitions[0].error_code == code
    old = commit({("t", 0): 1}, group="never", member_id="nobody", generation=1)
    assert (await connection.call(old, 8)).topics[0].partitions[0].error_code == generation
    again = await connection.call(join(member_id=me.member_id), 9)
    member = {"member_id": me.member_id, "generation": again.generation_id}
    answer = await connection.call(commit({("t", 0): 1}, **member), 9)
    assert answer.topics[0].partitions[0].error_code == rebalance


async def test_a_member_commits_after_a_restart(tmp_path: Path) -> None:
    """It is a member still. A stranger is unknown: that the group does not exist would end a Java client's commit."""
    path = tmp_path / "store"
    async with broker(path) as kafka, kafka.connect() as connection:
        await kafka.api.create("t")
        me = await alone(connection)
        member = {"member_id": me.member_id, "generation": me.generation_id}
        answer = await connection.call(commit({("t", 0): 1}, **member), 9)
        assert answer.topics[0].partitions[0].error_code == 0
    async with broker(path) as kafka, kafka.connect() as connection:
        for version in (8, 9):
            await _check_commits(connection, member, version)


async def _check_commits(connection: Connection, member: dict[str, Any], version: int) -> None:
    """A member may commit, and another client may not."""
    for changed, expected in (({}, 0), ({"member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID)):
        request = commit({("t", 0): 1}, **{**member, **changed})
        answer = await connection.call(request, version)
        assert answer.topics[0].partitions[0].error_code == expected


async def test_the_first_commit_after_a_restart(tmp_path: Path) -> None:
    """The members of a group that had not committed before are known too."""
    path = tmp_path / "store"
    async with broker(path) as kafka, kafka.connect() as connection:
        await kafka.api.create("t")
        me = await alone(connection)
        member = {"member_id": me.member_id, "generation": me.generation_id}
    async with broker(path) as kafka, kafka.connect() as connection:
        await connection.call(listing(), 5)  # the groups are counted
        for version in (8, 9):
            await _check_commits(connection, member, version)


async def test_an_assignment_that_cannot_be_stored_is_not_given(
    topics: None, kafka: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a restart could begin the generation again with other members. The client asks again, and it is stored."""
    store: Any = kafka.service.store

    def full(*_: Any, **__: Any) -> None:
        raise DiskFull("no space left", path="x", operation="write", errno=28)

    me = await connection.call(join(), 3)
    with monkeypatch.context() as broken:
        broken.setattr(store, "write_groups", full)
        refused = await connection.call(sync(me.member_id, 1, {me.member_id: b"mine"}), 5)
        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert store.stored_groups() == []
    again = await connection.call(sync(me.member_id, 1), 5)
    assert (again.error_code, again.assignment) == (0, b"mine")
    assert [group.generation for group in store.stored_groups()] == [1]


async def test_a_heartbeat_that_cannot_be_stored_is_not_answered(
    topics: None, kafka: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New protocol. The client tries again: the change is stored, and one that changes nothing is not written."""
    store: Any = kafka.service.store
    written: list[Any] = []
    write_groups = store.write_groups

    def full(*_: Any, **__: Any) -> None:
        raise DiskFull("no space left", path="x", operation="write", errno=28)

    def counted(groups: Any, **options: Any) -> None:
        written.append(groups)
        write_groups(groups, **options)

    fields: dict[str, Any] = {"group_id": "g", "member_id": "m", "subscribed_topic_names": ["t"]}
    fields |= {"member_epoch": 0, "rebalance_timeout_ms": 9_000, "topic_partitions": []}
    with monkeypatch.context() as broken:
        broken.setattr(store, "write_groups", full)
        refused = await connection.call(ConsumerGroupHeartbeatRequest(**fields), 1)
        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert store.stored_groups() == []
    joined = await connection.call(ConsumerGroupHeartbeatRequest(**fields), 1)
    assert joined.error_code == 0
    (stored,) = store.stored_groups()
    (row,) = stored.members
    assert (row.member_id, row.epoch, len(row.assigned)) == ("m", joined.member_epoch, 2)
    monkeypatch.setattr(store, "write_groups", counted)
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=joined.member_epoch
    )
    for epoch, writes in ((joined.member_epoch, 0), (-1, 1)):
        request.member_epoch = epoch
        assert (await connection.call(request, 1)).error_code == 0
        assert len(written) == writes
    (stored,) = store.stored_groups()
    assert (stored.members, stored.epoch) == ([], joined.member_epoch + 1)
    await connection.call(delete("g"), 2)
    assert store.stored_groups() == []


async def test_what_is_stored_of_a_group(
    topics: None, kafka: Broker, connection: Connection
) -> None:
    """A group whose last member has left is stored without members; a deleted one is not stored."""
    store: Any = kafka.service.store
    me = await alone(connection)
    (stored,) = store.stored_groups()
    assert [row.member_id for row in stored.members] == [me.member_id]
    await connection.call(leave((me.member_id, None)), 5)
    await kafka.service.groups.settled()
    (stored,) = store.stored_groups()
    assert (stored.generation, stored.members, stored.leader) == (2, [], None)
    await connection.call(delete("g"), 2)
    assert store.stored_groups() == []


# -- administration


@BOTH
@pytest.mark.parametrize("version", versions(DESCRIBE))
async def test_describe_every_version(
    topics: None, kafka: Broker, connection: Connection, version: int
) -> None:
    await connection.call(commit({("t", 0): 1}, group="simple"), 9)
    me = await alone(connection, group_instance_id="i")
    stable, simple, missing = (
        await connection.call(describe("g", "simple", "none"), version)
    ).groups
    assert (stable.group_state, stable.protocol_type, stable.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (member,) = stable.members
    assert (member.member_id, member.client_id, member.client_host, member.member_assignment) == (
        me.member_id,
        "test",
        "/127.0.0.1",
        b"mine",
    )
    assert member.group_instance_id == ("i" if version >= 4 else None)
    assert (simple.error_code, simple.group_state, simple.members) == (0, "Empty", [])
    assert missing.group_state == "Dead"
    assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


@BOTH
@pytest.mark.parametrize("version", versions(LIST))
async def test_list_every_version(topics: None, connection: Connection, version: int) -> None:
    await connection.call(commit({("t", 0): 1}, group="simple"), 9)
    await alone(connection)
    rows = (await connection.call(listing(), version)).groups
    assert [(row.group_id, row.protocol_type) for row in rows] == [
        ("g", "consumer"),
        ("simple", ""),
    ]
    if version >= 4:
        assert [row.group_state for row in rows] == ["Stable", "Empty"]
        rows = (await connection.call(listing(["stable"]), version)).groups
        assert [row.group_id for row in rows] == ["g"]
    if version >= 5:
        assert {row.group_type for row in rows} == {"classic"}
        assert (await connection.call(listing(types=["consumer"]), version)).groups == []


@BOTH
@pytest.mark.parametrize("version", versions(DELETE))
async def test_delete_every_version(
    topics: None, kafka: Broker, connection: Connection, version: int
) -> None:
    await connection.call(commit({("t", 0): 1}, group="simple"), 9)
    me = await alone(connection)
    answer = await connection.call(delete("g", "simple", "none", ""), version)
    assert [(row.group_id, row.error_code) for row in answer.results] == [
        ("g", ErrorCode.NON_EMPTY_GROUP),
        ("simple", 0),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.GROUP_ID_NOT_FOUND if kafka.keeps_batches else ErrorCode.INVALID_GROUP_ID),
    ]
    await connection.call(leave((me.member_id, None)), 5)
    answer = await connection.call(delete("g"), version)
    assert answer.results[0].error_code == 0
    assert (await connection.call(listing(), 5)).groups == []


async def test_delete_offsets_that_no_member_reads(topics: None, connection: Connection) -> None:
    me = await alone(connection)
    member = {"member_id": me.member_id, "generation": me.generation_id}
    await connection.call(commit({("t", 0): 1, ("t", 1): 0}, **member), 9)
    answer = await connection.call(delete_offsets({"t": [0], "no": [0]}), 0)
    assert [row.error_code for topic in answer.topics for row in topic.partitions] == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    await connection.call(leave((me.member_id, None)), 5)
    answer = await connection.call(delete_offsets({"t": [0]}), 0)
    assert answer.topics[0].partitions[0].error_code == 0
    assert list(await fetched(connection, 9, None)) == [("t", 1)]
    missing = await connection.call(delete_offsets({"t": [0]}, "none"), 0)
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_subscription_counts_from_its_generation_on(kafka: Broker) -> None:
    """As on the broker: while a group rebalances, it reads what its last generation read. A partition that does not
    exist is unknown, also in a topic to which members subscribe.
    """
    for name in ("t", "u"):
        await kafka.api.create(name)
    both = [JoinGroupRequestProtocol(name="range", metadata=encode_subscription(["t", "u"]))]

    async def codes() -> list[int]:
        answer = await asker.call(delete_offsets({"t": [0, 9], "u": [0]}), 0)
        return [row.error_code for topic in answer.topics for row in topic.partitions]

    async with kafka.connect() as one, kafka.connect() as two, kafka.connect() as asker:
        me = await alone(one)
        assert await codes() == [86, 3, 0]
        joining = asyncio.create_task(joined(two, protocols=both))
        beat = heartbeat(me.member_id, me.generation_id)
        while (await asker.call(beat, 4)).error_code == 0:  # noqa: ASYNC110  # the other has not joined yet
            await asyncio.sleep(0.01)
        assert await codes() == [86, 3, 0]
        await one.call(join("g", me.member_id), 9)
        await joining
        assert await codes() == [86, 3, 86]


async def test_the_member_id_of_a_static_member(connection: Connection) -> None:
    """As the broker makes it: tools show it, and operators read the instance in it."""
    static = await joined(connection, group_instance_id="one")
    assert static.member_id.startswith("one-")


async def test_a_group_that_is_no_consumers_keeps_its_offsets_while_it_has_members(
    topics: None, connection: Connection
) -> None:
    await alone(connection, protocol_type="connect")
    answer = await connection.call(delete_offsets({"t": [0]}), 0)
    assert answer.error_code == ErrorCode.NON_EMPTY_GROUP


# -- tokens

REQUESTS: dict[int, Any] = {
    COMMIT: commit({("t", 0): 1}),
    FETCH: OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])],
        groups=[OffsetFetchRequestGroup(group_id="g", topics=None)],
    ),
    JOIN: join(),
    HEARTBEAT: heartbeat("m", 1),
    LEAVE: leave(("m", None)),
    SYNC: sync("m", 1),
    DESCRIBE: describe("g"),
    LIST: listing(),
    DELETE: delete("g"),
    OFFSET_DELETE: delete_offsets({"t": [0]}),
}


def numbers(answer: Any) -> set[int]:
    """Return the error numbers of all parts of an answer that have one."""
    found = {int(answer.error_code)} if hasattr(answer, "error_code") else set()
    for field in ("topics", "partitions", "members", "results", "groups"):
        found = found.union(*(numbers(part) for part in getattr(answer, field, None) or ()))
    return found


@pytest.mark.parametrize("key", REQUESTS)
async def test_a_token_that_may_not_read_is_refused_in_every_version(
    tmp_path: Path, key: int
) -> None:
    tokens = token_file(tmp_path, f"{PRODUCER} produce", f"{READER} read")
    async with (
        broker(tmp_path / "store", token_file=tokens) as kafka,
        kafka.connect() as producer,
        kafka.connect() as reader,
    ):
        refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
        for connection, token in ((producer, PRODUCER), (reader, READER)):
            await connection.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            login = SaslAuthenticateRequest(auth_bytes=f"\0any\0{token}".encode())
            assert (await connection.call(login, 2)).error_code == 0
        for version in versions(key):
            # In a group of its own: a second member waits for the first one to join again.
            request = join(f"g{version}") if key == JOIN else REQUESTS[key]
            answer = await producer.call(request, version)
            assert numbers(answer) - {0} == {refused}
            answer = await reader.call(request, version)
            assert (refused in numbers(answer)) == (key == DELETE)


# -- one kind of group per name


async def test_a_name_of_http_consumers_is_refused_and_the_other_way_round(
    topics: None, kafka: Broker, connection: Connection
) -> None:
    created = await kafka.api.post("/consumers/web", {"name": "one", "format": "binary"})
    assert created.status == 200
    refused = await connection.call(join(group="web"), 9)
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    answer = await connection.call(commit({("t", 0): 1}, group="web"), 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID

    me = await alone(connection)
    conflict = await kafka.api.post("/consumers/g", {"format": "binary"})
    assert (conflict.status, conflict.json["error_code"]) == (409, 40903)
    assert "Kafka's protocol" in conflict.json["message"]
    for method, path, body in (
        ("PUT", "/groups/g/offsets", {"to": "earliest", "topic": "t"}),
        ("DELETE", "/groups/g", None),
    ):
        answer = await kafka.api.call(method, path, json=body)
        assert (answer.status, answer.json["error_code"]) == (409, 40903)
    await connection.call(leave((me.member_id, None)), 5)
    assert (await kafka.api.post("/consumers/g", {"format": "binary"})).status == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/groups/g/offsets", {"to": "earliest", "topic": "t"}),
        ("DELETE", "/groups/g", None),
        ("POST", "/consumers/g", {"format": "binary"}),
    ],
    ids=["reset", "delete", "create a consumer"],
)
async def test_http_waits_for_the_members_of_before_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: object
) -> None:
    """Else a request right after the start takes a group with members for one without."""
    store = tmp_path / "store"
    async with broker(store) as kafka, kafka.connect() as connection:
        await kafka.api.create("t")
        me = await alone(connection)
        member = {"member_id": me.member_id, "generation": me.generation_id}
        await connection.call(commit({("t", 0): 0}, **member), 9)
    may_load, load = asyncio.Event(), MembersLog.load

    async def held(log: MembersLog) -> Any:
        await may_load.wait()
        return await load(log)

    monkeypatch.setattr(MembersLog, "load", held)
    async with broker(store) as kafka, kafka.connect() as connection:
        asked = asyncio.create_task(kafka.api.call(method, path, json=body))
        await asyncio.wait((asked,), timeout=0.2)
        may_load.set()
        answer = await asked
        assert (answer.status, answer.json["error_code"]) == (409, 40903)
        found = await connection.call(heartbeat(me.member_id, me.generation_id), 4)
        assert found.error_code == 0


async def test_members_are_shown_over_http(
    topics: None, kafka: Broker, connection: Connection
) -> None:
    me = await joined(connection)
    assignment = encode_assignment([TopicPartition("t", 1), TopicPartition("t", 0)])
    await connection.call(sync(me.member_id, 1, {me.member_id: assignment}), 5)
    member = {"member_id": me.member_id, "generation": 1}
    await connection.call(commit({("t", 0): 1}, **member), 9)
    group = (await kafka.api.get("/groups/g")).json
    assert group["members"] == [
        {
            "instance_id": me.member_id,
            "topics": ["t"],
            "topic_pattern": None,
            "partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}],
        }
    ]
    assert [(row["lag"], row["instance_id"]) for row in group["partitions"]] == [
        (4, me.member_id),
        (None, me.member_id),
    ]
    assert (await kafka.api.get("/groups")).json == ["g"]


async def test_http_consumers_are_shown_to_kafkas_tools(
    topics: None, kafka: Broker, connection: Connection
) -> None:
    await kafka.api.post("/consumers/web", {"name": "one", "format": "binary"})
    await kafka.api.post("/consumers/web/instances/one/subscription", {"topics": ["t"]})
    (group,) = (await connection.call(describe("web"), 6)).groups
    (member,) = group.members
    assert (group.group_state, group.protocol_type, member.client_id) == (
        "Stable",
        "consumer",
        "one",
    )
    assert decode_assignment(member.member_assignment) == [
        TopicPartition("t", 0),
        TopicPartition("t", 1),
    ]
    (row,) = (await connection.call(listing(), 5)).groups
    assert (row.group_id, row.group_state) == ("web", "Stable")
    answer: Any = await connection.call(delete_offsets({"t": [0]}, "web"), 0)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


async def test_members_with_much_metadata_are_refused(tmp_path: Path) -> None:
    """A client that joins again and again, and disconnects, leaves a bounded number of bytes."""
    async with broker(tmp_path / "store", max_group_member_bytes=1 << 16) as kafka:
        large = [JoinGroupRequestProtocol(name="range", metadata=bytes(30_000))]
        codes = []
        for number in range(3):
            async with kafka.connect() as connection:
                request = join(f"g{number}", group_instance_id=str(number), protocols=large)
                codes.append((await connection.call(request, 9)).error_code)
        assert codes == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]
