"""Performance goals: for each path a ratio to a yardstick, measured in one run or, where the path says so, in another.

Owns the goals, in one place for the reports and for the benchmarks in scripts/; must not measure. `floor` applies to
plain Python, `goal` to the compiled codecs. A goal is measured by a row of a benchmark, or by `compare` itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final, TypeAlias

import msgspec

CODECS: Final = "bench_codecs"
ROCKETMQ: Final = "bench_rocketmq"
SPARK: Final = "bench_spark"
HTTP: Final = "load_test"
COMPARE: Final = "compare"
COMMANDS: Final[Mapping[str, str]] = {
    CODECS: "scripts/bench_codecs",
    ROCKETMQ: "scripts/bench_rocketmq",
    SPARK: "scripts/bench_spark",
    HTTP: "scripts/load_test http",
    COMPARE: "logserver compare",
}
OBJECTS: Final = (
    "bound by the processor: bytes, integers and strings are objects that are made and freed, compiled or not; the "
    "real store's machine code has none"
)
ONE_APPEND: Final = (
    "27 us of processor time: 17 for lock, place, one pwrite and the answer, then dispatch, queue and index; the real "
    "store writes to mapped memory"
)
HUNDRED: Final = (
    "6 us of processor time a record: 1.1 to make the message, 1.5 to place it, 2 to dispatch it, mostly three strings "
    "in the index"
)
SYNCED: Final = (
    "37 us of processor time a record with 16 producers, 22 with 64, in two threads that share one interpreter lock, "
    "whatever the disk does"
)
REBUILD: Final = (
    "7.4 us a message as plain Python, 5.0 compiled: its dispatch, three strings in the index, and the walk with the "
    "CRC of each"
)
LIBRARIES: Final = "the HTTP libraries alone take about half of what a request costs, on the core of the event loop"
EACH_RECORD: Final = "each record is decoded, put into the store's format or told in JSON on the core of the event loop"
PAGES: Final = (
    "one append writes 500,000 bytes: on the machine of docs/performance.md, a virtual one, a plain write of as many "
    "takes 0.09 ms, but 1.2 ms into memory that its host has yet to give"
)
OTHER_FILES: Final = (
    "each is to another partition, whose files are opened for it: 512 may be open at once"
)
UNEXPLAINED: Final = "not explained yet"
# The operations for which a series over stores has a latency.
OPERATIONS: Final = ("append", "fetch", "key_lookup", "time_lookup")
DESIGNS: Final[Mapping[str, str]] = {"kafka": "Kafka's format", "rocketmq": "RocketMQ's format"}
FLAT: Final = 1.5  # up to this many times the time at the smallest size counts as flat
Key: TypeAlias = tuple[str, str]


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """A goal: reach at least `floor` or `goal` times the yardstick.

    `most`: both are upper limits instead. `why`: the known obstacle, reported if the goal is missed. `reference`:
    the yardstick's figure, if the yardstick is not measured in the same run.
    """

    source: str
    row: str
    path: str
    yardstick: str
    floor: float | None
    goal: float | None
    most: bool = False
    why: str = ""
    reference: float | None = None

    def target(self, *, compiled: bool) -> float | None:
        """Return the ratio that applies: `goal` if compiled, else `floor`."""
        return self.goal if compiled else self.floor

    def reached(self, ratio: float, *, compiled: bool) -> bool | None:
        """Return whether `ratio` reaches the goal; None if no ratio is required."""
        target = self.target(compiled=compiled)
        if target is None:
            return None
        return ratio <= target if self.most else ratio >= target


def _against_java(row: str, path: str, floor: float, goal: float, why: str = OBJECTS) -> Goal:
    return Goal(
        source=ROCKETMQ,
        row=row,
        path=path,
        yardstick="the real store",
        floor=floor,
        goal=goal,
        why=why,
    )


def _codec(row: str, yardstick: str, floor: float, goal: float, why: str = "") -> Goal:
    path = {"raw": f"batches: {row}", "dump": "dump of every record"}.get(row.split()[0], row)
    return Goal(
        source=CODECS, row=row, path=path, yardstick=yardstick, floor=floor, goal=goal, why=why
    )


def _spark(row: str, goal: float) -> Goal:
    why = "a micro-batch has a fixed price that any source pays" if "stream" in row else ""
    return Goal(
        source=SPARK, row=row, path=f"Spark: {row}", yardstick="Spark's Kafka connector",
        floor=goal, goal=goal, why=why,
    )  # fmt: skip


def _karapace(row: str, records_per_s: float, floor: float, goal: float, why: str) -> Goal:
    what, records = row.split()
    return Goal(
        source=HTTP, row=f"{row} kafka", path=f"HTTP {what}, {records} a request",
        yardstick=f"Karapace, {records_per_s:,.0f} rec/s in another run", floor=floor, goal=goal,
        reference=records_per_s, why=why,
    )  # fmt: skip


def _share(records: int, backend: str, share: float) -> Goal:
    return Goal(
        source=HTTP, row=f"produce {records} {backend} by no-store",
        path=f"HTTP produce, {backend}, {records} a request", yardstick="the same stack without a store",
        floor=None, goal=share, why="the rest is the store's own work, on the core of the event loop",
    )  # fmt: skip


def _beside_kafka(records: int) -> Goal:
    return Goal(
        source=HTTP, row=f"produce {records} rocketmq by kafka", path=f"HTTP produce, rocketmq, {records} a request",
        yardstick="the Kafka backend", floor=None, goal=0.3,
        why="a message is placed, queued and indexed one by one, where Kafka writes one batch",
    )  # fmt: skip


def _raw(way: str, why: str) -> Goal:
    return Goal(
        source=HTTP, row=f"raw {way} kafka", path=f"raw batches {way}, 1 MB bodies", yardstick="1 GB/s",
        floor=1, goal=2, reference=1e9,
        why=why,
    )  # fmt: skip


def _flat(axis: str, store: str, reasons: Mapping[Key, str]) -> Iterator[Goal]:
    """Yield a goal for each operation in each format. `reasons`: known reasons why an operation may not be flat."""
    for what, (design, told) in product(OPERATIONS, DESIGNS.items()):
        yield Goal(
            source=COMPARE, row=f"{what}_latency by {axis} {design}",
            path=f"{what.replace('_', ' ')} in a store of {store}, {told}", yardstick="the smallest store",
            floor=FLAT, goal=FLAT, most=True, why=reasons.get((what, design), UNEXPLAINED),
        )  # fmt: skip


GOALS: Final[Sequence[Goal]] = (
    _codec("encode 100 B", "aiokafka's C", 0.4, 1.15),
    _codec("encode 1000 B", "aiokafka's C", 1.2, 2.5),
    _codec("decode 100 B", "aiokafka's C", 0.16, 2.5, "74 % of the time makes and frees Python's own objects"),
    _codec("decode 1000 B", "aiokafka's C", 0.55, 3.5),
    _codec("raw accept 14 KB", "crc32c alone", 0.45, 0.45),
    _codec("raw accept 111 KB", "crc32c alone", 0.8, 0.8),
    _codec("segment scan with CRC, 16 KB", "crc32c alone", 0.35, 0.35),
    _codec("header scan", "3 M batches/s", 1.0, 1.0),
    _codec("dump of 197 MB", "Kafka's dump tool", 1.0, 2.0),
    _against_java("encode 100 B", "message encode 100 B", 0.2, 0.45),
    _against_java("decode 100 B", "message decode 100 B", 0.2, 0.35),
    _against_java("encode 1000 B", "message encode 1000 B", 0.2, 0.45),
    _against_java("decode 1000 B", "message decode 1000 B", 0.2, 0.35),
    _against_java("append 100 B, 1 at a time", "append 100 B, one record at a time", 0.2, 1.0, ONE_APPEND),
    _against_java("append 100 B, 100 at a time", "append 100 B, a hundred records at a time", 0.2, 1.0, HUNDRED),
    _against_java("append 1000 B, 1 at a time", "append 1000 B, one record at a time", 0.2, 1.0, ONE_APPEND),
    _against_java("append 1000 B, 100 at a time", "append 1000 B, a hundred records at a time", 0.2, 1.0, HUNDRED),
    _against_java("sync append, 16 producers", "synced append, 16 producers, against 16 threads", 1.5, 3.0, SYNCED),
    _against_java("sync append, 64 producers (16)", "synced append, 64 producers, against 16 threads", 1.5, 3.0,
                  SYNCED),
    _against_java("rebuild by a start", "queues and index made anew by a start", 0.2, 2.0, REBUILD),
    _against_java("rebuild by the tool", "queues and index made anew by the tool", 0.2, 2.0, REBUILD),
    _against_java("start after an abort, same files", "start after a crash", 1.0, 2.0,
                  "the CRC of every record and the check of the whole index take two thirds of it"),
    _karapace("produce 1", 3_300, 4, 6, LIBRARIES),
    _karapace("produce 100", 14_300, 30, 60, EACH_RECORD),
    _karapace("produce 1000", 5_500, 50, 100, EACH_RECORD),
    _karapace("fetch 1000", 193_000, 3, 6, EACH_RECORD),
    *(_share(n, "kafka", share) for n, share in ((1, 0.6), (100, 0.5), (1000, 0.5))),
    *(_share(n, "rocketmq", 0.15) for n in (1, 100, 1000)),
    *(_beside_kafka(n) for n in (100, 1000)),
    _raw("in", "the copy into the page cache and the CRC, on the core that also moves the bytes out of the socket"),
    _raw("out", "the copy out of the page cache and the CRC, on the core that also moves the bytes into the socket"),
    *(_spark(f"{what} {size}", goal)
      for size in ("100 B", "1,000 B")
      for what, goal in (("full read", 3.0), ("JSON aggregate", 2.0), ("from a timestamp", 3.0), ("stream", 1.2))),
    Goal(source=COMPARE, row="recovery kafka", path="recovery after kill -9, by record, Kafka's format",
         yardstick="the real broker's load time, by its log", floor=0.5, goal=1, why=OBJECTS),
    Goal(source=COMPARE, row="start", path="ready after a start, seconds", yardstick="the clock", floor=0.5,
         goal=0.3, most=True, why="the interpreter and the imports take most of it"),
    Goal(source=COMPARE, row="memory", path="memory on an empty store, MB", yardstick="an empty store",
         floor=75, goal=60, most=True, why="the interpreter and the imports take most of it"),
    *_flat("store_bytes", "1 GB or more",
           {("append", "kafka"): PAGES, ("append", "rocketmq"): PAGES,
            ("key_lookup", "kafka"): "Kafka's format has no index of keys: the topic is scanned",
            ("time_lookup", "rocketmq"): "the real store's search begins at the first of a queue's files"}),
    *_flat("partitions", "10,000 partitions", dict.fromkeys(product(OPERATIONS, DESIGNS), OTHER_FILES)),
)  # fmt: skip


def goal_of(source: str, row: str) -> Goal | None:
    """Return the goal of a benchmark's row; None if it has no goal."""
    return next((goal for goal in GOALS if (goal.source, goal.row) == (source, row)), None)
