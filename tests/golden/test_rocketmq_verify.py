"""`verify` reports every recipe of damage by its code, file and position; `rebuild` recreates all lost files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from storage.files import RealFileSystem
from tests.cli.runner import Ended, run, settings_options
from tests.golden import rocketmq_stores as stores
from tests.golden.rocketmq_stores import GoldenStore, Recipe, by_id
from tests.golden.trees import picture

DAMAGED_RECORD = frozenset({"damaged-record"})
TORN = frozenset({"torn-tail", "unit-beyond-log"})
UNITS, ENTRIES = frozenset({"missing-unit"}), frozenset({"missing-index-entry"})
CODES: dict[str, frozenset[str]] = {
    "intact": frozenset(),
    "no-checkpoint": frozenset(),
    "empty-next-log-file": frozenset(),
    "torn-last-message": TORN,
    "torn-last-header": TORN,
    "flip-body-last-file": DAMAGED_RECORD,
    "flip-body-first-in-last-file": DAMAGED_RECORD,
    "flip-body-middle-file": DAMAGED_RECORD,
    "flip-body-first-in-middle-file": DAMAGED_RECORD,
    "flip-magic-last-file": DAMAGED_RECORD,
    "flip-offset-field": frozenset({"wrong-physical-offset"}),
    "garbage-after-end": frozenset({"torn-tail"}),
    "no-consumequeue": UNITS,
    "no-index": ENTRIES,
    "no-consumequeue-no-index": UNITS | ENTRIES,
    "only-commitlog": UNITS | ENTRIES,
    "no-one-queue": UNITS,
    "queue-tail-zero": UNITS,
    "queue-entry-too-far": frozenset({"unit-beyond-log"}),
    "no-last-log-file": frozenset({"unit-beyond-log", "index-beyond-log", "checkpoint-ahead"}),
    "no-commitlog": frozenset({"unit-beyond-log", "index-beyond-log", "checkpoint-ahead"}),
    "short-log-file": frozenset({"wrong-file-length"}),
    "index-header-zero": frozenset({"wrong-index-header"}),
    "no-last-index-file": ENTRIES,
}
WHOLE = [name for name, codes in CODES.items() if not codes]
REWRITTEN = [stores.golden(name) for name in stores.REWRITTEN]
BUILT = {"consumequeue": "consumequeue", "indexfile": "index"}


def verify(root: Path, golden: GoldenStore) -> Ended:
    return run("verify", root, *settings_options(golden.settings))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("recipe", stores.recipes(), ids=by_id)
def test_damage_is_told(recipe: Recipe, tmp_path: Path) -> None:
    root = stores.copy_store(recipe.store, tmp_path / "store")
    recipe.apply(RealFileSystem(), root)
    name = recipe.name.removesuffix("-abort")
    ended = verify(root, recipe.store)
    codes = {row["code"] for row in ended.rows}
    assert CODES[name] <= codes
    assert ended.code == int(any(row["severity"] != "info" for row in ended.rows))
    if name in WHOLE:
        assert codes <= {"unclean-stop"}
    for row in ended.rows:
        assert row["path"].startswith(str(root))
        assert row["message"]
    if recipe.touched and codes & DAMAGED_RECORD:
        (bad,) = recipe.touched
        (row,) = [row for row in ended.rows if row["code"] in DAMAGED_RECORD]
        base = bad - bad % recipe.store.file_bytes
        assert row["path"].endswith(f"commitlog/{base:020}")
        assert row["position"] == bad - base


@pytest.mark.parametrize("what", BUILT)
@pytest.mark.parametrize("golden", REWRITTEN, ids=by_id)
def test_what_is_lost_is_built_again_from_the_log_alone(
    golden: GoldenStore, what: str, tmp_path: Path
) -> None:
    """All files are rebuilt unchanged; the real store does not promise that."""
    root = stores.copy_store(golden, tmp_path / "store")
    shutil.rmtree(root / BUILT[what])
    before = picture(root)
    options = settings_options(golden.settings)
    reported = run("rebuild", root, "--what", what, *options)
    assert reported.code in (0, 1), reported.err
    assert picture(root) == before, "it only tells"
    done = run("rebuild", root, "--what", what, "--write", *options)
    assert done.code in (0, 1), done.err
    fs = RealFileSystem()
    made = stores.files_below(fs, root, BUILT[what])
    real = stores.files_below(fs, golden.root, BUILT[what])
    if what == "indexfile":
        assert [made[name] for name in sorted(made)] == [real[name] for name in sorted(real)]
    else:
        assert made == real
    assert verify(root, golden).code == 0


@pytest.mark.parametrize("what", BUILT)
@pytest.mark.parametrize("name", [*stores.CLEAN, *stores.UNCLEAN])
def test_nothing_is_changed_by_a_rebuild_of_what_is_right(
    name: str, what: str, tmp_path: Path
) -> None:
    golden = stores.golden(name)
    root = stores.copy_store(golden, tmp_path / "store")
    before = {path: data for path, data in files(root).items() if BUILT[what] in path}
    done = run("rebuild", root, "--what", what, "--write", *settings_options(golden.settings))
    assert done.code in (0, 1), done.err
    if golden.clean and name != "deleted-head":
        after = {path: data for path, data in files(root).items() if BUILT[what] in path}
        assert sorted(after.values()) == sorted(before.values())
    with stores.open_golden(golden, path=root) as store:
        count = sum(len(list(store.scan(address))) for address in golden.queues)
        assert count == len(golden.expected())


def files(root: Path) -> dict[str, bytes]:
    return stores.files_below(RealFileSystem(), root, "consumequeue", "index")
