"""Counters of one server, rendered for Prometheus.

Owns the metric names and their cached children (a look-up by labels costs four times an increment); must not do IO,
except that a scrape asks the store for its sizes. `render` is slow with many series: call it in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from storage import StoreStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LATENCIES_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
)  # fmt: skip
_GROUP_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """All metrics of one server, in a registry of their own. Any thread may increment them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(
            registry=self.registry
        )  # CPU, memory, open files; no metrics on systems without /proc
        self._requests = Counter(
            "logserver_http_requests",
            "HTTP requests answered.",
            ["route", "method", "status"],
            registry=self.registry,
        )
        self._request_s = Histogram(
            "logserver_http_request_seconds",
            "Time from a request's headers to its answer, waiting included.",
            ["route"],
            buckets=_LATENCIES_S,
            registry=self.registry,
        )
        self._requests_children: dict[tuple[str, str, int], Counter] = {}
        self._request_s_children: dict[str, Histogram] = {}
        self._produced_records = self._counter("produced_records", "Records stored.")
        self._produced_bytes = self._counter("produced_bytes", "Bytes of produce bodies stored.")
        self._fetched_records = self._counter("fetched_records", "Records handed out.")
        self._fetched_bytes = self._counter("fetched_bytes", "Bytes of fetch answers.")
        self._appends = self._counter("store_appends", "Appends made to the store.")
        self._dropped = self._counter(
            "unacknowledged_failures", "Requests answered with acks=0 that then failed."
        )
        self._append_s = Histogram(
            "logserver_append_seconds",
            "Time one group's appends took.",
            buckets=_LATENCIES_S,
            registry=self.registry,
        )
        self._flush_s = Histogram(
            "logserver_group_commit_flush_seconds",
            "Time one group's flush took.",
            buckets=_LATENCIES_S,
            registry=self.registry,
        )
        self._group_size = Histogram(
            "logserver_group_requests",
            "Requests that shared one hop.",
            buckets=_GROUP_SIZES,
            registry=self.registry,
        )

    def _counter(self, name: str, about: str) -> Counter:
        return Counter(f"logserver_{name}", about, registry=self.registry)

    def gauge(self, name: str, about: str, value: Callable[[], float]) -> None:
        """Register a gauge that calls `value` at every scrape."""
        gauge = Gauge(f"logserver_{name}", about, registry=self.registry)
        gauge.set_function(value)

    def watch_store(self, stats: Callable[[], StoreStats | None]) -> None:
        """Register the gauges of the store, read from `stats` at every scrape; None while no store is open."""
        self.registry.register(_StoreCollector(stats))

    def requested(self, *, route: str, method: str, status: int, elapsed_s: float) -> None:
        """Count one answered HTTP request."""
        counter = self._requests_children.get((route, method, status))
        if counter is None:
            counter = self._requests.labels(route, method, str(status))
            self._requests_children[route, method, status] = counter
        counter.inc()
        histogram = self._request_s_children.get(route)
        if histogram is None:
            histogram = self._request_s_children[route] = self._request_s.labels(route)
        histogram.observe(elapsed_s)

    def produced(self, *, records: int, size_bytes: int) -> None:
        """Count a stored produce request."""
        self._produced_records.inc(records)
        self._produced_bytes.inc(size_bytes)

    def fetched(self, *, records: int, size_bytes: int) -> None:
        """Count an answered fetch."""
        self._fetched_records.inc(records)
        self._fetched_bytes.inc(size_bytes)

    def committed(self, *, requests: int, appends: int, append_s: float) -> None:
        """Count one group commit."""
        self._group_size.observe(requests)
        self._appends.inc(appends)
        self._append_s.observe(append_s)

    def flushed(self, flush_s: float) -> None:
        """Count the flush of one group."""
        self._flush_s.observe(flush_s)

    def dropped(self) -> None:
        """Count a request that failed after it was answered (acks=0)."""
        self._dropped.inc()

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)


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
