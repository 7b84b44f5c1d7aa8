"""The same requests of group members to a real Kafka broker and to our server: the same answers.

Compared are error codes, generations, states, protocols and who leads; member ids by the order in which they came. A
step whose answer waits for other members is sent first and read later, in the order of the script.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from api.kafka.protocol.messages.cluster import (
    FindCoordinatorRequest,
)
from api.kafka.protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
)
from tests.interop.brokers import Broker as RealBroker
from tests.wire.group_requests import (
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
from tests.wire.harness import Connection, broker

pytestmark = pytest.mark.java

QUIET_S = (
    0.3  # within it a request has reached the server, and an answer that need not wait has come
)


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Connection]:
    """Open a connection to a server of either kind."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Connection(reader, writer)
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


class Script:
    """A conversation with one server: sends requests, and notes what the answers say."""

    def __init__(self, stack: AsyncExitStack, address: str) -> None:
        self._stack = stack
        self._address = address
        self._names: dict[str, str] = {}
        self.notes: list[Any] = []

    async def connect(self) -> Connection:
        """Open another connection, as another client has one."""
        return await self._stack.enter_async_context(connected(self._address))

    def name(self, member_id: str) -> str:
        """Return a short name for a member id; one that no server gave out stays."""
        if len(member_id) < 30:
            return member_id
        return self._names.setdefault(member_id, f"m{len(self._names)}")

    def note(self, *values: object) -> None:
        """Note a result."""
        self.notes.append(values)

    def note_join(self, answer: Any) -> Any:
        """Note an answer to a join."""
        self.note(
            "join", answer.error_code, answer.generation_id, answer.protocol_type, answer.protocol_name,
            self.name(answer.leader), answer.skip_assignment, self.name(answer.member_id),
            sorted((self.name(one.member_id), one.group_instance_id, one.metadata) for one in answer.members),
        )  # fmt: skip
        return answer

    async def codes(self, connection: Connection, *requests: tuple[Any, int]) -> None:
        """Send requests, and note the error codes."""
        for request, version in requests:
            self.note(
                type(request).__name__, version, _codes(await connection.call(request, version))
            )

    async def described(self, connection: Connection, *groups: str) -> None:
        """Note what a tool sees of groups."""
        for group in (await connection.call(describe(*groups), 6)).groups:
            self.note(
                "group", group.error_code, group.group_id, group.group_state, group.protocol_type, group.protocol_data,
                sorted(
                    (self.name(one.member_id), one.group_instance_id, one.client_id, one.client_host,
                     one.member_metadata, one.member_assignment)
                    for one in group.members
                ),
            )  # fmt: skip
        rows = (await connection.call(listing(), 5)).groups
        seen = {row.group_id: row for row in rows}
        for name in groups:
            if name in seen:
                row = seen[name]
                self.note(
                    "listed", name, row.protocol_type, row.group_state, row.group_type.lower()
                )


def _codes(answer: Any) -> Any:
    """Return the error codes of an answer, outside in; of the parts without their order."""
    codes: list[Any] = [answer.error_code] if hasattr(answer, "error_code") else []
    for field in ("topics", "partitions", "members", "results"):
        codes += sorted(_codes(part) for part in getattr(answer, field, None) or ())
    return codes


async def first_members(script: Script) -> None:
    """Joins of the first member, in every version, and what does not fit."""
    a = await script.connect()
    for version in range(10):
        answer = script.note_join(await a.call(join(f"v{version}"), version))
        if answer.error_code:
            answer = script.note_join(
                await a.call(join(f"v{version}", member_id=answer.member_id), version)
            )
        await script.described(a, f"v{version}")
        await script.codes(a, (leave((answer.member_id, None), group=f"v{version}"), version % 6))
        await script.described(a, f"v{version}")
    for request in (
        join(""),
        join("bad", session_timeout_ms=1),
        join("bad", session_timeout_ms=1_800_001),
        join("bad", protocol_type=""),
        join("bad", protocols=[]),
        join("bad", member_id="nobody"),
    ):
        script.note_join(await a.call(request, 9))
    await script.described(a, "none")


async def steady(script: Script) -> None:
    """Requests to a stable group, of its member and of others."""
    a, b = await script.connect(), await script.connect()
    me = await alone(a)
    member, generation = me.member_id, me.generation_id
    for protocols in (offers("sticky"), offers("sticky", "range")):
        script.note_join(await b.call(join(protocols=protocols), 9))
    script.note_join(await b.call(join(protocol_type="connect"), 9))
    script.note_join(await b.call(join(member_id="nobody"), 9))
    await script.codes(
        b,
        (heartbeat(member, generation), 4),
        (heartbeat(member, generation + 1), 4),
        (heartbeat(member, generation - 1), 4),
        (heartbeat("nobody", generation), 4),
        (heartbeat(member, generation, group_instance_id="i"), 4),
        (heartbeat(member, generation, group_id="none"), 4),
        (heartbeat(member, generation, group_id=""), 4),
        (sync(member, generation), 5),
        (sync(member, generation, protocol_type=None), 5),
        (sync(member, generation, protocol_type=None, protocol_name=None), 4),
        (sync(member, generation, protocol_type="connect"), 5),
        (sync(member, generation, protocol_name="sticky"), 5),
        (sync(member, 9), 5),
        (sync("nobody", generation), 5),
        (sync("nobody", generation, group_id="none"), 5),
        (commit({("t", 0): 1}), 9),
        (commit({("t", 0): 1}, member_id=member, generation=generation), 9),
        (commit({("t", 0): 1, ("t", 9): 1, ("no", 0): 1}, member_id=member, generation=generation), 9),
        (commit({("t", 0): 1}, member_id=member, generation=9), 9),
        (commit({("t", 0): 1}, member_id="nobody", generation=generation), 9),
        (commit({("t", 0): 1}, member_id=member, generation=generation, instance_id="i"), 9),
        (commit({("t", 0): 1}, member_id=member), 9),
        (commit({("t", 0): 1}, generation=generation), 9),
        (commit({("t", 0): 1}, member_id=member, generation=generation, metadata="x" * 5000), 9),
        (commit({("t", 0): 1}, group="none", member_id=member, generation=1), 9),
        (commit({("t", 0): 1}, group="none", member_id=member, generation=1), 8),
        (commit({("t", 0): 1}, group="none", member_id=member), 8),
        (commit({("t", 0): 99}, group="far"), 8),
        (delete("g", "none", "far"), 2),
        (delete_offsets({"t": [0]}), 0),
        (delete_offsets({"t": [0]}, "none"), 0),
        (leave(("nobody", None), (member, "i"), ("", "i"), ("", None)), 5),
        (leave(("nobody", None), group="none"), 5),
        (leave(("nobody", None), group="none"), 2),
        (leave(("nobody", None)), 2),
        (leave(("nobody", None), group=""), 5),
    )  # fmt: skip
    for version in range(1, 10):
        for partitions in ({"t": [0, 1], "no": [0]}, None):
            if version >= 2 or partitions:
                script.note(await fetched(b, version, partitions))
    await script.described(a, "g", "far")
    await script.codes(a, (leave((member, None)), 5), (heartbeat(member, generation), 4))
    await script.codes(a, (commit({("t", 1): 1}), 9), (delete_offsets({"t": [0]}), 0))
    await script.codes(a, (commit({("t", 1): 1}, member_id=member, generation=generation), 9))
    await script.described(a, "g")
    script.note(await fetched(b, 9, None))
    await script.codes(a, (delete("g"), 2), (delete("g"), 2))
    await script.described(a, "g")


async def rebalance(script: Script) -> None:
    """Two members through a rebalance, and requests to every state on the way."""
    a, b, c = [await script.connect() for _ in range(3)]
    first = await alone(a)
    me, generation = first.member_id, first.generation_id
    second = await b.call(join(), 9)
    script.note_join(second)
    await script.codes(
        c, (heartbeat(second.member_id, generation), 4), (heartbeat(me, generation), 4)
    )
    coming = asyncio.create_task(b.call(join(member_id=second.member_id), 9))
    await asyncio.sleep(QUIET_S)
    script.note(coming.done())
    await script.described(c, "g")
    await script.codes(  # PreparingRebalance
        c,
        (heartbeat(me, generation), 4),
        (heartbeat(second.member_id, generation), 4),
        (sync(me, generation), 5),
        (commit({("t", 0): 1}, member_id=me, generation=generation), 9),
        (commit({("t", 0): 1}), 9),
        (delete("g"), 2),
    )
    script.note_join(await a.call(join(member_id=me), 9))
    answer = script.note_join(await coming)
    generation, other = answer.generation_id, second.member_id
    await script.described(c, "g")
    await script.codes(  # CompletingRebalance
        c,
        (heartbeat(me, generation), 4),
        (heartbeat(other, generation - 1), 4),
        (commit({("t", 0): 1}, member_id=other, generation=generation), 9),
        (commit({("t", 0): 1}), 9),
        (sync(other, generation - 1), 5),
        (delete("g"), 2),
    )
    script.note_join(await c.call(join(member_id=other), 9))  # the same words again
    script.note_join(await c.call(join(member_id=me), 9))
    waiting = asyncio.create_task(b.call(sync(other, generation), 5))
    await asyncio.sleep(QUIET_S)
    script.note(waiting.done())
    await script.codes(c, (sync(other, 9), 5))
    shares = {me: b"left", other: b"right", "nobody": b"x"}
    for answer in (await a.call(sync(me, generation, shares), 5), await waiting):
        script.note(answer.error_code, answer.assignment, answer.protocol_name)
    await script.described(c, "g")
    script.note_join(await c.call(join(member_id=other), 9))  # a follower in the same words
    leading = asyncio.create_task(a.call(join(member_id=me), 9))
    await asyncio.sleep(QUIET_S)
    script.note(leading.done())
    await script.codes(c, (leave((other, None)), 5))
    answer = script.note_join(await leading)
    waiting = asyncio.create_task(a.call(sync(me, answer.generation_id - 1), 5))
    script.note((await waiting).error_code)
    await script.codes(c, (leave((me, None)), 5))
    await script.described(c, "g")
    await script.codes(c, (delete("g"), 2))


async def static(script: Script) -> None:
    """Static members that come back, lead, are fenced and removed."""
    for version in (5, 8, 9):
        group = f"s{version}"
        a, b, c = [await script.connect() for _ in range(3)]
        old = await alone(a, version, group=group, group_instance_id="i")
        new = script.note_join(await joined(b, version, group=group, group_instance_id="i"))
        await script.codes(
            c,
            (heartbeat(old.member_id, 1, group_instance_id="i", group_id=group), 4),
            (heartbeat(old.member_id, 1, group_id=group), 4),
            (heartbeat(new.member_id, 1, group_instance_id="i", group_id=group), 4),
            (heartbeat(new.member_id, 1, group_instance_id="j", group_id=group), 4),
            (sync(old.member_id, 1, group_instance_id="i", group_id=group), 5),
            (commit({("t", 0): 1}, group=group, member_id=old.member_id, generation=1, instance_id="i"), 9),
            (commit({("t", 0): 1}, group=group, member_id=new.member_id, generation=1, instance_id="i"), 9),
            (leave((old.member_id, "i"), group=group), 5),
        )  # fmt: skip
        script.note_join(
            await c.call(join(group, member_id=old.member_id, group_instance_id="i"), version)
        )
        answer = await b.call(sync(new.member_id, 1, group_id=group), 5)
        script.note(answer.error_code, answer.assignment)
        await script.described(c, group)
        third = asyncio.create_task(joined(c, version, group=group))
        await asyncio.sleep(QUIET_S)
        again = asyncio.create_task(
            b.call(join(group, member_id=new.member_id, group_instance_id="i"), version)
        )
        script.note_join(await again)
        script.note_join(await third)
        # Replaced while the assignment is due: another rebalance.
        replaced = asyncio.create_task(joined(a, version, group=group, group_instance_id="i"))
        await asyncio.sleep(QUIET_S)
        script.note(replaced.done())
        script.note_join(await c.call(join(group, member_id=(await third).member_id), version))
        script.note_join(await replaced)
        await script.codes(b, (leave(("", "i"), ("", "none"), group=group), 5))


async def choice(script: Script) -> None:
    """The votes for a protocol."""
    a, b = await script.connect(), await script.connect()
    first = await alone(a, protocols=offers("range", "sticky"))
    coming = asyncio.create_task(joined(b, protocols=offers("sticky", "range")))
    await asyncio.sleep(QUIET_S)
    again = join(member_id=first.member_id, protocols=offers("sticky", "range", "own"))
    script.note((await a.call(again, 9)).protocol_name, (await coming).protocol_name)


Play = Callable[[Script], Awaitable[None]]


async def played(play: Play, address: str) -> list[Any]:
    """Play a script on a server; return its notes."""
    async with AsyncExitStack() as stack:
        script = Script(stack, address)
        connection = await script.connect()
        topic = CreateTopicsRequestCreatableTopic(name="t", num_partitions=2, replication_factor=1)
        await connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
        await asyncio.wait_for(play(script), 120)
        return script.notes


async def warm(address: str) -> None:
    """Wait until a broker that has just started has its topic of offsets."""
    async with connected(address) as connection:
        while True:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
            (row,) = (await connection.call(request, 4)).coordinators
            answer = await connection.call(heartbeat("nobody", 1), 4)
            if not row.error_code and answer.error_code == 25:
                return
            await asyncio.sleep(0.2)


async def test_our_answers_are_the_real_brokers(tmp_path: Path) -> None:
    real = RealBroker(tmp_path / "real")
    real.log.mkdir(parents=True)
    try:
        await asyncio.to_thread(real.start)
        await asyncio.wait_for(warm(real.address), 60)
        for number, play in enumerate((first_members, steady, rebalance, static, choice)):
            theirs = await played(play, real.address)
            async with broker(tmp_path / f"ours-{number}") as ours:
                mine = await played(play, ours.address)
            assert len(mine) == len(theirs)
            for our_note, their_note in zip(mine, theirs, strict=True):
                assert our_note == their_note, play.__name__
    finally:
        await asyncio.to_thread(real.end, kill=True)
