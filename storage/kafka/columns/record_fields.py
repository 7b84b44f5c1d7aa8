"""The fields of many records at once, as positions into the bytes that hold the records.

Owns reading varints, offsets, times, keys, values and headers of all records of a chunk with array
operations; must not read files, nor know batches except the numbers in their headers. It needs
numpy. The layout of a record is in `storage.kafka.format.record`.

The start positions of the records come from chains of record lengths, one chain for each batch. Many short chains are
followed side by side: the first record of all batches, then the second, and so on. A few long chains are followed one
after another: side by side they would need many steps with little work in each.

    batch 0   r0 -> r1 -> r2 -> r3         step 0: r0 of all three
    batch 1   r0 -> r1                     step 1: r1 of all three
    batch 2   r0 -> r1 -> r2               step 2: r2 of batches 0 and 2 ...

A wrong length is never followed: a length that reaches beyond its record's end counts as nothing, and the
record's batch is reported as bad. Numbers wrap at 64 bits, as in Java.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage.columns import Named, Slices
from storage.kafka.format.record import MAX_DELTA, MIN_RECORD_BYTES
from storage.kafka.format.record_scan import add_positions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.columns import Numbers

    Bytes = NDArray[np.uint8]
    Flags = NDArray[np.bool_]

_FAR: Final = 1 << 62  # a position after all data: stands after a varint of more than 64 bits
_GROUP: Final = np.uint8(0x7F)  # the bits of a varint's byte that belong to its number
_LAST_SHIFT: Final = 63
SIDE_BY_SIDE: Final = 100
"""The average number of chains per step from which on following them side by side is faster."""


class BatchFigures(NamedTuple):
    """The values that all rows of a batch share, one array element for each batch of a chunk.

    The records of a batch end at `ends`. Only offsets in [low, high) become rows. `append_times` is -1 if each record
    has its own time. `partitions`: equal numbers for batches of one partition.
    """

    counts: Numbers
    ends: Numbers
    base_offsets: Numbers
    last_offset_deltas: Numbers
    base_times: Numbers
    append_times: Numbers
    is_append_time: Flags
    low: Numbers
    high: Numbers
    partitions: Numbers


class Rows(NamedTuple):
    """The wanted rows. `batch` is the index of each row's batch. The unread bytes of a row are [at, ends)."""

    batch: Numbers
    offsets: Numbers
    times: Numbers
    at: Numbers
    ends: Numbers


class Blobs(NamedTuple):
    """The byte strings of rows, and the positions after them."""

    slices: Slices
    after: Numbers


def read_varints(data: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """Return (the zig-zag numbers at these positions, the positions after them).

    Nothing is raised. After the end of the data its last byte repeats. After a number of more than 64 bits the
    position is out of reach. Nearly all numbers have one or two bytes. So two bytes are read for all numbers, unless
    every number has one byte, and more bytes only for longer numbers.
    """
    first = data.take(at, mode="clip")
    more = first >> 7
    if not more.any():
        return _unzigzag(first.astype(np.uint64)), at + 1
    second = data.take(at + 1, mode="clip")
    values = (first & _GROUP).astype(np.uint64)
    values |= ((second & _GROUP) * more).astype(np.uint64) << np.uint64(7)
    after = at + 1 + more
    rest = np.flatnonzero(more & (second >> 7))
    shift = 14
    while rest.size:
        byte = data.take(after[rest], mode="clip")
        values[rest] |= (byte & _GROUP).astype(np.uint64) << np.uint64(shift)
        after[rest] += 1
        if shift == _LAST_SHIFT:
            after[rest[byte > 1]] = _FAR
            break
        rest = rest[byte > _GROUP]
        shift += 7
    return _unzigzag(values), after


def _unzigzag(values: NDArray[np.uint64]) -> Numbers:
    one = np.uint64(1)
    return ((values >> one) ^ (np.uint64(0) - (values & one))).view(np.int64)


def find_starts(
    data: bytes, view: Bytes, *, begins: Numbers, ends: Numbers, counts: Numbers
) -> tuple[Numbers, Sequence[int]]:
    """Return (the position of each record, the indexes of batches that their records do not fill exactly).

    Batch i has counts[i] records in data[begins[i] : ends[i]]. The positions are valid only if all batches are filled.
    """
    lying = np.flatnonzero(counts > (ends - begins) // MIN_RECORD_BYTES)
    if lying.size:
        return begins, lying.tolist()
    if counts.sum() < SIDE_BY_SIDE * counts.max():
        return _one_after_another(data, begins, ends, counts)
    return _side_by_side(view, begins, ends, counts)


def _one_after_another(
    data: bytes, begins: Numbers, ends: Numbers, counts: Numbers
) -> tuple[Numbers, Sequence[int]]:
    found: list[int] = []
    batches = zip(begins.tolist(), ends.tolist(), counts.tolist(), strict=True)
    lying = [
        index
        for index, (begin, end, count) in enumerate(batches)
        if not add_positions(found, data, begin, end, count)
    ]
    return np.array(found, np.int64), lying


def _side_by_side(
    view: Bytes, begins: Numbers, ends: Numbers, counts: Numbers
) -> tuple[Numbers, Sequence[int]]:
    longest_first = np.argsort(-counts, kind="stable")
    left = counts[longest_first]
    firsts = (np.cumsum(counts) - counts)[longest_first]
    stops = ends[longest_first]
    at = begins[longest_first].copy()
    found = np.empty(int(counts.sum()), np.int64)
    # For each record number, how many batches have that record: all batches before the first one with fewer records.
    widths = np.searchsorted(-left, -np.arange(int(left[0])), side="left")
    for number, width in enumerate(widths.tolist()):
        found[firsts[:width] + number] = at[:width]
        lengths, after = read_varints(view, at[:width])
        # A length beyond the batch leaves the chain after the batch's end: it cannot return to the end.
        lengths = np.minimum(lengths, stops[:width] + 1)
        at[:width] = after + np.maximum(lengths, 0)
    return found, longest_first[at != stops].tolist()


class FoundRows(NamedTuple):
    """Rows, and the indexes of two kinds of batches.

    `lying`: batches with wrong values. `odd`: batches with unusual offsets. Some records of an odd batch may have no
    row and are then not checked here.
    """

    rows: Rows
    lying: Numbers
    odd: Numbers


def read_rows(data: Bytes, positions: Numbers, batches: BatchFigures) -> FoundRows:
    """Return the rows that are in their batch's range.

    A record after its batch's last offset counts as being at the last offset, so it is in the same ranges. Records that
    Kafka's consumer drops have no row (see `format.record.decode_records`).

    `positions`: the start of each record, found by the walk over the record lengths.
    """
    counts = batches.counts
    firsts = np.cumsum(counts) - counts
    batch = np.repeat(np.arange(len(counts)), counts)
    ends = np.empty_like(positions)
    ends[:-1] = positions[1:]
    ends[firsts + counts - 1] = batches.ends
    _, at = read_varints(data, positions)
    time_deltas, at = read_varints(data, at + 1)  # after the attributes
    deltas, at = read_varints(data, at)
    steps = np.diff(deltas, prepend=-1)
    steps[firsts] = 1
    bad = (deltas > MAX_DELTA) | (deltas < -MAX_DELTA)
    bad |= (at > ends) | (data.take(positions, mode="clip") & 1 != 0)
    last_offsets = batches.base_offsets + batches.last_offset_deltas
    places = deltas  # the offset at which a record counts in ranges
    odd = (steps <= 0) | (deltas < 0) | (deltas > batches.last_offset_deltas[batch])
    keep = np.ones(len(deltas), np.bool_)
    if odd.any():
        keep = _shown(deltas, firsts, np.unique(batch[odd]), batches)
        places = np.minimum(deltas, batches.last_offset_deltas[batch])
    offsets = batches.base_offsets[batch] + deltas
    times = batches.base_times[batch] + time_deltas
    if batches.is_append_time.any():
        times = np.where(batches.is_append_time[batch], batches.append_times[batch], times)
    rows = Rows(batch, offsets, times, at, ends)
    is_cut = (batches.base_offsets < batches.low).any() or (last_offsets >= batches.high).any()
    if is_cut:
        places = batches.base_offsets[batch] + places
        keep &= (places >= batches.low[batch]) & (places < batches.high[batch])
    if is_cut or odd.any():
        rows = Rows(*(column[keep] for column in rows))
    return FoundRows(rows, np.unique(batch[bad]), np.unique(batch[odd]))


def _shown(deltas: Numbers, firsts: Numbers, odd: Numbers, batches: BatchFigures) -> Flags:
    """Return a mask of the records that a consumer gets.

    Such a record is above all earlier records of its batch, and above all records that an earlier batch has after its
    last offset. Only `odd` batches cause records to be dropped.
    """
    keep = np.ones(len(deltas), np.bool_)
    counts, bases = batches.counts, batches.base_offsets
    for index in odd.tolist():
        own = slice(firsts[index], firsts[index] + counts[index])
        before = np.full(counts[index], -1, np.int64)
        before[1:] = np.maximum.accumulate(deltas[own])[:-1]
        keep[own] &= deltas[own] > np.maximum(before, -1)
        top = bases[index] + deltas[own].max()
        following = index + 1
        while (
            following < len(counts)
            and batches.partitions[following] == batches.partitions[index]
            and bases[index] < bases[following] <= top
        ):
            own = slice(firsts[following], firsts[following] + counts[following])
            keep[own] &= bases[following] + deltas[own] > top
            following += 1
    return keep


def read_blobs(data: bytes, view: Bytes, at: Numbers, ends: Numbers) -> tuple[Blobs, Flags]:
    """Return (the length-prefixed byte strings at these positions, a mask of the strings that reach beyond `ends`)."""
    lengths, starts = read_varints(view, at)
    bad = lengths > ends - starts
    lengths = np.where(bad, -1, np.maximum(lengths, -1))
    after = starts + np.maximum(lengths, 0)
    starts = np.minimum(starts, len(data))
    return Blobs(Slices(data, starts, lengths), after), bad


def no_headers_fit(view: Bytes, at: Numbers, ends: Numbers) -> Flags:
    """Return a mask of the rows with too few bytes left for their headers, or with bytes left after no headers."""
    none = view.take(at, mode="clip") == 0
    fitting: Flags = (at < ends) & (none == (at + 1 == ends))
    return ~fitting


def read_headers(data: bytes, view: Bytes, at: Numbers, ends: Numbers) -> tuple[Named, Flags]:
    """Return (the headers of each row, a mask of the rows that their headers do not fill exactly).

    Reads the first header of all rows, then the second, and so on.
    """
    counts, at = read_varints(view, at)
    bad = (counts < 0) | (counts > ends - at)
    counts = np.where(bad, 0, counts)
    found: list[tuple[Numbers, Slices, Slices]] = []
    left = np.flatnonzero(counts)
    nth = 0
    while left.size:
        (names, after), bad_names = read_blobs(data, view, at[left], ends[left])
        (values, after), bad_values = read_blobs(data, view, after, ends[left])
        wrong = bad_names | bad_values | (names.lengths < 0)
        found.append((left, names, values))
        at[left] = after
        bad[left[wrong]] = True
        nth += 1
        left = left[~wrong & (counts[left] > nth)]
    bad |= at != ends
    return _in_order(data, counts, found), bad


def _in_order(
    data: bytes, counts: Numbers, found: Sequence[tuple[Numbers, Slices, Slices]]
) -> Named:
    """Return the headers in the order of the rows."""
    if not found:
        none = np.empty(0, np.int64)
        return Named(counts, Slices(data, none, none), Slices(data, none, none))
    order = np.argsort(np.concatenate([rows for rows, _, _ in found]), kind="stable")

    def joined(parts: Sequence[Slices]) -> Slices:
        starts = np.concatenate([part.starts for part in parts])[order]
        return Slices(data, starts, np.concatenate([part.lengths for part in parts])[order])

    return Named(counts, joined([n for _, n, _ in found]), joined([v for _, _, v in found]))


def last_named(headers: Named, name: bytes) -> Slices:
    """Return the value of each row's last header with this name and a value; null if there is none."""
    data, starts, lengths = headers.names
    rows = np.repeat(np.arange(len(headers.counts)), headers.counts)
    same = (lengths == len(name)) & (headers.values.lengths >= 0)
    view = np.frombuffer(data, np.uint8)
    for at, byte in enumerate(name):
        same &= view.take(starts + at, mode="clip") == byte
    chosen = np.flatnonzero(same)
    found = Slices(
        data, np.zeros(len(headers.counts), np.int64), np.full(len(headers.counts), -1, np.int64)
    )
    found.starts[rows[chosen]] = headers.values.starts[chosen]
    found.lengths[rows[chosen]] = headers.values.lengths[chosen]
    return found
