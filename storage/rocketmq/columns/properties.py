"""The properties of many records as columns, found in their bytes without creating a value for each property.

Owns the parser's rules for whole columns (`format.properties` explains them, and has them for one record); must not
know where a record has its properties. The parsed bytes are the properties of all records joined, in any order, with an
02 after each record's properties:

    bytes    TAGS 01 red 02 KEYS 01 a b 02 | TAGS 01 blue 02 | 02
    pieces   [TAGS 01 red] [KEYS 01 a b]     [TAGS 01 blue]    []

Properties with a repeated name, and properties that are not UTF-8, are first rewritten by the parser of one record.
Each name then occurs once in these bytes, and the text after it is the value.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from storage.columns import Named, Slices
from storage.rocketmq.columns.slices import by_size, bytes_at, cut
from storage.rocketmq.format.properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    decode_properties,
    properties_text,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.columns import Numbers

_END: Final = PROPERTY_SEPARATOR.encode()
_END_BYTE: Final = _END[0]
_MIDDLE: Final = NAME_VALUE_SEPARATOR.encode()
_MIDDLE_BYTE: Final = _MIDDLE[0]
_BYTE_VALUES: Final = 256
_WORD_BYTES: Final = 8
_COMPARED: Final = (
    16  # names of a record that are compared here; a record with more is parsed alone
)
_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(_WORD_BYTES + 1)], np.uint64)
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


class Properties:
    """The properties of some records: row i has data[starts[i] : ends[i]]."""

    def __init__(self, data: bytes, starts: Numbers, ends: Numbers) -> None:
        are_closed = (ends > starts) & (np.frombuffer(data, np.uint8)[ends - 1] == _END_BYTE)
        self._regions = data, starts, ends - are_closed
        self._parts: Sequence[bytes] | None = None
        together, sizes, order = _together(*self._regions)
        if _is_text(together):
            self._parse(together, sizes, order)
        else:
            self._parts = [properties_text(part).encode() for part in cut(*self._regions)]
            self._parse(*_joined(self._parts))

    def _parse(self, together: bytes, sizes: Numbers, order: Numbers) -> None:
        """Find the names and values of all pieces that are properties.

        Record `order[i]` has `sizes[i]` bytes, with its end mark.
        """
        self._data = together + bytes(_WORD_BYTES)
        raw = np.frombuffer(together, np.uint8)
        starts, middles, ends = _pieces(raw)
        good = (starts < middles) & (middles + 1 < ends)
        if not good.all():
            starts, middles, ends = starts[good], middles[good], ends[good]
        self._names, self._middles, self._ends = starts, middles, ends
        counts = np.diff(np.searchsorted(ends, sizes.cumsum()), prepend=0)
        self._rows = np.repeat(order, counts)
        self._counts = np.zeros_like(counts)
        self._counts[order] = counts
        self._lengths = middles - starts
        # The first bytes of each name as a number. They include the separator if there is room.
        self._words = np.ndarray((len(raw) + 1,), "<u8", self._data, strides=(1,))
        self._heads = self._words[starts]

    def value(self, name: str) -> Slices:
        """Return the values of one property, null where a record does not have it."""
        found = self._called(name.encode())
        rows, middles = self._rows[found], self._middles[found]
        starts = np.zeros(len(self._counts), np.int64)
        lengths = np.full(len(self._counts), -1, np.int64)
        starts[rows] = middles + 1  # of several values the last one counts
        lengths[rows] = self._ends[found] - middles - 1
        return Slices(self._data, starts, lengths)

    def named(self, hidden: Collection[str] = ()) -> Named:
        """Return all properties except those with these names, in stored order."""
        self._make_unique()
        chosen = self._all_but(hidden)
        rows = self._rows[chosen]
        if (rows[1:] < rows[:-1]).any():
            chosen = chosen[np.argsort(rows, kind="stable")]
        names, middles, ends = self._names[chosen], self._middles[chosen], self._ends[chosen]
        return Named(
            np.bincount(rows, minlength=len(self._counts)),
            Slices(self._data, names, middles - names),
            Slices(self._data, middles + 1, ends - middles - 1),
        )

    def _all_but(self, hidden: Collection[str]) -> NDArray[np.intp]:
        """Return which pieces have none of these names."""
        there = set(np.flatnonzero(np.bincount(self._kinds())).tolist())
        chosen = np.ones(len(self._names), np.bool_)
        for name in map(str.encode, hidden):
            if len(name) * _BYTE_VALUES + name[0] in there:
                chosen[self._called(name)] = False
        places: NDArray[np.intp] = np.flatnonzero(chosen)
        return places

    def _kinds(self) -> Numbers:
        """Return for each name a number made of its length and its first byte."""
        first = (self._heads & np.uint64(_BYTE_VALUES - 1)).astype(np.int64)
        kinds: Numbers = self._lengths * _BYTE_VALUES + first
        return kinds

    def _called(self, name: bytes) -> NDArray[np.intp]:
        """Return which pieces have this name."""
        text = (name + _MIDDLE)[:_WORD_BYTES]
        word = np.uint64(int.from_bytes(text, "little"))
        found: NDArray[np.intp] = np.flatnonzero(self._heads & _MASKS[len(text)] == word)
        if len(name) >= _WORD_BYTES and len(found):
            found = found[self._lengths[found] == len(name)]
            found = found[bytes_at(self._data, self._names[found], len(name)) == name]
        return found

    def _make_unique(self) -> None:
        """Rewrite the properties of records in which a name occurs twice."""
        rows = self._rows_with_twins()
        if not rows:
            return
        parts = list(self._all_parts())
        for row in rows:
            found = decode_properties(parts[row])
            parts[row] = PROPERTY_SEPARATOR.join(
                f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in found.items()
            ).encode()
        self._parts = parts
        self._parse(*_joined(parts))

    def _all_parts(self) -> Sequence[bytes]:
        """Return the properties of each record as they are parsed."""
        return cut(*self._regions) if self._parts is None else self._parts

    def _rows_with_twins(self) -> list[int]:
        counts, rows, hashes = self._counts, self._rows, self._hashes()
        suspects = [np.flatnonzero(counts > _COMPARED)]
        for distance in range(1, min(int(counts.max(initial=0)), _COMPARED)):
            same = np.flatnonzero(hashes[distance:] == hashes[:-distance])
            if len(same):
                suspects.append(rows[same][rows[same] == rows[same + distance]])
        found = np.unique(np.concatenate(suspects)).tolist()
        if not found:
            return []
        parts = self._all_parts()
        return [row for row in found if len(decode_properties(parts[row])) < counts[row]]

    def _hashes(self) -> NDArray[np.uint64]:
        """Return a number for each name. Equal names of one record have equal numbers; different names rarely do."""
        inside = np.minimum(self._lengths, _WORD_BYTES)
        masks = _MASKS[inside]
        tails = self._words[self._middles - inside] & masks
        mixed: NDArray[np.uint64] = (self._heads & masks) * _MIX ^ tails
        return mixed + self._rows.astype(np.uint64)


def _pieces(raw: NDArray[np.uint8]) -> tuple[Numbers, Numbers, Numbers]:
    """Return (starts, middles, ends) of all pieces. A middle is the first 01 in its piece, or else the end."""
    marks = np.flatnonzero(raw - _MIDDLE_BYTE <= _END_BYTE - _MIDDLE_BYTE)
    are_ends = raw[marks] == _END_BYTE
    take_turns = not len(marks) % 2 and bool(are_ends[1::2].all() and not are_ends[::2].any())
    ends = marks[1::2].copy() if take_turns else marks[are_ends]
    starts = np.concatenate([np.zeros(min(len(ends), 1), np.int64), ends[:-1] + 1])
    if take_turns:
        return starts, marks[::2].copy(), ends
    middles = marks[~are_ends]
    following = np.concatenate([middles, [len(raw)]])
    return starts, np.minimum(following[np.searchsorted(middles, starts)], ends), ends


def _together(data: bytes, starts: Numbers, ends: Numbers) -> tuple[bytes, Numbers, Numbers]:
    """Return (the properties of all records, each with its end mark; their sizes; their record numbers)."""
    groups = by_size(ends - starts)
    if groups is None:
        return _joined(cut(data, starts, ends))
    parts = []
    for size, rows in groups:
        part = np.full((len(rows), size + 1), _END_BYTE, np.uint8)
        if size:
            part[:, :size] = bytes_at(data, starts[rows], size).view(np.uint8).reshape(-1, size)
        parts.append(part.tobytes())
    order = np.concatenate([rows for _, rows in groups])
    return b"".join(parts), (ends - starts)[order] + 1, order


def _joined(parts: Sequence[bytes]) -> tuple[bytes, Numbers, Numbers]:
    """Join the properties of each record; return the same as `_together`."""
    sizes = np.fromiter(map(len, parts), np.int64, len(parts)) + 1
    return _END.join([*parts, b""]), sizes, np.arange(len(parts))


def _is_text(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
