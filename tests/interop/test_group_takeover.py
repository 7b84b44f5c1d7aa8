"""One directory, two programs in turn: the members of a classic group go on in the other one without a rebalance."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from api.kafka.protocol.messages.cluster import FindCoordinatorRequest
from api.kafka.protocol.messages.topics import CreateTopicsRequest, CreateTopicsRequestTopics
from storage import SupportsGroupMembers, open_store
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
    topic = CreateTopicsRequestTopics(name="t", num_partitions=2, replication_factor=1)
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
