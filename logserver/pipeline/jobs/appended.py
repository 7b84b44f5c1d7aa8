"""A folder of Parquet files that runs append to: each run is added as a whole or not at all, however it ends.

Owns staging, the commit and its completion after a crash; must not know Spark or the contents of the files.

    FOLDER/topic=orders/date=2026-01-31/part-....parquet    what readers see
    FOLDER/_appended/staging/topic=.../...parquet           what a run writes
    FOLDER/_appended/commit.json                            the last run: its state, and its files
    FOLDER/_appended/lock                                   held by the run

A run writes to staging and then replaces commit.json, which names the files: this replacement is the commit. Then the
files move to their final places. The next run first moves the files of the last commit that are still in staging, and
removes everything else there. Readers of Parquet ignore folders whose names begin with `_`.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from storage.errors import Corrupt, InvalidArgument, StoreLocked

OWN: Final = "_appended"
COMMIT: Final = "commit.json"
SUFFIX: Final = ".parquet"


class Appended:
    """The folder during a run; see `appending`. `state` is the state of the last committed run, {} before the first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._commit = folder / OWN / COMMIT
        self.staging = folder / OWN / "staging"
        last = self._last()
        self.state: Mapping[str, Any] = last["state"]
        self._move(last["files"])

    def commit(self, state: Mapping[str, Any]) -> int:
        """Commit all files in staging to the folder, together with `state`; return the number of files.

        Durable on return. A run that ends before this call has added nothing; a run that ends during it, all or
        nothing.
        """
        paths = sorted(path for path in self.staging.rglob(f"*{SUFFIX}") if path.is_file())
        files = [str(path.relative_to(self.staging)) for path in paths]
        for path in paths:
            _sync(path)
        for folder in {folder for path in paths for folder in path.parents}:
            if folder.is_relative_to(self.staging):
                _sync(folder)
        written = self._commit.with_suffix(".new")
        written.write_text(json.dumps({"state": state, "files": files}, indent=1))
        _sync(written)
        written.replace(self._commit)
        _sync(self._commit.parent)
        self.state = state
        self._move(files)
        return len(files)

    def _last(self) -> dict[str, Any]:
        if not self._commit.exists():
            return {"state": {}, "files": []}
        try:
            last = json.loads(self._commit.read_text())
            return {"state": dict(last["state"]), "files": list(last["files"])}
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(
                f"{self._commit} does not tell what was written last: {error}",
                kind="commit",
                path=str(self._commit),
            ) from error

    def _move(self, files: list[str]) -> None:
        """Move the files of a commit that are still in staging to their final places, then remove staging."""
        places: set[Path] = set()  # relative to the folder; the folder itself is "."
        for name in files:
            source, target = self.staging / name, self._folder / name
            if source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                source.replace(target)
                places.update(Path(name).parents)
        for place in places:
            _sync(self._folder / place)
        if self.staging.exists():
            shutil.rmtree(self.staging)


@contextmanager
def appending(folder: Path) -> Iterator[Appended]:
    """Open the folder for one run, which alone may write to it; create it if it is missing.

    The files that the last run committed are in their final places; its uncommitted files are removed. Raises
    StoreLocked while another run has the folder, InvalidArgument for a file or a folder with other files, Corrupt if
    the last commit cannot be read.
    """
    own = folder / OWN
    if folder.exists() and not folder.is_dir():
        raise InvalidArgument(f"{folder} is a file: give a new or an empty folder", field="out")
    if folder.exists() and not own.exists() and any(folder.iterdir()):
        raise InvalidArgument(
            f"{folder} holds files that no export has written: give a new or an empty folder",
            field="out",
        )
    own.mkdir(parents=True, exist_ok=True)
    with (own / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreLocked(f"{folder}: another run writes there", path=str(folder)) from None
        yield Appended(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
