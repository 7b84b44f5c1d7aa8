"""Files preallocated at their default sizes contain a gigabyte of holes: no command and no start reads them."""

from __future__ import annotations

import pytest

from storage import StoreOptions
from storage.model import TopicPartition
from storage.rocketmq.store import RocketMQStore
from storage.rocketmq.tools import open_inspector
from tests.robustness.crash.counted import CountedReads
from tests.unit.rocketmq.workshop import ROOT, Workshop, keyed, on

USUAL = {
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": str(300_000 * 20),
    "maxHashSlotNum": str(5_000_000),
    "maxIndexNum": str(20_000_000),
}
SLOT_BYTES = 4 * 5_000_000
FEW_BYTES = SLOT_BYTES + (16 << 20)  # the slots of the index may be read, but no hole of the log


@pytest.fixture(params=["killed", "stopped"])
def large(request: pytest.FixtureRequest, shop: Workshop) -> Workshop:
    """A store with three records in files of the default sizes, killed or stopped."""
    store: RocketMQStore = shop.open(USUAL)
    store.create_topic("t", 1)
    for value in (b"first", b"second", b"third"):
        store.append(TopicPartition("t", 0), [keyed(value)])
    store.flush([TopicPartition("t", 0)])
    if request.param == "stopped":
        store.close()
    return shop.after_kill()


@pytest.mark.parametrize("what", ["verify", "dump", "consumequeue", "indexfile"])
def test_looking_reads_no_hole(large: Workshop, what: str) -> None:
    fs = CountedReads(large.fs)
    inspector = open_inspector(ROOT, StoreOptions(), fs=fs, clock=large.clock)
    assert inspector is not None
    if what == "verify":
        assert {found.severity for found in inspector.verify()} <= {"info", "warning"}
    elif what == "dump":
        assert sum(map(len, inspector.dump("records"))) == 3
    else:
        inspector.rebuild(what)
    inspector.close()
    assert fs.count_bytes < FEW_BYTES


@pytest.mark.parametrize("read_only", [True, False])
def test_a_start_reads_no_hole(large: Workshop, read_only: bool) -> None:
    fs = CountedReads(large.fs)
    store = on(fs, large).open(USUAL, read_only=read_only)
    assert len(store.read(TopicPartition("t", 0), 0).records) == 3
    store.close()
    assert fs.count_bytes < FEW_BYTES
