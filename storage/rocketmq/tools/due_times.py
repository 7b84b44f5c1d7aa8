"""When delayed records are due, as their units tell it: the levels are the broker's setting, and in no file.

Owns what is believed where `messageDelayLevel` was not given: a unit in SCHEDULE_TOPIC_XXXX that leads to its
record and tells a time not before that was stored. A rebuild takes that over, for a time that is made of
other levels may be too early, and a record that is delivered cannot be called back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from storage.errors import Corrupt
from storage.findings import finding
from storage.notes import Notes
from storage.rocketmq.dispatch import Dispatch
from storage.rocketmq.format.names import SCHEDULE_TOPIC
from storage.rocketmq.format.queue_unit import Unit
from storage.rocketmq.queues import QueueTable

CODE: Final = "other-delay-level"
WHAT: Final = (
    "the unit tells another time than RocketMQ's own delay levels give: perhaps the broker has a messageDelayLevel, "
    "to be given with --set"
)


def is_believed(unit: Unit, dispatch: Dispatch) -> bool:
    """Whether the unit of a record may tell when that is due."""
    topic, _, _, physical_offset, size, _, time_ms, _, _ = dispatch
    leads_there = unit.physical_offset == physical_offset and unit.size == size
    return topic == SCHEDULE_TOPIC and leads_there and unit.tags_code >= time_ms


def as_told(dispatches: Sequence[Dispatch], queues: QueueTable, notes: Notes) -> Sequence[Dispatch]:
    """The dispatches of records, with the times that their units in `queues` tell; noted once where such a
    time is another one.
    """
    if all(dispatch.topic != SCHEDULE_TOPIC for dispatch in dispatches):
        return dispatches
    told: list[Dispatch] = []
    for dispatch in dispatches:
        unit = _unit_of(dispatch, queues) if dispatch.topic == SCHEDULE_TOPIC else None
        if unit is None or unit.tags_code == dispatch.tags_code or not is_believed(unit, dispatch):
            told.append(dispatch)
            continue
        told.append(dispatch._replace(tags_code=unit.tags_code))
        folder = str(queues.root / SCHEDULE_TOPIC)
        message = (
            "entries have other delivery times than RocketMQ's own delay levels give, and are kept"
        )
        notes.add(finding(CODE, folder, topic=SCHEDULE_TOPIC, message=message))
    return told


def _unit_of(dispatch: Dispatch, queues: QueueTable) -> Unit | None:
    queue = queues.get(dispatch.topic, dispatch.queue_id)
    if queue is None:
        return None
    units = queue.units
    if not units.first_offset <= dispatch.queue_offset < units.end:
        return None
    try:
        return units.unit(dispatch.queue_offset)
    except Corrupt:  # no file there
        return None
