"""Reading a partition while a running server replaces its files.

Owns the repeated look at such a partition with a fresh view: `steady_items` goes on after the last item that was
returned, `steady` begins again. Must not know the items. A cleaner only drops records that a later record of their key
replaces, and retention only the oldest records. So the rows of two looks, in the order of their offsets, are what a
consumer gets that reads meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from typing import Final, TypeVar

from storage.errors import CallerError, Corrupt, IoFailure
from storage.files import is_missing
from storage.kafka.tools.logs import log_replaced
from storage.kafka.tools.rows import Row
from storage.kafka.tools.view import View
from storage.model import TopicPartition

_T = TypeVar("_T")

LOOKS: Final = 5
"""How often in a row a partition is looked at without a new row, before it is left out."""

Rows = Callable[[View, int], Iterator[list[Row]]]
"""Returns the rows of a partition, in runs: those at or above an offset, by a view."""


def steady_runs(view: View, address: TopicPartition, rows: Rows, last: str) -> Iterator[list[Row]]:
    """Yield the rows of a partition in runs: see `steady_items`. `last`: the field with the last offset of a row."""

    def read(looked: View, start: int) -> Iterator[tuple[int, list[Row]]]:
        return ((run[-1][last] + 1, run) for run in rows(looked, start))

    return steady_items(view, address, read)


def steady(
    view: View, address: TopicPartition, work: Callable[[View], _T], *, again: bool = False
) -> _T | None:
    """Return the result of `work`, which looks at the whole partition in one view, and whose files stayed the same
    meanwhile. `again`: a look by `view` has failed already.

    None: the partition changes too fast, or was deleted. It is left out, with the finding `changed-meanwhile`.
    """

    def read(looked: View, start: int) -> Iterator[tuple[int, _T]]:
        if address not in looked.folders:
            raise log_replaced(view.folders[address])
        done = work(looked)
        if looked.is_changed(address):
            raise log_replaced(looked.folders[address])
        yield start, done

    with closing(steady_items(view, address, read, again=again)) as found:
        return next(found, None)


def steady_items(
    view: View,
    address: TopicPartition,
    read: Callable[[View, int], Iterator[tuple[int, _T]]],
    *,
    again: bool = False,
) -> Generator[_T]:
    """Yield what `read` yields of a partition, each offset once: items at or after an offset, by a view, each with the
    offset after it.

    A partition that changes too fast, or was deleted, is left out from there on, with the finding `changed-meanwhile`.
    """
    start, looks_left = 0, LOOKS
    looked = view.again() if again else view
    try:
        while True:
            looks_left -= 1
            try:
                for following, item in read(looked, start):
                    yield item
                    start, looks_left = following, LOOKS
            except (Corrupt, IoFailure, CallerError) as error:
                if not _is_change(looked, address, error):
                    raise
                if not looks_left:
                    _leave_out(view, address, error)
                    return
            else:
                return
            _end(looked, view)
            looked = view.again()
    finally:
        _end(looked, view)


def _is_change(view: View, address: TopicPartition, error: Exception) -> bool:
    """Return whether an error of a read has its cause in files that were replaced or removed meanwhile."""
    if isinstance(error, IoFailure) and is_missing(error):
        return True
    return address not in view.folders or view.is_changed(address)


def _leave_out(view: View, address: TopicPartition, error: Exception) -> None:
    if isinstance(error, IoFailure) and is_missing(error):
        view.note_gone(address, error)
    else:
        view.note_changed(address)


def _end(looked: View, view: View) -> None:
    """Close a fresh view; what it noted is noted in the first one."""
    if looked is not view:
        view.notes.add(*looked.notes.all())
        with suppress(IoFailure):
            looked.close()
