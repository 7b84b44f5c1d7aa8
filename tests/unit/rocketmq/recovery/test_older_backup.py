"""Files restored from an older backup, next to newer ones, and appends that a cut took away.

The log, its queues, the index and the checkpoint of a backup agree with each other. Only files that logserver wrote
later, after it had synced the log, show that records are missing.
"""

from __future__ import annotations

import pytest

from storage.errors import DamagedStore, OutOfOrderSequence
from storage.files import OverlayFileSystem
from tests.unit.rocketmq.recovery.outage import tree
from tests.unit.rocketmq.recovery.test_missing_files import errors_of, salvaged, verified
from tests.unit.rocketmq.workshop import (
    ROOT,
    Workshop,
    on,
    put_file,
    put_sequenced,
    put_value,
    values,
)

BACKED_UP = ("commitlog", "consumequeue", "index", "checkpoint")
OURS = (".logserver.producers.json", ".logserver.index.json")
OLD, NEW = 3, 20


def restored(*lost: str) -> Workshop:
    """Return a store whose log is older than logserver's own files; `lost`: own files that are missing."""
    shop = Workshop()
    with shop.open_with_topic() as store:
        for number in range(OLD):
            put_sequenced(store, 7, number)
    backup = tree(shop.fs)
    with shop.open() as store:
        for number in range(OLD, NEW):
            shop.clock.now_ms += 10
            put_sequenced(store, 7, number)
    files = {
        p: d for p, d in tree(shop.fs).items() if p.relative_to(ROOT).parts[0] not in BACKED_UP
    }
    files |= {p: d for p, d in backup.items() if p.relative_to(ROOT).parts[0] in BACKED_UP}
    disk = OverlayFileSystem()
    for path, data in files.items():
        if path.name not in lost:
            disk.make_dir(path.parent)
            put_file(disk, path, data)
    return on(disk, shop)


@pytest.mark.parametrize("lost", OURS)
def test_an_older_log_is_no_whole_log(lost: str) -> None:
    """One of the two files is enough; with the producers' file the lost offsets are known too."""
    shop = restored(lost)
    (kept,) = {*OURS} - {lost}
    assert "log-ends-early" in errors_of(verified(shop))
    before = shop.files()
    with pytest.raises(DamagedStore, match=kept):
        shop.open()
    assert shop.files() == before
    assert {loss.reason for loss in salvaged(shop).losses} == {"missing"}
    with shop.open(accept_loss=True) as store:
        assert store.recovery.losses
        placed = put_value(store, b"new")
        assert placed.base_offset == (NEW if kept == OURS[0] else OLD)
    with shop.open() as store:
        assert put_value(store, b"newer").base_offset == placed.base_offset + 1
    assert "log-ends-early" not in errors_of(verified(shop))


def test_a_repeated_request_whose_record_is_lost_is_a_new_one() -> None:
    shop = restored()
    with shop.open(accept_loss=True) as store:
        with pytest.raises(
            OutOfOrderSequence
        ):  # as in a broker that lost records: no answer says that it is stored
            put_sequenced(store, 7, NEW - 1)
        assert put_sequenced(store, 7, OLD - 1).duplicate
        again = put_sequenced(store, 7, OLD)
    assert (again.duplicate, again.base_offset) == (False, NEW)


def test_a_repeated_request_whose_record_was_cut_is_a_new_one() -> None:
    """The records after the damage are cut, and the producers' file still names them."""
    shop = Workshop()
    with shop.open_with_topic() as store:
        placed = [put_sequenced(store, 7, number) for number in range(OLD + 1)]
    shop.overwrite(shop.log_path(0), placed[1].locators[0] % (1 << 64) + 60, b"\xff" * 40)
    put_file(shop.fs, ROOT / "abort", b"7")
    shop.fs.remove(ROOT / "checkpoint")  # so the whole log is read
    with shop.open(accept_loss=True) as store:
        assert values(store) == [b"7/0"]
        again = put_sequenced(store, 7, 1)
        assert (again.duplicate, again.base_offset) == (False, 1)
        assert put_sequenced(store, 7, 0).duplicate
        assert values(store) == [b"7/0", b"7/1"]
