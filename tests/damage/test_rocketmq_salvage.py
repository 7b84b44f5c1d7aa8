"""Every recipe of damage, salvaged: the good records are kept, and the lost records are reported exactly.

The new store has at least the records that the real store recovers and the good records after the damage.
All tests use an overlay: the damage and the new store stay in memory.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from storage import LogStore, LossReport, OffsetBounds, TopicPartition, open_store
from storage.files import OverlayFileSystem
from tests.damage.salvaging import lost_offsets, salvage, verified
from tests.damage.test_rocketmq_damage import (
    bounds_of,
    damaged,
    is_before_good_records,
    read_around,
)
from tests.golden import rocketmq_stores as stores
from tests.golden.rocketmq_stores import GoldenStore, Recipe, by_id
from tests.golden.trees import picture

NOW_MS = stores.MADE_AT_MS
TOO_FAR = "queue-entry-too-far"


class Salvaged(NamedTuple):
    """A salvaged store and the records read from it."""

    fs: OverlayFileSystem
    target: Path
    report: LossReport
    rows: dict[int, dict[str, Any]]  # by physical offset in the source
    bounds: dict[TopicPartition, OffsetBounds]


def opened(golden: GoldenStore, target: Path, fs: OverlayFileSystem) -> LogStore:
    return stores.open_golden(golden, path=target, fs=OverlayFileSystem(fs))


def comparable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row without its id, which contains a physical offset."""
    return {name: value for name, value in row.items() if name != "msgId"}


def salvaged(golden: GoldenStore, fs: OverlayFileSystem) -> Salvaged:
    target = golden.folder / "new"
    report = salvage(golden.root, target, golden.settings, fs=fs, clock=lambda: NOW_MS)
    with opened(golden, target, fs) as store:
        assert store.recovery.clean_shutdown
        assert [f for f in store.recovery.findings if f.severity != "info"] == []
        rows, errors = read_around(store)
        assert errors == []
        found = {at - report.moved_bytes: comparable(row) for at, row in rows.items()}
        return Salvaged(fs, target, report, found, bounds_of(store))


@cache
def came_of(store: str, name: str) -> Salvaged:
    recipe = stores.recipe(store, name)
    fs = damaged(recipe)
    before = fs.changed()
    result = salvaged(recipe.store, fs)
    changed = [p for p in fs.changed() if result.target not in (p, *p.parents)]
    assert changed == before, "the source stays as it is"
    return result


@cache
def written(store: str) -> dict[int, dict[str, Any]]:
    """Return the originally written rows, by physical offset."""
    rows = stores.golden(store).expected()
    return {row["physicalOffset"]: comparable(stores.library_view(row)) for row in rows}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("recipe", stores.recipes(), ids=by_id)
def test_what_is_good_is_kept_and_the_rest_is_told(recipe: Recipe) -> None:
    name = recipe.store.name
    got = came_of(name, recipe.name)
    assert {at: written(name).get(at) for at in got.rows} == got.rows
    gone = set(written(name)) - set(got.rows)
    if not recipe.refused:
        assert recipe.readable - recipe.touched - set(got.rows) == set()
    if is_before_good_records(recipe):
        assert gone == recipe.touched
    addresses = {TopicPartition(r["topic"], r["queueId"]) for r in written(name).values()}
    for address in addresses:
        lost = lost_offsets(list(got.report.losses), *address)
        rows = [written(name)[at] for at in gone]
        of_queue = {r["queueOffset"] for r in rows if (r["topic"], r["queueId"]) == address}
        if recipe.name.startswith(TOO_FAR):  # it names a record that may have existed
            assert of_queue <= lost
        else:
            assert lost == of_queue or not _has_units(recipe, address), address
    assert bool(got.report.losses) >= bool(gone)


def _has_units(recipe: Recipe, address: TopicPartition) -> bool:
    """Return whether the queue's entries exist; only they show which records followed the last good one."""
    fs = damaged(recipe)
    return fs.exists(recipe.store.root / "consumequeue" / address.topic / str(address.partition))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("recipe", stores.recipes(), ids=by_id)
def test_the_new_store_is_whole(recipe: Recipe) -> None:
    got = came_of(recipe.store.name, recipe.name)
    assert verified(got.target, recipe.store.settings, fs=got.fs) == []


@pytest.mark.parametrize("recipe", stores.recipes(), ids=by_id)
def test_every_byte_of_the_log_is_told(recipe: Recipe) -> None:
    got = came_of(recipe.store.name, recipe.name)
    names = [p for p in damaged(recipe).list_dir(recipe.store.root) if p == "commitlog"]
    folder = recipe.store.root / "commitlog"
    fs = damaged(recipe)
    bases = [int(n) for n in fs.list_dir(folder)] if names and fs.exists(folder) else []
    span = max(bases) + recipe.store.file_bytes - min(bases) if bases else 0
    assert got.report.log_bytes == span


@pytest.mark.parametrize("recipe", stores.recipes(), ids=by_id)
def test_ids_move_only_where_a_queue_has_a_hole_at_the_log_s_beginning(recipe: Recipe) -> None:
    got = came_of(recipe.store.name, recipe.name)
    holed = {
        kept.topic
        for kept in got.report.kept
        for loss in got.report.losses
        if (loss.topic, loss.partition) == (kept.topic, kept.partition)
        and loss.next_offset is not None
        and loss.next_offset < kept.next_offset
    }
    assert got.report.moved_bytes == (recipe.store.file_bytes if holed else 0)


@pytest.mark.parametrize("golden", stores.all_stores(), ids=by_id)
def test_of_a_whole_store_nothing_is_left_behind(golden: GoldenStore) -> None:
    before = picture(golden.folder)
    got = salvaged(golden, stores.overlay())
    assert picture(golden.folder) == before
    assert got.report.losses == []
    assert got.report.moved_bytes == 0
    assert set(got.rows) == {row["physicalOffset"] for row in golden.expected()}
    assert {a: (b.start, b.end) for a, b in got.bounds.items() if b.end} == {
        a: bounds for a, bounds in golden.queues.items() if bounds[1]
    }
    assert verified(got.target, golden.settings, fs=got.fs) == []
    if golden.clean:
        made = stores.files_below(got.fs, got.target, "commitlog")
        assert made == stores.files_below(stores.overlay(), golden.root, "commitlog")


def test_the_broker_s_config_comes_along_byte_for_byte() -> None:
    golden = stores.golden("broker")
    got = salvaged(golden, stores.overlay())
    made = stores.files_below(got.fs, got.target, "config")
    assert made == stores.files_below(stores.overlay(), golden.root, "config")


def test_a_damaged_config_file_is_replaced_by_its_backup() -> None:
    golden = stores.golden("broker")
    fs = stores.overlay()
    offsets = golden.root / "config" / "consumerOffset.json"
    backup = fs.read_bytes(offsets.with_name("consumerOffset.json.bak"))
    stores.put(fs, offsets, b'{"offsetTable": {')
    got = salvaged(golden, fs)
    assert got.fs.read_bytes(got.target / "config" / "consumerOffset.json") == backup
    (stated,) = [f for f in got.report.findings if f.severity != "info"]
    assert (stated.code, stated.path) == ("bad-config-file", str(offsets))


@pytest.mark.parametrize("store", stores.DAMAGED)
def test_a_log_file_that_is_missing_in_the_middle(store: str) -> None:
    golden = stores.golden(store)
    hole = range(golden.file_bytes, 2 * golden.file_bytes)
    fs = stores.overlay()
    fs.remove(golden.root / "commitlog" / f"{hole.start:020}")
    got = salvaged(golden, fs)
    assert got.rows == {at: row for at, row in written(store).items() if at not in hole}
    assert {loss.reason for loss in got.report.losses} == {"missing"}
    assert got.report.lost_bytes == golden.file_bytes
    assert verified(got.target, golden.settings, fs=got.fs) == []


@pytest.mark.parametrize("store", stores.DAMAGED)
def test_one_commit_log_file(store: str) -> None:
    golden = stores.golden(store)
    fs = stores.overlay()
    base = golden.file_bytes
    target = golden.folder / "new"
    path = golden.root / "commitlog" / f"{base:020}"
    report = salvage(path, target, golden.settings, fs=fs, clock=lambda: NOW_MS)
    assert report.losses == []
    inside = {
        at: row for at, row in written(store).items() if base <= at < base + golden.file_bytes
    }
    with open_store("rocketmq", target, fs=OverlayFileSystem(fs), clock=lambda: NOW_MS) as opened:
        rows, errors = read_around(opened)
    assert {at: comparable(row) for at, row in rows.items()} == inside
    assert errors == []


def test_a_record_of_a_topic_that_cannot_be_is_left_behind() -> None:
    """The CRC covers only the body; a queue's folder cannot have this name."""
    golden = stores.golden("small")
    fs = stores.overlay()
    row = max(golden.expected(), key=lambda row: int(row["physicalOffset"]))
    at = row["physicalOffset"] % golden.file_bytes + 88 + row["bodyLength"] + 1
    base = row["physicalOffset"] - row["physicalOffset"] % golden.file_bytes
    stores.put(fs, golden.root / "commitlog" / f"{base:020}", b"\0", at)
    got = salvaged(golden, fs)
    gone = set(written("small")) - set(got.rows)
    assert gone == {row["physicalOffset"]}
    assert [(loss.reason, loss.size_bytes) for loss in got.report.losses] == [
        ("misplaced", row["size"])
    ]
    assert verified(got.target, golden.settings, fs=got.fs) == []


@pytest.mark.parametrize("seed", range(12))
def test_random_damage(seed: int) -> None:
    """Whatever damage a log has, the new store opens, and each of its records is readable."""
    golden = stores.golden(("small", "many", "system")[seed % 3])
    rng, fs = random.Random(seed), stores.overlay()
    for _ in range(rng.randrange(1, 4)):
        name = rng.choice(fs.list_dir(golden.root / "commitlog"))
        size = rng.choice([1, 4, 64, 600])
        data = rng.choice([bytes(size), rng.randbytes(size)])
        place = rng.randrange(golden.file_bytes - size)
        stores.put(fs, golden.root / "commitlog" / name, data, place)
    got = salvaged(golden, fs)
    whole = {row["physicalOffset"] for row in golden.expected()}
    assert set(got.rows) <= whole
    assert bool(got.report.losses or got.report.findings) >= (set(got.rows) != whole)
