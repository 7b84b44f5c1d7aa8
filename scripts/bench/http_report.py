"""The report of a load test: figures of each server in each row, their ratios, and the output.

Owns the values and the three forms (table, Markdown, and JSON with stable names); must not measure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from logserver.bench.goals import HTTP, goal_of
from logserver.bench.load_loops import Sample, latency_of
from logserver.bench.result import Spread
from logserver.bench.targets.http_servers import CEILINGS, NO_STORE
from scripts.bench.harness import short
from scripts.bench.http_work import PRODUCE, Case, Work

FORMAT_VERSION: Final = 1
CLOSED, OPEN = "closed", "open"

COLUMNS: Final = (
    "row", "loop", "server", "records/s min / median / max", "requests/s", "MB/s",
    "p50 us", "p99 us", "p99.9 us", "CPU s/M", "CPU: no store's share", "of no store", "of bare", "goal",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """One turn with its context. `stored`: the records in the topic afterwards, None if unknown."""

    sample: Sample
    work: Work
    cpu_s: float | None
    stored: int | None

    @property
    def records(self) -> int:
        """Number of records acknowledged or returned."""
        return self.sample.good * self.work.records

    @property
    def body_bytes(self) -> int:
        """Bytes of the bodies that carry records: produce requests, fetch responses."""
        return self.sample.good * self.work.sent_bytes or self.sample.received_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one server in one row, over all turns. Latencies are microseconds, of all turns together: see
    `Sample`.
    """

    requests_per_s: Spread
    records_per_s: Spread
    bytes_per_s: Spread
    cpu_s_per_million: Spread | None
    generator_busy: float
    latency_us: Mapping[str, float]
    service_us: Mapping[str, float]
    answered: int
    refused: int
    unsent: int
    records: int
    stored: int | None

    @classmethod
    def of(cls, turns: Sequence[Measured]) -> Figures:
        """Compute the figures of at least one turn."""
        samples = [turn.sample for turn in turns]
        cpu = [t.cpu_s / t.records * 1e6 for t in turns if t.cpu_s is not None and t.records]
        stored = [turn.stored for turn in turns if turn.stored is not None]
        return cls(
            requests_per_s=Spread.of([sample.good / sample.seconds for sample in samples]),
            records_per_s=Spread.of([turn.records / turn.sample.seconds for turn in turns]),
            bytes_per_s=Spread.of([turn.body_bytes / turn.sample.seconds for turn in turns]),
            cpu_s_per_million=Spread.of(cpu) if cpu else None,
            generator_busy=max(sample.generator_s / sample.seconds for sample in samples),
            latency_us=percentiles_us(*(sample.latencies_ns for sample in samples)),
            service_us=percentiles_us(*(sample.services_ns for sample in samples)),
            answered=sum(sample.answered for sample in samples),
            refused=sum(sample.refused for sample in samples),
            unsent=sum(sample.unsent for sample in samples),
            records=sum(turn.records for turn in turns),
            stored=sum(stored) if stored else None,
        )

    @property
    def count_ok(self) -> bool:
        """Whether no request was refused, some were answered, and all acknowledged records are stored."""
        return not self.refused and self.answered > 0 and self.stored in {None, self.records}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case under one loop. `rate`: requests a second of an open loop. `ratios`: of records a second, turn by turn,
    by server and yardstick.
    """

    case: Case
    loop: str
    rate: float | None
    figures: Mapping[str, Figures]
    ratios: Mapping[str, Mapping[str, Spread]]

    @classmethod
    def of(cls, case: Case, rate: float | None, turns: Mapping[str, Sequence[Measured]]) -> Row:
        """Build a row from the turns of each server. All servers took their turns in the same order."""
        loop = CLOSED if rate is None else OPEN
        rates = {
            name: [turn.records / turn.sample.seconds for turn in taken]
            for name, taken in turns.items()
        }
        ratios = {
            name: {
                yardstick: _ratio(rates[name], rates[yardstick])
                for yardstick in CEILINGS
                if yardstick in rates
            }
            for name in rates
            if loop == CLOSED and name not in CEILINGS
        }
        figures = {name: Figures.of(taken) for name, taken in turns.items()}
        return cls(case=case, loop=loop, rate=rate, figures=figures, ratios=ratios)

    def goal(self, server: str) -> float | None:
        """Return the least share of the stack without a store, if a goal is set; it applies to compiled codecs."""
        case = self.case
        if self.loop != CLOSED or case.operation != PRODUCE or case.acks != "1":
            return None
        found = goal_of(HTTP, f"{PRODUCE} {case.records} {server} by {NO_STORE}")
        return None if found is None else found.goal

    def cpu_share(self, server: str, yardstick: str) -> float | None:
        """Return the yardstick's processor time per record as a share of the server's. It equals the ratio of records a
        second on an idle machine with one core for the server.
        """
        ours, theirs = (self.figures.get(name) for name in (server, yardstick))
        if ours is None or theirs is None or ours is theirs:
            return None
        cpu, least = ours.cpu_s_per_million, theirs.cpu_s_per_million
        return least.median / cpu.median if cpu and least and cpu.median else None

    def reached(self, server: str) -> bool | None:
        """Return whether the median ratio reaches the goal; None without a goal or without the yardstick."""
        goal, ratio = self.goal(server), self.ratios.get(server, {}).get(NO_STORE)
        return None if goal is None or ratio is None else ratio.median >= goal


def percentiles_us(*values_ns: Sequence[int]) -> dict[str, float]:
    """Return p50, p99, p99.9 and max in microseconds; empty without values."""
    latency = latency_of(*values_ns)
    if latency is None:
        return {}
    found = {
        "p50": latency.p50_us,
        "p99": latency.p99_us,
        "p99.9": latency.p99_9_us,
        "max": latency.max_us,
    }
    return {name: value for name, value in found.items() if value is not None}


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    return Spread.of(
        [mine / yours for mine, yours in zip(ours, theirs, strict=True) if yours] or [0]
    )


@dataclass(slots=True)
class Report:
    """All rows of a run, with its environment and settings."""

    about: dict[str, str]
    settings: dict[str, Any]
    generator_requests_per_s: Spread | None = None
    rows: list[Row] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every count was right."""
        return all(figures.count_ok for row in self.rows for figures in row.figures.values())

    def to_json(self) -> str:
        """Format the report as JSON for programs."""
        made = {
            "format": FORMAT_VERSION,
            "bench": HTTP,
            "compiled": self.about.get("package") == "compiled",
            "about": self.about,
            "settings": self.settings,
            "generator": {
                "requests_per_s": None
                if self.generator_requests_per_s is None
                else asdict(self.generator_requests_per_s)
            },
            "rows": [_row_json(row) for row in self.rows],
        }
        return json.dumps(made, indent=2)

    def print(self, console: Console) -> None:
        """Print the report as a table for people."""
        console.print(self._facts(), soft_wrap=True)
        table = Table(*COLUMNS, title="HTTP load", row_styles=("", "dim"))
        for column in table.columns[3:]:
            column.justify = "right"
        for column in table.columns:
            column.no_wrap = True
        for cells in self._cells():
            table.add_row(*cells)
        console.print(table)

    def markdown(self) -> str:
        """Format the table as Markdown."""
        lines = [f"| {' | '.join(COLUMNS)} |", "| --- " * len(COLUMNS) + "|"]
        for cells in self._cells():
            padded = (f" {cell} " if cell else " " for cell in cells)
            lines += [f"|{'|'.join(padded)}|"]
        return "\n".join([self._facts(), "", *lines])

    def _facts(self) -> str:
        facts = [f"{name} {value}" for name, value in self.about.items()]
        ceiling = self.generator_requests_per_s
        if ceiling is not None:
            facts.append(f"the generator alone {short(ceiling.median)} requests/s")
        return ", ".join(facts)

    def _cells(self) -> Iterator[tuple[str, ...]]:
        for row in self.rows:
            loop = row.loop if row.rate is None else f"{row.loop} {short(row.rate)}/s"
            for index, (server, figures) in enumerate(row.figures.items()):
                begin = (row.case.name, loop) if index == 0 else ("", "")
                yield (*begin, server, *_figure_cells(figures), *_ratio_cells(row, server))


def _figure_cells(figures: Figures) -> tuple[str, ...]:
    rates = figures.records_per_s
    cpu = figures.cpu_s_per_million
    latencies = [f"{figures.latency_us.get(name, 0):,.0f}" for name in ("p50", "p99", "p99.9")]
    return (
        " / ".join(short(rate) for rate in (rates.minimum, rates.median, rates.maximum)),
        short(figures.requests_per_s.median),
        f"{figures.bytes_per_s.median / 1e6:,.1f}",
        *latencies,
        "-" if cpu is None else f"{cpu.median:.2f}",
    )


def _ratio_cells(row: Row, server: str) -> tuple[str, ...]:
    share = row.cpu_share(server, NO_STORE) if server not in CEILINGS else None
    ratios = row.ratios.get(server, {})
    texts = [
        f"{ratio.median:.2f} ({ratio.minimum:.2f}-{ratio.maximum:.2f})"
        if (ratio := ratios.get(yardstick)) is not None
        else ""
        for yardstick in CEILINGS
    ]
    figures, goal, reached = row.figures[server], row.goal(server), row.reached(server)
    verdict = "" if goal is None else f"{goal:.2f}"
    if reached is not None:
        verdict += " reached" if reached else " NOT reached"
    if not figures.count_ok:
        verdict = f"WRONG COUNT: {figures.records:,} acknowledged, {figures.stored} stored, {figures.refused} refused"
    elif figures.unsent:
        verdict = f"too slow: {figures.unsent:,} not sent"
    return "" if share is None else f"{share:.2f}", *texts, verdict


def _row_json(row: Row) -> dict[str, Any]:
    case = row.case
    servers = {
        name: asdict(figures)
        | {
            "count_ok": figures.count_ok,
            "ratios": {yardstick: asdict(r) for yardstick, r in row.ratios.get(name, {}).items()},
            "cpu_shares": {yardstick: row.cpu_share(name, yardstick) for yardstick in CEILINGS},
            "goal": row.goal(name),
            "reached": row.reached(name),
        }
        for name, figures in row.figures.items()
    }
    return {
        "name": case.name,
        **case._asdict(),
        "loop": row.loop,
        "rate": row.rate,
        "servers": servers,
    }
