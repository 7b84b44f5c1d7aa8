"""Producers with a sequence, and acks: how long an answer waits for the disk."""

from __future__ import annotations

import asyncio
import re
import threading

import pytest

from storage import AppendResult
from storage.errors import UnrepresentableRecord
from tests.http.harness import BATCH, BINARY, Api, b64, fetched, records, without_ids

OK = {"error_code": None, "error": None}
BODY_TAIL = {"key_schema_id": None, "value_schema_id": None}
TOO_LARGE_BYTES = 5_000_000  # for every backend


async def producer(api: Api) -> int:
    answer = await api.post("/producers", b"", content_type=None)
    assert answer.status == 200
    assert answer.json["producer_epoch"] == 0
    number: int = answer.json["producer_id"]
    return number


async def test_each_producer_gets_an_id_of_its_own(api: Api) -> None:
    first, second = await producer(api), await producer(api)
    assert second > first


async def test_a_repeated_sequence_is_answered_with_the_first_offsets(api: Api) -> None:
    query = f"producer_id={await producer(api)}&producer_epoch=0&sequence"
    first = await api.post(f"/topics/t?{query}=0", records(1, 2))
    await api.post("/topics/t", records("between"))
    again = await api.post(f"/topics/t?{query}=0", records(1, 2))
    assert (first.status, again.status) == (200, 200)
    assert again.json == first.json
    following = await api.post(f"/topics/t?{query}=2", records(3))
    assert [row["offset"] for row in following.json["offsets"]] == [3]
    assert await api.values("t") == [1, 2, "between", 3]


async def test_a_gap_in_the_sequence_tells_what_was_expected(api: Api) -> None:
    query = f"producer_id={await producer(api)}&producer_epoch=0&sequence"
    await api.post(f"/topics/t?{query}=0", records(1))
    answer = await api.post(f"/topics/t?{query}=5", records(2))
    assert answer.code == 40904
    assert answer.json["expected"] == 1
    assert await api.values("t") == [1]


async def test_an_older_epoch_is_fenced(api: Api) -> None:
    number = await producer(api)
    await api.post(f"/topics/t?producer_id={number}&producer_epoch=1&sequence=0", records(1))
    answer = await api.post(
        f"/topics/t?producer_id={number}&producer_epoch=0&sequence=1", records(2)
    )
    assert answer.code == 40905
    assert answer.json["current_epoch"] == 1


async def test_a_sequenced_request_goes_to_one_partition(api: Api) -> None:
    await api.create("t", 4)
    query = f"?producer_id={await producer(api)}&producer_epoch=0&sequence=0"
    by_turn = await api.post(f"/topics/t{query}", records(1))
    assert by_turn.code == 42201
    two = {"records": [{"value": 1, "partition": 0}, {"value": 2, "partition": 1}]}
    assert (await api.post(f"/topics/t{query}", two)).code == 42201
    absent = {"records": [{"value": 1, "partition": 9}]}
    assert (await api.post(f"/topics/t{query}", absent)).code == 42201
    by_key = {"records": [{"key": "k", "value": 1}, {"key": "k", "value": 2}]}
    assert (await api.post(f"/topics/t{query}", by_key)).status == 200


async def test_a_sequenced_request_is_all_or_nothing(api: Api) -> None:
    query = f"?producer_id={await producer(api)}&producer_epoch=0&sequence=0"
    bad = await api.post(f"/topics/t{query}", records(b64(b"a"), "***"), content_type=BINARY)
    assert bad.code == 42202
    large = records(b64(b"a"), b64(bytes(TOO_LARGE_BYTES)))
    await api.create("t")
    assert (await api.post(f"/topics/t{query}", large, content_type=BINARY)).code == 41302
    assert await fetched(api) == []


# -- acks


async def test_acks_0_is_accepted_after_validation(api: Api) -> None:
    answer = await api.post("/topics/t?acks=0", records(1))
    assert answer.status == 202
    assert answer.json == {"offsets": None} | BODY_TAIL
    waited = await api.get("/topics/t/partitions/0/records?timeout=5000")
    assert len(waited.json) == 1
    bad = await api.post("/topics/t?acks=0", records(b64(b"a"), "***"), content_type=BINARY)
    assert bad.code == 42202
    assert len(await fetched(api)) == 1


GOOD = {"value": 1}
REFUSED: dict[str, tuple[str, dict[str, object], int]] = {
    "too large": ("t", records("A" * TOO_LARGE_BYTES), 41302),
    "no such partition": ("t/partitions/7", records(1), 40402),
    "one too large": ("t", records(1, "A" * TOO_LARGE_BYTES, 2), 41302),
    "one to no such partition": ("t", {"records": [GOOD, {**GOOD, "partition": 6}]}, 40402),
    "one that cannot be kept": (
        "t",
        {"records": [GOOD, {**GOOD, "properties": {"A": "b"}}]},
        42206,
    ),
}


@pytest.mark.parametrize(("path", "body", "code"), REFUSED.values(), ids=REFUSED.keys())
async def test_acks_0_is_refused_whole_for_what_cannot_be_stored(
    api: Api, path: str, body: dict[str, object], code: int
) -> None:
    await api.create("t")
    assert (await api.post(f"/topics/{path}?acks=0", body)).code == code
    await api.post("/topics/t", records("after it"))
    assert await api.values("t") == ["after it"]
    assert await unacknowledged_failures(api) == 0


async def test_acks_0_takes_batches_only_where_they_can_be_stored(api: Api) -> None:
    await api.create("t")
    answer = await api.post("/topics/t?acks=0", b"junk", content_type=BATCH)
    batches = api.service.store.capabilities.batch_bytes
    assert answer.code == (42208 if batches else 42207)
    absent = await api.post("/topics/t/partitions/7?acks=0", b"junk", content_type=BATCH)
    assert absent.code == 40402


@pytest.mark.parametrize(("topic", "acks"), [("t", "0"), ("new", "0"), ("new", "all")])
async def test_what_is_checked_before_is_as_large_as_what_is_stored(
    api: Api, topic: str, acks: str
) -> None:
    """The limit of a batch applies to the size after compression with the request's codec."""
    if not api.service.store.capabilities.batch_bytes:
        pytest.skip("the limit is that of a value")
    await api.create("t")
    fits = "A" * 2_000_000
    answer = await api.post(f"/topics/{topic}?acks={acks}&compression=gzip", records(fits))
    assert answer.status in {200, 202}, answer.body
    await api.until_free()
    path = f"/topics/{topic}/partitions/0/offsets"
    assert (await api.get(path)).json["end_offset"] == 1


async def test_what_fails_behind_acks_0_is_counted(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure after the answer to acks=0 is counted once per request, whether all or some of its records fail."""
    await api.create("t")
    gap = f"producer_id={await producer(api)}&producer_epoch=0&sequence"
    await api.post(f"/topics/t?{gap}=0", records(1))
    assert (await api.post(f"/topics/t?acks=0&{gap}=5", records(2))).status == 202

    def refuse(*args: object, **options: object) -> AppendResult:
        raise UnrepresentableRecord("changed meanwhile", field="value", index=0)

    for name in ("append", "append_promptly"):
        monkeypatch.setattr(api.service.store, name, refuse, raising=False)
    assert (await api.post("/topics/t?acks=0", records(3, 4))).status == 202
    await api.until_free()
    assert await unacknowledged_failures(api) == 2


async def unacknowledged_failures(api: Api) -> int:
    found = re.search(
        rb"^logserver_unacknowledged_failures_total (\d+)", (await api.get("/metrics")).body, re.M
    )
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("acks", ["1", "all", "-1"])
async def test_other_acks_tell_the_offsets(api: Api, acks: str) -> None:
    answer = await api.post(f"/topics/t?acks={acks}&timeout=10000", records(1))
    assert without_ids(answer.json["offsets"]) == [{"partition": 0, "offset": 0} | OK]
    assert await api.values("t") == [1]


async def test_records_are_stored_while_another_request_unpacks_its_batches(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compressed batch, of up to 256 MiB decompressed, is checked in a thread of its own, one request at a time."""
    if api.backend != "kafka":
        pytest.skip("the backend has no record batches")
    await api.post("/topics/t", records("first"))
    batch = (
        await api.call("GET", "/topics/t/partitions/0/records", headers={"Accept": BATCH})
    ).body
    batches = api.service.producer._batches
    assert batches is not None
    check = batches.check_client_batches
    go_on, running, most = threading.Event(), [0], [0]

    def slowly(topic: str, data: bytes, transaction: None) -> bytes:
        running[0] += 1
        most[0] = max(most[0], running[0])
        go_on.wait(10)
        running[0] -= 1
        return check(topic, data, transaction)

    monkeypatch.setattr(batches, "check_client_batches", slowly)
    monkeypatch.setattr(batches, "are_compressed", lambda data: True)
    path = "/topics/t/partitions/0"
    sent = [asyncio.ensure_future(api.post(path, batch, content_type=BATCH)) for _ in range(2)]
    async with asyncio.timeout(5):
        assert (await api.post("/topics/t", records("meanwhile"))).status == 200
    go_on.set()
    assert [answer.status for answer in await asyncio.gather(*sent)] == [200, 200]
    assert most == [1]
    assert (await api.values("t"))[:4] == ["first", "meanwhile", "first", "first"]
