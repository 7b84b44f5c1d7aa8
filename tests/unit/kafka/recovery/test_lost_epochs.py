"""A lost, unreadable or outdated leader-epoch-checkpoint: rebuilt from the batches, after any stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import LogStore
from storage.errors import IoFailure, StoreFenced
from storage.files import FileSystem, OverlayFileSystem
from storage.kafka.state.epochs import LeaderEpochs
from storage.kafka.store import KafkaStore
from tests.robustness.crash.relay import Relay
from tests.unit.kafka.log.batches import data_batch
from tests.unit.kafka.workshop import ROOT, T0, Workshop, only_partition, put_value, values

FILE = ROOT / "t-0" / "leader-epoch-checkpoint"
MARKER = ROOT / ".kafka_cleanshutdown"
SMALL = {"internal.segment.bytes": "200"}  # two batches of 69 bytes per segment
LOST = {
    "missing": None,
    "empty": b"",
    "no entries": b"0\n0\n",
    "zeros": bytes(20),
    "word": b"0\n2\n0 0\nx 200\n",
    "cut": b"0\n2\n0 0\n2",
    "below zero": b"0\n1\n-1 0\n",
    "version": b"1\n1\n0 0\n",
}
UNREADABLE = {name: data for name, data in LOST.items() if data and name != "no entries"}


@pytest.fixture
def stopped(shop: Workshop) -> Workshop:
    """A cleanly stopped store of eight batches in four segments, of the epochs 0, 0, 0, 2, 2, 5, 5, 5."""
    store = shop.open_with_topic(SMALL)
    for offset, epoch in enumerate((0, 0, 0, 2, 2, 5, 5, 5)):
        store.append_batches(T0, data_batch(offset, epoch=epoch), keep_offsets=True)
    store.close()
    assert shop.bases() == [0, 2, 4, 6]
    return shop


def epoch_at(store: LogStore, offset: int) -> int:
    """Return the leader epoch of the batch at an offset."""
    assert isinstance(store, KafkaStore)
    batches = only_partition(store).segments()[-1].batches(offset, stop_offset=offset + 1)
    return next(batch.header.leader_epoch for batch in batches)


def leave(shop: Workshop, data: bytes | None) -> None:
    if data is None:
        shop.fs.remove(FILE)
    else:
        shop.put(FILE, data)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", LOST)
def test_it_is_made_anew_from_the_batches(stopped: Workshop, name: str, clean: bool) -> None:
    leave(stopped, LOST[name])
    if not clean:
        stopped.fs.remove(MARKER)
    with stopped.open(SMALL) as store:
        assert [f.code for f in store.recovery.findings] == (
            ["bad-leader-epochs"] if name in UNREADABLE else []
        )
        assert stopped.epochs() == [(0, 0), (2, 3), (5, 5)]
        put_value(store, b"ours")
    assert stopped.epochs() == [(0, 0), (2, 3), (5, 5)], "the broker's newest is ours too"


@pytest.mark.parametrize("name", UNREADABLE)
def test_beside_an_empty_log_it_does_not_stay(shop: Workshop, name: str) -> None:
    shop.open_with_topic().close()
    leave(shop, LOST[name])
    shop.open().close()
    assert not shop.fs.exists(FILE)
    with shop.open() as store:
        put_value(store, b"ours")
    assert shop.epochs() == [(0, 0)]


@pytest.mark.parametrize("behind", [b"0\n1\n0 0\n", b"0\n2\n0 0\n2 3\n"])
def test_the_next_batch_has_the_epoch_of_the_last_one(stopped: Workshop, behind: bytes) -> None:
    leave(stopped, behind)
    with stopped.open(SMALL) as store:
        put_value(store, b"ours")
        assert epoch_at(store, 8) == 5


def test_so_it_has_behind_a_segment_that_was_closed(stopped: Workshop) -> None:
    leave(stopped, b"0\n1\n0 0\n")
    for suffix in (".log", ".index", ".timeindex"):
        stopped.put(stopped.path(8, suffix), b"")
    with stopped.open(SMALL) as store:
        put_value(store, b"ours")
        assert epoch_at(store, 8) == 5


def test_a_good_one_is_let_be(stopped: Workshop) -> None:
    leave(stopped, b"0\n4\n0 0\n1 2\n2 3\n5 5\n")
    with stopped.open(SMALL) as store:
        assert store.recovery.findings == []
    assert stopped.epochs() == [(0, 0), (1, 2), (2, 3), (5, 5)]


def test_reading_only_changes_nothing(stopped: Workshop) -> None:
    leave(stopped, LOST["word"])
    fs = OverlayFileSystem(stopped.fs)
    with Workshop(fs).open(SMALL, read_only=True) as store:
        assert len(values(store)) == 8
    assert list(fs.changed()) == []


def test_batches_without_an_epoch_make_none() -> None:
    epochs = LeaderEpochs()
    assert not epochs.assign(-1, 0)
    assert epochs.entries == ()


@pytest.mark.parametrize("partition", [0, 1])
def test_a_damaged_topic_id_is_an_error(shop: Workshop, partition: int) -> None:
    shop.open_with_topic(partitions=2).close()
    topic_id = shop.open(read_only=True).topics()["t"].topic_id
    path: Path = ROOT / f"t-{partition}" / "partition.metadata"
    shop.put(path, b"garbage")
    with shop.open() as store:
        found = [(f.code, f.severity, f.path) for f in store.recovery.findings]
        assert store.topics()["t"].topic_id == topic_id, "the other partition tells it"
    assert found == [("bad-partition-metadata", "error", str(path))]


# ---- a deletion that a crash interrupted -------------------------------------------------------------------------

WHOLE = [(0, 0), (2, 3), (5, 5)]


@pytest.mark.parametrize("cut", ["0\n3\n0 2\n2 3\n5 5\n", "0\n2\n2 4\n5 5\n", "0\n1\n5 6\n"])
@pytest.mark.parametrize("flushed", [0, 4, 8])
def test_epochs_cut_by_an_interrupted_deletion_are_read_again(
    stopped: Workshop, cut: str, flushed: int
) -> None:
    """A deletion cuts the epochs before it removes files; here a crash came between the two steps."""
    leave(stopped, cut.encode())
    stopped.fs.remove(MARKER)
    stopped.put(ROOT / "recovery-point-offset-checkpoint", b"0\n1\nt 0 %d\n" % flushed)
    for _ in range(2):
        with stopped.open(SMALL) as store:
            assert store.bounds(T0).start == 0
            assert store.recovery.findings == []
            assert stopped.epochs() == WHOLE


@pytest.mark.parametrize("left", [[2, 4, 6], [4, 6]])
def test_so_they_are_where_some_files_are_gone(stopped: Workshop, left: list[int]) -> None:
    leave(stopped, b"0\n1\n5 6\n")
    stopped.fs.remove(MARKER)
    for base in {0, 2, 4, 6} - set(left):
        for suffix in (".log", ".index", ".timeindex"):
            stopped.fs.remove(stopped.path(base, suffix))
    with stopped.open(SMALL) as store:
        assert store.bounds(T0).start == left[0]
    assert stopped.epochs() == {2: [(0, 2), (2, 3), (5, 5)], 4: [(2, 4), (5, 5)]}[left[0]]


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_a_deletion_that_is_killed(stopped: Workshop, removed: int) -> None:
    """A deletion cuts all epochs first, then renames one file after another."""
    fs = KilledAtLog(OverlayFileSystem(stopped.fs), after=removed)
    hurt = Workshop(fs)
    hurt.clock.now_ms = stopped.clock.now_ms
    store = hurt.open({**SMALL, "log.retention.bytes": "1"})
    with pytest.raises(StoreFenced, match="killed"):
        store.enforce_retention(hurt.clock.now_ms)
    killed = hurt.after_kill()
    start = 2 * removed
    assert killed.epochs()[0][1] > start
    assert killed.bases() == list(range(start, 8, 2))
    with killed.open(SMALL) as again:
        assert again.bounds(T0).start == start
    left = {0: WHOLE, 2: [(0, 2), (2, 3), (5, 5)], 4: [(2, 4), (5, 5)]}
    assert killed.epochs() == left[start]


class KilledAtLog(Relay):
    """A disk that fails at the renaming of a log file, after `after` that succeed."""

    def __init__(self, fs: FileSystem, *, after: int) -> None:
        super().__init__(fs)
        self._after = after
        self._removed: set[Path] = set()

    def step(self, operation: str, path: Path) -> None:
        if operation == "rename" and path.name.endswith(".log.deleted"):
            self._removed.add(path)
            if len(self._removed) > self._after:
                raise IoFailure(f"{path}: killed", path=str(path), operation=operation, errno=5)
