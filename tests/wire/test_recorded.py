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
    check(await edges.answers(connection), "edges/recorded.json")


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
