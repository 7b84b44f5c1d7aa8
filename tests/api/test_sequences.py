"""Producers with a sequence, and how long an answer waits for the disk: acks."""

from __future__ import annotations

import pytest

from tests.api.harness import BINARY, Api, b64, fetched, records, without_ids

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


@pytest.mark.parametrize("acks", ["1", "all", "-1"])
async def test_other_acks_tell_the_offsets(api: Api, acks: str) -> None:
    answer = await api.post(f"/topics/t?acks={acks}&timeout=10000", records(1))
    assert without_ids(answer.json["offsets"]) == [{"partition": 0, "offset": 0} | OK]
    assert await api.values("t") == [1]
