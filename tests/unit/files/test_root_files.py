"""The store's own file at its root, written by two threads at the same time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from storage.files import STORE_FILE, OverlayFileSystem
from tests.robustness.crash.faulty import FaultyFileSystem, no_fault
from tests.unit.rocketmq.workshop import ROOT, Workshop, put_value

PASSES_S = 0.1  # enough for the other thread to write, if it is not blocked


@pytest.mark.parametrize("ids_first", [False, True])
def test_checkpoints_and_producer_ids_undo_nothing_of_each_other(ids_first: bool) -> None:
    """The file holds both changes in the end, whichever thread encodes it first."""
    fs = FaultyFileSystem(OverlayFileSystem())
    shop = Workshop(fs)
    store = shop.open_with_topic()
    put_value(store, b"v")
    given: list[int] = []
    first, second = store.checkpoint, lambda: given.append(store.new_producer_id())
    if ids_first:
        first, second = second, first
    other = threading.Thread(target=second)

    def meet(operation: str, path: Path) -> None:
        if path.name.startswith(STORE_FILE):
            fs.fault = no_fault
            other.start()
            other.join(PASSES_S)

    fs.fault = meet
    first()
    other.join(30)
    (number,) = given
    reported = fs.read_bytes(ROOT / STORE_FILE)
    store.checkpoint()
    assert fs.read_bytes(ROOT / STORE_FILE) == reported, "nothing of the checkpoint was missing"
    assert shop.after_kill().open().new_producer_id() > number
