"""The common part of the inspectors: a store's inspector divides its work into parts, a file's inspector refuses work.

Owns the calls of SupportsInspect that are the same for every backend, and the refusals for a path that is not a store;
must not know files or formats. An inspector that derives from one of these classes has only the calls that read.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from storage.contract import (
    Counted,
    Progress,
    SupportsInspect,
    TaskRunner,
    no_progress,
    not_counted,
    run_serially,
)
from storage.errors import InvalidArgument
from storage.files import HandleCache
from storage.model import Finding, RebuildReport


class StoreInspectorBase(SupportsInspect):
    """An inspector whose verify and rebuild consist of parts; it does them here, one after another."""

    @abstractmethod
    def audit(
        self, run: TaskRunner, *, progress: Progress = no_progress, counted: Counted = not_counted
    ) -> Iterator[Finding]:
        """See SupportsParts."""

    @abstractmethod
    def rebuild_in_parts(
        self, what: str, run: TaskRunner, *, write: bool = False, progress: Progress = no_progress
    ) -> RebuildReport:
        """See SupportsParts."""

    def verify(
        self, progress: Progress = no_progress, counted: Counted = not_counted
    ) -> Iterator[Finding]:
        return self.audit(run_serially, progress=progress, counted=counted)

    def rebuild(
        self, what: str, *, write: bool = False, progress: Progress = no_progress
    ) -> RebuildReport:
        return self.rebuild_in_parts(what, run_serially, write=write, progress=progress)


class FileInspectorBase(SupportsInspect):
    """An inspector of files without a store around them. `has_records`: they are a log."""

    rebuild_needs: ClassVar[str] = "a store"

    def __init__(self, files: HandleCache, path: Path, *, has_records: bool) -> None:
        self._files = files
        self._path = path
        self._is_log = has_records

    def rebuild(
        self, what: str, *, write: bool = False, progress: Progress = no_progress
    ) -> RebuildReport:
        raise InvalidArgument(f"rebuild needs {self.rebuild_needs}", field="path")

    def close(self) -> None:
        self._files.close(sync=False)

    def _require_log(self, what: str) -> None:
        """Raise InvalidArgument for a call that needs records if the files contain none."""
        if not self._is_log:
            raise InvalidArgument(f"{what} needs records: {self._path} holds none", field="path")
