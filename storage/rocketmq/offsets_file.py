"""The content of config/consumerOffset.json, or lmqConsumerOffset.json: how far each group has come in each queue.

Owns that content as a value: a change gives a new one, so that one that could not be written leaves
the old one standing; must not touch a file. What is not known here (other keys, entries of another
shape) is kept as it is. As ConsumerOffsetManager:

    dataVersion       counter, stateVersion, timestamp    counted up at each change
    groupTopicMap     group -> its topics                 made from offsetTable, for who reads the file
    offsetTable       "TOPIC@GROUP" -> queue id -> offset queue ids bare or quoted
    pullOffsetTable   the same, of pull consumers         left alone
    lmqOffsetTable    "TOPIC@%LMQ%GROUP" -> offset        left alone; in lmqConsumerOffset.json only
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from storage.group_offsets import INT32_MAX, INT64_MAX, OffsetTable
from storage.model import TopicPartition
from storage.rocketmq.config_file import VERSION, next_version
from storage.rocketmq.format.config_json import decode_table, encode_config

TABLE: Final = "offsetTable"
PULL_TABLE: Final = "pullOffsetTable"
GROUP_TOPICS: Final = "groupTopicMap"
SEPARATOR: Final = "@"


class StoredOffsets:
    """What the offsets file says. Never changed: `changed` gives a new one."""

    def __init__(self, content: Mapping[int | str, Any] | None = None) -> None:
        self._content = content or {}
        self._others: dict[int | str, Any] = {}  # entries that are left as they are
        self._table = OffsetTable[int]()
        for key, entry in (self._content.get(TABLE) or {}).items():
            offsets = _offsets(entry)
            if offsets is None or not isinstance(key, str) or key.count(SEPARATOR) != 1:
                self._others[key] = entry
                continue
            topic, group = key.split(SEPARATOR)
            for queue_id, offset in offsets.items():
                self._table.put(group, TopicPartition(topic, queue_id), offset)

    @classmethod
    def decode(cls, data: bytes) -> StoredOffsets:
        """The content of a file. Raises Corrupt."""
        return cls(decode_table(data, TABLE, kind="consumerOffset.json"))

    def encode(self) -> bytes:
        """The bytes of the file."""
        return encode_config(self._content)

    @property
    def table(self) -> OffsetTable[int]:
        """The offsets that can be understood; to be looked at only."""
        return self._table

    def changed(self, change: Callable[[OffsetTable[int]], None], *, now_ms: int) -> StoredOffsets:
        """With the table as `change` leaves it."""
        new = StoredOffsets()
        new._table = self._table.copy()
        change(new._table)
        new._others = self._others
        new._content = {
            VERSION: None,
            GROUP_TOPICS: None,
            TABLE: None,
            PULL_TABLE: {},
            **self._content,
        }
        new._content |= new._tables()
        new._content[VERSION] = next_version(self._content.get(VERSION), now_ms)
        return new

    def _tables(self) -> dict[int | str, Any]:
        offsets: dict[int | str, Any] = {}
        topics: dict[str, list[str]] = {}
        for group in self._table.groups():
            for (topic, queue_id), offset in self._table.of_group(group).items():
                entry = offsets.setdefault(f"{topic}{SEPARATOR}{group}", {})
                if not entry:
                    topics.setdefault(group, []).append(topic)
                entry[queue_id] = offset
        return {GROUP_TOPICS: topics, TABLE: {**self._others, **offsets}}


def _offsets(entry: object) -> dict[int, int] | None:
    """Offsets by queue id; None for an entry of another shape."""
    if not isinstance(entry, dict):
        return None
    found = {_queue_id(key): offset for key, offset in entry.items()}
    if None in found or not all(_is_offset(offset) for offset in found.values()):
        return None
    return {queue_id: offset for queue_id, offset in found.items() if queue_id is not None}


def _queue_id(key: int | str) -> int | None:
    if isinstance(key, str):
        key = int(key) if key.isascii() and key.isdigit() and len(key) <= 10 else -1
    return key if 0 <= key <= INT32_MAX else None


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT64_MAX
