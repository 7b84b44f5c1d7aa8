"""A topic with partitions missing on the disk: which requests get 50302, and which continue to work."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from storage import Record, StoreOptions, TopicPartition, open_store
from tests.http.harness import V2, Api, opener, records, serving, settings


def a_store(data: Path, *, without: Sequence[str]) -> None:
    """Create a Kafka store with four partitions of t and one of u, two records in each; remove folders."""
    with open_store("kafka", data, StoreOptions()) as store:
        for topic, count in (("t", 4), ("u", 1)):
            store.create_topic(topic, count)
            for number in range(count):
                store.append(
                    TopicPartition(topic, number), [Record(None, b"1"), Record(None, b"2")]
                )
    for name in without:
        shutil.rmtree(data / name)


@asynccontextmanager
async def served(data: Path, *, read_only: bool = False) -> AsyncIterator[Api]:
    chosen = settings(data)
    async with serving(chosen, opener("kafka", chosen, read_only=read_only)) as api:
        yield api


@pytest.mark.parametrize("gone", [[0, 2], [3], [0, 1, 2]])
async def test_records_with_a_key_are_refused_and_others_are_stored(
    tmp_path: Path, gone: list[int]
) -> None:
    data = tmp_path / "data"
    a_store(data, without=[f"t-{number}" for number in gone])
    left = [number for number in range(4) if number not in gone]
    async with served(data) as api:
        keyed = await api.post("/topics/t", records("x", key="k"))
        assert keyed.code == 50302
        assert keyed.json["missing_partitions"] == gone
        assert f"partitions {', '.join(map(str, gone))} of topic 't'" in keyed.json["message"]

        keyless = await api.post("/topics/t", records("x"))
        assert keyless.status == 200
        assert keyless.json["offsets"][0]["partition"] in left

        body = {
            "records": [{"value": 1, "key": "k"}, {"value": 2, "key": "k", "partition": left[0]}]
        }
        mixed = await api.post("/topics/t", body)
        assert [row.get("error_code") for row in mixed.json["offsets"]] == [50302, None]
        named = await api.post(f"/topics/t/partitions/{left[0]}", records("x", key="k"))
        assert named.status == 200


async def test_a_partition_that_is_missing_is_named_to_every_call(tmp_path: Path) -> None:
    a_store(tmp_path / "data", without=["t-1"])
    async with served(tmp_path / "data") as api:
        place = "/topics/t/partitions/1"
        answers = [
            await api.post(place, records("x")),
            await api.get(f"{place}/records", accept=V2),
            await api.get(f"{place}/offsets"),
        ]
        assert [answer.code for answer in answers] == [50302] * 3
        assert all(
            "/t-1" in a.json["message"] or "names offset 2" in a.json["message"] for a in answers
        )
        unknown = await api.get("/topics/t/partitions/4/offsets")
        assert unknown.code == 40402
        assert "it has 4" in unknown.json["message"]
        assert await api.values("t", 0) == [1, 2]


async def test_the_name_of_a_lost_topic_is_not_given_again(tmp_path: Path) -> None:
    a_store(tmp_path / "data", without=["u-0"])
    async with served(tmp_path / "data") as api:
        assert (await api.call("PUT", "/topics/u", json={"partitions": 1})).code == 50302
        assert (await api.post("/topics/u", records("x"))).code == 50302
        assert (await api.call("PUT", "/topics/v", json={"partitions": 1})).status == 201


async def test_a_read_only_server_tells_it_too(tmp_path: Path) -> None:
    a_store(tmp_path / "data", without=["t-1"])
    async with served(tmp_path / "data", read_only=True) as api:
        assert (await api.get("/topics/t/partitions/1/records", accept=V2)).code == 50302
        assert await api.values("t", 2) == [1, 2]
