"""Readers of an HTTP server: each follows one partition over a connection of its own, page after page.

Owns the offsets it is at, and the note of when each page came; must not know who publishes. `end_to_end_ns` joins both.
"""

from __future__ import annotations

import asyncio
import re
import time
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from logserver.bench.loops import ConnectionLost
from logserver.bench.shapes import Fetch, filled
from logserver.bench.wire import Address, Connection, connect, request

PAGE_RECORDS: Final = 1000
WAIT_MS: Final = (
    200  # at the end of a partition; so long a reader may go on after it was told to stop
)
EMPTY_WAIT_S: Final = 0.01  # before a server without long polls is asked again
_OFFSET: Final = "{offset}"


class Noted(NamedTuple):
    """A page: where to read on behind it, and when it was there."""

    next_offset: int
    at_ns: int


class Reader:
    """One of them, from `offset` on. It ends at `until`, or, without, when it is told where the end is."""

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
        """That it has got."""
        return self._offset - self._first

    async def run(self, address: Address) -> None:
        """Until its end. Raises OSError, ConnectionLost."""
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
        """There is nothing behind `end`. A reader that is there already ends with its next page."""
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
    """The request before and behind its offset."""
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
    """Where and when the first record of each request was published, as answers tell it."""

    def __init__(self, placed: str, topics: Sequence[str]) -> None:
        self.noted: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self._placed = re.compile(placed.encode()) if placed else None
        self._topics = topics

    def watch(self, connection: Connection) -> None:
        """See an answer."""
        found = None if self._placed is None else self._placed.search(connection.body())
        if found is not None:
            topic = self._topics[connection.number % len(self._topics)]
            place = (topic, int(found[1]))
            self.noted.setdefault(place, []).append((int(found[2]), connection.due_ns))


def end_to_end_ns(published: Sequence[tuple[int, int]], pages: Sequence[Noted]) -> list[int]:
    """Of each (offset, due_ns) that was published: how long until a page had it. What no page had is left out."""
    ends = [page.next_offset for page in pages]
    found = []
    for offset, due_ns in published:
        at = bisect_right(ends, offset)
        if at < len(pages):
            found.append(pages[at].at_ns - due_ns)
    return found
