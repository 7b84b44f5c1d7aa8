"""Every damaged copy of a golden log, salvaged: the new store has all good records, and exact reports of lost ones."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from storage import Isolation, LogStore, Record, SupportsGroupOffsets, TopicPartition, open_store
from storage.kafka.format.checkpoints import decode_epochs
from tests.damage.salvaging import lost_offsets, salvage, verified
from tests.damage.test_kafka_damage import (
    ADDRESS,
    END,
    HEALTHY,
    OUTCOMES,
    kept_by_the_real_ones,
    read_around,
    root_of,
    written,
)
from tests.golden import stores
from tests.golden.stores import GoldenPartition
from tests.golden.trees import picture

BY_EPOCH = "flip-leader-epoch"


def opened(target: Path) -> LogStore:
    return open_store("kafka", target, clock=lambda: stores.MADE_AT_MS)


@pytest.mark.parametrize("variant", OUTCOMES)
def test_what_is_good_is_kept_and_the_rest_is_told(variant: str, tmp_path: Path) -> None:
    root, target = root_of(variant), tmp_path / "new"
    before = picture(root.parent)
    report = salvage(root, target, HEALTHY.settings)
    assert picture(root.parent) == before
    logs = sum(path.stat().st_size for path in (root / HEALTHY.name).glob("*.log"))
    leftover = variant == "leftover-swap"  # the swapped-in files replace others
    assert report.log_bytes == logs or leftover
    with opened(target) as store:
        assert store.recovery.clean_shutdown
        assert (store.recovery.findings, store.recovery.losses) == ([], [])
        rows, errors = read_around(store)
        end = store.bounds(ADDRESS).end
    best = OUTCOMES[variant].served("read-only")
    offsets = [row["offset"] for row in rows]
    assert rows == [written()[offset] for offset in offsets]
    assert offsets == best
    assert kept_by_the_real_ones(variant) <= set(offsets)
    gone = set(range(END)) - set(offsets)
    assert lost_offsets(list(report.losses), *ADDRESS) == gone
    assert errors == []
    assert end == END, "no offset is given again"
    assert verified(target, HEALTHY.settings) == []


@pytest.mark.parametrize("variant", OUTCOMES)
def test_the_place_of_each_loss_is_that_of_the_damage(variant: str, tmp_path: Path) -> None:
    outcome = OUTCOMES[variant]
    report = salvage(root_of(variant), tmp_path / "new", HEALTHY.settings)
    path = str(root_of(variant) / HEALTHY.name / outcome.file)
    if (
        outcome.code in ("torn-tail", "damaged-batch", "misplaced-batch")
        or outcome.position == 3096
    ):
        assert [(loss.path, loss.position) for loss in report.losses] == [(path, outcome.position)]
    elif "segment-missing" in variant:
        assert [(loss.reason, loss.size_bytes) for loss in report.losses] == [("missing", 0)]
    else:
        assert report.losses == []
        assert (
            report.blank_bytes == (4096 if outcome.code == "zero-tail" else 0) or report.blank_bytes
        )
    reported = [finding.code for finding in report.findings]
    assert reported == (["leader-epoch-mismatch"] if variant == BY_EPOCH else reported)


def test_a_batch_whose_leader_epoch_has_rotted_gets_its_own(tmp_path: Path) -> None:
    """The epoch is not covered by the CRC; the rest of the log is unchanged."""
    salvage(root_of(BY_EPOCH), tmp_path / "new", HEALTHY.settings)
    for path in HEALTHY.log_files:
        assert (tmp_path / "new" / HEALTHY.name / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", stores.healthy_stores())
def test_of_a_healthy_store_nothing_is_left_behind(name: str, tmp_path: Path) -> None:
    root, target = stores.KAFKA / name / "data", tmp_path / "new"
    before = picture(root)
    report = salvage(root, target, {})
    assert picture(root) == before
    assert report.losses == []
    assert [f for f in report.findings if f.severity != "info"] == []
    still_open = ["hanging-transaction"] if name == "txnopen" else []
    assert [f.code for f in verified(target, {})] == still_open
    for path in root.glob("*-*/*.log"):
        copy = target / path.parent.name / path.name
        assert copy.exists() or not path.stat().st_size
        assert not copy.exists() or copy.read_bytes() == path.read_bytes()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("partition", stores.partitions(), ids=stores.by_id)
def test_a_partition_alone_has_its_records_bounds_and_epochs(
    partition: GoldenPartition, tmp_path: Path
) -> None:
    target = tmp_path / "new"
    report = salvage(partition.data, target, {})
    assert report.losses == []
    with (
        opened(target) as store,
        stores.open_golden(partition.root, partition.settings, read_only=True) as real,
    ):
        assert list(store.topics()) == [partition.address.topic]
        assert store.bounds(partition.address) == real.bounds(partition.address)
        for isolation, name in (
            (Isolation.READ_UNCOMMITTED, "expected.jsonl"),
            (Isolation.READ_COMMITTED, stores.COMMITTED),
        ):
            records = store.scan(partition.address, isolation=isolation)
            rows = [stores.as_row(partition.address, record) for record in records]
            if (partition.expect / name).exists():
                assert rows == partition.lines(name)
    epochs = (target / partition.name / "leader-epoch-checkpoint").read_bytes()
    assert epochs == (partition.data / "leader-epoch-checkpoint").read_bytes()


@pytest.mark.parametrize("base", [0, 597, 1113])
def test_one_log_file(base: int, tmp_path: Path) -> None:
    path = HEALTHY.data / f"{base:020}.log"
    report = salvage(path, tmp_path / "new", {})
    with opened(tmp_path / "new") as store:
        rows, _ = read_around(store)
        assert store.bounds(ADDRESS).start == base
    assert rows == [written()[row["offset"]] for row in rows]
    assert rows[0]["offset"] == base
    assert report.kept_bytes == path.stat().st_size
    assert verified(tmp_path / "new", {}) == []


def test_a_log_file_of_nobody_becomes_a_topic(tmp_path: Path) -> None:
    source = tmp_path / "found" / "copy.log"
    source.parent.mkdir()
    source.write_bytes((HEALTHY.data / f"{597:020}.log").read_bytes())
    report = salvage(source, tmp_path / "new", {})
    assert [(kept.topic, kept.first_offset) for kept in report.kept] == [("salvaged", 597)]
    with opened(tmp_path / "new") as store:
        assert store.read(TopicPartition("salvaged", 0), 597, max_records=1).records


def test_a_salvaged_store_can_be_salvaged_and_appended_to(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    salvage(root_of("flip-active"), first, {})
    report = salvage(first, second, {})
    assert lost_offsets(list(report.losses), *ADDRESS) == set(range(1155, 1163))
    assert verified(second, {}) == []
    for path in (first / HEALTHY.name).glob("*.log"):
        assert (second / HEALTHY.name / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("seed", range(12))
def test_random_damage(seed: int, tmp_path: Path) -> None:
    """Whatever damage a log has, the new store is intact, and kept and lost records add up to all records."""
    root = stores.copy_store(HEALTHY.root, tmp_path / "source")
    rng = random.Random(seed)
    for _ in range(rng.randrange(1, 4)):
        path = rng.choice(sorted((root / HEALTHY.name).glob("*.log")))
        size = rng.choice([1, 4, 64, 600])
        data = rng.choice([bytes(size), rng.randbytes(size)])
        with path.open("r+b") as file:
            file.seek(rng.randrange(max(path.stat().st_size - size, 1)))
            file.write(data)
    report = salvage(root, tmp_path / "new", {})
    assert verified(tmp_path / "new", {}) == []
    with opened(tmp_path / "new") as store:
        rows, errors = read_around(store)
    assert errors == []
    assert rows == [written()[row["offset"]] for row in rows]
    kept = {row["offset"] for row in rows}
    assert kept | lost_offsets(list(report.losses), *ADDRESS) == set(range(END))


def test_a_store_of_ours_stays_ours(tmp_path: Path) -> None:
    """The leader epochs of our own store continue to rise; the epochs of a broker's directory do not."""
    source, target = tmp_path / "old", tmp_path / "new"
    address = TopicPartition("t", 0)
    for turn in range(3):
        with open_store("kafka", target if turn == 2 else source) as store:
            if turn == 0:
                store.create_topic("t", 1)
            store.append(address, [Record(None, b"x")])
        if turn == 1:
            salvage(source, target, {})
    epochs = decode_epochs((target / "t-0" / "leader-epoch-checkpoint").read_bytes())
    assert list(epochs) == [(0, 0), (1, 1), (2, 2)]


def test_committed_offsets_come_along(tmp_path: Path) -> None:
    """Groups continue at their offsets: `__consumer_offsets` is salvaged like any topic, and topics keep their ids."""
    source, target = stores.KAFKA / "offsets" / "data", tmp_path / "new"
    salvage(source, target, {})
    with stores.open_golden(source, {}, read_only=True) as before, opened(target) as after:
        assert isinstance(before, SupportsGroupOffsets)
        assert isinstance(after, SupportsGroupOffsets)
        groups = before.groups()
        assert len(groups) == 8
        assert {g: after.committed(g) for g in after.groups()} == {
            g: before.committed(g) for g in groups
        }
