"""Delivery times of delayed records, taken from their queue entries. The delay levels are a broker setting, in no file.

Owns the rule for a store whose `messageDelayLevel` was not given: an entry in SCHEDULE_TOPIC_XXXX is believed if it
leads to its record and its time is not before the record's store time. A rebuild keeps that time. A time computed
from other levels may be too early, and a delivered record cannot be called back. Must not read the log.
"""

from __future__ import annotations

from typing import Final

from storage.errors import Corrupt
from storage.findings import finding
from storage.rocketmq.format.names import SCHEDULE_TOPIC
from storage.rocketmq.format.queue_entry import QueueEntry
from storage.rocketmq.index.dispatch_request import Dispatch
from storage.rocketmq.index.queues import QueueTable
from storage.shared.diagnostics import Notes

CODE: Final = "other-delay-level"
WHAT: Final = (
    "the unit tells another time than RocketMQ's own delay levels give: perhaps the broker has a messageDelayLevel, "
    "to be given with --set"
)


def is_believed(unit: QueueEntry, dispatch: Dispatch) -> bool:
    """Return whether the delivery time in a record's entry can be trusted."""
    topic, _, _, physical_offset, size, _, time_ms, _, _ = dispatch
    leads_there = unit.physical_offset == physical_offset and unit.size == size
    return topic == SCHEDULE_TOPIC and leads_there and unit.tags_code >= time_ms


def stored_code(dispatch: Dispatch, queues: QueueTable, notes: Notes) -> int:
    """Return the delivery time in the entry of a record of the schedule topic, or the computed one if that entry is not
    believed. One finding is noted if any such time differs from the computed time.
    """
    unit = _unit_of(dispatch, queues)
    if unit is None or unit.tags_code == dispatch.tags_code or not is_believed(unit, dispatch):
        return dispatch.tags_code
    folder = str(queues.root / SCHEDULE_TOPIC)
    message = (
        "entries have other delivery times than RocketMQ's own delay levels give, and are kept"
    )
    notes.add(finding(CODE, folder, topic=SCHEDULE_TOPIC, message=message))
    return unit.tags_code


def _unit_of(dispatch: Dispatch, queues: QueueTable) -> QueueEntry | None:
    queue = queues.get(dispatch.topic, dispatch.queue_id)
    if queue is None:
        return None
    units = queue.units
    if not units.first_offset <= dispatch.queue_offset < units.end:
        return None
    try:
        return units.unit(dispatch.queue_offset)
    except Corrupt:  # the queue has no file at that offset
        return None
