"""Lookups by time over the many files of a queue: remembered times of file ends save reads and change no answer."""

from __future__ import annotations

import random
from unittest.mock import patch

from storage import Bound
from storage.model import TimedOffset
from storage.rocketmq.index.consume_queue import ConsumeQueue
from storage.rocketmq.lookup.by_time import find_time
from storage.rocketmq.store import RocketMQStore
from tests.unit.rocketmq.workshop import T0, Workshop, put_value

HOUR_MS = 3_600_000
AN_HOUR = {"fileReservedTime": "1"}
COUNT = 60  # records, five entries a file


def check_answers(store: RocketMQStore, start_ms: int) -> None:
    """Check that times around the records, under both bounds, are answered as by a search without remembered times."""
    units = store.queue(T0).units
    for time_ms in range(start_ms - 2, start_ms + COUNT + 12):
        for bound in Bound:
            found = store.offset_for_time(T0, time_ms, bound=bound)
            assert found == find_time(store.log, units, time_ms, end=units.end, bound=bound)


def test_what_is_remembered_changes_no_answer(shop: Workshop) -> None:
    """This holds with times that go backwards, with records after the known ones, and without the first records."""
    store, dice, start_ms = shop.open_with_topic(AN_HOUR), random.Random(5), shop.clock.now_ms
    for round_ms in (start_ms, start_ms + COUNT // 2):
        for number in range(COUNT // 2):
            shop.clock.now_ms = round_ms + number + dice.randrange(-8, 9)
            put_value(store, b"%d" % number)
        store.flush()
        check_answers(store, start_ms)
    before = store.queue(T0).units.start
    store.enforce_retention(shop.clock.now_ms + 2 * HOUR_MS)
    assert store.queue(T0).units.start > before
    check_answers(store, start_ms)


def test_the_ends_of_files_are_read_once(shop: Workshop) -> None:
    store, start_ms = shop.open_with_topic(), shop.clock.now_ms
    for number in range(COUNT):
        shop.clock.now_ms = start_ms + number
        put_value(store, b"%d" % number)
    reads: list[int] = []
    for _ in range(2):
        with patch.object(
            ConsumeQueue, "unit", autospec=True, side_effect=ConsumeQueue.unit
        ) as unit:
            found = store.offset_for_time(T0, start_ms + COUNT - 2)
        assert found is not None
        assert found.offset == COUNT - 2
        reads.append(unit.call_count)
    files = len(shop.queue_bases())
    assert files == COUNT // 5
    assert reads[0] - reads[1] == files - 1


def test_a_remembered_end_whose_record_is_gone_has_no_time(shop: Workshop) -> None:
    """This is the first entry of a file with other live entries: with UPPER its time alone would skip the file."""
    store, start_ms = shop.open_with_topic(AN_HOUR), shop.clock.now_ms
    for number in range(40):
        shop.clock.now_ms = start_ms + (number if number % 5 else 1000)
        put_value(store, b"%d" % number)
    store.flush()
    queue = store.queue(T0)
    assert store.offset_for_time(T0, start_ms, bound=Bound.UPPER) is None
    assert sorted(queue.edge_times) == list(range(0, 40, 5))
    store.enforce_retention(shop.clock.now_ms + 2 * HOUR_MS)
    start = queue.units.start
    assert queue.units.first_offset < start < queue.units.first_offset + 5
    assert store.offset_for_time(T0, start_ms + 500, bound=Bound.UPPER) == TimedOffset(
        39, start_ms + 39
    )
    assert min(queue.edge_times) == queue.units.first_offset
