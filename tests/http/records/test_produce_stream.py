"""NDJSON produce: requests and answers at the same time, in order, bounded; a fault affects only its line."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import aiohttp
import pytest

from api.records import stream as streaming
from storage.errors import DiskFull
from tests.http.duplex import Duplex, duplex
from tests.http.harness import (
    JSON,
    Answer,
    Api,
    b64,
    fetched,
    for_any_bytes,
    opener,
    serving,
    settings,
    without_ids,
)
from tests.http.running import Serve
from tests.watched_store import WatchedStore

FULL = DiskFull("no space left on /data", path="/data", operation="pwrite", errno=28)
NDJSON = "application/x-ndjson"
TEXT = "/topics/t?format=text"
SMALL = {"max_body_bytes": 2000, "max_in_flight_bytes": 4000}


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


async def post(api: Api, path: str, body: bytes, **headers: str) -> Answer:
    sent = {"Content-Type": NDJSON, **headers}
    return await api.call("POST", path, data=io.BytesIO(body), headers=sent)


def rows(answer: Answer) -> list[Any]:
    assert answer.headers["Content-Type"] == NDJSON
    return [json.loads(line) for line in answer.body.splitlines()]


def codes(found: Sequence[dict[str, Any]]) -> list[int | None]:
    return [row["error_code"] for row in found]


def stored(offset: int, partition: int = 0) -> dict[str, object]:
    return {"partition": partition, "offset": offset, "error_code": None, "error": None}


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Api]:
    """A server with small limits on the memory store."""
    chosen = settings(tmp_path, **SMALL)
    async with serving(chosen, opener("memory", chosen)) as running:
        yield running


@pytest.fixture
async def impatient(tmp_path: Path) -> AsyncIterator[Api]:
    """A server with small limits that waits at most 300 ms for a client and for room."""
    chosen = settings(tmp_path, body_timeout_ms=300, **SMALL)
    async with serving(chosen, opener("memory", chosen)) as running:
        yield running


# -- stored records and their answers


async def test_a_line_per_record_in_order(api: Api) -> None:
    answer = await post(api, TEXT, lines({"key": "k", "value": "a"}, {"value": "b"}))
    assert answer.status == 200
    assert without_ids(rows(answer)) == [stored(0), stored(1)]
    assert [row["value"] for row in await fetched(api)] == [b64(b"a"), b64(b"b")]


async def test_rows_have_message_ids_where_the_store_gives_them(api: Api) -> None:
    (row,) = rows(await post(api, TEXT, lines({"value": "a"})))
    assert ("message_id" in row) == api.keeps_messages
    if api.keeps_messages:
        assert (await api.get(f"/messages/{row['message_id']}")).json["offset"] == 0


async def test_the_last_line_may_lack_its_end_and_blank_lines_are_nothing(api: Api) -> None:
    answer = await post(api, TEXT, b'\n{"value":"a"}\r\n\r\n  \n{"value":"b"}')
    assert codes(rows(answer)) == [None, None]


async def test_an_empty_stream_is_an_empty_answer(api: Api) -> None:
    await api.create("t")
    answer = await post(api, "/topics/t", b"")
    assert (answer.status, answer.body) == (200, b"")


async def test_all_that_a_record_can_have(api: Api) -> None:
    record = {
        "key": b64(b"k"),
        "value": b64(b"v"),
        "timestamp": 1_700_000_000_000,
        "headers": [{"key": "h", "value": b64(b"x")}],
        "tag": "blue",
        "keys": ["one"],
    }
    assert codes(rows(await post(api, "/topics/t", lines(record)))) == [None]
    (row,) = await fetched(api)
    kept = {name: row[name] for name in ("key", "value", "timestamp", "tag")}
    assert kept == {name: record[name] for name in kept}
    assert record["headers"][0] in row["headers"]  # type: ignore[index, operator]
    assert "one" in row["keys"]  # type: ignore[operator]


@pytest.mark.parametrize("form", ["binary", "json", "text"])
async def test_null_empty_zero_and_false_are_four_things(api: Api, form: str) -> None:
    for_any_bytes(api)
    values: list[object] = [None, ""] if form != "json" else [None, "", 0, False]
    records = [{"key": value, "value": value} for value in values]
    answer = await post(api, f"/topics/t?format={form}", lines(*records))
    assert codes(rows(answer)) == [None] * len(values)
    page = (await api.get(f"/topics/t/partitions/0/records?format={form}")).json
    assert [(row["key"], row["value"]) for row in page] == [(value, value) for value in values]
    assert [type(row["value"]) for row in page] == [type(value) for value in values]


async def test_records_go_where_they_say(api: Api) -> None:
    await api.create("t", partitions=3)
    body = lines(*[{"value": "v", "partition": number} for number in (2, 0, 2, 9)])
    found = rows(await post(api, TEXT, body))
    assert without_ids(found[:3]) == [stored(0, 2), stored(0, 0), stored(1, 2)]
    assert codes(found[3:]) == [40402]


async def test_a_record_cannot_leave_the_partition_of_the_path(api: Api) -> None:
    await api.create("t", partitions=2)
    body = lines({"value": "a"}, {"value": "b", "partition": 0}, {"value": "c", "partition": 1})
    found = rows(await post(api, "/topics/t/partitions/1?format=text", body))
    assert codes(found) == [None, 42201, None]
    assert found[1]["error"] == "partition is 0, and the path says 1"
    assert [row["offset"] for row in found] == [0, None, 1]


async def test_keys_lead_to_the_same_partitions_as_in_json(api: Api) -> None:
    await api.create("t", partitions=8)
    records = [{"key": f"k{number}", "value": "v"} for number in range(50)]
    streamed = rows(await post(api, TEXT, lines(*records)))
    whole = (await api.post(TEXT, {"records": records}, content_type="application/json")).json
    assert [row["partition"] for row in streamed] == [row["partition"] for row in whole["offsets"]]


BROKEN = {
    "no JSON": (b"{", 40000),
    "two records": (b'{"value":"a"} {"value":"b"}', 40000),
    "cut over two lines": (b'{"value":\n"a"}', 40000, 42201),
    "no object": (b"[]", 42201),
    "a number as value": (b'{"value":1}', 42201),
    "an unknown name": (b'{"vaule":"a"}', 42201),
    "no UTF-8": (b'{"value":"\xff"}', 40000),
    "nested": (b'{"value":' + b"[" * 5000, 42201),
    "delayed twice": (b'{"value":"a","delay_level":3,"delay_ms":1}', 42201),
}


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_line_fails_alone(api: Api, case: tuple[Any, ...]) -> None:
    line, *wanted = case
    good = lines({"value": "good"})
    found = rows(await post(api, TEXT, good + line + b"\n" + good))
    assert codes(found) == [None, *wanted, None]
    assert all(isinstance(row["error"], str) for row in found[1:-1])
    assert len(await fetched(api)) == 2


async def test_bad_base64_says_what_to_do(api: Api) -> None:
    (row,) = rows(await post(api, "/topics/t", lines({"value": "***"})))
    assert row["error_code"] == 42202
    assert row["error"].startswith('value is "***": it must be base64 text')
    assert "application/json means base64" in row["error"]


async def test_a_record_that_the_store_refuses_fails_alone(api: Api) -> None:
    body = lines({"value": "a"}, {"value": "x" * 5_000_000}, {"value": "b"})
    found = rows(await post(api, TEXT, body))
    assert codes(found) == [None, 41302, None]
    assert [row["offset"] for row in found] == [0, None, 1]


async def test_acks_0_checks_and_does_not_wait(api: Api) -> None:
    answer = await post(api, TEXT + "&acks=0", lines({"value": "a"}, {"value": 1}))
    assert answer.status == 202
    assert codes(found := rows(answer)) == [None, 42201]
    assert found[0] == {"partition": None, "offset": None, "error_code": None, "error": None}


async def test_acks_0_refuses_alone_what_the_store_refuses(api: Api) -> None:
    bad = {"value": "x" * 5_000_000}, {"partition": 6}
    answer = await post(api, TEXT + "&acks=0", lines({"value": "a"}, *bad, {"value": "c"}))
    assert codes(rows(answer)) == [None, 41302, 40402, None]
    await api.until_free()
    assert [row["value"] for row in await fetched(api)] == [b64(b"a"), b64(b"c")]


# -- faults of the whole request are reported before the stream begins


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/topics/t?producer_id=1&producer_epoch=0&sequence=0", 40000),
        ("/topics/t?acks=2", 40000),
        ("/topics/t?nothing=1", 40000),
        ("/topics/t?compression=zip", 40000),
        ("/topics/t/partitions/7", 40402),
        ("/topics/not%20a%20name", 42203),
    ],
)
async def test_a_wrong_request_is_refused_before_it_streams(api: Api, path: str, code: int) -> None:
    await api.create("t")
    assert (await post(api, path, lines({}))).code == code


async def test_a_sequence_is_refused_by_name(api: Api) -> None:
    answer = await post(api, "/topics/t?sequence=0", lines({}))
    assert "sequence is not taken here: each record of a stream" in answer.json["message"]


async def test_a_stream_has_no_key_of_its_own(api: Api) -> None:
    answer = await post(api, "/topics/t", lines({}), **{"Idempotency-Key": "a"})
    assert answer.code == 40000
    assert "Idempotency-Key is not taken here" in answer.json["message"]


async def test_types_must_fit(api: Api) -> None:
    assert (await post(api, "/topics/t", b"", Accept="application/json")).code == 406
    assert (await api.post("/topics/t", b"{}", content_type=JSON, accept=NDJSON)).code == 406
    assert (await post(api, "/topics/t", b"", **{"Content-Encoding": "br"})).code == 415


# -- requests and answers at the same time


async def test_a_record_is_answered_before_the_next_is_sent(api: Api) -> None:
    async with duplex(api, TEXT, NDJSON) as stream:
        assert (await stream.head())[0] == 200
        for offset in range(5):
            await stream.send(lines({"value": f"{offset}"}))
            assert (await stream.line())["offset"] == offset
            assert len(await fetched(api)) == offset + 1
        await stream.finish()
        assert await stream.line() is None


async def test_a_client_that_asks_is_told_to_go_on(api: Api) -> None:
    async with duplex(api, TEXT, NDJSON, headers="Expect: 100-continue\r\n") as stream:
        assert (await stream.head())[0] == 100
        assert (await stream.head())[0] == 200
        await stream.send(lines({"value": "a"}))
        assert (await stream.line())["offset"] == 0
        await stream.finish()
        assert await stream.line() is None


async def test_the_connection_lives_on_after_a_stream(api: Api) -> None:
    for offset in range(3):
        assert rows(await post(api, TEXT, lines({"value": "a"})))[0]["offset"] == offset
    assert api.server.connections == 1


async def test_a_line_may_come_in_any_pieces(api: Api) -> None:
    body = lines({"value": "äöü"}, {"value": "b"})
    async with duplex(api, TEXT, NDJSON) as stream:
        for byte in body:
            await stream.send(bytes([byte]))
        await stream.finish()
        await stream.head()
        assert codes(await stream.lines()) == [None, None]
    assert (await fetched(api))[0]["value"] == b64("äöü".encode())


async def test_records_that_come_together_share_an_append(tmp_path: Path) -> None:
    store = WatchedStore()
    store.create_topic("t", 1)
    async with serving(settings(tmp_path), store.opener()) as api:
        body = lines(*[{"value": "v"}] * 500)
        assert len(rows(await post(api, TEXT, body))) == 500
        metrics = (await api.get("/metrics")).body.decode()
        assert "logserver_store_appends_total 1.0" in metrics


async def test_the_server_takes_no_more_than_it_can_hold(small: Api) -> None:
    """While other requests hold the budget the stream waits; it continues afterwards."""
    async with duplex(small, TEXT, NDJSON) as stream:
        await stream.head()
        with small.service.budget.reserve(3990):
            await stream.send(lines({"value": "a"}))
            await asyncio.sleep(0.05)
            assert sorted(small.service.topics) == []
        assert (await stream.line())["offset"] == 0
        await stream.finish()
        assert await stream.line() is None
    await asyncio.wait_for(small.until_free(), 10)


async def test_a_budget_that_stays_full_is_told_for_each_record(impatient: Api) -> None:
    with impatient.service.budget.reserve(3990):
        answer = await post(impatient, TEXT, lines({"value": "a"}, {"value": "b"}))
    assert codes(rows(answer)) == [42901, 42901]


# -- limits


async def test_a_line_is_limited_and_the_stream_is_not(small: Api) -> None:
    def line(size: int) -> bytes:
        return b'{"value":"' + b"x" * (size - 12) + b'"}\n'

    body = line(2000) + line(2001) + lines(*[{"value": "v"}] * 1000)
    found = rows(await post(small, TEXT, body))
    assert codes(found) == [None, 41302, *[None] * 1000]
    assert "larger than 2000 bytes (max_body_bytes)" in found[1]["error"]


async def test_gzip_is_unpacked_as_it_comes(api: Api) -> None:
    packed = gzip.compress(lines({"value": "a"}))
    packer = zlib.compressobj(wbits=31)
    async with duplex(api, TEXT, NDJSON, headers="Content-Encoding: gzip\r\n") as stream:
        await stream.head()
        for offset in range(3):
            data = packer.compress(lines({"value": "a"}))
            await stream.send(data + packer.flush(zlib.Z_SYNC_FLUSH))
            assert (await stream.line())["offset"] == offset
        await stream.send(packer.flush())
        await stream.finish()
        assert await stream.line() is None
    assert codes(rows(await post(api, TEXT, packed, **{"Content-Encoding": "gzip"}))) == [None]


async def test_a_bomb_is_one_line_too_large(small: Api) -> None:
    bomb = gzip.compress(b'{"value":"' + bytes(20_000_000) + b'"}\n' + lines({"value": "a"}))
    answer = await post(small, TEXT, bomb, **{"Content-Encoding": "gzip"})
    assert codes(rows(answer)) == [41302, None]
    await asyncio.wait_for(small.until_free(), 10)


async def test_broken_gzip_ends_the_stream_with_its_reason(api: Api) -> None:
    good = gzip.compress(lines(*[{"value": "a"}] * 3))
    for bad in (good[:-1], good + b"x", b"nope"):
        found = rows(await post(api, TEXT, bad, **{"Content-Encoding": "gzip"}))
        assert found[-1]["error_code"] == 400
        assert "Content-Encoding" in found[-1]["error"]


# -- clients that misbehave, and the server's stop


async def test_a_client_that_pauses_is_told_and_let_go(impatient: Api) -> None:
    async with duplex(impatient, TEXT, NDJSON) as stream:
        await stream.head()
        await stream.send(lines({"value": "a"}) + b'{"val')
        found = await stream.lines()
        assert codes(found) == [None, 408]
    await impatient.until_connected(0)
    await asyncio.wait_for(impatient.until_free(), 10)


async def test_a_client_that_goes_away_ends_the_work(small: Api) -> None:
    async with duplex(small, TEXT, NDJSON) as stream:
        await stream.head()
        await stream.send(lines({"value": "a"}) + b'{"value":"never')
        await stream.line()
    await small.until_connected(0)
    await asyncio.wait_for(small.until_free(), 10)
    assert await small.values("t") != []


async def flood(stream: Duplex, count: int) -> int:
    """Send groups of lines without reading answers; return how many groups were sent."""
    body = lines(*[{"value": "v"}] * 1000)
    for sent in range(count):
        try:
            await stream.send(body)
        except (ConnectionError, TimeoutError):
            return sent
    return count


async def test_a_client_that_sends_first_and_listens_after_is_answered(api: Api) -> None:
    async with duplex(api, TEXT, NDJSON) as stream:
        assert await flood(stream, 40) == 40
        await stream.finish()
        await stream.head()
        found = await stream.lines()
    assert [row["offset"] for row in found] == list(range(40_000))


async def test_a_client_that_never_listens_is_hung_up_on(
    impatient: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "UNREAD_BYTES", 100_000)
    async with duplex(impatient, TEXT, NDJSON, receive_bytes=4096) as stream:
        assert await flood(stream, 10_000) < 10_000
        await impatient.until_connected(0)
    await asyncio.wait_for(impatient.until_free(), 10)
    assert (await impatient.get("/topics")).json == ["t"]


async def test_a_slow_listener_is_waited_for(
    impatient: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow reader is not disconnected: in total it takes longer than a pause may, but it reads in each interval."""
    monkeypatch.setattr(streaming, "UNREAD_BYTES", 100_000)
    async with duplex(impatient, TEXT, NDJSON, receive_bytes=4096) as stream:

        async def send() -> None:
            assert await flood(stream, 60) == 60
            await stream.finish()

        sending = asyncio.create_task(send())
        await stream.head()
        found = 0
        while found < 60_000:
            assert (await stream.line())["offset"] == found
            found += 1
            if found % 10_000 == 0:
                await asyncio.sleep(0.1)
        await sending
        assert await stream.line() is None


async def test_a_stop_ends_a_stream_in_order(backend: str, tmp_path: Path) -> None:
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener(backend, chosen)) as api, duplex(api, TEXT, NDJSON) as stream:
        await stream.head()
        await stream.send(lines({"value": "a"}))
        assert (await stream.line())["offset"] == 0
        stopping = asyncio.create_task(api.server.stop())
        found = await stream.lines()
        assert codes(found) == [50301]
        assert "stopping" in found[0]["error"]
        assert stream.ended
        await asyncio.wait_for(stopping, 10)


async def test_a_store_that_fails_is_told_for_each_record(tmp_path: Path) -> None:
    store = WatchedStore()
    store.create_topic("t", 1)
    async with serving(settings(tmp_path), store.opener()) as api:
        store.fail_append = lambda partition, records: FULL
        found = rows(await post(api, TEXT, lines({"value": "a"}, {"value": 1}, {"value": "b"})))
        assert codes(found) == [50701, 42201, 50701]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kafka", "rocketmq"])
def test_half_a_million_lines_take_bounded_memory(
    kind: str, serve: Serve, tmp_path: Path, figures: Callable[[str], None]
) -> None:
    """Half a million lines in one stream use bounded memory, measured in a separate server process.

    The client reads while it sends.
    """
    server = serve("--data", tmp_path / "store", "--backend", kind, "--flush", "async")
    count, at_once = 500_000, 5000
    chunk = lines(*[{"value": "a line of some thirty bytes, no more"}] * at_once)
    before_bytes, begun = server.peak_bytes(), perf_counter()
    answered = asyncio.run(stream_all(server.facts["url"], [chunk] * (count // at_once)))
    elapsed_s, grown_bytes = perf_counter() - begun, server.peak_bytes() - before_bytes
    assert answered == count
    assert grown_bytes < 64 << 20
    figures(
        f"NDJSON produce: {count:,} lines to {kind} in {elapsed_s:.1f} s, "
        f"the server's memory grew by {grown_bytes / (1 << 20):.0f} MiB"
    )


async def stream_all(url: str, chunks: Sequence[bytes]) -> int:
    """Send all chunks, and count the lines that report a stored record."""

    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    answered = 0
    async with (
        aiohttp.ClientSession(read_bufsize=1 << 20) as session,
        session.post(
            url + TEXT + "&acks=1", data=body(), headers={"Content-Type": NDJSON}
        ) as response,
    ):
        async for line in response.content:
            answered += b'"error_code":null' in line
    return answered
