"""Fetch sessions (KIP-227): changes in, news out, and every way in which a session ends."""

from __future__ import annotations

from typing import Any

import pytest

from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.fetch import (
    FetchRequestForgottenTopic,
    FetchResponsePartitionData,
)
from api.kafka.protocol.messages.metadata import MetadataRequest
from api.kafka.sessions import FetchSessions, RefusedSession
from tests.wire.harness import BOTH, Broker, Connection, batch, fetch, produce


def found(response: Any) -> dict[int, int]:
    """Return the high watermark of each partition in an answer."""
    return {
        row.partition_index: row.high_watermark for t in response.responses for row in t.partitions
    }


@BOTH
async def test_only_news_are_sent(kafka: Broker, connection: Connection) -> None:
    await kafka.api.create("t", 3)
    begun = await connection.call(fetch("t", (0, 0), (1, 0), (2, 0), session_epoch=0), 12)
    assert begun.session_id > 0
    assert found(begun) == {0: 0, 1: 0, 2: 0}

    async def go_on(epoch: int, *parts: tuple[int, int], **options: Any) -> Any:
        request = fetch("t", *parts, session_id=begun.session_id, session_epoch=epoch, **options)
        return await connection.call(request, 12)

    assert found(await go_on(1)) == {}
    await connection.call(produce("t", (1, batch(b"a"))), 9)
    assert found(await go_on(2)) == {1: 1}
    assert found(await go_on(3, (1, 1))) == {}  # it has moved on
    forgotten = [FetchRequestForgottenTopic(topic="t", partitions=[0, 1])]
    await connection.call(produce("t", (0, batch(b"a")), (2, batch(b"a"))), 9)
    assert found(await go_on(4, forgotten_topics_data=forgotten)) == {2: 1}
    assert (await go_on(9)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    ended = await go_on(-1, (0, 0))
    assert (ended.session_id, found(ended)) == (0, {0: 1})
    assert (await go_on(5)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_session_without_partitions(kafka: Broker, connection: Connection) -> None:
    """As on the broker: it may begin without any, and ends with the last one; the answer then names no session."""
    await kafka.api.create("t")
    begun = await connection.call(fetch("t", session_epoch=0), 12)
    assert begun.session_id > 0
    ids = {"session_id": begun.session_id}
    first = await connection.call(fetch("t", (0, 0), session_epoch=1, **ids), 12)
    assert (first.session_id, found(first)) == (begun.session_id, {0: 0})
    forgotten = [FetchRequestForgottenTopic(topic="t", partitions=[0])]
    last = fetch("t", session_epoch=2, forgotten_topics_data=forgotten, **ids)
    answer = await connection.call(last, 12)
    assert (answer.error_code, answer.session_id, found(answer)) == (0, 0, {})


@BOTH
async def test_an_error_is_sent_until_it_has_gone(kafka: Broker, connection: Connection) -> None:
    await kafka.api.create("t")
    begun = await connection.call(fetch("t", (0, 0), (5, 0), session_epoch=0), 12)
    for epoch in (1, 2):
        request = fetch("t", session_id=begun.session_id, session_epoch=epoch)
        response = await connection.call(request, 12)
        (row,) = response.responses[0].partitions
        assert (row.partition_index, row.error_code) == (5, 3)


@BOTH
async def test_names_and_ids_do_not_mix(kafka: Broker, connection: Connection) -> None:
    await kafka.api.create("t")
    (topic,) = (await connection.call(MetadataRequest(topics=None), 12)).topics
    request = fetch("", (0, 0), session_epoch=0)
    request.topics[0].topic_id = topic.topic_id
    begun = await connection.call(request, 13)
    assert begun.session_id > 0
    mixed = fetch("t", session_id=begun.session_id, session_epoch=1)
    response = await connection.call(mixed, 12)
    assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    unknown = fetch("", (0, 0))
    unknown.topics[0].topic_id = bytes(15) + b"\1"
    (row,) = (await connection.call(unknown, 13)).responses[0].partitions
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_the_number_of_sessions_is_limited() -> None:
    sessions = FetchSessions(limit=2, partitions_limit=5)
    numbers = [
        sessions.context(fetch("t", (0, 0), (1, 0), session_epoch=0), by_id=False).session_id
        for _ in range(3)
    ]
    assert len(sessions) == 2
    assert 0 not in numbers
    sessions.context(fetch("t", *((n, 0) for n in range(4)), session_epoch=0), by_id=False)
    assert len(sessions) == 1
    large = fetch("t", *((n, 0) for n in range(6)), session_epoch=0)
    assert sessions.context(large, by_id=False).session_id == 0


def test_a_session_that_grows_beyond_the_limit_ends() -> None:
    sessions = FetchSessions(partitions_limit=5)
    begun = sessions.context(fetch("t", (0, 0), (1, 0), session_epoch=0), by_id=False)
    more = fetch("t", (1, 0), (2, 0), (3, 0), session_id=begun.session_id, session_epoch=1)
    assert len(sessions.context(more, by_id=False).asked) == 4
    still_more = fetch("t", (4, 0), (5, 0), session_id=begun.session_id, session_epoch=2)
    with pytest.raises(RefusedSession) as refused:
        sessions.context(still_more, by_id=False)
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0


def test_partitions_take_turns() -> None:
    """A partition with records moves to the end, so that a small answer does not starve the others."""
    sessions = FetchSessions()
    begun = sessions.context(fetch("t", (0, 0), (1, 0), session_epoch=0), by_id=False)
    begun.note_served([begun.asked[0]])
    request = fetch("t", session_id=begun.session_id, session_epoch=1)
    again = sessions.context(request, by_id=False)
    assert [asked.wish.partition for asked in again.asked] == [1, 0]
    assert again.has_news(again.asked[0], FetchResponsePartitionData(records=b"x"))


def test_the_epoch_begins_again_after_the_last() -> None:
    sessions = FetchSessions()
    begun = sessions.context(fetch("t", (0, 0), session_epoch=0), by_id=False)
    assert begun.session is not None
    begun.session.epoch = 2**31 - 1
    for epoch in (2**31 - 1, 1, 2):
        request = fetch("t", session_id=begun.session_id, session_epoch=epoch)
        assert sessions.context(request, by_id=False).incremental
