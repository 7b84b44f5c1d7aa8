"""Rows of the benchmark of delayed messages: their delivery, next to appends of the same messages, turn by turn.

Owns the measured work; must not time creating or closing a store. `scripts/bench_delay` runs it. All messages have one
delay level and are due at one moment of a driven clock. A delivery ends when every new record is on disk and dispatched
and the progress is in delayOffset.json; an append, 100 records at a time, when every record is on disk and dispatched.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import storage
from logserver.bench.environment import versions
from logserver.bench.goals import DELAY
from logserver.service.delay import DELIVERED_AT_ONCE
from scripts.bench.harness import Bench, Row, Turn, parser, run
from scripts.bench.rocketmq_store import QUEUES, TOPIC, record
from storage import LogStore, Record, SupportsDelay, TopicPartition, is_compiled

MESSAGES, QUICK_MESSAGES = 100_000, 2_000
BODY: Final = b"x" * 100
AT_A_TIME: Final = 100
LEVEL: Final = 1  # a second
POLL_S: Final = 0.001  # while records are not dispatched yet
Timer = Callable[[], float]


def turn(path: Path, count: int, timer: Timer, *, delayed: bool) -> Turn:
    """Append the messages to a new store. `delayed`: they wait in the schedule topic; measure their delivery instead.

    The units of the turn are the records that the topic has then.
    """
    with tempfile.TemporaryDirectory(dir=path) as folder:
        store = storage.open_store("rocketmq", Path(folder) / "store")
        with store:
            store.create_topic(TOPIC, QUEUES)
            runs = [
                _run(store, start, count, delayed=delayed) for start in range(0, count, AT_A_TIME)
            ]
            began = timer()
            for target, records in runs:
                store.append(target, records)
            _settle(store)
            if delayed:
                began = timer()
                _deliver(store, count)
                _settle(store)
            elapsed_s = timer() - began
            return Turn(_stored(store), elapsed_s)


def _run(
    store: LogStore, start: int, count: int, *, delayed: bool
) -> tuple[TopicPartition, Sequence[Record]]:
    """Return the next records, and the queue that they are appended to."""
    target = TopicPartition(TOPIC, start // AT_A_TIME % QUEUES)
    records = [record(number, BODY) for number in range(start, min(start + AT_A_TIME, count))]
    if not delayed:
        return target, records
    assert isinstance(store, SupportsDelay)
    waits = [store.delays.delayed(each, target, LEVEL) for each in records]
    return waits[0][0], [each for _, each in waits]


def _deliver(store: LogStore, count: int) -> None:
    """Deliver all messages, in parts as a step of the server does."""
    assert isinstance(store, SupportsDelay)
    now_ms = time.time_ns() // 1_000_000 + store.delays.levels[LEVEL - 1].delay_ms
    delivered, more = 0, True
    while more:
        _, passed, more, _ = store.delays.deliver(now_ms, max_records=DELIVERED_AT_ONCE)
        delivered += passed
    assert delivered == count, f"{delivered} of {count} messages were delivered"


def _settle(store: LogStore) -> None:
    """Flush, and wait until all records are dispatched."""
    store.flush()
    while store.stats().details["dispatch_lag_bytes"]:
        time.sleep(POLL_S)


def _stored(store: LogStore) -> int:
    bounds = [store.bounds(TopicPartition(TOPIC, queue)) for queue in range(QUEUES)]
    return sum(each.end - each.start for each in bounds)


def all_rows(path: Path, *, quick: bool) -> Iterator[Row]:
    """Yield every row: by the processor time of all threads, and by the clock."""
    count = QUICK_MESSAGES if quick else MESSAGES
    for name, timer in (("CPU", time.process_time), ("clock", time.perf_counter)):
        yield Row(
            name=f"delayed messages leave: {name}",
            unit="msg",
            ours=partial(turn, path, count, timer, delayed=True),
            peer=partial(turn, path, count, timer, delayed=False),
            peer_name="append",
            expected=count,
        )


def main() -> int:
    """Measure every selected row and report."""
    given = parser("delayed messages that are due", "no effect: no row needs Java").parse_args()
    bench = Bench(name=DELAY, compiled=is_compiled(), quick=given.quick, repeats=given.repeats)
    with tempfile.TemporaryDirectory() as folder:
        return run(bench, all_rows(Path(folder), quick=given.quick), given, versions("msgspec"))
