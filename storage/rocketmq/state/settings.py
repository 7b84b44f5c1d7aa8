"""RocketMQ's own names for store and topic settings, checked once and converted to numbers.

Owns the tables of settings that this engine acts on; must not do IO. Names and defaults come from
MessageStoreConfig, BrokerConfig and TopicConfig in 5.5.0. The exception is the deletion of old files, which is off
unless it is set: nothing is deleted without a request. The four file sizes have no default here, because an existing
directory determines its own (storage.rocketmq.index.sizes).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from storage.coding.config_values import one_of, unknown, whole_number
from storage.errors import InvalidArgument, InvalidConfig, NotOffered
from storage.rocketmq.format.index_file import ENTRY_SIZE, SLOT_SIZE
from storage.rocketmq.format.message_id import encode_host
from storage.rocketmq.format.queue_entry import UNIT_SIZE

INT32_MAX: Final = 2**31 - 1
HOUR_MS: Final = 3_600_000
MAX_QUEUES: Final = 10_000


_NUMBERS: Final[dict[str, tuple[int, int]]] = {  # lowest, highest
    "mappedFileSizeCommitLog": (256, INT32_MAX),
    "mappedFileSizeConsumeQueue": (1, INT32_MAX // UNIT_SIZE * UNIT_SIZE),
    "maxHashSlotNum": (1, INT32_MAX // SLOT_SIZE),
    "maxIndexNum": (2, INT32_MAX // ENTRY_SIZE),
    "maxMessageSize": (1, INT32_MAX - (64 << 10)),
    "defaultTopicQueueNums": (1, MAX_QUEUES),
    "fileReservedTime": (1, 1_000_000),
    "transactionTimeOut": (0, INT32_MAX),
    "transactionCheckMax": (1, 1_000_000),
    "transactionCheckInterval": (1, INT32_MAX),
    "diskMaxUsedSpaceRatio": (10, 95),
    "diskSpaceCleanForciblyRatio": (10, 99),
    "diskSpaceWarningLevelRatio": (10, 99),
}
_DELAY: Final = re.compile(r"(\d{1,10})([smhd])", re.ASCII)
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": HOUR_MS, "d": 24 * HOUR_MS}
_SWITCHES: Final = {"indexTags": "true", "messageIndexEnable": "true"}
_BY_FILES: Final = ("enabledAppendPropCRC", "enableLmq")  # switches; unset: the files decide
_BOOLEANS: Final = ("false", "true")
_DEFAULT_STORE_HOST: Final = "127.0.0.1:10911"
_DEFAULT_MAX_MESSAGE_BYTES: Final = 4 << 20
_DEFAULT_TOPIC_QUEUES: Final = 8
_TRANSACTION_DEFAULTS: Final = {
    "transactionTimeOut": 6000,
    "transactionCheckMax": 15,
    "transactionCheckInterval": 30_000,
}
LOG_FOLDERS: Final = ("storePathCommitLog", "readOnlyCommitLogStorePaths")
MULTI_PATH_SPLITTER: Final = ","
STORE_SETTINGS: Final = (
    *_NUMBERS,
    *_SWITCHES,
    *_BY_FILES,
    "storeHost",
    "deleteWhen",
    "messageDelayLevel",
    *LOG_FOLDERS,
)

_TOPIC_NUMBERS: Final[dict[str, tuple[int, int]]] = {
    "perm": (0, 7),
    "topicSysFlag": (0, INT32_MAX),
    "readQueueNums": (1, MAX_QUEUES),
    "writeQueueNums": (1, MAX_QUEUES),
}
_TOPIC_CHOICES: Final = {
    "order": _BOOLEANS,
    "topicFilterType": ("SINGLE_TAG", "MULTI_TAG"),
}
TOPIC_CONFIGS: Final = (*_TOPIC_NUMBERS, *_TOPIC_CHOICES, "attributes")
INERT_CONFIGS: Final[Mapping[str, str]] = {
    "perm": "6",
    "topicSysFlag": "0",
    "order": "false",
    "topicFilterType": "SINGLE_TAG",
}
"""Topic configs that only the real broker uses, with its defaults."""
_NUMBER_TEXT: Final = r"-1|\d{1,18}"
QUEUE_TYPE: Final = "queue.type"
BATCH_QUEUES: Final = "BatchCQ"
CLEANUP_POLICY: Final = "cleanup.policy"
COMPACTED: Final = "COMPACTION"
# TopicAttributes, with a pattern of the legal values
_ATTRIBUTES: Final = {
    QUEUE_TYPE: f"SimpleCQ|{BATCH_QUEUES}",
    CLEANUP_POLICY: f"DELETE|{COMPACTED}",
    "message.type": "UNSPECIFIED|NORMAL|FIFO|DELAY|TRANSACTION|MIXED|LITE|PRIORITY",
    "reserve.time": _NUMBER_TEXT,
    "lite.topic.expiration": _NUMBER_TEXT,
}
_NOT_OFFERED: Final = {QUEUE_TYPE: BATCH_QUEUES, CLEANUP_POLICY: COMPACTED}


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """The four sizes that no file of a store records, and that all its files share."""

    commit_log_bytes: int
    consume_queue_bytes: int
    index_slots: int
    index_entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Settings of an open store; see docs/settings.md. None: not given.

    `delete_hours`: hours of the local day, empty for any hour.
    """

    commit_log_bytes: int | None
    consume_queue_bytes: int | None
    index_slots: int | None
    index_entries: int | None
    max_message_bytes: int
    default_topic_queues: int
    store_host: bytes
    index_tags: bool
    index_enabled: bool
    append_crc: bool | None
    enable_lmq: bool | None
    file_reserved_ms: int | None
    disk_max_used_percent: int | None
    disk_clean_forcibly_percent: int | None
    disk_warning_percent: int | None
    delete_hours: frozenset[int]
    delays_ms: tuple[int, ...] | None
    transaction_timeout_ms: int
    check_max: int
    check_interval_ms: int
    log_folders: tuple[str, ...]  # empty: commitlog in the store


def parse_store_settings(settings: Mapping[str, str]) -> StoreSettings:
    """Check and convert `--set` values. Raises InvalidConfig."""
    for name, value in settings.items():
        if name not in STORE_SETTINGS:
            raise unknown(name, value, STORE_SETTINGS)
    numbers = {
        name: whole_number(name, settings[name], low=low, high=high) if name in settings else None
        for name, (low, high) in _NUMBERS.items()
    }
    switches = {
        name: one_of(name, settings.get(name, default), _BOOLEANS) == "true"
        for name, default in _SWITCHES.items()
    }
    of_files = {
        name: one_of(name, settings[name], _BOOLEANS) == "true" if name in settings else None
        for name in _BY_FILES
    }
    reserved_hours = numbers["fileReservedTime"]

    def _of_transactions(name: str) -> int:
        number = numbers[name]
        return _TRANSACTION_DEFAULTS[name] if number is None else number

    return StoreSettings(
        commit_log_bytes=numbers["mappedFileSizeCommitLog"],
        consume_queue_bytes=_whole_units(numbers["mappedFileSizeConsumeQueue"]),
        index_slots=numbers["maxHashSlotNum"],
        index_entries=numbers["maxIndexNum"],
        max_message_bytes=numbers["maxMessageSize"] or _DEFAULT_MAX_MESSAGE_BYTES,
        default_topic_queues=numbers["defaultTopicQueueNums"] or _DEFAULT_TOPIC_QUEUES,
        store_host=_host("storeHost", settings.get("storeHost", _DEFAULT_STORE_HOST)),
        index_tags=switches["indexTags"],
        index_enabled=switches["messageIndexEnable"],
        append_crc=of_files["enabledAppendPropCRC"],
        enable_lmq=of_files["enableLmq"],
        file_reserved_ms=None if reserved_hours is None else reserved_hours * HOUR_MS,
        disk_max_used_percent=numbers["diskMaxUsedSpaceRatio"],
        disk_clean_forcibly_percent=numbers["diskSpaceCleanForciblyRatio"],
        disk_warning_percent=numbers["diskSpaceWarningLevelRatio"],
        delete_hours=_delete_hours(settings),
        delays_ms=_delays_ms(settings.get("messageDelayLevel")),
        transaction_timeout_ms=_of_transactions("transactionTimeOut"),
        check_max=_of_transactions("transactionCheckMax"),
        check_interval_ms=_of_transactions("transactionCheckInterval"),
        log_folders=_log_folders(settings),
    )


RETENTION_SETTINGS: Final = (
    "fileReservedTime",
    "deleteWhen",
    "diskMaxUsedSpaceRatio",
    "diskSpaceCleanForciblyRatio",
    "diskSpaceWarningLevelRatio",
)
"""The settings that can be changed while the store is open."""


def changed_retention(
    settings: Mapping[str, str], changes: Mapping[str, str | None]
) -> dict[str, str]:
    """Return the given settings with other settings of retention (None: not set). Raises InvalidConfig."""
    for name, value in changes.items():
        if name not in RETENTION_SETTINGS:
            raise unknown(name, value, RETENTION_SETTINGS)
    merged = {**settings, **changes}
    changed = {name: value for name, value in merged.items() if value is not None}
    parse_store_settings(changed)
    return changed


def _log_folders(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders of the commit log, those for new files first (MessageStoreConfig.MULTI_PATH_SPLITTER)."""
    found: list[str] = []
    for name in LOG_FOLDERS:
        if name not in settings:
            continue
        folders = [part.strip() for part in settings[name].split(MULTI_PATH_SPLITTER)]
        if not all(folders):
            raise InvalidConfig(
                f"setting {name} must be folders with '{MULTI_PATH_SPLITTER}' between them, not {settings[name]!r}",
                name=name,
                value=settings[name],
            )
        found += [folder for folder in folders if folder not in found]
    if found and "storePathCommitLog" not in settings:
        raise InvalidConfig(
            "setting readOnlyCommitLogStorePaths names folders in addition to storePathCommitLog: set that too",
            name="storePathCommitLog",
            value=None,
        )
    return tuple(found)


def _whole_units(size_bytes: int | None) -> int | None:
    """Round up as MessageStoreConfig.getMappedFileSizeConsumeQueue does."""
    return None if size_bytes is None else -(-size_bytes // UNIT_SIZE) * UNIT_SIZE


def _delete_hours(settings: Mapping[str, str]) -> frozenset[int]:
    """Parse an hour such as `04`, or several with `;` between them. Raises InvalidConfig."""
    value = settings.get("deleteWhen")
    if value is None:
        return frozenset()
    if "fileReservedTime" not in settings:
        raise InvalidConfig(
            "setting deleteWhen says when files older than fileReservedTime are deleted: set that too",
            name="deleteWhen",
            value=value,
        )
    hours = value.split(";")
    if not all(re.fullmatch("[01]?[0-9]|2[0-3]", hour, re.ASCII) for hour in hours):
        raise InvalidConfig(
            f"setting deleteWhen must be hours from 00 to 23 with ';' between them, not {value!r}",
            name="deleteWhen",
            value=value,
        )
    return frozenset(int(hour) for hour in hours)


def _delays_ms(value: str | None) -> tuple[int, ...] | None:
    """Parse `1s 5m 2h 1d`, the delay of each level, as ScheduleMessageService.parseDelayLevel. Raises InvalidConfig."""
    if value is None:
        return None
    delays = [_DELAY.fullmatch(part) for part in value.split(" ")]
    known = [int(delay[1]) * _UNITS_MS[delay[2]] for delay in delays if delay is not None]
    if len(known) < len(delays):
        raise InvalidConfig(
            "setting messageDelayLevel must be numbers each followed by s, m, h or d, with a space between them, "
            f"such as '1s 5m 2h', not {value!r}",
            name="messageDelayLevel",
            value=value,
        )
    return tuple(known)


def _host(name: str, value: str) -> bytes:
    """Convert `IP:PORT` (IPv6 in brackets) to the bytes that records contain. Raises InvalidConfig."""
    parts = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\[\]]+)):(\d{1,5})", value, re.ASCII)
    try:
        if parts is not None and int(parts[3]) <= 65535:
            return encode_host(parts[1] or parts[2], int(parts[3]))
    except InvalidArgument as error:
        raise _bad_host(name, value) from error
    raise _bad_host(name, value)


def _bad_host(name: str, value: str) -> InvalidConfig:
    return InvalidConfig(
        f"setting {name} must be an IP address and a port such as {_DEFAULT_STORE_HOST}, "
        f"not {value!r}",
        name=name,
        value=value,
    )


def check_topic_config(name: str, value: str) -> None:
    """Raise InvalidConfig (with name, value and limits) or NotOffered unless this is a legal topic config."""
    if name in _TOPIC_NUMBERS:
        low, high = _TOPIC_NUMBERS[name]
        whole_number(name, value, low=low, high=high)
    elif name in _TOPIC_CHOICES:
        one_of(name, value, _TOPIC_CHOICES[name])
    elif name == "attributes":
        parse_attributes(value)
    else:
        raise unknown(name, value, TOPIC_CONFIGS)


def check_topic_reset(name: str) -> None:
    """Raise InvalidConfig unless RocketMQ has a topic config of this name, which can be set to its default."""
    if name not in TOPIC_CONFIGS:
        raise unknown(name, None, TOPIC_CONFIGS)


def check_queue_count(count: int) -> None:
    """Raise InvalidArgument if no topic can be created with this number of queues."""
    if not 1 <= count <= MAX_QUEUES:
        raise InvalidArgument(
            f"partitions must be 1 to {MAX_QUEUES}, not {count}", field="partitions"
        )


def parse_attributes(value: str) -> dict[str, str]:
    """Parse a topic's attributes, given as `name=value,name=value`. Raises InvalidConfig, NotOffered."""
    attributes = {}
    for item in value.split(",") if value else ():
        name, _, text = item.partition("=")
        legal = _ATTRIBUTES.get(name)
        if legal is None or not re.fullmatch(legal, text, re.ASCII):
            raise _bad_attribute(value, item)
        if _NOT_OFFERED.get(name) == text:
            raise NotOffered(f"topic attribute {item} is not offered", feature=item)
        attributes[name] = text
    return attributes


def attributes_text(attributes: Mapping[str, object]) -> str:
    """Return attributes as text: the inverse of `parse_attributes`, also for values that it refuses."""
    return ",".join(f"{name}={value}" for name, value in attributes.items())


def _bad_attribute(value: str, item: str) -> InvalidConfig:
    return InvalidConfig(
        f"config attributes must be NAME=VALUE with commas between them, of "
        f"{', '.join(_ATTRIBUTES)}: {item!r} is none",
        name="attributes",
        value=value,
    )
