"""Fetch: rows in each format, where a fetch begins, its limits, its waits, and which requests are rejected."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.operations import fetch
from api.records.encode import encode_page, encode_rows
from storage.coding.checksum import crc32c
from storage.contract import SupportsBatchBytes
from storage.model import TopicPartition
from tests.http.harness import (
    BATCH,
    BINARY,
    JSON,
    PROBLEM,
    V2,
    Api,
    b64,
    for_any_bytes,
    opener,
    records,
    serving,
    settings,
)

PATH = "/topics/t/partitions/0/records"

# Many headers for few bytes, and few enough for the properties of a message.
HEADERS = [{"key": f"{number:x}", "value": b64(b"v")} for number in range(1000)]


async def offsets(api: Api, query: str) -> list[int]:
    answer = await api.get(f"{PATH}?{query}")
    assert answer.status == 200, answer.body
    return [row["offset"] for row in answer.json]


async def test_a_row_has_these_members_in_this_order(api: Api) -> None:
    await api.post("/topics/t", {"records": [{"key": "k", "value": {"n": 1}, "timestamp": 5}]})
    answer = await api.get(PATH, accept=JSON)
    assert answer.headers["Content-Type"] == JSON
    members = (
        b'[{"topic":"t","partition":0,"offset":0,"timestamp":5,"key":"k","value":{"n":1},'
        b'"headers":[]'
    )
    if api.keeps_messages:
        assert answer.body.startswith(members + b',"properties":{')
        following = ["properties", "message_id", "store_timestamp"]
        assert list(answer.json[0])[-3:] == following
    else:
        assert answer.body == members + b"}]"


async def test_the_answers_headers_tell_where_to_go_on(api: Api) -> None:
    await api.post("/topics/t", records(1, 2, 3))
    answer = await api.get(f"{PATH}?offset=1&max_records=1")
    reported = [answer.headers[f"X-{name}-Offset"] for name in ("Next", "Beginning", "End")]
    assert reported == ["2", "0", "3"]


async def test_an_empty_partition_gives_an_empty_list(api: Api) -> None:
    await api.create("t")
    answer = await api.get(PATH)
    assert (answer.status, answer.body) == (200, b"[]")
    assert answer.headers["X-Next-Offset"] == "0"


@pytest.mark.parametrize(
    ("accept", "content_type", "value"),
    [
        (None, "application/json", b64(b'"v"')),
        ("*/*", "application/json", b64(b'"v"')),
        ("application/*", "application/json", b64(b'"v"')),
        ("text/html, */*;q=0.1", "application/json", b64(b'"v"')),
        (BINARY, BINARY, b64(b'"v"')),
        (V2, V2, b64(b'"v"')),
        (JSON, JSON, "v"),
        (f"{BINARY};q=0.5, {JSON}", JSON, "v"),
        (f"{JSON};q=0, {BINARY};q=0.1", BINARY, b64(b'"v"')),
        (f"{PROBLEM}, {JSON}", JSON, "v"),
        (PROBLEM, "application/json", b64(b'"v"')),
    ],
)
async def test_accept_picks_the_format(
    api: Api, accept: str | None, content_type: str, value: str
) -> None:
    await api.post("/topics/t", records("v"))
    answer = await api.get(PATH, accept=accept)
    assert answer.headers["Content-Type"] == content_type
    assert answer.json[0]["value"] == value


@pytest.mark.parametrize(
    "accept", ["text/html", "application/vnd.kafka.avro.v2+json", f"{JSON};q=0"]
)
async def test_an_accept_that_cannot_be_met_is_406(api: Api, accept: str) -> None:
    await api.create("t")
    assert (await api.get(PATH, accept=accept)).code == 406


async def test_the_format_parameter_goes_before_accept(api: Api) -> None:
    await api.post("/topics/t", records("v"))
    assert (await api.get(f"{PATH}?format=text")).json[0]["value"] == '"v"'
    assert (await api.get(f"{PATH}?format=json", accept=BINARY)).json[0]["value"] == "v"


async def test_bytes_that_are_no_json_never_fail_a_page(api: Api) -> None:
    values = [b"\xff", b"{", b"", b'{"a":1}', b"NaN", b'"\xff"', b"[" * 10_000, b"1 2"]
    body = {"records": [{"key": b64(b"\x00k"), "value": b64(value)} for value in values]}
    await api.post("/topics/t", body, content_type=BINARY)
    rows = (await api.get(PATH, accept=JSON)).json
    assert rows[3]["value"] == {"a": 1}
    assert "value_b64" not in rows[3]
    for row, value in zip(rows, values, strict=True):
        assert (row["key"], row["key_b64"]) == (None, b64(b"\x00k"))
        assert row["error"]
        if value != values[3]:
            assert (row["value"], row["value_b64"]) == (None, b64(value))


async def test_bytes_that_are_no_text_never_fail_a_page(api: Api) -> None:
    for_any_bytes(api)
    headers = [{"key": "h", "value": b64(b"\xff")}, {"key": "i", "value": None}]
    body = {"records": [{"value": b64(b"\xff"), "headers": headers}, {"value": b64(b"ok")}]}
    await api.post("/topics/t", body, content_type=BINARY)
    bad, good = (await api.get(f"{PATH}?format=text")).json
    assert (bad["value"], bad["value_b64"]) == (None, b64(b"\xff"))
    assert bad["headers"] == [
        {"key": "h", "value": None, "value_b64": b64(b"\xff")},
        {"key": "i", "value": None},
    ]
    assert good["value"] == "ok"


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("", [0, 1, 2, 3]),
        ("offset=earliest", [0, 1, 2, 3]),
        ("offset=2", [2, 3]),
        ("offset=4", []),
        ("offset=latest", []),
        ("offset=-1", [3]),
        ("offset=-3", [1, 2, 3]),
        ("offset=-99", [0, 1, 2, 3]),
        ("offset=@0", [0, 1, 2, 3]),
        ("offset=@2000", [1, 2, 3]),
        ("offset=@2001", [2, 3]),
        ("offset=@4001", []),
        ("offset=%402000", [1, 2, 3]),
        ("offset=1&max_records=2", [1, 2]),
        ("max_records=1", [0]),
        ("max_bytes=1", [0]),
    ],
)
async def test_where_a_fetch_begins_and_ends(api: Api, start: str, expected: list[int]) -> None:
    if "=@" in start.replace("%40", "@") and start != "offset=@0" and api.keeps_messages:
        pytest.skip("the axis is the store's own time")
    times = [1000, 2000, 3000, 4000]
    for time_ms in times:
        body = {"records": [{"value": "x" * 100, "timestamp": time_ms}]}
        await api.post("/topics/t", body)
    assert await offsets(api, start) == expected


async def test_a_record_larger_than_max_bytes_is_given_all_the_same(api: Api) -> None:
    await api.post("/topics/t", records("x" * 100_000, "y"))
    page = (await api.get(f"{PATH}?max_bytes=10")).json
    assert page[0]["value"] == b64(b'"' + b"x" * 100_000 + b'"')


async def test_500_records_by_default(api: Api) -> None:
    await api.post("/topics/t", records(*range(600)))
    assert await offsets(api, "") == list(range(500))


async def test_an_offset_out_of_range_tells_both_bounds(api: Api) -> None:
    await api.post("/topics/t", records(1, 2))
    answer = await api.get(f"{PATH}?offset=3")
    assert answer.code == 41601
    assert (answer.json["earliest"], answer.json["latest"]) == (0, 2)


@pytest.mark.parametrize(
    "query",
    [
        "offset=",
        "offset=x",
        "offset=1.5",
        "offset=-0",
        "offset=--1",
        "offset=@",
        "offset=@-5",
        "offset=9223372036854775808",
        "timeout=-1",
        "timeout=1e3",
        "timeout=99999999",
        "max_records=0",
        "max_records=10001",
        "max_bytes=0",
        "max_bytes=99999999999",
        "min_bytes=-1",
        "isolation=serializable",
        "format=xml",
        "ofset=3",
    ],
)
async def test_a_bad_parameter_is_named(api: Api, query: str) -> None:
    await api.create("t")
    answer = await api.get(f"{PATH}?{query}")
    assert answer.code == 40000
    assert query.partition("=")[0] in answer.json["message"]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
async def test_both_isolations_give_plain_records(api: Api, isolation: str) -> None:
    await api.post("/topics/t", records(1, 2))
    assert await offsets(api, f"isolation={isolation}") == [0, 1]


async def test_a_tag_filters_and_gets_past_the_others(api: Api) -> None:
    for number in range(6):
        await api.post("/topics/t", records(number, tag="even" if number % 2 == 0 else "odd"))
    assert await offsets(api, "tag=odd") == [1, 3, 5]
    answer = await api.get(f"{PATH}?tag=odd&max_records=1")
    assert [row["offset"] for row in answer.json] == [1]
    nothing = await api.get(f"{PATH}?tag=none")
    assert (nothing.json, nothing.headers["X-Next-Offset"]) == ([], "6")


@pytest.mark.parametrize(
    ("record", "count", "is_large"),
    [
        ({"value": "x"}, 500, False),
        ({"value": "x"}, 501, True),
        ({"value": "x" * 300_000}, 1, True),
        ({"headers": [{"key": ""}] * 10_000}, 1, True),
    ],
)
async def test_a_large_page_is_rendered_beside_the_loop(
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    record: dict[str, object],
    count: int,
    is_large: bool,
) -> None:
    if "headers" in record:
        for_any_bytes(api)
    rendered_in = []

    def watched(encode: Callable[..., bytes]) -> Callable[..., bytes]:
        def watched_encode(*args: Any) -> bytes:
            rendered_in.append(threading.current_thread())
            return encode(*args)

        return watched_encode

    monkeypatch.setattr(fetch, "encode_page", watched(encode_page))
    monkeypatch.setattr(fetch, "encode_rows", watched(encode_rows))
    await api.post("/topics/t", {"records": [record] * count})
    assert len((await api.get(f"{PATH}?max_records=1000")).json) == count
    assert (rendered_in != [threading.main_thread()]) is is_large


async def test_many_headers_count_for_the_size_of_a_page(api: Api) -> None:
    await api.post("/topics/t", {"records": [{"value": "", "headers": HEADERS}] * 10})
    assert await offsets(api, "max_bytes=100000") == [0, 1, 2]
    answer = await api.get(f"{PATH}?max_bytes=100000")
    assert answer.headers["X-Next-Offset"] == "3"
    assert await offsets(api, "max_bytes=100000&offset=9") == [9]
    assert await offsets(api, "max_bytes=1") == [0]


# -- waiting


async def test_a_wait_ends_with_the_record_that_comes(api: Api) -> None:
    await api.create("t")
    waiting = asyncio.create_task(api.get(f"{PATH}?timeout=20000", accept=JSON))
    await api.until_waiting()
    begun = time.monotonic()
    await api.post("/topics/t", records("here"))
    answer = await waiting
    assert [row["value"] for row in answer.json] == ["here"]
    assert time.monotonic() - begun < 5


async def test_a_wait_from_latest_sees_only_what_comes(api: Api) -> None:
    await api.post("/topics/t", records("old"))
    waiting = asyncio.create_task(api.get(f"{PATH}?timeout=20000&offset=latest", accept=JSON))
    await api.until_waiting()
    await api.post("/topics/t", records("new"))
    assert [row["value"] for row in (await waiting).json] == ["new"]


async def test_a_wait_in_vain_gives_an_empty_list(api: Api) -> None:
    await api.create("t")
    begun = time.monotonic()
    answer = await api.get(f"{PATH}?timeout=50")
    assert answer.json == []
    assert time.monotonic() - begun > 0.03  # timers have a resolution of milliseconds


async def test_a_wait_for_min_bytes_gathers_records(api: Api) -> None:
    await api.create("t")
    waiting = asyncio.create_task(api.get(f"{PATH}?timeout=20000&min_bytes=100"))
    for _ in range(3):
        await api.post("/topics/t", records("x" * 38))
    assert [row["offset"] for row in (await waiting).json] == [0, 1, 2]


async def test_what_is_there_is_given_when_min_bytes_do_not_come(api: Api) -> None:
    await api.post("/topics/t", records("x"))
    answer = await api.get(f"{PATH}?timeout=50&min_bytes=1000")
    assert len(answer.json) == 1


async def test_a_full_page_does_not_wait_for_min_bytes(api: Api) -> None:
    await api.post("/topics/t", records("x", "y"))
    answer = await api.get(f"{PATH}?timeout=20000&min_bytes=1000&max_records=1")
    assert len(answer.json) == 1


async def test_many_wait_for_one_record(api: Api) -> None:
    await api.create("t")
    waiting = [asyncio.create_task(api.get(f"{PATH}?timeout=20000")) for _ in range(20)]
    await api.until_waiting(20)
    await api.post("/topics/t", records(1))
    assert {len(answer.json) for answer in await asyncio.gather(*waiting)} == {1}


async def test_a_client_that_goes_away_waits_no_more(api: Api) -> None:
    await api.create("t")
    for _ in range(5):
        async with api.connection() as (_, writer):
            writer.write(f"GET {PATH}?timeout=200000 HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            await api.until_waiting()
        async with asyncio.timeout(10):
            while api.service.waiters.count:  # noqa: ASYNC110  # the service has no event for tests
                await asyncio.sleep(0.001)
    async with asyncio.timeout(10):
        await api.until_connected(1)
    assert (await api.get(PATH)).json == []


async def test_a_client_that_shuts_its_side_down_is_given_what_is_there(api: Api) -> None:
    await api.create("t")
    async with api.connection() as (reader, writer):
        writer.write(f"GET {PATH}?timeout=200000 HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        await api.until_waiting()
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 10)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n[]")


async def test_only_so_many_may_wait(backend: str, tmp_path: Path) -> None:
    chosen = settings(tmp_path / "store", max_waiting_fetches=2)
    async with serving(chosen, opener(backend, chosen)) as api:
        await api.create("t")
        waiting = [asyncio.create_task(api.get(f"{PATH}?timeout=20000")) for _ in range(2)]
        await api.until_waiting(2)
        refused = await api.get(f"{PATH}?timeout=20000")
        assert refused.code == 42901
        assert refused.headers["Retry-After"] == "1"
        assert "max_waiting_fetches" in refused.json["message"]
        assert (await api.get(PATH)).json == []
        await api.post("/topics/t", records(1))
        assert [len(answer.json) for answer in await asyncio.gather(*waiting)] == [1, 1]


async def test_waiting_on_a_topic_that_goes_away_is_told(api: Api) -> None:
    await api.create("t")
    waiting = asyncio.create_task(api.get(f"{PATH}?timeout=20000"))
    await api.until_waiting()
    await api.call("DELETE", "/topics/t")
    assert (await waiting).code == 40401


async def test_reading_page_by_page_misses_nothing(api: Api) -> None:
    for begin in range(0, 90, 30):
        await api.post("/topics/t", records(*range(begin, begin + 30)))
    values: list[int] = []
    offset = "0"
    while True:
        answer = await api.get(f"{PATH}?offset={offset}&max_records=7", accept=JSON)
        if not answer.json:
            break
        values += [row["value"] for row in answer.json]
        offset = answer.headers["X-Next-Offset"]
    assert values == list(range(90))


# -- record batches


async def test_batches_go_out_and_in_untouched(api: Api) -> None:
    if not api.service.store.capabilities.batch_bytes:
        pytest.skip("the backend has no record batches")
    await api.post("/topics/t?compression=zstd", records(1, 2, 3))
    await api.post("/topics/t", records(4))
    fetched = await api.get(PATH, accept=BATCH)
    assert fetched.headers["Content-Type"] == BATCH
    assert fetched.headers["X-Next-Offset"] == "4"
    answer = await api.post("/topics/u", fetched.body, content_type=BATCH)
    assert answer.json["offsets"] == [
        {"partition": 0, "offset": 0, "last_offset": 3, "error_code": None, "error": None}
    ]
    assert await api.values("u") == [1, 2, 3, 4]
    again = await api.post("/topics/u/partitions/0?acks=1", fetched.body, content_type=BATCH)
    assert again.json["offsets"][0]["offset"] == 4
    copied = await api.get("/topics/u/partitions/0/records?max_bytes=1", accept=BATCH)
    assert copied.headers["X-Next-Offset"] == "3"
    quiet = await api.post("/topics/u?acks=0", fetched.body, content_type=BATCH)
    assert (quiet.status, quiet.json["offsets"]) == (202, None)


@pytest.mark.parametrize("start", ["earliest", "1", "-3", "latest"])
@pytest.mark.parametrize("max_bytes", [1, 300, 1 << 20])
async def test_batches_in_the_page_cache_need_no_thread(
    on_disk: Path, monkeypatch: pytest.MonkeyPatch, start: str, max_bytes: int
) -> None:
    threads: list[str] = []

    def read(*args: Any, **options: Any) -> Any:
        threads.append(threading.current_thread().name)
        return read_batches(*args, **options)

    chosen = settings(on_disk / "store")
    async with serving(chosen, opener("kafka", chosen)) as api:
        store: Any = api.service.store
        read_batches = store.read_batches
        monkeypatch.setattr(store, "read_batches", read)
        for number in range(9):
            await api.post("/topics/t", records(number))
        path = f"{PATH}?offset={start}&max_bytes={max_bytes}"
        found = await api.get(path, accept=BATCH)
        assert threads == []
        monkeypatch.setattr(store, "read_batches_promptly", lambda *args, **options: None)
        other = await api.get(path, accept=BATCH)
    assert len(threads) == 1
    assert (found.status, found.body) == (200, other.body)
    for name in ("X-Next-Offset", "X-Beginning-Offset", "X-End-Offset", "ETag", "Content-Type"):
        assert found.headers.get(name) == other.headers.get(name)


def with_attributes(batch: bytes, attributes: int) -> bytes:
    """Return the batch with other attributes and a matching CRC."""
    covered = attributes.to_bytes(2) + batch[23:]
    return batch[:17] + crc32c(covered).to_bytes(4) + covered


async def test_a_bad_batch_is_refused(api: Api) -> None:
    if not api.service.store.capabilities.batch_bytes:
        pytest.skip("the backend has no record batches")
    await api.post("/topics/t", records(1))
    good = (await api.get(PATH, accept=BATCH)).body
    bad = {
        "crc": good[:-1] + bytes([good[-1] ^ 1]),
        "magic": good[:16] + b"\x01" + good[17:],
        "codec": good[:22] + b"\x05" + good[23:],
        "records that are not gzip": with_attributes(good, 1),
        "delete horizon": with_attributes(good, 0x40),
        "cut": good[:-1],
        "tail": good + b"\x00",
        "noise": b"not a batch at all, but longer than one header of sixty-one bytes....",
    }
    for name, data in bad.items():
        answer = await api.post("/topics/u", data, content_type=BATCH)
        assert answer.code == 42208, name
    assert (await api.post("/topics/t", b"", content_type=BATCH)).code == 42201
    transactional = with_attributes(good, 0x10)
    control = good + with_attributes(good, 0x20)
    for data in (transactional, control):
        assert (await api.post("/topics/t", data, content_type=BATCH)).code == 42207
    await api.create("two", 2)
    assert (await api.post("/topics/two", good, content_type=BATCH)).code == 42201
    assert len((await api.get(PATH)).json) == 1


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
async def test_a_batch_that_cannot_be_decoded_tells_where_to_go_on(api: Api, codec: int) -> None:
    if not api.service.store.capabilities.batch_bytes:
        pytest.skip("the backend has no record batches")
    await api.post("/topics/t", records(1, 2))
    good = (await api.get(PATH, accept=BATCH)).body
    poison = with_attributes(good, codec)
    assert (await api.post("/topics/t", poison, content_type=BATCH)).code == 42208
    store = api.service.store
    assert isinstance(store, SupportsBatchBytes)
    store.append_batches(TopicPartition("t", 0), poison)
    await api.post("/topics/t", records(3))
    assert [row["offset"] for row in (await api.get(PATH)).json] == [0, 1]
    answer = await api.get(f"{PATH}?offset=2")
    assert answer.code == 50010
    assert answer.json["next_good_offset"] == 4
    assert [row["offset"] for row in (await api.get(f"{PATH}?offset=4")).json] == [4]
    waiting = await api.get(f"{PATH}?offset=2&timeout=1000&min_bytes=1000")
    assert waiting.code == 50010


async def test_a_backend_without_batches_says_so(api: Api) -> None:
    if api.service.store.capabilities.batch_bytes:
        pytest.skip("the backend has record batches")
    await api.post("/topics/t", records(1))
    assert (await api.get(PATH, accept=BATCH)).code == 42207
    assert (await api.post("/topics/t", bytes(100), content_type=BATCH)).code == 42207
