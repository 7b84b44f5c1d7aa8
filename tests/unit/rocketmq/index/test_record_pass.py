"""The pass over the log: what it makes of every kind of record, against records that are decoded one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from storage.model import RawMessage
from storage.rocketmq.format.message import MAGIC_V1, MAGIC_V2
from storage.rocketmq.format.message_encoding import Placement, encode_messages
from storage.rocketmq.format.names import SCHEDULE_TOPIC
from storage.rocketmq.format.properties import SHARDING_KEY
from storage.rocketmq.index import light_queues
from storage.rocketmq.index.record_pass import RARE_NAME, RecordPass
from tests.formats.rocketmq_messages.cases import walked
from tests.golden.rocketmq_stores import GoldenStore, all_stores, by_id
from tests.unit.rocketmq.index.passes import Nothing, check_pass, flat

START = 1000
MS = 1_700_000_000_000
TOPICS = (
    "t",
    "topic-with-a-name",
    "ключ",
    "\ufffd",
    "-",
    "",
    "..",
    "a/b",
    SCHEDULE_TOPIC,
    "x" * 200,
)
NAMES = (b"UNIQ_KEY", b"KEYS", b"TAGS", b"DELAY", b"KEYT", b"UNIQ_KEX", b"KEY", b"", b"a")
VALUES = (
    b"",
    b"k",
    b"k1 k2",
    b" k1  k2 ",
    b"k1 k1",
    b"\1",
    b"a\1b",
    "ключ".encode(),
    "a é".encode(),
    "\U0001f600".encode(),
    b"\xff",
    b"\xed\xa0\x80",
    b"\xe2",
    b"polygenelubricants",
    b"\x7f\0",
    b"7",
    b"0A0000010000FFFF" * 2,
)
HOSTS = (bytes(8), bytes(20))


def record_of(
    topic: str,
    properties: bytes,
    *,
    queue_id: int = 0,
    offset: int = 0,
    at: int = START,
    sys_flag: int = 0,
    hosts: tuple[bytes, bytes] = (bytes(8), bytes(8)),
    time_ms: int = MS,
) -> bytes:
    """Return one encoded record."""
    born, stored = hosts
    message = RawMessage(b"body", properties, 0, sys_flag, MS, born, 0, 0)
    name = topic.encode()
    magic = MAGIC_V2 if len(name) > 127 else MAGIC_V1
    place = Placement(name, magic, queue_id, offset, at, time_ms, stored)
    return encode_messages([message], place)[0]


def any_properties(rng: random.Random) -> bytes:
    """Return properties of any shape, with or without the last separator."""
    pieces = [
        rng.choice(NAMES) + (b"\1" if rng.random() < 0.9 else b"") + rng.choice(VALUES)
        for _ in range(rng.randrange(6))
    ]
    return b"\2".join(pieces) + (b"\2" if rng.random() < 0.8 else b"")


def any_record(rng: random.Random, at: int) -> bytes:
    """Return one record of any shape."""
    usual = rng.random() < 0.6
    return record_of(
        rng.choice(TOPICS[:2] if usual else TOPICS),
        any_properties(rng),
        queue_id=rng.choice((0, 0, 1, -1, 1 << 30)),
        offset=rng.choice((0, 1, 2, 2, 3, 1 << 40, -5)),
        at=at,
        sys_flag=0 if usual else rng.choice((0, 4, 8, 12, 0x701)),
        hosts=(HOSTS[0], HOSTS[0]) if usual else (rng.choice(HOSTS), rng.choice(HOSTS)),
        time_ms=rng.choice((MS, MS + 1500, 0, -1, 1 << 50)),
    )


def good_records(data: bytes) -> Sequence[tuple[int, int]]:
    """Return the (physical offset, size) of the good records in the data."""
    records, end, _ = walked(data, 0, len(data), START)
    assert end == len(data)
    return records


@pytest.mark.parametrize("seed", range(30))
def test_a_pass_makes_what_each_record_makes(seed: int) -> None:
    rng = random.Random(seed)
    data = b""
    for _ in range(40):
        data += any_record(rng, START + len(data))
    rules = Nothing(rng.choice(TOPICS), START + rng.randrange(len(data)))
    check_pass(data, good_records(data), START, rng.choice((rules, Nothing())))


@pytest.mark.parametrize("properties", [*VALUES, b"\2\2", b"KEYS", b"KEYS\1", b"\1k\2KEYS\1k"])
@pytest.mark.parametrize("name", NAMES)
def test_every_value_of_every_property(name: bytes, properties: bytes) -> None:
    text = b"x\1y\2" + name + b"\1" + properties + b"\2TAGS\1t\2" + name + b"\1" + properties
    data = record_of("t", text)
    check_pass(data, good_records(data), START)


@pytest.mark.parametrize("store", all_stores(), ids=by_id)
def test_a_pass_over_a_golden_store(store: GoldenStore) -> None:
    for path in sorted((store.root / "commitlog").iterdir()):
        data, start = path.read_bytes(), int(path.name)
        records, _, _ = walked(data, 0, len(data), start)
        check_pass(data, records, start)


def test_runs_begin_where_offsets_do_not_follow() -> None:
    data = b"".join(
        record_of("t", b"", offset=offset, at=START + 96 * n)
        for n, offset in enumerate((5, 6, 9, 10, 10))
    )
    done = RecordPass(Nothing(), with_tags=True)
    done.take(data, 0, len(data), START)
    (group,) = done.taken().queues
    assert [(run.queue_offset, len(run.units)) for run in group.runs] == [
        (5, 40),
        (9, 40),
        (10, 20),
    ]


@pytest.mark.parametrize("first", [0, -1, -(1 << 62), -(1 << 63), (1 << 62) - 1])
def test_the_first_record_begins_a_run_whatever_its_offset(first: int) -> None:
    data = record_of("t", b"", offset=first)
    data += record_of("t", b"", offset=17, at=START + len(data))
    done = RecordPass(Nothing(), with_tags=True)
    for _ in range(2):
        done.take(data, 0, len(data), START)
        (group,) = done.taken().queues
        assert [(run.queue_offset, len(run.units)) for run in group.runs] == [(first, 20), (17, 20)]


def test_what_was_taken_is_forgotten() -> None:
    done = RecordPass(Nothing(), with_tags=True)
    data = record_of("t", b"KEYS\1k\2")
    done.take(data, 0, len(data), START)
    first = done.taken()
    assert (done.records, done.next_offsets(), flat(done.taken())) == (0, [], {})
    done.take(data, 0, len(data), START)
    assert done.taken() == first


def test_rules_are_asked_again_after_topics_were_forgotten() -> None:
    rules = Nothing("t", 0)
    done = RecordPass(rules, with_tags=True)
    data = record_of("t", b"")
    done.take(data, 0, len(data), START)
    rules._below = START + 1
    done.forget_topics()
    done.take(data, 0, len(data), START)
    assert done.left_out == 1
    assert len(flat(done.taken())["t", 0]) == 1


def test_a_record_with_a_rare_name_is_noted() -> None:
    """A start looks again at a record for its LMQ queues, and for a key that is not among its lookup keys."""
    assert min(len(SHARDING_KEY), len(light_queues.OFFSETS)) >= RARE_NAME
    for name in (SHARDING_KEY, light_queues.OFFSETS):
        done = RecordPass(Nothing(), with_tags=False)
        data = record_of("t", f"KEYS\1a\2{name}\1b\2".encode())
        done.take(data, 0, len(data), START)
        assert done.has_rare
