"""A store that is made in a temporary folder: a rename puts it in place when it is complete, or it never appears.

Owns the checks of the target, the folder `DIR.unfinished-TIME` in which the store is made, and the rename; must not
know the content of a store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from storage.errors import InvalidArgument, StorageError
from storage.files import FileSystem, make_root


@contextmanager
def new_store(
    fs: FileSystem, target: Path, *, sources: Sequence[Path], now_ms: int, made: Path | None = None
) -> Iterator[Path]:
    """Yield a folder for a new store, durable on exit of the block; then rename it to `target`.

    After an error neither exists. `made`: the temporary folder, on the same file system. Raises InvalidArgument unless
    `target` is missing or empty, and outside of `sources`.
    """
    target = target.resolve()
    _check(fs, target, sources)
    made = made or target.with_name(f"{target.name}.unfinished-{now_ms}")
    if fs.exists(target):
        fs.remove_tree(target)  # now: a target that cannot be replaced fails before the work
    make_root(fs, made)
    try:
        yield made
        fs.sync_dir(made)
        fs.rename(made, target)
        fs.sync_dir(target.parent)
    except BaseException:
        with suppress(StorageError):
            fs.remove_tree(made)
        raise


def _check(fs: FileSystem, target: Path, sources: Sequence[Path]) -> None:
    for source in sources:
        if source.resolve() in (target, *target.parents):
            raise InvalidArgument(
                f"{target} is inside {source}, which must stay as it is: name a place outside of it",
                field="to",
            )
    if not fs.exists(target):
        return
    if not fs.is_dir(target, follow=True):
        raise InvalidArgument(f"{target} is a file: name a new directory", field="to")
    names = fs.list_dir(target)
    if names:
        shown = ", ".join(names[:3])
        raise InvalidArgument(
            f"{target} is not empty, it holds {shown}: name a new directory", field="to"
        )
