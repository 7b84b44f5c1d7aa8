"""Answers equal the answers of the real broker, field by field, apart from the fields that are a server's own."""

from __future__ import annotations

import json
from pathlib import Path

from tests.wire.exchanges import answers
from tests.wire.harness import Broker, Connection

RECORDED = Path(__file__).parent / "recorded.json"


async def test_answers_are_those_of_the_real_broker(kafka: Broker, connection: Connection) -> None:
    expected = json.loads(RECORDED.read_text())
    found = json.loads(json.dumps(await answers(connection)))
    assert found.keys() == expected.keys()
    different = {
        name: (found[name], expected[name]) for name in found if found[name] != expected[name]
    }
    assert different == {}
