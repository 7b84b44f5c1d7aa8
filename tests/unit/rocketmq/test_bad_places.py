"""Many damaged records in one log, and starts on a log with damage and missing files: the effort is proportional."""

from __future__ import annotations

import pytest

from storage import StoreOptions, TopicPartition, open_inspector
from storage.errors import DamagedStore
from storage.rocketmq.format.checkpoint import decode_checkpoint, encode_checkpoint
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.names import file_name
from storage.rocketmq.log.commit_log import record_at
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.recovery import examine, resync
from tests.formats.rocketmq_messages.cases import walked
from tests.unit.rocketmq.workshop import ROOT, SMALL, Workshop, put_file, put_value

QUEUES = 4
ROUNDS = 40


def filled(rounds: int) -> Workshop:
    """Return a store with `rounds` records in each queue, appended in turn, and with an abort file as after a kill."""
    shop = Workshop()
    with shop.open_with_topic(partitions=QUEUES) as store:
        for number in range(rounds):
            for queue in range(QUEUES):
                put_value(store, b"%d-%d" % (queue, number), TopicPartition("t", queue))
    put_file(shop.fs, ROOT / "abort", b"")
    return shop


def spoil(shop: Workshop, every: int, first: int, run: int) -> int:
    """Overwrite the magic of `run` records of each `every`, from record `first` on; return their number."""
    number = spoiled = 0
    for base in shop.log_bases():
        data = shop.fs.read_bytes(shop.log_path(base))
        records, _, _ = walked(data, 0, len(data), base)
        for at, _ in records:
            if (number - first) % every < run:
                shop.overwrite(shop.log_path(base), at - base + 4, b"\0\1\2\3")
                spoiled += 1
            number += 1
    return spoiled


@pytest.mark.parametrize(("every", "first", "run"), [(2, 1, 1), (4, 3, 1), (8, 2, 4), (3, 1, 1)])
def test_each_entry_is_followed_once(
    monkeypatch: pytest.MonkeyPatch, every: int, first: int, run: int
) -> None:
    shop = filled(ROUNDS)
    spoiled = spoil(shop, every, first, run)
    assert spoiled >= ROUNDS - 1
    asked: list[int] = []
    original = record_at

    def counted(log: FileSequence, at: int) -> Message | None:
        asked.append(at)
        return original(log, at)

    monkeypatch.setattr(resync, "record_at", counted)
    inspector = open_inspector(ROOT, StoreOptions(settings=SMALL), fs=shop.fs, clock=shop.clock)
    try:
        report = inspector.salvage(ROOT.parent / "new")
    finally:
        inspector.close()
    assert report.kept_records == QUEUES * ROUNDS - spoiled
    missing = {
        (loss.partition, offset)
        for loss in report.losses
        if loss.topic
        for offset in range(loss.first_offset, loss.next_offset or 0)
    }
    assert len(missing) == spoiled
    assert len(asked) <= 3 * QUEUES * ROUNDS


@pytest.mark.parametrize("lost_file", [2, 3, 5])
@pytest.mark.parametrize("lost_queue", [0, 1, 3])
def test_a_start_ends_where_a_log_file_and_a_queue_are_missing(
    monkeypatch: pytest.MonkeyPatch, lost_file: int, lost_queue: int
) -> None:
    """A walk from the checkpoint on requests a walk over the whole log, and the second walk decides."""
    shop = filled(10)
    bases = shop.log_bases()
    shop.fs.remove(ROOT / ".logserver.store.json")  # this file holds the number of queue entries
    found = decode_checkpoint(shop.fs.read_bytes(ROOT / "checkpoint"))
    found = found._replace(logics_physical_offset=bases[1])
    shop.overwrite(ROOT / "checkpoint", 0, encode_checkpoint(found))
    shop.fs.remove(shop.log_path(bases[lost_file]))
    for base in shop.queue_bases(TopicPartition("t", lost_queue)):
        shop.fs.remove(ROOT / "consumequeue" / "t" / str(lost_queue) / file_name(base))
    walks: list[int] = []
    original = examine._Walk.run

    def counted(walk: examine._Walk) -> None:
        walks.append(walk.start)
        assert len(walks) < 10, "the start repeats itself"
        original(walk)

    monkeypatch.setattr(examine._Walk, "run", counted)
    with pytest.raises(DamagedStore):
        shop.open()
    shop.open(accept_loss=True).close()
