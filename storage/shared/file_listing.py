"""The files of a store as they are on disk: a walk over its folders, in order, from any file on.

Owns the order and which files are left out; must not know the meaning of a name: a backend's `describe` returns it. No
file is opened. A store may change meanwhile: a file that disappears is left out.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from storage.errors import IoFailure
from storage.files import FileSystem
from storage.model import StoredFile, TopicPartition

# Errors for entries that are left out: removed meanwhile; a link, pipe or socket; not readable by us (lost+found).
_LEFT_OUT: Final = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.EACCES, errno.EPERM}
)


class Described(NamedTuple):
    """The facts that the name of a file contains: see StoredFile."""

    kind: str
    partition: TopicPartition | None = None
    base_offset: int | None = None
    physical_offset: int | None = None


Describe: TypeAlias = Callable[[Sequence[str]], Described]
"""A function that receives the names from the store's root down to a file."""


def list_below(
    fs: FileSystem, root: Path, describe: Describe, *, folder: Sequence[str] = (), after: str = ""
) -> Iterator[StoredFile]:
    """Yield the regular files of the store at `root`, or of one of its folders, in order of their names from the root
    down.

    Only files after the path `after` are returned. Names that are not printable are left out.
    """
    start = tuple(after.split("/"))
    depth = len(folder)
    if start[:depth] > tuple(folder):
        return
    behind = start[depth:] if start[:depth] == tuple(folder) else ()
    for names in _walk(fs, root, tuple(folder), behind):
        path = root.joinpath(*names)
        try:
            size_bytes, mtime_ms = fs.size(path), fs.mtime_ms(path)
        except IoFailure as failure:
            _check_left_out(failure)
        else:
            found = describe(names)
            yield StoredFile(
                path="/".join(names),
                kind=found.kind,
                topic=None if found.partition is None else found.partition.topic,
                partition=None if found.partition is None else found.partition.partition,
                base_offset=found.base_offset,
                physical_offset=found.physical_offset,
                size_bytes=size_bytes,
                last_modified_ms=mtime_ms,
            )


def _walk(
    fs: FileSystem, root: Path, folder: tuple[str, ...], behind: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    """Yield the names of entries that are not folders, in order, after the names `behind` below `folder`."""
    first = behind[0] if behind else ""
    for name in _names_in(fs, root.joinpath(*folder)):
        if name < first or not name.isprintable():
            continue
        names = (*folder, name)
        if _is_folder(fs, root.joinpath(*names)):
            yield from _walk(fs, root, names, behind[1:] if name == first else ())
        elif name != first:
            yield names


def _names_in(fs: FileSystem, folder: Path) -> Sequence[str]:
    try:
        return fs.list_dir(folder)
    except IoFailure as failure:
        _check_left_out(failure)
        return ()


def _is_folder(fs: FileSystem, path: Path) -> bool:
    try:
        return fs.is_dir(path)
    except IoFailure as failure:
        _check_left_out(failure)
        return False


def _check_left_out(failure: IoFailure) -> None:
    if failure.facts().get("errno") not in _LEFT_OUT:
        raise failure
