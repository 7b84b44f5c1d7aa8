"""The configuration of a consumer instance, and the rules for names: pure.

Owns Kafka's names of the consumer settings with their defaults and limits, and the valid names of a new group or
instance; must not know HTTP or a running consumer. Numbers and booleans may be given as text. A setting that changes
which records a consumer gets, how, or which offsets are committed is never ignored. It is obeyed, or rejected if its
value requires something that this server does not do. Other unknown settings are ignored and reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from logserver.errors import InvalidConsumerConfig, InvalidGroup
from logserver.groups.reading import Reset
from storage import Isolation

T = TypeVar("T")

FORMAT: Final = "format"
OFFSET_RESET: Final = "auto.offset.reset"
AUTO_COMMIT: Final = "auto.commit.enable"
MIN_BYTES: Final = "fetch.min.bytes"
MAX_BYTES: Final = "fetch.max.bytes"
TIMEOUT_MS: Final = "consumer.request.timeout.ms"

MAX_RECORDS: Final = "max.poll.records"
ISOLATION: Final = "isolation.level"
COMMIT_INTERVAL_MS: Final = "auto.commit.interval.ms"
GROUP: Final = "group.id"
SETTINGS: Final = (
    FORMAT, OFFSET_RESET, AUTO_COMMIT, MIN_BYTES, MAX_BYTES, TIMEOUT_MS, MAX_RECORDS, ISOLATION, COMMIT_INTERVAL_MS,
)  # fmt: skip
"""All settings that are obeyed."""

PREFIX: Final = "consumer."  # of a consumer's settings in the REST Proxy's own configuration
OTHER_NAMES: Final[Mapping[str, str]] = {"enable.auto.commit": AUTO_COMMIT}
"""Names of Kafka's own consumer and of other REST servers for the same settings."""

FIXED: Final[Mapping[str, tuple[str, str]]] = {
    "allow.auto.create.topics": ("false", "a subscription creates no topic"),
    "check.crcs": ("true", "every batch is checked"),
    "exclude.internal.topics": ("true", "a pattern matches no internal topic"),
    "group.instance.id": ("", "there are no static members"),
    "group.remote.assignor": ("", "the server assigns by its own rule"),
    "interceptor.classes": ("", "there are none"),
    "key.deserializer": ("", "use format"),
    "partition.assignment.strategy": ("", "the server assigns by its own rule"),
    "value.deserializer": ("", "use format"),
}
"""Settings of Kafka's consumer that change which records are read and that are not offered. Each has the one value
that describes the behaviour of this server (empty: no value does), and that behaviour.
"""

FORMATS: Final = ("binary", "json")
MAX_MIN_BYTES: Final = 10_000_000
MAX_MAX_BYTES: Final = 64 << 20
MAX_NAME_BYTES: Final = 255
INT32_MAX: Final = (1 << 31) - 1
_ROCKETMQ_GROUP: Final = re.compile(r"[%|A-Za-z0-9_-]{1,255}")
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The configuration of an instance.

    `format` is for its front end. A poll without its own limits waits `timeout_ms` for `min_bytes`, and returns about
    `max_bytes` and at most `max_records` (None: as many as the server allows). `ignored`: the given settings that are
    unknown.
    """

    format: str = "binary"
    reset: Reset = Reset.LATEST
    auto_commit: bool = True
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    timeout_ms: int = 1000
    max_records: int | None = None
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    commit_interval_ms: int = 5000
    ignored: tuple[str, ...] = ()


def consumer_config(
    settings: Mapping[str, object], *, group: str = "", max_wait_ms: int
) -> ConsumerConfig:
    """Return the configuration of a new instance of a group. Raises InvalidConsumerConfig. None counts as not given."""
    values = _by_known_name(settings)
    _check_fixed(values, group)
    unknown = values.keys() - {GROUP, *SETTINGS, *FIXED}
    default = ConsumerConfig()
    reset = _choice(values, OFFSET_RESET, {kind.value: kind for kind in Reset}, default.reset)
    min_bytes = _integer(values, MIN_BYTES, default.min_bytes, low=-1, high=MAX_MIN_BYTES)
    return ConsumerConfig(
        format=_choice(values, FORMAT, {name: name for name in FORMATS}, default.format),
        reset=reset,
        auto_commit=_choice(values, AUTO_COMMIT, _BOOLEANS, default.auto_commit),
        min_bytes=max(min_bytes, 1),  # -1 means that there is no minimum
        max_bytes=_integer(values, MAX_BYTES, default.max_bytes, low=1, high=MAX_MAX_BYTES),
        timeout_ms=_integer(
            values, TIMEOUT_MS, min(default.timeout_ms, max_wait_ms), low=0, high=max_wait_ms
        ),
        max_records=_integer(values, MAX_RECORDS, 0, low=1, high=INT32_MAX) or None,
        isolation=_choice(
            values, ISOLATION, {kind.value: kind for kind in Isolation}, default.isolation
        ),
        commit_interval_ms=_integer(
            values, COMMIT_INTERVAL_MS, default.commit_interval_ms, low=0, high=INT32_MAX
        ),
        ignored=tuple(sorted(unknown)),
    )


def _by_known_name(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that have a value, under the names of this module."""
    values: dict[str, object] = {}
    for name, value in settings.items():
        if value is None:
            continue
        bare = name if name in SETTINGS else name.removeprefix(PREFIX)
        known = OTHER_NAMES.get(bare, bare)
        if known not in {*SETTINGS, *FIXED, GROUP}:
            known = name
        if known in values and values[known] != value:
            raise InvalidConsumerConfig(
                f"consumer setting {known} is given twice, with different values",
                name=known,
                value=str(value)[:80],
            )
        values[known] = value
    return values


def _check_fixed(values: Mapping[str, object], group: str) -> None:
    """Raise InvalidConsumerConfig for a value that requires behaviour that this server does not offer."""
    for name, value in values.items():
        offered, reason = FIXED.get(name, ("", ""))
        if name == GROUP:
            offered, reason = group, "the group is the one of the path"
        elif name not in FIXED:
            continue
        asked = str(value) if name == GROUP else str(value).lower()
        if not offered or asked != offered:
            wanted = f"only {offered!r} is offered" if offered else "it is not offered"
            raise InvalidConsumerConfig(
                f"consumer setting {name} is {str(value)[:80]!r}: {wanted} ({reason})",
                name=name,
                value=str(value)[:80],
            )


def check_group_name(group: str, *, rocketmq: bool) -> None:
    """Raise InvalidGroup for an invalid name of a new group."""
    if rocketmq and not _ROCKETMQ_GROUP.fullmatch(group):
        raise InvalidGroup(
            f"group name {group[:80]!r} is not 1 to 255 of A-Z a-z 0-9 % | _ -", field="group"
        )
    _check_text("group", group)


def check_instance_name(name: str) -> None:
    """Raise InvalidGroup for an invalid name of a consumer instance."""
    _check_text("name", name)


def _check_text(field: str, text: str) -> None:
    size_bytes = len(text.encode("utf-8", "surrogatepass"))
    if not 1 <= size_bytes <= MAX_NAME_BYTES or not text.isprintable():
        raise InvalidGroup(
            f"{field} {text[:80]!r} is not 1 to {MAX_NAME_BYTES} bytes of printable text",
            field=field,
        )
    if text in {".", ".."}:  # HTTP clients remove these segments from a path
        raise InvalidGroup(f"{field} is {text!r}: it cannot be part of a URL", field=field)


def _choice(values: Mapping[str, object], name: str, words: Mapping[str, T], default: T) -> T:
    value = values.get(name)
    if value is None:
        return default
    text = str(value).lower()
    if text not in words:
        raise _invalid(name, value, f"one of {', '.join(words)}")
    return words[text]


def _integer(values: Mapping[str, object], name: str, default: int, *, low: int, high: int) -> int:
    value = values.get(name)
    if value is None:
        return default
    text = "" if isinstance(value, bool) else str(value)
    if not re.fullmatch(r"-?[0-9]{1,18}", text) or not low <= int(text) <= high:
        raise _invalid(name, value, f"a whole number from {low} to {high}")
    return int(text)


def _invalid(name: str, value: object, wanted: str) -> InvalidConsumerConfig:
    shown = str(value)[:80]
    return InvalidConsumerConfig(
        f"consumer setting {name} is {shown!r}: it must be {wanted}", name=name, value=shown
    )
