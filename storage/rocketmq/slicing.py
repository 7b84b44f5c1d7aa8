"""Many small pieces of one sequence of bytes, taken out of it at once.

Owns that step alone: a piece taken by itself costs more than what is then done with it. Pieces of
one size are a column of a numpy array; where the sizes are too many, they are cut one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.columns import Numbers

ALIKE: Final = 100  # pieces of one size, on average, from which on they are taken together


def bytes_at(data: bytes, places: Numbers, size_bytes: int) -> NDArray[np.bytes_]:
    """`size_bytes` bytes (1 at least) from each of these places. Compared, trailing zeros do not count."""
    every = np.ndarray((max(len(data) - size_bytes + 1, 0),), f"S{size_bytes}", data, strides=(1,))
    found: NDArray[np.bytes_] = every[places]
    return found


def by_size(sizes: Numbers) -> Sequence[tuple[int, NDArray[np.intp]]] | None:
    """(size, which pieces have it), for each size; None where there are too many sizes, or no pieces."""
    short = int(sizes.max(initial=0)) < 1 << 16  # for which numpy has a faster sort
    order = np.argsort(sizes.astype(np.uint16) if short else sizes, kind="stable")
    borders = np.flatnonzero(np.diff(sizes[order])) + 1
    if len(borders) * ALIKE >= len(sizes):
        return None
    groups = np.split(order, borders)
    return [(int(sizes[rows[0]]), rows) for rows in groups if len(rows)]


def cut(data: bytes, starts: Numbers, ends: Numbers) -> list[bytes]:
    """data[starts[i] : ends[i]] for each i."""
    return list(map(data.__getitem__, map(slice, starts.tolist(), ends.tolist())))
