"""Topics that a real broker deleted without a note: commands that inspect a store treat them as deleted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from storage import Record, StoreOptions, TopicPartition, open_store
from storage.model import RawMessage
from storage.rocketmq.state.topics_file import TopicTable
from storage.rocketmq.store import RocketMQStore
from tests.cli.runner import fine, settings_options
from tests.contract.harness import ManualClock
from tests.golden.sharing import Shared
from tests.golden.test_shared_rebuild import rebuilt

SETTINGS = {
    "mappedFileSizeCommitLog": "16384",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "10",
    "maxIndexNum": "50",
}
OPTIONS = settings_options(SETTINGS)
GONE, KEPT = TopicPartition("gone", 0), TopicPartition("kept", 0)
ENTRYLESS, QUIET = TopicPartition("entryless", 0), TopicPartition("quiet", 0)
COUNT = 40


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with records of four topics.

    The queue of `entryless` has a folder without entries. The records of `quiet` were in the deleted head of the log.
    """
    path = tmp_path / "store"
    options = StoreOptions(settings=SETTINGS)
    with open_store("rocketmq", path, options, clock=ManualClock()) as store:
        assert isinstance(store, RocketMQStore)
        for queue in (GONE, KEPT, QUIET):
            store.create_topic(queue.topic, 1)
        while store.log.end < 2 * 16384 - 1000:
            store.append(QUIET, [Record(None, bytes(400))])
        store.append(GONE, [Record(None, bytes(2000))])  # in the next file
        for number in range(COUNT):
            for queue in (GONE, KEPT):
                store.append(queue, [Record(b"k%d" % number, b"v", tag="a")])
            store.append_messages(ENTRYLESS, [RawMessage(b"v", b"")])
    for base in (0, 16384):
        (path / "commitlog" / f"{base:020}").unlink()
    return path


def delete(root: Path) -> None:
    """Delete the topic `gone` as the broker does."""
    topics = root / "config" / "topics.json"
    table = TopicTable.decode(topics.read_bytes()).without(["gone"], now_ms=9)
    topics.write_bytes(table.encode())
    shutil.rmtree(root / "consumequeue" / "gone")


def counts(root: Path) -> dict[str, int]:
    """Return the number of records of each topic."""
    found: dict[str, int] = {}
    for row in fine("dump", root, *OPTIONS).rows:
        found[row["topic"]] = found.get(row["topic"], 0) + 1
    return found


def test_they_are_not_shown_and_are_no_fault(root: Path) -> None:
    delete(root)
    assert counts(root) == {"kept": COUNT, "entryless": COUNT}
    (found,) = fine("verify", root, *OPTIONS).rows
    assert (found["code"], found["topic"]) == ("entries-before-log", "quiet")
    assert fine("rebuild", root, *OPTIONS, "--what", "consumequeue").document["changed"] == []


def test_a_salvage_leaves_them_out_and_no_other(root: Path, tmp_path: Path) -> None:
    """A salvage leaves out deleted topics only.

    A topic without entries stays, though the new store begins with the queues of a quiet topic alone.
    """
    delete(root)
    fine("salvage", root, "--to", tmp_path / "new", *OPTIONS)
    assert counts(tmp_path / "new") == {"kept": COUNT, "entryless": COUNT}
    assert (tmp_path / "new" / "consumequeue" / "quiet").is_dir()


# ---- topics that were created again ----


OLD, OTHER = TopicPartition("old", 0), TopicPartition("old", 1)


def made_again(root: Path, queues: int, first: int, second: int) -> Path:
    """Create the topic `old` with `first` records per queue, delete it, and create it again with `second` records in
    queue 0.

    As after a broker's deletion there is no note.
    """
    options = StoreOptions(settings=SETTINGS)
    with open_store("rocketmq", root, options, clock=ManualClock()) as store:
        store.create_topic("kept", 1)
        store.create_topic("old", 2)
        for number in range(first):
            for queue in (OTHER, OLD, KEPT)[2 - queues :]:
                store.append(queue, [Record(b"k%d" % number, b"old")])
        store.delete_topic("old")
        store.create_topic("old", 2)
        for number in range(second):
            store.append(OLD, [Record(b"k%d" % number, b"new")])
    (root / ".logserver.deleted.json").unlink()
    return root


def values_of(root: Path, queue: TopicPartition) -> list[bytes | None]:
    options = StoreOptions(settings=SETTINGS)
    with open_store("rocketmq", root, options, read_only=True) as store:
        return [record.value for record in store.scan(queue)]


lives = pytest.mark.parametrize(("first", "second"), [(9, 5), (5, 9), (1, 1)])


@lives
def test_records_of_an_earlier_topic_are_no_fault(tmp_path: Path, first: int, second: int) -> None:
    root = made_again(tmp_path / "store", 1, first, second)
    (found,) = fine("verify", root, *OPTIONS).rows
    assert (found["code"], found["severity"]) == ("earlier-topic", "info")
    assert (found["topic"], found["partition"], found["offset"]) == ("old", 0, 0)
    assert ("more like it" in found["message"]) == (first > 1)


@lives
@pytest.mark.parametrize("shared", [True, False], ids=["in parts", "by one"])
def test_a_rebuild_keeps_the_present_life(
    tmp_path: Path, first: int, second: int, shared: bool
) -> None:
    """A rebuild keeps queues of the present topic, and creates no queue for records of the earlier topic."""
    root = made_again(tmp_path / "store", 2, first, second)
    before = (root / "consumequeue" / "old" / "0" / f"{0:020}").read_bytes()
    run = Shared(3) if shared else None
    report = rebuilt(root, SETTINGS, "consumequeue", write=True, run=run, range_bytes=700)
    assert report.changed == []
    assert not (root / "consumequeue" / "old" / "1").exists()
    shutil.rmtree(root / "consumequeue" / "kept")
    report = rebuilt(root, SETTINGS, "consumequeue", write=True, run=run, range_bytes=700)
    assert len(report.changed) == 1
    assert (root / "consumequeue" / "old" / "0" / f"{0:020}").read_bytes() == before
    assert not (root / "consumequeue" / "old" / "1").exists()


@lives
def test_a_salvage_keeps_the_present_life(tmp_path: Path, first: int, second: int) -> None:
    root = made_again(tmp_path / "store", 2, first, second)
    fine("salvage", root, "--to", tmp_path / "new", *OPTIONS)
    assert values_of(tmp_path / "new", OLD) == [b"new"] * second
    assert values_of(tmp_path / "new", OTHER) == []
    assert values_of(tmp_path / "new", KEPT) == [b"old"] * first
    assert fine("verify", tmp_path / "new", *OPTIONS).rows == []
