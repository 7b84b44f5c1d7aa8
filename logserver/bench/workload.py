"""Workloads: TOML files with the field names of the OpenMessaging Benchmark, and a table of our own fields.

Owns the fields, their limits and the message for an invalid field; the shipped workloads are in `workloads/`. Must not
know a target: each target reports the fields it does not support.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from logserver.bench.result import Scale, WorkloadFacts
from logserver.validation import wrong_value
from storage.errors import InvalidArgument

MOST_PARTITIONS: Final = 10_000  # over all topics
MOST_REQUEST_BYTES: Final = 8 << 20  # sum of the values in a request
MOST_MADE_BYTES: Final = 1 << 30  # values of all requests: they are built before the load
MOST_CONNECTIONS: Final = 64  # if the workload names no number
MOST_DUE: Final = 100_000_000  # requests at a constant rate: each has its time stored, sent or not
SUFFIX: Final = ".toml"
T = TypeVar("T")
KEYS: Final = 10_000  # distinct keys, as in the OpenMessaging Benchmark

Count: TypeAlias = Annotated[int, Meta(ge=0, le=1024)]
Minutes: TypeAlias = Annotated[float, Meta(ge=0, le=1440)]
Gigabytes: TypeAlias = Annotated[float, Meta(ge=0, le=100)]
Name: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9.-]{0,63}\Z")]
Distributor: TypeAlias = Literal["NO_KEY", "KEY_ROUND_ROBIN", "RANDOM_NANO"]


class Own(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The fields that the OpenMessaging Benchmark does not have: the table `[logserver]`."""

    records_per_request: Annotated[int, Meta(ge=1, le=10_000)] = 100  # in HTTP requests
    connections: Count = 0  # 0: one per producer, 64 at most
    acks: Literal["1", "all"] = "1"
    flush: Literal["sync", "async", "os"] = "os"  # when the server syncs
    open_files: Annotated[int, Meta(ge=0, le=1_000_000)] = 0  # limit of the server; 0: its default
    fill_gb: Gigabytes = msgspec.field(default=0.0, name="fillGB")  # data written before the load
    fill_records_per_request: Annotated[int, Meta(ge=0, le=10_000)] = 0  # 0: 1,000, of 1 MB at most
    lookups: Annotated[int, Meta(ge=0, le=1_000_000)] = 0  # of each kind, one at a time
    kill: bool = False  # kill -9 after the load, then restart
    only_ours: bool = False  # too much for the real servers on such a machine
    scale: Literal["", "topics", "partitions", "producers", "store_bytes"] = (
        ""  # axis of its series
    )


class Workload(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A workload. Rates are records a second over all producers, 0 is as fast as possible; GB are 10^9 bytes."""

    name: Name
    topics: Annotated[int, Meta(ge=1, le=MOST_PARTITIONS)] = 1
    partitions_per_topic: Annotated[int, Meta(ge=1, le=MOST_PARTITIONS)] = 1
    message_size: Annotated[int, Meta(ge=1, le=1 << 20)] = 100
    key_distributor: Distributor = "NO_KEY"
    producers_per_topic: Count = 1
    producer_rate: Annotated[int, Meta(ge=0, le=100_000_000)] = 0
    subscriptions_per_topic: Count = 0
    consumer_per_subscription: Count = 1
    consumer_backlog_size_gb: Gigabytes = msgspec.field(default=0.0, name="consumerBacklogSizeGB")
    warmup_duration_minutes: Minutes = 0.05
    test_duration_minutes: Minutes = 0.25
    own: Own = msgspec.field(default_factory=Own, name="logserver")

    @property
    def seconds(self) -> float:
        """Length of the measured part in seconds."""
        return self.test_duration_minutes * 60

    @property
    def warm_up_s(self) -> float:
        """Length of the warm-up in seconds, before the measured part."""
        return self.warmup_duration_minutes * 60

    @property
    def partitions(self) -> int:
        """Number of partitions of all topics together."""
        return self.topics * self.partitions_per_topic

    @property
    def producers(self) -> int:
        """Number of producers of all topics together."""
        return self.topics * self.producers_per_topic

    @property
    def under_way(self) -> int:
        """Number of concurrent publish requests: `connections` if set, else one per producer, 64 at most."""
        return self.own.connections or min(self.producers, MOST_CONNECTIONS)

    @property
    def filled_records(self) -> int:
        """Number of records written before the load: enough for `fillGB` and for the backlog."""
        wanted = max(self.own.fill_gb, self.consumer_backlog_size_gb)
        return round(wanted * 1e9 / self.message_size)

    @property
    def facts(self) -> WorkloadFacts:
        """The facts of this workload for a result document."""
        fields = msgspec.to_builtins(self)
        name = fields.pop("name")
        values = {
            "topics": self.topics,
            "partitions": self.topics * self.partitions_per_topic,
            "producers": self.producers,
            "store_bytes": self.own.fill_gb * 1e9,
        }
        axis = self.own.scale
        scale = Scale(axis, values[axis]) if axis else None
        return WorkloadFacts(name=name, fields=fields, scale=scale)

    def quick(self) -> Workload:
        """Return this workload cut down to about a second: its counts are exact, its figures mean little."""
        replace = msgspec.structs.replace
        own = replace(
            self.own,
            fill_gb=min(self.own.fill_gb, 0.002),
            lookups=min(self.own.lookups, 20),
        )
        return replace(
            self,
            topics=min(self.topics, 20),
            subscriptions_per_topic=min(self.subscriptions_per_topic, 2),
            consumer_backlog_size_gb=min(self.consumer_backlog_size_gb, 0.002),
            producer_rate=min(self.producer_rate, 5_000),
            warmup_duration_minutes=0.0,
            test_duration_minutes=min(self.test_duration_minutes, 0.5 / 60),
            own=own,
        )


def shipped() -> list[str]:
    """Return the sorted names of the workloads that come with the package."""
    found = [path.name for path in files(__package__).joinpath("workloads").iterdir()]
    return sorted(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX))


def load_workload(name: str) -> Workload:
    """Load a shipped workload by name, or a workload file by path. Raises InvalidArgument, OSError."""
    if name in shipped():
        return parse_workload(
            files(__package__).joinpath("workloads", name + SUFFIX).read_bytes(), name
        )
    if not name.endswith(SUFFIX):
        message = f"workload: {name!r} is neither a {SUFFIX} file nor one of {', '.join(shipped())}"
        raise InvalidArgument(message, field="workload")
    return parse_workload(Path(name).read_bytes(), name)


def parse_workload(data: bytes, source: str) -> Workload:
    """Parse the text of a workload file. Raises InvalidArgument, which names source, field, value and limit."""
    workload = decode_toml(data, source, Workload)
    if workload.partitions > MOST_PARTITIONS:
        _refuse(
            source,
            "partitionsPerTopic",
            f"{workload.partitions} partitions in all, {MOST_PARTITIONS} at most",
        )
    for field, records in (
        ("recordsPerRequest", workload.own.records_per_request),
        ("fillRecordsPerRequest", workload.own.fill_records_per_request),
    ):
        request_bytes = records * workload.message_size
        if request_bytes > MOST_REQUEST_BYTES:
            limit = f"{request_bytes} bytes in a request, {MOST_REQUEST_BYTES} at most"
            _refuse(source, f"logserver.{field}", limit)
    _check_amounts(workload, source)
    if not workload.producers_per_topic and not workload.filled_records:
        _refuse(source, "producersPerTopic", "0 with nothing to read: there is nothing to do")
    return workload


def check_facts(facts: WorkloadFacts, source: str) -> None:
    """Check that the workload fields in a result are valid fields of a workload. Its name may be any. Raises
    InvalidArgument as `parse_workload` does.
    """
    _converted({**facts.fields, "name": "any"}, source, Workload)


def _check_amounts(workload: Workload, source: str) -> None:
    """Reject a workload that would fill the generator's memory, or that would do nothing."""
    own = workload.own
    bodies = 1 if workload.key_distributor == "NO_KEY" else -(-KEYS // own.records_per_request)
    made = max(workload.topics, bodies) * own.records_per_request * workload.message_size
    if made > MOST_MADE_BYTES:
        limit = f"{made} bytes of values in requests made before, {MOST_MADE_BYTES} at most"
        _refuse(source, "messageSize", limit)
    longest_s = max(workload.seconds, workload.warm_up_s)
    due = round(workload.producer_rate / own.records_per_request * longest_s)
    if due > MOST_DUE:
        _refuse(source, "producerRate", f"{due} requests would be due, {MOST_DUE} at most")
    if not (workload.seconds or workload.filled_records or own.lookups or own.kill):
        _refuse(source, "testDurationMinutes", "0 with nothing to fill or look up: nothing to do")


def _refuse(source: str, field: str, problem: str) -> None:
    raise InvalidArgument(f"{source}: {field}: {problem}", field=field)


# ---- TOML of bench: workloads, and descriptions of HTTP servers ----------------------------------


def decode_toml(data: bytes, source: str, kind: type[T]) -> T:
    """Decode TOML into a struct. Raises InvalidArgument, which names source, field, value and limit."""
    try:
        given = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidArgument(f"{source}: no TOML: {error}", field="toml") from None
    return _converted(given, source, kind)


def _converted(given: dict[str, Any], source: str, kind: type[T]) -> T:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        wrong = wrong_value(error, kind, given, whole="the table")
        raise InvalidArgument(f"{source}: {wrong.text}", field=wrong.field) from None
