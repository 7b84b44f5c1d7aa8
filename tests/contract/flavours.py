"""Differences between backends that the contract allows: names, configs, codecs, limits, and content of records.

Owns one table, a Flavour per way of running the suites; must not open a store. The table is written from the design,
not read from the code: a suite that meets a difference looks it up and asserts it. The last flavour is a RocketMQ store
of tiny files, so that its log, queues and index roll in every suite.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple


class Config(NamedTuple):
    """A topic config with two legal values, neither of them the default."""

    name: str
    value: str
    other: str


@dataclass(frozen=True, kw_only=True)
class Flavour:
    """A backend with the settings of every store in a run.

    - `unkept`: for names of records in the suites, the field that the backend cannot represent.
    - `limit`: the setting for the size of the largest record, of a topic (`limit_is_topics`) or of the store.
    - `default_limit`: a value size that fits without the setting, and a size that does not.
    - `append_time`: the topic configs under which the append's time counts.
    - `shares_log`: all partitions are stored in one log, so that none has a size of its own.
    - `keeps_commit_details`: a committed offset keeps also the leader epoch, the metadata and the time.
    """

    backend: str
    settings: Mapping[str, str] = field(default_factory=dict)
    durable: bool = True
    topic_name: re.Pattern[str]
    names_alike: Sequence[tuple[str, str]] = ()
    partitions_setting: str
    default_partitions: int
    config: Config
    second: Config
    third: Config
    bad_configs: Sequence[tuple[str, str]]
    codecs: Sequence[str]
    codec_config: str | None = None
    append_time: Mapping[str, str] | None = None
    dense_index: Mapping[str, str] = field(default_factory=dict)
    unkept: Mapping[str, str] = field(default_factory=dict)
    limit: str
    limit_is_topics: bool = False
    default_limit: tuple[int, int]
    big_bytes: int = 100_000
    first_id: str = "events:0:0"
    shares_log: bool = False
    keeps_commit_details: bool = True

    @property
    def keeps_any_key(self) -> bool:
        """Whether a key may be empty, or bytes that are not text."""
        return "empty key" not in self.unkept


MEMORY = Flavour(
    backend="memory",
    durable=False,
    topic_name=re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}"),
    names_alike=[("a.b", "a_b"), ("a_b", "a.b"), ("a._", "a_.")],
    partitions_setting="num.partitions",
    default_partitions=1,
    config=Config("retention.ms", "5", "6"),
    second=Config("segment.ms", "1000", "2000"),
    third=Config("retention.bytes", "1000000", "2000000"),
    bad_configs=[
        ("no.such.config", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", ""),
        ("cleanup.policy", "burn"),
        ("message.timestamp.type", "createtime!"),
        ("compression.type", "rar"),
        ("topicSysFlag", "1"),
    ],
    codecs=["none", "gzip", "snappy", "lz4", "zstd"],
    codec_config="compression.type",
    append_time={"message.timestamp.type": "LogAppendTime"},
    dense_index={"index.interval.bytes": "100"},
    limit="max.message.bytes",
    limit_is_topics=True,
    default_limit=(1_000_000, 1_100_000),
)

KAFKA = replace(
    MEMORY, backend="kafka", durable=True, settings={"offsets.topic.num.partitions": "3"}
)

ROCKETMQ = Flavour(
    backend="rocketmq",
    settings={
        "mappedFileSizeCommitLog": str(8 << 20),
        "mappedFileSizeConsumeQueue": "60000",
        "maxHashSlotNum": "5000",
        "maxIndexNum": "20000",
    },
    topic_name=re.compile(r"[%|a-zA-Z0-9_-]{1,127}"),
    partitions_setting="defaultTopicQueueNums",
    default_partitions=8,
    config=Config("topicSysFlag", "5", "6"),
    second=Config("order", "true", "true"),
    third=Config("perm", "4", "2"),
    bad_configs=[
        ("no.such.config", "1"),
        ("perm", "8"),
        ("perm", ""),
        ("order", "maybe"),
        ("topicFilterType", "BY_HAND"),
        ("attributes", "colour=red"),
        ("retention.ms", "5"),
        ("message.timestamp.type", "LogAppendTime"),
        ("compression.type", "gzip"),
    ],
    codecs=["none", "lz4", "zstd", "zlib"],
    unkept={
        "empty key": "key",
        "binary": "key",
        "large": "headers",
        "separator in the key": "key",
        "NUL and space in the key": "key",
        "tombstone": "value",
        "nothing at all": "value",
        "header null value": "headers",
        "header empty value": "headers",
        "header empty name": "headers",
        "header names repeated": "headers",
        "header not ascii": "headers",
        "header of a reserved name": "headers",
        "separator in a header": "headers",
        "NUL in a header": "headers",
        "large header": "headers",
        "large headers": "properties",
        "separator in the tag": "tag",
        "separator in a lookup key": "keys",
    },
    limit="maxMessageSize",
    default_limit=(4 << 20, (4 << 20) + 1),
    first_id="7F00000100002A9F0000000000000000",
    shares_log=True,
    keeps_commit_details=False,
)

SMALL_ROCKETMQ = replace(
    ROCKETMQ,
    settings={
        "mappedFileSizeCommitLog": str(16 << 10),
        "mappedFileSizeConsumeQueue": "400",
        "maxHashSlotNum": "64",
        "maxIndexNum": "200",
    },
    default_limit=(16_000, 16_384),
    big_bytes=12_000,
)

FLAVOURS: Mapping[str, Flavour] = {
    "memory": MEMORY,
    "kafka": KAFKA,
    "rocketmq": ROCKETMQ,
    "rocketmq-small": SMALL_ROCKETMQ,
}
