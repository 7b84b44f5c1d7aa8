"""Bytes of many records at once: pieces of the log with the starts of the records in them, and small parts of a piece.

Owns how reads are combined, and how many small parts are extracted in one step; must not interpret the bytes. Records
close to each other are read together, and larger gaps are skipped. No piece is much larger than CHUNK_BYTES or one
record. Small parts of one size are a column of a numpy array: to extract a single part costs more than the work on it.

    log     | r0 r1 r2 ...... gap ...... r3 r4 |
    piece   | r0 r1 r2 r3 r4 |      starts [0, ...]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage.columns import CHUNK_BYTES
from storage.rocketmq.columns.queue_entries import Units
from storage.rocketmq.log.file_sequence import FileSequence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.columns import Numbers


NEAR_BYTES: Final = 8 << 10  # a smaller gap is read with the records around it


class LogSlice(NamedTuple):
    """The queue entries of some records, and where in `data` these records begin."""

    units: Units
    data: bytes
    starts: Numbers


def read_pieces(run: FileSequence, units: Units) -> Iterator[LogSlice]:
    """Yield the records of queue entries, in the order of the entries. Each entry must point into a file of the log.

    Bytes that a file lacks are zeros in the piece. Raises IoFailure.
    """
    positions, sizes = units.positions, units.sizes
    ends = positions + sizes
    files = positions // run.file_bytes
    gaps = (positions[1:] < positions[:-1]) | (positions[1:] > ends[:-1] + NEAR_BYTES)
    breaks = np.concatenate([[0], np.flatnonzero(gaps | (files[1:] != files[:-1])) + 1])
    first = 0
    while first < len(positions):
        stop = _stop(positions, ends, breaks, first)
        inside = breaks[np.searchsorted(breaks, first, "right") : np.searchsorted(breaks, stop)]
        yield _read(run, units.where(slice(first, stop)), np.concatenate([[first], inside]) - first)
        first = stop


def _stop(positions: Numbers, ends: Numbers, breaks: Numbers, first: int) -> int:
    """Return the row after the last one of the piece that begins with row `first`."""
    size_bytes, row = 0, first
    at = int(np.searchsorted(breaks, first, "right"))
    while row < len(positions) and size_bytes < CHUNK_BYTES:
        range_stop = int(breaks[at]) if at < len(breaks) else len(positions)
        room = positions[row] + CHUNK_BYTES - size_bytes
        stop = row + int(np.searchsorted(ends[row:range_stop], room, "right"))
        if stop < range_stop:
            return max(stop, first + 1)
        size_bytes += int(ends[stop - 1] - positions[row])
        row, at = stop, at + 1
    return row


def _read(run: FileSequence, units: Units, breaks: Numbers) -> LogSlice:
    """Return a piece made of contiguous ranges. `breaks`: the rows where these ranges begin."""
    begins = units.positions[breaks]
    lengths = np.maximum.reduceat(units.positions + units.sizes, breaks) - begins
    data = [
        run.read(begin, length).ljust(length, b"\0")
        for begin, length in zip(begins.tolist(), lengths.tolist(), strict=True)
    ]
    shifts = lengths.cumsum() - lengths - begins
    counts = np.diff(breaks, append=len(units.positions))
    starts = units.positions + np.repeat(shifts, counts)
    return LogSlice(units, data[0] if len(data) == 1 else b"".join(data), starts)


ALIKE: Final = 100  # mean number of pieces of one size from which on they are extracted together


def bytes_at(data: bytes, places: Numbers, size_bytes: int) -> NDArray[np.bytes_]:
    """Return `size_bytes` bytes (1 at least) from each of these places. Comparisons ignore trailing zeros."""
    every = np.ndarray((max(len(data) - size_bytes + 1, 0),), f"S{size_bytes}", data, strides=(1,))
    found: NDArray[np.bytes_] = every[places]
    return found


def by_size(sizes: Numbers) -> Sequence[tuple[int, NDArray[np.intp]]] | None:
    """Return (size, pieces of that size) for each size; None if there are too many sizes, or no pieces."""
    short = int(sizes.max(initial=0)) < 1 << 16  # numpy has a faster sort for these
    order = np.argsort(sizes.astype(np.uint16) if short else sizes, kind="stable")
    borders = np.flatnonzero(np.diff(sizes[order])) + 1
    if len(borders) * ALIKE >= len(sizes):
        return None
    groups = np.split(order, borders)
    return [(int(sizes[rows[0]]), rows) for rows in groups if len(rows)]


def cut(data: bytes, starts: Numbers, ends: Numbers) -> list[bytes]:
    """Return data[starts[i] : ends[i]] for each i."""
    return list(map(data.__getitem__, map(slice, starts.tolist(), ends.tolist())))
