"""Hostile, slow, many and idle connections: each ends alone, and what it holds is bounded."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import random
import socket
import struct
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from api.kafka.apis import SERVED
from api.kafka.call import PRODUCE
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.cluster import ApiVersionsRequest, FindCoordinatorRequest
from api.kafka.protocol.messages.groups import HeartbeatRequest
from api.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.http.harness import BATCH
from tests.wire.harness import (
    API_VERSIONS,
    BOTH,
    Broker,
    Connection,
    answer,
    batch,
    broker,
    fetch,
    frame,
    produce,
)


@pytest.mark.parametrize("version", range(5))
async def test_api_versions(connection: Connection, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    response = await connection.call(request, version)
    assert response.error_code == 0
    offered = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert offered == {**{key: (row.first, row.last) for key, row in SERVED.items()}, 0: (0, 13)}


async def test_a_client_id_of_any_bytes(connection: Connection) -> None:
    """It is for people, so bytes that are no UTF-8 are no reason to end the connection."""
    data = frame(MetadataRequest(topics=None), 12, client_id="abcd").replace(b"abcd", b"a\xff\xfeb")
    connection.writer.write(data)
    assert answer(MetadataRequest.API_KEY, 12, await connection.read()).brokers


async def test_api_versions_of_the_future(connection: Connection) -> None:
    """KIP-511: the answer is one of version 0, so that the client can read it."""
    connection.writer.write(frame(ApiVersionsRequest(), 4).replace(b"\0\x12\0\4", b"\0\x12\0\x63"))
    response = answer(API_VERSIONS, 0, await connection.read())
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert len(response.api_keys) == len(SERVED)
    assert (await connection.call(MetadataRequest(topics=None), 12)).topics == []


@pytest.mark.parametrize("cuts", [(), (3,), (4, 70_000), (66_000, 150_000), (-1,)])
async def test_long_frames_in_pieces(connection: Connection, cuts: tuple[int, ...]) -> None:
    """A long frame gets its own memory; the frames before and after it are in the same pieces."""
    await connection.call(MetadataRequest(topics=None), 12)
    names = [produce("none", (0, batch(b"v" * size))) for size in (10, 100_000, 70_000, 10)]
    data = b"".join(frame(request, 11, number) for number, request in enumerate(names))
    ends = [*(len(data) - 1 if cut == -1 else cut for cut in cuts), len(data)]
    for begin, end in zip([0, *ends], ends, strict=False):
        connection.writer.write(data[begin:end])
        await connection.writer.drain()
        await asyncio.sleep(0.01)
    for number in range(len(names)):
        response = answer(PRODUCE, 11, await connection.read(), number)
        row = response.responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def head(key: int, version: int, body: bytes = b"") -> bytes:
    """Return a frame with a header of version 1."""
    data = struct.pack(">hhih", key, version, 1, -1) + body
    return len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="http"),
        pytest.param(b"\xff\xff\xff\xff", id="negative size"),
        pytest.param(b"\x7f\xff\xff\xff", id="2 GiB"),
        pytest.param(b"\0\0\0\1a", id="too short for a header"),
        pytest.param(head(999, 0), id="unknown API"),
        pytest.param(head(3, 99), id="unknown version"),
        pytest.param(head(0, 2), id="version that was removed"),
        pytest.param(head(3, 1), id="message without its fields"),
        pytest.param(head(3, 1, b"\x7f\xff\xff\xff"), id="count beyond the bytes"),
        pytest.param(head(3, 1, b"\0\0\0\1\0\2\xff\xff"), id="no UTF-8"),
        pytest.param(head(3, 1, b"\0\0\0\1\xff\xff"), id="null where none may be"),
        pytest.param(head(11, 0), id="API that is not offered"),
    ],
)
async def test_a_hostile_connection_ends_alone(kafka: Broker, data: bytes) -> None:
    async with kafka.connect() as good, kafka.connect() as bad:
        bad.writer.write(data)
        assert await asyncio.wait_for(bad.is_ended(), 10)
        assert (await good.call(MetadataRequest(topics=None), 12)).topics == []
    assert kafka.service.budget.held_bytes == 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "it speaks HTTP"),
        (b"\x16\x03\x01\x02\0\x01\0", "it speaks TLS, and this port does not"),
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes: the limit is 16777216"),
    ],
)
async def test_another_protocol_is_named(
    kafka: Broker, data: bytes, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with kafka.connect() as bad:
        bad.writer.write(data)
        assert await asyncio.wait_for(bad.is_ended(), 10)
    (said,) = [text for text in caplog.messages if text.startswith("the connection of Kafka")]
    assert said == f"the connection of Kafka client 127.0.0.1 ends: {words}"
    assert 'logserver_kafka_connections_ended_total{reason="frame"} 1.0' in await metrics(kafka)


async def test_the_software_of_a_client_is_logged(
    kafka: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """At its first request, and where its connection ends. An old client does not give it."""
    caplog.set_level("DEBUG", "api.kafka")
    for version, client in ((2, "127.0.0.1"), (3, "127.0.0.1 (some-client 1.2)")):
        caplog.clear()
        software = {"client_software_name": "some-client", "client_software_version": "1.2"}
        async with kafka.connect() as bad:
            await bad.call(ApiVersionsRequest(**software), version)
            bad.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await asyncio.wait_for(bad.is_ended(), 10)
        assert caplog.messages == [
            f"Kafka client {client} has client id test",
            f"the connection of Kafka client {client} ends: it speaks HTTP",
        ]


async def test_random_bytes_and_cut_frames(kafka: Broker) -> None:
    await kafka.api.create("t")
    chance = random.Random(1)
    whole = [
        frame(produce("t", (0, batch(b"a"))), 9),
        frame(fetch("t", (0, 0)), 12),
        frame(MetadataRequest(topics=None), 12),
        frame(ApiVersionsRequest(), 3),
    ]
    for _ in range(200):
        data = bytearray(chance.choice(whole))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(4, len(data))
            data[at] = chance.randrange(256)
        async with kafka.connect() as connection:
            connection.writer.write(bytes(data[: chance.randint(1, len(data))]))
            connection.writer.write_eof()
            await asyncio.wait_for(connection.reader.read(), 10)
    await kafka.until_connected(0)
    assert kafka.service.budget.held_bytes == 0
    assert kafka.service.answers.held_bytes == 0


async def test_frames_in_pieces(kafka: Broker, connection: Connection) -> None:
    for byte in frame(MetadataRequest(topics=None), 12):
        connection.writer.write(bytes([byte]))
        await asyncio.sleep(0)
    assert answer(3, 12, await connection.read()).topics == []


async def test_answers_are_in_the_order_of_the_requests(
    kafka: Broker, connection: Connection
) -> None:
    await kafka.api.create("t")
    connection.writer.write(frame(fetch("t", (0, 0), max_wait_ms=100), 12, 1))
    for number in range(2, 200):
        connection.writer.write(frame(MetadataRequest(topics=None), 12, number))
    for number in range(1, 200):
        body = await asyncio.wait_for(connection.read(), 10)
        assert struct.unpack(">i", body[:4]) == (number,)


async def test_an_answer_of_more_than_a_million_fields(connection: Connection) -> None:
    """The event loop ends a connection that is given more buffers at once."""
    keys = [""] * 200_000
    response = await connection.call(FindCoordinatorRequest(coordinator_keys=keys), 4)
    assert len(response.coordinators) == len(keys)


async def test_requests_that_wait_for_nothing_have_no_tasks(
    kafka: Broker, connection: Connection
) -> None:
    """Many in one piece keep their order, also around requests that wait."""
    await kafka.api.create("t")
    await connection.call(produce("t", (0, batch(b"first"))), 9)
    loop, tasks = asyncio.get_running_loop(), []
    begun = loop.get_task_factory()

    def counted(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        tasks.append(work)
        return asyncio.Task(work, loop=loop, **options)

    loop.set_task_factory(counted)
    try:
        for number in range(20):
            request = frame(produce("t", (0, batch(b"%d" % number)), acks=1), 9, number)
            connection.writer.write(request)
            response = answer(PRODUCE, 9, await connection.read(), number)
            assert response.responses[0].partition_responses[0].base_offset == number + 1
        for number in range(20):
            connection.writer.write(frame(fetch("t", (0, number)), 12, number))
            response = answer(1, 12, await connection.read(), number)
            assert response.responses[0].partitions[0].records
    finally:
        loop.set_task_factory(begun)
    assert tasks == []
    mixed: list[Any] = [
        produce("t", (0, batch(b"x")), acks=1),
        MetadataRequest(topics=None),
        fetch("t", (0, 0)),
        fetch("t", (0, 1 << 20), max_wait_ms=1),
        produce("none", (0, batch(b"x")), acks=1),
    ]
    requests = [mixed[number * 7 % 5] for number in range(300)]
    for number, request in enumerate(requests):
        connection.writer.write(frame(request, 9, number))
    for number, request in enumerate(requests):
        body = await asyncio.wait_for(connection.read(), 10)
        answer(request.API_KEY, 9, body, number)
    assert kafka.service.budget.held_bytes == kafka.service.answers.held_bytes == 0


async def test_a_client_with_slow_requests_leaves_turns_to_others(
    kafka: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a request that took long, the next of the same client is made in a later turn of the loop."""
    await kafka.api.create("t")
    loop, tasks = asyncio.get_running_loop(), []

    def counted(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        tasks.append(work)
        return asyncio.Task(work, loop=loop, **options)

    requests = b"".join(frame(fetch("t", (0, 0), max_wait_ms=0), 12, n) for n in range(4))
    monkeypatch.setattr("api.kafka.connection.perf_counter", itertools.count().__next__)
    loop.set_task_factory(counted)
    try:
        connection.writer.write(requests)
        for number in range(4):
            answer(1, 12, await connection.read(), number)
    finally:
        loop.set_task_factory(None)
    assert len(tasks) >= 1


async def test_half_a_request_after_whole_ones(kafka: Broker, connection: Connection) -> None:
    """Their answers do not wait for its other half."""
    await kafka.api.create("t")
    whole = b"".join(frame(fetch("t", (0, 0), max_wait_ms=0), 12, n) for n in range(6))
    half = frame(produce("t", (0, batch(bytes(100_000)))), 9, 6)
    for cut in (1, 30, 70_000):
        connection.writer.write(whole + half[:cut])
        for number in range(6):
            answer(1, 12, await asyncio.wait_for(connection.read(), 10), number)
        connection.writer.write(half[cut:])
        answer(PRODUCE, 9, await asyncio.wait_for(connection.read(), 10), 6)


async def test_what_is_read_counts_while_a_thread_reads_the_rest(
    kafka: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kafka.api.create("t", 2)
    for number in range(2):
        await connection.call(produce("t", (number, batch(bytes(300_000)))), 9)
    service: Any = kafka.service
    read = service.store.read_batches_promptly

    def only_first(partition: Any, *args: Any, **options: Any) -> Any:
        return None if partition.partition else read(partition, *args, **options)

    monkeypatch.setattr(service.store, "read_batches_promptly", only_first)
    monkeypatch.setattr(service, "_reading", asyncio.Semaphore(0))
    connection.writer.write(frame(fetch("t", (0, 0), (1, 0)), 12, 1))
    await asyncio.sleep(0.2)
    assert service.answers.held_bytes >= 300_000
    service._reading.release()
    rows = answer(1, 12, await connection.read(), 1).responses[0].partitions
    assert all(len(row.records) > 300_000 for row in rows)
    assert service.answers.held_bytes == 0


def long_frames() -> int:
    """Return how many long frames exist that have not arrived."""
    return sum(type(found).__name__ == "_LongFrame" for found in gc.get_objects())


async def test_half_of_a_long_frame_ends_with_its_connection(kafka: Broker) -> None:
    """Though the connection itself may be in memory until the next garbage collection."""
    await kafka.api.create("t")
    async with kafka.connect() as client:
        client.writer.write(frame(produce("t", (0, batch(bytes(1 << 20)))), 9)[:-100])
        async with asyncio.timeout(10):
            while not long_frames():  # noqa: ASYNC110  # the connection has no event for tests
                await asyncio.sleep(0.001)
        held = list(kafka.listener._connections)
    await kafka.until_connected(0)
    assert len(held) == 1
    assert long_frames() == 0


async def test_a_client_that_sends_far_ahead(kafka: Broker) -> None:
    """It takes its answers late: the connection stops reading and goes on, each time that there is room."""
    await kafka.api.create("t")
    async with kafka.connect(limit=1) as connection:
        await connection.call(produce("t", (0, batch(bytes(300_000)))), 9)
        for number in range(400):
            connection.writer.write(frame(fetch("t", (0, 0)), 12, number))
        await asyncio.sleep(0.3)
        for number in range(400):
            body = await asyncio.wait_for(connection.read(), 10)
            assert answer(1, 12, body, number).responses[0].partitions[0].records
        await connection.call(MetadataRequest(topics=None), 12)
    assert kafka.service.budget.held_bytes == kafka.service.answers.held_bytes == 0


async def test_a_client_that_takes_nothing(tmp_path: Path) -> None:
    """Its answers do not gather in memory, others are served, and at last its connection ends."""
    async with broker(tmp_path / "store", body_timeout_ms=1500) as kafka:
        await kafka.api.create("t")
        async with kafka.connect() as fast:
            for _ in range(8):
                await fast.call(produce("t", (0, batch(bytes(900_000)))), 9)
            async with kafka.connect(limit=1) as slow:
                request = fetch("t", (0, 0), max_bytes=8 << 20)
                request.topics[0].partitions[0].partition_max_bytes = 8 << 20
                for _ in range(50):
                    slow.writer.write(frame(request, 12))
                await asyncio.sleep(0.5)
                assert 0 < kafka.service.answers.held_bytes < 9 << 20
                await asyncio.wait_for(fast.call(MetadataRequest(topics=None), 12), 5)
                await asyncio.wait_for(kafka.until_connected(1), 10)
            assert kafka.service.answers.held_bytes == 0


def takes_little(connection: Connection) -> None:
    """Give a client a small buffer in the kernel, so that the server notices when it does not read."""
    connection.writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17
    )


async def test_a_client_that_takes_its_answer_slowly(tmp_path: Path) -> None:
    """It gets the time that it needs, however long its answer lasts."""
    async with broker(tmp_path / "store", body_timeout_ms=1500) as kafka:
        await kafka.api.create("t")
        async with kafka.connect() as fast:
            for _ in range(14):
                await fast.call(produce("t", (0, batch(bytes(1_000_000)))), 9)
        async with kafka.connect(limit=1 << 16) as slow:
            takes_little(slow)
            request = fetch("t", (0, 0), max_bytes=16 << 20)
            request.topics[0].partitions[0].partition_max_bytes = 16 << 20
            slow.writer.write(frame(request, 12))
            size = int.from_bytes(await slow.reader.readexactly(4), "big")
            assert size > 14_000_000
            for _ in range(size // (1 << 20)):
                await slow.reader.readexactly(1 << 20)
                await asyncio.sleep(0.4)
            await slow.reader.readexactly(size % (1 << 20))


async def test_an_ended_connection_does_not_wait_for_its_client(tmp_path: Path) -> None:
    """A client that breaks the protocol, and takes nothing of the answers before, leaves no connection."""
    async with broker(tmp_path / "store", body_timeout_ms=1000) as kafka:
        await kafka.api.create("t")
        async with kafka.connect(limit=1) as bad:
            takes_little(bad)
            await bad.call(produce("t", (0, batch(bytes(30_000)))), 9)
            (connection,) = kafka.listener._connections
            transport = connection._transport
            assert transport is not None
            while transport.get_write_buffer_size() == 0:
                bad.writer.write(frame(fetch("t", (0, 0)), 12))
                await asyncio.sleep(0.01)
            assert connection._writable
            bad.writer.write(b"\xff\xff\xff\xff")
            await asyncio.wait_for(kafka.until_connected(0), 10)


async def test_half_a_frame_ends(tmp_path: Path) -> None:
    async with broker(tmp_path / "store", body_timeout_ms=200) as kafka, kafka.connect() as half:
        half.writer.write(frame(MetadataRequest(topics=None), 12)[:-3])
        assert await asyncio.wait_for(half.is_ended(), 10)
        assert kafka.service.budget.held_bytes == 0


async def test_an_idle_connection_ends(tmp_path: Path) -> None:
    async with broker(tmp_path / "store", kafka_idle_ms=1000) as kafka, kafka.connect() as idle:
        await idle.call(MetadataRequest(topics=None), 12)
        assert await asyncio.wait_for(idle.is_ended(), 10)


@pytest.mark.parametrize("poll_us", [0, 1000])
async def test_an_idle_server_sleeps(tmp_path: Path, poll_us: int) -> None:
    """The loop looks for the next request for a short time only, with whole requests and with half of one."""
    async with broker(tmp_path / "store", kafka_poll_us=poll_us) as kafka, kafka.connect() as idle:
        for _ in range(20):
            await idle.call(MetadataRequest(topics=None), 12)
        idle.writer.write(frame(MetadataRequest(topics=None), 12)[:-3])
        await asyncio.sleep(0.1)
        begun_s = time.process_time()
        await asyncio.sleep(0.5)
        assert time.process_time() - begun_s < 0.25


async def test_requests_wait_for_the_budget(tmp_path: Path) -> None:
    async with broker(
        tmp_path / "store", max_body_bytes=1 << 20, max_in_flight_bytes=1 << 20
    ) as kafka:
        await kafka.api.create("t")
        held = kafka.service.budget.reserve(1 << 20)
        async with kafka.connect() as connection:
            sending = asyncio.create_task(connection.call(produce("t", (0, batch(b"a"))), 9))
            await asyncio.sleep(0.1)
            assert not sending.done()
            held.release()
            response = await asyncio.wait_for(sending, 10)
            assert response.responses[0].partition_responses[0].error_code == 0


async def test_sizes_alone_stop_no_one(tmp_path: Path) -> None:
    """Frames of which only the size arrives hold a part of the budget: HTTP and small requests go on."""
    limit = 1 << 20
    async with broker(
        tmp_path / "store", max_body_bytes=limit, max_in_flight_bytes=4 * limit
    ) as kafka:
        await kafka.api.create("t")
        async with AsyncExitStack() as stack:
            for _ in range(8):
                claiming = await stack.enter_async_context(kafka.connect())
                claiming.writer.write(limit.to_bytes(4, "big") + b"\0\0")
            await kafka.until_connected(8)
            await asyncio.sleep(0.1)
            assert (
                kafka.service.budget.held_bytes == kafka.listener.arriving.held_bytes == 2 * limit
            )
            good = await stack.enter_async_context(kafka.connect())
            for message, version in ((produce("t", (0, batch(b"a"))), 9), (fetch("t", (0, 0)), 12)):
                await asyncio.wait_for(good.call(message, version), 10)
            body = batch(bytes(limit // 2))
            sent = await kafka.api.post("/topics/t/partitions/0", body, content_type=BATCH)
            assert sent.status == 200
        await kafka.until_connected(0)
        assert kafka.service.budget.held_bytes == kafka.listener.arriving.held_bytes == 0


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "with a fetch that waits"])
async def test_a_slow_frame_gives_way(tmp_path: Path, busy: bool) -> None:
    """A frame that comes byte by byte may take its time, until others wait for its share of the budget."""
    limit = 1 << 20
    async with broker(
        tmp_path / "store",
        max_body_bytes=limit,
        max_in_flight_bytes=limit,
        body_timeout_ms=4000,
        max_wait_ms=60_000,
    ) as kafka:
        await kafka.api.create("t")
        async with kafka.connect() as slow, kafka.connect() as good:
            if busy:
                slow.writer.write(frame(fetch("t", (0, 0), max_wait_ms=60_000), 12))
            slow.writer.write(limit.to_bytes(4, "big"))

            async def trickle() -> None:
                while True:
                    slow.writer.write(b"\0")
                    await asyncio.sleep(0.1)

            trickling = asyncio.create_task(trickle())
            await asyncio.sleep(0.3)
            assert kafka.listener.arriving.held_bytes == limit
            large = produce("t", (0, batch(bytes(500_000))))
            response = await asyncio.wait_for(good.call(large, 9), 10)
            assert response.responses[0].partition_responses[0].error_code == 0
            trickling.cancel()
            assert await asyncio.wait_for(slow.is_ended(), 10)


async def test_too_many_connections(tmp_path: Path) -> None:
    """HTTP and Kafka have a limit each: clients of one do not stop clients of the other."""
    async with broker(tmp_path / "store", max_connections=2) as kafka:
        async with kafka.connect() as first, kafka.connect() as second:
            await first.call(MetadataRequest(topics=None), 12)
            await second.call(MetadataRequest(topics=None), 12)
            async with kafka.connect() as third:
                assert await asyncio.wait_for(third.is_ended(), 10)
            assert (await kafka.api.get("/topics")).status == 200
        await kafka.until_connected(0)
        async with kafka.connect() as again:
            await again.call(MetadataRequest(topics=None), 12)


async def test_a_stop_answers_what_waits(tmp_path: Path) -> None:
    async with broker(tmp_path / "store") as kafka:
        await kafka.api.create("t")
        async with kafka.connect() as connection:
            waiting = asyncio.create_task(
                connection.call(fetch("t", (0, 0), max_wait_ms=60_000), 12)
            )
            await kafka.api.until_waiting()
            await asyncio.wait_for(kafka.api.server.stop(), 10)
            assert (await waiting).error_code == 0
            assert await connection.is_ended()


async def test_a_request_while_the_server_stops(kafka: Broker) -> None:
    """The connection ends: a number that is not one of Fetch ends a Java consumer as a bug. A producer tries again."""
    await kafka.api.create("t")
    async with kafka.connect() as reading, kafka.connect() as writing:
        for connection in (reading, writing):
            await connection.call(MetadataRequest(topics=None), 12)
        kafka.service.begin_stop()
        reading.writer.write(frame(fetch("t", (0, 0)), 12))
        assert await asyncio.wait_for(reading.is_ended(), 10)
        writing.writer.write(frame(produce("t", (0, batch(b"a"))), 9))
        try:
            response = answer(0, 9, await asyncio.wait_for(writing.read(), 10))
        except asyncio.IncompleteReadError:
            return
        (row,) = response.responses[0].partition_responses
        assert row.error_code in {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT}


async def metrics(kafka: Broker) -> str:
    """Return all metrics as text."""
    return (await kafka.service.render_metrics()).decode()


async def test_metrics(kafka: Broker, connection: Connection) -> None:
    request = frame(MetadataRequest(topics=None), 12)
    size = 0
    for part in (request[:9], request[9:], request, request):
        connection.writer.write(part)
        if part != request[:9]:
            size += 4 + len(await connection.read())
    text = await metrics(kafka)
    assert 'logserver_kafka_requests_total{api="Metadata",version="12"} 3.0' in text
    assert 'logserver_kafka_request_seconds_count{api="Metadata"} 3.0' in text
    assert f"logserver_kafka_received_bytes_total {3.0 * len(request)}" in text
    assert f"logserver_kafka_sent_bytes_total {float(size)}" in text
    assert "logserver_kafka_connections 1.0" in text
    async with kafka.connect() as second:
        await second.call(ApiVersionsRequest(), 2)
        text = await metrics(kafka)
        assert "logserver_kafka_connections 2.0" in text
    assert "logserver_kafka_connections_opened_total 2.0" in text
    assert "logserver_kafka_errors_total{" not in text


@BOTH
async def test_errors_are_counted(kafka: Broker, connection: Connection) -> None:
    """One of a whole request, and one of each part of it that has an error."""
    await kafka.api.create("t")
    rows = [(0, batch(b"a")), (7, batch(b"a")), (8, batch(b"a"))]
    await connection.call(produce("t", *rows), 9)
    await connection.call(produce("t", (0, batch(b"a")), acks=5), 9)
    await connection.call(fetch("t", (0, 0), (9, 0)), 12)
    await connection.call(fetch("t", (0, 0), session_id=77, session_epoch=2), 12)
    unknown = [MetadataRequestTopic(name=name) for name in ("none", "t")]
    await connection.call(MetadataRequest(topics=unknown, allow_auto_topic_creation=False), 12)
    await connection.call(HeartbeatRequest(group_id="g", member_id="m"), 4)
    connection.writer.write(frame(ApiVersionsRequest(), 4).replace(b"\0\x12\0\4", b"\0\x12\0\x63"))
    await connection.read()
    counted = [
        ("Produce", "UNKNOWN_TOPIC_OR_PARTITION", 2),
        ("Produce", "INVALID_REQUIRED_ACKS", 1),
        ("Fetch", "UNKNOWN_TOPIC_OR_PARTITION", 1),
        ("Fetch", "FETCH_SESSION_ID_NOT_FOUND", 1),
        ("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", 1),
        ("Heartbeat", "UNKNOWN_MEMBER_ID", 1),
        ("ApiVersions", "UNSUPPORTED_VERSION", 1),
    ]
    lines = [
        f'logserver_kafka_errors_total{{api="{api}",error="{error}"}} {count}.0'
        for api, error, count in counted
    ]
    text = await metrics(kafka)
    assert [line for line in text.splitlines() if line in lines] == lines
    assert text.count("logserver_kafka_errors_total{") == len(lines)


@BOTH
async def test_stored_records_and_bytes_are_counted(kafka: Broker, connection: Connection) -> None:
    """Of small batches and large ones, with every acks; not of refused ones."""
    await kafka.api.create("t")
    small, large = batch(b"a", b"b"), batch(bytes(200_000))
    for acks in (0, 1, -1):
        connection.writer.write(frame(produce("t", (0, small), (0, large), acks=acks), 9))
        if acks:
            await connection.read()
    await connection.call(produce("t", (9, small)), 9)
    text = (await kafka.service.render_metrics()).decode()
    assert "logserver_produced_records_total 9.0" in text
    assert f"logserver_produced_bytes_total {3.0 * len(small + large)}" in text


@pytest.mark.slow
async def test_five_thousand_idle_connections(tmp_path: Path) -> None:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 12_000:
        reason = f"needs 12,000 open files: a process may open {hard} here (ulimit -Hn)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    resource.setrlimit(resource.RLIMIT_NOFILE, (12_000, hard))
    async with broker(tmp_path / "store", max_connections=6000) as kafka:
        host, port = kafka.address.rsplit(":", 1)
        opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        try:
            while len(opened) < 5000:
                opened.append(await asyncio.open_connection(host, int(port)))
            await asyncio.wait_for(kafka.until_connected(5000), 60)
            for reader, writer in opened[::100]:
                writer.write(frame(MetadataRequest(topics=None), 12))
                size = int.from_bytes(await reader.readexactly(4), "big")
                assert len(await reader.readexactly(size)) == size
            assert (await kafka.api.get("/topics")).status == 200
        finally:
            for _, writer in opened:
                writer.transport.abort()
        await asyncio.wait_for(kafka.until_connected(0), 60)
