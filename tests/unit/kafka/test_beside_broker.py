"""Inspection of a directory that a running broker changes: vanished files are reported, the rest is read."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from storage import (
    Finding,
    FindQuery,
    Record,
    SupportsInspect,
    TopicPartition,
    open_inspector,
    open_store,
)
from storage.errors import IoFailure
from storage.files import RealFileSystem

BEFORE_IT_IS_FOUND = (
    2  # listings by verification: each of its two views first looks for blocked files
)
TOPICS = ("before", "gone", "stays")


class Meanwhile(RealFileSystem):
    """A disk on which another program acts right after the `nth` listing of a folder."""

    def __init__(self, folder: Path, act: Callable[[Path], None], *, nth: int) -> None:
        self._folder = folder
        self._act = act
        self._left = nth

    def list_dir(self, path: Path) -> Sequence[str]:
        names = super().list_dir(path)
        if path == self._folder:
            self._left -= 1
            if not self._left:
                self._act(path)
        return names


def remove_cleaned(folder: Path) -> None:
    """Remove a `.cleaned` file, as Kafka's log cleaner does after a swap."""
    (folder / f"{0:020}.log.cleaned").unlink()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The path of a store of three topics with one record each, stopped uncleanly.

    The second topic has a `.cleaned` file, as if the cleaner were at work.
    """
    root = tmp_path / "store"
    with open_store("kafka", root) as store:
        for topic in TOPICS:
            store.create_topic(topic, 1)
            store.append(TopicPartition(topic, 0), [Record(None, topic.encode())])
    (root / ".kafka_cleanshutdown").unlink()
    (root / "gone-0" / f"{0:020}.log.cleaned").write_bytes(b"")
    return root


def dumped(inspector: SupportsInspect) -> tuple[list[Any], Sequence[Finding]]:
    rows = [row["topic"] for run in inspector.dump("records") for row in run]
    return rows, inspector.findings()


def found(inspector: SupportsInspect) -> tuple[list[Any], Sequence[Finding]]:
    rows = [row["topic"] for row in inspector.find(FindQuery(from_ms=0))]
    return rows, inspector.findings()


@pytest.mark.parametrize("look", [dumped, found])
@pytest.mark.parametrize("nth", [2, 3, 4])
def test_the_other_partitions_are_read(
    root: Path, look: Callable[[SupportsInspect], tuple[list[Any], Sequence[Finding]]], nth: int
) -> None:
    folder = root / "gone-0"
    inspector = open_inspector(root, fs=Meanwhile(folder, shutil.rmtree, nth=nth))
    rows, findings = look(inspector)
    inspector.close()
    assert rows == ["before", "stays"]
    (stated,) = [finding for finding in findings if finding.code == "changed-meanwhile"]
    assert (stated.severity, stated.path, stated.topic) == ("warning", str(folder), "gone")


@pytest.mark.parametrize("look", [dumped, found])
@pytest.mark.parametrize("nth", range(1, 6))
def test_a_file_that_the_cleaner_removes_hides_no_record(
    root: Path, look: Callable[[SupportsInspect], tuple[list[Any], Sequence[Finding]]], nth: int
) -> None:
    inspector = open_inspector(root, fs=Meanwhile(root / "gone-0", remove_cleaned, nth=nth))
    rows, _ = look(inspector)
    inspector.close()
    assert rows == list(TOPICS)


@pytest.mark.parametrize("act", [shutil.rmtree, remove_cleaned])
@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5])
def test_verify_goes_on(root: Path, act: Callable[[Path], None], nth: int) -> None:
    """A change at any moment is reported at most once, and no batch is reported as damaged."""
    inspector = open_inspector(root, fs=Meanwhile(root / "gone-0", act, nth=nth))
    codes = [finding.code for finding in inspector.verify()]
    inspector.close()
    assert codes.count("changed-meanwhile") == (act is shutil.rmtree and nth > BEFORE_IT_IS_FOUND)
    assert {"damaged-batch", "torn-tail"}.isdisjoint(codes)


@pytest.mark.parametrize("nth", range(1, 8))
def test_a_folder_that_is_deleted_after_a_listing_of_the_root(root: Path, nth: int) -> None:
    """Verification goes on without the partition."""

    def delete(path: Path) -> None:
        shutil.rmtree(path / "gone-0")

    inspector = open_inspector(root, fs=Meanwhile(root, delete, nth=nth))
    assert {"damaged-batch", "torn-tail"}.isdisjoint({f.code for f in inspector.verify()})
    inspector.close()
    if (root / "gone-0").exists():
        delete(root)


def test_another_failure_is_none_of_a_broker(root: Path) -> None:
    """Another error of a folder is reported as an unreadable file, not as a change by a broker."""

    def fail(path: Path) -> None:
        raise IoFailure("list: no", path=str(path), operation="list", errno=5)

    inspector = open_inspector(root, fs=Meanwhile(root / "gone-0", fail, nth=2))
    found = {(f.code, f.path) for f in inspector.verify()}
    inspector.close()
    assert ("unreadable-file", str(root / "gone-0")) in found
    assert "changed-meanwhile" not in {code for code, _ in found}
