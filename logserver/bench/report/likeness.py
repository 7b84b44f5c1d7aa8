"""Whether a figure is one of the work that was asked for, and the target's own: else it stands alone.

Owns the rules by which a ratio, a conclusion or a goal is not drawn from a figure. The figure itself is told all the
same, and what was done instead, or stood in the way, stands among what was left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from logserver.bench.result import ONE_RECORD, Repeat, Run, held

REAL: Final = frozenset({"kafka", "rocketmq"})  # kinds that are driven by tools of their own
FULL_CORE: Final = 0.9  # of it, from which on a server or a generator has none left
RISEN: Final = 1.25  # times the first repeat, in steps that all go one way: a broker was not warm
LEAST_RISING: Final = 3  # repeats that tell so
FEW_RECORDS: Final = 100_000  # below that RocketMQ's files of a fixed size outweigh the records
RATES: Final = ("published_", "consumed_", "catch_up_")
LATENCIES: Final = ("publish_", "end_to_end_")
CPU: Final = ("server_cpu_",)
PACED: Final = ("published_", "consumed_")  # what a rate that is offered decides


def is_alike(run: Run, metric: str) -> bool:
    """Whether this metric of the run may be compared with that of another target."""
    if not is_sound(run, metric):
        return False
    if run.target.kind not in REAL:
        return True
    if metric.startswith(LATENCIES):  # with the wait in the tool's own buffer
        return False
    if metric == "recovery_s":  # a JVM's start, and Kafka's wait for a session to run out
        return False
    if metric.startswith((*RATES, *CPU)) and _left_out(
        run, "logserver.recordsPerRequest", ONE_RECORD
    ):
        return False
    if metric == "disk_bytes_per_record" and _left_out(run, "keyDistributor"):
        return False
    if run.target.kind == "kafka":
        return not (metric.startswith("consumed_") or _waits_in_turn(run, metric))
    return not (
        (metric.startswith(CPU) and _left_out(run, "subscriptionsPerTopic"))
        or metric == "server_rss_bytes"  # maps the files of all repeats
        or (metric == "disk_bytes_per_record" and _least_records(run) < FEW_RECORDS)
    )


def _waits_in_turn(run: Run, metric: str) -> bool:
    """Whether it is the rate of one producer instead of many, of requests that wait for the disk: a broker takes those
    of a connection one after another (Kafka's SocketServer mutes it until it has answered).
    """
    own = run.workload.fields.get("logserver", {})
    waits = own.get("flush") == "sync" and own.get("acks") == "all"
    return waits and metric.startswith("published_") and _left_out(run, "producersPerTopic")


def is_sound(run: Run, metric: str) -> bool:
    """Whether it is the target's: of a broker that was warm, a core that had some left, a generator that kept up."""
    if metric.startswith(CPU) and (full_core_share(run) or falling_cpu(run)):
        return False
    if metric.startswith((*RATES, *CPU)) and rising_rates(run):
        return False
    return not (metric.startswith(RATES) and busy_generator_share(run))


def is_same_work(run: Run, other: Run) -> bool:
    """Whether one target did the same at two places of a series, be it other work than was asked for."""
    one, two = (
        {(part.field, part.reason) for part in r.not_done if part.field != "topics"}
        for r in (run, other)
    )
    return one == two


def is_offered(run: Run, metric: str) -> bool:
    """Whether the workload itself says what this comes to: of a rate that is offered there is no more or less."""
    return metric.startswith(PACED) and bool(run.workload.fields.get("producerRate"))


def rising_rates(run: Run) -> list[float]:
    """Of a real broker that got faster from repeat to repeat, what it published a second in each; none of any other."""
    rates = [
        repeat.published_records_per_s
        for repeat in run.repeats
        if repeat.published_records_per_s and repeat.rate_held is None
    ]
    return rates if run.target.kind in REAL and _rise(rates) else []


def falling_cpu(run: Run) -> list[float]:
    """Of a real broker whose processor time for a million records fell from repeat to repeat, that of each; none of any
    other.
    """
    taken = [r.server_cpu_s_per_million_records for r in run.repeats]
    known = [seconds for seconds in taken if seconds]
    return known if run.target.kind in REAL and _rise(known[::-1]) else []


def _rise(values: Sequence[float]) -> bool:
    steps_up = all(before < after for before, after in pairwise(values))
    return len(values) >= LEAST_RISING and steps_up and values[-1] > RISEN * values[0]


def busy_generator_share(run: Run) -> float:
    """How busy a generator was that had no core left, so that it may have been the limit; 0 for any other."""
    busy = max((r.generator_busy_share or 0.0 for r in run.repeats if not _kept_up(r)), default=0.0)
    return busy if busy > FULL_CORE else 0.0


def _kept_up(repeat: Repeat) -> bool:
    """A rate that was held was not limited by who offers it, who waits for the next moment without sleeping."""
    return repeat.rate_held is True and repeat.catch_up_records is None


def full_core_share(run: Run) -> float:
    """How busy a server was that had no core left at a rate that it held; 0 for any other. Its processor time is what
    there was, not what it needed.
    """
    if not held(run):
        return 0.0
    shares = [(r.server_cpu_s or 0.0) / r.seconds for r in run.repeats if r.seconds]
    least = min(shares, default=0.0)
    return least if least > FULL_CORE else 0.0


def _left_out(run: Run, field: str, reason: str = "") -> bool:
    return any(part.field == field and part.reason.startswith(reason) for part in run.not_done)


def _least_records(run: Run) -> float:
    sizes = [(r.disk_bytes, r.disk_bytes_per_record) for r in run.repeats]
    return min((whole / each for whole, each in sizes if whole and each), default=0.0)
