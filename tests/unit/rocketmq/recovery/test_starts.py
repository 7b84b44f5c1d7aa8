"""Starts after unusual histories: missing files, a log shorter than before, another server in between."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from storage.errors import DamagedStore
from storage.files import FileSystem, OverlayFileSystem
from storage.rocketmq.format.checkpoint import decode_checkpoint
from storage.rocketmq.format.names import file_name
from tests.unit.rocketmq.workshop import (
    LOG_BYTES,
    ROOT,
    T0,
    Workshop,
    check_lookups,
    keyed,
    on,
    place_of,
    put_file,
    put_sequenced,
    put_value,
    values,
)

OTHER = T0._replace(topic="other")
VALUES = [b"value-%d" % number for number in range(30)]
QUEUE = ROOT / "consumequeue" / "t" / "0"
FILE_UNITS = 5


def stopped(shop: Workshop) -> None:
    """Fill a store with two topics and stop it cleanly; the last record is not in t."""
    with shop.open_with_topic() as store:
        store.create_topic("other", 1)
        for value in VALUES:
            put_value(store, value)
            put_value(store, value, OTHER)


def remove_third_file(fs: FileSystem) -> None:
    fs.remove(QUEUE / file_name(2 * FILE_UNITS * 20))


def misname_a_file(fs: FileSystem) -> None:
    fs.rename(QUEUE / file_name(2 * FILE_UNITS * 20), QUEUE / file_name(7))


def remove_queue(fs: FileSystem) -> None:
    fs.remove_tree(QUEUE)


def remove_last_file(fs: FileSystem) -> None:
    fs.remove(QUEUE / file_name(5 * FILE_UNITS * 20))


@pytest.mark.parametrize(
    "damage", [remove_third_file, misname_a_file, remove_queue, remove_last_file]
)
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("read_only", [True, False])
def test_lost_files_of_a_queue_are_made_anew(
    shop: Workshop, damage: Callable[[FileSystem], None], clean: bool, read_only: bool
) -> None:
    """This holds also after a clean stop, though other queues point beyond the lost entries."""
    stopped(shop)
    damage(shop.fs)
    if not clean:
        put_file(shop.fs, ROOT / "abort", b"1 logserver")
    with shop.open(read_only=read_only) as store:
        assert values(store) == values(store, OTHER) == VALUES
        check_lookups(store)


def test_an_empty_last_file_of_a_queue_goes_away(shop: Workshop) -> None:
    """A kill came between a queue's next file and its first entry; the real store then took the queue as empty."""
    stopped(shop)
    bases = shop.queue_bases()
    assert len(VALUES) % FILE_UNITS == 0
    put_file(shop.fs, QUEUE / file_name(len(VALUES) * 20), bytes(FILE_UNITS * 20))
    with shop.open() as store:
        assert values(store) == VALUES
    assert shop.queue_bases() == bases
    with shop.open() as store:
        put_value(store, b"next")
        assert values(store) == [*VALUES, b"next"]


@pytest.mark.parametrize("seed", range(24))
def test_garbage_in_a_queue_leads_nowhere(shop: Workshop, seed: int) -> None:
    """After a crash the hidden records are found in the log; offsets continue, and none is assigned twice."""
    stopped(shop)
    garbage = random.Random(seed).randbytes(FILE_UNITS * 20)
    shop.overwrite(QUEUE / file_name(5 * FILE_UNITS * 20), 0, garbage)
    with shop.open() as store:
        assert put_value(store, b"new").base_offset == len(VALUES)
    put_file(shop.fs, ROOT / "abort", b"1 logserver")
    with shop.open() as store:
        assert values(store) == [*VALUES, b"new"]


def test_a_log_that_is_not_there_is_no_empty_one(shop: Workshop) -> None:
    """Its disk may not be mounted: nothing is cut, and with the disk everything is available again."""
    stopped(shop)
    shop.fs.rename(ROOT / "commitlog", ROOT.parent / "elsewhere")
    before = shop.files()
    with pytest.raises(DamagedStore) as refused:
        shop.open()
    assert refused.value.facts()["path"] == str(ROOT / "commitlog")
    assert shop.files() == before
    shop.fs.rename(ROOT.parent / "elsewhere", ROOT / "commitlog")
    with shop.open() as store:
        assert values(store) == VALUES


def test_that_log_can_be_given_up(shop: Workshop) -> None:
    stopped(shop)
    shop.fs.remove_tree(ROOT / "commitlog")
    with shop.open(accept_loss=True) as store:
        assert store.bounds(T0) == (len(VALUES), len(VALUES), len(VALUES))
        assert put_value(store, b"new").base_offset == len(VALUES)
        assert values(store) == [b"new"]


def test_a_shorter_log_ends_a_deletion_too(shop: Workshop) -> None:
    """Records written after a cut do not count as records of a topic that was deleted before the cut."""
    with shop.open_with_topic() as store:
        places = [place_of(put_value(store, value)) for value in VALUES[:10]]
        store.create_topic("other", 1)
        put_value(store, b"old", OTHER)
        store.delete_topic("other")
        store.create_topic("other", 1)
    for base in shop.log_bases():
        shop.overwrite(shop.log_path(base), 0, bytes(LOG_BYTES)) if base else None
    shop.overwrite(shop.log_path(0), places[2], bytes(LOG_BYTES - places[2]))
    put_file(shop.fs, ROOT / "abort", b"1 logserver")
    for _ in range(2):
        with shop.open() as store:
            assert values(store)[:2] == VALUES[:2]
            put_value(store, b"new", OTHER)
            assert set(values(store, OTHER)) == {b"new"}
            assert len(store.find("other", key="new").records) == len(values(store, OTHER))


def test_a_deleted_topic_stays_deleted_when_queues_are_made_anew(shop: Workshop) -> None:
    with shop.open_with_topic() as store:
        store.create_topic("other", 1)
        for value in VALUES:
            put_value(store, value)
            put_value(store, value, OTHER)
        store.delete_topic("other")
    shop.fs.remove_tree(ROOT / "consumequeue")
    put_file(shop.fs, ROOT / "abort", b"1 logserver")
    with shop.open() as store:
        assert list(store.topics()) == ["t"]
        assert values(store) == VALUES


def test_a_spare_file_that_somebody_took_away(shop: Workshop) -> None:
    """A real store that is started by mistake removes the file before it finds the lock taken."""
    store = shop.open_with_topic()
    for value in VALUES[:12]:
        put_value(store, value)
    spare = shop.log_bases()[-1]
    assert spare > store.log.end
    shop.fs.remove(shop.log_path(spare))
    for value in VALUES[12:]:
        put_value(store, value)
    store.flush()
    assert values(store) == VALUES
    with shop.after_kill().open() as found:
        assert values(found) == VALUES
    store.close()
    with shop.open() as again:
        assert values(again) == VALUES


@pytest.mark.parametrize(("mark", "ours"), [(b"4711 logserver", True), (b"4711", False)])
def test_whose_crash_it_was(shop: Workshop, mark: bytes, ours: bool) -> None:
    """The real store's `abort` holds its process id alone: then the checkpoint is not trusted as this program's own."""
    stopped(shop)
    put_file(shop.fs, ROOT / "abort", mark)
    with shop.open() as store:
        assert not store.recovery.clean_shutdown
        assert (store.recovery.bytes_scanned < LOG_BYTES // 4) is ours
        assert values(store) == VALUES
        store.append(T0, [keyed(b"more")])
    assert not shop.fs.exists(ROOT / "abort")


def test_a_checkpoint_does_not_tell_of_an_append_that_a_start_cuts() -> None:
    """The last append lacks a record: the start cuts the rest of the append, and the checkpoint ends before it."""
    shop = Workshop()
    store = shop.open_with_topic()
    put_value(store, b"before")
    append = put_sequenced(store, 7, 0, count=3)
    begin = place_of(append)
    third = append.locators[2] % (1 << 64)
    killed = on(OverlayFileSystem(shop.fs), shop)
    file = third - third % LOG_BYTES
    killed.overwrite(killed.log_path(file), third - file, bytes(LOG_BYTES - (third - file)))
    with killed.open() as again:
        assert values(again) == [b"before"]
        checkpoint = decode_checkpoint(killed.fs.read_bytes(ROOT / "checkpoint"))
        assert 0 <= checkpoint.logics_physical_offset < begin
        assert 0 <= checkpoint.confirm_physical_offset < begin
        assert not put_sequenced(again, 7, 0, count=3).duplicate
    store.close()


@pytest.mark.parametrize("read_only", [True, False])
def test_zeros_in_a_queue_are_no_unit_of_the_logs_first_record(
    shop: Workshop, read_only: bool
) -> None:
    """The zeros would point to 0, where the record of another queue is stored: that record still lacks its entry."""
    stopped(shop)
    remove_queue(shop.fs)
    other = ROOT / "consumequeue" / OTHER.topic / str(OTHER.partition)
    shop.overwrite(other / file_name(FILE_UNITS * 20), 20, bytes(20))
    with shop.open(read_only=read_only) as store:
        assert store.bounds(T0).start == 0
        assert values(store) == VALUES
