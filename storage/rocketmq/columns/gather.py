"""Extraction of many small pieces from one sequence of bytes at once.

Owns that step; must not interpret the bytes. To extract a single piece costs more than the work on it. Pieces of one
size are a column of a numpy array; if there are too many sizes, pieces are cut one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.contract import Numbers

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
