"""Queries: records of a topic by key, tag and time, page by page in both directions; a record by id; rejections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from storage import FindQuery, FoundPage
from tests.http.harness import JSON, Api, b64, opener, serving, settings
from tests.watched_store import WatchedStore

PATH = "/topics/events/messages"
TEXT = "format=text"
KEYS = ("a", "b", "a b", "ü&c=+/")


def body(partition: int) -> dict[str, object]:
    """Return twelve records with four keys in turn; every third has a tag, every fourth has lookup keys."""
    return {
        "records": [
            {
                "key": KEYS[n % 4],
                "value": f"{partition}.{n}",
                "partition": partition,
                **({"tag": "red"} if n % 3 == 0 else {}),
                **({"keys": ["order-7", "x"]} if n % 4 == 1 else {}),
            }
            for n in range(12)
        ]
    }


@pytest.fixture
async def filled(api: Api) -> Api:
    """A server with a topic of two partitions and twelve records in each."""
    await api.create("events", 2)
    for partition in (0, 1):
        answer = await api.post(f"/topics/events?{TEXT}", body(partition), content_type=JSON)
        assert answer.status == 200, answer.body
    return api


def ids(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in rows]


def both(*offsets: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in (0, 1) for offset in offsets]


async def found(api: Api, query: str) -> dict[str, Any]:
    answer = await api.get(f"{PATH}?{TEXT}&{query}")
    assert answer.status == 200, answer.body
    page: dict[str, Any] = answer.json
    members = ["records", "scanned", "indexed", "complete", "next", "time_axis"]
    assert list(page) == members
    assert page["complete"] is (page["next"] is None)
    return page


async def followed(api: Api, query: str) -> list[dict[str, Any]]:
    """Follow the links of a query; return every page."""
    answer = await api.get(f"{PATH}?{TEXT}&{query}")
    pages = [answer.json]
    while pages[-1]["next"] is not None:
        assert len(pages) < 100, "the links do not come to an end"
        answer = await api.get(pages[-1]["next"])
        assert answer.status == 200, answer.body
        pages.append(answer.json)
    return pages


@pytest.mark.parametrize("key", KEYS)
async def test_by_key(filled: Api, key: str) -> None:
    page = await found(filled, f"key={quote(key, safe='')}")
    first = KEYS.index(key)
    assert sorted(ids(page["records"])) == both(first, first + 4, first + 8)
    assert {row["key"] for row in page["records"]} == {key}
    assert page["complete"]
    assert page["scanned"] >= 6


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ("key=order-7", (1, 5, 9)),
        ("tag=red", (0, 3, 6, 9)),
        ("key=order-7&tag=red", (9,)),
        ("key=a&tag=red", (0,)),
        ("key=a&scan=true", (0, 4, 8)),
        ("key=absent", ()),
        ("key=A", ()),
        ("tag=blue", ()),
        ("limit=1000", tuple(range(12))),
        ("begin=0&limit=1000", tuple(range(12))),
        ("end=0", ()),
        ("begin=9223372036854775807", ()),
    ],
)
async def test_what_a_query_finds(filled: Api, query: str, offsets: tuple[int, ...]) -> None:
    page = await found(filled, query)
    assert sorted(ids(page["records"])) == both(*offsets)


async def test_the_answer_says_how_it_was_found(filled: Api) -> None:
    capabilities = filled.service.store.capabilities
    page = await found(filled, "key=a")
    assert page["indexed"] is capabilities.indexed_keys
    assert page["time_axis"] == capabilities.time_axis
    assert not (await found(filled, "key=a&scan=true"))["indexed"]


async def test_a_range_of_time(filled: Api) -> None:
    """A time range includes both ends, on the axis that `time_axis` names and every row reports."""
    page = await found(filled, "limit=1000")
    axis = page["time_axis"]
    times = sorted({row[axis] for row in page["records"]})
    for begin, end in ((times[0], times[0]), (times[0], times[-1]), (times[-1], times[-1])):
        rows = [row for row in page["records"] if begin <= row[axis] <= end]
        within = await found(filled, f"begin={begin}&end={end}&limit=1000")
        assert within["records"] == rows


async def test_rows_are_those_of_a_fetch(filled: Api) -> None:
    """The rows of a query equal the rows of a fetch, except for the id, which a query always reports."""
    for row in (await found(filled, "limit=1000"))["records"]:
        path = f"/topics/events/partitions/{row['partition']}/records"
        answer = await filled.get(f"{path}?offset={row['offset']}&max_records=1&{TEXT}")
        (fetched,) = answer.json
        assert {**fetched, "message_id": row["message_id"]} == row


async def test_formats(filled: Api) -> None:
    """Accept and `format` choose the form of key and value, as in a fetch."""
    for query, accept, key in (
        ("", None, b64(b"a")),
        ("&format=text", None, "a"),
        ("&format=binary", JSON, b64(b"a")),
    ):
        answer = await filled.get(f"{PATH}?key=a&limit=1{query}", accept=accept)
        assert answer.headers["Content-Type"] == (accept or "application/json")
        assert answer.json["records"][0]["key"] == key
    (row,) = (await filled.get(f"{PATH}?key=a&limit=1", accept=JSON)).json["records"]
    assert (row["key"], row["key_b64"]) == (None, b64(b"a"))


@pytest.mark.parametrize("query", ["", "key=a", "tag=red", "key=order-7&tag=red"])
async def test_backward_is_the_reverse(filled: Api, query: str) -> None:
    forth = await found(filled, f"{query}&limit=1000&direction=forward")
    back = await found(filled, f"{query}&limit=1000&direction=backward")
    assert back["records"] == forth["records"][::-1]


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("query", ["", "key=a", "key=%C3%BC%26c%3D%2B%2F", "tag=red"])
async def test_links_lead_through_all_of_it(filled: Api, query: str, direction: str) -> None:
    query = f"{query}&direction={direction}"
    pages = await followed(filled, f"{query}&limit=2")
    assert all(len(page["records"]) <= 2 for page in pages)
    whole = await found(filled, f"{query}&limit=1000")
    assert [row for page in pages for row in page["records"]] == whole["records"]


async def test_a_link_is_the_same_query(filled: Api) -> None:
    page = await found(filled, "key=%C3%BC%26c%3D%2B%2F&begin=0&limit=1")
    link = urlsplit(page["next"])
    assert (link.scheme, link.netloc, link.path) == ("", "", PATH)
    query = parse_qs(link.query)
    assert query.pop("cursor")[0]
    assert query == {"format": ["text"], "key": ["ü&c=+/"], "begin": ["0"], "limit": ["1"]}


@pytest.fixture
async def frugal(backend: str, tmp_path: Path) -> AsyncIterator[Api]:
    """A server that scans at most five records per query."""
    chosen = settings(tmp_path / "store", max_scanned_records=5)
    async with serving(chosen, opener(backend, chosen)) as running:
        await running.create("events", 2)
        for partition in (0, 1):
            await running.post(f"/topics/events?{TEXT}", body(partition))
        yield running


@pytest.mark.parametrize("direction", ["forward", "backward"])
async def test_a_scan_stops_at_its_budget_and_goes_on(frugal: Api, direction: str) -> None:
    pages = await followed(frugal, f"tag=red&scan=true&direction={direction}")
    assert len(pages) >= 5
    assert all(page["scanned"] <= 5 for page in pages)
    rows = [row for page in pages for row in page["records"]]
    assert sorted(ids(rows)) == both(0, 3, 6, 9)


async def test_a_page_of_nothing_is_not_the_end(frugal: Api) -> None:
    page = await found(frugal, "tag=blue&scan=true")
    assert (page["records"], page["scanned"], page["complete"]) == ([], 5, False)


@pytest.mark.parametrize(
    ("query", "code", "reported"),
    [
        ("keys=a", 40000, "keys"),
        ("limit=0", 40000, "limit"),
        ("limit=10001", 40000, "10000"),
        ("limit=many", 40000, "limit"),
        ("begin=yesterday", 40000, "begin"),
        ("begin=-1", 40000, "begin"),
        ("end=9223372036854775808", 40000, "end"),
        ("begin=2&end=1", 40000, "begin"),
        ("direction=up", 40000, "forward, backward"),
        ("scan=1", 40000, "scan"),
        ("format=xml", 40000, "format"),
        ("key=a&unique_id=b", 40000, "unique_id"),
        ("key=%FF", 40000, "UTF-8"),
        ("tag=%C3%28", 40000, "UTF-8"),
        ("cursor=", 42201, "cursor"),
        ("cursor=nonsense", 42201, "cursor"),
        ("cursor=9:0", 42201, "cursor"),
        ("cursor=0:" + "9" * 40, 42201, "cursor"),
        ("cursor=%00", 42201, "cursor"),
    ],
)
async def test_refused(filled: Api, query: str, code: int, reported: str) -> None:
    answer = await filled.get(f"{PATH}?{query}")
    assert answer.code == code
    assert reported in answer.json["message"]


async def test_a_cursor_of_the_other_direction_is_refused(filled: Api) -> None:
    link = (await found(filled, "key=a&limit=1&direction=backward"))["next"]
    answer = await filled.get(link.replace("backward", "forward"))
    assert answer.code == 42201
    assert answer.json["field"] == "cursor"


async def test_an_unknown_topic(api: Api) -> None:
    assert (await api.get("/topics/none/messages?key=a")).code == 40401
    assert (await api.call("POST", PATH)).code == 405
    assert (await api.get(PATH, accept="text/html")).code == 406


async def test_unique_ids_where_there_are_none(filled: Api) -> None:
    if filled.service.store.capabilities.messages:
        pytest.skip("the backend's records have unique ids")
    assert (await filled.get(f"{PATH}?unique_id=7F000001")).code == 42207


async def test_every_id_leads_back_to_its_record(filled: Api) -> None:
    rows = (await found(filled, "limit=1000"))["records"]
    assert len({row["message_id"] for row in rows}) == 24
    for row in rows:
        answer = await filled.get(f"/messages/{quote(row['message_id'])}?{TEXT}")
        assert (answer.status, answer.json) == (200, row)


@pytest.mark.parametrize(
    "message_id",
    [
        "nonsense",
        "events",
        "events:0",
        "events:0:12",
        "events:2:0",
        "events:0:-1",
        "none:0:0",
        "..%2Fevents:0:0",
        "events:0:" + "9" * 40,
        "0" * 32,
        "7F00000100002A9F" + "F" * 16,
        "7F00000100002A9F7FFFFFFFFFFFFFFF",
        "A" * 56,
        "%C3%BC",
        "%00",
    ],
)
async def test_no_such_id(filled: Api, message_id: str) -> None:
    answer = await filled.get(f"/messages/{message_id}")
    assert answer.code == 40404
    assert "id" in answer.json


async def test_an_id_has_no_other_parameters(filled: Api) -> None:
    assert (await filled.get("/messages/events:0:0?topic=events")).code == 40000
    assert (await filled.call("DELETE", "/messages/events:0:0")).code == 405


async def test_a_query_stays_within_its_topic(filled: Api) -> None:
    await filled.create("others")
    await filled.post(f"/topics/others?{TEXT}", {"records": [{"key": "a", "value": "other"}]})
    page = await found(filled, "key=a&limit=1000")
    assert {row["topic"] for row in page["records"]} == {"events"}
    assert len(page["records"]) == 6


class SlowSearch(WatchedStore):
    """A store whose queries block until the gate opens."""

    searching = threading.Event()

    def find_page(self, topic: str, query: FindQuery) -> FoundPage:
        self.searching.set()
        assert self.gate.wait(30)
        assert threading.current_thread() is not threading.main_thread()
        return super().find_page(topic, query)


async def test_a_long_query_holds_up_nothing(tmp_path: Path) -> None:
    """Running queries block neither the loop nor fetches, however many there are."""
    store = SlowSearch()
    store.create_topic("events", 1)
    async with serving(settings(tmp_path), store.opener()) as api:
        store.gate.clear()
        queries = [asyncio.create_task(api.get(f"{PATH}?key=a")) for _ in range(8)]
        assert await asyncio.to_thread(store.searching.wait, 10)
        assert (await api.get("/livez")).status == 200
        assert (await api.get("/topics/events/partitions/0/records")).status == 200
        store.gate.set()
        assert [(await query).status for query in queries] == [200] * 8


async def test_a_row_of_kafka(tmp_path: Path) -> None:
    """A row of a Kafka store has the members of a fetch and the id, and no member of another backend."""
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener("kafka", chosen)) as api:
        record = {"key": "a", "value": 1, "timestamp": 5}
        await api.post("/topics/t", {"records": [record]})
        answer = await api.get("/topics/t/messages", accept=JSON)
        assert answer.body == (
            b'{"records":[{"topic":"t","partition":0,"offset":0,"timestamp":5,"key":"a","value":1,'
            b'"headers":[],"message_id":"t:0:0"}],"scanned":1,"indexed":false,"complete":true,'
            b'"next":null,"time_axis":"timestamp"}'
        )
