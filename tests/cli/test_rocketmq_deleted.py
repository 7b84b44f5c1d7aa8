"""Topics that a real broker deleted, which leaves no note: the commands that look at a store take them for deleted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from storage import Record, StoreOptions, TopicPartition, open_store
from storage.model import RawMessage
from storage.rocketmq.store import RocketMQStore
from storage.rocketmq.topics_file import TopicTable
from tests.cli.runner import fine, settings_options
from tests.contract.harness import ManualClock

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
    """A store with records of four topics: `entryless` has a folder and no entry, those of `quiet` are gone with the
    head of the log.
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
    """As the broker does."""
    topics = root / "config" / "topics.json"
    table = TopicTable.decode(topics.read_bytes()).without(["gone"], now_ms=9)
    topics.write_bytes(table.encode())
    shutil.rmtree(root / "consumequeue" / "gone")


def counts(root: Path) -> dict[str, int]:
    """How many records each topic has."""
    found: dict[str, int] = {}
    for row in fine("dump", root, *OPTIONS).rows:
        found[row["topic"]] = found.get(row["topic"], 0) + 1
    return found


def test_they_are_not_shown_and_are_no_fault(root: Path) -> None:
    delete(root)
    assert counts(root) == {"kept": COUNT, "entryless": COUNT}
    assert [row["code"] for row in fine("verify", root, *OPTIONS).rows] == []
    assert fine("rebuild", root, *OPTIONS, "--what", "consumequeue").document["changed"] == []


def test_a_salvage_leaves_them_out_and_no_other(root: Path, tmp_path: Path) -> None:
    """Also a topic without an entry stays, though the new store begins with the queues of a quiet one alone."""
    delete(root)
    fine("salvage", root, "--to", tmp_path / "new", *OPTIONS)
    assert counts(tmp_path / "new") == {"kept": COUNT, "entryless": COUNT}
    assert (tmp_path / "new" / "consumequeue" / "quiet").is_dir()
