"""Readers of an HTTP server: each follows one partition over its own connection, page after page.

Owns each reader's offset and the arrival time of each page; must not know the producers. `end_to_end_ns` joins both.
"""

from __future__ import annotations

import asyncio
import re
import time
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from logserver.bench.http_templates import Fetch, filled
from logserver.bench.load_loops import ConnectionLost
from logserver.bench.wire import Address, Connection, connect, request

PAGE_RECORDS: Final = 1000
WAIT_MS: Final = 200  # long-poll wait at the log end; a reader may run this long after `stop_at`
EMPTY_WAIT_S: Final = 0.01  # pause after an empty page: a server without long polls answers at once
_OFFSET: Final = "{offset}"


class Noted(NamedTuple):
    """A page: the next offset after it, and its arrival time."""

    next_offset: int
    at_ns: int


class Reader:
    """A reader of one partition from `offset`. It ends at `until`, or, if that is None, at the end set by `stop_at`."""

    def __init__(
        self, fetch: Fetch, topic: str, partition: int, *, offset: int, until: int | None
    ) -> None:
        self.topic, self.partition = topic, partition
        self.pages: list[Noted] = []
        self.refused = 0
        self._first = self._offset = offset
        self._until = until
        self._row = fetch.row.encode()
        name = re.escape(fetch.next_offset_header)
        self._next = re.compile(rf"\r\n{name}: *(\d+)".encode(), re.IGNORECASE) if name else None
        self._before, self._after = _split(fetch, topic, partition)
        self._ended: asyncio.Future[None]

    @property
    def records(self) -> int:
        """Number of records received."""
        return self._offset - self._first

    async def run(self, address: Address) -> None:
        """Read until the end. Raises OSError, ConnectionLost."""
        self._ended = asyncio.get_running_loop().create_future()
        connection = await connect(address, self._answered, self._lost, keeps=True)
        try:
            self._ask(connection)
            await self._ended
        finally:
            if not self._ended.done():
                self._ended.cancel()
            connection.transport.abort()

    def stop_at(self, end: int) -> None:
        """Set the offset to stop at. A reader that is already there ends after its next response."""
        self._until = end

    def _ask(self, connection: Connection) -> None:
        if self._until is not None and self._offset >= self._until:
            self._end()
        elif not self._ended.done():
            connection.transport.write(self._before + b"%d" % self._offset + self._after)

    def _answered(self, connection: Connection) -> None:
        now_ns = time.perf_counter_ns()
        if not 200 <= connection.status < 300:
            self.refused += 1
            self._end()
            return
        if self._next is None:
            reached = self._offset + connection.body().count(self._row)
        else:
            found = self._next.search(connection.head)
            reached = self._offset if found is None else int(found[1])
        if reached > self._offset:
            self._offset = reached
            self.pages.append(Noted(reached, now_ns))
            self._ask(connection)
        else:
            asyncio.get_running_loop().call_later(EMPTY_WAIT_S, self._ask, connection)

    def _lost(self, why: str) -> None:
        if not self._ended.done():
            self._ended.set_exception(ConnectionLost(f"a reader: {why}"))

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


def _split(fetch: Fetch, topic: str, partition: int) -> tuple[bytes, bytes]:
    """Return the parts of the fetch request before and after the offset."""
    values = {
        "topic": topic,
        "partition": partition,
        "offset": _OFFSET,
        "max_records": PAGE_RECORDS,
        "wait_ms": WAIT_MS,
    }
    path = filled(fetch.path, values)
    before, _, after = request(fetch.method, path, headers=fetch.headers).partition(
        _OFFSET.encode()
    )
    return before, after


class Published:
    """The offset and due time of the first record of each request, from the responses to published requests."""

    def __init__(self, placed: str, topics: Sequence[str]) -> None:
        self.noted: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self._placed = re.compile(placed.encode()) if placed else None
        self._topics = topics

    def watch(self, connection: Connection) -> None:
        """Note the partition and offset in a response, with the due time of its request."""
        found = None if self._placed is None else self._placed.search(connection.body())
        if found is not None:
            topic = self._topics[connection.number % len(self._topics)]
            place = (topic, int(found[1]))
            self.noted.setdefault(place, []).append((int(found[2]), connection.due_ns))


def end_to_end_ns(published: Sequence[tuple[int, int]], pages: Sequence[Noted]) -> list[int]:
    """Return, for each published (offset, due_ns), the nanoseconds until a page contained it. Records in no page are
    left out.
    """
    ends = [page.next_offset for page in pages]
    found = []
    for offset, due_ns in published:
        at = bisect_right(ends, offset)
        if at < len(pages):
            found.append(pages[at].at_ns - due_ns)
    return found
