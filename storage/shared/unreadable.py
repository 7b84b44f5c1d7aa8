"""Findings for data that a rescue could not read, and for the symbolic links that it followed.

A SkippingFileSystem replaced the ranges by filler, a FollowingFileSystem below it followed the links.
Owns their codes and severities; must not know a format. A backend says which paths contain records, and of which
partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from storage.files import FileSystem, FollowingFileSystem, SkippingFileSystem, UnreadableRange
from storage.findings import finding
from storage.model import Finding, TopicPartition


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
