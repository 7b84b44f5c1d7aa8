"""The load generator itself: its counts, and that an open loop includes the requests delayed by a stall."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest

from logserver.bench import load_loops
from logserver.bench.load_loops import (
    Closed,
    ConnectionLost,
    Open,
    histogram,
    latency_of,
    named_timeout,
)
from logserver.bench.wire import Address, call, request
from logserver.errors import StrangeAnswer

REQUEST = request("POST", "/t", headers={"X": "y"}, body=b"body")
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
STALL_S = 0.3

Answering = Callable[[int], tuple[float, Sequence[bytes]]]


@asynccontextmanager
async def server(answering: Answering) -> AsyncIterator[Address]:
    """Run a server that reads REQUEST after REQUEST.

    `answering(n)`: the delay in seconds before the n-th answer of a connection, and that answer in pieces. Without
    pieces the server closes the connection.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(1_000_000):
            try:
                await reader.readexactly(len(REQUEST))
                think_s, pieces = answering(number)
                await asyncio.sleep(think_s)
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            if not pieces:
                break
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield Address(*listening.sockets[0].getsockname()[:2])


def at_once(number: int) -> tuple[float, Sequence[bytes]]:
    return 0.0, [ANSWER]


async def test_a_closed_loop_counts_what_was_answered() -> None:
    async with server(at_once) as address:
        sample = await Closed([REQUEST], seconds=30, most=100).run(address, 3)
    assert (sample.answered, sample.refused, sample.received_bytes) == (100, 0, 500)
    assert len(sample.latencies_ns) == 100
    assert 0 < min(sample.latencies_ns) <= max(sample.latencies_ns) <= sample.seconds * 1e9


async def test_a_closed_loop_ends_in_time() -> None:
    async with server(at_once) as address:
        sample = await Closed([REQUEST], seconds=0.05, most=1_000_000).run(address, 2)
    assert 0.05 <= sample.seconds < 5
    assert sample.answered == len(sample.latencies_ns) > 0


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An open loop that never gives up: a short loop would if the machine stalls for a moment."""
    monkeypatch.setattr(load_loops, "LATE", 1000)


@pytest.mark.usefixtures("patient")
async def test_refusals_are_counted_apart() -> None:
    def answering(number: int) -> tuple[float, Sequence[bytes]]:
        if number % 2:
            return 0.0, [b"HTTP/1.1 507 Full\r\ncontent-length: 2\r\n\r\n{}"]
        return 0.0, [ANSWER]

    async with server(answering) as address:
        sample = await Closed([REQUEST], seconds=30, most=10).run(address, 1)
    assert (sample.answered, sample.refused, sample.good) == (10, 5, 5)
    assert sample.refusals == "5 of 10 requests were refused, the last with 507"
    assert len(sample.latencies_ns) == 5  # an immediate refusal is not a fast answer
    async with server(answering) as address:
        opened = await Open([REQUEST], seconds=0.1, rate=100).run(address, 1)
    assert (opened.good, len(opened.latencies_ns), len(opened.services_ns)) == (5, 5, 5)


@pytest.mark.slow
@pytest.mark.parametrize("cut", range(1, len(ANSWER)))
async def test_an_answer_may_come_in_pieces(cut: int) -> None:
    async with server(lambda number: (0.0, [ANSWER[:cut], ANSWER[cut:]])) as address:
        sample = await Closed([REQUEST], seconds=30, most=2).run(address, 1)
    assert (sample.answered, sample.refused, sample.received_bytes) == (2, 0, 10)


@pytest.mark.parametrize(
    "turn", [partial(Closed, seconds=30, most=10), partial(Open, seconds=30, rate=1000)]
)
async def test_a_server_that_hangs_up_ends_the_turn(turn: Callable[..., Closed | Open]) -> None:
    async with server(lambda number: (0.0, [ANSWER] if number < 3 else [])) as address:
        with pytest.raises(ConnectionLost):
            await turn([REQUEST]).run(address, 1)


@pytest.mark.usefixtures("patient")
async def test_an_open_loop_keeps_its_rate() -> None:
    async with server(at_once) as address:
        sample = await Open([REQUEST], seconds=0.5, rate=200).run(address, 2)
    assert (sample.answered, sample.unsent) == (100, 0)
    assert sample.seconds >= 0.495  # the last request is not due earlier


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("rate", "count"), [(20, 4), (4, 1)])
async def test_a_few_requests_are_not_more_than_their_rate(rate: int, count: int) -> None:
    """The last request is due an interval before the end: the answers by then came at the rate, not faster."""
    async with server(at_once) as address:
        sample = await Open([REQUEST], seconds=0.2, rate=rate).run(address, 1)
    assert sample.answered == count
    assert sample.good / sample.seconds <= rate


def stalls_once(number: int) -> tuple[float, Sequence[bytes]]:
    return STALL_S if number == 10 else 0.0, [ANSWER]


@pytest.mark.usefixtures("patient")
async def test_an_open_loop_corrects_for_what_a_stall_kept_from_being_sent() -> None:
    """Of 500 requests in a second 150 are due while the server stalls, but only one of them is in flight.

    Uncorrected, it was the only slow request.
    """
    async with server(stalls_once) as address:
        sample = await Open([REQUEST], seconds=1, rate=500).run(address, 1)
    assert sample.answered == 500
    stalled_us = STALL_S * 1e6
    corrected, own = latency_of(sample.latencies_ns), latency_of(sample.services_ns)
    assert corrected is not None
    assert own is not None
    assert (corrected.max_us or 0) >= stalled_us * 0.99
    assert (own.max_us or 0) >= stalled_us * 0.99
    waited = sum(value >= STALL_S / 2 * 1e9 for value in sample.latencies_ns)
    assert waited >= 70  # the requests that were due in the first half of the stall
    assert sum(value >= STALL_S / 2 * 1e9 for value in sample.services_ns) <= 3
    assert histogram(sample.latencies_ns).get_value_at_percentile(90) >= STALL_S / 2 * 1e9


async def test_a_closed_loop_hardly_sees_the_same_stall() -> None:
    async with server(stalls_once) as address:
        sample = await Closed([REQUEST], seconds=30, most=500).run(address, 1)
    assert sum(value >= STALL_S / 2 * 1e9 for value in sample.latencies_ns) <= 3


async def test_a_server_too_slow_for_the_rate_is_told() -> None:
    async with server(lambda number: (0.05, [ANSWER])) as address:
        sample = await Open([REQUEST], seconds=0.05, rate=1000).run(address, 1)
    assert sample.unsent > 0
    assert sample.answered + sample.unsent == 50
    assert len(sample.latencies_ns) == 50
    assert max(sample.latencies_ns) >= 0.2 * 1e9  # the requests waited until the loop gave up


def test_percentiles_are_those_of_all_values() -> None:
    low, high = range(1_000_000, 2_000_000, 1000), range(2_000_000, 3_000_000, 1000)
    wanted = {"p50_us": 2000, "p90_us": 2800, "p99_us": 2980, "p99_9_us": 2998, "max_us": 3000}
    found = latency_of(low, high)
    assert found is not None
    assert found.count == 2000
    for name, value in wanted.items():
        assert getattr(found, name) == pytest.approx(value, rel=0.002)
    assert latency_of([]) is None


@pytest.mark.parametrize("count", [1, 2, 60, 100, 101, 600, 999, 1000, 1001, 1400])
def test_a_percentile_is_not_below_its_share(count: int) -> None:
    """At least this share of the values is not above the percentile."""
    values = [number * 1_000_000 for number in range(1, count + 1)]
    found = latency_of(values)
    assert found is not None
    for told_us, per_mille in (
        (found.p50_us, 500),
        (found.p90_us, 900),
        (found.p99_us, 990),
        (found.p99_9_us, 999),
    ):
        assert told_us == pytest.approx(-(-count * per_mille // 1000) * 1000, rel=0.0009)


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "an answer is not HTTP/1.1: b'SSH-2"),
        (b"HTTP/1.1 x00 OK\r\n\r\n", "an answer is not HTTP/1.1"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "an answer has no Content-Length: .*Transfer-Encoding: chunked",
        ),
        (ANSWER + b"more", "an answer is 4 bytes longer than its Content-Length"),
    ],
)
async def test_a_strange_answer_is_told(answer: bytes, reported: str) -> None:
    async with server(lambda number: (0.0, [answer])) as address:
        with pytest.raises(ConnectionLost, match=reported):
            await Closed([REQUEST], seconds=30, most=10).run(address, 1)


async def test_a_server_that_hangs_up_behind_a_refusal_is_told_so() -> None:
    def answering(number: int) -> tuple[float, Sequence[bytes]]:
        return 0.0, [] if number else [b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"]

    async with server(answering) as address:
        with pytest.raises(
            ConnectionLost, match="closed a connection under load, after an answer 500"
        ):
            await Closed([REQUEST], seconds=30, most=10).run(address, 1)


async def test_a_call_beside_the_load_tells_a_strange_answer() -> None:
    async with server(lambda number: (0.0, [b"SSH-2.0-OpenSSH\r\n\r\n", b""])) as address:
        with pytest.raises(StrangeAnswer, match="POST /topics: the answer is not HTTP"):
            await asyncio.to_thread(call, address, "POST", "/topics")


async def test_what_takes_too_long_is_told() -> None:
    with pytest.raises(TimeoutError, match="requests have no answer after 0 s"):
        async with named_timeout(0.0, "requests have no answer"):
            await asyncio.Event().wait()
    with pytest.raises(TimeoutError, match="its own"):
        async with named_timeout(60.0, "requests have no answer"):
            raise TimeoutError("its own")
