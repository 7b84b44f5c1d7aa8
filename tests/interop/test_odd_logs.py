"""Irregular but intact content of a log, and deleted indexes: we answer as the real Kafka does."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from storage import Isolation, open_store
from storage.errors import DamagedStore
from storage.registry import open_inspector
from tests.interop import peers
from tests.unit.kafka.log.batches import data_batch, marker
from tests.unit.kafka.log.test_odd_batches import ODD
from tests.unit.kafka.log.test_overflow import LOGS
from tests.unit.kafka.recovery.test_misnamed import CASES
from tests.unit.kafka.recovery.test_overlaps import EQUAL, FIRST

pytestmark = pytest.mark.java

MARKER = ".kafka_cleanshutdown"
INDEXES = (".index", ".timeindex", ".txnindex")


def store_of(root: Path, logs: dict[str, bytes], *, clean: bool) -> Path:
    """Create a log directory with a topic for each log, without any index."""
    with open_store("kafka", root) as store:
        for topic in logs:
            store.create_topic(topic, 1)
    for topic, log in logs.items():
        folder = root / f"{topic}-0"
        for path in folder.glob("0*"):
            path.unlink()
        (folder / f"{0:020d}.log").write_bytes(log)
    if not clean:
        (root / MARKER).unlink()
    return root


def offsets_of(root: Path, topic: str, *, committed: bool = False) -> list[object]:
    inspector = open_inspector(root)
    isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
    with closing(inspector):
        runs = inspector.dump("records", topic=topic, isolation=isolation)
        return [row["offset"] for run in runs for row in run]


def test_the_consumer_reads_odd_batches_as_we_do(tmp_path: Path) -> None:
    """At a batch that cannot be decoded the consumer stops; up to there its answers equal ours."""
    logs = {f"odd{index}": odd.log for index, odd in enumerate(ODD.values())}
    root = store_of(tmp_path / "s", logs, clean=False)
    answer = peers.run_kafka_opens(root, "--clean", "no", check=False)
    for index, (name, odd) in enumerate(ODD.items()):
        topic = f"odd{index}"
        assert offsets_of(root, topic) == odd.offsets, name
        theirs = [row["offset"] for row in answer.records[topic, 0]]
        if odd.code in {"unusual-offsets", "unknown-attributes", ""}:
            assert theirs == odd.offsets, name
        else:
            assert answer.summaries[topic, 0]["error"], name
            assert theirs[:2] in ([0, 1], []), name


@pytest.mark.parametrize("clean", [True, False])
def test_an_overflowed_segment_is_split_alike(tmp_path: Path, clean: bool) -> None:
    """After a clean stop the real broker keeps the whole segment next to its parts if its base is no batch's offset."""
    logs = {f"log{index}": log for index, (log, _, _) in enumerate(LOGS.values())}
    root = store_of(tmp_path / "s", logs, clean=clean)
    kept = tmp_path / "kept"
    peers.run_kafka_opens(
        root, "--direct", "--clean", "yes" if clean else "no", "--keep", str(kept)
    )
    open_store("kafka", root).close()
    for topic in logs:
        theirs, ours = kept / "log" / f"{topic}-0", root / f"{topic}-0"
        names = {path.name for path in theirs.glob("*.log")}
        if clean and (theirs / f"{5:020d}.log").exists():
            names.remove(f"{0:020d}.log")
        assert {path.name for path in ours.glob("*.log")} == names
        for path in ours.glob("*.log"):
            assert path.read_bytes() == (theirs / path.name).read_bytes()
    answer = peers.run_kafka_opens(root, "--direct", "--clean", "yes")
    for topic, (_, offsets, _) in zip(logs, LOGS.values(), strict=True):
        assert [row["offset"] for row in answer.records[topic, 0]] == offsets
    peers.index_check([root / f"{topic}-0" for topic in logs])


def transactions() -> bytes:
    """Return two transactions, one of them aborted, with records outside of a transaction between them."""
    return b"".join(
        (
            data_batch(0, count=2),
            data_batch(2, count=2, producer=(7, 0, 0), transactional=True),
            data_batch(4, producer=(8, 0, 0), transactional=True),
            marker(5, 7, commit=False),
            data_batch(6),
            marker(7, 8, commit=True),
        )
    )


@pytest.mark.parametrize("lost", [INDEXES, (".index", ".txnindex"), (".index",)], ids="-".join)
def test_read_committed_after_deleted_indexes(tmp_path: Path, lost: tuple[str, ...]) -> None:
    root = store_of(tmp_path / "s", {"t": transactions()}, clean=True)
    open_store("kafka", root).close()
    for suffix in lost:
        for path in (root / "t-0").glob(f"*{suffix}"):
            path.unlink()
    committed = ("--direct", "--clean", "yes", "--isolation", "read_committed")
    theirs = [row["offset"] for row in peers.run_kafka_opens(root, *committed).records["t", 0]]
    assert theirs == [0, 1, 4, 6]
    assert offsets_of(root, "t", committed=True) == theirs
    open_store("kafka", root).close()
    again = [row["offset"] for row in peers.run_kafka_opens(root, *committed).records["t", 0]]
    assert again == theirs


def test_a_batch_written_twice_is_refused_where_the_log_end_would_fall(tmp_path: Path) -> None:
    """The real broker starts, and assigns offsets 2 to 4 again."""
    log = data_batch(0, count=5) + data_batch(0, count=2)
    root = store_of(tmp_path / "s", {"t": log}, clean=False)
    answer = peers.run_kafka_opens(root, "--direct", "--clean", "no")
    assert answer.summaries["t", 0]["latest"] == 2
    with pytest.raises(DamagedStore, match="do not fit"):
        open_store("kafka", root)


def test_overlapping_segments_are_read_as_the_consumer_reads_them(tmp_path: Path) -> None:
    logs = [*EQUAL.values(), FIRST]
    root = store_of(tmp_path / "s", {f"log{at}": b"" for at in range(len(logs))}, clean=True)
    for at, segments in enumerate(logs):
        for base, data in segments.items():
            (root / f"log{at}-0" / f"{base:020d}.log").write_bytes(data)
    answer = peers.run_kafka_opens(root, "--direct", "--clean", "yes")
    for at in range(len(logs)):
        theirs = [row["offset"] for row in answer.records[f"log{at}", 0]]
        assert offsets_of(root, f"log{at}") == theirs
    open_store("kafka", root).close()
    again = peers.run_kafka_opens(root, "--direct", "--clean", "yes")
    assert again.records == answer.records


@pytest.mark.parametrize("clean", ["yes", "no"])
def test_renamed_segments(tmp_path: Path, clean: str) -> None:
    """The real broker reads all records if the names are too low and in order (our warning).

    Otherwise it refuses the partition or reads a part of it. After our own start it reads all records.
    """
    root = store_of(tmp_path / "s", {f"log{at}": b"" for at in range(len(CASES))}, clean=True)
    for at, case in enumerate(CASES.values()):
        (root / f"log{at}-0" / f"{0:020d}.log").unlink()
        for base, data in case.logs.items():
            (root / f"log{at}-0" / f"{base:020d}.log").write_bytes(data)
    answer = peers.run_kafka_opens(root, "--direct", "--clean", clean, check=False)
    for at, (name, case) in enumerate(CASES.items()):
        theirs = [row["offset"] for row in answer.records.get((f"log{at}", 0), ())]
        assert offsets_of(root, f"log{at}") == list(range(10)), name
        if case.severity == "warning":
            assert theirs == list(range(10)), name
        elif name != "one higher, in a batch":
            assert len(theirs) < 10, name
    open_store("kafka", root).close()
    again = peers.run_kafka_opens(root, "--direct", "--clean", clean)
    for at in range(len(CASES)):
        assert [row["offset"] for row in again.records[f"log{at}", 0]] == list(range(10))
