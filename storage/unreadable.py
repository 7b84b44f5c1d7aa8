"""Findings for what a rescue could not read: the ranges that a SkippingFileSystem filled in.

Owns their codes and severities; must not know a format. A backend says which paths hold records, and whose they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from storage.files import FileSystem, SkippingFileSystem, UnreadableRange
from storage.findings import finding
from storage.model import Finding, TopicPartition


class PathFacts(NamedTuple):
    """What a backend knows of a path: whether records are stored there, and the partition it belongs to."""

    holds_records: bool
    partition: TopicPartition | None = None


def unreadable_findings(fs: FileSystem, facts: Callable[[Path], PathFacts]) -> Sequence[Finding]:
    """Return a finding for each range that `fs` could not read so far; none for another kind of file system."""
    if not isinstance(fs, SkippingFileSystem):
        return ()
    return [_finding(unread, facts(unread.path)) for unread in fs.unreadable()]


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
