"""Stores of the real broker over HTTP: every record, bound and lookup by time as a real consumer saw it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.golden.stores import HEALTHY
from tests.http.harness import BINARY, Api, opener, serving, settings


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def as_expected(row: dict[str, Any]) -> tuple[Any, ...]:
    headers = [(header["key"], header["value"]) for header in row["headers"]]
    return (row["offset"], row["timestamp"], row["key"], row["value"], headers)


def as_consumed(line: dict[str, Any]) -> tuple[Any, ...]:
    headers = [tuple(header) for header in line["headers"]]
    return (line["offset"], line["timestamp"], line["key"], line["value"], headers)


async def everything(api: Api, path: str, isolation: str) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    offset = "earliest"
    while True:
        query = f"offset={offset}&isolation={isolation}&max_records=200"
        answer = await api.get(f"{path}/records?{query}", accept=BINARY)
        assert answer.status == 200, answer.body
        if not answer.json:
            return rows
        rows += [as_expected(row) for row in answer.json]
        offset = answer.headers["X-Next-Offset"]


@pytest.mark.parametrize("name", HEALTHY)
async def test_a_real_brokers_store_over_http(name: str, golden_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(golden_dir / name / "data", tmp_path / "store")
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener("kafka", chosen, read_only=True)) as api:
        partitions = sorted((golden_dir / name / "expect").glob("*-*/expected.jsonl"))
        assert partitions
        for expected in partitions:
            topic, _, number = expected.parent.name.rpartition("-")
            await check_partition(api, expected.parent, f"/topics/{topic}/partitions/{number}")


async def check_partition(api: Api, expect: Path, path: str) -> None:
    reported = json.loads((expect / "times.json").read_text())
    bounds = (await api.get(f"{path}/offsets")).json
    assert bounds == {
        "beginning_offset": reported["summary"]["earliest"],
        "end_offset": reported["summary"]["latest"],
    }
    for time_ms, answer in reported["times"]:
        found = (await api.get(f"{path}/offsets?timestamp={time_ms}")).json
        if answer is None:
            assert found == {"offset": bounds["end_offset"], "timestamp": None}
        else:
            assert found == {"offset": answer["offset"], "timestamp": answer["timestamp"]}
    consumed = [as_consumed(line) for line in lines(expect / "expected.jsonl")]
    assert await everything(api, path, "read_uncommitted") == consumed
    committed = expect / "expected.read_committed.jsonl"
    if committed.exists():
        consumed = [as_consumed(line) for line in lines(committed)]
    assert await everything(api, path, "read_committed") == consumed
