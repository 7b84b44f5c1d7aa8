"""Comparability of figures: whether a target did the requested work, and whether the figure is the target's own.

Owns the rules by which no ratio, conclusion or goal is drawn from a figure; must not hide the figure: it is still
reported, and the reason is listed among the parts that were left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from logserver.bench.result import ONE_RECORD, Repeat, Run, held

REAL: Final = frozenset({"kafka", "rocketmq"})  # kinds driven by their own tools
FULL_CORE: Final = 0.9  # share of a core from which on a server or a generator has no reserve
RISEN: Final = 1.25  # last repeat by first, with all steps one way: the broker was not warm
LEAST_RISING: Final = 3  # repeats needed to conclude that
FEW_RECORDS: Final = 100_000  # with fewer, RocketMQ's files of fixed size outweigh the records
RATES: Final = ("published_", "consumed_", "catch_up_")
LATENCIES: Final = ("publish_", "end_to_end_")
CPU: Final = ("server_cpu_",)
PACED: Final = ("published_", "consumed_")  # metrics set by an offered rate


def is_alike(run: Run, metric: str) -> bool:
    """Return whether this metric of a run may be compared with another target's."""
    if not is_sound(run, metric):
        return False
    if run.target.kind not in REAL:
        return True
    if metric.startswith(LATENCIES):  # includes the wait in the tool's own buffer
        return False
    if metric == "recovery_s":  # includes the JVM's start and Kafka's session timeout
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
        or metric == "server_rss_bytes"  # it maps the files of all repeats
        or (metric == "disk_bytes_per_record" and _least_records(run) < FEW_RECORDS)
    )


def _waits_in_turn(run: Run, metric: str) -> bool:
    """Return whether this is the rate of one producer in place of many, with requests that wait for the disk. A broker
    handles the requests of a connection one at a time (Kafka's SocketServer mutes the connection until it has
    responded).
    """
    own = run.workload.fields.get("logserver", {})
    waits = own.get("flush") == "sync" and own.get("acks") == "all"
    return waits and metric.startswith("published_") and _left_out(run, "producersPerTopic")


def is_sound(run: Run, metric: str) -> bool:
    """Return whether a figure is the target's own: the broker was warm, a core had reserve, and the generator kept
    up.
    """
    if metric.startswith(CPU) and (full_core_share(run) or falling_cpu(run)):
        return False
    if metric.startswith((*RATES, *CPU)) and rising_rates(run):
        return False
    return not (metric.startswith(RATES) and busy_generator_share(run))


def is_same_work(run: Run, other: Run) -> bool:
    """Return whether a target did the same work at two places of a series, even if it is not the requested work."""
    one, two = (
        {(part.field, part.reason) for part in r.not_done if part.field != "topics"}
        for r in (run, other)
    )
    return one == two


def is_offered(run: Run, metric: str) -> bool:
    """Return whether the workload itself sets this figure: an offered rate cannot be higher or lower."""
    return metric.startswith(PACED) and bool(run.workload.fields.get("producerRate"))


def rising_rates(run: Run) -> list[float]:
    """Return the published records a second of each repeat if a real broker got faster from repeat to repeat; else
    empty.
    """
    rates = [
        repeat.published_records_per_s
        for repeat in run.repeats
        if repeat.published_records_per_s and repeat.rate_held is None
    ]
    return rates if run.target.kind in REAL and _rise(rates) else []


def falling_cpu(run: Run) -> list[float]:
    """Return the processor time per million records of each repeat if a real broker's fell from repeat to repeat; else
    empty.
    """
    taken = [r.server_cpu_s_per_million_records for r in run.repeats]
    known = [seconds for seconds in taken if seconds]
    return known if run.target.kind in REAL and _rise(known[::-1]) else []


def _rise(values: Sequence[float]) -> bool:
    steps_up = all(before < after for before, after in pairwise(values))
    return len(values) >= LEAST_RISING and steps_up and values[-1] > RISEN * values[0]


def busy_generator_share(run: Run) -> float:
    """Return the busy share of a generator that had no reserve and may have been the limit; else 0."""
    busy = max((r.generator_busy_share or 0.0 for r in run.repeats if not _kept_up(r)), default=0.0)
    return busy if busy > FULL_CORE else 0.0


def _kept_up(repeat: Repeat) -> bool:
    """Return whether the generator was not the limit: the rate was held and no backlog was read. At a rate its busy
    share means nothing, since it polls the clock.
    """
    return repeat.rate_held is True and repeat.catch_up_records is None


def full_core_share(run: Run) -> float:
    """Return the busy share of a server that had no reserve at a rate that it held; else 0. Its processor time is then
    the time available, not the time needed.
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
