"""The real Kafka reads what the library writes: records, offsets, times, indexes, both isolation levels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import Isolation, LogStore, TopicPartition, open_store
from tests.golden.stores import as_answer
from tests.golden.trees import picture
from tests.interop import peers, written
from tests.interop.peers import KafkaAnswer

pytestmark = pytest.mark.java

TIMES_MS = [
    0,
    5,
    6,
    written.BEGIN_MS - 4000,
    written.BEGIN_MS,
    written.BEGIN_MS + 7,
    written.BEGIN_MS + 1500,
    written.BEGIN_MS + 2001,
    written.BEGIN_MS + 44_000,
    written.BEGIN_MS + 95_000,
    4_102_444_800_000,
    4_102_444_800_001,
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store with everything that we can write."""
    path = tmp_path_factory.mktemp("ours") / "store"
    written.write(path)
    return path


@pytest.fixture(scope="module")
def ours(root: Path) -> Iterator[LogStore]:
    """The same store, opened."""
    with open_store("kafka", root, read_only=True) as store:
        yield store


def check_records(answer: KafkaAnswer, store: LogStore, isolation: Isolation) -> None:
    """Compare partition by partition, so that a difference is shown in a small output."""
    mine = written.rows(store, isolation)
    assert sorted(answer.records) == sorted(mine)
    for partition, expected in mine.items():
        assert answer.records[partition] == expected, partition


def check_offsets(answer: KafkaAnswer, store: LogStore, *, stable: bool) -> None:
    for (topic, number), reported in answer.summaries.items():
        bounds = store.bounds(TopicPartition(topic, number))
        latest = bounds.stable if stable else bounds.end
        assert (reported["earliest"], reported["latest"]) == (bounds.start, latest), (topic, number)


def check_times(answer: KafkaAnswer, store: LogStore) -> None:
    assert set(answer.times) == set(answer.records)
    for (topic, number), answers in answer.times.items():
        for time_ms, expected in answers:
            found = as_answer(store.offset_for_time(TopicPartition(topic, number), time_ms))
            assert (topic, number, time_ms, found) == (topic, number, time_ms, expected)


OPENINGS = [
    pytest.param(("--clean", "yes"), Isolation.READ_UNCOMMITTED, id="broker"),
    pytest.param(("--clean", "yes"), Isolation.READ_COMMITTED, id="broker-committed"),
    pytest.param(("--clean", "no"), Isolation.READ_UNCOMMITTED, id="broker-recovers"),
    pytest.param(("--clean", "yes", "--direct"), Isolation.READ_UNCOMMITTED, id="direct"),
    pytest.param(("--clean", "yes", "--direct"), Isolation.READ_COMMITTED, id="direct-committed"),
    pytest.param(("--clean", "no", "--direct"), Isolation.READ_UNCOMMITTED, id="direct-recovers"),
]


@pytest.mark.parametrize(("options", "isolation"), OPENINGS)
def test_the_real_kafka_reads_what_we_wrote(
    root: Path, ours: LogStore, options: tuple[str, ...], isolation: Isolation
) -> None:
    before = picture(root)
    answer = peers.run_kafka_opens(
        root, *options, "--isolation", isolation.value, "--times", ",".join(map(str, TIMES_MS))
    )
    check_records(answer, ours, isolation)
    stable = isolation is Isolation.READ_COMMITTED and "--direct" not in options
    check_offsets(answer, ours, stable=stable)  # the log classes have one end for all
    check_times(answer, ours)
    assert picture(root) == before


def test_there_is_something_of_everything(ours: LogStore) -> None:
    found = written.rows(ours)
    assert {len(found["codecs", n]) for n in range(len(written.CODECS))} == {3 * (1 + 30 + 7 + 3)}
    assert len(found["shapes", 0]) == len(found["shapes", 1]) == 3 * len(written.SHAPES)
    assert {row["timestampType"] for row in found["append-time", 0]} == {"LogAppendTime"}
    assert found["never-written", 0] == []
    committed = written.rows(ours, Isolation.READ_COMMITTED)["transactions", 0]
    assert 0 < len(committed) < len(found["transactions", 0])
    stats = ours.stats()
    assert (stats.topics, stats.partitions) == (7, 15)
    assert stats.segments > 30


def test_the_real_kafka_finds_our_indexes_right(root: Path) -> None:
    peers.index_check(path for path in sorted(root.iterdir()) if path.is_dir())
