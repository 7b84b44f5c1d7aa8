"""The notes of a backend's tools while they work: findings, each position once, and a progress meter.

Owns both for all backends, and the findings for data that a rescue could not read and for symbolic links that it
followed: a SkippingFileSystem replaced the ranges by filler, a FollowingFileSystem below it followed the links. Must
not know a format: a backend says which paths contain records, and of which partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from storage.contract import Progress, no_progress
from storage.files import FileSystem, FollowingFileSystem, SkippingFileSystem, UnreadableRange
from storage.findings import finding
from storage.model import Finding, TopicPartition

_STEP_BYTES: Final = 16 << 20
_BAD_PLACES: Final = frozenset(
    {
        "damaged-batch",
        "damaged-record",
        "log-ends-early",
        "misplaced-batch",
        "old-message-format",
        "torn-tail",
        "zero-tail",
    }
)


class Notes:
    """Findings in the order in which they were added, each position once."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], Finding] = {}
        self._taken = 0

    def add(self, *findings: Finding) -> None:
        """Add findings, except for a position that has a finding already."""
        for added in findings:
            self._found.setdefault(_place(added), added)

    def has(self, finding: Finding) -> bool:
        """Return whether the position has a finding that names the same record."""
        known = self._found.get(_place(finding))
        return known is not None and _record(known) == _record(finding)

    def all(self) -> Sequence[Finding]:
        """Return all findings so far."""
        return list(self._found.values())

    def take(self) -> Sequence[Finding]:
        """Return the findings added since the last call."""
        fresh = self.all()[self._taken :]
        self._taken += len(fresh)
        return fresh


def _record(finding: Finding) -> tuple[object, ...]:
    return finding.topic, finding.partition, finding.offset


def _place(finding: Finding) -> tuple[object, ...]:
    """Return the key of a position. Recovery and a later read may report the same bad position under different
    codes.
    """
    if finding.code in _BAD_PLACES:
        return (finding.path, finding.position)
    return (finding.path, finding.position, finding.code, finding.offset, finding.message)


class Meter:
    """The amount of data read so far, reported every 16 MiB."""

    def __init__(self, progress: Progress = no_progress, what: str = "", total: int = 0) -> None:
        self._progress = progress
        self._what = what
        self._total = total
        self._done = self._reported = 0

    def add(self, size_bytes: int) -> None:
        """Count `size_bytes` more bytes as read."""
        self._done += size_bytes
        self.reach(self._done)

    def reach(self, done: int) -> None:
        """Set the number of bytes read so far, and report it if at least 16 MiB were read since the last report."""
        if done - self._reported >= _STEP_BYTES:
            self._reported = done
            self._progress(self._what, done, self._total)


class Tallies:
    """Findings of which a damaged file may have thousands: one for each file, code and severity, with a count.

    It is the first finding in a given order. So the result does not depend on which reader counted which part.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[str, str, str], tuple[int, Finding]] = {}
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, finding: Finding, order: int | None = None) -> None:
        """Count one more finding; `order` None: its position."""
        self._add(finding, (finding.position or 0) if order is None else order, 1)

    def merge(self, other: Tallies) -> None:
        """Add all counts of another object."""
        for key, (order, first) in other._first.items():
            self._add(first, order, other._counts[key])

    def _add(self, finding: Finding, order: int, count: int) -> None:
        key = finding.path, finding.code, finding.severity
        if order < self._first.setdefault(key, (order, finding))[0]:
            self._first[key] = order, finding
        self._counts[key] += count

    def all(self) -> Sequence[Finding]:
        """Return one finding for each file, code and severity, sorted by file and position."""
        found = [
            replace(first, message=f"{first.message}; {more} more like it in this file")
            if (more := self._counts[key] - 1)
            else first
            for key, (_, first) in self._first.items()
        ]
        return sorted(
            found, key=lambda reported: (reported.path, reported.position or 0, reported.code)
        )


# ---- unreadable data -----------------------------------------------------------------------------


class PathFacts(NamedTuple):
    """The facts that a backend has about a path: whether it contains records, and the partition it belongs to."""

    holds_records: bool
    partition: TopicPartition | None = None


def unreadable_findings(fs: FileSystem, facts: Callable[[Path], PathFacts]) -> Sequence[Finding]:
    """Return a finding for each range that `fs` could not read so far, and for each link that was followed; none for
    other kinds of file systems.
    """
    if not isinstance(fs, SkippingFileSystem):
        return ()
    found = [_finding(unread, facts(unread.path)) for unread in fs.unreadable()]
    if isinstance(fs.base, FollowingFileSystem):
        found += [_link(path, to, facts(path)) for path, to in fs.base.followed().items()]
    return found


def _link(path: Path, target: Path, facts: PathFacts) -> Finding:
    topic, number = facts.partition or (None, None)
    return finding(
        "symbolic-link",
        path,
        topic=topic,
        partition=number,
        found=str(target),
        message=f"a symbolic link, followed to {target}",
    )


def _finding(unread: UnreadableRange, facts: PathFacts) -> Finding:
    topic, number = facts.partition or (None, None)
    severity = "error" if facts.holds_records or unread.is_folder else "warning"
    if unread.is_whole:
        kind = "folder" if unread.is_folder else "file"
        return finding(
            "unreadable-file",
            unread.path,
            severity=severity,
            topic=topic,
            partition=number,
            message=f"the {kind} cannot be read: {unread.reason}",
        )
    return finding(
        "unreadable-range",
        unread.path,
        severity=severity,
        position=unread.start,
        topic=topic,
        partition=number,
        message=f"{unread.stop - unread.start} bytes cannot be read: {unread.reason}",
    )
