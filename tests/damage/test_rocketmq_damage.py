"""Every recipe of damage, opened read-only, for writing, and for writing with accepted loss.

At least the records of the real store's own recovery exist, and lost records are reported. All tests use an overlay:
the damage too stays in memory, and a kill is modelled as an overlay on the overlay.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from storage import Finding, LogStore, Loss, OffsetBounds, Record, StoredRecord, TopicPartition
from storage.errors import Corrupt, DamagedStore, DataError
from storage.files import OverlayFileSystem, RealFileSystem
from tests.golden import rocketmq_stores as stores
from tests.golden.rocketmq_stores import Recipe, by_id
from tests.golden.trees import picture
from tests.killed_store import killed

READ_ONLY, WRITABLE, ACCEPT_LOSS = "read-only", "writable", "accept-loss"
MODES = (READ_ONLY, WRITABLE, ACCEPT_LOSS)
EVERY_SIXTH = 6
NOW_MS = stores.MADE_AT_MS

OPENED_BY_THE_REAL_ONE = [recipe for recipe in stores.recipes() if not recipe.refused]
BEFORE_GOOD_RECORDS = (
    "flip-body-last-file",
    "flip-body-first-in-last-file",
    "flip-magic-last-file",
)
"""Damage followed by good records, in a place that every start checks."""


def is_before_good_records(recipe: Recipe) -> bool:
    return recipe.name.removesuffix("-abort") in BEFORE_GOOD_RECORDS


REFUSED = [recipe for recipe in OPENED_BY_THE_REAL_ONE if is_before_good_records(recipe)]
WITHOUT_LOG = [
    recipe
    for recipe in OPENED_BY_THE_REAL_ONE
    if recipe.name.removesuffix("-abort") in ("no-commitlog", "no-last-log-file")
]
"""Log files are missing that other files still name: no writable start assigns their offsets again."""
CASES = [
    pytest.param(recipe, mode, id=f"{recipe}-{mode}")
    for recipe in OPENED_BY_THE_REAL_ONE
    for mode in MODES
    if not (mode == WRITABLE and recipe in REFUSED + WITHOUT_LOG)
]
WRITABLE_CASES = [case for case in CASES if case.values[1] != READ_ONLY]


class Outcome(NamedTuple):
    """The result of a recipe in one mode."""

    fs: OverlayFileSystem
    rows: dict[int, dict[str, Any]]  # by physical offset
    bounds: dict[TopicPartition, OffsetBounds]
    found: set[int]  # physical offsets of the sampled records that were found by unique key
    findings: list[Finding]
    losses: list[Loss]
    errors: list[Corrupt]

    @property
    def is_reported(self) -> bool:
        return bool(
            self.losses or self.errors or [f for f in self.findings if f.severity != "info"]
        )


def damaged(recipe: Recipe) -> OverlayFileSystem:
    """Return the store after the recipe."""
    fs = stores.overlay()
    recipe.apply(fs)
    return fs


def open_damaged(recipe: Recipe, mode: str, fs: OverlayFileSystem) -> LogStore:
    return stores.open_golden(
        recipe.store,
        fs=fs,
        clock=lambda: NOW_MS,
        read_only=mode == READ_ONLY,
        accept_loss=mode == ACCEPT_LOSS,
    )


def came_of(recipe: Recipe, mode: str) -> Outcome:
    """Damage a store and open it. The store is left as after a kill; several tests share the result."""
    return _came_of(recipe.store.name, recipe.name, mode)


@cache
def _came_of(store_name: str, name: str, mode: str) -> Outcome:
    recipe = stores.recipe(store_name, name)
    fs = damaged(recipe)
    with killed(open_damaged(recipe, mode, fs)) as store:
        rows, errors = read_around(store)
        found = found_by_unique_id(recipe, store, errors)
        return Outcome(
            fs,
            rows,
            bounds_of(store),
            found,
            list(store.recovery.findings),
            list(store.recovery.losses),
            errors,
        )


def bounds_of(store: LogStore) -> dict[TopicPartition, OffsetBounds]:
    return {address: store.bounds(address) for address in stores.addresses(store)}


def read_around(store: LogStore) -> tuple[dict[int, dict[str, Any]], list[Corrupt]]:
    """Return all readable records, and the errors at unreadable places."""
    rows: dict[int, dict[str, Any]] = {}
    errors: list[Corrupt] = []
    for address in stores.addresses(store):
        at = store.bounds(address).start
        while at < store.bounds(address).end:
            try:
                page = store.read(address, at)
            except Corrupt as error:
                errors.append(error)
                following = error.facts()["next_good_offset"]
                if not isinstance(following, int):
                    break
                at = following
                continue
            for record in page.records:
                row = stores.library_row(store, address, record)
                rows[stores.physical_offset(store, address, record)] = row
            assert page.next_offset > at
            at = page.next_offset
    return rows, errors


def sample(recipe: Recipe) -> list[dict[str, Any]]:
    """Return some records, spread over the whole log."""
    rows = sorted(recipe.store.expected(), key=lambda row: int(row["physicalOffset"]))
    return rows[::EVERY_SIXTH]


def found_by_unique_id(recipe: Recipe, store: LogStore, errors: list[Corrupt]) -> set[int]:
    """Return the offsets of the sample that a lookup by unique key finds; a damaged record is an error there too."""
    found = set()
    topics = store.topics()
    for row in sample(recipe):
        if row["topic"] not in topics:
            continue
        try:
            page = store.find(row["topic"], unique_id=row["properties"]["UNIQ_KEY"])
        except Corrupt as error:
            errors.append(error)
            continue
        for number, record in page.records:
            address = TopicPartition(row["topic"], number)
            found.add(stores.physical_offset(store, address, record))
    return found


@cache
def written(store: str) -> dict[int, dict[str, Any]]:
    """Return the originally written rows, by physical offset."""
    rows = stores.golden(store).expected()
    return {row["physicalOffset"]: stores.library_view(row) for row in rows}


def test_every_recipe_is_here() -> None:
    assert (len(stores.recipes()), len(OPENED_BY_THE_REAL_ONE)) == (90, 88)
    assert (len(REFUSED), len(WITHOUT_LOG), len(CASES)) == (
        12,
        len(WITHOUT_LOG),
        3 * 88 - 12 - len(WITHOUT_LOG),
    )


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("recipe", "mode"), CASES)
def test_what_is_served_is_what_was_written(recipe: Recipe, mode: str) -> None:
    rows = came_of(recipe, mode).rows
    assert {at: written(recipe.store.name).get(at) for at in rows} == rows


@pytest.mark.parametrize(("recipe", "mode"), CASES)
def test_no_less_is_there_than_after_the_real_recovery(recipe: Recipe, mode: str) -> None:
    """Records with damaged bytes are excluded: the real store serves them, since it checks no CRC when it reads."""
    ours = came_of(recipe, mode)
    assert recipe.readable - recipe.touched - set(ours.rows) == set()
    ends = {address: ours.bounds[address].end for address in recipe.queue_ends}
    assert {a: e for a, e in recipe.queue_ends.items() if ends[a] < e} == {}


@pytest.mark.parametrize(("recipe", "mode"), CASES)
def test_no_less_is_found_by_key_than_after_the_real_recovery(recipe: Recipe, mode: str) -> None:
    ours = came_of(recipe, mode)
    indexed = [
        range(file["beginPhyOffset"], file["endPhyOffset"] + 1)
        for file in recipe.real["index"]
        if file["indexCount"] > 1
    ]
    wanted = {
        row["physicalOffset"]
        for row in sample(recipe)
        if any(row["physicalOffset"] in covered for covered in indexed)
    }
    assert (wanted & recipe.readable) - recipe.touched - ours.found == set()
    assert ours.found <= set(ours.rows)


@pytest.mark.parametrize(("recipe", "mode"), CASES)
def test_what_is_gone_is_told(recipe: Recipe, mode: str) -> None:
    ours = came_of(recipe, mode)
    gone = set(written(recipe.store.name)) - set(ours.rows)
    assert ours.is_reported or not gone, f"{len(gone)} records are gone in silence"
    root = str(recipe.store.root)
    for finding in ours.findings:
        assert finding.path.startswith(root)
        assert finding.code


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("store", stores.DAMAGED)
@pytest.mark.parametrize("name", ["intact", "intact-abort", "garbage-after-end-abort"])
def test_a_whole_store_has_everything(store: str, name: str, mode: str) -> None:
    ours = came_of(stores.recipe(store, name), mode)
    assert ours.rows == written(store)
    assert ours.errors == []
    if "garbage" in name:
        assert {loss.topic for loss in ours.losses} <= {""}, "bytes, no record"
    else:
        assert ours.losses == []
        assert [f for f in ours.findings if f.severity != "info"] == []


@pytest.mark.parametrize("store", stores.DAMAGED)
@pytest.mark.parametrize("abort", ["", "-abort"])
@pytest.mark.parametrize("name", BEFORE_GOOD_RECORDS)
def test_read_only_serves_all_but_the_damaged_record(store: str, name: str, abort: str) -> None:
    """The real store cuts the log at that record."""
    recipe = stores.recipe(store, name + abort)
    ours = came_of(recipe, READ_ONLY)
    assert set(written(store)) - set(ours.rows) == recipe.touched
    assert len(recipe.touched) == 1


@pytest.mark.parametrize("recipe", REFUSED, ids=by_id)
def test_good_records_behind_damage_are_not_cut_unasked(recipe: Recipe, tmp_path: Path) -> None:
    fs = damaged(recipe)
    before = fs.changed()
    with pytest.raises(DamagedStore) as refusal:
        open_damaged(recipe, WRITABLE, fs)
    (bad,) = recipe.touched
    base = bad - bad % recipe.store.file_bytes
    facts = refusal.value.facts()
    assert facts["path"] == str(recipe.store.root / "commitlog" / f"{base:020}")
    assert facts["position"] == bad - base
    assert f"{bad - base}" in refusal.value.message
    left = {path for path in fs.changed() if path.name != "lock"}
    assert left == set(before)


@pytest.mark.parametrize("recipe", WITHOUT_LOG, ids=by_id)
def test_queues_without_a_log_are_not_cut_unasked(recipe: Recipe) -> None:
    """The disk of the log may not be mounted."""
    fs = damaged(recipe)
    before = fs.changed()
    with pytest.raises(DamagedStore, match="other files name later records") as refusal:
        open_damaged(recipe, WRITABLE, fs)
    assert str(refusal.value.facts()["path"]).startswith(str(recipe.store.root / "commitlog"))
    assert {path for path in fs.changed() if path.name != "lock"} == set(before)


@pytest.mark.parametrize("name", ["flip-body-last-file", "flip-magic-last-file-abort"])
def test_a_refused_start_leaves_the_disk_as_it_is(name: str, tmp_path: Path) -> None:
    recipe = stores.recipe("small", name)
    root = stores.copy_store(recipe.store, tmp_path / "store")
    recipe.apply(RealFileSystem(), root)
    (root / "lock").write_bytes(b"lock")
    before = picture(tmp_path)
    with pytest.raises(DamagedStore):
        stores.open_golden(recipe.store, path=root)
    assert picture(tmp_path) == before


@pytest.mark.parametrize("recipe", REFUSED, ids=by_id)
def test_what_is_cut_is_kept_and_reported_by_queue(recipe: Recipe) -> None:
    """The log is cut as in the real store, but the cut bytes are kept next to the store and lost ranges reported."""
    ours = came_of(recipe, ACCEPT_LOSS)
    assert {a: b.end for a, b in ours.bounds.items()} == recipe.queue_ends
    gone = set(written(recipe.store.name)) - set(ours.rows)
    lost = {
        (TopicPartition(loss.topic, loss.partition), offset)
        for loss in ours.losses
        for offset in range(loss.first_offset, loss.next_offset or loss.first_offset)
    }
    rows = [written(recipe.store.name)[at] for at in gone]
    assert lost == {(TopicPartition(r["topic"], r["queueId"]), r["queueOffset"]) for r in rows}
    (bad,) = recipe.touched
    (path,) = {loss.path for loss in ours.losses}
    (kept_at,) = {loss.kept_at for loss in ours.losses}
    assert path.endswith(f"{bad - bad % recipe.store.file_bytes:020}")
    assert kept_at is not None
    assert kept_at.startswith(f"{recipe.store.root}.cut-{NOW_MS}/")
    damaged_bytes = damaged(recipe).read_bytes(Path(path))
    kept = ours.fs.read_bytes(Path(kept_at))
    assert kept
    assert kept in damaged_bytes
    assert ours.fs.exists(recipe.store.root.with_name(f"store.cut-{NOW_MS}") / "report.json")


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("recipe", "mode"), [case for case in CASES if case.values[1] != READ_ONLY]
)
def test_the_next_starts_find_nothing_more(recipe: Recipe, mode: str) -> None:
    """A start finds nothing more after a crash, after a second crash, and after a clean stop."""
    ours = came_of(recipe, mode)
    fs = OverlayFileSystem(ours.fs)
    for _ in range(2):
        fs = OverlayFileSystem(fs)
        with killed(open_damaged(recipe, WRITABLE, fs)) as store:
            check_same(store, ours, clean=False)
    fs = OverlayFileSystem(fs)
    open_damaged(recipe, WRITABLE, fs).close()
    with open_damaged(recipe, WRITABLE, fs) as store:
        check_same(store, ours, clean=True)


def check_same(store: LogStore, ours: Outcome, *, clean: bool) -> None:
    assert store.recovery.clean_shutdown is clean
    rows, _ = read_around(store)
    assert (rows, bounds_of(store)) == (ours.rows, ours.bounds)
    assert store.recovery.losses == []


def found_around(
    store: LogStore, topic: str, key: str, *, is_damaged: bool
) -> list[tuple[int, StoredRecord]]:
    """Return all records of a key. A scan raises at an accepted loss, and continues at the cursor in the error."""
    found: list[tuple[int, StoredRecord]] = []
    cursor: str | None = None
    while True:
        try:
            page = store.find(topic, key=key, limit=100, cursor=cursor)
        except Corrupt as error:
            if not is_damaged:
                raise
            cursor = str(error.facts()["cursor"])
            continue
        found += page.records
        if page.complete:
            return found
        cursor = page.cursor


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("recipe", "mode"), [case for case in CASES if case.values[1] != READ_ONLY]
)
def test_appending_goes_on(recipe: Recipe, mode: str) -> None:
    ours = came_of(recipe, mode)
    fs = OverlayFileSystem(ours.fs)
    with open_damaged(recipe, WRITABLE, fs) as store:
        for address in stores.addresses(store):
            end = store.bounds(address).end
            assert end == ours.bounds[address].end
            result = store.append(address, [Record(None, b"new", tag="t", lookup_keys=["new"])])
            assert result.base_offset == end
            assert store.read(address, end).records[0].value == b"new"
            found = found_around(store, address.topic, "new", is_damaged=mode == ACCEPT_LOSS)
            assert (address.partition, end) in {(n, record.offset) for n, record in found}
    with open_damaged(recipe, WRITABLE, OverlayFileSystem(fs)) as store:
        for address in ours.bounds:
            assert store.read(address, ours.bounds[address].end).records[0].value == b"new"


@pytest.mark.parametrize("mode", [WRITABLE, ACCEPT_LOSS])
@pytest.mark.parametrize("store", stores.DAMAGED)
def test_a_log_file_of_the_wrong_length_is_not_opened_for_writing(store: str, mode: str) -> None:
    """The real store does not load such a file."""
    recipe = stores.recipe(store, "short-log-file")
    assert recipe.refused
    fs = damaged(recipe)
    before = fs.changed()
    with pytest.raises(DataError) as refusal:
        open_damaged(recipe, mode, fs)
    assert recipe.case["truncate"]["file"] in refusal.value.message
    assert {path for path in fs.changed() if path.name != "lock"} == set(before)


@pytest.mark.parametrize("store", stores.DAMAGED)
def test_what_is_left_of_a_log_file_of_the_wrong_length_is_shown(store: str) -> None:
    recipe = stores.recipe(store, "short-log-file")
    ours = came_of(recipe, READ_ONLY)
    assert ours.rows == written(store), "the missing bytes were after the last record"
    path = recipe.store.root / recipe.case["truncate"]["file"]
    assert [(f.severity, f.path) for f in ours.findings] == [("error", str(path))]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("store", stores.DAMAGED)
def test_a_log_file_that_is_missing_in_the_middle_costs_its_own_records(
    store: str, mode: str
) -> None:
    """As in the real store, the other records are read, and each record of the missing file is an error."""
    golden = stores.golden(store)
    hole = range(golden.file_bytes, 2 * golden.file_bytes)
    fs = stores.overlay()
    fs.remove(golden.root / "commitlog" / f"{hole.start:020}")
    with stores.open_golden(
        golden, fs=fs, read_only=mode == READ_ONLY, accept_loss=mode == ACCEPT_LOSS
    ) as opened:
        rows, errors = read_around(opened)
    gone = {at for at in written(store) if at in hole}
    assert rows == {at: row for at, row in written(store).items() if at not in gone}
    assert len(errors) == len(gone)
