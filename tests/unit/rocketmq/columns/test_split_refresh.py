"""A splitter next to a store that is written: the next refresh shows new records, whichever files hold them."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest

from storage import OffsetRange, ProducerSequence, Record, Splitter, TopicPartition, open_splitter
from storage.model import OffsetBounds
from storage.rocketmq.columns import tail
from storage.rocketmq.index.dispatcher import Dispatcher
from storage.rocketmq.log.scan import walk_log
from storage.rocketmq.store import RocketMQStore, open_rocketmq
from tests.column_rows import everything, read_rows
from tests.unit.rocketmq.columns.split_yard import (
    LOG_BYTES,
    SMALL,
    T0,
    bodies,
    damage,
    made,
    numbered,
    open_small,
    record_place,
    split_rows,
    stored_rows,
)

T1 = TopicPartition("t", 1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocketMQStore]:
    """A store with some records; its dispatcher runs only when a test asks for it."""
    with patch.object(Dispatcher, "start"):
        store = made(tmp_path / "store", [12, 3])
        yield store
        store.close()


@pytest.fixture
def splitter(store: RocketMQStore) -> Iterator[Splitter]:
    splitter = open_splitter(store.path, SMALL)
    yield splitter
    splitter.close()


@pytest.fixture
def openings() -> Iterator[Mock]:
    """A mock that is called whenever a store is opened as a whole."""
    with patch.object(tail, "open_rocketmq", wraps=open_rocketmq) as opening:
        yield opening


def dispatch(store: RocketMQStore) -> None:
    """Make the store write its queue entries."""
    for topic, info in store.topics().items():
        for number in info.partitions:
            partition = TopicPartition(topic, number)
            store.read(partition, store.bounds(partition).start)


def carried_bytes(splitter: Splitter) -> int:
    """Return how many bytes of queue entries a plan of everything carries."""
    splits: Sequence[Any] = splitter.plan(everything(splitter), min_splits=3)
    return sum(len(run.carried) for split in splits for run in split.plan.runs)


def test_what_was_appended_shows_at_the_next_refresh(
    store: RocketMQStore, splitter: Splitter, openings: Mock
) -> None:
    for turn in range(20):
        queue = TopicPartition("t", turn % 2)
        before = splitter.bounds(queue)
        store.append_messages(queue, numbered(7, first=100 * turn))
        assert splitter.bounds(queue) == before
        if turn % 3 == 0:
            dispatch(store)
        splitter.refresh()
        assert splitter.bounds(queue) == store.bounds(queue)
        if turn % 5 == 0:
            assert split_rows(splitter, min_splits=3) == stored_rows(store)
    assert split_rows(splitter) == stored_rows(store)
    openings.assert_not_called()


def test_units_are_carried_only_until_the_files_hold_them(
    store: RocketMQStore, splitter: Splitter
) -> None:
    dispatch(store)
    splitter.refresh()
    assert carried_bytes(splitter) == 0
    store.append_messages(T0, numbered(30, first=12))
    splitter.refresh()
    assert carried_bytes(splitter) == 30 * 20
    dispatch(store)
    splitter.refresh()
    assert carried_bytes(splitter) == 0
    assert bodies(split_rows(splitter)) == list(range(42))


def test_only_what_is_new_is_read(store: RocketMQStore, splitter: Splitter) -> None:
    store.append_messages(T0, numbered(3, first=12))
    end = store.log.end
    with patch.object(tail, "walk_log", wraps=walk_log) as walk:
        splitter.refresh()
        splitter.refresh()
    first, second = (call.args[1] for call in walk.call_args_list)
    assert first < end == second


def test_new_topics_and_queues_show(
    store: RocketMQStore, splitter: Splitter, openings: Mock
) -> None:
    store.create_topic("empty", 2)
    store.append_messages(TopicPartition("unlisted", 5), numbered(2))
    splitter.refresh()
    wanted = [("empty", 0), ("empty", 1), ("t", 0), ("t", 1), ("unlisted", 5)]
    assert [tuple(p) for p in splitter.partitions()] == wanted
    assert splitter.bounds(TopicPartition("unlisted", 5)) == OffsetBounds(0, 2, 2)
    assert split_rows(splitter) == stored_rows(store)
    openings.assert_not_called()


def test_a_deleted_topic_goes_and_one_of_its_name_begins_anew(
    store: RocketMQStore, splitter: Splitter
) -> None:
    store.create_topic("u", 1)
    store.append_messages(TopicPartition("u", 0), numbered(2))
    store.delete_topic("t")
    splitter.refresh()
    assert [p.topic for p in splitter.partitions()] == ["u"]
    store.create_topic("t", 1)
    store.append_messages(T0, numbered(2, first=70))
    splitter.refresh()
    assert bodies(split_rows(splitter)) == [70, 71]


def test_a_deleted_head_goes(tmp_path: Path, openings: Mock) -> None:
    store = made(tmp_path, [120, 3])
    splitter = open_splitter(tmp_path, SMALL)
    dispatch(store)
    base = store.log.run.bases[2]
    for old in store.log.run.bases[:2]:
        (tmp_path / "commitlog" / f"{old:020}").unlink()
    store.append_messages(T0, numbered(1, first=120))
    openings.reset_mock()
    splitter.refresh()
    start = splitter.bounds(T0).start
    assert 0 < start < 120
    assert bodies(split_rows(splitter)) == list(range(start, 121))
    assert splitter.bounds(T1) == OffsetBounds(3, 3, 3)
    assert min(row["physical_offset"] for row in split_rows(splitter)[T0]) >= base
    openings.assert_not_called()
    splitter.close()
    store.close()


def test_an_empty_store_is_followed(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    splitter = open_splitter(tmp_path, SMALL)
    assert not splitter.partitions()
    splitter.refresh()
    store.create_topic("t", 1)
    store.append_messages(T0, numbered(3))
    splitter.refresh()
    assert bodies(split_rows(splitter)) == [0, 1, 2]
    splitter.close()
    store.close()


def test_a_store_that_was_cut_is_opened_anew(store: RocketMQStore, splitter: Splitter) -> None:
    store.append_messages(T0, numbered(5, first=12))
    splitter.refresh()
    store.close()
    end = store.log.end
    path = store.log.run.path(end - end % LOG_BYTES)
    damage(path, 0, bytes(LOG_BYTES))
    (store.path / "abort").write_bytes(b"1 logserver")  # without it such a log is refused
    again = open_small(store.path)
    again.append_messages(T0, numbered(40, first=500))
    splitter.refresh()
    assert split_rows(splitter) == stored_rows(again)
    again.close()


def test_a_store_that_was_replaced_is_opened_anew(
    store: RocketMQStore, splitter: Splitter, tmp_path: Path
) -> None:
    other = made(tmp_path / "other", [40, 1])
    wanted = stored_rows(other)
    other.close()
    store.path.rename(tmp_path / "old")
    shutil.copytree(tmp_path / "other", store.path)
    splitter.refresh()
    assert split_rows(splitter) == wanted
    shutil.rmtree(store.path)
    (tmp_path / "old").rename(store.path)


def test_a_record_that_is_being_written_shows_when_it_is_whole(
    store: RocketMQStore, splitter: Splitter
) -> None:
    end = store.log.end
    store.append_messages(T0, numbered(1, first=12))
    path = store.log.run.path(end - end % LOG_BYTES)
    position = end % LOG_BYTES
    whole = path.read_bytes()[position : position + 100]
    # All changes are within one tick of the files' clock, however long they take.
    with patch.object(tail, "TIME_STEP_MS", 1 << 40):
        damage(path, position + 95, bytes(5))
        for _ in range(4):
            splitter.refresh()
            assert splitter.bounds(T0).end == 12
        looked_at = path.stat()
        damage(path, position, whole)
        os.utime(path, ns=(looked_at.st_atime_ns, looked_at.st_mtime_ns))
        splitter.refresh()
    assert splitter.bounds(T0).end == 13
    assert bodies(split_rows(splitter))[-1] == 12


def test_damage_in_the_log_is_passed_over_with_a_finding(
    store: RocketMQStore, splitter: Splitter
) -> None:
    store.append_messages(T0, numbered(30, first=12))
    dispatch(store)
    damage(*record_place(store.path, b"12 bbbb"), b"?")
    splitter.refresh()
    assert splitter.bounds(T0).end == 12
    splitter.refresh()
    assert splitter.bounds(T0).end == 42
    assert "damaged-record" in {finding.code for finding in splitter.findings()}
    rest = read_rows(splitter.plan([OffsetRange(T0, 13, 42)]))
    assert bodies(rest) == list(range(13, 42))


@pytest.mark.parametrize("age_s", [0, 3600])
def test_what_recovery_cut_stays_cut(store: RocketMQStore, splitter: Splitter, age_s: int) -> None:
    """The first records of an append that a crash cut short are valid, but they are no rows.

    The crash was a moment ago, when file times need not show the next write, or longer ago.
    """
    producer = ProducerSequence(store.new_producer_id(), 0, 0)
    dispatch(store)
    store.append(T0, [Record(None, b"%d x" % n) for n in range(12, 16)], producer=producer)
    end = store.log.end
    path = store.log.run.path(end - end % LOG_BYTES)
    damage(path, (end - 10) % LOG_BYTES, bytes(10))
    changed_s = path.stat().st_mtime - age_s
    os.utime(path, (changed_s, changed_s))
    fresh = open_splitter(store.path, SMALL)
    for _ in range(3):
        assert fresh.bounds(T0).end == 12
        fresh.refresh()
    fresh.close()


def test_times_are_looked_up_in_what_is_new(store: RocketMQStore, splitter: Splitter) -> None:
    for number in range(5):
        store.append_messages(
            T0, numbered(3, first=100 * number), store_timestamp_ms=2**42 + number
        )
    splitter.refresh()
    for time_ms in (0, 2**42, 2**42 + 2, 2**42 + 4, 2**42 + 5):
        assert splitter.offset_for_time(T0, time_ms) == store.offset_for_time(T0, time_ms)


def test_a_refresh_keeps_no_file_open(store: RocketMQStore, splitter: Splitter) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(30):
        store.append_messages(T0, numbered(3, first=number))
        splitter.refresh()
    assert len(list(Path("/proc/self/fd").iterdir())) < before + 30


def test_a_writer_at_full_speed_is_followed(tmp_path: Path) -> None:
    """Each refresh shows all records that were stored before it, and no record twice, in part or out of order."""
    store = made(tmp_path / "store", [1, 1])
    splitter = open_splitter(store.path, SMALL)
    done = threading.Event()

    def write() -> None:
        for turn in range(150):
            store.append_messages(
                TopicPartition("t", turn % 2), numbered(5, first=1 + turn // 2 * 5)
            )
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = {T0: 0, T1: 0}
    while not done.is_set() or seen != {T0: 376, T1: 376}:
        there = {queue: store.bounds(queue).end for queue in seen}
        splitter.refresh()
        now = {queue: splitter.bounds(queue).end for queue in seen}
        assert all(now[queue] >= there[queue] for queue in seen)
        ranges = [OffsetRange(queue, seen[queue], now[queue]) for queue in seen]
        rows = read_rows(splitter.plan(ranges, min_splits=2))
        for queue, first in seen.items():
            assert bodies(rows, queue) == list(range(first, now[queue]))
        seen = now
    writer.join()
    splitter.close()
    store.close()
