"""A store's own directory, and copies of ranges of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import IoFailure
from storage.files import (
    STORE_FILE,
    OverlayFileSystem,
    atomic_write,
    copy_range,
    make_root,
    stored_backend,
)
from storage.files.atomic import CHUNK_BYTES
from tests.robustness.crash.power import Power
from tests.unit.files.conftest import Place
from tests.unit.files.guarded import Watched


def test_the_root_and_its_parents_outlive_a_power_loss() -> None:
    power = Power()
    make_root(power, Path("/a/b/c"))
    assert power.cut().is_dir(Path("/a/b/c"))


def test_a_root_that_is_there_is_not_synced_again() -> None:
    fs = OverlayFileSystem(None)
    make_root(fs, Path("/a"))
    watched = Watched(fs)
    make_root(watched, Path("/a"))
    assert watched.log == []


@pytest.mark.parametrize(
    ("data", "backend"),
    [
        (None, None),
        (b'{"backend":"kafka","version":9}', "kafka"),
        (b'{"backend":"another"}', "another"),
        (b'{"version":1}', None),
        (b"", None),
        (b"\xff", None),
    ],
)
def test_whose_store_it_is(data: bytes | None, backend: str | None) -> None:
    fs = OverlayFileSystem(None)
    make_root(fs, Path("/s"))
    if data is not None:
        atomic_write(fs, Path("/s") / STORE_FILE, data)
    assert stored_backend(fs, Path("/s")) == backend


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (0, None),
        (0, 0),
        (5, 5),
        (3, CHUNK_BYTES),
        (1, 2 * CHUNK_BYTES + 1),
        (2 * CHUNK_BYTES + 77, None),
        (10, 1 << 40),
        (1 << 40, None),
    ],
)
def test_copying_a_range(place: Place, start: int, end: int | None) -> None:
    content = (bytes(range(251)) * (3 * CHUNK_BYTES // 251))[: 2 * CHUNK_BYTES + 77]
    source = place.put("f", content)
    copy_range(place.fs, source, place.root / "copy", start=start, end=end)
    assert place.fs.read_bytes(place.root / "copy") == content[start:end]
    assert place.fs.read_bytes(source) == content


def test_a_copy_is_synced_and_closed() -> None:
    fs = Watched(OverlayFileSystem(None))
    atomic_write(fs, Path("/f"), b"0123456789")
    fs.log.clear()
    copy_range(fs, Path("/f"), Path("/copy"), start=2, end=8)
    assert fs.unsynced() == set()
    assert fs.open_now == 0
    with pytest.raises(IoFailure):
        copy_range(fs, Path("/missing"), Path("/copy"), start=0)
    assert fs.open_now == 0
