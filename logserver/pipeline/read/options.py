"""The options of a read, named as in Spark's Kafka source: parsed and checked; errors name the option.

Owns names, defaults and precedence. Must not open a store or know Spark. Names are compared without case, as in Spark,
which passes them in lower case.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from logserver.pipeline.processes import TASKS
from storage import Isolation, TopicPartition, setting_names
from storage.columns import SPLIT_BYTES
from storage.errors import InvalidArgument

EARLIEST: Final = -2
LATEST: Final = -1
STREAM_SPLIT_BYTES: Final = 8 << 20  # split size of a micro-batch
SETTING_PREFIX: Final = "set."
MAX_OFFSET: Final = (1 << 63) - 1

CHOICES: Final = ("subscribe", "subscribePattern", "assign")
STARTS: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
RATES: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
NAMES: Final = (
    "path",
    *CHOICES,
    *STARTS,
    "startingOffsetsByTimestampStrategy",
    *ENDS,
    *RATES,
    "minPartitions",
    "maxRecordsPerPartition",
    "maxPartitionBytes",
    "failOnDataLoss",
    "includeHeaders",
    "isolationLevel",
    "checkCrcs",
    "pushFilters",
    "mode",
)

_CLIENT: Final = ("kafka.", "kafkaconsumer.", "fetchoffset.", "groupidprefix")
_COUNT: Final = re.compile("[1-9][0-9]{0,8}")
_TRUTHS: Final = {"true": True, "false": False}
_MODES: Final = {"failfast": False, "permissive": True}
_ISOLATIONS: Final = {level.value: level for level in Isolation}
_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SECOND_MS: Final = 1000
_TIMES_MS: Final = {
    "": 1,
    "ms": 1,
    "s": _SECOND_MS,
    "m": 60 * _SECOND_MS,
    "min": 60 * _SECOND_MS,
    "h": 3600 * _SECOND_MS,
    "d": 86_400 * _SECOND_MS,
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Where reading begins or ends, and the `option` that defines it: an offset or (`by_time`) a time in milliseconds,
    for all partitions (`every`) or for each partition (`each`). EARLIEST and LATEST stand for themselves.
    """

    option: str
    by_time: bool = False
    every: int | None = None
    each: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of a read. At most one of `topics`, `pattern` and `assigned` is set; if none is, all topics that are
    not internal are read.
    """

    path: str
    topics: Sequence[str] | None
    pattern: re.Pattern[str] | None
    assigned: Sequence[TopicPartition] | None
    start: Limit
    end: Limit
    no_match_is_latest: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int
    max_records_per_partition: int | None
    max_partition_bytes: int
    shared_by: int | None  # tasks that run at once; of a stream without maxPartitionBytes
    fail_on_data_loss: bool
    include_headers: bool
    isolation: Isolation
    check_crcs: bool
    push_filters: bool
    permissive: bool
    settings: Mapping[str, str]


def parse_read_options(options: Mapping[str, str], *, streaming: bool | None = None) -> ReadOptions:
    """Check the options of one read; `streaming` is None while it is not known whether it is a batch or a stream.

    Raises InvalidArgument, which names the option.
    """
    given = Given(options)
    given.refuse_unknown()
    if streaming:
        given.refuse(ENDS, "has no meaning in a stream, which has no end")
    low, high = given.whole("minOffsetsPerTrigger"), given.whole("maxOffsetsPerTrigger")
    if low is not None and high is not None and low > high:
        raise wrong("minOffsetsPerTrigger", f"{low} is more than maxOffsetsPerTrigger, {high}")
    given.refuse_many(CHOICES)
    size_bytes = given.parsed("maxPartitionBytes", _size_bytes)
    tasks = _tasks() if streaming and size_bytes is None else None
    default_bytes = STREAM_SPLIT_BYTES if streaming and tasks is None else SPLIT_BYTES
    return ReadOptions(
        path=given.path(),
        topics=given.parsed("subscribe", _topics),
        pattern=given.parsed("subscribePattern", _pattern),
        assigned=given.parsed("assign", _assigned),
        start=_start(given, streaming=streaming),
        end=_end(given),
        no_match_is_latest=given.chosen(
            "startingOffsetsByTimestampStrategy", {"error": False, "latest": True}, "error"
        ),
        max_offsets_per_trigger=high,
        min_offsets_per_trigger=low,
        max_trigger_delay_ms=given.parsed("maxTriggerDelay", _duration_ms) or 15 * 60_000,
        min_partitions=given.whole("minPartitions") or 1,
        max_records_per_partition=given.whole("maxRecordsPerPartition"),
        max_partition_bytes=size_bytes or default_bytes,
        shared_by=tasks,
        fail_on_data_loss=given.chosen("failOnDataLoss", _TRUTHS, "true"),
        include_headers=given.chosen("includeHeaders", _TRUTHS, "false"),
        isolation=given.chosen("isolationLevel", _ISOLATIONS, "read_uncommitted"),
        check_crcs=given.chosen("checkCrcs", _TRUTHS, "true"),
        push_filters=given.chosen("pushFilters", _TRUTHS, "false"),
        permissive=given.chosen("mode", _MODES, "failfast"),
        settings=given.settings(),
    )


def _tasks() -> int | None:
    """Return the number of tasks that run at once, or None if it is not known."""
    text = os.environ.get(TASKS, "")
    return int(text) if _COUNT.fullmatch(text) else None


def wrong(option: str, problem: str) -> InvalidArgument:
    """Return the error for an option's value."""
    return InvalidArgument(f"option {option}: {problem}", field=option)


def store_settings(given: Mapping[str, str], backend: str | None) -> Mapping[str, str]:
    """Convert the options `set.NAME`, with names in lower case, to settings of a store of this backend.

    Raises InvalidArgument for a setting that the backend does not have.
    """
    names = () if backend is None else setting_names(backend)
    known = {name.lower(): name for name in names}
    for name in given:
        if name not in known:
            raise wrong(
                f"{SETTING_PREFIX}{name}", f"is no setting of the store: {', '.join(names)}"
            )
    return {known[name]: value for name, value in given.items()}


class Given:
    """The given options, by name in lower case; `names` are the known options."""

    def __init__(self, options: Mapping[str, str], names: Sequence[str] = NAMES) -> None:
        self._names = names
        self._values = {name.lower(): str(value).strip() for name, value in options.items()}

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def refuse_unknown(self) -> None:
        known = {name.lower(): name for name in self._names}
        for name in sorted(self._values.keys() - known.keys()):
            if name.startswith(SETTING_PREFIX):
                continue
            if name.startswith(_CLIENT):
                raise wrong(name, "is for a Kafka client; files are read here: leave it out")
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = (
                f": did you mean {known[near[0]]}?"
                if near
                else f"; known: {', '.join(self._names)}"
            )
            raise wrong(name, f"is unknown{hint}")

    def refuse(self, names: Sequence[str], why: str) -> None:
        for name in names:
            if self.text(name) is not None:
                raise wrong(name, why)

    def refuse_many(self, names: Sequence[str]) -> None:
        found = [name for name in names if self.text(name) is not None]
        if len(found) > 1:
            raise wrong(
                found[0], f"only one of {', '.join(names)} may be given, not {found[1]} too"
            )

    def path(self) -> str:
        """Return the absolute path, so that all tasks use the same folder and errors name it."""
        path = self.text("path")
        if not path:
            raise wrong("path", "is missing: load(PATH) names the directory of one store")
        scheme, slashes, rest = path.partition(":/")
        if slashes and scheme == "file":
            return "/" + rest.lstrip("/")
        if slashes:
            raise wrong("path", f"{path!r} is no path of a file system that every worker sees")
        return str(Path(path).absolute())

    def whole(self, name: str) -> int | None:
        """Return a whole number above 0, or None if the option is not given."""
        return self.parsed(name, _positive)

    def parsed(self, name: str, parse: Callable[[str, str], T]) -> T | None:
        text = self.text(name)
        return None if text is None else parse(name, text)

    def chosen(self, name: str, values: Mapping[str, T], default: str) -> T:
        text = self.text(name)
        found = values.get((default if text is None else text).lower())
        if found is None:
            raise wrong(name, f"{text!r} is none of {', '.join(values)}")
        return found

    def settings(self) -> Mapping[str, str]:
        return {
            name.removeprefix(SETTING_PREFIX): value
            for name, value in self._values.items()
            if name.startswith(SETTING_PREFIX)
        }


def _start(given: Given, *, streaming: bool | None) -> Limit:
    limit = _limit(given, STARTS, LATEST if streaming else EARLIEST)
    if streaming is False:
        _refuse_value(limit, LATEST, "latest, -1, leaves a batch nothing to read")
    return limit


def _end(given: Given) -> Limit:
    limit = _limit(given, ENDS, LATEST)
    _refuse_value(limit, EARLIEST, "earliest, -2, leaves a batch nothing to read")
    return limit


def _refuse_value(limit: Limit, value: int, why: str) -> None:
    if not limit.by_time and (limit.every == value or value in (limit.each or {}).values()):
        raise wrong(limit.option, why)


def _limit(given: Given, names: Sequence[str], default: int) -> Limit:
    """Return the limit of the first given option of: one time for all partitions, times by partition, offsets."""
    one_time, times, offsets = names
    text = given.text(one_time)
    if text is not None:
        return Limit(option=one_time, by_time=True, every=_number(one_time, text))
    text = given.text(times)
    if text is not None:
        return Limit(option=times, by_time=True, each=_by_partition(times, text, least=0))
    text = given.text(offsets)
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text is None or text.lower() in words:
        every = default if text is None else words[text.lower()]
        return Limit(option=offsets, every=every)
    return Limit(option=offsets, each=_by_partition(offsets, text, least=EARLIEST))


def _by_partition(name: str, text: str, *, least: int) -> Mapping[TopicPartition, int]:
    """Parse {"topic": {"0": 12}}."""
    found = {}
    for topic, partitions in _object(name, text).items():
        if not isinstance(partitions, dict):
            raise wrong(name, f'topic {topic!r} is not like {{"0": 12}}')
        for partition, value in partitions.items():
            if not _is_whole(value) or not least <= value <= MAX_OFFSET:
                raise wrong(
                    name, f"{value!r} for {topic}-{partition} is no whole number >= {least}"
                )
            found[TopicPartition(topic, _partition(name, partition))] = value
    return found


def _assigned(name: str, text: str) -> Sequence[TopicPartition]:
    """Parse {"topic": [0, 1]}."""
    found = []
    for topic, partitions in _object(name, text).items():
        if not isinstance(partitions, list) or not all(map(_is_whole, partitions)):
            raise wrong(name, f"topic {topic!r} is not like [0, 1]")
        found += [TopicPartition(topic, _partition(name, str(number))) for number in partitions]
    if not found:
        raise wrong(name, "names no partition")
    return sorted(set(found))


def _object(name: str, text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise wrong(name, f"{text!r} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise wrong(name, f"{text!r} is no JSON object of topics")
    return found


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _partition(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) >= 1 << 31:
        raise wrong(name, f"{text!r} is no partition's number")
    return int(text)


def _topics(name: str, text: str) -> Sequence[str]:
    topics = sorted({topic.strip() for topic in text.split(",")} - {""})
    if not topics:
        raise wrong(name, "names no topic")
    return topics


def _pattern(name: str, text: str) -> re.Pattern[str]:
    if not text:
        raise wrong(name, "is empty")
    try:
        return re.compile(text)
    except re.error as error:
        raise wrong(name, f"{text!r} is no regular expression: {error}") from None


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise wrong(name, f"{text!r} is no whole number")
    return int(text)


def _positive(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) == 0:
        raise wrong(name, f"{text!r} is no whole number above 0")
    return int(text)


def _size_bytes(name: str, text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,12})\s*([kmg]?)b?", text.lower())
    if found is None or int(found[1]) == 0:
        raise wrong(name, f"{text!r} is no size above 0, such as 67108864 or 64m")
    return int(found[1]) * _SIZES[found[2]]


def _duration_ms(name: str, text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,9})\s*([a-z]*)", text.lower())
    if found is None or found[2] not in _TIMES_MS or int(found[1]) == 0:
        raise wrong(name, f"{text!r} is no time above 0, such as 500ms, 30s or 15m")
    return int(found[1]) * _TIMES_MS[found[2]]
