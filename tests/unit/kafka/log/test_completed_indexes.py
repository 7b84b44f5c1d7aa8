"""Recovery gives an index file exactly the entries of its log: in place where one step of the disk does it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from storage.files import HandleCache
from storage.kafka.format.sparse_index import offset_index
from storage.kafka.index.indexes import SparseIndex
from tests.robustness.crash.power import Power

PATH = Path("/topic-0/00000000000000000000.index")
ENTRIES = [(10, 100), (20, 256), (30, 512)]  # the second position ends in a zero byte
MANY = [(number, 100 * number) for number in range(1, 66)]  # 520 bytes
PREALLOCATED_BYTES = 800


def encoded(entries: Sequence[tuple[int, int]]) -> bytes:
    return b"".join(offset_index.encode_entry(*entry) for entry in entries)


class Scene:
    """A disk with an index file, whose steps are noted."""

    def __init__(self, content: bytes | None) -> None:
        self.power = Power()
        self.power.make_dir(PATH.parent)
        self.power.sync_dir(PATH.parent.parent)
        if content is not None:
            with closing(self.power.open(PATH, write=True, create=True)) as file:
                file.pwrite(content, 0)
                file.datasync()
            self.power.sync_dir(PATH.parent)
        self.steps: list[str] = []
        self.on_disk: list[bytes | None] = []
        self.power.before = self._note

    def _note(self, operation: str, path: Path) -> None:
        self.steps.append(operation)
        self.on_disk.append(self.read())

    def read(self) -> bytes | None:
        """Return the content that survives a power loss now; None without the file."""
        disk = self.power.cut()
        return disk.read_bytes(PATH) if disk.exists(PATH) else None

    def replace(self, entries: Sequence[tuple[int, int]]) -> SparseIndex:
        index = SparseIndex(
            HandleCache(self.power), PATH, offset_index, max_bytes=800, remake=lambda: ()
        )
        index.replace(entries)
        return index


def preallocated(content: bytes) -> bytes:
    return content.ljust(PREALLOCATED_BYTES, b"\0")


IN_PLACE = {
    "nothing written": preallocated(b""),
    "no bytes at all": b"",
    "entries are missing": encoded(ENTRIES[:1]),
    "entries are missing, preallocated": preallocated(encoded(ENTRIES[:2])),
    "a part of an entry": encoded(ENTRIES)[:-3],
    "whole, but not cut": preallocated(encoded(ENTRIES)),
    "whole": encoded(ENTRIES),
}
REPLACED = {
    "no file": None,
    "too many entries": encoded([*ENTRIES, (40, 800)]),
    "another entry": preallocated(encoded([(10, 101), (20, 256)])),
    "data after a hole": preallocated(encoded(ENTRIES)) + b"\1",
}


@pytest.mark.parametrize("content", IN_PLACE.values(), ids=IN_PLACE)
@pytest.mark.parametrize("entries", [ENTRIES, ENTRIES[:0]], ids=["entries", "empty"])
def test_durable_whatever_was_there(content: bytes, entries: Sequence[tuple[int, int]]) -> None:
    scene = Scene(content)
    assert list(scene.replace(entries).entries()) == entries
    assert scene.read() == encoded(entries)


@pytest.mark.parametrize("content", IN_PLACE.values(), ids=IN_PLACE)
def test_in_place_with_one_sync(content: bytes) -> None:
    scene = Scene(content)
    scene.replace(ENTRIES)
    assert "create" not in scene.steps
    assert "rename" not in scene.steps
    assert scene.steps.count("datasync") == 1
    before = scene.on_disk[: scene.steps.index("datasync") + 1]
    assert set(before) == {content}, "a power loss before the sync leaves the old file"


@pytest.mark.parametrize("content", REPLACED.values(), ids=REPLACED)
def test_any_other_file_is_replaced_at_once(content: bytes | None) -> None:
    scene = Scene(content)
    scene.replace(ENTRIES)
    assert "rename" in scene.steps
    assert set(scene.on_disk) <= {content, encoded(ENTRIES)}
    assert scene.read() == encoded(ENTRIES)


def test_more_than_a_sector_is_replaced_at_once() -> None:
    """The disk could keep its second sector without its first."""
    scene = Scene(encoded(MANY[:3]))
    scene.replace(MANY)
    assert "rename" in scene.steps
    assert scene.read() == encoded(MANY)
