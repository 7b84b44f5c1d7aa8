"""Stores on a disk that loses its power, and what it may hold then: the least, or any mixture."""

from __future__ import annotations

import random
from pathlib import Path

from storage.files import FileSystem, OverlayFileSystem, make_root
from tests.faults.power import Power
from tests.unit.rocketmq.workshop import ROOT, Workshop, on, put_file

PREALLOCATED = frozenset({"commitlog", "consumequeue", "index"})


def safe_place(power: Power) -> Workshop:
    """A place for one store: an empty folder that is durably there."""
    make_root(power, ROOT)
    return Workshop(power)


def after_cut(power: Power, shop: Workshop) -> Workshop:
    """What the next start finds when the power fails now."""
    return on(power.cut(), shop)


def mixed(kept: FileSystem, now: FileSystem, dice: random.Random, sector: int) -> OverlayFileSystem:
    """What the disk may hold if it had time to write some of what was not synced.

    `kept` is what was synced, `now` what programs see. Of a preallocated file each sector is the one or the other, a
    new one may be empty still; every other file and every name stands as in the one or the other.
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
    """All files of the store; the lock is left out."""
    return {ROOT / name: data for name, data in on(fs, Workshop()).files().items()}
