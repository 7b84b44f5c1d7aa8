"""Verification after the whole log was read: queue and index entries without a matching record, and each index
file in itself.

Owns these parts; must not walk the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from storage.model import FileCount
from storage.rocketmq.tools.snapshot import StoreSnapshot
from storage.rocketmq.tools.verify.index import END, IndexCheck, IndexPlace
from storage.rocketmq.tools.verify.index_file import check_index_file
from storage.rocketmq.tools.verify.queues import Key, Range, damaged_in, judge_units
from storage.shared.diagnostics import Tallies

UNITS_A_PART: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RestPart:
    """Ranges of unmatched queue entries, at most UNITS_A_PART together, or the index from the place `index` on."""

    log_end: int
    gaps: Sequence[Range]
    unmatched: Sequence[tuple[Key, Range]] = ()
    index: IndexPlace = END


def rest_parts(
    unmatched: Iterable[tuple[Key, Range]],
    index: IndexPlace,
    *,
    log_end: int,
    gaps: Sequence[Range],
) -> Iterator[RestPart]:
    """Yield the parts for all entries for which no record was met."""
    if index != END:
        yield RestPart(log_end=log_end, gaps=gaps, index=index)
    together: list[tuple[Key, Range]] = []
    count = 0
    for key, (first, stop) in unmatched:
        for start in range(first, stop, UNITS_A_PART):
            end = min(start + UNITS_A_PART, stop)
            if count and count + end - start > UNITS_A_PART:
                yield RestPart(log_end=log_end, gaps=gaps, unmatched=together)
                together, count = [], 0
            together.append((key, (start, end)))
            count += end - start
    if together:
        yield RestPart(log_end=log_end, gaps=gaps, unmatched=together)


def check_rest(snapshot: StoreSnapshot, part: RestPart) -> Tallies:
    """Check the queue and index entries of a part, for which no record was met."""
    with snapshot.opened() as opened:
        surroundings = snapshot.surroundings(opened.run, damaged_in(part.gaps))
        index = IndexCheck(
            opened.index_files,
            surroundings,
            part.index,
            directory=snapshot.index_directory,
        )
        index.finish(part.log_end)
        tallies = index.tallies
        for key, unmatched in part.unmatched:
            queue = opened.queues.add(*key)
            judge_units(queue, unmatched, tallies, surroundings, log_end=part.log_end)
        return tallies


def check_file_of_index(snapshot: StoreSnapshot, at: int) -> tuple[Tallies, FileCount]:
    """Check the index file with this number in itself. Memory: twice its slots."""
    with snapshot.opened_index_file(at) as file:
        tallies, entries = check_index_file(file)
        size_bytes = snapshot.fs.size(file.path)
        return tallies, FileCount(str(file.path), None, None, entries, size_bytes, is_log=False)
