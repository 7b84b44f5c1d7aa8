"""Load loops and their samples: a closed loop, or an open loop at a constant rate.

Owns the clock and the counts of one turn; must not know the content of requests.

Closed loop: each connection sends its next request when it has its response. A slow server gets fewer requests, and its
worst moments are hardly measured (coordinated omission).

Open loop: request i is due at i / rate whatever the server does, and waits if no connection is free. Latency counts
from the due time, so the figures include requests delayed by a stall.
"""

from __future__ import annotations

import asyncio
import gc
import math
import time
from array import array
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from typing import Final

from hdrh.histogram import HdrHistogram

from logserver.bench.result import Latency
from logserver.bench.wire import Address, Answered, Connection, connect

HIGHEST_NS: Final = 600 * 10**9
SIGNIFICANT_FIGURES: Final = 3
PERCENTILES: Final = {
    "p50_us": 50.0,
    "p90_us": 90.0,
    "p99_us": 99.0,
    "p99_9_us": 99.9,
    "max_us": 100.0,
}
SPIN_NS: Final = (
    2_000_000  # timers are too coarse for shorter waits: the loop polls the clock instead
)
LATE: Final = 5  # an open loop gives up after this many times its length
ANSWER_S: Final = 30.0  # how long after that responses may take before the turn fails


@dataclass(slots=True)
class Sample:
    """The sample of one turn. `latencies_ns` count from due to response; `services_ns` (open loop only) from sent to
    response. A refused request has neither: quick refusals would make a server that does nothing look fast.
    """

    seconds: float = 0.0  # of an open loop at least the time that its requests stand for
    answered: int = 0
    refused: int = 0  # responses that are not 2xx
    refused_with: int = 0  # the status of the last refusal
    unsent: int = 0  # of an open loop that gave up; `latencies_ns` has their wait until then
    received_bytes: int = 0  # bodies of responses
    generator_s: float = 0.0  # processor time of this process
    latencies_ns: array[int] = field(default_factory=lambda: array("q"))
    services_ns: array[int] = field(default_factory=lambda: array("q"))

    @property
    def good(self) -> int:
        """Number of 2xx responses."""
        return self.answered - self.refused

    @property
    def refusals(self) -> str:
        """The refusals as text for an error message; empty if there are none."""
        if not self.refused:
            return ""
        return f"{self.refused} of {self.answered} requests were refused, the last with {self.refused_with}"


def histogram(*values_ns: Sequence[int]) -> HdrHistogram:
    """Return a histogram of all values with three significant figures."""
    made = HdrHistogram(1, HIGHEST_NS, SIGNIFICANT_FIGURES)
    for values in values_ns:
        for value in values:
            made.record_value(min(max(value, 1), HIGHEST_NS))
    return made


def latency_of(*values_ns: Sequence[int]) -> Latency | None:
    """Return the percentiles of all values together; None if there are no values."""
    count = sum(len(values) for values in values_ns)
    if not count:
        return None
    made = histogram(*values_ns)
    found = {name: _value_at(made, at, count) / 1000 for name, at in PERCENTILES.items()}
    return Latency(count=count, **found)


def _value_at(made: HdrHistogram, percentile: float, count: int) -> int:
    """Return the smallest value that at least `percentile` percent of the values do not exceed.

    The library takes the nearest rank, which may be one too low: for p99.9 of 600 values, the second largest.
    """
    rank = math.ceil(percentile * count / 100 - 1e-9)
    return int(made.get_value_at_percentile(rank / count * 100))


class ConnectionLost(Exception):
    """A connection that ended during a turn: the server closed it, or its response was invalid."""


class Turn:
    """The common part of both loops: connections, requests and counts. A turn is used once.

    Requests are sent in a cycle; requests of an iterator are sent once. `watch` receives each 2xx response with its
    body. `number` counts requests from 0.
    """

    def __init__(
        self, requests: Iterable[bytes], seconds: float, watch: Answered | None = None
    ) -> None:
        self.sample = Sample()
        self._seconds = seconds
        self._least_s = 0.0
        self._requests = enumerate(requests if isinstance(requests, Iterator) else cycle(requests))
        self._watch = watch
        self._ended: asyncio.Future[None]
        self._connections: list[Connection] = []

    async def run(self, address: Address, concurrency: int) -> Sample:
        """Connect, measure and disconnect. Raises OSError, ConnectionLost, TimeoutError."""
        self._ended = asyncio.get_running_loop().create_future()
        try:
            for _ in range(concurrency):
                self._connections.append(
                    await connect(
                        address, self._answered, self._lost, keeps=self._watch is not None
                    )
                )
            with _undisturbed():
                began_s, used_s = time.perf_counter(), time.process_time()
                self._begin(self._connections)
                async with named_timeout(
                    self._seconds * LATE + ANSWER_S, "requests have no answer"
                ):
                    await self._ended
                self.sample.seconds = max(time.perf_counter() - began_s, self._least_s)
                self.sample.generator_s = time.process_time() - used_s
        finally:
            if not self._ended.done():
                self._ended.cancel()
            for connection in self._connections:
                connection.transport.abort()
        return self.sample

    def _begin(self, connections: Sequence[Connection]) -> None:
        raise NotImplementedError

    def _answered(self, connection: Connection) -> None:
        raise NotImplementedError

    def _send(self, connection: Connection, now_ns: int) -> None:
        connection.sent_ns = now_ns
        connection.number, request = next(self._requests)
        connection.transport.write(request)

    def _count(self, connection: Connection, now_ns: int) -> bool:
        """Count a response; return False if it is a refusal."""
        sample = self.sample
        sample.answered += 1
        sample.received_bytes += connection.size_bytes
        if not 200 <= connection.status < 300:
            sample.refused += 1
            sample.refused_with = connection.status
            return False
        sample.latencies_ns.append(now_ns - connection.due_ns)
        if self._watch is not None:
            self._watch(connection)
        return True

    def _lost(self, why: str) -> None:
        if not self._ended.done():
            self._ended.set_exception(ConnectionLost(why))


class Closed(Turn):
    """A closed loop of `seconds`, with at most `most` requests: each connection sends again when it has its
    response.
    """

    def __init__(
        self,
        requests: Iterable[bytes],
        *,
        seconds: float,
        most: int,
        watch: Answered | None = None,
    ) -> None:
        super().__init__(requests, seconds, watch)
        self._left = most
        self._until_ns = 0
        self._busy = 0

    def _begin(self, connections: Sequence[Connection]) -> None:
        now_ns = time.perf_counter_ns()
        self._until_ns = now_ns + round(self._seconds * 1e9)
        self._busy = len(connections)
        for connection in connections:
            self._next(connection, now_ns)

    def _next(self, connection: Connection, now_ns: int) -> None:
        if self._left > 0 and now_ns < self._until_ns:
            self._left -= 1
            connection.due_ns = now_ns
            self._send(connection, now_ns)
            return
        self._busy -= 1
        if not self._busy and not self._ended.done():
            self._ended.set_result(None)

    def _answered(self, connection: Connection) -> None:
        now_ns = time.perf_counter_ns()
        self._count(connection, now_ns)
        self._next(connection, now_ns)


class Open(Turn):
    """An open loop: `rate` requests a second for `seconds`, each at its due time."""

    def __init__(
        self,
        requests: Iterable[bytes],
        *,
        seconds: float,
        rate: float,
        watch: Answered | None = None,
    ) -> None:
        super().__init__(requests, seconds, watch)
        self._interval_ns = 1e9 / rate
        self._count_due = max(1, math.floor(rate * seconds))
        self._least_s = self._count_due / rate  # the last one is due one interval earlier
        self._begun_ns = 0
        self._give_up_ns = round(seconds * LATE * 1e9)
        self._sent = 0
        self._idle: deque[Connection] = deque()

    def _begin(self, connections: Sequence[Connection]) -> None:
        self._idle.extend(connections)
        self._begun_ns = time.perf_counter_ns()
        self._give_up_ns += self._begun_ns
        self._tick()

    def _due_ns(self, index: int) -> int:
        return self._begun_ns + int(index * self._interval_ns)

    def _tick(self) -> None:
        """Send the due requests while connections are free; schedule the next call for when the next request is due."""
        if self._ended.done():
            return
        now_ns = time.perf_counter_ns()
        while self._idle and self._send_due(self._idle[0], now_ns):
            self._idle.popleft()
        if now_ns > self._give_up_ns:
            self._give_up(now_ns)
        elif self._sent < self._count_due:
            loop = asyncio.get_running_loop()
            wait_ns = self._due_ns(self._sent) - now_ns
            if wait_ns > SPIN_NS or not self._idle:
                loop.call_later(max(wait_ns - SPIN_NS, SPIN_NS) / 1e9, self._tick)
            else:
                loop.call_soon(self._tick)

    def _send_due(self, connection: Connection, now_ns: int) -> bool:
        if self._sent >= self._count_due or (due_ns := self._due_ns(self._sent)) > now_ns:
            return False
        self._sent += 1
        connection.due_ns = due_ns
        self._send(connection, now_ns)
        return True

    def _answered(self, connection: Connection) -> None:
        now_ns = time.perf_counter_ns()
        if self._count(connection, now_ns):
            self.sample.services_ns.append(now_ns - connection.sent_ns)
        if self.sample.answered == self._count_due:
            if not self._ended.done():
                self._ended.set_result(None)
        elif not self._send_due(connection, now_ns):
            self._idle.append(connection)

    def _give_up(self, now_ns: int) -> None:
        """Give up: the server is too slow for the rate. Due requests that were never sent count as waiting until
        now.
        """
        for index in range(self._sent, self._count_due):
            self.sample.latencies_ns.append(now_ns - self._due_ns(index))
        self.sample.unsent = self._count_due - self._sent
        self._count_due = self._sent
        if self.sample.answered == self._sent:
            self._ended.set_result(None)


@asynccontextmanager
async def named_timeout(limit_s: float, what: str) -> AsyncIterator[None]:
    """Limit the time of a block. Raises TimeoutError if it expires; the message names `what`, the unfinished work."""
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(f"{what} after {limit_s:.0f} s") from error
        raise


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Disable the garbage collector during the block: a turn creates no reference cycles."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
