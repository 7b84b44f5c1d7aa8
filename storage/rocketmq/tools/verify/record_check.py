"""Checks of single records that a walk over the log accepts as good.

Owns these checks; must not know the files that are derived from the log.
"""

from __future__ import annotations

from typing import Final, Unpack

from storage.errors import DataError
from storage.findings import Comparison
from storage.model import Finding
from storage.rocketmq.format.body import decompress
from storage.rocketmq.format.message import COMPRESSED, Message
from storage.rocketmq.format.properties import check_crc_property, has_crc_property
from storage.rocketmq.format.suspect_fields import (
    END_OF_TIME_MS,
    is_folder_name,
    is_known_compression,
    is_of_later_version,
    suspect_parts,
)
from storage.rocketmq.log.reading import MAX_BODY_BYTES
from storage.rocketmq.tools.log_walk import LogWalk, Placed
from storage.shared.diagnostics import Notes, Tallies

CONTENT: Final = frozenset({"topic", "properties"})
"""Parts of a record that readers receive."""
FAR_MS: Final = 365 * 86_400_000


class RecordCheck:
    """Checks of the records of one walk. Errors are added to `tallies`."""

    def __init__(self, walk: LogWalk, tallies: Tallies) -> None:
        self.latest_ms = 0  # the largest store time
        self._stored_ms: int | None = None  # store time of the previous record
        self._walk = walk
        self._tallies = tallies

    def meet(self, placed: Placed) -> None:
        """Check a good record."""
        at, message = placed.physical_offset, placed.message
        if message.physical_offset != at:
            self._note(
                "wrong-physical-offset",
                "warning",
                placed,
                "the physical offset in the record differs from its place in the log",
                expected=str(at),
                found=str(message.physical_offset),
            )
        self._check_header(placed)
        record = placed.data[placed.position : placed.position + message.size]
        if has_crc_property(record) and not check_crc_property(record):
            self._note("wrong-property-crc", "error", placed, "the CRC over the record is wrong")
        if message.sys_flag & COMPRESSED and is_known_compression(message.sys_flag):
            try:
                decompress(message.body, message.sys_flag, MAX_BODY_BYTES)
            except DataError as error:
                what = f"the body cannot be decompressed: {error.message}"
                self._note("undecodable-body", "error", placed, what)
        self.latest_ms = max(self.latest_ms, message.store_timestamp_ms)
        self._stored_ms = message.store_timestamp_ms

    def _check_header(self, placed: Placed) -> None:
        """Report header parts with impossible values, except for those that are reported elsewhere: a wrong physical
        offset, and the topic of a record that is left out.
        """
        message = placed.message
        elsewhere = {"physical_offset", "topic"} if is_left_out(message) else {"physical_offset"}
        parts = [p for p in suspect_parts(message, placed.physical_offset) if p not in elsewhere]
        if "sys_flag" in parts and is_of_later_version(message.sys_flag):
            parts.remove("sys_flag")
            self._note_later_flags(placed)
        if self._is_out_of_time(message):
            parts.append("store_timestamp")
        if parts:
            severity = "error" if CONTENT & set(parts) else "warning"
            what = f"no checksum covers these parts of the record, and they cannot be right: {', '.join(parts)}"
            self._note("suspect-header", severity, placed, what)

    def _note_later_flags(self, placed: Placed) -> None:
        """Report flags that RocketMQ 5.5.0 does not know. The record is kept as it is."""
        flags = placed.message.sys_flag
        is_readable = not flags & COMPRESSED or is_known_compression(flags)
        what = "it is served" if is_readable else "its body cannot be decompressed: readers skip it"
        self._note(
            "unknown-record-flags",
            "warning" if is_readable else "error",
            placed,
            f"the flags of the record come from a later RocketMQ, or are damaged. The record is kept, and {what}",
            found=hex(flags),
        )

    def _is_out_of_time(self, message: Message) -> bool:
        """Return whether the store time is more than a year away from the previous record's store time and from the
        client's time. The client's time must be within a year of the previous record's store time.
        """
        stored_ms, born_ms, before_ms = (
            message.store_timestamp_ms,
            message.born_timestamp_ms,
            self._stored_ms,
        )
        return (
            before_ms is not None
            and abs(stored_ms - before_ms) > FAR_MS
            and abs(stored_ms - born_ms) > FAR_MS
            and abs(born_ms - before_ms) < FAR_MS
            and 0 <= stored_ms < END_OF_TIME_MS
        )

    def _note(
        self, code: str, severity: str, placed: Placed, what: str, **facts: Unpack[Comparison]
    ) -> None:
        message = placed.message
        finding: Finding = self._walk.finding(
            code,
            severity,
            placed.physical_offset,
            what,
            topic=message.topic,
            partition=message.queue_id,
            offset=message.queue_offset,
            **facts,
        )
        self._tallies.add(finding)


def is_left_out(message: Message) -> bool:
    """Return whether its topic's name keeps a record out of every queue. Each such record has a finding of its own, as
    no reader gets it.
    """
    return message.in_queue and not is_folder_name(message.topic)


def note_tail(walk: LogWalk, notes: Notes) -> None:
    """Report bytes after the last good record that are not a record. Call it after the walk."""
    torn = walk.torn
    if torn is not None:
        notes.add(
            walk.finding(
                "torn-tail",
                "warning",
                torn.position,
                f"bytes after the last good record, at physical offset {torn.position}",
                expected="a record, or zeros",
                found=walk.why(torn.position),
            )
        )
