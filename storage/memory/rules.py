"""The model's rules for names, configs and records, each in its simplest form.

Owns the checks before any record is stored; must not know a store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from storage import errors
from storage.coding.varint import INT64_MAX, INT64_MIN
from storage.model import Record, StoredRecord

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_CODECS = frozenset({"none", "gzip", "snappy", "lz4", "zstd"})
_CONFIGS = {
    r"(index\.interval|max\.message|retention|segment|segment\.index)\.bytes": r"-?\d{1,18}",
    r"(retention|segment)\.ms": r"-?\d{1,18}",
    r"message\.timestamp\.(before|after)\.max\.ms": r"\d{1,18}",
    r"cleanup\.policy": "delete",
    r"compression\.type": "producer|uncompressed|gzip|snappy|lz4|zstd",
    r"message\.timestamp\.type": "CreateTime|LogAppendTime",
}


def check_new_name(topic: str, others: Iterable[str]) -> None:
    """Raise InvalidTopic by Kafka's rules: few characters, and no two names that differ only in `.` and `_`."""
    alike = topic.replace(".", "_")
    collides = any(name.replace(".", "_") == alike for name in others)
    if not _TOPIC_NAME.fullmatch(topic) or topic in {".", ".."} or collides:
        raise errors.InvalidTopic(
            f"topic name {topic[:80]!r} is not 1 to 249 of A-Z a-z 0-9 . _ -", topic=topic
        )


def check_records(
    records: Sequence[Record], *, compression: str | None, limit_bytes: int, as_one: bool
) -> None:
    """Reject records before any of them is stored. `as_one`: the append must fit as a whole.

    Raises InvalidArgument, UnrepresentableRecord, RecordTooLarge.
    """
    if compression is not None and compression not in _CODECS:
        raise errors.InvalidArgument(f"no codec is named {compression!r}", field="compression")
    total_bytes = 0
    for index, record in enumerate(records):
        _check_representable(record, index)
        total_bytes = record_bytes(record) + (total_bytes if as_one else 0)
        if total_bytes > limit_bytes:
            raise errors.RecordTooLarge(
                f"record {index} makes {total_bytes} bytes, the limit is {limit_bytes}",
                size_bytes=total_bytes,
                limit_bytes=limit_bytes,
                index=index,
            )


def _check_representable(record: Record, index: int) -> None:
    field = problem = ""
    if record.timestamp_ms is not None and not INT64_MIN <= record.timestamp_ms <= INT64_MAX:
        field, problem = "timestamp", "timestamp does not fit in 64 bits"
    elif record.properties:
        field, problem = "properties", "this backend keeps no properties: use headers"
    if field:
        raise errors.UnrepresentableRecord(f"record {index}: {problem}", field=field, index=index)


def check_times(records: Sequence[Record], configs: Mapping[str, str], *, now_ms: int) -> None:
    """Reject timestamps that are too far from the clock, if the topic limits them. Raises UnrepresentableRecord."""
    if configs.get("message.timestamp.type") == "LogAppendTime":
        return
    for side, sign in (("before", 1), ("after", -1)):
        name = f"message.timestamp.{side}.max.ms"
        for index, record in enumerate(records if name in configs else ()):
            time_ms = record.timestamp_ms
            if time_ms not in {None, -1} and sign * (now_ms - (time_ms or 0)) > int(configs[name]):
                raise errors.UnrepresentableRecord(
                    f"record {index}: timestamp {time_ms}: the limit is {name}={configs[name]}",
                    field="timestamp",
                    index=index,
                )


def record_bytes(record: Record | StoredRecord) -> int:
    """Return the size of key, value and headers."""
    headers = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def checked_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Return the given values after a check of each name and value. For None (a reset) only the name is checked. Raises
    InvalidConfig.
    """
    for name, value in configs.items():
        values = next((_CONFIGS[known] for known in _CONFIGS if re.fullmatch(known, name)), None)
        if values is None or not (value is None or re.fullmatch(values, value)):
            raise errors.InvalidConfig(
                f"topic config {name!r} cannot be {value!r}", name=name, value=value
            )
    return {name: value for name, value in configs.items() if value is not None}
