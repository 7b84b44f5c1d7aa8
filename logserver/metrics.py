"""Counters of one server, rendered for Prometheus.

Owns the metric names, and the numbers that each request counts; must not do IO, except that a scrape asks the store for
its sizes. `render` is slow with many series: call it in a thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nlargest
from itertools import accumulate
from operator import itemgetter
from time import time
from typing import Generic, TypeAlias, TypeVar, cast

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from logserver.service.upkeep import ServiceStatus
from storage import CompactionStatus, StoreStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LATENCIES_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
)  # fmt: skip
Lags: TypeAlias = Mapping[tuple[str, str], int]
"""How many offsets a group has not committed of a topic, by the names of both."""
_GROUP_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Count:
    """A counter as a plain number."""

    __slots__ = ("created_s", "value")

    def __init__(self) -> None:
        self.value = 0
        self.created_s = time()

    def add_to(self, family: Metric, labels: Sequence[str]) -> None:
        """Add the samples to the family of the metric."""
        cast("CounterMetricFamily", family).add_metric(labels, self.value, created=self.created_s)


class Spread:
    """A histogram as plain numbers: of each bucket alone, the last for values above all bounds."""

    __slots__ = ("_bounds", "_counts", "_sum", "created_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self.created_s = time()

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, family: Metric, labels: Sequence[str]) -> None:
        """Add the samples to the family of the metric."""
        bounds = (*map(floatToGoString, self._bounds), "+Inf")
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        cast("HistogramMetricFamily", family).add_metric(labels, buckets, self._sum)
        named = dict(zip(family.samples[-1].labels, labels, strict=True))
        family.add_sample(f"{family.name}_created", named, self.created_s)


C = TypeVar("C", Count, Spread)


class Children(Collector, Generic[C]):
    """A metric in plain numbers: a child for each combination of label values.

    The library locks each number at each increment: 9 us for a request and its append, 2 us here. The event loop
    counts, and any thread may collect.
    """

    def __init__(self, make: Callable[[], C], family: Callable[[], Metric]) -> None:
        self._make: Callable[[], C] = make
        self._family = family
        self._children: dict[tuple[str, ...], C] = {}

    def child(self, *labels: str) -> C:
        """Return the child with these label values; it is created at the first call."""
        return self._children.setdefault(labels, self._make())

    def collect(self) -> Iterator[Metric]:
        """Yield the metric with the samples of all children."""
        family = self._family()
        for labels, child in list(self._children.items()):
            child.add_to(family, labels)
        yield family

    def describe(self) -> Iterator[Metric]:
        """Yield the metric without samples, so that the registry knows its name."""
        yield self._family()


class Metrics:
    """All metrics of one server, in a registry of their own. Count on the event loop only; any thread may render."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(
            registry=self.registry
        )  # CPU, memory, open files; no metrics on systems without /proc
        self._requests = self.counts(
            "http_requests", "HTTP requests answered.", "route", "method", "status"
        )
        self._request_s = self.spreads(
            "http_request_seconds",
            "Time from a request's headers to its answer, waiting included.",
            _LATENCIES_S,
            "route",
        )
        self._by_request: dict[tuple[str, str, int], tuple[Count, Spread]] = {}
        self.failed_handshakes = self.counts(
            "tls_handshakes_failed", "TLS handshakes that failed.", "port"
        )
        """By port: `http` or `kafka`."""
        self._produced_records = self._count("produced_records", "Records stored.")
        self._produced_bytes = self._count(
            "produced_bytes", "Bytes of produce bodies and of record batches stored."
        )
        self._fetched_records = self._count("fetched_records", "Records handed out.")
        self._fetched_bytes = self._count("fetched_bytes", "Bytes of fetch answers.")
        self._appends = self._count("store_appends", "Appends made to the store.")
        self._dropped = self._count(
            "unacknowledged_failures", "Requests answered with acks=0 that then failed."
        )
        self._append_s = self._spread(
            "append_seconds", "Time one group's appends took.", _LATENCIES_S
        )
        self._flush_s = self._spread(
            "group_commit_flush_seconds", "Time one group's flush took.", _LATENCIES_S
        )
        self._group_size = self._spread(
            "group_requests", "Requests that shared one hop.", _GROUP_SIZES
        )

    def counts(self, name: str, about: str, *labels: str) -> Children[Count]:
        """Register a counter with labels."""
        family = partial(CounterMetricFamily, f"logserver_{name}", about, labels=labels)
        return self._registered(Children(Count, family))

    def spreads(
        self, name: str, about: str, bounds: Sequence[float], *labels: str
    ) -> Children[Spread]:
        """Register a histogram with labels."""
        family = partial(HistogramMetricFamily, f"logserver_{name}", about, labels=labels)
        return self._registered(Children(partial(Spread, bounds), family))

    def _registered(self, children: Children[C]) -> Children[C]:
        self.registry.register(children)
        return children

    def _count(self, name: str, about: str) -> Count:
        return self.counts(name, about).child()

    def _spread(self, name: str, about: str, bounds: Sequence[float]) -> Spread:
        return self.spreads(name, about, bounds).child()

    def gauge(self, name: str, about: str, value: Callable[[], float]) -> None:
        """Register a gauge that calls `value` at every scrape."""
        gauge = Gauge(f"logserver_{name}", about, registry=self.registry)
        gauge.set_function(value)

    def watch_store(self, stats: Callable[[], StoreStats | None]) -> None:
        """Register the gauges of the store, read from `stats` at every scrape; None while no store is open."""
        self.registry.register(_StoreCollector(stats))

    def watch_services(self, services: Callable[[], Sequence[ServiceStatus]]) -> None:
        """Register the gauges of periodic work, read from `services` at every scrape."""
        self.registry.register(_ServicesCollector(services))

    def watch_groups(self, lags: Callable[[], Lags], most: int) -> None:
        """Register the gauge of the groups' lags, read from `lags` at every scrape; of the largest `most` of them."""
        self.registry.register(_LagCollector(lags, most))

    def requested(self, *, route: str, method: str, status: int, elapsed_s: float) -> None:
        """Count one answered HTTP request."""
        key = route, method, status
        counted = self._by_request.get(key)
        if counted is None:
            counted = self._requests.child(route, method, str(status)), self._request_s.child(route)
            self._by_request[key] = counted
        count, spread = counted
        count.value += 1
        spread.observe(elapsed_s)

    def produced(self, *, records: int, size_bytes: int) -> None:
        """Count a stored produce request."""
        self._produced_records.value += records
        self._produced_bytes.value += size_bytes

    def fetched(self, *, records: int, size_bytes: int) -> None:
        """Count an answered fetch."""
        self._fetched_records.value += records
        self._fetched_bytes.value += size_bytes

    def committed(self, *, requests: int, appends: int, append_s: float) -> None:
        """Count one group commit."""
        self._group_size.observe(requests)
        self._appends.value += appends
        self._append_s.observe(append_s)

    def flushed(self, flush_s: float) -> None:
        """Count the flush of one group."""
        self._flush_s.observe(flush_s)

    def dropped(self) -> None:
        """Count a request that failed after it was answered (acks=0)."""
        self._dropped.value += 1

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)


class KafkaMetrics:
    """The counters of requests and connections of Kafka clients, among the metrics of their server."""

    def __init__(self, metrics: Metrics) -> None:
        self._requests = metrics.counts(
            "kafka_requests", "Requests of Kafka clients answered.", "api", "version"
        )
        self._request_s = metrics.spreads(
            "kafka_request_seconds",
            "Time from a Kafka request to its answer, waiting included.",
            _LATENCIES_S,
            "api",
        )
        self._errors = metrics.counts(
            "kafka_errors",
            "Errors in answers to Kafka clients: of a whole request, or of each of its parts.",
            "api",
            "error",
        )
        self._ended = metrics.counts(
            "kafka_connections_ended",
            "Connections of Kafka clients that the server ended.",
            "reason",
        )
        self.opened = metrics.counts(
            "kafka_connections_opened", "Connections of Kafka clients that were accepted."
        ).child()
        self.received_bytes = metrics.counts(
            "kafka_received_bytes", "Bytes received from Kafka clients, without TLS."
        ).child()
        self.sent_bytes = metrics.counts(
            "kafka_sent_bytes", "Bytes of answers to Kafka clients, without TLS."
        ).child()
        self._by_request: dict[tuple[str, int], tuple[Count, Spread]] = {}

    def answered(self, *, api: str, version: int, elapsed_s: float) -> None:
        """Count one answered request of a Kafka client."""
        counted = self._by_request.get((api, version))
        if counted is None:
            counted = (
                self._requests.child(api, str(version)),
                self._request_s.child(api),
            )
            self._by_request[api, version] = counted
        count, spread = counted
        count.value += 1
        spread.observe(elapsed_s)

    def failed(self, *, api: str, errors: Sequence[str]) -> None:
        """Count the errors in one answer to a Kafka client, by their names."""
        for error in errors:
            self._errors.child(api, error).value += 1

    def ended(self, reason: str) -> None:
        """Count one connection of a Kafka client that the server ended."""
        self._ended.child(reason).value += 1


class _StoreCollector(Collector):
    """A collector that asks the store for its sizes only at a scrape."""

    def __init__(self, stats: Callable[[], StoreStats | None]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        if stats is None:
            return
        figures = (
            ("topics", "Topics of the store.", stats.topics),
            ("partitions", "Partitions of the store.", stats.partitions),
            ("segments", "Segments of all partitions.", stats.segments),
            ("size_bytes", "Bytes of all segments.", stats.size_bytes),
            ("open_files", "Files that the store has open.", stats.open_files),
            (
                "fenced",
                "1 after a failed write or sync, until a restart.",
                stats.fenced is not None,
            ),
        )
        for name, about, value in figures:
            yield GaugeMetricFamily(f"logserver_store_{name}", about, value=float(value))
        yield CounterMetricFamily(
            "logserver_store_suspect_records",
            "Reads of records with parts that no checksum covers and that cannot be what was written.",
            value=float(stats.suspect_records),
        )
        for name, about, count in (
            ("deleted_segments", "Segments or log files deleted.", stats.deleted_segments),
            ("deleted_bytes", "Bytes of the deleted segments or log files.", stats.deleted_bytes),
        ):
            yield CounterMetricFamily(f"logserver_store_{name}", about, value=float(count))
        if stats.compaction is not None:
            yield from _compaction_gauges(stats.compaction)
        lag_bytes = stats.details.get("dispatch_lag_bytes")
        if isinstance(lag_bytes, int):
            yield GaugeMetricFamily(
                "logserver_store_dispatch_lag_bytes",
                "Bytes of the log that queues and index do not know yet.",
                value=float(lag_bytes),
            )

    def describe(self) -> Iterator[Metric]:
        """Return no metrics, so that a registration does not call the store."""
        return iter(())


class _LagCollector(Collector):
    """A collector that asks for the lags of the groups only at a scrape. Clients name groups and topics, so the
    number of series is limited.
    """

    def __init__(self, lags: Callable[[], Lags], most: int) -> None:
        self._lags = lags
        self._most = most

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "logserver_group_lag_offsets",
            "Offsets from the commits of a group to the end, over the partitions of a topic.",
            labels=("group", "topic"),
        )
        for names, lag in nlargest(self._most, self._lags().items(), key=itemgetter(1, 0)):
            family.add_metric(names, lag)
        yield family

    def describe(self) -> Iterator[Metric]:
        """Return no metrics, so that a registration does not read the groups."""
        return iter(())


def _compaction_gauges(status: CompactionStatus) -> Iterator[Metric]:
    figures = (
        (
            "dirty_bytes",
            "Bytes of closed segments that compaction has not cleaned.",
            status.dirty_bytes,
        ),
        (
            "max_dirty_ratio",
            "Dirty part of the bytes that can be cleaned, in the dirtiest partition.",
            status.max_dirty_ratio,
        ),
        (
            "uncleanable_partitions",
            "Partitions that compaction leaves alone because of damage.",
            len(status.uncleanable),
        ),
    )
    for name, about, value in figures:
        yield GaugeMetricFamily(f"logserver_compaction_{name}", about, value=float(value))
    counts = (
        ("cleanings", "Finished cleanings of a partition since the start.", status.cleanings),
        ("read_bytes", "Bytes of the segments that were cleaned.", status.bytes_read),
        ("written_bytes", "Bytes that stayed of them.", status.bytes_written),
    )
    for name, about, value in counts:
        yield CounterMetricFamily(f"logserver_compaction_{name}", about, value=float(value))


class _ServicesCollector(Collector):
    """A collector of the state of periodic work."""

    def __init__(self, services: Callable[[], Sequence[ServiceStatus]]) -> None:
        self._services = services

    def collect(self) -> Iterator[Metric]:
        lag, failing = self.describe()
        for service in self._services():
            lag.add_metric([service.name], service.lag_ms / 1000)
            failing.add_metric([service.name], float(service.error is not None))
        yield from (lag, failing)

    def describe(self) -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        """Return the metrics without samples."""
        return (
            GaugeMetricFamily(
                "logserver_service_lag_seconds",
                "For how long periodic work has been due.",
                labels=["service"],
            ),
            GaugeMetricFamily(
                "logserver_service_failing",
                "1 if the last step of a service failed.",
                labels=["service"],
            ),
        )
