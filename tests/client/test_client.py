"""The client against a server with each backend: written records are read unchanged, as typed values."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from logserver.client import (
    BlockingClient,
    ClientError,
    FetchedRecord,
    LogClient,
    OffsetRange,
    PartlyStored,
    Record,
    ServerRefused,
    as_record,
)
from logserver.client.outgoing import Value
from storage import EpochEnd
from tests.http.harness import Api, for_any_bytes

PARTITIONS = 3


async def values(client: LogClient, topic: str = "t") -> list[bytes | None]:
    return [record.value async for record in client.records(topic)]


async def test_topics(client: LogClient) -> None:
    assert await client.topics() == []
    assert await client.create_topic("ab", partitions=2)
    assert not await client.create_topic("ab", partitions=2)
    with pytest.raises(ServerRefused) as raised:
        await client.create_topic("ab", partitions=3)
    assert raised.value.error_code == 40901
    assert await client.topics() == ["ab"]
    assert list((await client.topic("ab")).partitions) == [0, 1]
    await client.delete_topic("ab")
    with pytest.raises(ServerRefused) as raised:
        await client.topic("ab")
    assert (raised.value.status, raised.value.error_code) == (404, 40401)


async def test_partitions_and_deleted_records(api: Api, client: LogClient) -> None:
    await client.create_topic("t")
    assert list((await client.add_partitions("t", 3)).partitions) == [0, 1, 2]
    await client.produce_many("t", [as_record("a"), as_record("b"), as_record("c")], partition=2)
    newest = await client.newest_time("t", 2)
    assert newest is not None
    assert newest.timestamp_ms > 0
    assert await client.newest_time("t") is None
    if api.backend == "rocketmq":
        with pytest.raises(ServerRefused) as raised:
            await client.delete_records("t", 2, 2)
        assert raised.value.error_code == 42207
        return
    assert await client.delete_records("t", 2, 2) == OffsetRange(2, 3)
    if api.backend == "kafka":
        assert await client.end_of_epoch("t", 2, 0) == EpochEnd(0, 3)
        assert await client.end_of_epoch("t", 2, 1) is None


async def test_retention_is_changed(api: Api, client: LogClient) -> None:
    if api.backend == "memory":
        with pytest.raises(ServerRefused) as raised:
            await client.change_retention({})
        assert raised.value.error_code == 42207
        return
    name = {"kafka": "log.retention.ms", "rocketmq": "fileReservedTime"}[api.backend]
    assert (await client.change_retention({name: "72"}))[name] == "72"
    assert set((await client.change_retention({name: None})).values()) == {None}


async def test_configs(api: Api, client: LogClient) -> None:
    name, value = ("perm", "4") if api.keeps_messages else ("retention.ms", "60000")
    await client.create_topic("t", configs={name: value})
    assert (await client.topic("t")).configs[name] == value
    altered = await client.alter_topic("t", {name: None})
    assert altered.configs.get(name) != value


async def test_a_record_comes_back_whole(api: Api, client: LogClient) -> None:
    placed = await client.produce(
        "t",
        {"apples": 3},
        key="ann",
        headers={"source": "web"},
        timestamp_ms=1_700_000_000_000,
        tag="fruit",
        lookup_keys=["o-1"],
    )
    assert (placed.partition, placed.offset) == (0, 0)
    assert (placed.message_id is not None) == api.keeps_messages
    (record,) = (await client.fetch("t")).records
    assert isinstance(record, FetchedRecord)
    assert (record.topic, record.partition, record.offset) == ("t", 0, 0)
    assert (record.key, record.json()) == (b"ann", {"apples": 3})
    assert record.timestamp_ms == 1_700_000_000_000
    assert ("source", b"web") in record.headers
    assert record.tag == "fruit"
    assert "o-1" in record.lookup_keys
    assert record.message_id == placed.message_id


async def test_any_bytes(api: Api, client: LogClient) -> None:
    for_any_bytes(api)
    given = [
        Record(None, None),
        Record(b"", b""),
        Record(b"\xff\x00", b"\x80", [("h", None), ("h", b""), ("h", b"\xfe")]),
    ]
    await client.produce_many("t", given)
    got = (await client.fetch("t")).records
    assert [(one.key, one.value, list(one.headers)) for one in got] == [
        (one.key, one.value, list(one.headers)) for one in given
    ]


async def test_some_are_refused(api: Api, client: LogClient) -> None:
    wrong = Record(b"k", b"v", properties={"nonsense": "1"})
    with pytest.raises(PartlyStored, match=r"^1 of 3 records were refused") as raised:
        await client.produce_many("t", [as_record("a"), wrong, as_record("b")])
    rows = raised.value.facts()["rows"]
    assert isinstance(rows, list)
    assert [row["offset"] for row in rows] == [0, None, 1]
    with pytest.raises(ServerRefused) as whole:
        await client.produce_many("t", [wrong])
    assert not isinstance(whole.value, PartlyStored)
    assert await values(client) == [b"a", b"b"]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_bytes_of_any_kind_are_no_json(
    client: LogClient, kind: Callable[[bytes], Value]
) -> None:
    await client.produce("t", kind(b"\xff"), key=kind(b"k"))
    found = [record async for record in client.records("t")]
    assert [(one.key, one.value) for one in found] == [(b"k", b"\xff")]


@pytest.mark.parametrize("value", [math.nan, {"a": [1, math.inf]}, [None, -math.inf]])
async def test_numbers_that_json_has_not(client: LogClient, value: Value) -> None:
    with pytest.raises(ValueError, match="no NaN"):
        await client.produce("t", value)
    await client.produce("t", {"a": [None, 0.5], "b": "null"})


async def test_values_that_are_not_records(client: LogClient) -> None:
    with pytest.raises(TypeError, match=r"str is not a Record: as_record\(value\)"):
        await client.produce_many("t", ["a"])  # type: ignore[list-item]  # as a program without types


async def test_one_topic_in_place_of_a_list(client: LogClient, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"topics is 'pay': a list .* \['pay'\]"):
        client.consumer("g", "pay")
    with pytest.raises(TypeError, match="topics is 'pay'"):
        client.broadcast("g", "pay", tmp_path)


def test_a_blocking_client_that_is_closed_says_so() -> None:
    client = BlockingClient("http://127.0.0.1:1")
    client.close()
    with pytest.raises(ClientError, match="is closed"):
        client.topics()


async def test_acks_none(client: LogClient) -> None:
    assert await client.produce_many("t", [as_record("a")], acks=0) == []
    assert await client.produce_many("t", [as_record("b")], acks=1)


async def test_a_request_with_a_name_of_its_own(client: LogClient) -> None:
    given = [as_record("a"), as_record("b")]
    first = await client.produce_many("t", given, idempotency_key="order-17")
    assert await client.produce_many("t", given, idempotency_key="order-17") == first
    assert await values(client) == [b"a", b"b"]
    with pytest.raises(ServerRefused) as raised:
        await client.produce_many("t", [as_record("c")], idempotency_key="order-17")
    assert raised.value.error_code == 42209


async def test_batches(api: Api, client: LogClient) -> None:
    if api.backend != "kafka":
        pytest.skip("record batches are Kafka's")
    await client.create_topic("copy")
    await client.produce_many("t", [as_record(f"v{n}") for n in range(5)])
    fetched = await client.fetch_batches("t")
    assert (fetched.next_offset, fetched.end_offset) == (5, 5)
    placed = await client.produce_batches("copy", 0, fetched.data)
    assert placed is not None
    assert (placed.partition, placed.offset, placed.last_offset) == (0, 0, 4)
    assert await values(client, "copy") == await values(client)
    assert await client.produce_batches("copy", 0, fetched.data, acks=0) is None


async def test_where_to_begin(client: LogClient) -> None:
    await client.produce_many("t", [as_record(f"v{n}", timestamp_ms=1000 + n) for n in range(5)])
    assert [one.text for one in (await client.fetch("t", offset=3)).records] == ["v3", "v4"]
    assert [one.text for one in (await client.fetch("t", offset="-1")).records] == ["v4"]
    page = await client.fetch("t", offset="latest")
    assert (page.records, page.next_offset, page.beginning_offset, page.end_offset) == ([], 5, 0, 5)
    page = await client.fetch("t", offset="earliest", max_records=2)
    assert page.next_offset == 2
    with pytest.raises(ServerRefused) as raised:
        await client.fetch("t", offset=99)
    assert raised.value.facts()["latest"] == 5
    for wrong in ("soon", "-", "@noon"):
        with pytest.raises(ServerRefused, match=rf"'{wrong}': it must be earliest, latest, N, -N"):
            await client.fetch("t", offset=wrong)


async def test_reading_goes_on_over_pages(client: LogClient) -> None:
    count = 1234
    await client.produce_many("t", [as_record(str(n)) for n in range(count)])
    assert await values(client) == [str(n).encode() for n in range(count)]
    assert [one.offset async for one in client.records("t", 0, -3)] == [1231, 1232, 1233]


async def test_reading_ends_where_the_partition_ended(client: LogClient) -> None:
    await client.produce("t", "first")
    seen = []
    async with aclosing(client.records("t", 0)) as records:
        async for record in records:
            seen.append(record.text)
            await client.produce("t", "later")
    assert seen == ["first"]


async def test_all_partitions(client: LogClient) -> None:
    await client.create_topic("t", partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        await client.produce("t", f"in {partition}", partition=partition)
    assert await values(client) == [f"in {n}".encode() for n in range(PARTITIONS)]


@pytest.mark.parametrize("partition", [0, None])
async def test_following(api: Api, client: LogClient, partition: int | None) -> None:
    """A following reader gets new records at once, from one partition or from all."""
    await client.create_topic("t", partitions=PARTITIONS)
    await client.produce("t", "there", partition=0)
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def read() -> None:
        async with aclosing(client.records("t", partition, follow=True)) as records:
            async for record in records:
                seen.put_nowait(record.text)

    reading = asyncio.create_task(read())
    assert await seen.get() == "there"
    await api.until_waiting(1 if partition == 0 else PARTITIONS)
    for number in (0,) if partition == 0 else (2, 1, 0):
        await client.produce("t", f"new in {number}", partition=number)
        assert await asyncio.wait_for(seen.get(), 10) == f"new in {number}"
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


async def test_following_ends_with_an_error(api: Api, client: LogClient) -> None:
    """Following all partitions ends with the server's error when the topic is deleted; no fetch stays on the server."""
    await client.create_topic("t", partitions=PARTITIONS)

    async def read() -> None:
        async for _ in client.records("t", follow=True):
            pass

    reading = asyncio.create_task(read())
    await api.until_waiting(PARTITIONS)
    await client.delete_topic("t")
    with pytest.raises(ServerRefused) as raised:
        await asyncio.wait_for(reading, 10)
    assert raised.value.error_code == 40401
    await asyncio.wait_for(api.until_none_waits(), 10)


async def test_offsets(client: LogClient) -> None:
    await client.produce_many("t", [as_record(f"v{n}", timestamp_ms=1000 + n) for n in range(3)])
    assert await client.offsets("t") == OffsetRange(0, 3)
    found = await client.offset_for_time("t", 0, 0)
    assert found is not None
    assert found.offset == 0
    assert await client.offset_for_time("t", 0, 1 << 50) is None


async def test_queries(client: LogClient) -> None:
    await client.create_topic("t", partitions=2)
    records = [as_record(f"v{n}", key="even" if n % 2 == 0 else "odd") for n in range(9)]
    await client.produce_many("t", records)
    found = [one async for one in client.find("t", key="even", limit=2)]
    assert [one.text for one in found] == ["v0", "v2", "v4", "v6", "v8"]
    backward = [one async for one in client.find("t", key="even", backward=True)]
    assert backward == found[::-1]
    page = await client.find_page("t", key="odd", limit=1)
    assert not page.complete
    assert page.scanned >= 1
    assert found[0].message_id is not None
    assert await client.message(found[0].message_id) == found[0]
    with pytest.raises(ServerRefused):
        await client.message("t:9:9")


async def test_any_topic_can_be_addressed(client: LogClient) -> None:
    with pytest.raises(ServerRefused, match="does not exist") as raised:
        await client.topic("a/b ?#é")
    assert raised.value.facts()["topic"] == "a/b ?#é"


async def test_the_store(api: Api, client: LogClient) -> None:
    assert (await client.store())["backend"] == api.backend
