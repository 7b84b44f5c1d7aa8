"""Whether a figure is one of the work that was asked for: where a target's tool did other work, it stands alone.

Owns the rules by which a ratio, a conclusion or a goal is not drawn from a figure. The figure itself is told all the
same, and what was done instead stands among what was left out.
"""

from __future__ import annotations

from typing import Final

from logserver.bench.result import ONE_RECORD, Run, held

REAL: Final = frozenset({"kafka", "rocketmq"})  # kinds that are driven by tools of their own
FULL_CORE: Final = 0.9
FEW_RECORDS: Final = 100_000  # below that RocketMQ's files of a fixed size outweigh the records
RATES: Final = ("published_", "consumed_", "catch_up_")
LATENCIES: Final = ("publish_", "end_to_end_")
CPU: Final = ("server_cpu_",)


def is_alike(run: Run, metric: str) -> bool:
    """Whether this metric of the run may be compared with that of another target."""
    if run.target.kind not in REAL:
        return not (metric.startswith(CPU) and full_core_share(run))
    if metric.startswith(LATENCIES):  # with the wait in the tool's own buffer
        return False
    if metric.startswith((*RATES, *CPU)) and _left_out(
        run, "logserver.recordsPerRequest", ONE_RECORD
    ):
        return False
    if run.target.kind == "kafka":
        return not metric.startswith("consumed_")
    return not (
        (metric.startswith(CPU) and _left_out(run, "subscriptionsPerTopic"))
        or metric == "server_rss_bytes"  # maps the files of all repeats
        or (metric == "disk_bytes_per_record" and _least_records(run) < FEW_RECORDS)
    )


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
