"""One repeat on a real broker, driven by the broker's own tools.

Owns the order of a repeat and what is measured around the tools: processor time, memory, disk, restarts; and how long
a broker is warmed up. How one is started and which tools there are is told by `Broker`, one for each kind.
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
from logserver.bench.targets import Bench, Tell
from logserver.bench.targets.tools import Tool
from logserver.bench.workload import Workload

CALIBRATION_S: Final = 1.0  # of publishing tells about how many records take the time asked for
LEAST_RECORDS: Final = 1_000
PIECE_S: Final = 10.0  # of a warm-up: the first seconds of each are the tool's own
PIECE_BYTES: Final = 500_000_000  # of values, at most
MOST_PIECES: Final = 12
FASTER: Final = 1.1  # times the best piece before: it gets warmer still
NO_FASTER: Final = 2  # pieces one after another: it is warm


class Produced(NamedTuple):
    """What a tool told of its records, behind `warm` of them; no rate where they were too few for it. `failed` ones may
    be stored or not.
    """

    records: int
    records_per_s: float | None
    latency: Latency | None
    failed: int = 0
    warm: int = 0


class Broker(Protocol):
    """A real one of some kind, on 127.0.0.1, with its tools. All raise ServerFailed.

    `paces`: its producer keeps a rate. `reads`: its reader tells what it has read.
    """

    facts: TargetFacts
    data: Path
    paces: bool
    reads: bool

    def start(self, flush: str) -> None:
        """On the data that is there; on return it serves."""

    def stop(self) -> None:
        """Cleanly."""

    def kill(self) -> None:
        """As kill -9 does."""

    @property
    def pid(self) -> int:
        """Of its process."""

    def not_done(self, workload: Workload) -> list[NotDone]:
        """What its tools cannot do."""

    def create(self, topic: str, partitions: int) -> None:
        """A topic."""

    def produce(
        self, topic: str, workload: Workload, records: int, *, rate: int = 0, warm: int = 0
    ) -> Produced:
        """So many records behind `warm` of them, `rate` a second or, 0, as fast as possible."""

    def follow(self, topic: str, group: str, records: int) -> Tool:
        """A reader of the next so many records from now on."""

    def catch_up(self, topic: str, group: str, records: int) -> Tool:
        """A reader of the first so many records."""

    def read(self, tool: Tool) -> tuple[int, float]:
        """Records and records a second, when a reader has ended."""

    def stored(self, topic: str) -> int:
        """Records that the topic holds."""

    def load_s(self) -> float | None:
        """What its log says of how long this start took to load the store; None where it says nothing."""


class RealBroker:
    """The target. The broker stays up between repeats, unless they kill it, and in a quick run between workloads of the
    same settings.
    """

    def __init__(self, bench: Bench, broker: Broker) -> None:
        self.facts = broker.facts
        self._bench = bench
        self._broker = broker
        self._running: tuple[str, str] | None = None
        self._rates: dict[str, float] = {}
        self._failed = 0  # in this repeat: may be stored or not, so that counts cannot agree
        self._errors: list[str] = []  # of this repeat

    def not_done(self, workload: Workload) -> list[NotDone]:
        """What its tools cannot do."""
        missing = list(self._broker.not_done(workload))
        if workload.topics > 1:
            reason = f"the tool knows one topic: one of {workload.partitions} partitions"
            missing.append(NotDone("topics", reason))
        if workload.key_distributor != "NO_KEY":
            missing.append(NotDone("keyDistributor", "records of the tool have no key"))
        if workload.producer_rate and not self._broker.paces:
            missing.append(NotDone("producerRate", "the tool keeps no rate: as fast as possible"))
        if _readers(workload) and not self._broker.reads:
            missing.append(NotDone("subscriptionsPerTopic", "no tool of the broker tells counts"))
        if workload.own.lookups:
            missing.append(NotDone("logserver.lookups", "no tool of the broker measures them"))
        return missing

    def repeat(self, workload: Workload, number: int, tell: Tell) -> Repeat:
        """On a topic of its own."""
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
            os.sync()  # else the disk is busy with it while something else is measured
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
        """End it at once, for its data is removed: a clean stop may take half a minute."""
        if self._broker.data.exists():
            self._broker.kill()
        shutil.rmtree(self._broker.data, ignore_errors=True)

    def _ensure_running(self, workload: Workload) -> None:
        """With this flush mode; with an empty store for each workload, but in a quick run, and for each repeat that
        kills it: what a start then reads is that repeat's.
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
        """Records a second of a broker that is warm; once a workload, by the repeat before from then on. 0 in a quick
        run: the least will do.
        """
        if self._bench.quick:
            return 0.0
        if workload.name not in self._rates:
            tell("warming up")
            self._rates[workload.name] = self._warmed(workload)
        return self._rates[workload.name]

    def _warmed(self, workload: Workload) -> float:
        """On a topic of its own, whose failures count nowhere: a little tells how much takes a second, and pieces
        follow until they get no faster.
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
        """Publish while readers read; then they get what is left."""
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
        if consumed:  # at no rate: a reader's clock begins before the records come
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
        """Those that follow, and the one that reads the backlog; `ending` ends them."""
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
        """After kill -9, and once more after a clean stop as the yardstick."""
        tell("starting again")
        running, self._running = self._running, None  # until it is: a start may fail
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
