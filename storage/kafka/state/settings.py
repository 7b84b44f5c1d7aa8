"""Store and topic settings under Kafka's own names, checked once and converted to numbers.

Owns the table of settings that this engine acts on and the names it keeps for the real broker; must
not do IO. Names and defaults are from TopicConfig and the broker's server properties in 4.3.1. Retention is the
exception: it is off unless it is set, so that nothing is deleted without a request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from storage.coding.config_values import fraction, one_of, unknown, unlike, whole_number
from storage.coding.varint import INT32_MAX, INT64_MAX
from storage.kafka.format.compression import CODECS
from storage.kafka.format.names import (
    GROUP_OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from storage.model import ConfigSource, TopicConfig
from storage.transactions import TransactionLimits

DAY_MS: Final = 86_400_000
CLEANUP_POLICY: Final = "cleanup.policy"
COMPACT: Final = "compact"
DELETE: Final = "delete"
TIMESTAMP_BEFORE: Final = "message.timestamp.before.max.ms"
TIMESTAMP_AFTER: Final = "message.timestamp.after.max.ms"
MAX_PARTITIONS: Final = 10_000  # per topic

# topic config -> (the broker's server property, default, lowest, highest)
_NUMBERS: Final[dict[str, tuple[str, int, int, int]]] = {
    "segment.bytes": ("log.segment.bytes", 1 << 30, 1 << 20, INT32_MAX),
    "internal.segment.bytes": ("internal.segment.bytes", 0, 14, INT32_MAX),
    "segment.ms": ("log.roll.ms", 7 * DAY_MS, 1, INT64_MAX),
    "segment.jitter.ms": ("log.roll.jitter.ms", 0, 0, INT64_MAX),
    "segment.index.bytes": ("log.index.size.max.bytes", 10 << 20, 12, INT32_MAX),
    "index.interval.bytes": ("log.index.interval.bytes", 4096, 0, INT32_MAX),
    "max.message.bytes": ("message.max.bytes", 1_048_588, 0, INT32_MAX),
    "retention.ms": ("log.retention.ms", -1, -1, INT64_MAX),
    "retention.bytes": ("log.retention.bytes", -1, -1, INT64_MAX),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms", 60_000, 0, INT64_MAX),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms", DAY_MS, 0, INT64_MAX),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms", 0, 0, INT64_MAX),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms", INT64_MAX, 1, INT64_MAX),
    # The broker's default for times in the future is one hour. Here records are rejected only if a limit is set.
    TIMESTAMP_BEFORE: ("log.message.timestamp.before.max.ms", INT64_MAX, 0, INT64_MAX),
    TIMESTAMP_AFTER: ("log.message.timestamp.after.max.ms", INT64_MAX, 0, INT64_MAX),
}
_CHOICES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "message.timestamp.type": ("log.message.timestamp.type", ("CreateTime", "LogAppendTime")),
    "compression.type": ("compression.type", ("producer", "uncompressed", *CODECS[1:])),
    "preallocate": ("log.preallocate", ("false", "true")),
}
_POLICIES: Final = (DELETE, COMPACT)
_BOOLEANS: Final = ("true", "false")
_FRACTIONS: Final[dict[str, tuple[str, float]]] = {
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio", 0.5),
}
_NO_EFFECT_NUMBERS: Final[dict[str, tuple[int, int]]] = {
    "compression.gzip.level": (-1, 9),
    "compression.lz4.level": (1, 17),
    "compression.zstd.level": (-131_072, 22),
    "flush.messages": (1, INT64_MAX),
    "flush.ms": (0, INT64_MAX),
    "local.retention.bytes": (-2, INT64_MAX),
    "local.retention.ms": (-2, INT64_MAX),
    "min.insync.replicas": (1, INT32_MAX),
}
_NO_EFFECT_LIST: Final = re.compile(r"(?:\d+:\d+(?:\s*,\s*\d+:\d+)*|\*)?", re.ASCII).fullmatch
INERT_CONFIGS: Final[Mapping[str, str]] = {
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.zstd.level": "3",
    "flush.messages": str(INT64_MAX),
    "flush.ms": str(INT64_MAX),
    "follower.replication.throttled.replicas": "",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "min.insync.replicas": "1",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "unclean.leader.election.enable": "false",
}
"""Configs of the real broker that have no effect here, with the broker's defaults. They are kept and shown, so that a
topic's configs survive a round trip."""
_LISTS: Final = frozenset(
    {
        "cleanup.policy",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
    }
)
_LONGS: Final = frozenset({"retention.bytes", "flush.messages", "local.retention.bytes"})
_STORE_NUMBERS: Final[dict[str, tuple[int, int, int]]] = {
    "num.partitions": (1, 1, MAX_PARTITIONS),
    "producer.id.expiration.ms": (DAY_MS, 1, INT32_MAX),
    "node.id": (1, 0, INT32_MAX),
    "offsets.topic.num.partitions": (50, 1, MAX_PARTITIONS),
    "offsets.topic.segment.bytes": (100 << 20, 1, INT32_MAX),
    "log.cleaner.dedupe.buffer.size": (128 << 20, 1 << 20, INT64_MAX),
    "log.cleaner.backoff.ms": (15_000, 0, INT64_MAX),
    "transaction.state.log.num.partitions": (50, 1, MAX_PARTITIONS),
    "transaction.state.log.segment.bytes": (100 << 20, 1, INT32_MAX),
    "transaction.max.timeout.ms": (900_000, 1, INT32_MAX),
    "transactional.id.expiration.ms": (7 * DAY_MS, 1, INT32_MAX),
}
_LOAD_FACTOR: Final = "log.cleaner.io.buffer.load.factor"
_CLEANER_ENABLE: Final = "log.cleaner.enable"
_STORE_TEXTS: Final = ("cluster.id", "directory.id")
LOG_DIRS: Final = "log.dirs"
STORE_SETTINGS: Final = (
    *_STORE_NUMBERS,
    *_STORE_TEXTS,
    LOG_DIRS,
    _LOAD_FACTOR,
    _CLEANER_ENABLE,
)
TOPIC_CONFIGS: Final = (*_NUMBERS, *_FRACTIONS, *_CHOICES, CLEANUP_POLICY)
"""The topic configs that this engine acts on."""
_TOPIC_NAMES: Final = (*TOPIC_CONFIGS, *INERT_CONFIGS)
_BY_SERVER_NAME: Final = {
    **{server: name for name, (server, *_) in _NUMBERS.items()},
    **{server: name for name, (server, _) in _CHOICES.items()},
    **{server: name for name, (server, _) in _FRACTIONS.items()},
    "log.cleanup.policy": CLEANUP_POLICY,
}
SETTING_NAMES: Final = (*STORE_SETTINGS, *TOPIC_CONFIGS, *_BY_SERVER_NAME)
"""All names that `parse_store_settings` accepts, except the names of INERT_CONFIGS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of one topic's partitions. Sizes in bytes, times in ms; None: not set, so off. `deletes`: the
    cleanup policy lets records be deleted.
    """

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_message_bytes: int
    log_append_time: bool
    timestamp_before_ms: int | None
    timestamp_after_ms: int | None
    compression: str
    preallocate: bool
    deletes: bool
    retention_ms: int | None
    retention_bytes: int | None
    delete_delay_ms: int
    compacts: bool
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    delete_retention_ms: int


_COORDINATOR_CONFIGS: Final[Mapping[str, Mapping[str, str]]] = {
    SHARE_STATE_TOPIC: {"retention.ms": "-1", "retention.bytes": "-1"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The settings of a store. `topic_defaults`: topic configs for the whole store. `log_dirs`: further directories
    that are read with it. `cleaner_enabled` None: compaction is on for topics whose own configs ask for it, and for the
    internal topics of a store that this server created.
    """

    num_partitions: int
    producer_id_expiration_ms: int
    node_id: int
    cluster_id: str | None
    directory_id: str | None
    offsets_partitions: int
    offsets_segment_bytes: int
    transactions_partitions: int
    transactions_segment_bytes: int
    transaction_limits: TransactionLimits
    topic_defaults: Mapping[str, str]
    log_dirs: tuple[str, ...]
    cleaner_enabled: bool | None
    cleaner_buffer_bytes: int
    cleaner_load_factor: float
    cleaner_backoff_ms: int

    def broker_configs(self, topic: str) -> Mapping[str, str]:
        """Return the configs that the broker sets for its internal topics (GroupCoordinatorService,
        TransactionStateManager, ShareCoordinatorService). Retention deletes nothing from these topics.
        """
        if topic == GROUP_OFFSETS_TOPIC:
            return {
                CLEANUP_POLICY: COMPACT,
                "compression.type": "producer",
                "segment.bytes": str(self.offsets_segment_bytes),
            }
        if topic == TRANSACTION_STATE_TOPIC:
            return {
                "cleanup.policy": COMPACT,
                "segment.bytes": str(self.transactions_segment_bytes),
            }
        return _COORDINATOR_CONFIGS.get(topic, {})

    def describe(self, topic: str, configs: Mapping[str, str]) -> Sequence[TopicConfig]:
        """Return every config of a topic that has these configs of its own, in order of name. Internal configs are left
        out, as the real server does.
        """
        own = {**self.broker_configs(topic), **configs}
        return [
            _described(name, own.get(name), self.topic_defaults.get(name))
            for name in sorted(_TOPIC_NAMES)
            if not name.startswith("internal.")
        ]

    def may_compact(self, topic: str, configs: Mapping[str, str], *, is_own: bool) -> bool:
        """Return whether a compacted topic with these configs of its own is cleaned: docs/decisions/0023.

        Nothing is removed unless it was asked for. The internal topics of a store that this server created (`is_own`)
        are the exception: they would grow forever. In a store of a real broker they are cleaned if log.cleaner.enable
        is true.
        """
        if self.cleaner_enabled is False:
            return False
        is_asked_for = CLEANUP_POLICY in configs or CLEANUP_POLICY not in self.broker_configs(topic)
        return is_own or self.cleaner_enabled is True or is_asked_for

    def of_topic(self, topic: str, configs: Mapping[str, str]) -> TopicSettings:
        """Return the settings of a topic with these configs of its own."""
        return topic_settings({**self.topic_defaults, **self.broker_configs(topic), **configs})


def parse_store_settings(settings: Mapping[str, str]) -> StoreSettings:
    """Check and convert `--set` values: server properties, or topic configs as the default of all topics.

    Raises InvalidConfig.
    """
    numbers = {name: default for name, (default, _, _) in _STORE_NUMBERS.items()}
    texts: dict[str, str | None] = dict.fromkeys(_STORE_TEXTS)
    defaults: dict[str, str] = {}
    log_dirs: tuple[str, ...] = ()
    load_factor = 0.9
    cleaner_enabled: bool | None = None
    for name, value in settings.items():
        topic_name = _BY_SERVER_NAME.get(name, name)
        if name in _STORE_NUMBERS:
            _, low, high = _STORE_NUMBERS[name]
            numbers[name] = whole_number(name, value, low=low, high=high)
        elif name in texts:
            texts[name] = _text(name, value)
        elif name == LOG_DIRS:
            log_dirs = _folders(name, value)
        elif name == _LOAD_FACTOR:
            load_factor = fraction(name, value)
        elif name == _CLEANER_ENABLE:
            one_of(name, value, ("true", "false"))
            cleaner_enabled = value == "true"
        else:
            check_topic_config(topic_name, value, shown_as=name)
            defaults[topic_name] = value
    return StoreSettings(
        num_partitions=numbers["num.partitions"],
        producer_id_expiration_ms=numbers["producer.id.expiration.ms"],
        node_id=numbers["node.id"],
        cluster_id=texts["cluster.id"],
        directory_id=texts["directory.id"],
        offsets_partitions=numbers["offsets.topic.num.partitions"],
        offsets_segment_bytes=numbers["offsets.topic.segment.bytes"],
        transactions_partitions=numbers["transaction.state.log.num.partitions"],
        transactions_segment_bytes=numbers["transaction.state.log.segment.bytes"],
        transaction_limits=TransactionLimits(
            numbers["transaction.max.timeout.ms"], numbers["transactional.id.expiration.ms"]
        ),
        topic_defaults=defaults,
        log_dirs=log_dirs,
        cleaner_enabled=cleaner_enabled,
        cleaner_buffer_bytes=numbers["log.cleaner.dedupe.buffer.size"],
        cleaner_load_factor=load_factor,
        cleaner_backoff_ms=numbers["log.cleaner.backoff.ms"],
    )


RETENTION_SETTINGS: Final[Mapping[str, str]] = {
    _NUMBERS[name][0]: name for name in ("retention.ms", "retention.bytes", "file.delete.delay.ms")
}
"""The store's defaults that can be changed while it is open, and the topic configs that they are defaults of."""


def changed_retention(
    defaults: Mapping[str, str], changes: Mapping[str, str | None]
) -> dict[str, str]:
    """Return the topic defaults with other settings of retention (None: not set). Raises InvalidConfig."""
    changed = dict(defaults)
    for name, value in changes.items():
        if name not in RETENTION_SETTINGS:
            raise unknown(name, value, tuple(RETENTION_SETTINGS))
        topic_name = RETENTION_SETTINGS[name]
        if value is None:
            changed.pop(topic_name, None)
        else:
            check_topic_config(topic_name, value, shown_as=name)
            changed[topic_name] = value
    return changed


def check_topic_config(name: str, value: str, *, shown_as: str | None = None) -> None:
    """Raise InvalidConfig (with config, value and limits) unless this is a legal topic config."""
    shown = shown_as or name
    if name in _NUMBERS:
        _, _, low, high = _NUMBERS[name]
        whole_number(shown, value.strip(), low=low, high=high)
    elif name in _FRACTIONS:
        fraction(shown, value)
    elif name == CLEANUP_POLICY:
        for policy in cleanup_policies(value):
            one_of(shown, policy, _POLICIES)
    elif name == "preallocate":
        one_of(shown, _boolean(value), _BOOLEANS)
    elif name in _CHOICES:
        one_of(shown, value, _CHOICES[name][1])
    elif name in INERT_CONFIGS:
        _check_without_effect(name, value, shown)
    else:
        raise unknown(shown, value, _TOPIC_NAMES)


def _check_without_effect(name: str, value: str, shown: str) -> None:
    """Raise InvalidConfig for a value that the real broker refuses, of a config that has no effect here."""
    if name in _NO_EFFECT_NUMBERS:
        low, high = _NO_EFFECT_NUMBERS[name]
        whole_number(shown, value.strip(), low=low, high=high)
    elif name in _LISTS:
        if not _NO_EFFECT_LIST(value.strip()):
            raise unlike(shown, value, "a list of PARTITION:NODE, or *")
    elif name == "remote.storage.enable":
        one_of(shown, _boolean(value), ("false",))  # as a broker without remote storage
    else:
        one_of(shown, _boolean(value), _BOOLEANS)


def _boolean(value: str) -> str:
    """Return a boolean in the form of _BOOLEANS. From ConfigDef.parseType: case and spaces around it do not count."""
    return value.strip().lower()


def cleanup_policies(value: str) -> frozenset[str]:
    """Return the policies of a value of cleanup.policy, which separates them by commas, as the broker reads it.

    Without one, records are neither deleted nor compacted.
    """
    value = value.strip()
    return frozenset(policy.strip() for policy in value.split(",")) if value else frozenset()


def check_topic_reset(name: str) -> None:
    """Raise InvalidConfig unless Kafka has a topic config of this name, which can then be reset to its default."""
    if name not in _TOPIC_NAMES:
        raise unknown(name, None, _TOPIC_NAMES)


def topic_settings(configs: Mapping[str, str]) -> TopicSettings:
    """Convert checked configs to settings. The caller has merged a topic's own configs over the store's defaults."""
    numbers = {
        name: int(configs[name]) if name in configs else default
        for name, (_, default, _, _) in _NUMBERS.items()
    }
    compression = configs.get("compression.type", "producer")
    policies = cleanup_policies(configs.get(CLEANUP_POLICY, DELETE))
    deletes, compacts = DELETE in policies, COMPACT in policies
    max_lag_ms = numbers["max.compaction.lag.ms"]
    return TopicSettings(
        segment_bytes=numbers["internal.segment.bytes"] or numbers["segment.bytes"],
        # As in the broker: the active segment is never cleaned, so it must end before the longest lag.
        segment_ms=min(numbers["segment.ms"], max_lag_ms) if compacts else numbers["segment.ms"],
        segment_jitter_ms=numbers["segment.jitter.ms"],
        segment_index_bytes=numbers["segment.index.bytes"],
        index_interval_bytes=numbers["index.interval.bytes"],
        max_message_bytes=numbers["max.message.bytes"],
        log_append_time=configs.get("message.timestamp.type") == "LogAppendTime",
        timestamp_before_ms=_off_if_max(numbers[TIMESTAMP_BEFORE]),
        timestamp_after_ms=_off_if_max(numbers[TIMESTAMP_AFTER]),
        compression="none" if compression in ("producer", "uncompressed") else compression,
        preallocate=_boolean(configs.get("preallocate", "")) == "true",
        deletes=deletes,
        retention_ms=_off_if_negative(numbers["retention.ms"]) if deletes else None,
        retention_bytes=_off_if_negative(numbers["retention.bytes"]) if deletes else None,
        delete_delay_ms=numbers["file.delete.delay.ms"],
        compacts=compacts,
        min_cleanable_dirty_ratio=float(
            configs.get("min.cleanable.dirty.ratio", _FRACTIONS["min.cleanable.dirty.ratio"][1])
        ),
        min_compaction_lag_ms=numbers["min.compaction.lag.ms"],
        max_compaction_lag_ms=max_lag_ms,
        delete_retention_ms=numbers["delete.retention.ms"],
    )


def _described(name: str, own: str | None, of_store: str | None) -> TopicConfig:
    """Return a config with the value of the topic, else of the store, else the default."""
    server_name: str | None = None
    if name in _NUMBERS:
        server_name, number, _, _ = _NUMBERS[name]
        default = str(number)
    elif name in _CHOICES:
        server_name, choices = _CHOICES[name]
        default = choices[0]
    elif name in _FRACTIONS:
        server_name, fraction = _FRACTIONS[name]
        default = str(fraction)
    elif name == CLEANUP_POLICY:
        server_name, default = "log.cleanup.policy", DELETE
    else:
        default = INERT_CONFIGS[name]
    inherited = default if of_store is None else of_store
    source = ConfigSource.DEFAULT if of_store is None else ConfigSource.STORE
    if own is not None:
        source = ConfigSource.TOPIC
        if name in _LISTS:  # as the broker shows it
            own = ",".join(item.strip() for item in own.split(","))
    return TopicConfig(
        name,
        inherited if own is None else own,
        inherited,
        source,
        _kind(name, default),
        server_name,
    )


def _kind(name: str, default: str) -> str:
    """Return the type of a config as the real broker names it."""
    if name in _LISTS:
        return "list"
    if default in {"true", "false"}:
        return "bool"
    if name in _FRACTIONS:
        return "double"
    if name in _LONGS or name.endswith(".ms"):
        return "long"
    return "int" if name in _NUMBERS or default.lstrip("-").isdigit() else "string"


def _off_if_negative(value: int) -> int | None:
    return None if value < 0 else value


def _off_if_max(value: int) -> int | None:
    return None if value == INT64_MAX else value


def _folders(name: str, value: str) -> tuple[str, ...]:
    folders = tuple(part.strip() for part in value.split(","))
    if not all(folders) or "\0" in value:
        raise unlike(name, value, "directories with ',' between them")
    return folders


def _text(name: str, value: str) -> str:
    if not value or not value.isprintable() or len(value) > 255:
        raise unlike(name, value, "1 to 255 printable characters")
    return value
