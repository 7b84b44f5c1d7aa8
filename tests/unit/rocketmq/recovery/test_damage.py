"""Damage in the log: a start refuses it, shows it read-only, and with `accept_loss` cuts it and keeps it aside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage import LogStore, Record
from storage.errors import Corrupt, DamagedStore
from tests.unit.rocketmq.workshop import (
    LOG_BYTES,
    ROOT,
    T0,
    Workshop,
    check_lookups,
    place_of,
    put_value,
    values,
)

VALUES = [b"value-%02d" % n for n in range(20)]
PLACES: list[int] = []
BAD = 14


def a_store(shop: Workshop, *, clean: bool) -> None:
    """Write 20 records in four files; then stop cleanly, or only flush them for a later kill."""
    store = shop.open_with_topic()
    PLACES[:] = [place_of(put_value(store, value)) for value in VALUES]
    store.checkpoint() if clean else store.flush()
    check_lookups(store)
    store.close() if clean else None


def damage(shop: Workshop, at: int, byte: int = 90) -> Path:
    """Flip a bit of a record, by default in its body; return the path of the log file."""
    base, position = divmod(PLACES[at] + byte, LOG_BYTES)
    path = shop.log_path(base * LOG_BYTES)
    old = shop.fs.read_bytes(path)[position]
    shop.overwrite(path, position, bytes([old ^ 1]))
    return path


def last_file_at() -> int:
    """Return the number of the first record in the last file."""
    return next(
        n for n, place in enumerate(PLACES) if place // LOG_BYTES == PLACES[-1] // LOG_BYTES
    )


def killed_with_damage(shop: Workshop) -> tuple[Workshop, Path]:
    """Return a killed store with a bad record before a few good records, and the path of the damaged file."""
    a_store(shop, clean=False)
    found = shop.after_kill()
    return found, damage(found, BAD)


def readable(store: LogStore) -> dict[int, bytes | None]:
    """Return the readable values by offset."""
    found = {}
    bounds = store.bounds(T0)
    for offset in range(bounds.start, bounds.end):
        try:
            page = store.read(T0, offset, max_records=1)
        except Corrupt:
            continue
        found.update({record.offset: record.value for record in page.records})
    return found


def test_a_writable_start_is_refused_and_changes_nothing(shop: Workshop) -> None:
    found, path = killed_with_damage(shop)
    before = found.files()
    with pytest.raises(DamagedStore) as refused:
        found.open()
    facts = refused.value.facts()
    assert facts["path"] == str(path)
    assert facts["position"] == PLACES[BAD] % LOG_BYTES
    assert found.files() == before
    assert found.cut_dirs() == []


def test_read_only_serves_what_is_before_and_behind(shop: Workshop) -> None:
    found, path = killed_with_damage(shop)
    before = found.files()
    bad = BAD
    with found.open(read_only=True) as store:
        assert readable(store) == {n: value for n, value in enumerate(VALUES) if n != bad}
        with pytest.raises(Corrupt) as refused:
            store.read(T0, bad)
        facts = refused.value.facts()
        assert (facts["path"], facts["next_good_offset"]) == (str(path), bad + 1)
        assert [f.code for f in store.recovery.findings if f.severity == "error"] == [
            "damaged-record"
        ]
    assert found.files() == before


def test_accept_loss_cuts_there_and_keeps_it_aside(shop: Workshop) -> None:
    found, path = killed_with_damage(shop)
    bad = BAD
    log = found.log_bytes()
    with found.open(accept_loss=True) as store:
        assert values(store) == VALUES[:bad]
        check_lookups(store)
        (loss,) = store.recovery.losses
        assert (loss.topic, loss.partition, loss.first_offset, loss.next_offset) == (
            "t",
            0,
            bad,
            len(VALUES),
        )
        assert put_value(store, b"next").base_offset == bad
    (kept,) = found.cut_dirs()
    aside = ROOT.parent / kept
    parts = found.fs.list_dir(aside / "commitlog")
    assert parts[0] == f"{path.name}.from-{PLACES[bad] % LOG_BYTES}"
    for name in parts:
        base, _, position = name.partition(".from-")
        log = log.replace(found.fs.read_bytes(aside / "commitlog" / name), b"", 1)
        assert int(base) + int(position) >= PLACES[bad]
    assert log[PLACES[bad] :].strip(b"\0") == b""
    report = json.loads(found.fs.read_bytes(aside / "report.json"))
    assert [
        (row["topic"], row["first_offset"], row["next_offset"]) for row in report["losses"]
    ] == [("t", bad, len(VALUES))]
    with found.open() as again:
        assert again.recovery.clean_shutdown
        assert list(again.recovery.losses) == []
        assert values(again) == [*VALUES[:bad], b"next"]
        check_lookups(again)


def test_what_was_cut_never_comes_back(shop: Workshop) -> None:
    """New records of the same size that end where an old record began do not make the old record readable again."""
    found, _ = killed_with_damage(shop)
    bad = BAD
    store = found.open(accept_loss=True)
    put_value(store, b"again-%02d" % 0)
    store.flush()
    with found.after_kill().open() as again:
        assert values(again) == [*VALUES[:bad], b"again-00"]


@pytest.mark.parametrize("clean", [True, False])
def test_a_bad_last_record_is_a_torn_tail(shop: Workshop, clean: bool) -> None:
    a_store(shop, clean=clean)
    found = shop.after_kill()
    damage(found, len(VALUES) - 1)
    with found.open() as store:
        assert values(store) == VALUES[:-1]
        assert len(store.recovery.losses) == 1
    assert len(found.cut_dirs()) == 1


def test_a_lost_write_is_a_torn_tail(shop: Workshop) -> None:
    """After a crash a zeroed sector means a write that did not happen, whatever bytes follow it."""
    a_store(shop, clean=False)
    found = shop.after_kill()
    base = PLACES[last_file_at()]
    found.overwrite(found.log_path(base), 0, bytes(512))
    with found.open() as store:
        assert values(store) == VALUES[: last_file_at()]
        check_lookups(store)
    assert len(found.cut_dirs()) == 1


@pytest.mark.parametrize(("file_bytes", "lost_bytes"), [(1400, 512), (1000, 488)])
def test_sectors_are_those_of_a_file(shop: Workshop, file_bytes: int, lost_bytes: int) -> None:
    """The file size may be no multiple of the sector size: the second file here begins and ends inside a log sector."""
    sizes = {"mappedFileSizeCommitLog": str(file_bytes)}
    store = shop.open_with_topic(sizes)
    places = [place_of(put_value(store, value)) for value in VALUES]
    store.flush()
    found = shop.after_kill()
    found.overwrite(found.log_path(file_bytes), 512, bytes(lost_bytes))
    kept = sum(place < file_bytes + 512 for place in places) - 1  # the last record reaches into it
    with found.open(sizes) as again:
        assert values(again) == VALUES[:kept]
    assert len(found.cut_dirs()) == 1


def test_padding_is_no_lost_write(shop: Workshop) -> None:
    """Zeros follow the last record of a file: when that record rots, the records in the next file are not cut."""
    sizes = {"mappedFileSizeCommitLog": "3072"}
    store = shop.open_with_topic(sizes)
    stored = (store.append(T0, [Record(None, value)]) for value in (b"first", b"last", b"v" * 2800))
    places = [place_of(result) for result in stored]
    assert places[1] < 1000
    assert places[2] == 3072
    store.flush()
    found = shop.after_kill()
    found.overwrite(found.log_path(), places[1] + 90, b"?")
    with pytest.raises(DamagedStore):
        found.open(sizes)


@pytest.mark.parametrize("byte", [2, 7, 10, 15, 85, 90, 96, 97, 99])
def test_a_record_that_rots_while_we_run_is_never_served(shop: Workshop, byte: int) -> None:
    """The damage is in the size, magic, CRC, queue, lengths, body or topic; the other fields have no checksum."""
    a_store(shop, clean=True)
    store = shop.open()
    damage(shop, 3, byte)
    assert readable(store) == {n: value for n, value in enumerate(VALUES) if n != 3}
    page = store.read(T0, 0)
    assert [record.offset for record in page.records] == [0, 1, 2]
    assert page.next_offset == 3


def test_a_body_that_cannot_be_unpacked_does_not_hide_the_records_before_it(shop: Workshop) -> None:
    """The sys flag has no checksum: here its damage marks a plain body as compressed."""
    a_store(shop, clean=True)
    with shop.open() as store:
        path = damage(shop, 3, 39)
        page = store.read(T0, 0)
        assert ([record.offset for record in page.records], page.next_offset) == ([0, 1, 2], 3)
        with pytest.raises(Corrupt) as refused:
            store.read(T0, 3)
        facts = refused.value.facts()
        assert (facts["path"], facts["offset"], facts["next_good_offset"]) == (str(path), 3, 4)
        assert readable(store) == {n: value for n, value in enumerate(VALUES) if n != 3}


def test_old_damage_is_told_when_it_is_read(shop: Workshop) -> None:
    """A start checks the tail of the log only, as the real store does; a read checks each record that it returns."""
    a_store(shop, clean=True)
    damage(shop, 2)
    with shop.open() as store:
        assert 2 not in readable(store)
        assert len(readable(store)) == len(VALUES) - 1


@pytest.mark.parametrize("gone", ["consumequeue", "index", "checkpoint", "all"])
@pytest.mark.parametrize("clean", [True, False])
def test_everything_derived_is_built_again(shop: Workshop, gone: str, clean: bool) -> None:
    """More than the real store promises: after any stop, queues and index miss no record."""
    a_store(shop, clean=clean)
    found = shop.after_kill()
    for name in ("consumequeue", "index") if gone == "all" else (gone,):
        if name == "checkpoint":
            found.fs.remove(ROOT / name) if found.fs.exists(ROOT / name) else None
        else:
            found.fs.remove_tree(ROOT / name)
    with found.open() as store:
        assert values(store) == VALUES
        check_lookups(store)


def test_one_queue_of_several_is_built_again(shop: Workshop) -> None:
    """After a crash, entries of other queues at higher physical offsets do not hide that this folder is missing."""
    store = shop.open_with_topic(partitions=2)
    other = T0._replace(partition=1)
    for value in VALUES:
        put_value(store, value)
        put_value(store, value, other)
    assert values(store) == values(store, other) == VALUES
    found = shop.after_kill()
    found.fs.remove_tree(ROOT / "consumequeue" / "t" / "0")
    with found.open() as again:
        assert values(again) == VALUES
        assert values(again, other) == VALUES


@pytest.mark.parametrize("byte", [2, 5, 90])  # in a record: its size, its magic, its body
@pytest.mark.parametrize("bad", [[0], [BAD], [3, BAD], [BAD, BAD + 1]])
def test_damage_that_has_no_unit_is_told_too(shop: Workshop, bad: list[int], byte: int) -> None:
    """Reads report records that rot after a kill, even if the queue was not yet written, as if the queue existed.

    Where bad records are adjacent, the position of the second record is unknown.
    """
    a_store(shop, clean=False)
    found = shop.after_kill()
    found.fs.remove_tree(ROOT / "consumequeue")
    for at in bad:
        damage(found, at, byte)
    with found.open(read_only=True) as store:
        assert store.bounds(T0).end == len(VALUES)
        assert readable(store) == {n: v for n, v in enumerate(VALUES) if n not in bad}
        for at in bad:
            with pytest.raises(Corrupt) as reported:
                store.read(T0, at)
            facts = reported.value.facts()
            place = PLACES[at if byte == 90 or at - 1 not in bad else at - 1]
            assert facts["path"] == str(found.log_path(place - place % LOG_BYTES))
            assert (facts["position"], facts["next_good_offset"]) == (place % LOG_BYTES, at + 1)
        with pytest.raises(Corrupt, match=f"offset {bad[0]}: .*commitlog"):
            list(store.scan(T0))
        with pytest.raises(Corrupt, match=f"offset {bad[0]}:"):
            store.find("t", key=VALUES[-1], scan=True)


def test_offsets_that_are_missing_far_from_damage_are_closed_up(shop: Workshop) -> None:
    """Only a gap across the damage gets entries that point to the damage; other gaps close up, as in the real store."""
    a_store(shop, clean=False)
    found = shop.after_kill()
    found.fs.remove_tree(ROOT / "consumequeue")
    for at in range(BAD, len(VALUES)):
        number = (at + 2 if at < BAD + 3 else at + 4).to_bytes(8, "big")
        place, position = divmod(PLACES[at] + 20, LOG_BYTES)
        found.overwrite(found.log_path(place * LOG_BYTES), position, number)
    damage(found, BAD + 1, 5)
    with found.open(read_only=True) as store:
        assert [r.offset for r in store.read(T0, BAD, max_records=1).records] == [BAD]
        for offset in (BAD + 1, BAD + 3):
            with pytest.raises(Corrupt):
                store.read(T0, offset)
        rest = store.read(T0, BAD + 4).records
        assert [(r.offset, r.value) for r in rest[:2]] == [
            (BAD + 4, VALUES[BAD + 2]),
            (BAD + 5, VALUES[BAD + 3]),
        ]
