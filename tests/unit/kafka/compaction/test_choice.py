"""Which partition is cleaned, how far, and when: ratio, lags, groups of segments, a full map, and who asked for it."""

from __future__ import annotations

from typing import Any

import pytest

from storage import Record, TopicPartition
from storage.kafka.compaction.dirty_range import dirty_range, group_segments
from storage.kafka.format.checkpoints import encode_offsets
from tests.unit.kafka.compaction.cleaning import COMPACT, Cleaning
from tests.unit.kafka.workshop import ROOT, T0, Workshop

CHECKPOINT = "cleaner-offset-checkpoint"
HOUR_MS = 3_600_000


def test_the_active_segment_is_never_cleaned(cleaning: Cleaning) -> None:
    cleaning.create()
    cleaning.put((b"a", b"1"), (b"a", b"2"))
    assert cleaning.clean().partition is None
    cleaning.roll()
    assert cleaning.clean().cleaned_up_to == 2


def test_the_ratio_decides(cleaning: Cleaning) -> None:
    cleaning.create(min_cleanable_dirty_ratio="0.5")
    cleaning.put((b"a", b"x" * 1000))
    cleaning.roll()
    assert cleaning.clean().finished
    cleaning.put((b"b", b"x" * 200))
    cleaning.roll()
    assert cleaning.clean().partition is None
    status = cleaning.store.stats().compaction
    assert status is not None
    assert 0.2 < status.max_dirty_ratio < 0.5
    assert status.dirty_bytes > 200
    cleaning.configs({"min.cleanable.dirty.ratio": "0.2"})
    assert cleaning.clean().finished


def test_young_records_wait(cleaning: Cleaning) -> None:
    cleaning.create(min_compaction_lag_ms=str(HOUR_MS))
    cleaning.put((b"a", b"1"), (b"a", b"2"))
    cleaning.roll()
    assert cleaning.clean().partition is None
    cleaning.shop.clock.now_ms += HOUR_MS
    cleaning.put((b"a", b"3"))
    cleaning.roll()
    assert cleaning.clean().cleaned_up_to == 2
    assert [offset for offset, _, _ in cleaning.left()] == [1, 3]


def test_old_records_are_overdue_whatever_the_ratio(cleaning: Cleaning) -> None:
    cleaning.create(min_cleanable_dirty_ratio="1", max_compaction_lag_ms=str(HOUR_MS))
    cleaning.put((b"a", b"1"), (b"a", b"2"))
    cleaning.roll()
    assert cleaning.clean().partition is None
    cleaning.shop.clock.now_ms += HOUR_MS + 1
    assert cleaning.clean().finished
    assert cleaning.clean().partition is None, "nothing is dirty"


def test_the_dirtiest_partition_is_first(cleaning: Cleaning) -> None:
    store = cleaning.create()
    cleaning.put((b"a", b"1"))
    cleaning.roll()
    cleaning.clean()
    cleaning.put((b"a", b"2"))
    cleaning.roll()
    store.create_topic("u", 1, {**COMPACT, "internal.segment.bytes": "100"})
    other = TopicPartition("u", 0)
    for value in (b"1", b"2"):
        store.append(other, [Record(b"k", value)])
    store.flush()
    assert [cleaning.clean().partition for _ in range(3)] == [other, T0, None]


def test_segments_are_merged_up_to_their_limits(cleaning: Cleaning) -> None:
    cleaning.create(internal_segment_bytes="400")
    for number in range(30):
        cleaning.put((b"key %d" % number, b"x" * 20))
    cleaning.store.flush()
    before = cleaning.shop.bases()
    cleaning.clean()
    assert cleaning.shop.bases() == before, "each is too large to be merged"
    cleaning.put(*((b"key %d" % number, b"y") for number in range(10)))
    for number in range(10, 30):
        cleaning.put((b"key %d" % number, b"y" * 20))
    for _ in range(2):  # the first cleaning makes them small, the second one merges them
        cleaning.roll()
        cleaning.clean()
    of_the_first = [base for base in cleaning.shop.bases() if base <= before[-1]]
    assert len(of_the_first) < len(before)
    segments = cleaning.store.partition(T0).segments()
    assert all(s.size_bytes <= 400 for s in segments)
    assert [r for _, r, _ in cleaning.left()] == [b"key %d" % n for n in range(30)]


def test_a_group_holds_offsets_that_an_index_can_name(cleaning: Cleaning) -> None:
    store = cleaning.create()
    for _ in range(3):
        cleaning.put((b"a", b"1"))
        cleaning.roll()
    segments = store.partition(T0).segments()[:-1]
    settings = store.partition(T0).settings
    grouped = group_segments(cleaning.shop.fs, segments, settings, end_offset=6)
    assert len(grouped) == 1
    far = 1 << 31
    grouped = group_segments(cleaning.shop.fs, segments, settings, end_offset=far + 1)
    assert [len(group) for group in grouped] == [len(segments) - 1, 1]


def test_a_full_map_cleans_a_part(cleaning: Cleaning) -> None:
    store = cleaning.create()
    settings: Any = store._compactor._settings
    object.__setattr__(settings, "cleaner_buffer_bytes", 24 * 10)
    for _ in range(3):
        cleaning.put(*((b"%d" % number, b"x") for number in range(20)))
    cleaning.roll()
    report = cleaning.clean()
    assert report.cleaned_up_to == 9, "nine keys fit"
    assert cleaning.shop.offsets(CHECKPOINT) == {T0: 9}
    assert len(cleaning.left()) == 60, "no record of these keys was offered twice"
    cleanings = 1
    while cleaning.clean().partition is not None:
        cleanings += 1
    assert cleanings > 4
    assert len(cleaning.left()) == 20


# ---- the checkpoint ----


def test_the_checkpoint_is_kept_and_lines_of_others_stay(cleaning: Cleaning) -> None:
    store = cleaning.create()
    cleaning.put((b"a", b"1"), (b"a", b"2"))
    cleaning.roll()
    other = TopicPartition("gone", 3)
    cleaning.shop.put(ROOT / CHECKPOINT, encode_offsets({other: 5}))
    cleaning.clean()
    assert cleaning.shop.offsets(CHECKPOINT) == {other: 5, T0: 2}
    store.close()
    cleaning.store = cleaning.shop.open()
    assert cleaning.clean().partition is None


@pytest.mark.parametrize("checkpoint", [None, 999])
def test_without_an_offset_of_the_log_all_of_it_is_dirty(
    cleaning: Cleaning, checkpoint: int | None
) -> None:
    store = cleaning.create()
    cleaning.put((b"a", b"1"), (b"a", b"2"))
    cleaning.roll()
    found = dirty_range(store.partition(T0), checkpoint, cleaning.shop.clock.now_ms)
    assert (found.first_offset, found.end_offset, found.clean_bytes) == (0, 2, 0)
    assert found.ratio == 1


def test_a_topic_of_the_same_name_begins_dirty(cleaning: Cleaning) -> None:
    store = cleaning.create()
    cleaning.put((b"a", b"1"), (b"a", b"2"))
    cleaning.roll()
    assert cleaning.clean().finished
    store.delete_topic("t")
    store.create_topic("t", 1, COMPACT)
    assert cleaning.shop.offsets(CHECKPOINT) == {}
    cleaning.put((b"a", b"1"), (b"a", b"2"))
    cleaning.roll()
    assert cleaning.clean().finished
    assert cleaning.left() == [(1, b"a", b"2")]


# ---- who asked for it ----

OFFSETS = TopicPartition("__consumer_offsets", 0)
SMALL = {"offsets.topic.num.partitions": "1", "offsets.topic.segment.bytes": "100"}


def with_offsets(shop: Workshop, settings: dict[str, str]) -> Cleaning:
    cleaning = Cleaning(shop, {**SMALL, **settings})
    cleaning.store.create_topic(OFFSETS.topic, 1)
    for value in (b"1", b"2", b"3"):
        cleaning.store.append(OFFSETS, [Record(b"key", value)])
    cleaning.store.flush()
    return cleaning


def test_offsets_of_groups_are_compacted_in_a_store_of_ours(shop: Workshop) -> None:
    assert with_offsets(shop, {}).clean().partition == OFFSETS


def test_the_cleaner_can_be_off(shop: Workshop) -> None:
    assert with_offsets(shop, {"log.cleaner.enable": "false"}).clean().partition is None


@pytest.mark.parametrize("settings", [{}, {"log.cleaner.enable": "true"}])
def test_a_store_of_a_broker_is_left_as_it_is_unless_told(
    shop: Workshop, settings: dict[str, str]
) -> None:
    cleaning = with_offsets(shop, {})
    cleaning.store.close()
    shop.fs.remove(ROOT / ".logserver.store.json")
    cleaning.store = shop.open({**SMALL, **settings})
    assert (cleaning.clean().partition == OFFSETS) is bool(settings)


def test_a_topic_that_asks_for_it_is_compacted_in_a_store_of_a_broker(shop: Workshop) -> None:
    cleaning = with_offsets(shop, {})
    cleaning.store.close()
    shop.fs.remove(ROOT / ".logserver.store.json")
    cleaning.store = shop.open(SMALL)
    cleaning.store.alter_topic(OFFSETS.topic, COMPACT)
    assert cleaning.clean().partition == OFFSETS
