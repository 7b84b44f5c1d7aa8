"""Content of config/consumerOffset.json, or lmqConsumerOffset.json: the offset of each group in each queue.

Owns that content as a value; must not touch a file. A change returns a new value, so that the old one stays valid if
the new one cannot be written. Unknown content (other keys, entries of another name, single offsets below 0) is kept as
it is. Source: ConsumerOffsetManager.

    dataVersion       counter, stateVersion, timestamp    incremented at each change
    groupTopicMap     group -> its topics                 derived from offsetTable, for readers of the file
    offsetTable       "TOPIC@GROUP" -> queue id -> offset queue ids bare or quoted
    pullOffsetTable   the same, of pull consumers         not changed
    lmqOffsetTable    "TOPIC@%LMQ%GROUP" -> offset        not changed; in lmqConsumerOffset.json only
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from storage.coding.varint import INT32_MAX, INT64_MAX
from storage.model import TopicPartition
from storage.rocketmq.format.config_json import decode_loosely, decode_object, encode_config
from storage.rocketmq.format.config_shapes import LMQ_OFFSETS
from storage.rocketmq.state.config_file import VERSION, next_version
from storage.shared.group_offsets import OffsetTable

KIND: Final = "consumerOffset.json"
TABLE: Final = "offsetTable"
PULL_TABLE: Final = "pullOffsetTable"
GROUP_TOPICS: Final = "groupTopicMap"
SEPARATOR: Final = "@"


class StoredOffsets:
    """The content of an offsets file. It never changes: `changed` returns a new value."""

    def __init__(self, content: Mapping[int | str, Any] | None = None) -> None:
        self._content = content or {}
        # Content kept as it is: whole entries by their key, single offsets by the key of their entry.
        self._other_entries: dict[int | str, Any] = {}
        self._other_offsets: dict[str, dict[int | str, Any]] = {}
        self._table = OffsetTable[int]()
        for key, entry in (self._content.get(TABLE) or {}).items():
            queue = _split(key)
            if queue is None or not isinstance(entry, dict):
                self._other_entries[key] = entry
                continue
            topic, group = queue
            for stored_id, offset in entry.items():
                queue_id = _queue_id(stored_id)
                if queue_id is None or not _is_offset(offset):
                    self._other_offsets.setdefault(key, {})[stored_id] = offset
                else:
                    self._table.put(group, TopicPartition(topic, queue_id), offset)

    @classmethod
    def decode(cls, data: bytes) -> StoredOffsets:
        """Decode a file as the broker reads it. Raises Corrupt."""
        return cls(decode_object(data, LMQ_OFFSETS, kind=KIND))

    @classmethod
    def decode_loosely(cls, data: bytes) -> StoredOffsets:
        """Decode a file that the broker cannot read; keep entries of other forms as they are. Raises Corrupt."""
        return cls(decode_loosely(data, TABLE, kind=KIND))

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        return encode_config(self._content)

    @property
    def table(self) -> OffsetTable[int]:
        """The offsets that were understood. Callers must not change this table."""
        return self._table

    def changed(self, change: Callable[[OffsetTable[int]], None], *, now_ms: int) -> StoredOffsets:
        """Return a copy with the table as `change` leaves it."""
        new = StoredOffsets()
        new._table = self._table.copy()
        change(new._table)
        new._other_entries = self._other_entries
        new._other_offsets = {
            key: offsets
            for key, offsets in self._other_offsets.items()
            if not self._was_dropped(key, new._table)
        }
        new._content = {
            VERSION: None,
            GROUP_TOPICS: None,
            TABLE: None,
            PULL_TABLE: {},
            **self._content,
        }
        new._content[TABLE] = new._offset_table()
        new._content[GROUP_TOPICS] = self._group_topics(new._content[TABLE])
        new._content[VERSION] = next_version(self._content.get(VERSION), now_ms)
        return new

    def _was_dropped(self, key: str, table: OffsetTable[int]) -> bool:
        """Return whether a change removed every known offset of an entry. Its unknown offsets are then removed too."""
        topic, group = key.split(SEPARATOR)
        return _has_topic(self._table, group, topic) and not _has_topic(table, group, topic)

    def _offset_table(self) -> dict[int | str, Any]:
        entries: dict[int | str, Any] = {
            key: dict(offsets) for key, offsets in self._other_offsets.items()
        }
        for group in self._table.groups():
            for (topic, queue_id), offset in self._table.of_group(group).items():
                entry = entries.setdefault(f"{topic}{SEPARATOR}{group}", {})
                entry.pop(str(queue_id), None)  # an unknown offset under the same queue id, quoted
                entry[queue_id] = offset
        return {**self._other_entries, **entries}

    def _group_topics(self, keys: Iterable[int | str]) -> dict[int | str, Any]:
        """Return the topics of each group, as ConsumerOffsetManager lists them.

        Groups that were listed without an offset stay.
        """
        stored = self._content.get(GROUP_TOPICS)
        stored = stored if isinstance(stored, dict) else {}
        known = self._table.groups()
        topics = {
            group: dict.fromkeys(listed)
            for group, listed in stored.items()
            if group not in known and isinstance(listed, list)
        }
        for topic, group in filter(None, map(_split, keys)):
            topics.setdefault(group, {})[topic] = None
        return {group: list(listed) for group, listed in topics.items()}


def _split(key: int | str) -> tuple[str, str] | None:
    """Return the topic and the group of an entry's key; None for a key of another form."""
    if not isinstance(key, str) or key.count(SEPARATOR) != 1:
        return None
    topic, _, group = key.partition(SEPARATOR)
    return topic, group


def _has_topic(table: OffsetTable[int], group: str, topic: str) -> bool:
    return any(queue.topic == topic for queue in table.of_group(group))


def _queue_id(key: int | str) -> int | None:
    if isinstance(key, str):
        key = int(key) if key.isascii() and key.isdigit() and len(key) <= 10 else -1
    return key if 0 <= key <= INT32_MAX else None


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT64_MAX
