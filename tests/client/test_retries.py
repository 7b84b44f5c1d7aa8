"""Requests that are repeated, requests that are not, and the error for each failure."""

from __future__ import annotations

import asyncio
import socket

import pytest

from logserver.client import (
    LogClient,
    Record,
    Retry,
    ServerRefused,
    ServerUnreachable,
    StrangeAnswer,
)
from tests.client.stub import HANG_UP, answer, error, stub

QUICK = Retry(attempts=3, first_s=0.001)


@pytest.mark.parametrize("first", [HANG_UP, error(503, 50301), error(429, 42901, Retry_After="0")])
async def test_a_get_is_repeated(first: bytes) -> None:
    async with (
        stub([first, answer(200, ["t"])]) as server,
        LogClient(server.url, retry=QUICK) as one,
    ):
        assert await one.topics() == ["t"]
        assert server.lines == ["GET /topics"] * 2


@pytest.mark.parametrize("status", [429, 503])
async def test_a_write_is_repeated_where_the_server_did_nothing(status: int) -> None:
    answers = [error(status, status * 100 + 1, Retry_After="0"), answer(201, {})]
    async with stub(answers) as server, LogClient(server.url, retry=QUICK) as one:
        assert await one.create_topic("t")
        assert len(server.asked) == 2


@pytest.mark.parametrize("first", [error(503, 50301), error(504, 50401), error(429, 42901)])
async def test_a_write_of_unknown_outcome_is_not_repeated(first: bytes) -> None:
    async with stub([first]) as server, LogClient(server.url, retry=QUICK) as one:
        with pytest.raises(ServerRefused):
            await one.produce("t", "v")
        assert len(server.asked) == 1


@pytest.mark.parametrize("first", [HANG_UP, error(503, 50301)])
async def test_a_write_with_an_idempotency_key_is_repeated(first: bytes) -> None:
    stored = answer(200, {"offsets": [{"partition": 0, "offset": 7}]})
    async with stub([first, stored]) as server, LogClient(server.url, retry=QUICK) as one:
        placed = await one.produce_many("t", [Record(None, b"v")], idempotency_key="k")
        assert [place.offset for place in placed] == [7]
        assert ["Idempotency-Key: k\r\n" in head for head in server.asked] == [True, True]


async def test_a_write_without_an_answer_is_not_repeated() -> None:
    async with stub([HANG_UP]) as server, LogClient(server.url, retry=QUICK) as one:
        with pytest.raises(ServerUnreachable) as raised:
            await one.produce("t", "v")
        assert raised.value.facts() == {"url": server.url}
        assert len(server.asked) == 1


async def test_attempts_come_to_an_end() -> None:
    async with (
        stub([error(503, 50301)] * 3) as server,
        LogClient(server.url, retry=QUICK) as one,
    ):
        with pytest.raises(ServerRefused) as raised:
            await one.topics()
        assert raised.value.status == 503
        assert server.answers == []


async def test_other_errors_are_not_repeated() -> None:
    body = {"error_code": 41601, "message": "no", "earliest": 1, "latest": 3}
    async with stub([answer(416, body)]) as server, LogClient(server.url, retry=QUICK) as one:
        with pytest.raises(ServerRefused, match=r"^no$") as raised:
            await one.fetch("t", offset=9)
    assert raised.value.error_code == 41601
    assert raised.value.facts() == {
        "status": 416,
        "error_code": 41601,
        "earliest": 1,
        "latest": 3,
    }


@pytest.mark.parametrize(
    "strange",
    [answer(200, b"<html>"), answer(200, {"no": "list"}), answer(502, b"Bad Gateway")],
)
async def test_not_a_log_server(strange: bytes) -> None:
    async with stub([strange]) as server, LogClient(server.url, retry=QUICK) as one:
        with pytest.raises(StrangeAnswer):
            await one.topics()


async def test_a_page_that_does_not_tell_where_to_read_on() -> None:
    async with stub([answer(200, [])]) as server, LogClient(server.url, retry=QUICK) as one:
        with pytest.raises(StrangeAnswer, match="where to read on"):
            await one.fetch("t")


async def test_nobody_there() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"  # bound, without a listener
        async with LogClient(url, retry=QUICK) as one:
            with pytest.raises(ServerUnreachable, match=r"gives no answer: Connection refused$"):
                await one.topics()


async def test_an_answer_that_does_not_come() -> None:
    silent = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silent.wait()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        once = Retry(attempts=1)
        async with LogClient(f"http://{host}:{port}", timeout_s=0.05, retry=once) as one:
            with pytest.raises(ServerUnreachable, match="no answer in time"):
                await one.topics()
        silent.set()


async def test_the_token_goes_along() -> None:
    async with stub([answer(200, [])]) as server, LogClient(server.url, token="s3cret") as one:
        await one.topics()
        assert "Authorization: Bearer s3cret\r\n" in server.asked[0]


@pytest.mark.parametrize(
    ("attempt", "retry_after", "low", "high"),
    [
        (1, None, 0.05, 0.1),
        (3, None, 0.2, 0.4),
        (20, None, 2.5, 5.0),
        (1, "3", 3, 3),
        (1, "900", 5, 5),
        (1, "soon", 0.05, 0.1),
    ],
)
def test_pauses(attempt: int, retry_after: str | None, low: float, high: float) -> None:
    for _ in range(20):
        assert low <= Retry().pause_s(attempt, retry_after) <= high


async def test_warnings_of_the_server_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    answers = [
        answer(200, ["t"], X_Warnings=text)
        for text in ("times are ahead: records[0]", "times are ahead: records[7]", "other: x")
    ]
    async with stub(answers) as server, LogClient(server.url) as one:
        for _ in answers:
            await one.topics()
    said = [record.getMessage() for record in caplog.records if "warns" in record.getMessage()]
    assert said == [
        "the server warns: times are ahead: records[0]",
        "the server warns: other: x",
    ]
