"""Segments with renamed files: the wrong name is reported with the right name, and every record is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from storage import Record, StoreOptions
from storage.errors import DamagedStore
from storage.kafka.format import names
from storage.kafka.format.names import segment_name
from storage.kafka.tools import open_inspector
from storage.model import Finding
from tests.unit.kafka.log.batches import data_batch
from tests.unit.kafka.log.splitting import split_offsets, splitter_of
from tests.unit.kafka.recovery.test_overlaps import EIGHT, FOUR, a_log, dumped, log, searched
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_sequenced, put_value, values

ZERO = log(0, 1, 2, 3)
SUFFIXES = (names.LOG, names.INDEX, names.TIME_INDEX)


class Case(NamedTuple):
    """A case: the logs by file name, the right base offsets of wrong names, and the severity of the finding.

    Names in `mild` give a warning, whatever the severity of the case.
    """

    logs: Mapping[int, bytes]
    right: Mapping[int, int]
    severity: str = "warning"
    mild: Collection[int] = ()

    def found(self) -> dict[str, tuple[str, str | None]]:
        """Return the expected result of `wrong_names`."""
        return {
            segment_name(name): (
                "warning" if name in self.mild else self.severity,
                segment_name(base),
            )
            for name, base in self.right.items()
        }


CASES: Mapping[str, Case] = {
    "one lower": Case({0: ZERO, 4: FOUR, 7: EIGHT}, {7: 8}),
    "some lower": Case({0: ZERO, 4: FOUR, 5: EIGHT}, {5: 8}),
    "in the middle": Case({0: ZERO, 3: FOUR, 8: EIGHT}, {3: 4}),
    "in a batch": Case({0: data_batch(0, count=4), 2: FOUR, 8: EIGHT}, {2: 4}),
    "one higher": Case({0: ZERO, 4: FOUR, 9: EIGHT}, {9: 8}, "error"),
    "one higher, in a batch": Case(
        {0: ZERO, 5: data_batch(4, count=3) + log(7), 8: EIGHT}, {5: 4}, "error"
    ),
    "far higher": Case({0: ZERO, 4: FOUR, 900: EIGHT}, {900: 8}, "error"),
    "in the middle, higher": Case({0: ZERO, 6: FOUR, 8: EIGHT}, {6: 4}, "error"),
    "the first": Case({1: ZERO, 4: FOUR, 8: EIGHT}, {1: 0}, "error"),
    "the only one": Case({3: log(*range(10))}, {3: 0}, "error"),
    "before others": Case({0: ZERO, 2: EIGHT, 4: FOUR}, {2: 8}, "error"),
    "after others": Case({0: ZERO, 8: EIGHT, 9: FOUR}, {9: 4}, "error"),
    "two": Case({0: ZERO, 3: FOUR, 7: EIGHT}, {3: 4, 7: 8}),
    "all, each the next name": Case({4: ZERO, 8: FOUR, 12: EIGHT}, {4: 0, 8: 4, 12: 8}, "error"),
    "all lower": Case({0: ZERO, 1: FOUR, 4: EIGHT}, {1: 4, 4: 8}, "error", {1}),
}


def verified(shop: Workshop) -> list[Finding]:
    inspector = open_inspector(ROOT, StoreOptions(), fs=shop.fs, clock=shop.clock)
    assert inspector is not None
    with closing(inspector):
        return list(inspector.verify())


def wrong_names(found: list[Finding]) -> dict[str, tuple[str, str | None]]:
    return {
        Path(f.path).name: (f.severity, f.expected) for f in found if f.code == "misnamed-segment"
    }


def damage(found: list[Finding]) -> set[str]:
    """Return the finding codes, without the codes for small files that `a_log` does not write."""
    return {f.code for f in found} - {"missing-index", "missing-snapshot", "unclean-stop"}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_the_right_name_is_reported_and_each_record_served(
    shop: Workshop, case: str, clean: bool
) -> None:
    logs, right = CASES[case][:2]
    a_log(shop, logs, clean=clean)
    before = shop.names()
    expected = CASES[case].found()
    found = verified(shop)
    assert wrong_names(found) == expected
    assert damage(found) == {"misnamed-segment"}
    for one in found:
        if one.code == "misnamed-segment":
            assert str(one.expected) in one.message
    assert dumped(shop) == list(range(10))
    with shop.open(read_only=True) as store:
        assert len(values(store)) == 10
        assert wrong_names(list(store.recovery.findings)) == expected
    assert shop.names() == before
    for times in range(2):
        with shop.open() as store:
            assert wrong_names(list(store.recovery.findings)) == ({} if times else expected)
            assert not store.recovery.losses
            assert store.bounds(T0)[::2] == (0, 10)
            for offset in range(10):
                page = store.read(T0, offset, max_records=1)
                assert [record.offset for record in page.records] == [offset]
    assert set(shop.bases()) == {right.get(name, name) for name in logs}
    with shop.open() as store:
        assert put_value(store, b"new").base_offset == 10
    assert damage(verified(shop)) == set()


@pytest.mark.parametrize("case", CASES)
def test_salvage_keeps_every_record(shop: Workshop, case: str) -> None:
    a_log(shop, CASES[case].logs, clean=True)
    inspector = open_inspector(ROOT, StoreOptions(), fs=shop.fs, clock=shop.clock)
    assert inspector is not None
    with closing(inspector):
        report = inspector.salvage(ROOT.parent / "kept")
    assert (report.kept_records, report.losses) == (10, [])
    assert wrong_names(list(report.findings))
    assert [(kept.first_offset, kept.next_offset) for kept in report.kept] == [(0, 10)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_splits_hold_every_record_after_each_refresh(
    shop: Workshop, case: str, clean: bool
) -> None:
    a_log(shop, CASES[case].logs, clean=clean)
    with closing(splitter_of(shop)) as splitter:
        assert split_offsets(shop, splitter) == list(range(10))
        for _ in range(2):
            splitter.refresh()
            assert split_offsets(shop, splitter) == list(range(10))
        assert wrong_names(list(splitter.findings())) == CASES[case].found()


@pytest.mark.parametrize("case", CASES)
def test_splits_follow_a_start_that_renames(shop: Workshop, case: str) -> None:
    a_log(shop, CASES[case].logs, clean=True)
    with closing(splitter_of(shop)) as splitter:
        assert split_offsets(shop, splitter) == list(range(10))
        with shop.open() as store:
            for count in (10, 11):
                splitter.refresh()
                assert split_offsets(shop, splitter) == list(range(count))
                put_value(store, b"new")
                store.flush()


@pytest.mark.parametrize("case", ["one lower", "in the middle", "two"])
def test_splits_follow_a_broker_that_keeps_the_wrong_names(shop: Workshop, case: str) -> None:
    """A broker serves a log with names that are too low but in order, and appends to its last file."""
    logs = CASES[case].logs
    a_log(shop, logs, clean=False)
    last = max(logs)
    with closing(splitter_of(shop)) as splitter:
        assert split_offsets(shop, splitter) == list(range(10))
        for count in (11, 12):
            shop.overwrite(shop.fs.size(shop.path(last)), log(count - 1), base_offset=last)
            splitter.refresh()
            assert split_offsets(shop, splitter) == list(range(count))
        shop.put(shop.path(12), log(12))
        splitter.refresh()
        assert split_offsets(shop, splitter) == list(range(13))


ROLLED = {"internal.segment.bytes": "400", "index.interval.bytes": "1"}


def rolled(shop: Workshop, *, count: int = 24) -> list[int]:
    """Write a store with several segments, each with indexes and a producer snapshot; return the base offsets."""
    shop.open(ROLLED).close()
    with shop.open(ROLLED) as store:
        store.create_topic("t", 1)
        for number in range(count):
            put_sequenced(store, 7, number)
    return shop.bases()


def rename(shop: Workshop, old: int, new: int) -> None:
    for suffix in (*SUFFIXES, names.SNAPSHOT):
        if shop.fs.exists(shop.path(old, suffix)):
            shop.fs.rename(shop.path(old, suffix), shop.path(new, suffix))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("step", [-2, -1, 1, 2])
@pytest.mark.parametrize("which", [1, 2, -1])
def test_the_other_files_of_the_segment_come_along(
    shop: Workshop, which: int, step: int, clean: bool
) -> None:
    base = rolled(shop)[which]
    if not clean:
        shop.fs.remove(ROOT / names.CLEAN_SHUTDOWN)
    before = {name: shop.fs.read_bytes(ROOT / "t-0" / name) for name in shop.names()}
    rename(shop, base, base + step)
    assert damage(verified(shop)) == {"misnamed-segment"}
    assert len(dumped(shop)) == 24
    with shop.open(ROLLED) as store:
        assert len(values(store)) == 24
        again = put_sequenced(store, 7, 23)
        assert (again.base_offset, again.duplicate) == (23, True)
    after = {name: shop.fs.read_bytes(ROOT / "t-0" / name) for name in shop.names()}
    assert after == before


@pytest.mark.parametrize("suffixes", [(names.LOG,), SUFFIXES, (names.LOG, names.INDEX)])
def test_files_that_kept_their_names_are_found_again(
    shop: Workshop, suffixes: tuple[str, ...]
) -> None:
    base = rolled(shop)[2]
    before = {name: shop.fs.read_bytes(ROOT / "t-0" / name) for name in shop.names()}
    for suffix in suffixes:
        shop.fs.rename(shop.path(base, suffix), shop.path(base - 1, suffix))
    assert wrong_names(verified(shop)) == {
        segment_name(base - 1): ("warning", segment_name(base)),
    }
    with shop.open(ROLLED) as store:
        assert len(values(store)) == 24
    after = {name: shop.fs.read_bytes(ROOT / "t-0" / name) for name in shop.names()}
    assert after == before


def test_a_start_that_was_killed_while_it_renamed_is_finished(shop: Workshop) -> None:
    base = rolled(shop)[2]
    for done in range(1, 4):
        hurt = shop.after_kill()
        rename(hurt, base, base - 1)
        for suffix in (names.INDEX, names.TIME_INDEX, names.SNAPSHOT)[:done]:
            hurt.fs.rename(hurt.path(base - 1, suffix), hurt.path(base, suffix))
        with hurt.open(ROLLED) as store:
            assert len(values(store)) == 24
        assert base in hurt.bases()
        assert base - 1 not in hurt.bases()


COMPACTED: Mapping[str, Case] = {
    "a log that begins above its name": Case({0: log(1, 3), 4: log(6), 8: EIGHT}, {}),
    "a segment that is gone": Case({0: ZERO, 6: EIGHT}, {}),
    "an emptied segment": Case({0: ZERO, 4: b"", 8: EIGHT}, {}),
    "a name in a hole": Case({0: log(0), 2: log(6, 7), 8: EIGHT}, {}),
}


@pytest.mark.parametrize("case", COMPACTED)
def test_a_name_that_may_be_right_is_left_alone(shop: Workshop, case: str) -> None:
    a_log(shop, COMPACTED[case].logs, clean=True)
    assert wrong_names(verified(shop)) == {}
    with shop.open():
        pass
    assert set(shop.bases()) == set(COMPACTED[case].logs)


FLIPPED: Mapping[str, Mapping[int, bytes]] = {
    "some batches": {0: ZERO, 4: FOUR, 8: EIGHT},
    "one batch": {0: ZERO, 4: data_batch(4, count=4), 8: data_batch(8, count=2)},
    "compacted": {0: log(0), 4: log(4, 7), 8: log(8, 10)},
}


@pytest.mark.parametrize("base", [4, 8])
@pytest.mark.parametrize("bit", range(5))
@pytest.mark.parametrize("case", FLIPPED)
def test_a_flipped_base_offset_is_no_wrong_name(
    shop: Workshop, case: str, base: int, bit: int
) -> None:
    """No CRC covers the base offset. With a flipped bit, the first batch of a segment is misplaced or jumps ahead."""
    logs = FLIPPED[case]
    data = bytearray(logs[base])
    data[7] ^= 1 << bit
    a_log(shop, {**logs, base: bytes(data)}, clean=False)
    assert wrong_names(verified(shop)) == {}


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("end", [16, 20, 24, 32])
@pytest.mark.parametrize("batches", ["many", "one"])
def test_a_base_offset_that_rotted_to_the_end_of_another_segment(
    shop: Workshop, batches: str, end: int, indexed: bool
) -> None:
    """The segment then seems to follow the last segment, or the segment two before it."""
    settings = {"internal.segment.bytes": "400", "index.interval.bytes": "1"}
    with shop.open_with_topic(settings) as store:
        for first in range(0, end, 4):
            if batches == "one":
                store.append(T0, [Record(None, b"%d" % n * 20) for n in range(first, first + 4)])
            else:
                for number in range(first, first + 4):
                    put_value(store, b"%d" % number * 20)
    bases = shop.bases()
    shop.fs.remove(ROOT / names.CLEAN_SHUTDOWN)
    for base in bases[1:]:
        for wrong in (end, base - 4, base ^ 16, base ^ 4):
            hurt = shop.after_kill()
            hurt.overwrite(0, wrong.to_bytes(8, "big", signed=True), base_offset=base)
            for suffix in () if indexed else SUFFIXES[1:]:
                hurt.fs.remove(hurt.path(base, suffix))
            assert wrong_names(verified(hurt)) == {}, (base, wrong)
            with suppress(DamagedStore):
                hurt.open(settings).close()
            assert hurt.bases() == bases


@pytest.mark.parametrize("bit", range(5))
def test_one_batch_alone_proves_no_wrong_name(shop: Workshop, bit: int) -> None:
    """A single batch proves no wrong name: by its epochs the log begins at 8, and its base offset has a flipped bit."""
    data = bytearray(log(8))
    data[7] ^= 1 << bit
    a_log(shop, {8: bytes(data)}, clean=False)
    shop.put(ROOT / "t-0" / names.LEADER_EPOCHS, b"0\n1\n0 8\n")
    assert wrong_names(verified(shop)) == {}


def test_exchanged_names_are_reported_and_refused(shop: Workshop) -> None:
    a_log(shop, {0: ZERO, 4: EIGHT, 8: FOUR}, clean=False)
    found = verified(shop)
    assert wrong_names(found) == {
        segment_name(8): ("error", segment_name(4)),
        segment_name(4): ("error", segment_name(8)),
    }
    assert "misplaced-batch" in damage(found)
    with pytest.raises(DamagedStore):
        shop.open()


def test_a_search_finds_records_of_a_renamed_segment(shop: Workshop) -> None:
    a_log(shop, CASES["one lower"].logs, clean=True)
    assert searched(shop) == list(range(10))


# ---- a single file -----------------------------------------------------------------------------------------------

ALONE: Mapping[str, tuple[int, bytes, list[int]]] = {
    "one higher": (5, FOUR, [4, 5, 6, 7]),
    "in a batch": (2, data_batch(1, count=4) + log(5), [1, 2, 3, 4, 5]),
    "far higher": (4000, FOUR + EIGHT, list(range(4, 10))),
}


@pytest.mark.parametrize("case", ALONE)
def test_one_file_is_read_from_where_it_begins(shop: Workshop, case: str) -> None:
    name, data, offsets = ALONE[case]
    a_log(shop, {name: data}, clean=True)
    inspector = open_inspector(shop.path(name), StoreOptions(), fs=shop.fs, clock=shop.clock)
    assert inspector is not None
    with closing(inspector):
        assert [r["offset"] for run in inspector.dump("records") for r in run] == offsets
        found = list(inspector.verify())
        assert wrong_names(found) == {segment_name(name): ("error", segment_name(offsets[0]))}
        assert len(found) == 1
        report = inspector.salvage(ROOT.parent / "kept")
    assert (report.kept_records, report.losses) == (len(offsets), [])
    assert wrong_names(list(report.findings))


@pytest.mark.parametrize("data", [log(4), log(4, 6), data_batch(4, count=3)[:-1] + EIGHT, b""])
def test_one_batch_does_not_prove_where_a_file_begins(shop: Workshop, data: bytes) -> None:
    a_log(shop, {5: data}, clean=True)
    inspector = open_inspector(shop.path(5), StoreOptions(), fs=shop.fs, clock=shop.clock)
    assert inspector is not None
    with closing(inspector):
        assert wrong_names(list(inspector.verify())) == {}
