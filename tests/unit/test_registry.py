"""Detection of the backend of a directory: each backend checks it once, in any state of the directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from storage import open_inspector, open_store
from storage.files import STORE_FILE, FollowingFileSystem
from storage.registry import Detected, detect
from tests.robustness.crash.relay import Relay


class Asked(Relay):
    """A file system that counts the listings and reads of each path."""

    def __init__(self) -> None:
        super().__init__(FollowingFileSystem())
        self.listed: Counter[Path] = Counter()
        self.read: Counter[Path] = Counter()

    def list_dir(self, path: Path) -> Sequence[str]:
        self.listed[path] += 1
        return super().list_dir(path)

    def read_bytes(self, path: Path) -> bytes:
        self.read[path] += 1
        return super().read_bytes(path)


def without_file(root: Path) -> None:
    (root / STORE_FILE).unlink()


def damaged_file(root: Path) -> None:
    (root / STORE_FILE).write_bytes(b"{")


def other_file(root: Path) -> None:
    """Let the store file name the other backend: the other files of the store decide."""
    data = (root / STORE_FILE).read_bytes()
    swapped = data.replace(b"kafka", b"@").replace(b"rocketmq", b"kafka").replace(b"@", b"rocketmq")
    (root / STORE_FILE).write_bytes(swapped)


STATES: dict[str, tuple[Callable[[Path], object], bool]] = {
    "ours": (lambda root: None, True),
    "foreign": (without_file, False),
    "damaged file": (damaged_file, True),
    "file of the other": (other_file, True),
}


@pytest.mark.parametrize("backend", ["kafka", "rocketmq"])
@pytest.mark.parametrize("state", STATES)
def test_each_backend_is_asked_once(tmp_path: Path, state: str, backend: str) -> None:
    root = tmp_path / "s"
    with open_store(backend, root) as store:
        store.create_topic("t", 3)
    change, adopted = STATES[state]
    change(root)
    asked = Asked()
    assert detect(root, fs=asked) == Detected(backend, adopted)
    assert asked.listed[root] == 2
    assert max(asked.listed.values()) == 2
    assert asked.read[root / STORE_FILE] <= 1
    inspector = open_inspector(root)
    assert inspector.summary()["backend"] == backend
    inspector.close()
