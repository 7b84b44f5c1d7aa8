"""Content of config/topics.json: the topics, their numbers of queues and their configs.

Owns that table as a value; must not touch a file. A change returns a new table, so that the old one stays valid if the
new one cannot be written. Unknown content (other keys, other fields of a topic, topics of another shape) is kept as it
is. Source: TopicConfigManager.

    dataVersion         counter, stateVersion, timestamp    incremented at each change
    topicConfigTable    topic name -> TopicConfig           in no order
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from storage.errors import Corrupt
from storage.model import TopicInfo
from storage.rocketmq.format.config_json import (
    decode_loosely,
    decode_object,
    encode_config,
    lay_out_member,
    lay_out_object,
)
from storage.rocketmq.format.config_shapes import TOPICS
from storage.rocketmq.format.names import is_closed_topic, is_system_topic
from storage.rocketmq.format.suspect_fields import is_folder_name
from storage.rocketmq.state.config_file import VERSION, next_version
from storage.rocketmq.state.settings import (
    BATCH_QUEUES,
    CLEANUP_POLICY,
    COMPACTED,
    QUEUE_TYPE,
    attributes_text,
    parse_attributes,
)

KIND: Final = "topics.json"
TABLE: Final = "topicConfigTable"
READ_QUEUES: Final = "readQueueNums"
WRITE_QUEUES: Final = "writeQueueNums"
ATTRIBUTES: Final = "attributes"
DEFAULT_QUEUES: Final = 16  # TopicConfig's own, for a topic without the field
MAX_STORED_QUEUES: Final = 1 << 20  # a larger number is damage
ENTRY_DEPTH: Final = 2  # nesting of an entry: in the table, in the file
# Fields of a new topic, in the order of the broker's file; the other fields are set for each topic.
_DEFAULTS: Final[dict[str, Any]] = {
    "order": False,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
}
_Name = TypeVar("_Name", bound=int | str)
_Entry = TypeVar("_Entry")


class TopicTable:
    """The content of topics.json. It never changes: `created`, `altered` and `without` return new tables.

    A new table encodes only the changed entry, and reuses the text of the others. Each change writes the whole file,
    also for 10,000 topics.
    """

    def __init__(
        self,
        content: Mapping[int | str, Any] | None = None,
        topics: Mapping[str, Mapping[str, Any]] | None = None,
        unreadable: Sequence[str] = (),
        texts: dict[int | str, str] | None = None,
    ) -> None:
        """Create a table. `topics`: the entries of `content` that were understood.

        `texts`: the encoded text of some entries, which the table takes over.
        """
        self._content = content or {}
        self._topics = topics or {}
        self.unreadable = unreadable
        self._texts = {} if texts is None else texts

    @classmethod
    def decode(cls, data: bytes) -> TopicTable:
        """Decode a file as the broker reads it. Raises Corrupt."""
        content = decode_object(data, TOPICS, kind=KIND)
        if TABLE in content and content[TABLE] is None:  # the broker fails and uses the `.bak`
            raise Corrupt(
                f"{TABLE} is null", kind=KIND, position=None, expected="topics", found="null"
            )
        return cls._of(content)

    @classmethod
    def decode_loosely(cls, data: bytes) -> TopicTable:
        """Decode a file that the broker cannot read; entries that are no topics are `unreadable`. Raises Corrupt."""
        return cls._of(decode_loosely(data, TABLE, kind=KIND))

    @classmethod
    def _of(cls, content: Mapping[int | str, Any]) -> TopicTable:
        topics: dict[str, Mapping[str, Any]] = {}
        unreadable: list[str] = []
        for topic, entry in (content.get(TABLE) or {}).items():
            if isinstance(topic, str) and is_folder_name(topic) and _is_topic(entry):
                topics[topic] = entry
            else:
                unreadable.append(str(topic))
        return cls(content, topics, unreadable)

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        stored = self._content.get(TABLE)
        if not stored:
            return encode_config(self._content)
        for topic, entry in stored.items():
            if topic not in self._texts:
                self._texts[topic] = lay_out_member(topic, entry, ENTRY_DEPTH)
        table = lay_out_object([self._texts[topic] for topic in stored], ENTRY_DEPTH - 1)
        return encode_config({**self._content, TABLE: table})

    def __contains__(self, topic: object) -> bool:
        return topic in self._topics

    @property
    def topics(self) -> Sequence[str]:
        """The topics that were understood, in the file's order."""
        return tuple(self._topics)

    @property
    def batch_topics(self) -> Iterable[str]:
        """The topics with batch queues (QueueTypeUtils.getCQType)."""
        for topic, entry in self._topics.items():
            if (entry.get(ATTRIBUTES) or {}).get(QUEUE_TYPE) == BATCH_QUEUES:
                yield topic

    @property
    def compacted_topics(self) -> Iterable[str]:
        """The topics that a broker compacts (CleanupPolicyUtils.getDeletePolicy)."""
        for topic, entry in self._topics.items():
            if (entry.get(ATTRIBUTES) or {}).get(CLEANUP_POLICY) == COMPACTED:
                yield topic

    def info(self, topic: str, queue_ids: Iterable[int] = ()) -> TopicInfo:
        """Return a topic with the queues 0 to max(readQueueNums, writeQueueNums) - 1 and `queue_ids`.

        `queue_ids`: the queues with a folder. The topic may have folders only, and no entry.
        """
        entry = self._topics.get(topic)
        count = 0 if entry is None else _queue_count(entry)
        more = sorted({number for number in queue_ids if number >= count})
        all_there = not more or more[-1] < count + len(more)
        return TopicInfo(
            name=topic,
            partitions=range(count + len(more)) if all_there else (*range(count), *more),
            configs={} if entry is None else _configs(entry),
            internal=is_system_topic(topic),
            closed=is_closed_topic(topic),
        )

    def created(
        self, topic: str, queues: int, configs: Mapping[str, str], *, now_ms: int
    ) -> TopicTable:
        """Return a table with a new topic."""
        entry = {
            ATTRIBUTES: {},
            **_DEFAULTS,
            READ_QUEUES: queues,
            "topicName": topic,
            WRITE_QUEUES: queues,
        }
        return self._with(topic, _changed(dict(sorted(entry.items())), configs), now_ms)

    def altered(
        self, info: TopicInfo, configs: Mapping[str, str | None], *, now_ms: int
    ) -> TopicTable:
        """Return a table with other configs of a topic (None: the default). `info`: the topic before the change."""
        if info.name not in self._topics:
            queues = max(info.partitions, default=-1) + 1
            return self.created(info.name, queues, {}, now_ms=now_ms).altered(
                info, configs, now_ms=now_ms
            )
        return self._with(info.name, _changed(dict(self._topics[info.name]), configs), now_ms)

    def widened(self, info: TopicInfo, queues: int, *, now_ms: int) -> TopicTable:
        """Return a table in which a topic has this number of queues to read and to write (updateTopicConfig)."""
        if info.name not in self._topics:
            return self.created(info.name, queues, {}, now_ms=now_ms)
        entry = {**self._topics[info.name], READ_QUEUES: queues, WRITE_QUEUES: queues}
        return self._with(info.name, entry, now_ms)

    def without(self, topics: Iterable[str], *, now_ms: int) -> TopicTable:
        """Return a table without these topics; this table if it has none of them."""
        gone = set(topics) & set(self._content.get(TABLE) or {})
        if not gone:
            return self
        return TopicTable(
            self._next(_others(self._content[TABLE], gone), now_ms),
            _others(self._topics, gone),
            [topic for topic in self.unreadable if topic not in gone],
            _others(self._texts, gone),
        )

    def _with(self, topic: str, entry: Mapping[str, Any], now_ms: int) -> TopicTable:
        return TopicTable(
            self._next({**(self._content.get(TABLE) or {}), topic: entry}, now_ms),
            {**self._topics, topic: entry},
            [name for name in self.unreadable if name != topic],
            {**self._texts, topic: lay_out_member(topic, entry, ENTRY_DEPTH)},
        )

    def _next(self, table: Mapping[int | str, Any], now_ms: int) -> Mapping[int | str, Any]:
        version = next_version(self._content.get(VERSION), now_ms)
        content: dict[int | str, Any] = {} if VERSION in self._content else {VERSION: version}
        return {**content, **self._content, VERSION: version, TABLE: table}


def _others(entries: Mapping[_Name, _Entry], gone: Collection[_Name]) -> dict[_Name, _Entry]:
    return {name: entry for name, entry in entries.items() if name not in gone}


def _is_topic(entry: object) -> bool:
    """Return whether this is the config of a topic, as far as it is checked here."""
    if not isinstance(entry, dict):
        return False
    counts = (entry.get(name, DEFAULT_QUEUES) for name in (READ_QUEUES, WRITE_QUEUES))
    return all(_is_count(count) for count in counts) and isinstance(
        entry.get(ATTRIBUTES) or {}, dict
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= MAX_STORED_QUEUES


def _queue_count(entry: Mapping[str, Any]) -> int:
    read: int = entry.get(READ_QUEUES, DEFAULT_QUEUES)
    write: int = entry.get(WRITE_QUEUES, DEFAULT_QUEUES)
    return max(read, write)


def _configs(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the configs that differ from the defaults, as text."""
    configs = {
        name: _text(entry[name])
        for name, default in _DEFAULTS.items()
        if entry.get(name, default) not in (default, None)
    }
    count = _queue_count(entry)
    for name in (READ_QUEUES, WRITE_QUEUES):
        stored = entry.get(name, DEFAULT_QUEUES)
        if stored != count:
            configs[name] = _text(stored)
    if entry.get(ATTRIBUTES):
        configs[ATTRIBUTES] = attributes_text(entry[ATTRIBUTES])
    return configs


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _changed(entry: dict[str, Any], configs: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the entry with other (checked) configs; unknown fields are kept."""
    count = _queue_count(entry)
    for name, value in configs.items():
        if name == ATTRIBUTES:
            entry[name] = parse_attributes(value or "")
        elif name in (READ_QUEUES, WRITE_QUEUES):
            entry[name] = count if value is None else int(value)
        elif value is None:
            entry[name] = _DEFAULTS[name]
        else:
            entry[name] = _value(value, _DEFAULTS[name])
    return entry


def _value(text: str, like: object) -> Any:
    """Convert a checked text to a value of the same kind as `like`."""
    if isinstance(like, bool):
        return text == "true"
    return int(text) if isinstance(like, int) else text
