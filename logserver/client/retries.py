"""Handing messages back to their group: the calls for retries, dead letters, and how many retries a group has.

Owns these calls and the shapes of their answers; must not know connections (`transport`) or how a group reads
(`consumer`). Which level, which topic and how often is decided by the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from logserver.client.transport import Transport, segment
from logserver.client.values import FetchedRecord

_DEAD_LETTERS: Final = -1
"""In place of a delay level: to the dead letters at once."""


class HandedBack(Struct, frozen=True):
    """The message that was stored for another delivery, or as a dead letter (`dead`).

    It is delivered in `topic` and `partition` at `deliver_at_ms`, after the delay of `delay_level`; None: at once.
    `times`: how often the message was handed back.
    """

    message_id: str
    topic: str
    partition: int
    times: int
    dead: bool
    delay_level: int | None = None
    deliver_at_ms: int | None = msgspec.field(name="deliver_at", default=None)


class GroupRetries(Struct, frozen=True):
    """The retries of a group: after `max_times` of them a message goes to `dead_letter_topic`."""

    max_times: int
    retry_topic: str
    dead_letter_topic: str


class RetryCalls:
    """The calls of LogClient for messages that a group hands back."""

    transport: Transport

    async def hand_back(
        self,
        group: str,
        record: FetchedRecord | str,
        *,
        delay_level: int | None = None,
        max_times: int | None = None,
        dead: bool = False,
    ) -> HandedBack:
        """Hand a record back, or the message with this id: the group gets it again, or it is a dead letter.

        - `delay_level`: in place of the group's next one (RocketMQ stores only).
        - `max_times`: in place of the group's own number of retries.
        - `dead`: make it a dead letter at once; `delay_level` does not count then.

        The record itself stays where it is: commit it. After ServerUnreachable the message may be stored; handed back
        again, it is delivered twice.

        >>> async with client.consumer("billing", ["orders"]) as consumer:
        ...     (record,) = await consumer.poll()
        ...     (await client.hand_back("billing", record)).times
        1
        """
        fields = retry_fields(delay_level, max_times, dead=dead)
        asked = {"message_id": message_id_of(record), **fields}
        return await self.transport.json(
            HandedBack, "POST", _path(group), body=msgspec.json.encode(asked)
        )

    async def group_retries(self, group: str) -> GroupRetries:
        """Return how many retries a group has, and the names of its topics, which may not exist yet."""
        return await self.transport.json(GroupRetries, "GET", _path(group))

    async def change_group_retries(self, group: str, max_times: int) -> GroupRetries:
        """Set how many retries a group has (RocketMQ stores only); a missing group is created."""
        body = msgspec.json.encode({"max_times": max_times})
        return await self.transport.json(GroupRetries, "PUT", _path(group), body=body)


def retry_fields(
    delay_level: int | None, max_times: int | None, *, dead: bool
) -> Mapping[str, object]:
    """Return the members of a body that say how a record is retried."""
    fields: dict[str, object] = {}
    if dead or delay_level is not None:
        fields["delay_level"] = _DEAD_LETTERS if dead else delay_level
    if max_times is not None:
        fields["max_times"] = max_times
    return fields


def message_id_of(record: FetchedRecord | str) -> str:
    """Return the id of a record. Records of Kafka stores come without one: it is TOPIC:PARTITION:OFFSET.

    >>> message_id_of(FetchedRecord(topic="t", partition=0, offset=7, key=None, value=b""))
    't:0:7'
    """
    if isinstance(record, str):
        return record
    return record.message_id or f"{record.topic}:{record.partition}:{record.offset}"


def _path(group: str) -> str:
    return f"/groups/{segment(group)}/retry"
