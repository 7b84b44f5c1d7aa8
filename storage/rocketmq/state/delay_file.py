"""Content of config/delayOffset.json: up to which offset the records of each delay level were delivered.

Owns that content as a value; must not touch a file. Unknown members and entries are kept as they are. Source:
ScheduleMessageService and DelayOffsetSerializeWrapper of RocketMQ 5.5.0.

    dataVersion    counter, stateVersion, timestamp    incremented at each change
    offsetTable    level -> offset                     of the first record of the level that was not delivered

A level without an entry begins at its first record. The broker counts a version per 200 changes and writes the file
every 10 seconds; it accepts any version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from storage.rocketmq.format.config_json import decode_loosely, decode_object, encode_config
from storage.rocketmq.format.config_shapes import shape_of
from storage.rocketmq.format.names import DELAY_OFFSETS
from storage.rocketmq.state.config_file import VERSION, next_version

TABLE: Final = "offsetTable"


class DelayOffsets:
    """The content of the file. It never changes: `changed` returns a new value."""

    def __init__(self, content: Mapping[int | str, Any] | None = None) -> None:
        self._content = content or {}

    @classmethod
    def decode(cls, data: bytes) -> DelayOffsets:
        """Decode a file as the broker reads it. Raises Corrupt."""
        return cls(decode_object(data, shape_of(DELAY_OFFSETS), kind=DELAY_OFFSETS))

    @classmethod
    def decode_loosely(cls, data: bytes) -> DelayOffsets:
        """Decode a file that the broker cannot read. Raises Corrupt."""
        return cls(decode_loosely(data, TABLE, kind=DELAY_OFFSETS))

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        return encode_config(self._content)

    @property
    def by_level(self) -> Mapping[int, int]:
        """The offsets by delay level, without entries that are no level or no offset."""
        return {
            level: offset
            for key, offset in (self._content.get(TABLE) or {}).items()
            if (level := _level(key)) > 0 and isinstance(offset, int) and offset >= 0
        }

    def changed(self, offsets: Mapping[int, int], *, now_ms: int) -> DelayOffsets:
        """Return a copy with these offsets by level."""
        table = {
            key: offset
            for key, offset in (self._content.get(TABLE) or {}).items()
            if _level(key) not in offsets
        }
        version = next_version(self._content.get(VERSION), now_ms)
        return DelayOffsets({**self._content, VERSION: version, TABLE: {**table, **offsets}})


def _level(key: int | str) -> int:
    if isinstance(key, int):
        return key
    return int(key) if key.isascii() and key.isdigit() and len(key) <= 10 else 0
