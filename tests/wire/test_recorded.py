"""Answers equal the answers of the real broker, field by field, apart from the fields that are a server's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.wire import (
    exchanges,
    modern_exchanges,
    placement_exchanges,
    transaction_exchanges,
)
from tests.wire.edges import exchanges as edges
from tests.wire.harness import Broker, Connection, broker

HERE = Path(__file__).parent
UNKNOWN_SERVER_ERROR = -1
UNSUPPORTED_COMPRESSION_TYPE = 76


def check(answers: dict[str, Any], recorded: str) -> None:
    """Compare answers with recorded ones."""
    expected = json.loads((HERE / recorded).read_text())
    found = json.loads(json.dumps(answers))
    assert found.keys() == expected.keys()
    different = {
        name: (found[name], expected[name]) for name in found if found[name] != expected[name]
    }
    assert different == {}


async def test_answers_are_those_of_the_real_broker(kafka: Broker, connection: Connection) -> None:
    check(await exchanges.answers(connection), "recorded.json")


async def test_edges_are_those_of_the_real_broker(kafka: Broker, connection: Connection) -> None:
    """The real broker fails on a codec that Kafka does not have (UNKNOWN_SERVER_ERROR): the answer here says why."""
    answers = await edges.answers(connection)
    recorded = json.loads((HERE / "edges/recorded.json").read_text())
    failed = {name for name, answer in recorded.items() if _code(answer) == UNKNOWN_SERVER_ERROR}
    assert len(failed) == 17
    assert {name[:18] for name in failed} == {f"produce of codec {n}" for n in (5, 6, 7)}
    for name in failed:
        assert _code(answers[name]) == UNSUPPORTED_COMPRESSION_TYPE
        answers[name] = recorded[name]
    check(answers, "edges/recorded.json")


def _code(answer: Any) -> int:
    """Return the number of an answer to Produce; 0 for another answer."""
    row = answer.get("responses", [{}])[0].get("partition_responses", [{}])[0] if answer else {}
    return int(row.get("error_code", 0))


async def test_transactions_are_those_of_the_real_broker(
    kafka: Broker, connection: Connection
) -> None:
    check(await transaction_exchanges.answers(connection), "recorded_transactions.json")


async def test_placement_is_that_of_the_real_broker(kafka: Broker, connection: Connection) -> None:
    check(await placement_exchanges.answers(connection), "recorded_placement.json")


async def test_groups_of_the_new_protocol_are_those_of_the_real_broker(tmp_path: Path) -> None:
    async with (
        broker(tmp_path / "store", group_consumer_assignment_interval_ms=0) as kafka,
        kafka.connect() as connection,
    ):
        check(await modern_exchanges.answers(connection), "recorded_modern.json")
