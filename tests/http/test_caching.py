"""Cacheable answers to a fetch, and when a cached answer is still valid."""

from __future__ import annotations

import pytest

from api.http.caching import entity_tag
from tests.http.harness import BATCH, BINARY, JSON, Answer, Api, for_any_bytes, records

PATH = "/topics/t/partitions/0/records"
CLOSED = f"{PATH}?offset=0&max_records=2"


async def asked_again(api: Api, path: str, tag: str, accept: str = BINARY) -> Answer:
    return await api.call("GET", path, headers={"If-None-Match": tag, "Accept": accept})


async def test_a_full_page_from_a_named_offset_may_be_kept(api: Api) -> None:
    await api.post("/topics/t", records(1, 2, 3))
    first = await api.get(CLOSED)
    tag = first.headers["ETag"]
    assert tag[0] == tag[-1] == '"', "it is a strong one"
    assert first.headers["Cache-Control"] == "no-cache"
    await api.post("/topics/t", records(4))
    again = await asked_again(api, CLOSED, tag)
    assert (again.status, again.body) == (304, b"")
    assert again.headers["ETag"] == tag
    assert [again.headers[f"X-{name}-Offset"] for name in ("Next", "End")] == ["2", "4"]
    assert (await api.get(CLOSED)).body == first.body


@pytest.mark.parametrize(
    "query",
    [
        "offset=0",
        "offset=0&max_records=3",
        "offset=3",
        "offset=earliest&max_records=1",
        "max_records=1",
        "offset=-2&max_records=1",
        "offset=@0&max_records=1",
        "offset=latest",
    ],
)
async def test_what_moves_with_the_log_has_no_tag(api: Api, query: str) -> None:
    await api.post("/topics/t", records(1, 2, 3))
    answer = await api.get(f"{PATH}?{query}")
    assert answer.status == 200
    assert "ETag" not in answer.headers
    assert "Cache-Control" not in answer.headers


async def test_a_page_ended_by_its_bytes_is_closed(api: Api) -> None:
    await api.post("/topics/t", records(1))
    await api.post("/topics/t", records(2))
    assert "ETag" in (await api.get(f"{PATH}?offset=0&max_bytes=1")).headers


@pytest.mark.parametrize("given", ["W/{}", '"other", {}', "*"])
async def test_how_a_client_may_name_what_it_has(api: Api, given: str) -> None:
    await api.post("/topics/t", records(1, 2, 3))
    tag = (await api.get(CLOSED)).headers["ETag"]
    assert (await asked_again(api, CLOSED, given.format(tag))).status == 304


async def test_another_page_or_form_has_another_tag(api: Api) -> None:
    await api.post("/topics/t", records(1, 2, 3))
    tag = (await api.get(CLOSED)).headers["ETag"]
    assert (await asked_again(api, CLOSED, tag, JSON)).status == 200
    assert (await asked_again(api, f"{CLOSED}&format=text", tag)).status == 200
    assert (await asked_again(api, f"{PATH}?offset=1&max_records=1", tag)).status == 200


async def test_a_topic_made_again_is_never_answered_from_before(api: Api) -> None:
    await api.post("/topics/t", {"records": [{"value": n, "timestamp": 5} for n in (1, 2, 3)]})
    tag = (await api.get(CLOSED)).headers["ETag"]
    await api.call("DELETE", "/topics/t")
    assert (await asked_again(api, CLOSED, tag)).code == 40401
    await api.post("/topics/t", {"records": [{"value": n, "timestamp": 5} for n in (4, 2, 3)]})
    answer = await asked_again(api, CLOSED, tag)
    assert answer.status == 200
    assert answer.headers["ETag"] != tag


async def test_whole_batches_may_be_kept_too(api: Api) -> None:
    for_any_bytes(api)
    if not api.service.store.capabilities.batch_bytes:
        pytest.skip("this store has no batches")
    await api.post("/topics/t", records(1))
    await api.post("/topics/t", records(2))
    first = await api.get(f"{PATH}?offset=0&max_bytes=1", accept=BATCH)
    again = await asked_again(api, f"{PATH}?offset=0&max_bytes=1", first.headers["ETag"], BATCH)
    assert (again.status, again.body) == (304, b"")
    assert "ETag" not in (await api.get(f"{PATH}?offset=0", accept=BATCH)).headers


def test_a_tag_tells_of_each_half_and_of_the_length() -> None:
    bodies = [b"", b"a", b"ab", b"ba", b"abab", b"abba", b"baab", b"ab\0\0"]
    assert len({entity_tag(body) for body in bodies}) == len(bodies)
