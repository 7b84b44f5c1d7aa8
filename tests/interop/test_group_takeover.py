"""One directory, two programs in turn: the members of a group go on in the other one without a rebalance."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from api.kafka.protocol.messages.cluster import FindCoordinatorRequest
from api.kafka.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from api.kafka.protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
)
from storage import (
    StoredGroup,
    StoredModernGroup,
    SupportsGroupMembers,
    TopicPartition,
    open_store,
)
from tests.interop.brokers import UNTOUCHED, Broker
from tests.wire.group_requests import heartbeat, join, leave, sync
from tests.wire.harness import Connection, broker

pytestmark = pytest.mark.java

LOADS = (14, 15, 16)
SESSION_MS = 120_000


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Connection]:
    """Open a connection."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Connection(reader, writer)
    finally:
        writer.transport.abort()


async def form(connection: Connection) -> str:
    """Create the topic t, and a group of one static member. Return its id."""
    topic = CreateTopicsRequestCreatableTopic(name="t", num_partitions=2, replication_factor=1)
    await connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    await connection.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    fields: dict[str, Any] = {"group_instance_id": "one", "session_timeout_ms": SESSION_MS}
    first = await connection.call(join(**fields), 9)
    while first.error_code in LOADS:
        first = await connection.call(join(**fields), 9)
    given = {first.member_id: b"a"}
    assert (await connection.call(sync(first.member_id, 1, given), 5)).error_code == 0
    return str(first.member_id)


async def check(connection: Connection, member_id: str) -> None:
    """The member and its generation are known, with the assignment; then it leaves."""
    fields: dict[str, Any] = {"group_instance_id": "one"}
    await connection.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    again = await connection.call(sync(member_id, 1, **fields), 5)
    while again.error_code in LOADS:
        again = await connection.call(sync(member_id, 1, **fields), 5)
    assert (again.error_code, again.assignment) == (0, b"a")
    alive = await connection.call(heartbeat(member_id, 1, **fields), 4)
    assert alive.error_code == 0
    left = await connection.call(leave((member_id, "one")), 5)
    assert left.members[0].error_code == 0


async def test_the_real_broker_goes_on_with_our_members(tmp_path: Path) -> None:
    ours = tmp_path / "store"
    async with broker(ours) as kafka, kafka.connect() as connection:
        member_id = await form(connection)
    real = Broker(tmp_path / "real")
    shutil.copytree(ours, real.log)
    (real.log / "meta.properties").unlink()  # of another cluster than the one that takes over
    try:
        real.adopt()
        real.start(UNTOUCHED)
        async with connected(real.address) as connection:
            await check(connection, member_id)
    finally:
        real.end(kill=True)
    with open_store("kafka", real.log) as store:
        assert isinstance(store, SupportsGroupMembers)
        (group,) = store.stored_groups()
        assert isinstance(group, StoredGroup)
        assert (group.name, group.generation, group.members) == ("g", 2, [])


async def test_we_go_on_with_the_members_of_the_real_broker(tmp_path: Path) -> None:
    real = Broker(tmp_path / "real")
    try:
        real.start(UNTOUCHED)
        async with connected(real.address) as connection:
            member_id = await form(connection)
    finally:
        real.end(kill=False)
    async with broker(real.log) as kafka, kafka.connect() as connection:
        await check(connection, member_id)


# -- the new protocol


class Member:
    """A consumer with group.protocol=consumer. `parts`: the partitions that it reads, by the topic's id."""

    def __init__(self, name: str, **fields: Any) -> None:
        self.name = name
        self.fields = fields
        self.epoch = 0
        self.parts: frozenset[tuple[bytes, int]] = frozenset()
        self.changes = 0

    async def beat(self, connection: Connection, epoch: int | None = None) -> int:
        """Send a heartbeat with everything in it, and follow the answer; return its error."""
        rows = [
            ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=[number])
            for topic_id, number in sorted(self.parts)
        ]
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.name,
            member_epoch=self.epoch if epoch is None else epoch,
            rebalance_timeout_ms=SESSION_MS,
            topic_partitions=rows,
            **self.fields,
        )
        answer = await connection.call(request, 1)
        if not answer.error_code and answer.assignment is not None:
            rows = answer.assignment.topic_partitions
            parts = frozenset((row.topic_id, number) for row in rows for number in row.partitions)
            self.changes += parts != self.parts
            self.parts, self.epoch = parts, answer.member_epoch
        return int(answer.error_code)

    async def until_known(self, connection: Connection) -> None:
        """Send heartbeats until a server that has just started has loaded its groups."""
        code = await self.beat(connection)
        while code in LOADS:
            code = await self.beat(connection)
        assert code == 0


def three() -> list[Member]:
    """Return three members: a static one, one with a pattern, and one with an assignor."""
    named = {"subscribed_topic_names": ["t"]}
    pattern = {"subscribed_topic_names": [], "subscribed_topic_regex": "t|later"}
    return [
        Member("a", instance_id="one", **named),
        Member("b", rack_id="r", **pattern),
        Member("c", server_assignor="range", **named),
    ]


async def share(connection: Connection, members: list[Member]) -> None:
    """Create the topic t, and a group of these members; each has partitions in the end."""
    topic = CreateTopicsRequestCreatableTopic(name="t", num_partitions=6, replication_factor=1)
    await connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    await connection.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    while sorted(len(one.parts) for one in members) != [2, 2, 2]:
        for one in members:
            assert await one.beat(connection) in (0, *LOADS)
        await asyncio.sleep(0.1)
    for one in members:
        assert await one.beat(connection) == 0


async def go_on(connection: Connection, members: list[Member]) -> None:
    """The members are known with their partitions, and keep them; one leaves, and the others share."""
    await connection.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    await members[0].until_known(connection)
    for one in members:
        one.changes = 0
    for _ in range(30):
        for one in members:
            assert await one.beat(connection) == 0
        await asyncio.sleep(0.1)
    assert [one.changes for one in members] == [0, 0, 0]
    left = members.pop()
    assert await left.beat(connection, -1) == 0
    while sum(len(one.parts) for one in members) != 6:
        for one in members:
            assert await one.beat(connection) == 0
        await asyncio.sleep(0.1)


async def test_the_real_broker_goes_on_with_our_members_of_the_new_protocol(tmp_path: Path) -> None:
    ours, members = tmp_path / "store", three()
    async with broker(ours) as kafka, kafka.connect() as connection:
        await share(connection, members)
    real = Broker(tmp_path / "real")
    shutil.copytree(ours, real.log)
    (real.log / "meta.properties").unlink()  # of another cluster than the one that takes over
    try:
        real.adopt()
        real.start(UNTOUCHED)
        async with connected(real.address) as connection:
            await go_on(connection, members)
    finally:
        real.end(kill=True)
    async with broker(real.log) as kafka, kafka.connect() as connection:  # and back
        for one in members:
            one.changes = 0
            assert await one.beat(connection) == 0
            assert await one.beat(connection) == 0
            assert one.changes == 0
        for one in members:
            assert await one.beat(connection, -1) == 0


async def test_we_go_on_with_the_real_brokers_members_of_the_new_protocol(tmp_path: Path) -> None:
    real, members = Broker(tmp_path / "real"), three()
    try:
        real.start(UNTOUCHED)
        async with connected(real.address) as connection:
            await share(connection, members)
    finally:
        real.end(kill=False)
    _check_bytes(real.log, members)
    async with broker(real.log) as kafka, kafka.connect() as connection:
        await go_on(connection, members)
        for one in members:
            assert await one.beat(connection, -1) == 0
    try:
        real.start(UNTOUCHED)
        async with connected(real.address) as connection:  # which could load what we have written
            members = three()
            await members[0].until_known(connection)
            assert len(members[0].parts) == 6
    finally:
        real.end(kill=True)


async def test_the_real_broker_loads_groups_that_we_deleted(tmp_path: Path) -> None:
    """The tombstones are in an order that a broker's loader accepts; the name is free for any protocol."""
    real, members = Broker(tmp_path / "real"), three()
    try:
        real.start(UNTOUCHED)
        async with connected(real.address) as connection:
            await share(connection, members)
    finally:
        real.end(kill=False)
    with open_store("kafka", real.log) as store:
        assert isinstance(store, SupportsGroupMembers)
        (group,) = store.stored_groups()
        store.forget_groups(["g"])
        store.write_groups([group])
        store.write_groups([StoredGroup("g", "consumer", 3, None, None, -1, [])])
        store.write_groups([group])
        store.forget_groups(["g"])
    try:
        real.start(UNTOUCHED)
        async with connected(real.address) as connection, asyncio.timeout(120):
            await connection.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
            (again, *_) = three()
            await again.until_known(connection)
            assert (again.epoch, len(again.parts)) == (2, 6)  # of a new group
    finally:
        real.end(kill=True)


def _check_bytes(path: Path, members: list[Member]) -> None:
    """Our records of a group are the real broker's: only that of the pattern's topics is written again."""
    with open_store("kafka", path) as store:
        assert isinstance(store, SupportsGroupMembers)
        (group,) = store.stored_groups()
        assert isinstance(group, StoredModernGroup)
        assert {row.member_id: row.assigned.keys() for row in group.members} == {
            one.name: one.parts for one in members
        }
        home = TopicPartition("__consumer_offsets", 0)
        before = store.bounds(home).end
        store.write_groups([group])
        assert store.bounds(home).end == before + 1
