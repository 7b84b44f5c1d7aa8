"""Reading changes nothing: no byte, no time, no name, whatever the damage and whatever the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.runner import run
from tests.golden import stores
from tests.golden.trees import picture

HEALTHY = [f"{name}/data" for name in stores.healthy_stores()]
DAMAGED = [f"{stores.DAMAGED}/{name}/data" for name in stores.damaged_variants()]
KINDS = (
    "records",
    "batches",
    "index",
    "timeindex",
    "txnindex",
    "snapshot",
    "checkpoints",
    "offsets",
)


def everything_about(path: Path) -> None:
    """Run every command that only reads."""
    run("inspect", path)
    for kind in KINDS:
        run("dump", path, "--what", kind)
    run("dump", path, "--isolation", "read_committed")
    run("find", path, "--grep", "nothing has this")
    run("find", path, "--from", "1700000000000")
    run("offsets", path)
    run("offsets", path, "--time", "1700000000000")
    run("verify", path)
    run("rebuild", path)


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("where", HEALTHY + DAMAGED)
def test_a_store(where: str) -> None:
    root = stores.KAFKA / where
    before = picture(root.parent)
    everything_about(root)
    assert picture(root.parent) == before


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("where", DAMAGED)
def test_a_partition_directory(where: str) -> None:
    root = stores.KAFKA / where
    before = picture(root.parent)
    everything_about(root / "epoch-idem-0")
    assert picture(root.parent) == before


def test_single_files() -> None:
    root = stores.KAFKA / "txn/data"
    before = picture(root.parent)
    for path in [*root.glob("*checkpoint"), *(root / "txn-two-0").iterdir()]:
        everything_about(path)
    assert picture(root.parent) == before
