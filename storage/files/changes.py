"""The changes of an overlay: its names and bytes compared with the names and bytes of the base.

Owns the comparison only. For a directory that is still over its own base only the names that were accessed are
compared; all other directories are compared name by name. Bytes are read only for files that were written, cut or
moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from storage.files.fs import FileSystem
from storage.files.pages import Content
from storage.files.tree import ROOT, Directory, Node, Special, Tree

_COMPARED_BYTES = 1 << 20


def changed_paths(tree: Tree) -> Iterator[Path]:
    """Yield every path that was created, was removed or has other bytes than in the base, in no order."""
    return _changed_below(tree, ROOT, tree.root)


def _changed_below(tree: Tree, path: Path, node: Node | None) -> Iterator[Path]:
    """Yield the changed paths below `path`; `node` is the current node there."""
    for name in _names_to_compare(tree, path, node):
        child = tree.child(node, name) if isinstance(node, Directory) else None
        if _differs(tree, path / name, child):
            yield path / name
        yield from _changed_below(tree, path / name, child)


def _names_to_compare(tree: Tree, path: Path, node: Node | None) -> set[str]:
    if isinstance(node, Directory) and node.base_path == path:
        return set(node.children)
    names = set(tree.names(node)) if isinstance(node, Directory) else set()
    if tree.base is not None and tree.base.is_dir(path, follow=True):
        names.update(tree.base.list_dir(path))
    return names


def _differs(tree: Tree, path: Path, node: Node | None) -> bool:
    """Return whether `node` differs from the entry that the base has at `path`."""
    where_it_was = node is not None and node.base_path == path
    if where_it_was and not (isinstance(node, Content) and node.touched):
        return False
    if tree.base is None or not tree.base.exists(path):
        return node is not None
    if tree.base.is_dir(path, follow=True):
        return not isinstance(node, Directory)
    if node is None or isinstance(node, Directory | Special):
        return True
    return not _same_bytes(tree.base, path, node)


def _same_bytes(base: FileSystem, path: Path, content: Content) -> bool:
    """Return whether a file of the overlay equals the base's file at `path`.

    The base file is compared at the length that it had when it was first seen.
    """
    size_bytes = content.base_size_bytes if content.base_path == path else base.size(path)
    if content.size_bytes != size_bytes:
        return False
    own = None if content.base_path is None else base.open(content.base_path)
    try:
        other = base.open(path)
        try:
            return all(
                content.read(own, _COMPARED_BYTES, position)
                == other.pread(min(_COMPARED_BYTES, size_bytes - position), position)
                for position in range(0, size_bytes, _COMPARED_BYTES)
            )
        finally:
            other.close()
    finally:
        if own is not None:
            own.close()
