"""The document that a benchmark writes: its environment, the figures of each target in each repeat, and the errors.

Owns the names in its JSON, which are stable within a `FORMAT_VERSION` and carry their units, and the summary of
repeats. Must not measure or draw. A value that was not measured is null, never 0.

Units: `_s` seconds, `_us` microseconds, `_bytes` bytes, `_mb_per_s` a million bytes of record values a second, `_per_s`
a second. The numbers of a repeat have dotted names, such as `publish_latency.p99_us`: see `METRICS`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from logserver.validation import in_words

T = TypeVar("T")

FORMAT_VERSION: Final = 1

MOST: Final = 10**15  # upper limit of any measured value: no benchmark writes a larger one

Amount: TypeAlias = Annotated[float, Meta(ge=0, le=MOST)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MOST)]
Kind: TypeAlias = Literal["logserver", "kafka", "rocketmq", "http"]
Better: TypeAlias = Literal["higher", "lower", "neither"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The minimum, median and maximum of several values."""

    minimum: float
    median: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least one value."""
        return cls(minimum=min(values), median=statistics.median(values), maximum=max(values))

    def by(self, divisor: float) -> Spread:
        """Return a spread with each value divided by `divisor`."""
        return Spread(
            minimum=self.minimum / divisor,
            median=self.median / divisor,
            maximum=self.maximum / divisor,
        )


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Latency percentiles of `count` values in microseconds, to three significant figures. The tools of other servers
    may report fewer percentiles.
    """

    count: Count
    p50_us: Amount | None = None
    p90_us: Amount | None = None
    p99_us: Amount | None = None
    p99_9_us: Amount | None = None
    max_us: Amount | None = None
    mean_us: Amount | None = None  # set where a server's own tool reports nothing better


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """The values measured in one repeat of a workload on a target.

    - `publish_latency` counts from when a request was due (corrected for coordinated omission). With an unlimited rate
      it counts from when the request was sent.
    - `publish_service` counts from when a request was sent.
    - `end_to_end_latency` of a record counts from when its request was due to when a consumer received it.
    - A refused request has no latency.
    - Processor time, memory and disk are the server's: `server_cpu_s` is measured within `seconds`, the others after
      it.
    - A start time counts from the start of the process to its first response.
    """

    seconds: Amount | None = None  # length of the measured part, without warm-up

    offered_records_per_s: Amount | None = None  # null: as fast as possible
    rate_held: bool | None = None  # null without an offered rate
    unsent_requests: Count | None = None  # were due, but were never sent
    refused_requests: Count | None = None  # responses without a success status

    published_records: Count | None = None  # acknowledged records
    published_records_per_s: Amount | None = None
    published_mb_per_s: Amount | None = None
    stored_records: Count | None = None  # records that the server holds afterwards
    publish_latency: Latency | None = None
    publish_service: Latency | None = None

    consumed_records: Count | None = None  # sum over all subscriptions that follow the log end
    consumed_records_per_s: Amount | None = None
    consumed_mb_per_s: Amount | None = None
    end_to_end_latency: Latency | None = None

    catch_up_records: Count | None = None  # of readers that start at the backlog's start
    catch_up_records_per_s: Amount | None = None
    catch_up_mb_per_s: Amount | None = None

    key_lookup_latency: Latency | None = None
    time_lookup_latency: Latency | None = None
    append_latency: Latency | None = None  # one request at a time, on a store of a given size
    fetch_latency: Latency | None = None

    server_cpu_s: Amount | None = None
    server_cpu_s_per_million_records: Amount | None = None  # of read ones too; null below 0.05 s
    server_rss_bytes: Count | None = None
    empty_rss_bytes: Count | None = None  # before the load, on a new store
    disk_bytes: Count | None = None  # allocated blocks, not the length of sparse files
    disk_bytes_per_record: Amount | None = None
    start_s: Amount | None = None  # on a new store
    restart_s: Amount | None = None  # on the store that the load left, after a clean stop
    recovery_s: Amount | None = None  # on the same store after kill -9
    recovery_load_s: Amount | None = (
        None  # part of `recovery_s`: loading the store, by the server's own log
    )

    generator_busy_share: Amount | None = (
        None  # share of a core used by the load generator; 1 is its limit, unless the rate was held
    )
    errors: list[str] = []  # counts that do not agree, and failures


class Scale(msgspec.Struct, frozen=True):
    """The value of a run on the axis of its series, such as 64 of `topics`."""

    name: str  # topics, partitions, producers or store_bytes
    value: Amount


class WorkloadFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The workload of a run: its name, and the value of every field under its TOML name."""

    name: str
    fields: dict[str, Any]
    scale: Scale | None = None


class TargetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a run. `name` is unique within a document; `driver` is the program that generated the load."""

    name: str
    kind: Kind
    version: str | None = None
    driver: str = "logserver bench"


ONE_RECORD: Final = "one record a request"
"""The reason given by a driver that cannot send batches."""


class NotDone(msgspec.Struct, frozen=True):
    """A workload field that this target or its driver does not support, and what it does instead."""

    field: str
    reason: str


class Run(msgspec.Struct, kw_only=True):
    """One workload on one target. A run without repeats was left out: `notes` or `errors` say why."""

    workload: WorkloadFacts
    target: TargetFacts
    repeats: list[Repeat] = []
    not_done: list[NotDone] = []
    errors: list[str] = []
    notes: list[str] = []


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of a benchmark. Versions of software that took no part are null."""

    cpu: str
    cores: int
    memory_bytes: int | None
    system: str
    python: str
    compiled: bool  # our package; false: plain Python
    packages: dict[str, str]
    java: str | None = None
    kafka: str | None = None
    rocketmq: str | None = None
    server_cores: list[int] | None = None  # cores they are pinned to; null: any
    generator_cores: list[int] | None = None
    file_system: str | None = None  # type of the file system that held the stores


OPTIONAL_FACTS: Final = ("file_system", "java", "kafka", "rocketmq")  # fields that may be null


class Generator(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the load generator, measured against a socket that does not parse requests: they limit every
    figure.

    With an open loop at `offered_requests_per_s` the generator completed `made_requests_per_s`, with this latency of
    its own.
    """

    ceiling_requests_per_s: Spread
    offered_requests_per_s: Amount
    made_requests_per_s: Spread
    rate_error_share: Amount  # largest difference of made from offered, as a share of offered
    latency: Latency


class Result(msgspec.Struct, kw_only=True):
    """The whole document. Not `complete`: the run was interrupted or failed; it holds the figures measured until
    then.
    """

    format_version: int = FORMAT_VERSION
    complete: bool = False
    incomplete_reason: str | None = None
    began: str = ""  # UTC, ISO 8601
    command: list[str] = []
    quick: bool = False  # checks counts; figures mean little
    environment: Environment
    generator: Generator | None = None
    runs: list[Run] = []


class Metric(NamedTuple):
    """The unit, the better direction and the description of a number of a repeat."""

    unit: str
    better: Better
    about: str


METRICS: Final[Mapping[str, Metric]] = {
    "published_records_per_s": Metric("records/s", "higher", "published"),
    "published_mb_per_s": Metric("MB/s", "higher", "published"),
    "consumed_records_per_s": Metric("records/s", "higher", "consumed"),
    "consumed_mb_per_s": Metric("MB/s", "higher", "consumed"),
    "catch_up_records_per_s": Metric("records/s", "higher", "backlog read"),
    "catch_up_mb_per_s": Metric("MB/s", "higher", "backlog read"),
    "offered_records_per_s": Metric("records/s", "neither", "offered"),
    "server_cpu_s_per_million_records": Metric("s", "lower", "server CPU per million records"),
    "server_rss_bytes": Metric("bytes", "lower", "server memory"),
    "disk_bytes_per_record": Metric("bytes", "lower", "disk per record"),
    "start_s": Metric("s", "lower", "start on a new store"),
    "restart_s": Metric("s", "lower", "start on the store that the load left"),
    "recovery_s": Metric("s", "lower", "start after kill -9"),
    "generator_busy_share": Metric("of a core", "neither", "generator busy"),
    **{
        f"{name}.{at}_us": Metric("us", "lower", f"{about}, {what}")
        for name, about in {
            "publish_latency": "publish latency from when it was due",
            "publish_service": "publish latency from when it was sent",
            "end_to_end_latency": "end-to-end latency",
            "key_lookup_latency": "lookup by key",
            "time_lookup_latency": "lookup by time",
            "append_latency": "append, one request at a time",
            "fetch_latency": "fetch, one request at a time",
        }.items()
        for at, what in {
            "p50": "p50",
            "p90": "p90",
            "p99": "p99",
            "p99_9": "p99.9",
            "max": "max",
            "mean": "mean",
        }.items()
    },
}
"""The numbers of a repeat that are compared between targets, in the order of a report."""


def numbers(repeat: Repeat) -> dict[str, float]:
    """Return every number of a repeat by dotted name, including counts, which are not in `METRICS`. Percentiles of too
    few values are left out (see `LEAST_COUNTS`).
    """
    return dict(_numbers("", repeat))


def _numbers(prefix: str, part: msgspec.Struct) -> Iterator[tuple[str, float]]:
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if isinstance(value, Latency):
            for at, number in _numbers("", value):
                if value.count >= LEAST_COUNTS.get(at, 0):
                    yield f"{prefix}{name}.{at}", number
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", value


LEAST_COUNTS: Final = {"p90_us": 100, "p99_us": 1_000, "p99_9_us": 10_000}
"""The fewest values for each percentile: then ten values or more are above it. Of fewer values a percentile is
chance.
"""


def spreads(repeats: Sequence[Repeat]) -> dict[str, Spread]:
    """Return minimum, median and maximum over the repeats, by dotted name, of each number that any repeat has."""
    found: dict[str, list[float]] = {}
    for repeat in repeats:
        for name, value in numbers(repeat).items():
            found.setdefault(name, []).append(value)
    return {name: Spread.of(values) for name, values in found.items()}


def errors_of(run: Run) -> list[str]:
    """Return the errors of a run and of its repeats. If there are any, its figures support no conclusion."""
    return [*run.errors, *(error for repeat in run.repeats for error in repeat.errors)]


def held(run: Run) -> bool | None:
    """Return whether every repeat held the offered rate; None if no rate was offered."""
    held = [repeat.rate_held for repeat in run.repeats if repeat.rate_held is not None]
    return all(held) if held else None


def to_json(result: Result) -> bytes:
    """Encode a result as indented JSON with a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


def from_json(data: bytes) -> Result:
    """Decode a result document. Raises ValueError, which names the field, its value and its limits."""
    version = _decoded(data, _Versioned).format_version
    if version != FORMAT_VERSION:
        raise ValueError(f"format_version: {version}, this reads {FORMAT_VERSION}")
    return _decoded(data, Result)


def _decoded(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(in_words(error, kind, data, whole="the file")) from None


class _Versioned(msgspec.Struct):
    format_version: int


def load(path: Path) -> Result:
    """Read a result document from a file. Raises OSError and ValueError."""
    return from_json(path.read_bytes())
