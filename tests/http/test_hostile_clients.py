"""Small requests that cause much work: other clients are served meanwhile, and the server's state is bounded."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logserver.access.tokens import Scope
from tests.http.groups.consumers import consumer, produce
from tests.http.harness import JSON, V2, Answer, Api, opener, records, serving, settings
from tests.http.test_security import ADMIN, PRODUCER, READER, bearer, token_file

NDJSON = "application/x-ndjson"
SLOWEST_S = 0.1
ATTEMPTS = 3  # a busy machine may delay an answer; code that blocks the loop does so each time


async def served_meanwhile(api: Api, attack: Callable[[], Awaitable[Any]]) -> Any:
    """Run the attack and return its result; /livez must have been answered quickly all the time."""
    slowest_s = 0.0
    for _ in range(ATTEMPTS):
        running = asyncio.ensure_future(attack())
        slowest_s = 0.0
        while not running.done():
            begun = time.perf_counter()
            assert (await api.get("/livez")).status == 200
            slowest_s = max(slowest_s, time.perf_counter() - begun)
            await asyncio.sleep(0.002)
        if slowest_s < SLOWEST_S:
            return running.result()
        await running
    raise AssertionError(f"/livez took {slowest_s:.3f} s, {ATTEMPTS} times")


# -- patterns


async def test_a_pattern_over_many_long_names(api: Api) -> None:
    """A costly pattern delays no other client at the subscription, nor at each creation of a topic."""
    if api.backend == "memory":
        pytest.skip("the store takes no part")
    store = api.service.store
    names = [f"{'a' * 100}{number:04}" for number in range(400)]
    for name in names:
        info = await asyncio.to_thread(store.create_topic, name, 1)
        api.service.topics.note(name, info)
    me = await consumer(api)
    numbers = iter(range(1000))

    async def attack() -> None:
        count = 245 - next(numbers)
        await me.done("subscription", {"topic_pattern": "a?" * count + "[0-9]*"})
        await api.create(f"{'a' * 100}x{count}")
        await me.done("subscription", {"topic_pattern": "(a|ab|b){0,40}" * 20 + f"x{count}"})

    await served_meanwhile(api, attack)
    answer = await me.post("subscription", {"topic_pattern": "x" * 501})
    assert answer.code == 42201
    assert "500 characters" in answer.json["message"]


# -- streams of lines


def hostile_bodies() -> dict[str, bytes]:
    """Return bodies that gzip compresses to about a thousandth."""
    return {
        "bad lines": b"x\n" * 2_000_000,
        "blank lines": b"\n" * 8_000_000,
        "spaces": b" \r\n" * 2_000_000,
        "blank and bad lines": (b"\n" * 1000 + b"[\n") * 4000,
        "bad records": b'{"value":1,"partition":"x"}\n' * 200_000,
    }


@pytest.mark.parametrize("kind", hostile_bodies())
async def test_lines_that_are_none(api: Api, kind: str) -> None:
    packed = gzip.compress(hostile_bodies()[kind], 1)
    headers = {"Content-Type": NDJSON, "Content-Encoding": "gzip"}

    async def attack() -> Answer:
        return await api.call("POST", "/topics/t", data=packed, headers=headers)

    answer = await served_meanwhile(api, attack)
    assert len(answer.body) < 1_000_000  # 2 to 8 MB were sent
    rows = [msgspec.json.decode(line) for line in answer.body.splitlines()]
    limit = api.service.settings.max_stream_errors
    assert len(rows) <= limit + 1001  # a group of lines is answered as a whole
    if "bad" in kind:
        assert rows[-1]["error_code"] == 41301
        assert "max_stream_errors" in rows[-1]["error"]
    else:
        assert rows == []


@pytest.mark.parametrize(
    "record", [b'{"value":"%b"}\n' % (b"A" * 1000), b"\n", b" " * 5000 + b"\n"]
)
async def test_what_a_stream_unpacks_to_is_bounded(tmp_path: Path, record: bytes) -> None:
    chosen = settings(tmp_path / "s", max_stream_inflation=5)
    packed = gzip.compress(record * (40_000_000 // len(record)), 9)
    async with serving(chosen, opener("memory", chosen)) as api:
        headers = {"Content-Type": NDJSON, "Content-Encoding": "gzip"}
        answer = await api.call("POST", "/topics/t", data=packed, headers=headers)
    last = msgspec.json.decode(answer.body.splitlines()[-1])
    assert last["error_code"] == 41301
    assert "max_stream_inflation" in last["error"]


async def test_some_bad_lines_end_no_stream(api: Api) -> None:
    lines = b'{"value":"AAAA"}\nx\n' * 900
    answer = await api.call("POST", "/topics/t", data=lines, headers={"Content-Type": f"{NDJSON}"})
    rows = [msgspec.json.decode(line) for line in answer.body.splitlines()]
    assert [row["error_code"] is None for row in rows] == [True, False] * 900


# -- bounded state of the server


@pytest.fixture
async def tight(backend: str, tmp_path: Path) -> AsyncIterator[Api]:
    """A server with low limits."""
    limits = {"max_groups": 3, "max_group_metadata_bytes": 10, "max_auto_created_topics": 2}
    chosen = settings(tmp_path / "store", **limits)
    async with serving(chosen, opener(backend, chosen)) as running:
        yield running


async def commit(api: Api, group: str, metadata: str = "") -> Answer:
    """Commit an offset by an instance of the group, then delete the instance."""
    made = await api.post(f"/consumers/{group}", {"name": "c"}, content_type=V2)
    if made.status != 200:
        return made
    path = f"/consumers/{group}/instances/c"
    row = {"topic": "t", "partition": 0, "offset": 0, "metadata": metadata}
    answer = await api.post(f"{path}/offsets", {"offsets": [row]}, content_type=V2)
    await api.call("DELETE", path)
    return answer


async def reset(api: Api, group: str) -> Answer:
    """Reset the group's offset from outside the group."""
    body = {"topic": "t", "to": "earliest"}
    return await api.call("PUT", f"/groups/{group}/offsets", json=body)


async def test_groups_are_bounded(tight: Api) -> None:
    await tight.create("t")
    await produce(tight, "t", 1)
    assert [(await commit(tight, f"g{number}")).status for number in range(3)] == [200] * 3
    for refused in (await commit(tight, "g3"), await reset(tight, "g3")):
        assert refused.code == 42901
        assert "max_groups" in refused.json["message"]
        assert "Retry-After" in refused.headers
    assert (await tight.get("/groups")).json == ["g0", "g1", "g2"]
    assert (await commit(tight, "g1")).status == 200
    assert (await reset(tight, "g2")).status == 200
    assert (await tight.call("DELETE", "/groups/g1")).status == 204
    assert (await reset(tight, "g3")).status == 200
    assert (await commit(tight, "g4")).code == 42901


async def test_groups_that_ended_by_themselves_make_room(tight: Api) -> None:
    """Groups without members and commits no longer count for the limit."""
    await tight.create("t")
    await produce(tight, "t", 1)
    for number in range(3):
        made = await tight.post(f"/consumers/m{number}", {"name": "c"}, content_type=V2)
        assert made.status == 200
    assert (await commit(tight, "g")).code == 42901
    for number in range(3):
        await tight.call("DELETE", f"/consumers/m{number}/instances/c")
    async with asyncio.timeout(10):
        while (await commit(tight, "g")).status != 200:  # noqa: ASYNC110  # the server has no event for tests
            await asyncio.sleep(0.01)


async def test_groups_of_before_a_restart_count(backend: str, tmp_path: Path) -> None:
    if backend == "memory":
        pytest.skip("it does not outlive a restart")
    chosen = settings(tmp_path / "store", max_groups=2)
    async with serving(chosen, opener(backend, chosen)) as api:
        await api.create("t")
        await produce(api, "t", 1)
        assert [(await commit(api, f"g{number}")).status for number in range(2)] == [200, 200]
    async with serving(chosen, opener(backend, chosen)) as api:
        await api.get("/groups")
        assert (await reset(api, "g2")).code == 42901
        assert (await reset(api, "g1")).status == 200


@pytest.mark.parametrize("metadata", ["x" * 11, "é" * 6, "\U0001f600" * 3])
async def test_metadata_is_bounded(tight: Api, metadata: str) -> None:
    await tight.create("t")
    await produce(tight, "t", 1)
    refused = await commit(tight, "g", metadata)
    assert refused.code == 42901
    assert "max_group_metadata_bytes" in refused.json["message"]
    assert (await tight.get("/groups")).json == []
    assert (await commit(tight, "g", metadata[:-3])).status == 200


async def test_topics_made_by_requests_are_bounded(tight: Api) -> None:
    for number in range(2):
        assert (await tight.post(f"/topics/a{number}", records(1))).status == 200
    for _ in range(2):
        refused = await tight.post("/topics/a2", records(1))
        assert refused.code == 42901
        assert "max_auto_created_topics" in refused.json["message"]
    assert (await tight.get("/topics")).json == ["a0", "a1"]
    assert (await tight.post("/topics/a0", records(1))).status == 200
    await tight.create("by-hand")
    assert (await tight.post("/topics/by-hand", records(1))).status == 200
    assert (await tight.call("DELETE", "/topics/a0")).status == 204
    assert (await tight.post("/topics/a2", records(1))).status == 200
    lines = b'{"value":"AAAA"}\n'
    stream = await tight.call("POST", "/topics/a3", data=lines, headers={"Content-Type": NDJSON})
    assert b"42901" in stream.body


async def test_reading_commits_and_resets_and_does_not_delete(tmp_path: Path) -> None:
    """Commits and resets of offsets need the read scope; deletion of a group needs the admin scope."""
    lines = (f"{READER} read", f"{PRODUCER} produce", f"{ADMIN} admin")
    chosen = settings(tmp_path / "store", token_file=token_file(tmp_path, *lines))
    assert {scope.value for scope in Scope} == {"read", "produce", "admin"}
    async with serving(chosen, opener("kafka", chosen)) as api:
        admin, reader, producer = (bearer(token) for token in (ADMIN, READER, PRODUCER))
        headers = {**admin, "Content-Type": JSON}
        await api.call("POST", "/topics/t", headers=headers, data=b'{"records":[{"value":1}]}')
        body = {"topic": "t", "to": "earliest"}
        for token, status in ((reader, 200), (producer, 403)):
            done = await api.call("PUT", "/groups/g/offsets", headers=token, json=body)
            assert done.status == status
            made = await api.call("POST", "/consumers/h", headers=token, json={"name": "c"})
            assert made.status == status
        row = {"topic": "t", "partition": 0, "offset": 0}
        done = await api.call(
            "POST", "/consumers/h/instances/c/offsets", headers=reader, json={"offsets": [row]}
        )
        assert done.status == 200
        assert (await api.call("DELETE", "/groups/g", headers=reader)).status == 403
        assert (await api.call("DELETE", "/groups/g", headers=admin)).status == 204
