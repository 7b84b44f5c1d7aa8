"""The bytes of one file of the overlay: pages written in memory over a read-only base file.

Owns the value of each byte of such a file; must not know names or directories, nor write to the base. A byte below the
end is read from the first of these that applies:

    in a page that was written          the page's
    below `visible_bytes` of the base   the base's, read on demand
    else                                zero: extending costs no memory

`visible_bytes` starts as the length of the base file when it was first seen, so the growth of a live base is not
visible. It only decreases, at a truncation: bytes that were cut do not reappear when the file grows again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

from storage.files.fs import File

PAGE_SIZE = 4096


class Content:
    """The bytes of one file, independent of its name. Thread-safe.

    `base_path` is the path of the base file (None: created in memory); `mtime_ms` is None until the bytes change. The
    handle of the base file is an argument, because every open file has its own.
    """

    __slots__ = (
        "_lock",
        "_pages",
        "base_path",
        "base_size_bytes",
        "mtime_ms",
        "size_bytes",
        "visible_bytes",
    )

    def __init__(self, base_path: Path | None, base_size_bytes: int, mtime_ms: int | None) -> None:
        self.base_path = base_path
        self.base_size_bytes = base_size_bytes
        self.mtime_ms = mtime_ms
        # Written under `_lock`, read without it: each value is one int that was valid at some moment.
        self.size_bytes = base_size_bytes
        self.visible_bytes = base_size_bytes
        self._pages: dict[int, bytearray] = {}
        self._lock = threading.Lock()

    @property
    def touched(self) -> bool:
        """True if the bytes may differ from the base's."""
        return bool(self._pages) or not (
            self.visible_bytes == self.base_size_bytes == self.size_bytes
        )

    def read(self, base: File | None, size_bytes: int, position: int) -> bytes:
        """Read as File.pread, at one moment: a concurrent write or truncation is visible as a whole or not at all."""
        with self._lock:
            end = min(position + size_bytes, self.size_bytes)
            if end <= position:
                return b""
            visible_end = min(end, self.visible_bytes)
            pages = self._written_between(position, end)
            if len(pages) == 1 and len(pages[0][1]) == end - position:
                return pages[0][1]
        # The base's bytes below `visible_bytes` do not change, so they are read without the lock.
        data = _read_base(base, position, visible_end)
        if not pages and len(data) == end - position:
            return data
        buffer = bytearray(end - position)
        buffer[: len(data)] = data
        for start, piece in pages:
            buffer[start - position : start - position + len(piece)] = piece
        return bytes(buffer)

    def data_end(self, base: File | None, start: int) -> int:
        """Return the position as File.data_end."""
        with self._lock:
            written = (max(self._pages) + 1) * PAGE_SIZE if self._pages else 0
            visible, size_bytes = self.visible_bytes, self.size_bytes
        below = base.data_end(start) if base is not None and start < visible else start
        return max(min(max(min(below, visible), written), size_bytes), start)

    def next_data(self, base: File | None, start: int) -> int:
        """Return the position as File.next_data."""
        with self._lock:
            visible, size_bytes = self.visible_bytes, self.size_bytes
            first = start // PAGE_SIZE
            written = min((n for n in self._pages if n >= first), default=None)
        found = size_bytes
        if base is not None and start < visible:
            below = base.next_data(start)
            found = below if below < visible else size_bytes
        if written is not None:
            found = min(found, written * PAGE_SIZE)
        return max(found, start)

    def write(self, base: File | None, data: bytes, position: int) -> None:
        """Write as File.pwrite."""
        view = memoryview(data)
        with self._lock:
            done = 0
            while done < len(view):
                number, start = divmod(position + done, PAGE_SIZE)
                count = min(PAGE_SIZE - start, len(view) - done)
                page = self._page(base, number, whole=count == PAGE_SIZE)
                page[start : start + count] = view[done : done + count]
                done += count
            if done:
                self.size_bytes = max(self.size_bytes, position + done)

    def truncate(self, size_bytes: int) -> None:
        """Truncate as File.truncate."""
        with self._lock:
            if size_bytes < self.size_bytes:
                last, start = divmod(size_bytes, PAGE_SIZE)
                self._pages = {n: page for n, page in self._pages.items() if n <= last}
                if last in self._pages:
                    self._pages[last][start:] = bytes(PAGE_SIZE - start)
                self.visible_bytes = min(self.visible_bytes, size_bytes)
            self.size_bytes = size_bytes

    def _written_between(self, position: int, end: int) -> list[tuple[int, bytes]]:
        """Return copies of the written bytes within a range, each with its position."""
        if not self._pages:
            return []
        first, last = position // PAGE_SIZE, (end - 1) // PAGE_SIZE
        numbers: Iterable[int] = range(first, last + 1)
        if len(self._pages) < last + 1 - first:
            numbers = [n for n in self._pages if first <= n <= last]
        found = []
        for number in numbers:
            page = self._pages.get(number)
            if page is not None:
                start = number * PAGE_SIZE
                low, high = max(start, position), min(start + PAGE_SIZE, end)
                found.append((low, bytes(memoryview(page)[low - start : high - start])))
        return found

    def _page(self, base: File | None, number: int, *, whole: bool) -> bytearray:
        """Return the page to write to, copied from the base unless it will be overwritten as a whole."""
        page = self._pages.get(number)
        if page is None:
            page = bytearray(PAGE_SIZE)
            if not whole:
                start = number * PAGE_SIZE
                data = _read_base(base, start, min(start + PAGE_SIZE, self.visible_bytes))
                page[: len(data)] = data
            self._pages[number] = page
        return page


def _read_base(base: File | None, position: int, end: int) -> bytes:
    """Return the base's bytes in [position, end); fewer if the base has shrunk since, and the caller reads zeros for
    them.
    """
    return base.pread(end - position, position) if base is not None and end > position else b""
