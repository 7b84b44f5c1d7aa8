"""An audit in parts finds the same as `verify`, in intact and in damaged stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import FileCount, Finding, StoreOptions, open_inspector
from storage.contract import SupportsParts
from storage.files import RealFileSystem
from storage.rocketmq.tools import log_tasks
from tests.cli.rocketmq.test_rocketmq_verify import DAMAGES as ROCKETMQ
from tests.cli.test_verify import DAMAGES as KAFKA
from tests.cli.test_verify import TXN, flip
from tests.golden import rocketmq_stores, stores
from tests.golden.sharing import Shared

WAVES = [2, 1000]


def compared(
    root: Path, given: Mapping[str, str], wave: int, range_bytes: int = 0
) -> tuple[list[Finding], list[FileCount]]:
    """Return the findings of an audit, which must equal the findings of `verify`, and the file counts."""
    inspector = open_inspector(root, StoreOptions(settings=dict(given)))
    assert isinstance(inspector, SupportsParts)
    counted: list[FileCount] = []
    expected = list(inspector.verify())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_tasks, "RANGE_BYTES", range_bytes)
        found = list(inspector.audit(Shared(wave), counted=counted.append))
    inspector.close()
    assert found == expected
    return found, counted


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("wave", WAVES)
@pytest.mark.parametrize("case", KAFKA)
def test_kafka_damage(case: str, wave: int, tmp_path: Path) -> None:
    damage = KAFKA[case]
    root = stores.copy_store(damage.where.root, tmp_path / "data")
    path = damage.inflict(root, root / damage.where.name)
    found, _ = compared(root, damage.where.settings, wave)
    assert (damage.code, damage.severity, str(path), damage.position) in [
        astuple(finding)[:4] for finding in found
    ]


@pytest.mark.parametrize("wave", WAVES)
@pytest.mark.parametrize("store", stores.healthy_stores())
def test_healthy_kafka_stores(store: str, wave: int) -> None:
    root = stores.KAFKA / store / "data"
    found, counted = compared(root, {}, wave)
    open_since_2023 = {"hanging-transaction"} if store == "txnopen" else set()
    assert {finding.code for finding in found if finding.severity != "info"} == open_since_2023
    logs = {count.path for count in counted if count.is_log}
    assert logs == {str(path) for path in root.glob("*/*.log")}


@pytest.mark.parametrize("name", sorted(path.name for path in (stores.KAFKA / "torn").iterdir()))
def test_kafka_stores_after_crashes(name: str) -> None:
    compared(stores.KAFKA / "torn" / name / "data", {}, 1000)


def test_what_was_open_is_not_what_the_snapshots_say(tmp_path: Path) -> None:
    """Without snapshots the open transactions cannot be guessed: segments are read again once they are known."""
    root = stores.copy_store(TXN.root, tmp_path / "data")
    for path in (root / TXN.name).glob("*.snapshot"):
        path.unlink()
    inspector = open_inspector(root)
    assert isinstance(inspector, SupportsParts)
    run = Shared(1000)
    found = list(inspector.audit(run))
    assert {finding.code for finding in found} == {"missing-snapshot"}
    assert run.done > len(list(root.glob("*/*.log")))
    flip(next((root / TXN.name).glob("*.txnindex")), 33)
    found = list(inspector.audit(Shared(1000)))
    assert {finding.code for finding in found} == {"missing-snapshot", "wrong-txn-index"}


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("wave", WAVES)
@pytest.mark.parametrize("case", ROCKETMQ)
def test_rocketmq_damage(case: str, wave: int, tmp_path: Path) -> None:
    """A log of some kilobytes is divided into ranges of a few records."""
    damage = ROCKETMQ[case]
    golden = rocketmq_stores.golden(damage.store)
    root = rocketmq_stores.copy_store(golden, tmp_path / "store")
    path, position = damage.inflict(root)
    found, _ = compared(root, golden.settings, wave, 1500)
    assert (damage.code, damage.severity, str(path), position) in [
        astuple(finding)[:4] for finding in found
    ]


@pytest.mark.parametrize("golden", rocketmq_stores.all_stores(), ids=rocketmq_stores.by_id)
def test_rocketmq_stores(golden: rocketmq_stores.GoldenStore) -> None:
    found, counted = compared(golden.root, golden.settings, 1000, 2000)
    assert {finding.severity for finding in found} <= {"info"}
    logs = [count for count in counted if count.is_log]
    assert {count.path for count in logs} == {str(p) for p in (golden.root / "commitlog").iterdir()}


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("recipe", rocketmq_stores.recipes(), ids=rocketmq_stores.by_id)
def test_rocketmq_recipes(recipe: rocketmq_stores.Recipe, tmp_path: Path) -> None:
    root = rocketmq_stores.copy_store(recipe.store, tmp_path / "store")
    recipe.apply(RealFileSystem(), root)
    compared(root, recipe.store.settings, 1000, 1500)


def spoil(root: Path, places: list[tuple[int, int]]) -> None:
    """Flip bytes of log, queues and index: `places` are (file number, position), both wrapped."""
    files = sorted(p for p in root.rglob("*") if p.is_file() and p.name.isdecimal())
    for which, where in places:
        path = files[which % len(files)]
        data = bytearray(path.read_bytes())
        used = max(len(bytes(data).rstrip(b"\0")), 1)
        data[where % used] ^= 1 << which % 8
        path.write_bytes(data)


NUMBERS = st.integers(0, 1 << 30)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    name=st.sampled_from(["small", "many", "batch", "deleted-head"]),
    places=st.lists(st.tuples(NUMBERS, NUMBERS), max_size=6),
    range_bytes=st.integers(200, 20_000),
    wave=st.integers(1, 40),
)
def test_cut_anywhere(
    name: str, places: list[tuple[int, int]], range_bytes: int, wave: int
) -> None:
    golden = rocketmq_stores.golden(name)
    with TemporaryDirectory() as folder:
        root = rocketmq_stores.copy_store(golden, Path(folder) / "store")
        spoil(root, places)
        compared(root, golden.settings, wave, range_bytes)
