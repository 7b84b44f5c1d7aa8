"""Log files after the end of the log that hold data. None of their data is read.

Owns finding them; must not write. The real store keeps one file ahead, filled with zeros. A file with data there is a
copy under a wrong name, or unreachable because a log file before it is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from storage.findings import finding
from storage.model import Finding
from storage.rocketmq.log.file_sequence import FileRun


class FileBehind(NamedTuple):
    """A log file after the end of the log, and its number of data bytes."""

    base: int
    size_bytes: int


def files_behind(run: FileRun, end: int) -> Iterator[FileBehind]:
    """Yield log files that begin at or after the end of the log and hold data, but not the file that holds the end."""
    for base in run.bases:
        if base < end or base == run.base_of(end):
            continue
        size_bytes = run.data_end_in(base, base) - base
        if size_bytes:
            yield FileBehind(base, size_bytes)


def files_behind_findings(run: FileRun, end: int, *, clean: bool) -> Iterator[Finding]:
    """Report these files. After an unclean stop they may come from a write that did not finish."""
    for behind in files_behind(run, end):
        yield finding(
            "log-file-behind-end",
            run.path(behind.base),
            severity="error" if clean else "warning",
            position=0,
            expected="zeros",
            found=f"{behind.size_bytes} bytes of data",
            message=f"the log ends at {end}, and this file holds {behind.size_bytes} bytes that no record of the log "
            "leads to: a copy under a wrong name, or log files before it are missing",
        )
