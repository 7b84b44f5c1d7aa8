"""Rows of the Spark benchmark: our data source next to Spark's own Kafka connector, turn by turn.

Owns the rows; their work is in spark_work.py. `scripts/bench_spark` runs it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from logserver.bench.environment import versions
from logserver.bench.goals import SPARK
from scripts.bench import spark_work as work
from scripts.bench.harness import (
    Bench,
    Row,
    Turn,
    Work,
    parser,
    run,
)
from scripts.bench.spark_work import Data, Side
from storage import is_compiled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PEER_NAME = "Spark's Kafka connector"
RANGE = (0.25, 0.5)  # as fractions of each partition


class Amounts(NamedTuple):
    """The amounts of work in a row."""

    small: int
    large: int
    messages: int
    trigger: int  # records of a micro-batch


FULL = Amounts(small=1_000_000, large=200_000, messages=400_000, trigger=100_000)
QUICK = Amounts(small=4_000, large=2_000, messages=2_000, trigger=1_000)


class Rows:
    """All rows, over one scratch folder. `address` None: only our side runs."""

    def __init__(
        self, folder: Path, amounts: Amounts, sessions: work.Sessions, address: str | None
    ) -> None:
        self._folder = folder
        self._amounts = amounts
        self._sessions = sessions
        self._ours = work.ours(folder / "kafka")
        self._theirs = None if address is None else work.connector(address)
        self._numbers = count()

    @staticmethod
    def topics(amounts: Amounts) -> list[Data]:
        """Return the topics of the Kafka store."""
        return [
            Data(topic="small", count=amounts.small, value_bytes=100),
            Data(topic="large", count=amounts.large, value_bytes=1000),
        ]

    def all(self) -> Iterator[Row]:
        """Yield every row. The rows of jobs come last, since they start their own sessions."""
        for data in self.topics(self._amounts):
            yield from self.reads(data)
            yield self.stream(data)
        yield self.messages()
        yield from self.jobs()

    def _row(self, name: str, expected: int, turn: Callable[[Side], int]) -> Row:
        """Build a row that runs the same turn on both sides."""
        theirs = self._theirs
        peer: Work | None = None if theirs is None else lambda: turn(theirs)
        return Row(
            name=name,
            unit="rec",
            ours=lambda: turn(self._ours),
            peer=peer,
            peer_name=PEER_NAME,
            expected=expected,
            once=True,
        )

    def reads(self, data: Data) -> Iterator[Row]:
        """Yield rows of batch reads."""
        size = f"{data.value_bytes:,} B"

        def read(use: Callable[[DataFrame], int], options: dict[str, str]) -> Callable[[Side], int]:
            return lambda side: use(side.read(self._sessions.of(2), data, options))

        yield self._row(f"full read {size}", data.count, read(work.consume, {}))
        yield self._row(f"aggregate {size}", data.count, read(work.aggregate, {}))
        yield self._row(f"JSON aggregate {size}", data.count, read(work.aggregate_json, {}))
        half = {"startingTimestamp": str(work.BEGIN_MS + data.count // 2)}
        yield self._row(f"from a timestamp {size}", data.count // 2, read(work.consume, half))
        first, last = RANGE
        part = {"startingOffsets": data.offsets(first), "endingOffsets": data.offsets(last)}
        wanted = data.before(last) - data.before(first)
        yield self._row(f"offset range {size}", wanted, read(work.consume, part))

    def stream(self, data: Data) -> Row:
        """Build a row that reads a stream to its end in micro-batches."""
        options = {"maxOffsetsPerTrigger": str(self._amounts.trigger)}

        def turn(side: Side) -> int:
            checkpoint = self._folder / f"checkpoint-{next(self._numbers)}"
            return work.drain(side.stream(self._sessions.of(2), data, options), checkpoint)

        return self._row(f"stream {data.value_bytes:,} B", data.count, turn)

    def messages(self) -> Row:
        """Build a row that reads a RocketMQ store, which the connector cannot read."""
        data = Data(topic="messages", count=self._amounts.messages, value_bytes=100)
        path = self._folder / "rocketmq"
        work.make_store("rocketmq", path, [data])
        side = work.ours(path)
        return Row(
            name="full read, RocketMQ 100 B",
            unit="msg",
            ours=lambda: work.consume(side.read(self._sessions.of(2), data, {})),
            expected=data.count,
            once=True,
        )

    def jobs(self) -> Iterator[Row]:
        """Yield rows that compare jobs on two cores with one core."""
        data = self.topics(self._amounts)[0]
        yield self._job("export", data.count, lambda out: work.export(self._ours, data, out))
        yield self._job("audit", data.count, lambda _: work.audit(self._ours, data))
        yield self._job("rebuild", data.count, lambda _: work.rebuild(self._ours, data))

    def _job(self, name: str, expected: int, job: Callable[[Path], work.Job]) -> Row:
        def turn(cores: int) -> Turn:
            out = self._folder / f"{name}-{next(self._numbers)}"
            return work.timed(job(out), self._sessions.of(cores))

        return Row(
            name=f"{name}, 2 cores against 1",
            unit="rec",
            ours=lambda: turn(2),
            peer=lambda: turn(1),
            peer_name="one core",
            expected=expected,
            once=True,
        )


def main() -> int:
    """Measure every selected row and report."""
    options = parser(
        "the data source for Spark against Spark's own Kafka connector",
        "ours alone, without the connector and the real broker",
    )
    options.add_argument("--dir", type=Path, help="where stores are made; the temporary folder")
    given = options.parse_args()
    bench = Bench(name=SPARK, compiled=is_compiled(), quick=given.quick, repeats=given.repeats)
    if bench.compiled:
        # Otherwise Spark's workers would import the sources in their working directory.
        os.environ["PYTHONSAFEPATH"] = "1"
    amounts = QUICK if given.quick else FULL
    about = {"Kafka": "none" if given.no_java else "4.3.1", "connector": work.CONNECTOR}
    about |= versions("pyspark", "pyarrow", "numpy")
    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(dir=given.dir)))
        work.make_store("kafka", folder / "kafka", Rows.topics(amounts))
        served = None if given.no_java else closing.enter_context(work.served(folder))
        sessions = closing.enter_context(work.Sessions([] if served is None else served.jars))
        address = None if served is None else served.address
        return run(bench, Rows(folder, amounts, sessions, address).all(), given, about)
