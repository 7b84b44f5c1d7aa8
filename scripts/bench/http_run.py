"""The run of a load test: its cases, and the order in which servers take turns.

Owns the order: in each round of a row every server takes a turn, so a slow moment of the machine affects all servers.
Must not know how a turn is measured or reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from logserver.bench.load_loops import Closed, Open, Sample, Turn
from logserver.bench.processes import Server
from logserver.bench.wire import Address
from scripts.bench.http_report import CLOSED, OPEN, Measured, Report, Row
from scripts.bench.http_work import (
    PRODUCE,
    RAW,
    RAW_PRODUCE,
    RAW_RECORDS,
    Case,
    Target,
    Work,
)

WARM_UP_S: Final = 0.2
MOST_BYTES: Final = 512 << 20  # of request bodies in a turn: limits the size of a topic


@dataclass(frozen=True, slots=True)
class Amounts:
    """The amounts of a load test: sizes, connections, rounds and times."""

    records: tuple[int, ...] = (1, 100, 1000)
    concurrency: tuple[int, ...] = (1, 16, 64)
    acks: tuple[str, ...] = ("1", "all")
    rounds: int = 5
    seconds: float = 1.0
    warm_up_s: float = WARM_UP_S


QUICK: Final = Amounts((1, 100), (4,), ("1", "all"), 1, 0.05, 0.0)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A server and its requests. `raw`: it accepts whole batches."""

    server: Server
    target: Target
    raw: bool


class Run:
    """The runner of rows. Blocking; turns run on the loop of `runner`."""

    def __init__(
        self,
        servers: Mapping[str, Loaded],
        amounts: Amounts,
        runner: asyncio.Runner,
        report: Report,
    ) -> None:
        self._servers = servers
        self._amounts = amounts
        self._runner = runner
        self._report = report

    def take(self, case: Case, loops: Sequence[str], rate: float | None) -> Iterator[str]:
        """Measure one case under each loop; yield the name of each row before it is measured. Without a `rate` the open
        loop runs at half the rate of the slowest server in the closed loop that does not refuse everything.
        """
        names = [
            name
            for name, loaded in self._servers.items()
            if loaded.raw or case.operation not in RAW
        ]
        if not names:
            return
        closed = None
        if CLOSED in loops or rate is None:
            yield f"{case.name} {CLOSED}"
            closed = Row.of(case, None, self._turns(case, names, None))
        if closed is not None and CLOSED in loops:
            self._report.rows.append(closed)
        if OPEN in loops:
            if closed is not None and rate is None:
                rates = [figures.requests_per_s.median for figures in closed.figures.values()]
                if not any(rates):
                    return
                rate = min(rate for rate in rates if rate) / 2
            assert rate is not None
            yield f"{case.name} {OPEN}"
            self._report.rows.append(Row.of(case, rate, self._turns(case, names, rate)))

    def _turns(
        self, case: Case, names: Sequence[str], rate: float | None
    ) -> dict[str, list[Measured]]:
        amounts = self._amounts
        taken: dict[str, list[Measured]] = {name: [] for name in names}
        if amounts.warm_up_s:
            for name in names:
                self._turn(case, name, None, amounts.warm_up_s)
        for number in range(amounts.rounds):
            first = number % len(names)
            for name in (*names[first:], *names[:first]):
                taken[name].append(self._turn(case, name, rate, amounts.seconds))
        return taken

    def _turn(self, case: Case, name: str, rate: float | None, seconds: float) -> Measured:
        loaded = self._servers[name]
        work = loaded.target.work(case)
        before_s = loaded.server.cpu_s()
        sample = self._runner.run(_turn(loaded.target.address, case, work, rate, seconds))
        after_s = loaded.server.cpu_s()
        cpu_s = None if before_s is None or after_s is None else after_s - before_s
        measured = Measured(sample, work, cpu_s, loaded.target.stored(work))
        loaded.target.drop(work)
        return measured


async def _turn(
    address: Address, case: Case, work: Work, rate: float | None, seconds: float
) -> Sample:
    most = max(1, MOST_BYTES // max(work.sent_bytes, 1))
    turn: Turn
    if rate is None:
        turn = Closed(work.requests, seconds=seconds, most=most)
    else:
        turn = Open(work.requests, seconds=min(seconds, most / rate), rate=rate)
    return await turn.run(address, case.concurrency)


def cases(amounts: Amounts, operations: Sequence[str], only: str) -> list[Case]:
    """Return all cases with `only` in their name, by operation, records, acks and connections."""
    made = [
        Case(operation, records, concurrency, acks)
        for operation in operations
        for records in ((RAW_RECORDS,) if operation in RAW else amounts.records)
        for acks in (amounts.acks if operation in {PRODUCE, RAW_PRODUCE} else (None,))
        for concurrency in amounts.concurrency
    ]
    return [case for case in made if only in case.name]
