"""Topics created, changed and deleted on disk: old or new at every moment; a start completes interrupted deletions."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from storage.errors import (
    DiskFull,
    InvalidArgument,
    InvalidConfig,
    InvalidTopic,
    IoFailure,
    NotOffered,
    TopicExists,
)
from storage.files import FileSystem, OverlayFileSystem, atomic_write
from storage.rocketmq.format import names
from storage.rocketmq.state.root import StoreDirectory
from storage.rocketmq.state.topics import (
    TopicFiles,
    check_changes,
    check_folder_name,
    check_new_topic,
    check_same_shape,
)
from tests.robustness.crash.faulty import (
    FaultyFileSystem,
    Killed,
    at_change,
    disk_full,
    fails,
    killed,
    no_fault,
)
from tests.robustness.crash.power import Power
from tests.unit.files.guarded import ReadOnly

ROOT = Path("/store")
QUEUES = ROOT / names.CONSUME_QUEUE


def a_disk() -> OverlayFileSystem:
    """Return a store with the topics `kept` (2 queues with folders) and `gone` (2 queues, and a third as a folder)."""
    fs = OverlayFileSystem(None)
    fs.make_dir(ROOT)
    topics = opened(fs)
    topics.create("kept", 2, {}, now_ms=1)
    topics.create("gone", 2, {"perm": "4"}, now_ms=2)
    for queue in ("kept/0", "kept/1", "gone/0", "gone/2"):
        fs.make_dir(QUEUES / queue)
        atomic_write(fs, QUEUES / queue / names.file_name(0), b"x" * 20)
    return fs


def opened(fs: FileSystem) -> TopicFiles:
    """Return the topics as a start finds them, with unfinished deletions completed."""
    topics = TopicFiles(StoreDirectory(fs, ROOT), read_only=False, forget_offsets=lambda gone: None)
    topics.finish_deletions(now_ms=9)
    return topics


def folders(fs: FileSystem) -> list[str]:
    return list(fs.list_dir(QUEUES))


def is_gone(fs: FileSystem) -> bool:
    """Return whether a start finds the topic `gone` deleted; check that it is complete or completely removed."""
    topics = opened(fs)
    found = topics.infos()
    assert found["kept"].partitions == range(2)
    if "gone" in found:
        assert found["gone"].partitions == range(3)
        assert found["gone"].configs == {"perm": "4"}
        assert topics.deleted.get("gone", 0) == 0
        assert folders(fs) == ["gone", "kept"]
        return False
    assert topics.deleted.get("gone", 0) == 1000
    assert folders(fs) == ["kept"]
    return True


def test_topics_are_entries_and_folders() -> None:
    fs = a_disk()
    fs.make_dir(QUEUES / "found" / "4")
    found = opened(fs).infos()
    assert list(found) == ["found", "gone", "kept"]
    assert (found["found"].partitions, found["gone"].partitions) == ((4,), range(3))
    assert found["kept"].partitions == range(2)


def test_creating_makes_no_folder() -> None:
    fs = a_disk()
    topics = opened(fs)
    made = topics.create("new", 3, {"order": "true"}, now_ms=5)
    assert (made.partitions, made.configs) == (range(3), {"order": "true"})
    assert opened(fs).infos()["new"] == made
    assert folders(fs) == ["gone", "kept"]


def test_altering() -> None:
    fs = a_disk()
    topics = opened(fs)
    before = topics.infos()["gone"]
    assert topics.alter(before, {}, now_ms=5) == before
    after = topics.alter(before, {"perm": None, "readQueueNums": "4"}, now_ms=6)
    assert (after.partitions, after.configs) == (range(4), {"writeQueueNums": "2"})
    assert opened(fs).infos()["gone"] == after


def test_deleting_and_making_anew() -> None:
    fs = a_disk()
    topics = opened(fs)
    topics.delete("gone", physical_offset=1000, now_ms=5)
    assert list(topics.infos()) == ["kept"]
    assert is_gone(fs)
    topics.create("gone", 1, {}, now_ms=6)
    for found in (topics, opened(fs)):
        assert found.infos()["gone"].partitions == range(1)
        assert found.infos()["gone"].configs == {}
        assert found.deleted.get("gone", 0) == 1000
    topics.delete("gone", physical_offset=2000, now_ms=7)
    assert opened(fs).deleted.get("gone", 0) == 2000


def test_a_file_in_the_place_of_a_topics_folder_is_left_alone() -> None:
    fs = a_disk()
    fs.remove_tree(QUEUES / "gone")
    atomic_write(fs, QUEUES / "gone", b"x")
    topics = opened(fs)
    topics.delete("gone", physical_offset=1000, now_ms=5)
    assert list(opened(fs).infos()) == ["kept"]
    assert fs.read_bytes(QUEUES / "gone") == b"x"


def test_notes_are_dropped_with_the_last_record() -> None:
    fs = a_disk()
    topics = opened(fs)
    topics.delete("gone", physical_offset=1000, now_ms=5)
    topics.forget_deleted(999)
    assert opened(fs).deleted.get("gone", 0) == 1000
    topics.forget_deleted(1000)
    assert (topics.deleted.get("gone", 0), opened(fs).deleted.get("gone", 0)) == (0, 0)


def test_a_note_cannot_remove_other_folders() -> None:
    """The content of a damaged file is never used as a path."""
    fs = a_disk()
    note = b'{"topics":{},"unfinished":["..","../config","kept/0","","gone/../kept"]}'
    atomic_write(fs, ROOT / names.DELETED_FILE, note)
    assert list(opened(fs).infos()) == ["gone", "kept"]
    assert fs.exists(QUEUES / "kept" / "0" / names.file_name(0))
    assert fs.exists(ROOT / names.CONFIG / names.TOPICS)


def test_a_read_only_view_ends_a_deletion_in_memory() -> None:
    disk = a_disk()
    fs = FaultyFileSystem(disk)
    topics = opened(fs)
    fs.fault = fails(errno.EIO, "remove_tree")
    with pytest.raises(IoFailure):
        topics.delete("gone", physical_offset=1000, now_ms=5)
    assert is_gone(OverlayFileSystem(ReadOnly(disk)))


def deletions() -> Iterator[tuple[Power, bool]]:
    """Yield the disk of a deletion that is killed at its first change, at its second, and so on, and whether it ended.

    The last deletion is not killed.
    """
    for count in itertools.count(1):
        power = Power(a_disk())
        fs = FaultyFileSystem(power)
        topics = opened(fs)
        fs.fault = at_change(fs, count, killed)
        has_ended = False
        with suppress(Killed):
            topics.delete("gone", physical_offset=1000, now_ms=5)
            has_ended = True
        yield power, has_ended
        if has_ended:
            return


def test_killed_at_any_moment() -> None:
    """A deletion has happened or has not; a start completes a deletion that was begun."""
    *seen, at_the_end = [is_gone(power) for power, _ in deletions()]
    assert at_the_end
    assert seen == sorted(seen)
    assert set(seen) == {False, True}


def test_power_lost_at_any_moment() -> None:
    """The same holds if all unsynced data is lost; an acknowledged deletion stays."""
    *seen, at_the_end = [is_gone(power.cut()) for power, _ in deletions()]
    assert at_the_end
    assert seen == sorted(seen)
    assert set(seen) == {False, True}


def test_power_lost_after_a_kill_at_any_moment() -> None:
    """Earlier, the start after the kill took the missing entry as durable; the power loss brought the entry back."""
    interrupted = [power for power, has_ended in deletions() if not has_ended]
    assert len(interrupted) > 4
    for power in interrupted:
        assert is_gone(power) <= is_gone(power.cut())


def test_a_full_disk_at_any_moment() -> None:
    """Either nothing has changed or the topic is deleted, whatever files remain until there is space."""
    outcomes = set()
    for count in itertools.count(1):
        disk = a_disk()
        fs = FaultyFileSystem(disk)
        topics = opened(fs)
        fs.fault = at_change(fs, count, disk_full)
        begun = fs.changes
        try:
            topics.delete("gone", physical_offset=1000, now_ms=5)
        except DiskFull:
            outcomes.add("refused")
            assert topics.infos()["gone"].partitions == range(3)
            assert not is_gone(disk)
        else:
            outcomes.add("deleted")
            assert list(topics.infos()) == ["kept"]
            assert is_gone(OverlayFileSystem(disk))
        if fs.changes - begun < count:
            break
    assert outcomes == {"deleted", "refused"}


def test_a_deletion_is_ended_before_the_topic_is_made_anew() -> None:
    """On a full disk the topic is not created: a start would complete the deletion, and delete the new topic."""
    disk = a_disk()
    fs = FaultyFileSystem(disk)
    topics = opened(fs)
    fs.fault = fails(errno.ENOSPC, "create", name=".bak.tmp")
    topics.delete("gone", physical_offset=1000, now_ms=5)
    with pytest.raises(DiskFull):
        topics.create("gone", 1, {}, now_ms=6)
    fs.fault = fails(errno.ENOSPC, "create", name=f"{names.DELETED_FILE}.tmp")
    with pytest.raises(DiskFull):
        topics.create("gone", 1, {}, now_ms=6)
    assert list(topics.infos()) == ["kept"]
    fs.fault = no_fault
    topics.create("gone", 1, {}, now_ms=6)
    assert opened(disk).infos()["gone"].partitions == range(1)


def test_a_full_disk_while_making_one() -> None:
    refused = 0
    for count in range(1, 20):
        disk = a_disk()
        fs = FaultyFileSystem(disk)
        topics = opened(fs)
        fs.fault = at_change(fs, count, disk_full)
        try:
            topics.create("new", 1, {}, now_ms=5)
        except DiskFull:
            refused += 1
            assert "new" not in topics.infos()
            assert "new" not in opened(disk).infos()
            topics.create("new", 1, {}, now_ms=5)
        assert opened(disk).infos()["new"].partitions == range(1)
    assert refused > 2


@pytest.mark.parametrize(
    ("topic", "queues", "configs", "error"),
    [
        ("a.b", 1, {}, InvalidTopic),
        ("x" * 128, 1, {}, InvalidTopic),
        ("TBW102", 1, {}, InvalidTopic),
        ("t", 0, {}, InvalidArgument),
        ("t", 1, {"perm": "9"}, InvalidConfig),
        ("t", 1, {"retention.ms": "1"}, InvalidConfig),
        ("t", 1, {"attributes": "queue.type=BatchCQ"}, NotOffered),
    ],
)
def test_what_cannot_be_made(
    topic: str, queues: int, configs: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        check_new_topic(topic, queues, configs)


def test_names_of_folders() -> None:
    for topic in ("t", "%RETRY%g", "a.b", "ü", "x" * 255, "ü" * 127, "caf\udce9", "\udce9" * 255):
        check_folder_name(topic)
    for topic in ("", ".", "..", "a/b", "a\0", "x" * 256, "ü" * 128, "\ud800", "t\udfff"):
        with pytest.raises(InvalidTopic):
            check_folder_name(topic)


def test_what_can_be_made_and_set() -> None:
    check_new_topic("%RETRY%" + "g" * 200, 1, {"perm": "6"})
    check_changes({"perm": None, "order": "true"})
    for configs in ({"nothing": None}, {"order": "yes"}):
        with pytest.raises(InvalidConfig):
            check_changes(configs)


def test_the_same_shape() -> None:
    topics = opened(a_disk())
    info = topics.create("t", 4, {"writeQueueNums": "2", "perm": "4"}, now_ms=5)
    check_same_shape(info, None, None)
    check_same_shape(info, 4, {"perm": "4", "writeQueueNums": "2", "order": "false"})
    for queues, configs in ((2, None), (4, {}), (None, {"perm": "4"})):
        with pytest.raises(TopicExists):
            check_same_shape(info, queues, configs)
