"""One repeat of a workload on an HTTP server: create topics, fill, publish while reading, look up.

Owns the order of these steps and the measurements in each; must not know which server it is, nor start or stop it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from logserver.bench.http_templates import Shape
from logserver.bench.load_loops import (
    ANSWER_S,
    LATE,
    Closed,
    Open,
    Sample,
    Turn,
    latency_of,
    named_timeout,
)
from logserver.bench.lookups import Lookups
from logserver.bench.processes import cpu_s, cpu_s_per_million
from logserver.bench.publishing import Requests
from logserver.bench.readers import Published, Reader, end_to_end_ns
from logserver.bench.result import NotDone
from logserver.bench.topics import Topics
from logserver.bench.wire import Address, Connection
from logserver.bench.workload import Workload
from storage import wall_clock_ms

FILL_CONNECTIONS: Final = 4
FILL_S: Final = 3600.0
DRAIN_S: Final = 120.0  # how long readers may take after the last record was published
HELD_SHARE: Final = 0.95  # of the offered rate: from this share on it counts as held
Tell = Callable[[str], None]


def not_done(workload: Workload, shape: Shape) -> list[NotDone]:
    """Return the fields of a workload that a server of this shape does not support."""
    missing = []

    def lacks(field: str, needed: bool, reason: str) -> None:
        if needed:
            missing.append(NotDone(field, reason))

    reads = bool(workload.subscriptions_per_topic or workload.consumer_backlog_size_gb)
    lacks("subscriptionsPerTopic", reads and not _reads(shape), "no fetch and end_offset")
    lacks(
        "consumerPerSubscription",
        reads and workload.consumer_per_subscription != 1,
        "each partition has a reader of its own",
    )
    keyed = workload.key_distributor != "NO_KEY"
    lacks("keyDistributor", keyed and not shape.produce.keyed_record, "no keyed_record: no keys")
    lacks(
        "stored_records",
        shape.end_offset is None,
        "no end_offset: acknowledged records are not verified",
    )
    asked, filled = bool(workload.own.lookups), bool(workload.filled_records)
    for name in ("key_lookup", "time_lookup"):
        lacks("logserver.lookups", asked and getattr(shape, name) is None, f"no {name}")
    lacks("logserver.lookups", asked and not filled, "no fillGB: none by key or time")
    lacks("logserver.lookups", asked and filled and not keyed, "NO_KEY: none by key")
    return missing


def _reads(shape: Shape) -> bool:
    return shape.fetch is not None and shape.end_offset is not None


class HttpLoad:
    """One repeat on topics with names that begin with `prefix`. Blocking; the measured part runs on the loop of
    `runner`. Raises OSError, ConnectionLost, ServerRefused, StrangeAnswer, TimeoutError.
    """

    def __init__(
        self,
        workload: Workload,
        shape: Shape,
        address: Address,
        *,
        runner: asyncio.Runner,
        prefix: str,
        pid: int | None = None,
        tell: Tell,
    ) -> None:
        names = [f"{prefix}-{number}" for number in range(workload.topics)]
        self.topics = Topics(shape, address, names, workload.partitions_per_topic)
        self.acknowledged = 0
        self.values: dict[str, Any] = {}
        self.errors: list[str] = []
        self._workload = workload
        self._shape = shape
        self._address = address
        self._runner = runner
        self._pid = pid
        self._tell = tell
        self._requests = Requests(workload, shape.produce, names)
        self._filled_ms = range(0)

    def run(self) -> None:
        """Run all steps. Stores the figures in `values`, under the field names of `Repeat`, and failures in
        `errors`.
        """
        workload = self._workload
        self._tell("topics")
        self.topics.create()
        if workload.filled_records:
            self._fill()
        if workload.seconds and (workload.producers or workload.consumer_backlog_size_gb):
            self._measure()
        if workload.own.lookups:
            self._look_up()
        stored = self.topics.stored()
        self.values["stored_records"] = stored
        if stored is not None and stored != self.acknowledged:
            self.errors.append(f"{self.acknowledged} records acknowledged, {stored} stored")

    def _fill(self) -> None:
        self._tell("filling")
        began_ms = wall_clock_ms()
        requests = self._requests
        turn = Closed(requests.filling(), seconds=FILL_S, most=requests.fill_count)
        self._count("filling", self._run(turn, FILL_CONNECTIONS), requests.fill_size)
        self._filled_ms = range(began_ms, wall_clock_ms() + 1)
        os.sync()  # otherwise the disk still writes this data during the measured part

    # ---- the measured part -----------------------------------------------------------------------

    def _measure(self) -> None:
        workload = self._workload
        requests = self._requests.repeated() if workload.producers else []
        if requests and workload.warm_up_s:
            self._tell("warming up")
            warm = self._run(self._publishing(requests, workload.warm_up_s), workload.under_way)
            self._count("warming up", warm, workload.own.records_per_request)
        followers, catching = self._readers()
        published = Published(self._shape.produce.placed, self.topics.names) if followers else None
        self._tell("measuring")
        before_s, began_ns = self._cpu_s(), time.perf_counter_ns()
        sample = self._runner.run(self._together(requests, published, followers, catching))
        self.values["seconds"] = (time.perf_counter_ns() - began_ns) / 1e9
        after_s = self._cpu_s()
        if sample is not None:
            self._tell_published(sample)
        offered_s = 0.0 if sample is None else sample.seconds
        self._tell_read("consumed", followers, began_ns, least_s=offered_s)
        self._tell_read("catch_up", catching, began_ns)
        if published is not None:
            noted = published.noted
            found = [
                end_to_end_ns(noted.get((r.topic, r.partition), []), r.pages) for r in followers
            ]
            self.values["end_to_end_latency"] = latency_of(*found)
        if before_s is not None and after_s is not None:
            self._tell_cpu(after_s - before_s)

    async def _together(
        self,
        requests: Sequence[bytes],
        published: Published | None,
        followers: Sequence[Reader],
        catching: Sequence[Reader],
    ) -> Sample | None:
        """Publish while readers read; then wait until the readers have received the remaining records."""
        reading = [
            asyncio.create_task(reader.run(self._address)) for reader in (*followers, *catching)
        ]
        sample = None
        try:
            limit_s = self._workload.seconds * LATE + ANSWER_S + DRAIN_S
            async with named_timeout(limit_s, "readers have not received all records"):
                if requests:
                    watch = None if published is None else published.watch
                    turn = self._publishing(requests, self._workload.seconds, watch)
                    sample = await turn.run(self._address, self._workload.under_way)
                places = {(reader.topic, reader.partition) for reader in followers}
                ends = await asyncio.to_thread(self.topics.ends, places)
                for reader in followers:
                    reader.stop_at(ends[reader.topic, reader.partition])
                await asyncio.gather(*reading)
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
        return sample

    def _publishing(
        self,
        requests: Sequence[bytes],
        seconds: float,
        watch: Callable[[Connection], None] | None = None,
    ) -> Turn:
        rate = self._workload.producer_rate
        if not rate:
            return Closed(requests, seconds=seconds, most=1 << 62, watch=watch)
        offered = rate / self._workload.own.records_per_request
        return Open(requests, seconds=seconds, rate=offered, watch=watch)

    def _readers(self) -> tuple[list[Reader], list[Reader]]:
        """Return the readers of each subscription, which start at the log end, and one backlog reader per partition."""
        workload, fetch = self._workload, self._shape.fetch
        backlog = workload.consumer_backlog_size_gb
        if fetch is None or not _reads(self._shape):
            return [], []
        if not (workload.subscriptions_per_topic or backlog):
            return [], []
        ends = self.topics.ends(self.topics.places)
        followers = [
            Reader(fetch, *place, offset=end, until=None)
            for _ in range(workload.subscriptions_per_topic)
            for place, end in ends.items()
        ]
        catching = [
            Reader(fetch, *place, offset=0, until=end)
            for place, end in ends.items()
            if backlog and end
        ]
        return followers, catching

    # ---- storing the figures -------------------------------------------------------------------------

    def _tell_published(self, sample: Sample) -> None:
        workload = self._workload
        self._count("publishing", sample, workload.own.records_per_request)
        records = sample.good * workload.own.records_per_request
        rate = records / sample.seconds
        self.values |= {
            "published_records": records,
            "published_records_per_s": rate,
            "published_mb_per_s": rate * workload.message_size / 1e6,
            "refused_requests": sample.refused,
            "publish_latency": latency_of(sample.latencies_ns),
            "publish_service": latency_of(sample.services_ns or sample.latencies_ns),
            "generator_busy_share": sample.generator_s / sample.seconds,
        }
        if workload.producer_rate:
            held = not sample.unsent and rate >= HELD_SHARE * workload.producer_rate
            self.values |= {
                "offered_records_per_s": float(workload.producer_rate),
                "unsent_requests": sample.unsent,
                "rate_held": held,
            }

    def _tell_read(
        self, name: str, readers: Sequence[Reader], began_ns: int, *, least_s: float = 0.0
    ) -> None:
        """Store the figures of some readers. `least_s`: how long records were published, whenever the last record
        arrived.
        """
        if not readers:
            return
        refused = sum(reader.refused for reader in readers)
        if refused:
            self.errors.append(f"{name}: {refused} of {len(readers)} readers were refused")
        records = sum(reader.records for reader in readers)
        last_ns = max((reader.pages[-1].at_ns for reader in readers if reader.pages), default=0)
        rate = records / max((last_ns - began_ns) / 1e9, least_s) if records else 0.0
        self.values |= {
            f"{name}_records": records,
            f"{name}_records_per_s": rate,
            f"{name}_mb_per_s": rate * self._workload.message_size / 1e6,
        }

    def _tell_cpu(self, used_s: float) -> None:
        names = ("published_records", "consumed_records", "catch_up_records")
        records = sum(self.values.get(name) or 0 for name in names)
        self.values["server_cpu_s"] = used_s
        self.values["server_cpu_s_per_million_records"] = cpu_s_per_million(used_s, records)

    def _count(self, what: str, sample: Sample, records: int) -> None:
        self.acknowledged += sample.good * records
        if sample.refused:
            self.errors.append(f"{what}: {sample.refusals}")

    # ---- one at a time ---------------------------------------------------------------------------

    def _look_up(self) -> None:
        size = self._workload.own.records_per_request
        lookups = Lookups(
            self._shape,
            self._requests,
            count=self._workload.own.lookups,
            filled_ms=self._filled_ms,
            run=lambda turn: self._run(turn, 1),
            note=self._note,
        )
        self._tell("looking up")
        lookups.by_key_and_time()
        lookups.pages(self.topics.ends(self.topics.places), size)
        self._count("append", lookups.appends(), size)

    def _note(self, name: str, sample: Sample, missed: int) -> None:
        self.values[f"{name}_latency"] = latency_of(sample.latencies_ns)
        if name != "append" and sample.refused:
            self.errors.append(f"{name}: {sample.refusals}")
        if missed:
            self.errors.append(f"{name}: {missed} of {sample.answered} found nothing")

    # ---- helpers ---------------------------------------------------------------------------------

    def _run(self, turn: Turn, connections: int) -> Sample:
        return self._runner.run(turn.run(self._address, connections))

    def _cpu_s(self) -> float | None:
        return None if self._pid is None else cpu_s(self._pid)
