"""Cleanings that meet retention, deleted records, deleted topics and changed policies, at every step of a cleaning."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from storage import CompactionReport
from storage.kafka.compaction import dirty_range, job
from storage.kafka.format.batch import HEADER_SIZE
from storage.kafka.log import replacement
from storage.kafka.log.log_segments import LogSegments
from storage.kafka.log.segment import Segment
from tests.robustness.crash.power import Power
from tests.unit.kafka.compaction.cleaning import Cleaning
from tests.unit.kafka.workshop import ROOT, T0, Workshop

BIG = b"x" * 120  # one such record fills a segment
SMALL_SEGMENTS = {"internal_segment_bytes": "200"}
STEPS = 12
CLEANED = "cleaner-offset-checkpoint"


def filled(cleaning: Cleaning, **configs: str) -> None:
    """Write a log of several closed segments, in which most records have a newer one with their key."""
    cleaning.create(**configs)
    for value in (b"1", b"2", b"3"):
        cleaning.put((b"a", value), (b"b", value))
        cleaning.roll()


def rest(cleaning: Cleaning) -> CompactionReport:
    """Clean until nothing is due. Return the last report of a partition."""
    last = CompactionReport()
    for _ in range(STEPS):
        report = cleaning.clean()
        if report.partition is None:
            return last
        last = report
    raise AssertionError("the cleaning does not end")


def sizes(cleaning: Cleaning) -> list[int]:
    return [segment.size_bytes for segment in cleaning.store.partition(T0).segments()]


@pytest.fixture
def step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleaning can be paused after each batch."""
    monkeypatch.setattr(job, "STEP_BYTES", 1)


# ---- retention -----------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [{"retention_ms": "1000"}, {"retention_bytes": "191"}])
def test_segments_that_a_cleaning_emptied_do_not_hold_back_retention(
    cleaning: Cleaning, limit: dict[str, str]
) -> None:
    cleaning.create(**SMALL_SEGMENTS, cleanup_policy="compact,delete", **limit)
    for _ in range(4):
        cleaning.put((b"a", BIG))
    cleaning.store.flush()
    assert cleaning.clean().finished
    assert sizes(cleaning) == [0, 0, 191, 191]
    for _ in range(2):
        cleaning.put((b"a", BIG))
    cleaning.store.flush()
    cleaning.shop.clock.now_ms += 5000
    cleaning.store.enforce_retention(cleaning.shop.clock.now_ms)
    assert sizes(cleaning) in ([191], [0])


def test_damage_after_the_first_merged_segments_is_met_once(cleaning: Cleaning) -> None:
    """It is in the part that was clean already, after segments that this cleaning has replaced."""
    cleaning.create(**SMALL_SEGMENTS)
    for number in range(4):
        cleaning.put((b"%d" % number, BIG))
    cleaning.store.flush()
    assert cleaning.clean().finished
    cleaning.shop.overwrite(HEADER_SIZE + 9, b"?", base_offset=1)
    for number in range(4, 9):
        cleaning.put((b"%d" % number, BIG))
    cleaning.store.flush()
    assert "damaged batch at position 0" in str(rest(cleaning).uncleanable)


# ---- topics --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.parametrize("step", range(1, STEPS))
def test_a_topic_deleted_during_its_cleaning_leaves_nothing_to_the_next_of_its_name(
    cleaning: Cleaning, step: int
) -> None:
    filled(cleaning)
    for _ in range(step):
        cleaning.clean(max_bytes=1)
    cleaning.store.delete_topic("t")
    rest(cleaning)
    status = cleaning.store.stats().compaction
    assert status is not None
    assert not status.uncleanable
    filled(cleaning)
    rest(cleaning)
    assert cleaning.left() == [(6, b"a", b"3"), (7, b"b", b"3")]


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.parametrize("step", range(1, STEPS))
def test_a_topic_created_again_during_the_cleaning_of_the_old_one_is_cleaned_from_its_start(
    cleaning: Cleaning, step: int
) -> None:
    """The offset up to which the old one was cleaned is not that of the new one."""
    filled(cleaning)
    for _ in range(step):
        cleaning.clean(max_bytes=1)
    cleaning.store.delete_topic("t")
    cleaning.create()
    rest(cleaning)
    if cleaning.shop.fs.exists(ROOT / CLEANED):
        assert T0 not in cleaning.shop.offsets(CLEANED)
    for value in (b"1", b"2", b"3"):
        cleaning.put((b"a", value), (b"b", value))
    cleaning.roll()
    rest(cleaning)
    assert cleaning.left() == [(4, b"a", b"3"), (5, b"b", b"3")]


@pytest.mark.usefixtures("step_by_step")
@pytest.mark.parametrize("step", range(1, STEPS))
def test_a_topic_that_is_no_longer_compacted_loses_no_further_record(
    cleaning: Cleaning, step: int
) -> None:
    filled(cleaning)
    for _ in range(step):
        cleaning.clean(max_bytes=1)
    left = cleaning.left()
    cleaning.configs({"cleanup.policy": "delete"})
    rest(cleaning)
    assert cleaning.left() == left
    assert not [name for name in cleaning.shop.names() if name.endswith(".cleaned")]


# ---- a look at the dirty ranges ------------------------------------------------------------------


def delete_records(cleaning: Cleaning) -> None:
    cleaning.store.delete_records(T0, 6)


def delete_topic(cleaning: Cleaning) -> None:
    cleaning.store.delete_topic("t")


@pytest.mark.parametrize("delete", [delete_records, delete_topic])
def test_a_deletion_during_a_look_is_no_damage(
    cleaning: Cleaning, monkeypatch: pytest.MonkeyPatch, delete: Callable[[Cleaning], None]
) -> None:
    """The segments are known, and then another thread deletes their files."""
    filled(cleaning, cleanup_policy="compact,delete", max_compaction_lag_ms="1000")
    cleaning.store.close()
    cleaning.store = cleaning.shop.open()  # nothing of the files is in memory
    original, waits = dirty_range._closed_from, [True]

    def slow(segments: LogSegments, offset: int) -> Sequence[Segment]:
        if waits and waits.pop():
            delete(cleaning)
        return original(segments, offset)

    monkeypatch.setattr(dirty_range, "_closed_from", slow)
    cleaning.clean()
    assert not waits
    status = cleaning.store.stats().compaction
    assert status is not None
    assert not status.uncleanable


# ---- other periodic work -------------------------------------------------------------------------


def test_a_long_segment_is_synced_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that synced all of it would hold back the flush of appends."""
    monkeypatch.setattr(replacement, "WRITE_BYTES", 200)
    monkeypatch.setattr(replacement, "SYNC_BYTES", 1000)
    power = Power()
    cleaning = Cleaning(Workshop(power))
    cleaning.create()
    for number in range(40):
        cleaning.put((b"%d" % number, BIG))
    cleaning.roll()
    synced = [0]

    def watch(operation: str, path: Path) -> None:
        if operation == "datasync" and path.name.endswith(".log.cleaned"):
            synced.append(power.size(path))

    power.before = watch
    assert cleaning.clean().finished
    pieces = [end - start for start, end in pairwise(synced)]
    assert len(pieces) > 5
    assert max(pieces) <= 1000 + 200 + 200, "and one batch"


@pytest.mark.usefixtures("step_by_step")
def test_a_store_can_be_closed_while_another_thread_cleans() -> None:
    power = Power()
    cleaning = Cleaning(Workshop(power))
    filled(cleaning)
    begun, go_on = threading.Event(), threading.Event()

    def wait(_operation: str, path: Path) -> None:
        if path.name.endswith(".log.cleaned") and not begun.is_set():
            begun.set()
            assert go_on.wait(10)

    power.before = wait
    cleaner = threading.Thread(target=cleaning.clean)
    cleaner.start()
    assert begun.wait(10)
    threading.Timer(0.1, go_on.set).start()
    cleaning.store.close()
    cleaner.join()
    assert not [name for name in cleaning.shop.names() if name.endswith(".cleaned")]
    cleaning.store = cleaning.shop.open()
    assert cleaning.store.recovery.clean_shutdown
    rest(cleaning)
    assert cleaning.left() == [(6, b"a", b"3"), (7, b"b", b"3")]
