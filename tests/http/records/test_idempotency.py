"""Produce requests with a key: stored once, also after timeouts, races, restarts and crashes."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logserver.service import commit
from storage import LogStore, TopicPartition
from storage.errors import DiskFull
from tests.contract.harness import ManualClock
from tests.http.harness import (
    BATCH,
    BINARY,
    JSON,
    ONE_PARTITION,
    Answer,
    Api,
    b64,
    opener,
    records,
    serving,
    settings,
    without_ids,
)

DAY_MS = 86_400_000


async def keyed(
    api: Api, key: str, body: object, path: str = "/topics/t", *, content_type: str = JSON
) -> Answer:
    headers = {"Idempotency-Key": key, "Content-Type": content_type}
    data = io.BytesIO(msgspec.json.encode(body))
    return await api.call("POST", path, data=data, headers=headers)


async def test_a_repeat_is_answered_as_the_first_and_stored_once(api: Api) -> None:
    first = await keyed(api, "k", records(1, 2))
    await api.post("/topics/t", records("between"))
    again = await keyed(api, "k", records(1, 2))
    assert (first.status, again.status) == (200, 200)
    assert again.json == first.json
    assert await api.values("t") == [1, 2, "between"]


async def test_another_key_is_another_request(api: Api) -> None:
    for key in ("k", "K", "k 2"):
        assert (await keyed(api, key, records(1))).status == 200
    assert await api.values("t") == [1, 1, 1]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/topics/t", records(2)),
        ("/topics/t", records(1, 1)),
        ("/topics/u", records(1)),
        ("/topics/t/partitions/0", records(1)),
        ("/topics/t?format=text", records("1")),
    ],
)
async def test_a_key_of_another_request_is_refused(api: Api, path: str, body: object) -> None:
    await keyed(api, "k", records(1))
    answer = await keyed(api, "k", body, path)
    assert answer.code == 42209
    assert answer.json["key"] == "k"
    assert await api.values("t") == [1]


async def test_how_long_to_wait_is_no_other_request(api: Api) -> None:
    first = await keyed(api, "k", records(1), "/topics/t?acks=1")
    for query in ("acks=all", "timeout=1000", "compression=none"):
        assert (await keyed(api, "k", records(1), f"/topics/t?{query}")).json == first.json
    nothing_told = await keyed(api, "k", records(1), "/topics/t?acks=0")
    assert (nothing_told.status, nothing_told.json["offsets"]) == (202, None)
    assert await api.values("t") == [1]


async def test_acks_0_is_stored_once_too(api: Api) -> None:
    for _ in range(3):
        assert (await keyed(api, "k", records(1), "/topics/t?acks=0")).status == 202
    await api.get("/topics/t/partitions/0/records?timeout=5000")
    assert without_ids((await keyed(api, "k", records(1))).json["offsets"])[0]["offset"] == 0
    assert await api.values("t") == [1]


async def test_a_repeat_splits_as_the_first(api: Api) -> None:
    await api.create("t", 4)
    body = {"records": [{"key": key, "value": 1} for key in ("a", "b", None, "c", None)]}
    first = await keyed(api, "k", body)
    for _ in range(3):  # keyless records of other requests change partitions meanwhile
        await api.post("/topics/t", records(2))
        assert (await keyed(api, "k", body)).json == first.json
    rows = first.json["offsets"]
    assert len({row["partition"] for row in rows}) > 1
    assert rows[2]["partition"] == rows[4]["partition"]


async def test_keyless_records_of_other_keys_go_elsewhere(api: Api) -> None:
    await api.create("t", 4)
    answers = [await keyed(api, f"key-{number}", records(1)) for number in range(40)]
    assert {answer.json["offsets"][0]["partition"] for answer in answers} == {0, 1, 2, 3}


async def test_a_record_that_fails_alone_fails_in_the_repeat(api: Api) -> None:
    body = records(b64(b"a"), "***", b64(b"b"))
    first = await keyed(api, "k", body, content_type=BINARY)
    again = await keyed(api, "k", body, content_type=BINARY)
    assert first.status == 200
    assert again.json == first.json
    assert len(await api.values("t")) == 2


async def test_a_request_too_large_for_one_batch_is_refused_whole(api: Api) -> None:
    await api.create("t")
    body = records(b64(b"a"), b64(bytes(5_000_000)))
    for _ in range(2):
        assert (await keyed(api, "k", body, content_type=BINARY)).code == 41302
    assert await api.values("t") == []
    assert (await keyed(api, "u", body, "/topics/u", content_type=BINARY)).code == 41302
    assert (await api.get("/topics")).json == ["t"]


@pytest.mark.parametrize("key", ["", "x" * 256, "\u00e9", "a\tb"])
async def test_a_key_has_1_to_255_characters_of_ascii(api: Api, key: str) -> None:
    answer = await keyed(api, key, records(1))
    assert answer.code == 40000
    assert "Idempotency-Key" in answer.json["message"]


async def test_a_key_excludes_a_sequence_and_record_batches(api: Api) -> None:
    query = "?producer_id=1&producer_epoch=0&sequence=0"
    assert (await keyed(api, "k", records(1), f"/topics/t{query}")).code == 40000
    for kind in (BATCH, "application/x-ndjson"):
        headers = {"Idempotency-Key": "k", "Content-Type": kind}
        answer = await api.call("POST", "/topics/t", data=b"{}", headers=headers)
        assert answer.code == 40000
        assert "Idempotency-Key" in answer.json["message"]


async def test_a_record_as_it_is_has_its_key_too(api: Api) -> None:
    headers = {"Idempotency-Key": "k", "Content-Type": "application/octet-stream", "X-Tag": "a"}
    for _ in range(2):
        answer = await api.call("POST", "/topics/t", data=b"1", headers=headers)
        assert answer.json["offsets"][0]["offset"] == 0
    answer = await api.call("POST", "/topics/t", data=b"1", headers=headers | {"X-Tag": "b"})
    assert answer.code == 42209
    assert await api.values("t") == [1]


async def test_a_deleted_topic_takes_its_keys_along(api: Api) -> None:
    await keyed(api, "k", records(1, 2))
    await api.call("DELETE", "/topics/t")
    answer = await keyed(api, "k", records(3))
    assert answer.json["offsets"][0]["offset"] == 0
    assert await api.values("t") == [3]


# -- while the first request is in progress


class Gate:
    """A gate that blocks the first append of a store until `go_on` is set."""

    def __init__(self, store: LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.appends = 0
        self.go_on = threading.Event()
        append = store.append

        def held_up(*args: Any, **options: Any) -> Any:
            self.appends += 1
            if self.appends == 1:
                assert self.go_on.wait(10)
            return append(*args, **options)

        monkeypatch.setattr(store, "append", held_up)

    async def reached(self) -> None:
        while not self.appends:  # noqa: ASYNC110  # the thread has no event of the loop
            await asyncio.sleep(0.001)


async def test_repeats_wait_for_the_first(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.create("t")
    gate = Gate(api.service.store, monkeypatch)
    requests = [asyncio.create_task(keyed(api, "k", records(1))) for _ in range(5)]
    await gate.reached()
    other = asyncio.create_task(keyed(api, "k", records(2)))
    assert (await other).code == 42209
    gate.go_on.set()
    answers = await asyncio.gather(*requests)
    assert [answer.json for answer in answers] == [answers[0].json] * 5
    assert await api.values("t") == [1]


async def test_a_repeat_after_a_time_out_gets_the_first_offsets(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.create("t")
    gate = Gate(api.service.store, monkeypatch)
    for _ in range(2):
        assert (await keyed(api, "k", records(1), "/topics/t?timeout=20")).code == 50401
    gate.go_on.set()
    assert (await keyed(api, "k", records(1))).json["offsets"][0]["offset"] == 0
    assert await api.values("t") == [1]


async def test_a_repeat_after_a_failure_tries_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.create("t", 2)
    body = {"records": [{"value": n, "partition": n} for n in (0, 1)]}
    store = api.service.store
    append = store.append

    def full(partition: TopicPartition, *args: Any, **options: Any) -> Any:
        if partition.partition == 1:
            raise DiskFull("no space", path="f", operation="write", errno=28)
        return append(partition, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(store, "append", full)
        assert (await keyed(api, "k", body)).code == 50701
    answer = await keyed(api, "k", body)
    reported = [(row["partition"], row["offset"]) for row in answer.json["offsets"]]
    assert reported == [(0, 0), (1, 0)]
    assert await api.values("t", 0) == [0]
    assert await api.values("t", 1) == [1]


async def test_what_cannot_be_noted_is_not_stored(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.create("t")
    assert api.service._keyed_writer is not None
    journal = api.service._keyed_writer.keys.journal

    def full(entries: Sequence[bytes], *, sync: bool) -> None:
        raise DiskFull("no space", path="f", operation="write", errno=28)

    with monkeypatch.context() as patched:
        patched.setattr(journal, "append", full)
        assert (await keyed(api, "k", records(1))).code == 50701
    assert await api.values("t") == []
    assert (await keyed(api, "k", records(1))).status == 200
    assert await api.values("t") == [1]


async def test_an_end_that_cannot_be_noted_costs_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.create("t")
    assert api.service._keyed_writer is not None
    journal = api.service._keyed_writer.keys.journal
    append = journal.append

    def full(entries: Sequence[bytes], *, sync: bool) -> None:
        if not sync:
            raise DiskFull("no space", path="f", operation="write", errno=28)
        append(entries, sync=sync)

    monkeypatch.setattr(journal, "append", full)
    for _ in range(2):
        for value in range(7):  # more than a store remembers per producer
            assert (await keyed(api, f"k{value}", records(value))).status == 200
    assert await api.values("t") == list(range(7))


# -- over restarts

Start = Callable[..., Any]


@pytest.fixture(params=["kafka", "rocketmq"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    """A function that starts a server over the same store each time it is called."""
    backend = str(request.param)
    chosen = settings(tmp_path / "store", set=ONE_PARTITION.get(backend, {}))
    return lambda **changed: serving(
        settings(tmp_path / "store", set=chosen.set, **changed), opener(backend, chosen)
    )


async def test_a_repeat_after_a_restart_gets_the_first_offsets(start: Start) -> None:
    async with start() as api:
        answers = [await keyed(api, f"k{n}", records(n, n)) for n in range(12)]
    for _ in range(2):
        async with start() as api:
            for n, first in enumerate(answers):
                again = await keyed(api, f"k{n}", records(n, n))
                assert again.json == first.json
            assert (await keyed(api, "k3", records(4, 4))).code == 42209
            assert len(await api.values("t")) == 24


async def test_a_lost_journal_loses_no_record(start: Start, tmp_path: Path) -> None:
    async with start() as api:
        await keyed(api, "k", records(1))
    (tmp_path / "store" / ".logserver.idempotency").unlink()
    async with start() as api:
        assert await api.values("t") == [1]
        assert (await keyed(api, "k", records(2))).status == 200


async def test_a_request_that_was_noted_and_not_answered_is_stored_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeat is stored once if the journal has only the beginning of its first request, with or without records."""
    monkeypatch.setattr(commit, "write_completed", lambda attempts: None)
    async with start() as api:
        for n in range(8):
            await keyed(api, f"k{n}", records(n))
        append = api.service.store.append

        def lost(*args: Any, **options: Any) -> Any:
            raise DiskFull("no space", path="f", operation="write", errno=28)

        monkeypatch.setattr(api.service.store, "append", lost)
        assert (await keyed(api, "k8", records(8))).code == 50701
        monkeypatch.setattr(api.service.store, "append", append)
    monkeypatch.undo()
    async with start() as api:
        for _ in range(2):
            for n in range(9):
                answer = await keyed(api, f"k{n}", records(n))
                assert answer.json["offsets"][0]["offset"] == n
        assert await api.values("t") == list(range(9))


async def test_a_key_is_kept_for_a_day(tmp_path: Path) -> None:
    clock = ManualClock()
    chosen = settings(tmp_path)
    async with serving(chosen, opener("memory", chosen)) as api:
        assert api.service._keyed_writer is not None
        api.service._keyed_writer.keys._clock = clock
        await keyed(api, "k", records(1))
        clock.now_ms += DAY_MS - 1
        assert (await keyed(api, "k", records(2))).code == 42209
        clock.now_ms += 1
        assert (await keyed(api, "k", records(2))).status == 200


async def test_the_oldest_key_makes_room(start: Start) -> None:
    async with start(max_idempotency_keys=3) as api:
        for n in range(5):
            await keyed(api, f"k{n}", records(n))
        assert api.service._keyed_writer is not None
        assert len(api.service._keyed_writer.keys) == 3
        for n in (2, 3, 4):
            await keyed(api, f"k{n}", records(n))
        assert await api.values("t") == [0, 1, 2, 3, 4]
        await keyed(api, "k0", records(0))
        assert len(await api.values("t")) == 6
