"""A recount: a tool that makes a store, or files of a store, opens and counts them, and compares the result with its
report.

Owns the comparison; must not know how a backend counts. A difference is an error: the report or the store is wrong, and
neither can be trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from storage.errors import MiscountedResult
from storage.model import TopicPartition


class Contents(NamedTuple):
    """The number of records of one partition, and the offset after the last record; `next_offset` None: not
    compared.
    """

    records: int
    next_offset: int | None


def check_recount(
    path: Path,
    reported: Mapping[TopicPartition, Contents],
    counted: Mapping[TopicPartition, Contents],
) -> None:
    """Raise MiscountedResult for the first partition of the store at `path` that differs from the report."""
    for address, wanted in reported.items():
        found = counted.get(address, Contents(0, 0))
        if wanted.records != found.records:
            raise _miscounted(path, address, "records", wanted.records, found.records)
        if wanted.next_offset is not None and wanted.next_offset != found.next_offset:
            raise _miscounted(path, address, "next offset", wanted.next_offset, found.next_offset)


def check_files(
    reported: Mapping[Path, int | None],
    counted: Mapping[Path, int | None],
    *,
    what: str,
    advice: str,
) -> None:
    """Raise MiscountedResult for the first file or folder that differs from the report; None: it does not exist.

    `what` names the counted things, and `advice` describes the state of the store.
    """
    for path, wanted in reported.items():
        found = counted.get(path)
        if wanted != found:
            raise MiscountedResult(
                f"{path}: {_shown(wanted)} {what} by the report, {_shown(found)} in what was written. {advice}",
                path=str(path),
                reported=wanted,
                counted=found,
            )


def _shown(count: int | None) -> str:
    return "no file, so no" if count is None else f"{count}"


def _miscounted(
    path: Path, address: TopicPartition, what: str, reported: int, counted: int | None
) -> MiscountedResult:
    topic, partition = address
    return MiscountedResult(
        f"{path}: {topic}-{partition}: {what} {reported} by the report, {counted} in the new store, which is not to be "
        "used. The source is unchanged",
        path=str(path),
        topic=topic,
        partition=partition,
        reported=reported,
        counted=counted,
    )
