"""One repeat on a real broker, driven by the broker's own tools.

Owns the order of a repeat and the figures measured around the tools: processor time, memory, disk, restarts; and how
long a broker is warmed up. Must not know how a broker is started or which tools it has: each kind of `Broker` does.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from logserver.bench.http_load import HELD_SHARE
from logserver.bench.processes import (
    allocated_bytes,
    cpu_s,
    cpu_s_per_million,
    ended_cpu_s,
    rss_bytes,
)
from logserver.bench.result import Latency, NotDone, Repeat, TargetFacts
from logserver.bench.targets.base import Bench, Tell
from logserver.bench.targets.tools import Tool
from logserver.bench.workload import Workload

CALIBRATION_S: Final = 1.0  # publish for this long at least, to estimate the rate
LEAST_RECORDS: Final = 1_000
PIECE_S: Final = 10.0  # of a warm-up piece: its first seconds measure the tool's own start
PIECE_BYTES: Final = 500_000_000  # of record values, at most
MOST_PIECES: Final = 12
FASTER: Final = 1.1  # times the best piece so far: the broker is still getting faster
NO_FASTER: Final = 2  # pieces in a row: the broker is warm


class Produced(NamedTuple):
    """The figures that a tool reported for its records, after `warm` records of warm-up. The rate is None if the
    records were too few for it. `failed` records may or may not be stored.
    """

    records: int
    records_per_s: float | None
    latency: Latency | None
    failed: int = 0
    warm: int = 0


class Broker(Protocol):
    """A real broker of one kind on 127.0.0.1, with its tools. All methods raise ServerFailed.

    `paces`: its producer can keep a rate. `reads`: its reader reports the number of records read.
    """

    facts: TargetFacts
    data: Path
    paces: bool
    reads: bool

    def start(self, flush: str) -> None:
        """Start on the existing data; on return the broker serves."""

    def stop(self) -> None:
        """Stop cleanly."""

    def kill(self) -> None:
        """Kill the process, as kill -9 does."""

    @property
    def pid(self) -> int:
        """The id of its process."""

    def not_done(self, workload: Workload) -> list[NotDone]:
        """Return the fields of a workload that its tools do not support."""

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic."""

    def produce(
        self, topic: str, workload: Workload, records: int, *, rate: int = 0, warm: int = 0
    ) -> Produced:
        """Publish `warm` records, then `records` that count, at `rate` a second or, if 0, as fast as possible."""

    def follow(self, topic: str, group: str, records: int) -> Tool:
        """Start a reader of the next `records` records from the log end."""

    def catch_up(self, topic: str, group: str, records: int) -> Tool:
        """Start a reader of the first `records` records."""

    def read(self, tool: Tool) -> tuple[int, float]:
        """Wait until a reader ends; return its records and its records a second."""

    def stored(self, topic: str) -> int:
        """Return the number of records in a topic."""

    def load_s(self) -> float | None:
        """Return the seconds that this start took to load the store, by the broker's log; None if the log has none."""


class RealBroker:
    """A real broker as a target. The broker stays up between repeats, unless they kill it, and in a quick run also
    between workloads with the same settings.
    """

    def __init__(self, bench: Bench, broker: Broker) -> None:
        self.facts = broker.facts
        self._bench = bench
        self._broker = broker
        self._running: tuple[str, str] | None = None
        self._rates: dict[str, float] = {}
        self._failed = 0  # of this repeat: they may be stored or not, so counts cannot agree
        self._errors: list[str] = []  # of this repeat

    def not_done(self, workload: Workload) -> list[NotDone]:
        """Return the fields of a workload that the tools do not support."""
        missing = list(self._broker.not_done(workload))
        if workload.topics > 1:
            reason = f"the tool knows one topic: one of {workload.partitions} partitions"
            missing.append(NotDone("topics", reason))
        if workload.key_distributor != "NO_KEY":
            missing.append(NotDone("keyDistributor", "records of the tool have no key"))
        if workload.producer_rate and not self._broker.paces:
            missing.append(
                NotDone("producerRate", "the tool cannot keep a rate: as fast as possible")
            )
        if _readers(workload) and not self._broker.reads:
            missing.append(NotDone("subscriptionsPerTopic", "no tool of the broker reports counts"))
        if workload.own.lookups:
            missing.append(NotDone("logserver.lookups", "no tool of the broker measures them"))
        return missing

    def repeat(self, workload: Workload, number: int, tell: Tell) -> Repeat:
        """Run one repeat on a new topic."""
        tell("starting the broker")
        self._failed = 0
        self._errors = []
        self._ensure_running(workload)
        publishes = bool(workload.producers and workload.seconds)
        rate = self._warm_rate(workload, tell) if publishes else 0.0
        topic = _topic(workload, str(number))
        self._broker.create(topic, workload.partitions)
        before_bytes = allocated_bytes(self._broker.data)
        values: dict[str, Any] = {}
        acknowledged = 0
        if workload.filled_records:
            tell("filling")
            acknowledged += self._produce(topic, workload, workload.filled_records).records
            os.sync()  # otherwise the disk still writes this data during the measured part
        if publishes:
            tell("measuring")
            produced, measured = self._measured(topic, workload, rate, acknowledged)
            values |= measured
            acknowledged += produced.warm + produced.records
        disk_bytes = allocated_bytes(self._broker.data) - before_bytes
        values |= {
            "server_rss_bytes": rss_bytes(self._broker.pid),
            "disk_bytes": disk_bytes,
            "disk_bytes_per_record": disk_bytes / acknowledged if acknowledged else None,
        }
        if workload.own.kill:
            values |= self._restarts(workload, tell)
        stored = self._broker.stored(topic)
        if stored != acknowledged and not self._failed:
            self._errors.append(f"{acknowledged} records acknowledged, {stored} stored")
        return Repeat(**values, stored_records=stored, errors=self._errors)

    def close(self) -> None:
        """Kill the broker, since its data is removed: a clean stop may take half a minute."""
        if self._broker.data.exists():
            self._broker.kill()
        shutil.rmtree(self._broker.data, ignore_errors=True)

    def _ensure_running(self, workload: Workload) -> None:
        """Start the broker with this flush mode, unless it is running. Its store is emptied for each workload, except
        in a quick run, and for each repeat that kills the broker: a restart then reads the data of that repeat only.
        """
        wanted = (workload.own.flush, "" if self._bench.quick else workload.name)
        if self._running == wanted and not workload.own.kill:
            return
        self._running = None
        self.close()
        with self._bench.cores.pinned_servers():
            self._broker.start(workload.own.flush)
        self._running = wanted

    def _warm_rate(self, workload: Workload, tell: Tell) -> float:
        """Return the records a second of a warm broker; 0 in a quick run, where the fewest records are enough.

        The broker is warmed up once per workload. After that the rate is the one of the previous unpaced repeat.
        """
        if self._bench.quick:
            return 0.0
        if workload.name not in self._rates:
            tell("warming up")
            self._rates[workload.name] = self._warmed(workload)
        return self._rates[workload.name]

    def _warmed(self, workload: Workload) -> float:
        """Warm up on a separate topic, where failures are not counted; return the rate of the last piece.

        A few records give a first rate. Then pieces of `PIECE_S` follow until they get no faster.
        """
        topic = _topic(workload, "warm")
        self._broker.create(topic, workload.partitions)
        records, seconds, rate = LEAST_RECORDS, 0.0, 0.0
        while seconds < CALIBRATION_S:
            found = self._broker.produce(topic, workload, records)
            records *= 10
            if found.records_per_s:
                seconds = found.records / found.records_per_s
                rate = found.records_per_s
        best, no_faster = rate, 0
        for _ in range(MOST_PIECES):
            piece = min(round(rate * PIECE_S) or 1, PIECE_BYTES // workload.message_size)
            rate = self._broker.produce(topic, workload, piece).records_per_s or rate
            no_faster = 0 if rate > FASTER * best else no_faster + 1
            best = max(best, rate)
            if no_faster == NO_FASTER:
                break
        return rate

    def _produce(
        self, topic: str, workload: Workload, records: int, *, rate: int = 0, warm: int = 0
    ) -> Produced:
        produced = self._broker.produce(topic, workload, records, rate=rate, warm=warm)
        self._failed += produced.failed
        return produced

    def _measured(
        self, topic: str, workload: Workload, rate: float, before: int
    ) -> tuple[Produced, dict[str, Any]]:
        """Publish while readers read; then wait until the readers have received the remaining records."""
        broker = self._broker
        paced = workload.producer_rate if broker.paces else 0
        records = max(LEAST_RECORDS, round((paced or rate) * workload.seconds))
        warm = round((paced or rate) * workload.warm_up_s)
        with ExitStack() as ending:
            following, catching = self._readers(ending, topic, workload, records + warm, before)
            began_s, used_s, tools_s = time.perf_counter(), cpu_s(broker.pid), ended_cpu_s()
            produced = self._produce(topic, workload, records, rate=paced, warm=warm)
            consumed = [broker.read(tool) for tool in following]
            caught = [broker.read(tool) for tool in catching]
            seconds, after_s = time.perf_counter() - began_s, cpu_s(broker.pid)
        if produced.records_per_s and not paced:
            self._rates[workload.name] = produced.records_per_s
        values = _published(workload, produced, paced) | {
            "seconds": seconds,
            "generator_busy_share": (ended_cpu_s() - tools_s) / seconds,
        }
        values |= _caught_up(workload, caught)
        if consumed:  # records only, no rate: a reader's clock begins before the records come
            values["consumed_records"] = sum(number for number, _ in consumed)
            if min(consumed)[0] < records + warm:
                self._errors.append(f"{min(consumed)[0]} of {records + warm} records were read")
        if used_s is not None and after_s is not None:
            read = sum(number for number, _ in (*consumed, *caught))
            count = read + produced.records + produced.warm
            values["server_cpu_s"] = after_s - used_s
            values["server_cpu_s_per_million_records"] = cpu_s_per_million(after_s - used_s, count)
        return produced, values

    def _readers(
        self, ending: ExitStack, topic: str, workload: Workload, coming: int, before: int
    ) -> tuple[list[Tool], list[Tool]]:
        """Start the followers and the backlog reader; `ending` stops them."""
        broker = self._broker
        if not broker.reads:
            return [], []
        following = [
            ending.enter_context(broker.follow(topic, f"{topic}-tail-{index}", coming))
            for index in range(workload.subscriptions_per_topic)
        ]
        if not workload.consumer_backlog_size_gb:
            return following, []
        catching = broker.catch_up(topic, f"{topic}-backlog", before)
        return following, [ending.enter_context(catching)]

    def _restarts(self, workload: Workload, tell: Tell) -> dict[str, float | None]:
        """Measure a start after kill -9, and one after a clean stop to compare with."""
        tell("starting again")
        running, self._running = self._running, None  # until the restarts succeed: a start may fail
        self._broker.kill()
        recovery_s = self._started_s(workload)
        load_s = self._broker.load_s()
        self._broker.stop()
        restart_s = self._started_s(workload)
        self._running = running
        return {"recovery_s": recovery_s, "recovery_load_s": load_s, "restart_s": restart_s}

    def _started_s(self, workload: Workload) -> float:
        began_s = time.perf_counter()
        with self._bench.cores.pinned_servers():
            self._broker.start(workload.own.flush)
        return time.perf_counter() - began_s


def _topic(workload: Workload, suffix: str) -> str:
    return f"bench-{workload.name.replace('.', '-')}-{suffix}"


def _readers(workload: Workload) -> bool:
    return bool(workload.subscriptions_per_topic or workload.consumer_backlog_size_gb)


def _published(workload: Workload, produced: Produced, offered: int) -> dict[str, Any]:
    rate = produced.records_per_s
    values: dict[str, Any] = {
        "published_records": produced.records,
        "published_records_per_s": rate,
        "published_mb_per_s": None if rate is None else rate * workload.message_size / 1e6,
        "publish_service": produced.latency,
        "refused_requests": produced.failed,
    }
    if offered and rate is not None:
        values["offered_records_per_s"] = float(offered)
        values["rate_held"] = HELD_SHARE * offered <= rate <= offered / HELD_SHARE
    return values


def _caught_up(workload: Workload, read: Sequence[tuple[int, float]]) -> dict[str, Any]:
    if not read:
        return {}
    rate = sum(rate for _, rate in read)
    return {
        "catch_up_records": sum(records for records, _ in read),
        "catch_up_records_per_s": rate,
        "catch_up_mb_per_s": rate * workload.message_size / 1e6,
    }
