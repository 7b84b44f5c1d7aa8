"""Queues with missing records, built by us: the real store reads every remaining record in one pull."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from storage import open_store
from storage.contract import StoreOptions
from storage.conversion.records import HOST, QueuedMessage
from storage.conversion.rocketmq_writer import LogWriter
from storage.files import RealFileSystem
from storage.model import RawMessage, TopicPartition
from tests.cli.runner import run, settings_options
from tests.interop.rocketmq import rocketmq_peers

pytestmark = pytest.mark.java

SIZES = {
    "mappedFileSizeCommitLog": "4096",
    "mappedFileSizeConsumeQueue": "200",
    "maxHashSlotNum": "50",
    "maxIndexNum": "100",
}
QUEUE = TopicPartition("gap", 0)
OFFSETS = {
    "one gap": [0, 1, 2, 4, 5],
    "several gaps": [0, 2, 3, 9, 10, 30],
    "in a later log file": [*range(40), *range(43, 50)],
    "at the end of a queue file": [*range(9), *range(11, 20)],
}


def a_log(root: Path, offsets: Sequence[int]) -> None:
    """Create only a log, which begins with its first file."""
    fs = RealFileSystem()
    root.mkdir()
    writer = LogWriter(fs, root, int(SIZES["mappedFileSizeCommitLog"]), position=0)
    for number, offset in enumerate(offsets):
        raw = RawMessage(body=b"value %d" % number, properties=b"KEYS\x01k%d\x02" % number)
        writer.add(QUEUE, QueuedMessage(raw, offset, 1_700_000_000_000 + number, HOST))
    writer.finish(last=True)


def rebuilt(root: Path) -> None:
    """Build the queues with the rebuild command."""
    (root / "consumequeue").mkdir()
    ended = run("rebuild", root, "--what", "consumequeue", "--write", *settings_options(SIZES))
    assert ended.code == 1  # the report names the first record with another offset


def started(root: Path) -> None:
    """Build the queues with a writable start."""
    with open_store("rocketmq", root, StoreOptions(settings=SIZES)) as store:
        found = {finding.code for finding in store.recovery.findings}
        assert "unit-offset-differs" in found


@pytest.mark.parametrize("build", [rebuilt, started])
def test_the_real_store_reads_all(build: Callable[[Path], None], tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for name, offsets in OFFSETS.items():
        ours.mkdir(exist_ok=True)
        a_log(ours / name, offsets)
        build(ours / name)
    shutil.copytree(ours, theirs)
    answers = rocketmq_peers.run_rocketmq_opens_each(theirs, SIZES, "--min-max")
    for name, offsets in OFFSETS.items():
        assert len(answers[name].messages[QUEUE]) == len(offsets), name
        assert answers[name].queues[QUEUE] == (0, len(offsets)), name
        options = StoreOptions(settings=SIZES)
        with open_store("rocketmq", ours / name, options, read_only=True) as store:
            assert len(list(store.scan(QUEUE))) == len(offsets), name
