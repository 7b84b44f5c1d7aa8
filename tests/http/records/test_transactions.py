"""Transactions over HTTP: all or nothing, offsets of groups, lists, and every wrong request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api.http.errors import NOT_OFFERED
from tests.http.harness import BATCH, JSON, Answer, Api, opener, records, serving, settings
from tests.unit.kafka.log.batches import data_batch

COMMITTED = "/topics/t/partitions/0/records?isolation=read_committed"
NDJSON = "application/x-ndjson"


@pytest.fixture
async def kafka(tmp_path: Path) -> AsyncIterator[Api]:
    """A server on Kafka's format with the topic t of two partitions."""
    chosen = settings(tmp_path / "store", set={"transaction.state.log.num.partitions": "2"})
    async with serving(chosen, opener("kafka", chosen)) as api:
        await api.create("t", 2)
        yield api


async def begin(api: Api, body: object = b"") -> dict[str, Any]:
    answer = await api.post("/transactions", body)
    assert answer.status == 201, answer.body
    begun: dict[str, Any] = answer.json
    assert begun.keys() == {"id", "producer_id", "epoch"}
    return begun


async def put(api: Api, transaction: str, *values: object, query: str = "") -> Answer:
    return await api.post(
        f"/topics/t/partitions/0?transaction={transaction}{query}", records(*values)
    )


async def end(api: Api, transaction: str, how: str) -> Answer:
    return await api.call("POST", f"/transactions/{transaction}/{how}")


async def committed(api: Api) -> list[Any]:
    answer = await api.get(COMMITTED, accept=JSON)
    return [row["value"] for row in answer.json]


@pytest.mark.parametrize("how", ["commit", "rollback"])
async def test_all_or_nothing(kafka: Api, how: str) -> None:
    begun = await begin(kafka)
    many = await kafka.post(
        f"/topics/t?transaction={begun['id']}",
        {"records": [{"value": 1, "partition": 0}, {"value": 2, "partition": 1}]},
    )
    assert many.status == 200
    assert [row["partition"] for row in many.json["offsets"]] == [0, 1]
    assert (await put(kafka, begun["id"], 3)).status == 200
    await kafka.post("/topics/t/partitions/0", records("plain"))
    assert await committed(kafka) == []
    state = "CompleteCommit" if how == "commit" else "CompleteAbort"
    for _ in range(2):
        answer = await end(kafka, begun["id"], how)
        assert answer.status == 200
        assert answer.json == {"id": begun["id"], "state": state}
    assert await committed(kafka) == ([1, 3, "plain"] if how == "commit" else ["plain"])
    assert await kafka.values("t", 1) == [2]
    other = await end(kafka, begun["id"], "rollback" if how == "commit" else "commit")
    assert other.code == 40903
    assert other.json["state"] == state
    late = await put(kafka, begun["id"], "late")
    assert late.code == 40903


async def test_a_new_producer_with_the_id_fences_the_old_one(kafka: Api) -> None:
    body = {"transactional_id": "billing", "timeout_ms": 1000}
    old, new = await begin(kafka, body), await begin(kafka, body)
    for answer in (
        await put(kafka, old["id"], 1),
        await end(kafka, old["id"], "commit"),
        await kafka.post(
            f"/transactions/{old['id']}/offsets",
            {"group": "g", "offsets": [{"topic": "t", "partition": 0, "offset": 0}]},
        ),
    ):
        assert answer.code == 40905
        assert answer.json["current_epoch"] == new["epoch"]


@pytest.mark.parametrize("transaction", ["1-2", "x", "%20", "9" * 40])
async def test_an_unknown_transaction(kafka: Api, transaction: str) -> None:
    for answer in (
        await put(kafka, transaction, 1),
        await end(kafka, transaction, "commit"),
        await end(kafka, transaction, "rollback"),
    ):
        assert answer.code == 40406


async def test_offsets_of_a_group(kafka: Api) -> None:
    await kafka.post("/topics/t/partitions/0", records(1, 2, 3))
    body = {"group": "g", "offsets": [{"topic": "t", "partition": 0, "offset": 2}]}
    begun: dict[str, Any] = {}
    for how, expected in (("rollback", 40405), ("commit", None)):
        begun = await begin(kafka)
        answer = await kafka.post(f"/transactions/{begun['id']}/offsets", body)
        assert answer.status == 204
        assert (await kafka.get("/groups/g")).code == 40405
        assert (await end(kafka, begun["id"], how)).status == 200
        found = await kafka.get("/groups/g")
        if expected is not None:
            assert found.code == expected
            continue
        assert found.json["partitions"][0]["committed"] == 2
    assert (await kafka.post(f"/transactions/{begun['id']}/offsets", body)).code == 40903


async def test_wrong_offsets(kafka: Api) -> None:
    begun = await begin(kafka)
    for offsets, code in (
        ([{"topic": "t", "partition": 0, "offset": 1}], 41601),
        ([{"topic": "t", "partition": 9, "offset": 0}], 40402),
        ([{"topic": "no", "partition": 0, "offset": 0}], 40401),
        ([], 42201),
    ):
        body = {"group": "g", "offsets": offsets}
        assert (await kafka.post(f"/transactions/{begun['id']}/offsets", body)).code == code
    assert (await kafka.get("/transactions?state=Ongoing")).json == []


async def test_the_list(kafka: Api) -> None:
    assert (await kafka.get("/transactions")).json == []
    begun = await begin(kafka, {"transactional_id": "billing", "timeout_ms": 1000})
    await put(kafka, begun["id"], 1)
    (row,) = (await kafka.get("/transactions")).json
    started = row["started_ms"]
    assert row == {
        "id": begun["id"],
        "transactional_id": "billing",
        "producer_id": begun["producer_id"],
        "epoch": begun["epoch"],
        "state": "Ongoing",
        "timeout_ms": 1000,
        "started_ms": started,
        "updated_ms": started,
        "partitions": [{"topic": "t", "partition": 0}],
    }
    await end(kafka, begun["id"], "commit")
    assert (await kafka.get("/transactions?state=Ongoing")).json == []
    (row,) = (await kafka.get("/transactions?state=CompleteCommit")).json
    assert (row["id"], row["partitions"]) == (begun["id"], [])
    assert (await kafka.get("/transactions?state=open")).code == 40000


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"timeout_ms": 0}, 42201),
        ({"timeout_ms": 900_001}, 42201),
        ({"timeout_ms": 1 << 40}, 42201),
        ({"transactional_id": ""}, 42201),
        ({"transactional_id": "a\nb"}, 42201),
        ({"transactional_id": "logserver.unnamed.1"}, 42201),
        ({"other": 1}, 42201),
        (b"{", 40000),
    ],
)
async def test_a_transaction_that_cannot_begin(kafka: Api, body: object, code: int) -> None:
    answer = await kafka.post("/transactions", body)
    assert answer.code == code
    if isinstance(body, dict):
        assert next(iter(body)) in answer.json["message"]
    assert (await kafka.get("/transactions")).json == []


@pytest.mark.parametrize(
    "query",
    ["&acks=0", "&async=true", "&producer_id=1", "&producer_epoch=0", "&producer_id=1&sequence=0"],
)
async def test_parameters_that_do_not_go_with_a_transaction(kafka: Api, query: str) -> None:
    begun = await begin(kafka)
    assert (await put(kafka, begun["id"], 1, query=query)).code == 40000


async def test_forms_of_a_request_that_do_not_go_with_a_transaction(kafka: Api) -> None:
    begun = await begin(kafka)
    path = f"/topics/t/partitions/0?transaction={begun['id']}"
    keyed = await kafka.call(
        "POST", path, json=records(1), headers={"Idempotency-Key": "k", "Content-Type": JSON}
    )
    assert keyed.code == 40000
    lines = await kafka.post(path, b'{"value": 1}\n', content_type=NDJSON, accept=NDJSON)
    assert lines.code == 40000


async def test_a_sequence_makes_a_repeat_harmless(kafka: Api) -> None:
    begun = await begin(kafka)
    for sequence, expected in ((0, 200), (0, 200), (1, 200), (5, 40904)):
        answer = await put(kafka, begun["id"], sequence, query=f"&sequence={sequence}")
        assert answer.status == expected or answer.code == expected
    await end(kafka, begun["id"], "commit")
    assert await committed(kafka) == [0, 1]


async def test_record_batches(kafka: Api) -> None:
    begun = await begin(kafka)
    producer = (begun["producer_id"], begun["epoch"], 0)
    good = data_batch(0, value=b'"v"', producer=producer, transactional=True)
    path = "/topics/t/partitions/0"
    outside = await kafka.post(path, good, content_type=BATCH)
    assert outside.code == NOT_OFFERED
    inside = f"{path}?transaction={begun['id']}"
    for wrong in (
        data_batch(0, value=b"v"),
        data_batch(0, producer=(7, 0, 0), transactional=True),
        data_batch(0, producer=(producer[0], producer[1] + 1, 0), transactional=True),
    ):
        assert (await kafka.post(inside, wrong, content_type=BATCH)).code == 42208
    for _ in range(2):
        answer = await kafka.post(inside, good, content_type=BATCH)
        assert (
            answer.json["offsets"]
            == [
                {
                    "partition": 0,
                    "base_offset": 0,
                    "last_offset": 0,
                    "error_code": None,
                    "error": None,
                }
            ]
            or answer.status == 200
        )
    assert await committed(kafka) == []
    await end(kafka, begun["id"], "commit")
    assert await committed(kafka) == ["v"]


async def test_plain_bytes_are_taken_too(kafka: Api) -> None:
    begun = await begin(kafka)
    path = f"/topics/t/partitions/0?transaction={begun['id']}"
    answer = await kafka.post(path, b"7", content_type="application/octet-stream")
    assert answer.status == 200
    await end(kafka, begun["id"], "commit")
    assert await committed(kafka) == [7]


async def test_a_topic_is_created_for_a_transaction(kafka: Api) -> None:
    begun = await begin(kafka)
    answer = await kafka.post(f"/topics/new?transaction={begun['id']}", records(1))
    assert answer.status == 200
    await end(kafka, begun["id"], "commit")
    assert await kafka.values("new") == [1]


async def test_a_record_that_cannot_be_stored_refuses_the_request(kafka: Api) -> None:
    begun = await begin(kafka)
    body = {"records": [{"value": "x" * 2_000_000, "partition": 0}, {"value": 2, "partition": 1}]}
    answer = await kafka.post(f"/topics/t?transaction={begun['id']}", body)
    assert answer.code == 41302
    assert (await put(kafka, begun["id"], 3)).status == 200
    await end(kafka, begun["id"], "commit")
    assert await committed(kafka) == [3]
    assert await kafka.values("t", 1) == []


async def test_a_commit_wakes_a_reader_of_committed_records(kafka: Api) -> None:
    begun = await begin(kafka)
    await put(kafka, begun["id"], 1)
    reading = asyncio.create_task(kafka.get(f"{COMMITTED}&timeout=10000", accept=JSON))
    await kafka.until_waiting()
    await end(kafka, begun["id"], "commit")
    assert [row["value"] for row in (await reading).json] == [1]


async def test_the_topic_of_the_states_is_closed_to_clients(kafka: Api) -> None:
    begun = await begin(kafka)
    await put(kafka, begun["id"], 1)
    listed = (await kafka.get("/topics")).json
    assert "__transaction_state" in listed
    refused = await kafka.post("/topics/__transaction_state", records(1))
    assert refused.code == 42203


@pytest.mark.parametrize("backend", ["memory"])
async def test_a_store_without_transactions(api: Api) -> None:
    for answer in (
        await api.post("/transactions", b""),
        await api.get("/transactions"),
        await end(api, "1-0", "commit"),
        await end(api, "1-0", "rollback"),
        await put(api, "1-0", 1),
    ):
        assert answer.code == NOT_OFFERED


async def test_scopes(tmp_path: Path) -> None:
    """`read` lists, `produce` acts."""
    tokens = tmp_path / "tokens"
    tokens.write_text("reader-token-0123456789 read\nwriter-token-0123456789 produce\n")
    tokens.chmod(0o600)
    chosen = settings(tmp_path / "store", token_file=tokens)
    async with serving(chosen, opener("kafka", chosen)) as api:
        expected = {
            ("GET", "/transactions"): (200, 403),
            ("POST", "/transactions"): (403, 201),
            ("POST", "/transactions/1-0/commit"): (403, 404),
            ("POST", "/transactions/1-0/rollback"): (403, 404),
            ("POST", "/transactions/1-0/offsets"): (403, 422),
        }
        for (method, path), statuses in expected.items():
            for token, status in zip(
                ("reader-token-0123456789", "writer-token-0123456789"), statuses, strict=True
            ):
                headers = {"Authorization": f"Bearer {token}"}
                answer = await api.call(method, path, headers=headers)
                assert answer.status == status, (method, path, token, answer.body)
