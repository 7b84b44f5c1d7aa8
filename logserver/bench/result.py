"""The document that a benchmark gives: on what it ran, what each target did in each repeat, and what went wrong.

Owns the names of its JSON, which are stable within a `FORMAT_VERSION` and carry their units, and how repeats are told
together. Measures nothing, draws nothing. A value that was not measured is null, never 0.

Units: `_s` seconds, `_us` microseconds, `_bytes` bytes, `_mb_per_s` a million bytes of record values a second,
`_per_s` a second. The numbers of a repeat are found by dotted names, such as `publish_latency.p99_us`: see `METRICS`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

FORMAT_VERSION: Final = 1

MOST: Final = (
    10**15
)  # of anything that is measured: a document with more was not made by a benchmark

Amount: TypeAlias = Annotated[float, Meta(ge=0, le=MOST)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MOST)]
Kind: TypeAlias = Literal["logserver", "kafka", "rocketmq", "http"]
Better: TypeAlias = Literal["higher", "lower", "neither"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The smallest, middle and largest of several values."""

    minimum: float
    median: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """From at least one value."""
        return cls(minimum=min(values), median=statistics.median(values), maximum=max(values))

    def by(self, divisor: float) -> Spread:
        """Each of them divided by the same."""
        return Spread(
            minimum=self.minimum / divisor,
            median=self.median / divisor,
            maximum=self.maximum / divisor,
        )


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles of `count` values, in microseconds, three significant figures. A peer's own tool may know fewer."""

    count: Count
    p50_us: Amount | None = None
    p90_us: Amount | None = None
    p99_us: Amount | None = None
    p99_9_us: Amount | None = None
    max_us: Amount | None = None
    mean_us: Amount | None = None  # where a peer's tool knows nothing better


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """One repeat of a workload on a target, with the values that were measured.

    Latencies of publishing count from when a request was due (`publish_latency`: corrected for coordinated omission;
    of an unlimited rate from when it was sent) and from when it was sent (`publish_service`); those of a record from
    when its request was due to when a consumer had it (`end_to_end_latency`). A refusal has no latency. Processor time,
    memory and disk are the server's: `server_cpu_s` within `seconds`, the others afterwards. A start counts from
    that of the process to its first answer.
    """

    seconds: Amount | None = None  # of the measured part, without warm-up

    offered_records_per_s: Amount | None = None  # null: as fast as possible
    rate_held: bool | None = None  # null without an offered rate
    unsent_requests: Count | None = None  # were due, and given up
    refused_requests: Count | None = None  # answers that are no success

    published_records: Count | None = None  # acknowledged
    published_records_per_s: Amount | None = None
    published_mb_per_s: Amount | None = None
    stored_records: Count | None = None  # what the server holds of them afterwards
    publish_latency: Latency | None = None
    publish_service: Latency | None = None

    consumed_records: Count | None = None  # by all subscriptions that follow, together
    consumed_records_per_s: Amount | None = None
    consumed_mb_per_s: Amount | None = None
    end_to_end_latency: Latency | None = None

    catch_up_records: Count | None = None  # by those that read the backlog from its start
    catch_up_records_per_s: Amount | None = None
    catch_up_mb_per_s: Amount | None = None

    key_lookup_latency: Latency | None = None
    time_lookup_latency: Latency | None = None
    append_latency: Latency | None = None  # one request at a time, on a store of a given size
    fetch_latency: Latency | None = None

    server_cpu_s: Amount | None = None
    server_cpu_s_per_million_records: Amount | None = None  # read ones too; null below 0.05 s
    server_rss_bytes: Count | None = None
    empty_rss_bytes: Count | None = None  # before the load, on a new store
    disk_bytes: Count | None = None  # allocated, not the length of sparse files
    disk_bytes_per_record: Amount | None = None
    start_s: Amount | None = None  # on a new store
    restart_s: Amount | None = None  # on the store that the load left, ended cleanly
    recovery_s: Amount | None = None  # on the same after kill -9
    recovery_load_s: Amount | None = (
        None  # of it, the loading of the store, by the server's own log
    )

    generator_busy_share: Amount | None = (
        None  # of a core, of who put the load on: 1 is its limit, but at a held rate
    )
    errors: list[str] = []  # counts that do not agree, what failed


class Scale(msgspec.Struct, frozen=True):
    """Where a run stands on the axis of its series, such as 64 of `topics`."""

    name: str  # topics, producers, store_bytes
    value: Amount


class WorkloadFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The workload of a run: its name, and each field in force under the name that its TOML has."""

    name: str
    fields: dict[str, Any]
    scale: Scale | None = None


class TargetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was under load. `name` is unique within a document; `driver`: the program that put the load on it."""

    name: str
    kind: Kind
    version: str | None = None
    driver: str = "logserver bench"


ONE_RECORD: Final = "one record a request"
"""The reason of a driver that knows no batches."""


class NotDone(msgspec.Struct, frozen=True):
    """A field of the workload that this target, or its driver, cannot do, and what was done instead."""

    field: str
    reason: str


class Run(msgspec.Struct, kw_only=True):
    """One workload on one target. Without repeats it was left out: `notes` or `errors` say why."""

    workload: WorkloadFacts
    target: TargetFacts
    repeats: list[Repeat] = []
    not_done: list[NotDone] = []
    errors: list[str] = []
    notes: list[str] = []


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What it was taken on. Versions are null where there is none."""

    cpu: str
    cores: int
    memory_bytes: int | None
    system: str
    python: str
    compiled: bool  # our package; else plain Python
    packages: dict[str, str]
    java: str | None = None
    kafka: str | None = None
    rocketmq: str | None = None
    server_cores: list[int] | None = None  # pinned to these; null: any
    generator_cores: list[int] | None = None
    file_system: str | None = None  # that the stores were on


NOT_TOLD_BY_ALL: Final = ("file_system", "java", "kafka", "rocketmq")  # of an environment


class Generator(msgspec.Struct, frozen=True, kw_only=True):
    """The load generator itself, against a socket that answers without looking: the limit of every figure.

    In an open loop at `offered_requests_per_s` it made `made_requests_per_s`, and had this latency by itself.
    """

    ceiling_requests_per_s: Spread
    offered_requests_per_s: Amount
    made_requests_per_s: Spread
    rate_error_share: Amount  # the largest distance of made from offered, as a share of it
    latency: Latency


class Result(msgspec.Struct, kw_only=True):
    """The whole document. Not `complete`: interrupted, or it failed; what was taken until then is in it."""

    format_version: int = FORMAT_VERSION
    complete: bool = False
    incomplete_reason: str | None = None
    began: str = ""  # UTC, ISO 8601
    command: list[str] = []
    quick: bool = False  # counts are checked, figures say little
    environment: Environment
    generator: Generator | None = None
    runs: list[Run] = []


class Metric(NamedTuple):
    """How a number of a repeat is told."""

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
        f"{name}.{at}_us": Metric("us", "lower", f"{about}, {told}")
        for name, about in {
            "publish_latency": "publish latency from when it was due",
            "publish_service": "publish latency from when it was sent",
            "end_to_end_latency": "end-to-end latency",
            "key_lookup_latency": "lookup by key",
            "time_lookup_latency": "lookup by time",
            "append_latency": "append, one request at a time",
            "fetch_latency": "fetch, one request at a time",
        }.items()
        for at, told in {
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
    """Every number that a repeat has, by dotted name; counts too, which `METRICS` leaves out. A percentile that its
    values are too few for is none.
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
"""Values from which on ten lie above a percentile: of fewer it says what one of them happened to be."""


def spreads(repeats: Sequence[Repeat]) -> dict[str, Spread]:
    """Minimum, median and maximum over the repeats of each number that any of them has, by dotted name."""
    found: dict[str, list[float]] = {}
    for repeat in repeats:
        for name, value in numbers(repeat).items():
            found.setdefault(name, []).append(value)
    return {name: Spread.of(values) for name, values in found.items()}


def errors_of(run: Run) -> list[str]:
    """Those of the run and of its repeats. Where there is any, its figures carry no conclusion."""
    return [*run.errors, *(error for repeat in run.repeats for error in repeat.errors)]


def held(run: Run) -> bool | None:
    """Whether every repeat held the offered rate; None where none was offered."""
    told = [repeat.rate_held for repeat in run.repeats if repeat.rate_held is not None]
    return all(told) if told else None


def to_json(result: Result) -> bytes:
    """Indented, with a new line at the end."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


def from_json(data: bytes) -> Result:
    """The document again. Raises msgspec.ValidationError, or ValueError for a format that is newer."""
    version = msgspec.json.decode(data, type=_Versioned).format_version
    if version != FORMAT_VERSION:
        raise ValueError(f"format_version: {version}, this reads {FORMAT_VERSION}")
    return msgspec.json.decode(data, type=Result)


class _Versioned(msgspec.Struct):
    format_version: int


def load(path: Path) -> Result:
    """The document of a file. Raises as `from_json`, and OSError."""
    return from_json(path.read_bytes())
