"""Stores on a disk that loses its power, and its possible contents afterwards: only synced data, or any mixture."""

from __future__ import annotations

import random
from pathlib import Path

from storage.files import FileSystem, OverlayFileSystem, make_root
from tests.robustness.crash.power import Power
from tests.unit.rocketmq.workshop import ROOT, Workshop, on, put_file

PREALLOCATED = frozenset({"commitlog", "consumequeue", "index"})


def safe_place(power: Power) -> Workshop:
    """Return a workshop for one store; its empty root folder is durable."""
    make_root(power, ROOT)
    return Workshop(power)


def after_cut(power: Power, shop: Workshop) -> Workshop:
    """Return a workshop on the disk as the next start finds it if the power fails now."""
    return on(power.cut(), shop)


def mixed(kept: FileSystem, now: FileSystem, dice: random.Random, sector: int) -> OverlayFileSystem:
    """Return a possible disk content if the power fails after some of the unsynced data was written.

    `kept` is the synced state, `now` the state that programs see. The rules by kind of file:
    - preallocated file: each sector comes from either state, and a new file may still be empty;
    - every other file, and every file name: as in one of the two states.
    """
    found = OverlayFileSystem()
    found.make_dir(ROOT)
    old, new = tree(kept), tree(now)
    for path in sorted({*old, *new}):
        before, after = old.get(path), new.get(path)
        if after is None or (before is None and dice.random() < 0.5):
            data = before if dice.random() < 0.5 else None
        elif path.relative_to(ROOT).parts[0] in PREALLOCATED:
            data = _sectors(before or b"", after, dice, sector)
        else:
            data = before if before is not None and dice.random() < 0.5 else after
        if data is not None:
            found.make_dir(path.parent)
            put_file(found, path, data)
    return found


def _sectors(before: bytes, after: bytes, dice: random.Random, sector: int) -> bytes:
    if not before and dice.random() < 0.2:
        return b""
    before = before.ljust(len(after), b"\0")
    parts = [
        (before if dice.random() < 0.5 else after)[at : at + sector]
        for at in range(0, len(after), sector)
    ]
    return b"".join(parts)


def tree(fs: FileSystem) -> dict[Path, bytes]:
    """Return all files of the store except the lock."""
    return {ROOT / name: data for name, data in on(fs, Workshop()).files().items()}
