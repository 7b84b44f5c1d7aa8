"""Messages that a group hands back: their retries, dead letters, and how many retries a group has.

Owns the shapes of these operations; must not know levels, topics or the count of retries: `logserver.groups.retries`
and the store decide.
"""

from __future__ import annotations

from typing import Annotated, Final

from aiohttp import web
from msgspec import Meta, Struct

from api.http.errors import JSON
from api.http.parameters import MAX_INT32
from api.operation import Answer, Example, Resource, required
from api.operations.parameters import MAX_LEVEL, SAMPLES
from api.request_context import RequestContext
from logserver.access.tokens import Scope
from logserver.groups.retries import GroupRetries
from storage import BY_LADDER, TO_DEAD_LETTERS

RETRIES: Final = Resource("Retries")

MAX_ID_CHARACTERS: Final = 512


class Handback(Struct, forbid_unknown_fields=True):
    """The body of POST /groups/{group}/retry. `delay_level`: 0 for the next level of the group's ladder, -1 for the
    dead letters at once. `max_times`: in place of the group's own number of retries, for this message.
    """

    message_id: Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARACTERS)]
    delay_level: Annotated[int, Meta(ge=TO_DEAD_LETTERS, le=MAX_LEVEL)] = BY_LADDER
    max_times: Annotated[int, Meta(ge=0, le=MAX_INT32)] | None = None


class HandedBack(Struct):
    """The message that was stored. `topic` and `partition`: where it is delivered, at `deliver_at`; null: at once.

    `times`: how often the message was handed back. `dead`: it went to the dead letters.
    """

    message_id: str
    topic: str
    partition: int
    times: int
    dead: bool
    delay_level: int | None
    deliver_at: int | None


class RetrySettings(Struct):
    """The retries of a group: after `max_times` of them a message goes to `dead_letter_topic`."""

    max_times: int
    retry_topic: str
    dead_letter_topic: str


class ChangedRetries(Struct, forbid_unknown_fields=True):
    """The body of PUT /groups/{group}/retry. -1 and 0: the first time that a message is handed back it is a dead
    letter.
    """

    max_times: Annotated[int, Meta(ge=-1, le=MAX_INT32)]


_ACCOUNTING: Final = {"group": "accounting"}
_ROCKETMQ: Final = ("rocketmq",)
_SETTINGS: Final = {
    "max_times": 16,
    "retry_topic": "%RETRY%accounting",
    "dead_letter_topic": "%DLQ%accounting",
}


@RETRIES.post(
    "/groups/{group}/retry",
    Answer(200, "The message is stored for another delivery, or as a dead letter.", HandedBack),
    body=required(Handback, '{"message_id": "..."}'),
    errors=(40404, 40405, 42203, 42206, 42207, 42901, 50701),
    examples=(
        Example(
            path=_ACCOUNTING,
            media_type=JSON,
            body={"message_id": SAMPLES["message_id"]},
            answer={
                "message_id": "7F00000100002A9F0000000000000200",
                "topic": "%RETRY%accounting",
                "partition": 0,
                "times": 1,
                "dead": False,
                "delay_level": 3,
                "deliver_at": 1760000010000,
            },
            backends=_ROCKETMQ,
        ),
        Example(
            "on Kafka's format",
            path=_ACCOUNTING,
            media_type=JSON,
            body={"message_id": "orders:0:0"},
            answer={
                "message_id": "accounting.retry:0:0",
                "topic": "accounting.retry",
                "partition": 0,
                "times": 1,
                "dead": False,
                "delay_level": None,
                "deliver_at": None,
            },
            backends=("kafka", "memory"),
        ),
        Example(
            "to the dead letters",
            path=_ACCOUNTING,
            media_type=JSON,
            body={"message_id": "orders:0:0", "delay_level": -1},
            answer={
                "message_id": "accounting.dlq:0:0",
                "topic": "accounting.dlq",
                "partition": 0,
                "times": 1,
                "dead": True,
                "delay_level": None,
                "deliver_at": None,
            },
            backends=("kafka", "memory"),
        ),
    ),
)
async def hand_back(call: RequestContext, body: Handback) -> web.Response:
    """Hand a message back to its group.

    It is delivered to the group again. On RocketMQ's format the consumers of the group get it after a delay that grows
    with each time: as the broker does, through `%RETRY%GROUP`, and to `%DLQ%GROUP` in the end. On Kafka's format it is
    at once in the topic `GROUP.retry`, which consumers subscribe to, or in `GROUP.dlq`. The message itself stays where
    it is: commit its offset. Handed back twice, it is delivered twice.
    """
    sent = await call.service.retries.send_back(
        call.group, body.message_id, level=body.delay_level, max_times=body.max_times
    )
    return call.json(
        HandedBack(
            message_id=sent.record_id,
            topic=sent.partition.topic,
            partition=sent.partition.partition,
            times=sent.times,
            dead=sent.is_dead,
            delay_level=sent.delay_level,
            deliver_at=sent.deliver_at_ms,
        )
    )


@RETRIES.get(
    "/groups/{group}/retry",
    Answer(200, "The retries of the group.", RetrySettings),
    errors=(40405, 42203),
    examples=(Example(path=_ACCOUNTING, answer=_SETTINGS, backends=_ROCKETMQ),),
)
async def get_retries(call: RequestContext) -> web.Response:
    """How many retries a group has, and the names of its topics.

    The topics exist once a message was handed back.
    """
    return _answer(call, await call.service.retries.settings(call.group))


@RETRIES.put(
    "/groups/{group}/retry",
    Answer(200, "The retries of the group.", RetrySettings),
    body=required(ChangedRetries, '{"max_times": 16}'),
    scope=Scope.ADMIN,
    errors=(42203, 42207, 50701),
    examples=(
        Example(
            path=_ACCOUNTING,
            media_type=JSON,
            body={"max_times": 16},
            answer=_SETTINGS,
            backends=_ROCKETMQ,
        ),
    ),
)
async def change_retries(call: RequestContext, body: ChangedRetries) -> web.Response:
    """Set how many retries a group has.

    Stored as `retryMaxTimes` in RocketMQ's `subscriptionGroup.json`. A missing group is created. Not offered on Kafka's
    format: there `max_times` is given with each message.
    """
    return _answer(call, await call.service.retries.change(call.group, body.max_times))


def _answer(call: RequestContext, retries: GroupRetries) -> web.Response:
    return call.json(RetrySettings(*retries))
