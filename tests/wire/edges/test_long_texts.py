"""Texts of errors that quote the client: a string on the wire has an end, and a text is longer than its quotation."""

from __future__ import annotations

from typing import Any

import pytest

from api.kafka.protocol.messages.group_admin import (
    ConsumerGroupDescribeRequest,
    DescribeGroupsRequest,
)
from api.kafka.protocol.messages.groups import ConsumerGroupHeartbeatRequest
from api.kafka.protocol.primitives import MAX_STRING_BYTES
from tests.wire.harness import Broker, Connection

LONGEST = "x" * MAX_STRING_BYTES
READABLE = 5000
JOIN = ConsumerGroupHeartbeatRequest(
    group_id="g",
    member_id="m",
    member_epoch=0,
    rebalance_timeout_ms=1000,
    subscribed_topic_names=["t"],
    server_assignor=LONGEST,
    topic_partitions=[],
)
GO_ON = ConsumerGroupHeartbeatRequest(group_id=LONGEST, member_id="m", member_epoch=5)


async def text_of(connection: Connection, request: Any) -> str:
    """Return the text of the only error in an answer."""
    answer = await connection.call(request)
    row = answer.groups[0] if hasattr(answer, "groups") else answer
    assert row.error_code
    return str(row.error_message)


@pytest.mark.parametrize(
    "asked",
    [
        ConsumerGroupDescribeRequest(group_ids=[LONGEST]),
        DescribeGroupsRequest(groups=[LONGEST]),
        JOIN,
        GO_ON,
    ],
    ids=["describe", "describe a classic one", "join with an assignor", "go on"],
)
async def test_a_text_about_a_group_can_be_read(
    kafka: Broker, connection: Connection, asked: Any
) -> None:
    text = await text_of(connection, asked)
    assert "x" * 100 in text
    assert len(text) < READABLE
