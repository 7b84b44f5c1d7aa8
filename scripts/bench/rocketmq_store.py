"""Our RocketMQ store under benchmark: each function is one turn and checks its own result.

Owns the measured work, with the messages and sizes of the real store's benchmark (Bench.java); must not time creating,
copying or closing a store, nor compare results.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

import storage
from logserver.metrics import Metrics
from logserver.service.commit import Writer
from logserver.service.requests import Acks, PartitionAppend
from scripts.bench.harness import Turn
from storage import LogStore, RawMessage, Record, StoreOptions, TopicPartition
from storage.rocketmq.format.message import MAGIC_V1, decode_message
from storage.rocketmq.format.message_encoding import Placement, encode_messages
from storage.rocketmq.format.message_id import encode_host
from storage.rocketmq.format.properties import decode_properties, encode_properties

TOPIC: Final = "bench"
QUEUES: Final = 4
CODEC_RUN: Final = 100
DIFFERENT: Final = 1000  # distinct messages of a codec row
FLUSH_S: Final = 0.5  # RocketMQ's flushIntervalCommitLog with asynchronous flush
SETTLED_S: Final = 0.001  # poll interval while records are not dispatched yet
CHECKS: Final = 100  # each goes on for a while
BIG_SIZES: Final = {  # as Bench.java's makebig
    "mappedFileSizeCommitLog": str(64 << 20),
    "maxHashSlotNum": "500000",
    "maxIndexNum": "3000000",
}
SMALL_SIZES: Final = {
    "mappedFileSizeCommitLog": str(256 << 10),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "3000",
}


class Latency(NamedTuple):
    """Latency of single calls: the number of correct results, the median and the 99th percentile."""

    good: int
    p50_s: float
    p99_s: float

    def turn(self, *, p99: bool) -> Turn:
        """Return a turn of a benchmark: its time is the time of one call."""
        return Turn(self.good, self.p99_s if p99 else self.p50_s, 1)


def record(number: int, body: bytes) -> Record:
    """Return the message that Bench.java builds for a number."""
    tag = f"Tag{number % 4}"
    properties = {"UNIQ_KEY": f"7F00000100002A9F0000{number:012X}"}
    born_ms = time.time_ns() // 1_000_000
    # Arguments by name would take another 0.3 us.
    return Record(None, body, (), born_ms, tag, (f"key-{number}",), properties)


# ---- codecs ----


def properties_of(number: int) -> dict[str, str]:
    """Return the properties of a message, in the order of Java's hash map in the real store."""
    unique = f"7F00000100002A9F0000{number:012X}"
    return {"KEYS": f"key-{number}", "UNIQ_KEY": unique, "TAGS": f"Tag{number % 4}"}


class Codec:
    """Encode and decode `DIFFERENT` messages with bodies of one size, in runs of 100."""

    def __init__(self, body_bytes: int) -> None:
        body = b"x" * body_bytes
        born_ms = time.time_ns() // 1_000_000
        born_host = encode_host("127.0.0.1", 40000)
        self._messages = [
            RawMessage(body, encode_properties(properties_of(number)), 0, 0, born_ms, born_host)
            for number in range(DIFFERENT)
        ]
        self._places = [
            (start, Placement(TOPIC.encode(), MAGIC_V1, 0, start, 0, born_ms, born_host))
            for start in range(0, DIFFERENT, CODEC_RUN)
        ]
        self._records = [record for run in self._runs() for record in run]

    def _runs(self) -> Iterator[Sequence[bytes]]:
        for start, place in self._places:
            yield encode_messages(self._messages[start : start + CODEC_RUN], place)

    def encode(self) -> int:
        """Encode the messages, with the CRC of the body; the properties are encoded beforehand. Return the number of
        records.
        """
        return sum(map(len, self._runs()))

    def decode(self) -> int:
        """Decode the records to fields and properties, checking the CRC. Return the number of complete records."""
        good = 0
        for data in self._records:
            good += len(decode_properties(decode_message(data).properties)) == 3
        return good

    def check(self) -> None:
        """Check that decoding returns the encoded messages."""
        for number, (data, given) in enumerate(zip(self._records, self._messages, strict=True)):
            message = decode_message(data)
            assert (message.topic, message.queue_offset) == (TOPIC, number)
            assert (message.body, message.born_timestamp_ms) == (
                given.body,
                given.born_timestamp_ms,
            )
            assert decode_properties(message.properties) == properties_of(number)


# ---- appending ----


@contextmanager
def opened(path: Path, sizes: Mapping[str, str]) -> Iterator[LogStore]:
    """Open the store with its topic, created if missing; it is closed cleanly when the block ends."""
    store = storage.open_store("rocketmq", path, StoreOptions(settings=sizes))
    with store:
        store.create_topic(TOPIC, QUEUES)
        yield store


@contextmanager
def flushing(store: LogStore) -> Iterator[None]:
    """Flush at RocketMQ's interval during the block, as a server does in async mode."""
    stopping = threading.Event()

    def run() -> None:
        while not stopping.wait(FLUSH_S):
            store.flush()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def _settle(store: LogStore) -> None:
    """Wait until all records are dispatched."""
    while store.stats().details["dispatch_lag_bytes"]:
        time.sleep(SETTLED_S)


def _stored(store: LogStore) -> int:
    """Return the number of readable records; -1 if three sample keys are not found in the index.

    The first lookups after a start check an index that another writer left, and scan the log until that is done.
    """
    for _ in range(CHECKS):
        if store.find(TOPIC, key="key-0").indexed:
            break
    counts = [store.bounds(TopicPartition(TOPIC, queue)) for queue in range(QUEUES)]
    total = sum(bounds.end - bounds.start for bounds in counts)
    for number in (0, total // 2, total - 1):
        page = store.find(TOPIC, key=f"key-{number}")
        if not page.indexed or len(page.records) != 1:
            return -1
    return total


def append(path: Path, sizes: Mapping[str, str], count: int, body_bytes: int, run: int) -> Turn:
    """Append as one producer, `run` records to a queue at a time, until all are dispatched."""
    body = b"x" * body_bytes
    queues = [TopicPartition(TOPIC, queue) for queue in range(QUEUES)]
    with opened(path, sizes) as store:
        with flushing(store):
            began = time.perf_counter()
            for at, number in enumerate(range(0, count, run)):
                records = [record(n, body) for n in range(number, min(number + run, count))]
                store.append(queues[at % QUEUES], records)
            _settle(store)
            elapsed_s = time.perf_counter() - began
        done = _stored(store)
    shutil.rmtree(path)
    return Turn(done, elapsed_s)


def append_synced(
    path: Path, sizes: Mapping[str, str], count: int, body_bytes: int, producers: int
) -> Turn:
    """Append as several producers through the server's writer; each waits for its record to be on disk."""
    with opened(path, sizes) as store:
        began = time.perf_counter()
        uvloop.run(_produce(store, count, body_bytes, producers))
        _settle(store)
        elapsed_s = time.perf_counter() - began
        done = _stored(store)
    shutil.rmtree(path)
    return Turn(done, elapsed_s)


async def _produce(store: LogStore, count: int, body_bytes: int, producers: int) -> None:
    numbers = iter(range(count))
    body = b"x" * body_bytes
    queues = [TopicPartition(TOPIC, queue) for queue in range(QUEUES)]
    writer = Writer(store, sync=True, metrics=Metrics(), published=lambda partition: None)

    async def produce() -> None:
        for number in numbers:
            part = PartitionAppend(queues[number % QUEUES], [record(number, body)], range(1))
            await writer.submit([part], Acks.ALL)

    async with asyncio.TaskGroup() as group:
        for _ in range(producers):
            group.create_task(produce())
    await writer.close()


# ---- reading ----


def read_all(store: LogStore) -> Turn:
    """Read every record, queue after queue, in pages of the default size."""
    began = time.perf_counter()
    done = 0
    for queue in range(QUEUES):
        partition = TopicPartition(TOPIC, queue)
        offset, end = store.bounds(partition).start, store.bounds(partition).end
        while offset < end:
            page = store.read(partition, offset)
            done += len(page.records)
            offset = page.next_offset
    return Turn(done, time.perf_counter() - began)


def query(store: LogStore, count: int, total: int, seed: int) -> Latency:
    """Look up random records by key."""
    chosen = random.Random(seed)
    good = 0
    times_s = []
    for _ in range(count):
        key = f"key-{chosen.randrange(total)}"
        began = time.perf_counter()
        page = store.find(TOPIC, key=key)
        times_s.append(time.perf_counter() - began)
        good += len(page.records) == 1 and page.records[0][1].lookup_keys == [key]
    times_s.sort()
    return Latency(good, times_s[count // 2], times_s[count * 99 // 100])


# ---- starting ----


def make_big(path: Path, sizes: Mapping[str, str], count: int) -> None:
    """Create a closed store of `count` messages with bodies of 100 B, as the real store's makebig does."""
    body = b"x" * 100
    with opened(path, sizes) as store:
        for number in range(count):
            store.append(TopicPartition(TOPIC, number % QUEUES), [record(number, body)])
    (path / "params.json").write_text(json.dumps({name: int(size) for name, size in sizes.items()}))


def adopt(path: Path, sizes: Mapping[str, str]) -> None:
    """Open a store of the real RocketMQ with our store, and close it."""
    with opened(path, sizes):
        pass


def copy(source: Path, target: Path) -> None:
    """Copy a folder; holes in files stay holes."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-r", "--sparse=always", str(source), str(target)], check=True)


def load(source: Path, path: Path, sizes: Mapping[str, str], *, drop: bool) -> Turn:
    """Start after an abort, on a copy of a store. `drop`: the copy has no queues, no index and no checkpoint."""
    copy(source, path)
    (path / "abort").touch()
    if drop:
        shutil.rmtree(path / "consumequeue")
        shutil.rmtree(path / "index")
        (path / "checkpoint").unlink()
    began = time.perf_counter()
    store = storage.open_store("rocketmq", path, StoreOptions(settings=sizes))
    elapsed_s = time.perf_counter() - began
    with store:
        done = _stored(store)
    shutil.rmtree(path)
    return Turn(done, elapsed_s)


def rebuild(source: Path, path: Path, sizes: Mapping[str, str]) -> Turn:
    """Rebuild the queues and the index of a copy with the offline tools."""
    copy(source, path)
    inspector = storage.open_inspector(path, StoreOptions(settings=sizes))
    began = time.perf_counter()
    for what in ("consumequeue", "indexfile"):
        inspector.rebuild(what, write=True)
    elapsed_s = time.perf_counter() - began
    inspector.close()
    with opened(path, sizes) as store:
        done = _stored(store)
    shutil.rmtree(path)
    return Turn(done, elapsed_s)
