"""Salvaged stores, opened by the real servers: the same records at the same offsets, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from storage import open_store
from storage.files import RealFileSystem
from tests.damage.salvaging import salvage
from tests.damage.test_kafka_damage import ADDRESS, HEALTHY, root_of
from tests.damage.test_rocketmq_damage import read_around
from tests.golden import rocketmq_stores, stores
from tests.interop import peers, written
from tests.interop.rocketmq import rocketmq_peers

pytestmark = pytest.mark.java

KAFKA = (
    "cut-mid-batch-clean",
    "flip-active",
    "flip-base-offset",
    "flip-leader-epoch",
    "flip-middle-segment",
    "middle-segment-missing-clean",
)
ROCKETMQ = (
    "flip-body-last-file",
    "flip-body-first-in-last-file-abort",
    "flip-magic-last-file",
    "torn-last-message",
    "no-last-log-file",
    "flip-body-middle-file",
)


@pytest.mark.parametrize("variant", KAFKA)
@pytest.mark.parametrize("clean", ["yes", "no"])
def test_the_real_kafka_reads_what_was_kept(variant: str, clean: str, tmp_path: Path) -> None:
    target = tmp_path / "new"
    salvage(root_of(variant), target, HEALTHY.settings, clock=lambda: stores.MADE_AT_MS)
    answer = peers.run_kafka_opens(target, "--direct", "--clean", clean)
    with open_store("kafka", target, read_only=True) as store:
        assert answer.records == written.rows(store)
        reported = answer.summaries[ADDRESS]
        assert (reported["earliest"], reported["latest"]) == store.bounds(ADDRESS)[::2]
    if clean == "yes":
        peers.index_check([target / HEALTHY.name])


@pytest.mark.parametrize("variant", ["flip-active", "flip-middle-segment"])
def test_a_real_broker_boots_on_it_and_goes_on(variant: str, tmp_path: Path) -> None:
    target = tmp_path / "new"
    salvage(root_of(variant), target, HEALTHY.settings, clock=lambda: stores.MADE_AT_MS)
    topic, partition = ADDRESS
    answer = peers.run_kafka_opens(target, "--append", f"{topic}:{partition}:5")
    with open_store("kafka", target, read_only=True) as store:
        mine = written.rows(store)[ADDRESS]
        assert answer.records[ADDRESS][:-5] == mine
        assert answer.records[ADDRESS][-5]["offset"] == store.bounds(ADDRESS).end


@pytest.mark.parametrize("name", rocketmq_stores.DAMAGED)
def test_the_real_rocketmq_reads_what_was_kept(name: str, tmp_path: Path) -> None:
    """Also after a hole in a queue, where the real store would skip records of the log's first file."""
    golden = rocketmq_stores.golden(name)
    made: dict[str, dict[int, dict[str, Any]]] = {}
    for recipe in [r for r in rocketmq_stores.recipes() if r.store == golden]:
        if recipe.name not in ROCKETMQ:
            continue
        root = rocketmq_stores.copy_store(golden, tmp_path / f"{recipe.name}-source")
        recipe.apply(RealFileSystem(), root)
        target = tmp_path / "stores" / recipe.name
        salvage(root, target, golden.settings, clock=lambda: rocketmq_stores.MADE_AT_MS)
        with rocketmq_stores.open_golden(golden, path=target, read_only=True) as store:
            made[recipe.name], errors = read_around(store)
            assert errors == []
    assert len(made) >= 4
    for recipe_name, mine in made.items():
        answer = rocketmq_peers.run_rocketmq_opens(
            tmp_path / "stores" / recipe_name, golden.settings
        )
        assert answer.store["lastExit"] == "normal"
        theirs = {row["physicalOffset"]: row for rows in answer.messages.values() for row in rows}
        assert sorted(theirs) == sorted(mine), recipe_name
        for at, row in theirs.items():
            ours = mine[at]
            assert {f: row[f] for f in ("topic", "queueId", "queueOffset", "msgId")} == {
                f: ours[f] for f in ("topic", "queueId", "queueOffset", "msgId")
            }


def test_behind_a_hole_in_the_log_s_first_file_nothing_is_passed_over(tmp_path: Path) -> None:
    """Without moving the log, the real store's consumers would lose nine more records."""
    golden = rocketmq_stores.golden("small")
    root = rocketmq_stores.copy_store(golden, tmp_path / "source")
    rows = sorted(golden.expected(), key=lambda row: int(row["physicalOffset"]))
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(rows[12]["physicalOffset"] + 89)
        file.write(b"\xff\xff\xff")
    report = salvage(root, tmp_path / "new", golden.settings)
    assert report.moved_bytes == golden.file_bytes
    answer = rocketmq_peers.run_rocketmq_opens(tmp_path / "new", golden.settings)
    theirs = [row for rows in answer.messages.values() for row in rows]
    kept = {(r["topic"], r["queueId"], r["queueOffset"]): r["body"] for r in rows if r != rows[12]}
    assert {(r["topic"], r["queueId"], r["queueOffset"]): r["body"] for r in theirs} == kept
    assert {row["physicalOffset"] - golden.file_bytes for row in theirs} == {
        row["physicalOffset"] for row in rows if row != rows[12]
    }
