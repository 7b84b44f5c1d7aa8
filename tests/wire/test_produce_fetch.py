"""Produce, fetch, list offsets and metadata, in every version that is offered."""

from __future__ import annotations

import asyncio
import errno
import struct
import threading
from functools import partial
from pathlib import Path
from time import perf_counter, sleep, time
from typing import Any

import pytest

from api.kafka.apis import SERVED
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from api.kafka.protocol.messages.offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestOffsetForLeaderPartition,
    OffsetForLeaderEpochRequestOffsetForLeaderTopic,
)
from api.kafka.protocol.messages.produce import InitProducerIdRequest
from storage import Record, TopicPartition
from storage.files import RealFileSystem
from storage.kafka.format.batch import (
    CONTROL,
    HEADER_SIZE,
    TRANSACTIONAL,
    decode_header,
    encode_batch,
    encode_control_batch,
    seal,
    split_batches,
)
from storage.kafka.format.compression import CODECS
from tests.http.harness import BATCH
from tests.robustness.crash.faulty import FaultyFileSystem, fails, no_fault
from tests.wire import transaction_requests as transactions
from tests.wire.harness import (
    BACKENDS,
    BOTH,
    Broker,
    Connection,
    answer,
    batch,
    broker,
    fetch,
    frame,
    produce,
    values,
)

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
OFFSET_FOR_LEADER_EPOCH = 23


def versions(key: int) -> range:
    """Return the versions of an API that are offered."""
    return range(SERVED[key].first, SERVED[key].last + 1)


def rows(response: object) -> list[object]:
    """Return the partitions of a produce response."""
    return [row for topic in response.responses for row in topic.partition_responses]  # type: ignore[attr-defined]


async def sent(connection: Connection, *data: bytes, topic: str = "t") -> None:
    """Produce batches, each by its own request, and expect success."""
    for one in data:
        (row,) = rows(await connection.call(produce(topic, (0, one)), 9))
        assert row.error_code == 0  # type: ignore[attr-defined]


@BOTH
@pytest.mark.parametrize("version", versions(PRODUCE))
async def test_produce_every_version(kafka: Broker, connection: Connection, version: int) -> None:
    await kafka.api.create("t", 2)
    if not kafka.offers(PRODUCE, version):  # of transactions that this format does not have
        connection.writer.write(frame(produce("t", (1, batch(b"a"))), version))
        assert await connection.is_ended()
        return
    for data, offset in ((batch(b"a", b"b"), 0), (batch(b"c"), 2)):
        request = produce("t", (1, data))
        await connection.name_by_id(*request.topic_data)
        (row,) = rows(await connection.call(request, version))
        assert (row.index, row.error_code, row.base_offset) == (1, 0, offset)  # type: ignore[attr-defined]


@BOTH
@pytest.mark.parametrize("version", versions(FETCH))
async def test_fetch_every_version(kafka: Broker, connection: Connection, version: int) -> None:
    await kafka.api.create("t")
    await sent(connection, batch(b"a", b"b"), batch(b"c"))
    request = fetch("t", (0, 1))
    if version >= 13:
        (topic,) = (await connection.call(MetadataRequest(topics=None), 12)).topics
        request.topics[0].topic, request.topics[0].topic_id = "", topic.topic_id
    response = await connection.call(request, version)
    assert response.error_code == 0
    (row,) = response.responses[0].partitions
    assert (row.error_code, row.high_watermark, row.last_stable_offset) == (0, 3, 3)
    # A stored batch that begins before the offset is returned whole.
    assert values(row.records) == ([b"a", b"b", b"c"] if kafka.keeps_batches else [b"b", b"c"])
    assert row.aborted_transactions is None


@BOTH
@pytest.mark.parametrize("version", versions(LIST_OFFSETS))
async def test_list_offsets_every_version(
    kafka: Broker, connection: Connection, version: int
) -> None:
    await kafka.api.create("t")
    await sent(connection, batch(b"a", b"b"))

    async def offset(timestamp_ms: int, topic: str = "t") -> tuple[int, int, int]:
        asked = ListOffsetsRequestPartition(partition_index=0, timestamp=timestamp_ms)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsRequestTopic(name=topic, partitions=[asked])]
        )
        (row,) = (await connection.call(request, version)).topics[0].partitions
        return row.error_code, row.offset, row.timestamp

    assert await offset(-1) == (0, 2, -1)
    assert await offset(-2) == (0, 0, -1)
    code, found, time_ms = await offset(1)
    assert (code, found) == (0, 0)
    assert (time_ms == 1_700_000_000_000) == kafka.keeps_batches  # RocketMQ looks up store times
    assert await offset(1 << 60) == (0, -1, -1)
    assert await offset(-1, "other") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


@BOTH
@pytest.mark.parametrize("version", versions(METADATA))
async def test_metadata_every_version(kafka: Broker, connection: Connection, version: int) -> None:
    await kafka.api.create("t", 2)
    request = MetadataRequest(topics=None if version else [])
    response = await connection.call(request, version)
    (node,) = response.brokers
    assert f"{node.host}:{node.port}" == kafka.address
    (topic,) = response.topics
    assert (topic.name, len(topic.partitions)) == ("t", 2)
    assert all(row.leader_id == node.node_id for row in topic.partitions)
    assert version < 2 or response.cluster_id == kafka.service.cluster_id
    if version:
        assert (await connection.call(MetadataRequest(topics=[]), version)).topics == []


@BOTH
async def test_metadata_creates_a_topic_only_if_client_and_server_want_it(
    kafka: Broker, connection: Connection, tmp_path: Path
) -> None:
    def asked(name: str, *, allow: bool) -> MetadataRequest:
        topics = [MetadataRequestTopic(name=name)]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=allow)

    (topic,) = (await connection.call(asked("t", allow=False), 12)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (topic,) = (await connection.call(asked("t", allow=True), 12)).topics
    assert (topic.error_code, topic.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    (topic,) = (await connection.call(asked("t", allow=False), 12)).topics
    assert (topic.error_code, len(topic.partitions)) == (0, 1 if kafka.keeps_batches else 8)
    (topic,) = (await connection.call(asked("a b", allow=True), 12)).topics
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    async with (
        broker(tmp_path / "other", auto_create_topics=False) as strict,
        strict.connect() as other,
    ):
        (topic,) = (await other.call(asked("t", allow=True), 12)).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_advertised_address(tmp_path: Path) -> None:
    from logserver.config import Address

    advertised = Address("broker.example", 9999)
    async with (
        broker(tmp_path / "store", advertise_kafka=advertised) as kafka,
        kafka.connect() as connection,
    ):
        (node,) = (await connection.call(MetadataRequest(topics=None), 12)).brokers
        assert (node.host, node.port) == advertised


@BOTH
@pytest.mark.parametrize("codec", range(len(CODECS)))
@pytest.mark.parametrize("acks", [-1, 1])
async def test_every_codec_and_acks(
    kafka: Broker, connection: Connection, codec: int, acks: int
) -> None:
    await kafka.api.create("t")
    data = batch(*(b"value %d" % number for number in range(100)), codec=codec)
    (row,) = rows(await connection.call(produce("t", (0, data), acks=acks), 9))
    assert (row.error_code, row.base_offset) == (0, 0)  # type: ignore[attr-defined]
    response = await connection.call(fetch("t", (0, 0)), 12)
    (found,) = response.responses[0].partitions
    # The bytes that the client sent, but for base offset and leader epoch; messages come without compression.
    plain = batch(*(b"value %d" % number for number in range(100)))
    assert found.records[16:] == (data if kafka.keeps_batches else plain)[16:]
    assert len(values(found.records)) == 100


async def test_bytes_are_those_of_http(kafka: Broker, connection: Connection) -> None:
    await kafka.api.create("wire")
    await kafka.api.create("http")
    data = batch(b"a", b"b")
    await sent(connection, data, topic="wire")
    await kafka.api.call(
        "POST", "/topics/http/partitions/0", data=data, headers={"Content-Type": BATCH}
    )
    store = kafka.service.store
    logs = [
        (kafka.service.settings.data / f"{name}-0" / "00000000000000000000.log").read_bytes()
        for name in ("wire", "http")
    ]
    assert logs[0] == logs[1] != b""
    assert store.capabilities.batch_bytes


@BOTH
async def test_no_answer_to_acks_0_and_an_error_ends_the_connection(kafka: Broker) -> None:
    await kafka.api.create("t")
    async with kafka.connect() as connection:
        connection.writer.write(frame(produce("t", (0, batch(b"a")), acks=0), 9))
        await connection.call(
            MetadataRequest(topics=None), 12
        )  # the next answer is that of this one
        connection.writer.write(frame(produce("other", (0, batch(b"a")), acks=0), 9))
        assert await connection.is_ended()
    async with kafka.connect() as connection:
        connection.writer.write(frame(produce("", (0, batch(b"a")), acks=0), 13))  # no such id
        assert await connection.is_ended()
    async with kafka.connect() as connection:
        response = await connection.call(fetch("t", (0, 0)), 12)
        assert values(response.responses[0].partitions[0].records) == [b"a"]


def broken(data: bytes, at: int, new: bytes) -> bytes:
    """Return a batch with other bytes at a position."""
    return data[:at] + new + data[at + len(new) :]


@BOTH
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (broken(batch(b"a"), 60, b"\xff"), ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a")[:-1], ErrorCode.INVALID_RECORD),
        (broken(batch(b"a"), 16, b"\1"), ErrorCode.INVALID_RECORD),
        (broken(batch(b"a"), 16, b"\3"), ErrorCode.CORRUPT_MESSAGE),
        (broken(batch(b"a"), 7, b"\5"), ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (None, ErrorCode.INVALID_RECORD),
        (batch(b"x" * 5_000_000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
async def test_bad_batches(
    kafka: Broker, connection: Connection, data: bytes | None, code: ErrorCode
) -> None:
    """One bad partition does not harm the others of its request."""
    await kafka.api.create("t", 2)
    bad, good = rows(await connection.call(produce("t", (0, data), (1, batch(b"a"))), 9))
    assert bad.error_code == code  # type: ignore[attr-defined]
    assert bad.error_message  # type: ignore[attr-defined]
    assert (good.error_code, good.base_offset) == (0, 0)  # type: ignore[attr-defined]


@BOTH
async def test_errors_of_partitions(kafka: Broker, connection: Connection) -> None:
    await kafka.api.create("t")
    data = batch(b"a")
    missing, good = rows(await connection.call(produce("t", (5, data), (0, data)), 9))
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # type: ignore[attr-defined]
    assert good.error_code == 0  # type: ignore[attr-defined]
    (row,) = rows(await connection.call(produce("t", (0, data), acks=2), 9))
    assert row.error_code == ErrorCode.INVALID_REQUIRED_ACKS  # type: ignore[attr-defined]
    response = await connection.call(fetch("t", (0, 9), (7, 0)), 12)
    beyond, missing = response.responses[0].partitions
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert beyond.records == b""


@BOTH
async def test_idempotent_producer(kafka: Broker, connection: Connection) -> None:
    await kafka.api.create("t")
    for version in filter(lambda one: kafka.offers(22, one), versions(22)):
        found = await connection.call(InitProducerIdRequest(transactional_id=None), version)
        assert (found.error_code, found.producer_epoch) == (0, 0)

    async def produced(epoch: int, sequence: int) -> tuple[int, int]:
        data = batch(b"a", producer=(found.producer_id, epoch, sequence))
        (row,) = rows(await connection.call(produce("t", (0, data)), 9))
        return row.error_code, row.base_offset  # type: ignore[attr-defined]

    assert await produced(1, 0) == (0, 0)
    assert await produced(1, 1) == (0, 1)
    assert await produced(1, 1) == (0, 1)  # sent again: not stored again
    assert await produced(1, 9) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await produced(0, 2) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


@BOTH
async def test_requests_in_flight_are_appended_in_order(
    kafka: Broker, connection: Connection
) -> None:
    """Large and small batches, packed and plain, are checked in different ways, and stay in order."""
    await kafka.api.create("t")
    found = await connection.call(InitProducerIdRequest(transactional_id=None), 4)
    for number in range(20):
        value = b"%d" % number + bytes(100_000 if number % 3 == 0 else 1)
        data = batch(value, codec=number % 2, producer=(found.producer_id, 0, number))
        connection.writer.write(frame(produce("t", (0, data)), 9, correlation_id=number))
    for number in range(20):
        body = await connection.read()
        assert struct.unpack(">i", body[:4]) == (number,)
    assert (await kafka.service.bounds(kafka.service.topics.partition("t", 0))).end == 20


async def test_a_request_of_many_batches_lets_others_take_turns(
    kafka: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small batches are appended on the event loop, which serves all clients. The next request still comes after."""
    await kafka.api.create("t")
    now_s = 0.0
    turn = 0
    turns: list[int] = []
    store: Any = kafka.service.store
    append = store.append_batches_promptly

    def appended(*args: Any, **options: Any) -> Any:
        nonlocal now_s
        now_s += 0.001
        turns.append(turn)
        return append(*args, **options)

    async def others() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    monkeypatch.setattr(store, "append_batches_promptly", appended)
    monkeypatch.setattr("api.kafka.call.perf_counter", lambda: now_s)
    monkeypatch.setattr("logserver.service.commit.SLOW_S", 60.0)  # none goes to the thread
    counting = asyncio.create_task(others())
    many = produce("t", *[(0, batch(b"a"))] * 100, acks=1)
    connection.writer.write(frame(many, 9) + frame(produce("t", (0, batch(b"b")), acks=1), 9))
    offsets = [row.base_offset for row in rows(answer(PRODUCE, 9, await connection.read()))]  # type: ignore[attr-defined]
    (last,) = rows(answer(PRODUCE, 9, await connection.read()))
    counting.cancel()
    assert [*offsets, last.base_offset] == list(range(101))  # type: ignore[attr-defined]
    assert len(set(turns)) >= 10


@BOTH
async def test_a_fetch_waits_for_records(kafka: Broker, connection: Connection) -> None:
    await kafka.api.create("t", 2)
    waiting = asyncio.create_task(
        connection.call(fetch("t", (0, 0), (1, 0), max_wait_ms=20_000), 12)
    )
    await kafka.api.until_waiting()
    async with kafka.connect() as other:
        await other.call(produce("t", (1, batch(b"a"))), 9)
    response = await asyncio.wait_for(waiting, 10)
    assert [values(row.records) for row in response.responses[0].partitions] == [[], [b"a"]]


@BOTH
async def test_a_fetch_ends_after_its_time(kafka: Broker, connection: Connection) -> None:
    await kafka.api.create("t")
    response = await connection.call(fetch("t", (0, 0), max_wait_ms=50), 12)
    assert values(response.responses[0].partitions[0].records) == []
    # More bytes than there are.
    await sent(connection, batch(b"a"))
    response = await connection.call(fetch("t", (0, 0), max_wait_ms=50, min_bytes=10_000), 12)
    assert values(response.responses[0].partitions[0].records) == [b"a"]


@BOTH
async def test_bytes_are_limited_but_for_the_first_batch(
    kafka: Broker, connection: Connection
) -> None:
    await kafka.api.create("t", 2)
    for number in (0, 1):
        await connection.call(produce("t", (number, batch(bytes(5000)))), 9)
    response = await connection.call(fetch("t", (0, 0), (1, 0), max_bytes=100), 12)
    first, second = response.responses[0].partitions
    assert (len(values(first.records)), second.records, second.high_watermark) == (1, b"", 1)


@pytest.mark.parametrize("key", [FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH])
async def test_the_leader_epoch_of_a_client(tmp_path: Path, key: int) -> None:
    """A client that knows an older or a newer leader epoch gets an error, as from Partition.checkCurrentLeaderEpoch."""
    path = tmp_path / "store"
    for _ in range(2):  # the first append after a start raises the epoch
        async with broker(path) as kafka, kafka.connect() as connection:
            if "t" not in kafka.service.topics:
                await kafka.api.create("t")
            await sent(connection, batch(b"a"))
    async with broker(path) as kafka, kafka.connect() as connection:
        (topic,) = (await connection.call(MetadataRequest(topics=None), 12)).topics
        assert topic.partitions[0].leader_epoch == 1
        codes = [await epoch_error(connection, key, epoch) for epoch in (-1, 0, 1, 2)]
    fenced, unknown = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH
    assert codes == [0, fenced, 0, unknown]


async def epoch_error(connection: Connection, key: int, epoch: int) -> int:
    """Ask with a leader epoch; return the number of the error."""
    if key == FETCH:
        request = fetch("t", (0, 0))
        request.topics[0].partitions[0].current_leader_epoch = epoch
        (row,) = (await connection.call(request, 12)).responses[0].partitions
        assert bool(row.records) == (row.error_code == 0)
    elif key == LIST_OFFSETS:
        asked = ListOffsetsRequestPartition(
            partition_index=0, timestamp=-1, current_leader_epoch=epoch
        )
        topics = [ListOffsetsRequestTopic(name="t", partitions=[asked])]
        (row,) = (await connection.call(ListOffsetsRequest(topics=topics), 7)).topics[0].partitions
    else:
        wish = OffsetForLeaderEpochRequestOffsetForLeaderPartition(
            partition=0, leader_epoch=0, current_leader_epoch=epoch
        )
        of_topic = OffsetForLeaderEpochRequestOffsetForLeaderTopic(topic="t", partitions=[wish])
        response = await connection.call(OffsetForLeaderEpochRequest(topics=[of_topic]), 4)
        (row,) = response.topics[0].partitions
    return int(row.error_code)


@BOTH
async def test_a_missing_partition_of_a_topic_by_id(kafka: Broker, connection: Connection) -> None:
    """The id is known: it is the partition that is missing, and the client asks for the metadata."""
    await kafka.api.create("t")
    (topic,) = (await connection.call(MetadataRequest(topics=None), 12)).topics
    for topic_id, code in (
        (topic.topic_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (bytes(15) + b"x", ErrorCode.UNKNOWN_TOPIC_ID),
    ):
        request = fetch("t", (5, 0))
        request.topics[0].topic, request.topics[0].topic_id = "", topic_id
        (row,) = (await connection.call(request, 13)).responses[0].partitions
        assert row.error_code == code


async def test_partitions_after_a_full_answer_are_not_read(
    kafka: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their bounds are in the answer all the same, and a wrong offset is an error."""
    await kafka.api.create("t", 4)
    for number in range(4):
        await connection.call(produce("t", (number, batch(b"a"))), 9)
    reads = []

    def counted(read: Any, partition: TopicPartition, *args: Any, **options: Any) -> Any:
        reads.append(partition.partition)
        return read(partition, *args, **options)

    prompt: Any = kafka.service.store
    late: Any = kafka.service.batches  # a thread reads on after a slow read
    for owner, name in ((prompt, "read_batches_promptly"), (late, "read_batches")):
        monkeypatch.setattr(owner, name, partial(counted, getattr(owner, name)))
    request = fetch("t", (0, 0), (1, 0), (2, 7), (3, 1), max_bytes=1)
    answered = (await connection.call(request, 12)).responses[0].partitions
    assert [(row.error_code, row.high_watermark, bool(row.records)) for row in answered] == [
        (0, 1, True),
        (0, 1, False),
        (ErrorCode.OFFSET_OUT_OF_RANGE, -1, False),
        (0, 1, False),
    ]
    assert reads == [0, 2]


async def test_a_timeout_of_nothing_waits_as_long_as_the_server_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append that takes too long is answered, and still made."""
    limit_ms = 300
    async with (
        broker(tmp_path / "store", flush="sync", max_wait_ms=limit_ms) as kafka,
        kafka.connect() as connection,
    ):
        await kafka.api.create("t")
        store, may_go = kafka.service.store, threading.Event()
        flush = store.flush

        def slow(partitions: Any = None) -> None:
            may_go.wait(10)
            flush(partitions)

        monkeypatch.setattr(store, "flush", slow)
        request, begun_s = produce("t", (0, batch(b"a")), timeout_ms=0), perf_counter()
        answer = await asyncio.wait_for(connection.call(request, 9), 5)
        (row,) = answer.responses[0].partition_responses
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert perf_counter() - begun_s > 0.9 * limit_ms / 1000
        may_go.set()
        request = produce("t", (0, batch(b"b")), timeout_ms=0)
        (row,) = (await connection.call(request, 9)).responses[0].partition_responses
        assert (row.error_code, row.base_offset) == (0, 1)


async def test_requests_of_a_connection_are_appended_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record with acks=1 does not overtake one with acks=all, which waits for the disk."""
    async with broker(tmp_path / "store", flush="sync") as kafka, kafka.connect() as connection:
        await kafka.api.create("t")
        store: Any = kafka.service.store
        append = store.append_batches

        def slow(*arguments: Any, **named: Any) -> Any:
            sleep(0.2)
            return append(*arguments, **named)

        monkeypatch.setattr(store, "append_batches", slow)
        for acks in (-1, 1, -1):
            connection.writer.write(frame(produce("t", (0, batch(b"v")), acks=acks), 9))
        answers = [answer(PRODUCE, 9, await connection.read()) for _ in range(3)]
        rows = [each.responses[0].partition_responses[0] for each in answers]
        assert [(row.error_code, row.base_offset) for row in rows] == [(0, 0), (0, 1), (0, 2)]


async def test_every_record_without_a_key_is_named(kafka: Broker, connection: Connection) -> None:
    """Clients then send the other records of a refused batch again, as they do with the real broker."""
    await kafka.api.create("t", cleanup_policy="compact")
    records = [Record(b"k" if n % 3 else None, b"v", timestamp_ms=1) for n in range(7)]
    for codec in (0, CODECS.index("gzip")):
        data = encode_batch(records, base_offset=0, leader_epoch=-1, now_ms=0, codec=codec)
        (row,) = rows(await connection.call(produce("t", (0, data)), 9))
        assert row.error_code == ErrorCode.INVALID_RECORD  # type: ignore[attr-defined]
        assert [e.batch_index for e in row.record_errors] == [0, 3, 6]  # type: ignore[attr-defined]


async def test_every_record_with_a_wrong_time_is_named(
    kafka: Broker, connection: Connection
) -> None:
    await kafka.api.create("t", message_timestamp_before_max_ms="1000")
    now_ms = int(time() * 1000)
    times_ms = [1, now_ms + 60_000, 2, -1]
    records = [Record(b"k", b"v", timestamp_ms=time_ms) for time_ms in times_ms]
    data = encode_batch(records, base_offset=0, leader_epoch=-1, now_ms=0)
    (row,) = rows(await connection.call(produce("t", (0, data)), 9))
    assert row.error_code == ErrorCode.INVALID_TIMESTAMP  # type: ignore[attr-defined]
    assert [e.batch_index for e in row.record_errors] == [0, 2]  # type: ignore[attr-defined]


async def code_and_offset(connection: Connection, acks: int, *values: bytes) -> tuple[int, int]:
    """Produce one batch, and return the number of the error and the offset."""
    (row,) = rows(await connection.call(produce("t", (0, batch(*values)), acks=acks), 9))
    return row.error_code, row.base_offset  # type: ignore[attr-defined]


async def fetched(connection: Connection) -> list[bytes | None]:
    """Return the values of partition 0."""
    (row,) = (await connection.call(fetch("t", (0, 0)), 12)).responses[0].partitions
    assert row.error_code == 0
    return values(row.records)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("backend", BACKENDS)
async def test_produce_on_a_full_disk(tmp_path: Path, backend: str, acks: int) -> None:
    """A number that producers try again; nothing of the request is stored, and the connection goes on."""
    fs, path = FaultyFileSystem(RealFileSystem()), tmp_path / "store"
    async with broker(path, backend, fs=fs) as kafka, kafka.connect() as connection:
        await kafka.service.topics.create("t", 1, None)
        assert await code_and_offset(connection, acks, b"a") == (0, 0)
        fs.fault = fails(errno.ENOSPC, "write")
        for size in (1, 200_000):  # on the event loop, and in a thread
            full = await code_and_offset(connection, acks, b"x" * size)
            assert full == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert await fetched(connection) == [b"a"]
        fs.fault = no_fault
        assert await code_and_offset(connection, acks, b"b") == (0, 1)
        assert await fetched(connection) == [b"a", b"b"]
    async with broker(path, backend) as kafka, kafka.connect() as connection:
        assert await fetched(connection) == [b"a", b"b"]


@pytest.mark.parametrize("backend", BACKENDS)
async def test_produce_after_a_failed_sync(tmp_path: Path, backend: str) -> None:
    """The store takes no more writes, also of acks=1. What was acknowledged is served, also after a restart."""
    fs, path = FaultyFileSystem(RealFileSystem()), tmp_path / "store"
    async with broker(path, backend, fs=fs) as kafka, kafka.connect() as connection:
        await kafka.service.topics.create("t", 1, None)
        for number, acks in enumerate((-1, 1, -1)):
            assert await code_and_offset(connection, acks, b"%d" % number) == (0, number)
        fs.fault = fails(errno.EIO, "datasync")
        refused = (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert await code_and_offset(connection, -1, b"lost") == refused
        fs.fault = no_fault
        for acks in (1, -1):
            assert await code_and_offset(connection, acks, b"late") == refused
        assert kafka.service.store.stats().fenced
        assert await fetched(connection) == [b"0", b"1", b"2"]
    async with broker(path, backend) as kafka, kafka.connect() as connection:
        found = await fetched(connection)
        assert found[:3] == [b"0", b"1", b"2"]
        assert found[3:] in ([], [b"lost"])  # not acknowledged: stored or not
        assert await code_and_offset(connection, -1, b"again") == (0, len(found))


def control(producer: tuple[int, int, int] = (-1, -1, -1), *, attributes: int = CONTROL) -> bytes:
    """Return the batch of a commit marker, as a client might send it; `producer` as in `batch`."""
    owners = encode_control_batch(
        commit=True,
        coordinator_epoch=0,
        producer_id=0,
        producer_epoch=0,
        base_offset=0,
        leader_epoch=-1,
        timestamp_ms=1_700_000_000_000,
    )
    producer_id, producer_epoch, base_sequence = producer
    header = decode_header(owners)._replace(
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return seal(header, owners[HEADER_SIZE:]) + owners[HEADER_SIZE:]


async def test_control_batches_of_clients(kafka: Broker, connection: Connection) -> None:
    """All numbers are the real broker's (4.3.1): that of the other partition of the request too."""
    await kafka.api.create("t", 2)
    found = await connection.call(InitProducerIdRequest(transactional_id=None), 4)
    both = CONTROL | TRANSACTIONAL
    nameless = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED  # of the whole request
    for version in (3, 9, 12):
        for data, code, other in (
            (control(), ErrorCode.INVALID_RECORD, 0),
            (control((found.producer_id, 0, 0)), ErrorCode.INVALID_RECORD, 0),
            (control((found.producer_id, 0, -1)), ErrorCode.INVALID_RECORD, 0),
            (control((found.producer_id, 0, 0), attributes=both), nameless, nameless),
        ):
            request = produce("t", (0, data), (1, batch(b"a")))
            answered = rows(await connection.call(request, version))
            codes = [row.error_code for row in answered]  # type: ignore[attr-defined]
            assert codes == [code, other]
    assert await fetched(connection) == []


@pytest.mark.parametrize("version", [3, 9, 12])
async def test_transactional_batches_without_a_transaction(
    kafka: Broker, connection: Connection, version: int
) -> None:
    """The whole request is refused, a partition that does not exist included: the real broker's numbers (4.3.1)."""
    await kafka.api.create("t", 2)
    found = await connection.call(InitProducerIdRequest(transactional_id=None), 4)
    data = transactions.batch(transactions.Owner(found.producer_id, 0), 0, b"a")
    request = produce("t", (0, data), (1, batch(b"a")), (7, batch(b"a")))
    answered = rows(await connection.call(request, version))
    codes = [row.error_code for row in answered]  # type: ignore[attr-defined]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 3
    for number in (0, 1):
        (row,) = (await connection.call(fetch("t", (number, 0)), 12)).responses[0].partitions
        assert (row.error_code, row.records) == (0, b"")


async def test_control_batches_in_a_transaction(kafka: Broker, connection: Connection) -> None:
    """A client cannot end its transaction, nor another's, by a marker of its own. The numbers are the real broker's."""
    await kafka.api.create("t")
    owner = await transactions.begun(connection)

    async def code(data: bytes, version: int = 9) -> int:
        (row,) = rows(await connection.call(transactions.send((0, data)), version))
        return row.error_code  # type: ignore[attr-defined,no-any-return]

    def marker(sequence: int, attributes: int = CONTROL | TRANSACTIONAL) -> bytes:
        return control((*owner, sequence), attributes=attributes)

    assert await code(marker(0)) == ErrorCode.INVALID_TXN_STATE  # it has not begun
    await connection.call(transactions.add(owner, {"t": [0]}), 3)
    for version in (9, 11, 12):
        for sequence in (0, -1):
            assert await code(marker(sequence), version) == ErrorCode.INVALID_RECORD
    assert await code(transactions.batch(owner, 0, b"a")) == 0
    for data in (marker(1), marker(-1), marker(1, CONTROL)):
        assert await code(data) == ErrorCode.INVALID_RECORD
    request = fetch("t", (0, 0), isolation_level=1)
    (row,) = (await connection.call(request, 12)).responses[0].partitions
    assert (row.records, row.last_stable_offset, row.high_watermark) == (b"", 0, 1)
    assert (await connection.call(transactions.end(owner, commit=True), 3)).error_code == 0
    assert await fetched(connection) == [b"a"]


async def test_a_damaged_batch_at_fetch(kafka: Broker, connection: Connection) -> None:
    """It is an error of its partition. The offsets before and after it are served, and the other partitions."""
    await kafka.api.create("t", 2)
    await connection.call(produce("t", (1, batch(b"other"))), 9)
    await sent(connection, *(batch(b"%d" % n, b"v" * 50_000) for n in range(3)))
    log = kafka.service.settings.data / "t-0" / f"{0:020}.log"
    _, (at, _), _ = split_batches(log.read_bytes())
    with log.open("r+b") as file:
        file.seek(at + HEADER_SIZE + 100)
        file.write(b"?")

    async def found(offset: int) -> tuple[int, list[bytes | None]]:
        request = fetch("t", (0, offset), (1, 0))
        row, other = (await connection.call(request, 12)).responses[0].partitions
        assert values(other.records) == [b"other"]
        return row.error_code, [value for value in values(row.records) if value and len(value) == 1]

    assert await found(0) == (0, [b"0"])
    for offset in (2, 3):
        assert await found(offset) == (ErrorCode.CORRUPT_MESSAGE, [])
    assert await found(4) == (0, [b"2"])
