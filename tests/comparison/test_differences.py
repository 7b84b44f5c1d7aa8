"""Differences between the two designs, each as a test that names the difference.

Kafka: a log of segments for each partition, with an offset index and a time index. RocketMQ: a commit log for all
topics, with consume queues of fixed-size entries and a key index that point into it. Differences in record content,
ids, names, codecs and configs are in tests/contract (flavours.py and the suites that use it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from storage import Bound, Record, TopicPartition
from storage.errors import UnrepresentableRecord
from tests.comparison.sides import PATH, SMALL_KAFKA, Side
from tests.comparison.workload import Step, Workload, at_time, partitions
from tests.contract.flavours import SMALL_ROCKETMQ
from tests.contract.harness import START_MS, at_times, texts, values

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
FAR_FUTURE_MS = 1 << 50


@pytest.fixture
def kafka() -> Iterator[Side]:
    yield from opened(Side(SMALL_KAFKA))


@pytest.fixture
def rocketmq() -> Iterator[Side]:
    yield from opened(Side(SMALL_ROCKETMQ))


def opened(side: Side) -> Iterator[Side]:
    side.make_topics()
    yield side
    side.end()


def steps(partition: TopicPartition, records: Sequence[Record], *now_ms: int) -> list[Step]:
    """Return an append of one record for each time, or a single append of all records if there is one time."""
    runs = [records] if len(now_ms) == 1 else [[record] for record in records]
    return [
        Step(partition, run, None, at_ms, flush=False)
        for run, at_ms in zip(runs, now_ms, strict=True)
    ]


# ---- times ---------------------------------------------------------------------------------------


def test_kafka_looks_up_the_time_of_the_record_and_rocketmq_that_of_the_append(
    kafka: Side, rocketmq: Side
) -> None:
    """Both backends keep record times that are out of order; each looks times up on its own axis, by the same rule."""
    workload = Workload.of(5).out_of_order(5)
    found = {}
    for side, by_append in ((kafka, False), (rocketmq, True)):
        side.play(workload.steps)
        log = workload.stored(by_append=by_append)
        answers = found[side.backend] = side.answers(workload)
        assert answers.records == workload.answers().records
        assert answers.times == {q: at_time(log[q.partition], q) for q in answers.times}
    assert found["kafka"].times != found["rocketmq"].times


def test_a_clock_that_goes_back_is_scanned_by_kafka_and_bisected_by_rocketmq(
    kafka: Side, rocketmq: Side
) -> None:
    """Kafka finds the first record that is late enough; RocketMQ returns the result of bisection, as the real store."""
    times_ms = [100, 300, 200, 200, 400]
    for side in (kafka, rocketmq):
        side.play(steps(FIRST, at_times(*times_ms), *times_ms))
    found = {
        side.backend: [
            side.store.offset_for_time(FIRST, ms, bound=Bound.LOWER) for ms in (250, 350)
        ]
        for side in (kafka, rocketmq)
    }
    assert [hit and hit[:2] for hit in found["kafka"]] == [(1, 300), (4, 400)]
    assert [hit and hit[:2] for hit in found["rocketmq"]] == [(4, 400), (4, 400)]


# ---- keys ----------------------------------------------------------------------------------------


def test_a_key_costs_kafka_a_scan_of_the_topic_and_rocketmq_a_look_into_the_index(
    kafka: Side, rocketmq: Side
) -> None:
    """Both find the same record. A key with a space cannot be in the index, so it costs a scan in both."""
    records = [
        Record(b"k %d" % n if n == 50 else b"k-%d" % n, b"v", (), START_MS) for n in range(100)
    ]
    for side in (kafka, rocketmq):
        side.play(steps(FIRST, records, START_MS))
        page = side.store.find("orders", key="k-7", limit=5)
        scanned = {"kafka": 100, "rocketmq": 1}[side.backend]
        assert (page.indexed, page.scanned) == (side is rocketmq, scanned)
        assert [(n, r.offset) for n, r in page.records] == [(0, 7)]
        page = side.store.find("orders", key="k 50", limit=5)
        assert (page.indexed, page.scanned) == (False, 100)
        assert [(n, r.offset) for n, r in page.records] == [(0, 50)]


def test_what_is_found_comes_by_partition_from_kafka_and_in_order_of_append_from_rocketmq(
    kafka: Side, rocketmq: Side
) -> None:
    for side in (kafka, rocketmq):
        for n in range(3):
            for partition in (SECOND, FIRST):
                side.play(steps(partition, [Record(b"k", b"%d" % n, (), START_MS)], START_MS))
    found = {
        side.backend: [(n, r.offset) for n, r in side.store.find("orders", key="k").records]
        for side in (kafka, rocketmq)
    }
    assert found["kafka"] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert found["rocketmq"] == [(1, 0), (0, 0), (1, 1), (0, 1), (1, 2), (0, 2)]


def test_a_key_listed_among_its_own_lookup_keys_comes_back_there_from_kafka_alone(
    kafka: Side, rocketmq: Side
) -> None:
    """RocketMQ has a single list for key and lookup keys, so it cannot distinguish them. Both find the record once."""
    record = Record(b"k", b"v", (), START_MS, lookup_keys=["j", "k"])
    for side, kept in ((kafka, ["j", "k"]), (rocketmq, ["j"])):
        side.play(steps(FIRST, [record], START_MS))
        (stored,) = side.store.read(FIRST, 0).records
        assert (stored.key, list(stored.lookup_keys)) == (b"k", kept)
        assert len(side.store.find("orders", key="k").records) == 1


# ---- content of records --------------------------------------------------------------------------


def test_nulls_empty_keys_and_repeated_headers_are_kept_by_kafka_and_refused_whole_by_rocketmq(
    kafka: Side, rocketmq: Side
) -> None:
    """A rejected append stores nothing and takes no offset: the log is the same as without it."""
    unfit = [
        Record(b"k", None, (), START_MS),
        Record(b"", b"v", (), START_MS),
        Record(b"\xff", b"v", (), START_MS),
        Record(b"k", b"v", [("h", None)], START_MS),
        Record(b"k", b"v", [("h", b"1"), ("h", b"2")], START_MS),
    ]
    plain = Workload.of(6)
    mixed = [
        step._replace(records=[*step.records, unfit[n // 4 % len(unfit)]]) if n % 4 == 3 else step
        for n, step in enumerate(plain.steps)
    ]
    kafka.play(mixed)
    for n, step in enumerate(mixed):
        if n % 4 != 3:
            rocketmq.play([step])
            continue
        with pytest.raises(UnrepresentableRecord) as refused:
            rocketmq.play([step])
        assert refused.value.facts()["index"] == len(step.records) - 1
    expected = Workload(mixed).answers()
    assert kafka.answers(plain).records == expected.records
    fitting = Workload([step for n, step in enumerate(mixed) if n % 4 != 3])
    assert rocketmq.answers(fitting) == fitting.answers()
    there = kafka.converted(rocketmq.flavour)  # conversion encodes fields that a message lacks
    back = there.converted(kafka.flavour)
    assert back.answers(plain).records == expected.records
    there.end()
    back.end()


# ---- durability and crashes -------------------------------------------------------------------------


def test_a_flush_is_a_sync_for_each_partition_in_kafka_and_one_for_all_in_rocketmq(
    kafka: Side, rocketmq: Side
) -> None:
    """The test counts syncs of files with records."""
    synced = {}
    for side in (kafka, rocketmq):
        for partition in partitions():
            side.store.append(partition, texts("v"))
        counted = synced[side.backend] = Counter[str]()

        def count(operation: str, path: Path, counted: Counter[str] = counted) -> None:
            if operation == "datasync" and (path.suffix == ".log" or "commitlog" in path.parts):
                counted[str(path)] += 1

        side.fs.before = count
        side.store.flush()
    assert list(synced["kafka"].values()) == [1] * len(partitions())
    assert list(synced["rocketmq"].values()) == [1]


def test_a_flush_of_one_partition_saves_the_others_too_in_rocketmq_alone(
    kafka: Side, rocketmq: Side
) -> None:
    for side, ends in ((kafka, (1, 0)), (rocketmq, (1, 1))):
        side.store.append(SECOND, texts("not flushed"))
        side.store.append(FIRST, texts("flushed"))
        side.store.flush([FIRST])
        side.lose_power_and_open()
        assert (side.ends()[FIRST], side.ends()[SECOND]) == ends, side.backend


def log_file(side: Side) -> tuple[Path, int]:
    """Return the file with the records of FIRST, and the position of the next record."""
    if side.backend == "kafka":
        path = PATH / str(FIRST) / f"{0:020}.log"
        return path, side.fs.size(path)
    end = side.store.stats().details["max_physical_offset"]
    assert isinstance(end, int)
    return PATH / "commitlog" / f"{0:020}", end


def torn(side: Side) -> None:
    """Append nine records to FIRST at once, then one to SECOND, and lose power while FIRST's file is written."""
    side.store.append(FIRST, texts("before"))
    path, begin = log_file(side)
    side.store.append(FIRST, texts(*("x" * 300 for _ in range(9))))
    middle = (begin + log_file(side)[1]) // 2
    side.store.append(SECOND, texts("after"))
    _, end = log_file(side)
    side.store.flush()
    file = side.fs.open(path, write=True)
    file.pwrite(bytes(end - middle), middle)
    file.close()
    side.kill_and_open()


def test_of_an_append_that_is_torn_kafka_keeps_nothing_and_rocketmq_its_first_records(
    kafka: Side, rocketmq: Side
) -> None:
    torn(kafka)
    torn(rocketmq)
    assert values(list(kafka.store.scan(FIRST))) == [b"before"]
    kept = values(list(rocketmq.store.scan(FIRST)))
    assert kept == [b"before", *[b"x" * 300] * (len(kept) - 1)]
    assert 1 < len(kept) < 10


def test_a_torn_tail_costs_kafka_one_partition_and_rocketmq_what_came_later_anywhere(
    kafka: Side, rocketmq: Side
) -> None:
    torn(kafka)
    torn(rocketmq)
    assert values(list(kafka.store.scan(SECOND))) == [b"after"]
    assert values(list(rocketmq.store.scan(SECOND))) == []


# ---- retention -----------------------------------------------------------------------------------


def test_retention_is_a_topics_own_in_kafka_and_takes_the_oldest_of_all_in_rocketmq() -> None:
    """A topic is kept for a minute and another for ever: only Kafka has such a setting."""
    settings = {**SMALL_ROCKETMQ.settings, "fileReservedTime": "1"}
    reserving = replace(SMALL_ROCKETMQ, settings=settings)
    for flavour, configs in ((SMALL_KAFKA, {"retention.ms": "60000"}), (reserving, {})):
        side = Side(flavour)
        side.store.create_topic("short", 1, configs)
        side.store.create_topic("kept", 1)
        short, kept = TopicPartition("short", 0), TopicPartition("kept", 0)
        for _ in range(12):
            for partition in (short, kept):
                side.store.append(partition, texts(*["x" * 1000] * 4))
        side.store.flush()
        side.store.enforce_retention(FAR_FUTURE_MS)
        assert side.store.bounds(short).start > 0
        assert (side.store.bounds(kept).start > 0) == (side.backend == "rocketmq")
        side.end()
