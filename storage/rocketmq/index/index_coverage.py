"""Ranges of the log that the key index is known to cover: in them a lookup by the index misses no record.

Owns these ranges and their sources; must not compare records (storage.rocketmq.recovery.index_check does). A range is
covered

- if a clean stop of logserver recorded it (`.logserver.index.json`), and neither the log nor the index files changed
  since;
- if records and index entries were compared in this process;
- if this process indexed it.

    log      | covered | hole | covered | not known | built by this process ... |
    lookup   | index   | scan | index   | scan      | index                     |

An index file covers nothing once its content differs from the remembered sums or cannot be read. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from storage.errors import Corrupt
from storage.rocketmq.format.message import decode_message
from storage.rocketmq.format.properties import SHARDING_KEY, has_key_beside
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.log.commit_log import CommitLog
from storage.rocketmq.log.scan import LogRange

Range = tuple[int, int]
"""Physical offsets [low, high)."""
MAX_HOLES: Final = 64
"""More holes than this are merged into one: each hole takes a search in every queue of a topic."""


_SHARDING_KEY: Final = SHARDING_KEY.encode()


class CoveredRange(NamedTuple):
    """A range of the log, and whether the index covers it."""

    low: int
    high: int
    by_index: bool


class IndexCoverage:
    """The known coverage of one index; `built_from`: the offset from which this process indexes records."""

    def __init__(
        self, log: CommitLog, index: KeyIndex, covered: Iterable[Range], *, built_from: int
    ) -> None:
        self.log = log
        self.index = index
        self.built_from = built_from
        self._covered = _merged(covered)
        self._holes: list[Range] = []
        self._key_holes: list[Range] = []
        self._lock = threading.Lock()

    def pieces(
        self, low: int, high: int, *, built_end: int, for_keys: bool
    ) -> Sequence[CoveredRange]:
        """Return the pieces of [low, high) in order; `built_end`: the end of the range that this process has indexed.

        `for_keys`: for a lookup by key, not by unique id.
        """
        pieces: list[CoveredRange] = []
        at = low
        for start, stop in self.covered(built_end, for_keys=for_keys):
            start, stop = max(start, at), min(stop, high)
            if start >= stop:
                continue
            if start > at:
                pieces.append(CoveredRange(at, start, by_index=False))
            pieces.append(CoveredRange(start, stop, by_index=True))
            at = stop
        if at < high:
            pieces.append(CoveredRange(at, high, by_index=False))
        return pieces

    def covered(self, built_end: int, *, for_keys: bool) -> Sequence[Range]:
        """Return the covered ranges, ascending."""
        with self._lock:
            covered = _merged([*self._covered, (self.built_from, built_end)])
            holes = [*self._holes, *(self._key_holes if for_keys else ())]
        lost = [(low, self._record_end(last)) for low, last in self.index.doubted_ranges()]
        for low, high in (*holes, *lost):
            covered = without(covered, low, high)
        return covered

    def unknown(self, low: int, high: int) -> Sequence[Range]:
        """Return the ranges in [low, high) that are neither covered nor holes, ascending."""
        unknown: list[Range] = [(low, min(high, self.built_from))]
        with self._lock:
            known = [*self._covered, *self._holes]
        for start, stop in known:
            unknown = without(unknown, start, stop)
        return _merged(unknown)

    def note_checked(self, low: int, high: int, holes: Iterable[Range]) -> None:
        """Add the result of a comparison of [low, high)."""
        with self._lock:
            self._covered = _merged([*self._covered, (low, high)])
        self.exclude(holes)

    def exclude(self, holes: Iterable[Range]) -> None:
        """Add ranges with records that lack an index entry for one of their lookup strings."""
        with self._lock:
            self._holes = _few([*self._holes, *holes])

    def exclude_keys(self, holes: Iterable[Range]) -> None:
        """Add ranges with records whose key is not among their lookup keys; see `has_key_beside`."""
        with self._lock:
            self._key_holes = _few([*self._key_holes, *holes])

    @property
    def key_holes(self) -> Sequence[Range]:
        """The ranges in which a lookup by key must scan, ascending."""
        return self._key_holes

    def _record_end(self, at: int) -> int:
        """Return the end of the record at an offset; the next byte if no record begins there."""
        return record_end(self.log, at)


def record_end(log: CommitLog, at: int) -> int:
    """Return the end of the record at a physical offset; the next byte if no record begins there."""
    if not log.start <= at < log.end:
        return at + 1
    try:
        return at + log.size_at(at)
    except Corrupt:
        return at + 1


def keys_beside(log_range: LogRange) -> list[Range]:
    """Return the ranges of the records in this part of the log that have such a key."""
    data, start = log_range.data, log_range.start
    if _SHARDING_KEY not in data:
        return []
    found: list[Range] = []
    for at, size in log_range.records:
        position = at - start
        if data.find(_SHARDING_KEY, position, position + size) >= 0:
            message = decode_message(data, position, check_crc=False)
            if has_key_beside(message.properties):
                found.append((at, at + size))
    return _few(found)


def _few(ranges: Iterable[Range]) -> list[Range]:
    """Return the same offsets; as one range over all of them if there are more than MAX_HOLES ranges."""
    merged = _merged(ranges)
    return merged if len(merged) <= MAX_HOLES else [(merged[0][0], merged[-1][1])]


def _merged(ranges: Iterable[Range]) -> list[Range]:
    """Return the same offsets as disjoint ranges, ascending."""
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if low >= high:
            continue
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        else:
            merged.append((low, high))
    return merged


def without(ranges: Iterable[Range], low: int, high: int) -> list[Range]:
    """Return the ranges without the offsets in [low, high)."""
    return _merged(_left(ranges, low, high))


def _left(ranges: Iterable[Range], low: int, high: int) -> Iterator[Range]:
    for start, stop in ranges:
        yield start, min(stop, low)
        yield max(start, high), stop
