"""A start for writing and a stop change the same files as in the real store, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.files import FileSystem
from storage.rocketmq.format.checkpoint import decode_checkpoint
from tests.golden import rocketmq_stores as stores
from tests.golden.rocketmq_stores import GoldenStore, by_id

OURS = ".logserver."
INDEX = "index"
CHANGED_BY_BOTH = {"lock", "checkpoint"}


def sizes(fs: FileSystem, folder: Path) -> dict[str, int]:
    """Return the length of every file below a folder."""
    found: dict[str, int] = {}
    for name in fs.list_dir(folder):
        if fs.is_dir(folder / name):
            below = sizes(fs, folder / name)
            found |= {f"{name}/{path}": size for path, size in below.items()}
        else:
            found[name] = fs.size(folder / name)
    return found


def nameless(files: dict[str, int]) -> list[tuple[str, int]]:
    """Return files and lengths; an index file's name depends on the clock, and the marker's copy holds a process id."""
    return sorted(
        (path.partition("/")[0] if path.startswith(INDEX) else path, size)
        for path, size in files.items()
        if not path.startswith(OURS) and path != "abort.bak"
    )


@pytest.mark.parametrize("name", stores.CLEAN)
def test_of_a_clean_store_lock_and_checkpoint_alone(name: str) -> None:
    golden = stores.golden(name)
    fs = stores.overlay()
    with stores.open_golden(golden, fs=fs) as store:
        assert (store.recovery.findings, store.recovery.losses) == ([], [])
    changed = {str(path.relative_to(golden.root)) for path in fs.changed()}
    assert {name for name in changed if not name.startswith(OURS)} <= CHANGED_BY_BOTH


@pytest.mark.parametrize("golden", stores.all_stores(), ids=by_id)
def test_the_files_are_those_that_the_real_store_leaves(golden: GoldenStore) -> None:
    fs = stores.overlay()
    stores.open_golden(golden, fs=fs).close()
    assert nameless(sizes(fs, golden.root)) == nameless(dict(golden.after["files"]))
    real = golden.after["checkpoint"]
    ours = decode_checkpoint(fs.read_bytes(golden.root / "checkpoint"))
    assert ours.logics_msg_timestamp_ms == real["logicsMsgTimestamp"]
    assert ours.confirm_physical_offset == real["confirmPhyOffset"]
    assert ours.logics_physical_offset == real["logicsPhysicalOffset"]
    assert ours.physic_msg_timestamp_ms >= real["physicMsgTimestamp"]
    assert ours.index_msg_timestamp_ms >= real["indexMsgTimestamp"]
