"""Delayed messages that wait: a list by the time of their delivery, and the refusal to cancel one.

Owns these answers and the link to the next page; must not know levels or queues: the store lists the messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from aiohttp import web
from msgspec import Struct

from api.http.errors import NOT_OFFERED, ApiError
from api.http.parameters import Choice, Integer, Parameter
from api.operation import Answer, Example, Resource
from api.operations.parameters import CURSOR
from api.request_context import RequestContext
from logserver.access.tokens import Scope
from storage import DelayedRecord, TopicPartition

DELAYED: Final = Resource("Delayed messages")

MAX_PAGE_MESSAGES: Final = 1000
_LIMIT: Final = Parameter(
    "limit", Integer(1, MAX_PAGE_MESSAGES), "At most this many messages.", "100"
)
_KIND: Final = Parameter(
    "kind",
    Choice({"level": False, "timer": True}),
    "`level`: messages of a delay level, which this server delivers. `timer`: messages of RocketMQ 5's timer, by "
    "arrival; only a broker delivers them.",
    "level",
)


class DelayedRow(Struct):
    """A message that waits. `topic` and `partition`: where it will be delivered, null if it does not say so.

    `message_id` is that of the waiting message, and `offset` its place in the queue of its level; its delivery is
    another message. `delay_level` is null for a message of the timer.
    """

    message_id: str
    topic: str | None
    partition: int | None
    delay_level: int | None
    deliver_at: int
    timestamp: int
    store_timestamp: int
    offset: int
    unique_id: str | None
    tag: str | None
    keys: Sequence[str]


class DelayedAnswer(Struct):
    """One page of messages that wait. `next` is the path of the next page, null on the last page."""

    delayed: Sequence[DelayedRow]
    next: str | None


_ROW: Final = {
    "message_id": "7F00000100002A9F0000000000000000",
    "topic": "orders",
    "partition": 0,
    "delay_level": 18,
    "deliver_at": 1760007200123,
    "timestamp": 1760000000123,
    "store_timestamp": 1760000000123,
    "offset": 0,
    "unique_id": "7F00000100012A1139B9380C32120000",
    "tag": None,
    "keys": [],
}


@DELAYED.get(
    "/delayed",
    Answer(200, "One page of messages.", DelayedAnswer),
    about="While `next` is not null, follow it. Messages that are delivered between two pages are left out.",
    query=(_LIMIT, CURSOR, _KIND),
    errors=(42201, 42207),
    examples=(
        Example(
            query={"limit": "10"}, answer={"delayed": [], "next": None}, backends=("rocketmq",)
        ),
    ),
)
async def delayed(call: RequestContext) -> web.Response:
    """The messages that wait for their time, by the time of their delivery."""
    page = await call.service.delayed(
        call.params[_LIMIT], call.params.get(CURSOR), timers=call.params[_KIND]
    )
    store = call.service.store
    rows = [
        _row(record, store.record_id(TopicPartition("", 0), record.locator))
        for record in page.records
    ]
    return call.json(DelayedAnswer(rows, None if page.cursor is None else call.link(page.cursor)))


def _row(record: DelayedRecord, message_id: str) -> DelayedRow:
    return DelayedRow(
        message_id=message_id,
        topic=record.topic,
        partition=record.partition,
        delay_level=record.level,
        deliver_at=record.deliver_at_ms,
        timestamp=record.timestamp_ms,
        store_timestamp=record.store_timestamp_ms,
        offset=record.offset,
        unique_id=record.unique_id,
        tag=record.tag,
        keys=record.lookup_keys,
    )


@DELAYED.delete(
    "/delayed/{message_id}",
    Answer(422, "42207, always."),
    scope=Scope.PRODUCE,
    errors=(42207,),
    examples=(Example(status=422),),
)
async def cancel_delayed(call: RequestContext) -> NoReturn:
    """Cancel a delayed message: always 42207.

    RocketMQ has no way to cancel a message of a delay level that a broker would honour too.
    """
    raise ApiError(
        NOT_OFFERED,
        "a delayed message cannot be cancelled: RocketMQ's format has no way that a broker would honour too. Let the "
        "consumer ignore it",
    )
