"""The golden records appended by us, with their clock and hosts, make the real store's own files, byte for byte.

`broker`, `deleted-head` and the unclean stores are left out: their files were not made by appends alone.
"""

from __future__ import annotations

import pytest

from storage.files import OverlayFileSystem
from storage.rocketmq.format.checkpoint import decode_checkpoint
from tests.golden import rocketmq_checks as checks
from tests.golden import rocketmq_stores as stores
from tests.golden.rocketmq_stores import GoldenStore, by_id

FILES_COMPARED = 177
REWRITTEN = [stores.golden(name) for name in stores.REWRITTEN]
PARTS = ("commitlog", "consumequeue", "index")


@pytest.mark.parametrize("golden", REWRITTEN, ids=by_id)
def test_the_same_records_make_the_same_files(golden: GoldenStore) -> None:
    checks.check_rewritten(golden)


@pytest.mark.parametrize("golden", REWRITTEN, ids=by_id)
def test_the_checkpoint_is_the_real_one_but_for_the_index(golden: GoldenStore) -> None:
    """The real store does not sync the index file in use when it stops, so its checkpoint names the file before it."""
    fs = OverlayFileSystem()
    checks.rewrite(golden, fs)
    real = decode_checkpoint((golden.root / "checkpoint").read_bytes())
    ours = decode_checkpoint(fs.read_bytes(checks.REBUILT / "checkpoint"))
    last = golden.index_dump[-1]["endTimestamp"]
    assert ours == real._replace(index_msg_timestamp_ms=last)
    assert fs.size(checks.REBUILT / "checkpoint") == 4096
    assert not fs.exists(checks.REBUILT / "abort")


def test_the_batches_are_there() -> None:
    runs = list(checks.appends(stores.golden(stores.BATCHES)))
    assert len(runs) == 24 + 8
    assert max(map(len, runs)) > 10


def test_every_file_is_compared() -> None:
    files = [stores.files_below(stores.overlay(), golden.root, *PARTS) for golden in REWRITTEN]
    assert sum(map(len, files)) == FILES_COMPARED
