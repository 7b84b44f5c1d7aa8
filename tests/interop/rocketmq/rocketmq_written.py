"""A RocketMQ store with everything that we can write, and its records in the form that the peers print.

Owns the content; must not know the peers. Three runs with two restarts between them: every shape of record, several
queues and files, appends of many records at once, messages appended as bytes (codecs, hosts, transactions).
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lz4.frame
import zstandard

from storage import LogStore, RawMessage, Record, StoreOptions, SupportsRawMessages, TopicPartition
from storage import open_store as open_any
from storage.rocketmq.format.message import TRANSACTION_MASK
from storage.rocketmq.format.message_id import encode_host
from storage.rocketmq.format.properties import encode_properties
from tests.cli.runner import fine, settings_options
from tests.contract.harness import ManualClock
from tests.golden.rocketmq_stores import by_golden_order, shown

BEGIN_MS = 1_750_000_000_000
SIZES: Mapping[str, str] = {
    "mappedFileSizeCommitLog": "32768",
    "mappedFileSizeConsumeQueue": "600",
    "maxHashSlotNum": "100",
    "maxIndexNum": "300",
}
TOPICS: Mapping[str, int] = {
    "orders": 3,
    "shapes": 2,
    "many-at-once": 1,
    "raw": 2,
    "%odd|name%_-1": 1,
    "never-written": 2,
}
SHAPES: Sequence[Record] = (
    Record(None, b""),
    Record(None, b"plain"),
    Record(b"key", b"with a key"),
    Record(b"key", b"and keys", lookup_keys=["key", "a", "b"]),
    Record(b"two words", b"a key with a space", lookup_keys=["c"]),
    Record("schlüssel🙂".encode(), "naïve 🙂".encode(), [("größe", "groß 🚀".encode())]),
    Record(None, b"tagged", tag="red"),
    Record(None, b"tagged", tag="Aa", lookup_keys=["Aa"]),
    Record(None, b"its hash is that of the one before", tag="BB", lookup_keys=["BB"]),
    Record(None, b"a hash of -2^31", lookup_keys=["polygenelubricants"]),
    Record(None, bytes(range(256)), [(f"h{n}", b"x" * n) for n in range(1, 40)]),
    Record(None, random.Random(1).randbytes(20_000), lookup_keys=["large"]),
    Record(None, b"old", (), 0),
    Record(None, b"far", (), 4_102_444_799_999),
    Record(None, b"long properties", [("long", b"y" * 20_000)]),
)
HOSTS = (encode_host("10.9.8.7", 40001), encode_host("2001:db8::17", 50002))


def options() -> StoreOptions:
    """Return the options: the file sizes, and a host that differs from the default."""
    return StoreOptions(settings={**SIZES, "storeHost": "192.168.7.9:10911"})


def write(root: Path, given: StoreOptions | None = None) -> None:
    """Create the store at `root`, or continue an existing store, in three runs."""
    for run in range(3):
        clock = ManualClock(BEGIN_MS + 3_600_000 * run)
        with open_any("rocketmq", root, given or options(), clock=clock) as store:
            if run == 0:
                for topic, queues in TOPICS.items():
                    store.create_topic(topic, queues)
            _write_orders(store, clock, run)
            _write_shapes(store, clock)
            _write_many_at_once(store, clock, run)
            _write_raw(store, clock, run)


def _write_orders(store: LogStore, clock: ManualClock, run: int) -> None:
    source = random.Random(run)
    for n in range(90):
        clock.now_ms += source.choice((0, 0, 1, 700, 5000))
        record = Record(
            None,
            source.randbytes(source.randint(0, 400)),
            [("n", b"%d" % n)],
            clock.now_ms - source.randint(0, 900),
            tag=source.choice((None, "t0", "t1", "退款")),
            lookup_keys=[f"k{source.randrange(20)}", f"run-{run}-{n}"],
        )
        store.append(TopicPartition("orders", source.randrange(3)), [record])


def _write_shapes(store: LogStore, clock: ManualClock) -> None:
    for shape in SHAPES:
        clock.now_ms += 10
        store.append(TopicPartition("shapes", 0), [shape])
    store.append(TopicPartition("shapes", 1), [s for s in SHAPES if len(s.value or b"") < 1000])
    store.append(TopicPartition("%odd|name%_-1", 0), [SHAPES[7]])


def _write_many_at_once(store: LogStore, clock: ManualClock, run: int) -> None:
    """Append batches that do not fit the rest of a file, and some that are larger than a file."""
    for size in (3, 70, 200):
        clock.now_ms += 1000
        records = [
            Record(None, b"%d" % n * 20, tag="batch", lookup_keys=[f"b{run}-{n}"])
            for n in range(size)
        ]
        store.append(TopicPartition("many-at-once", 0), records)


def _write_raw(store: LogStore, clock: ManualClock, run: int) -> None:
    assert isinstance(store, SupportsRawMessages)
    plain = b"compress me " * 400
    bodies = {
        0x001: zlib.compress(plain),
        0x101: lz4.frame.compress(plain),
        0x201: zstandard.compress(plain),
        0x301: zlib.compress(plain),
        0x000: plain,
        0x004: b"prepared",
        0x008: b"committed",
        0x00C: b"rolled back",
    }
    for number, (sys_flag, body) in enumerate(bodies.items()):
        clock.now_ms += 50
        properties = encode_properties(
            {"KEYS": f"raw-{sys_flag}", "TAGS": "raw", "UNIQ_KEY": f"U{run}{number}"}
        )
        message = RawMessage(
            body=body,
            properties=properties[
                : len(properties) - number % 2
            ],  # with and without the last separator
            flag=number,
            sys_flag=sys_flag,
            born_timestamp_ms=clock.now_ms - 5,
            born_host=HOSTS[number % 2],
            reconsume_times=number,
            prepared_transaction_offset=number * 100 if sys_flag & TRANSACTION_MASK else 0,
        )
        host = HOSTS[number // 2 % 2]
        store.append_messages(TopicPartition("raw", number % 2), [message], store_host=host)


def rows(
    root: Path, sizes: Mapping[str, str] = SIZES
) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Return every record of every queue in the form that the peers print."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in fine("dump", root, *settings_options(sizes)).rows:
        assert "suspect" not in row, row
        place = (row["topic"], row["queueId"])
        found.setdefault(place, []).append(by_golden_order(shown(row)))
    return found
