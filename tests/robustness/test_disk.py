"""Tests of the model of a disk that loses its power: sure changes, pending changes, and the pending parts kept."""

from __future__ import annotations

import random
from copy import deepcopy
from pathlib import Path

import pytest

from storage.errors import IoFailure
from storage.files import OverlayFileSystem
from tests.robustness.crash.disk import Change, Choice, Disk, Write
from tests.robustness.crash.explorer import choices, moments, pieces
from tests.robustness.crash.history import History
from tests.robustness.crash.ram import Ram
from tests.robustness.crash.recorder import Noted, Recorder

PATH = Path("/d/f")
SECTOR = 512


def everything(pending: object) -> list[Change]:
    assert isinstance(pending, list)
    return pending


def nothing(pending: object) -> list[Change]:
    return []


def disk_of(recorder: Recorder) -> Disk:
    """Return the disk, with its pending changes, at the end of a recording."""
    disk = deepcopy(recorder.disk)
    for number, event in enumerate(recorder.events):
        assert not isinstance(event, Noted)
        disk.feed(number, event)
    return disk


def kept(recorder: Recorder, choice: Choice) -> Ram:
    return disk_of(recorder).left(choice)


def with_folder() -> Recorder:
    """Return a recorder with an empty folder that is on disk."""
    recorder = Recorder()
    recorder.make_dir(PATH.parent)
    recorder.sync_dir(Path("/"))
    return recorder


def written(recorder: Recorder, data: bytes, position: int = 0, *, sync: bool) -> None:
    file = recorder.open(PATH, create=True)
    file.pwrite(data, position)
    if sync:
        file.datasync()
    file.close()


def test_what_is_not_synced_may_be_gone_or_there() -> None:
    recorder = with_folder()
    written(recorder, b"one", sync=True)
    recorder.sync_dir(PATH.parent)
    written(recorder, b"two", 3, sync=False)
    disk = disk_of(recorder)
    assert disk.left(nothing).read_bytes(PATH) == b"one"
    assert disk.left(everything).read_bytes(PATH) == b"onetwo"
    assert disk.left(nothing).read_bytes(PATH) == b"one", "a look changes nothing"


def test_a_synced_file_without_a_name_is_lost() -> None:
    recorder = with_folder()
    written(recorder, b"one", sync=True)
    assert not kept(recorder, nothing).exists(PATH)


def test_a_name_without_its_bytes() -> None:
    recorder = with_folder()
    written(recorder, b"one", sync=False)
    recorder.sync_dir(PATH.parent)
    assert kept(recorder, nothing).read_bytes(PATH) == b""


def test_a_sync_covers_what_was_done_before_it_began() -> None:
    recorder = with_folder()
    written(recorder, b"one", sync=False)
    recorder.sync_dir(PATH.parent)
    file = recorder.open(PATH, write=True)
    events = len(recorder.events)
    file.datasync()
    file.pwrite(b"late", 3)
    sync = recorder.events[events]
    recorder.events[events:] = [*recorder.events[events + 1 :], sync]  # ends after the write
    assert kept(recorder, nothing).read_bytes(PATH) == b"one"


def test_renames_and_removals_wait_for_their_folder() -> None:
    recorder = with_folder()
    written(recorder, b"one", sync=True)
    recorder.sync_dir(PATH.parent)
    recorder.rename(PATH, PATH.with_name("g"))
    disk = disk_of(recorder)
    assert disk.left(nothing).list_dir(PATH.parent) == ["f"]
    assert disk.left(everything).list_dir(PATH.parent) == ["g"]
    recorder.sync_dir(PATH.parent)
    assert kept(recorder, nothing).list_dir(PATH.parent) == ["g"]
    recorder.remove(PATH.with_name("g"))
    assert kept(recorder, nothing).list_dir(PATH.parent) == ["g"]


def test_a_tree_goes_in_any_order() -> None:
    recorder = with_folder()
    written(recorder, b"one", sync=True)
    recorder.sync_dir(PATH.parent)
    recorder.remove_tree(PATH.parent)
    disk = disk_of(recorder)
    assert disk.left(nothing).read_bytes(PATH) == b"one"
    assert disk.left(lambda pending: pending[:1]).list_dir(PATH.parent) == []
    assert not disk.left(lambda pending: pending[1:]).exists(PATH.parent)


def test_what_a_file_system_holds_counts_as_synced() -> None:
    fs = OverlayFileSystem()
    fs.make_dir(PATH.parent)
    file = fs.open(PATH, create=True)
    file.pwrite(b"one", 0)
    file.close()
    assert kept(Recorder(fs), nothing).read_bytes(PATH) == b"one"


def test_a_sector_is_kept_as_it_stood_at_some_moment() -> None:
    """Of writes to one sector a later one is never kept without the earlier ones."""
    recorder = with_folder()
    written(recorder, b"a" * 100, sync=True)
    recorder.sync_dir(PATH.parent)
    for number, letter in enumerate(b"bcdefgh"):
        written(recorder, bytes([letter]) * 100, 100 + 100 * number, sync=False)
    disk = disk_of(recorder)
    lengths = set()
    for seed in range(300):
        for kind, choice in choices(random.Random(seed)):
            data = disk.left(choice).read_bytes(PATH)
            first, second = data[:SECTOR].rstrip(b"\0"), data[SECTOR:].lstrip(b"\0").rstrip(b"\0")
            assert b"\0" not in first, kind
            assert b"\0" not in second, kind
            lengths.add((len(first), len(second)))
    assert len(lengths) > 10
    assert (100, 288) in lengths, "the second sector without anything new in the first"


def test_pieces_put_together_are_the_writes() -> None:
    changes = [Write(1, 500, b"x" * 1100), Write(1, 20, b"y" * 3)]
    parts = pieces(changes, SECTOR)
    assert [(p.position, len(p.data)) for p in parts if isinstance(p, Write)] == [
        (500, 12), (512, 512), (1024, 512), (1536, 64), (1600, 0), (20, 3), (23, 0),
    ]  # fmt: skip


def test_the_recorder_refuses_what_its_file_system_refuses() -> None:
    recorder = with_folder()
    before = list(recorder.events)
    with pytest.raises(IoFailure):
        recorder.open(PATH)
    with pytest.raises(IoFailure):
        recorder.remove(PATH)
    assert recorder.events == before


def test_a_new_file_is_none_that_the_process_before_has_removed() -> None:
    """The removal of the old file may not have reached the disk, and then its old bytes still exist."""
    recorder = with_folder()
    written(recorder, b"old", sync=True)
    recorder.sync_dir(PATH.parent)
    recorder.remove(PATH)
    following = recorder.after_kill()
    file = following.open(PATH.with_name("new"), create=True)
    file.pwrite(b"other bytes", 0)
    file.datasync()
    assert dict(kept(following, nothing).files()) == {str(PATH): b"old"}


def test_a_recording_can_be_gone_through_again() -> None:
    recorder = with_folder()
    written(recorder, b"0123", sync=True)
    written(recorder, b"4", 4, sync=False)
    first, second = (
        [disk.left(everything).digest() for disk in moments(recorder, History())] for _ in range(2)
    )
    assert first == second
    assert len(set(first)) > 2
