"""Failing system calls of a real server, with the required results.

A failed write or sync fences the store. A full disk refuses requests but does not fence. A short write has no effect.
After a restart every acknowledged record exists, and no refused record.

`faults.c` is preloaded into the server; the points below list the failing call and the result that the client sees.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from storage import TopicPartition
from tests.robustness.crash.history import TopicMade
from tests.robustness.process.backends import Backend
from tests.robustness.process.clients import Book, expect, produce
from tests.robustness.process.faults import SHORT, Faults, Rule
from tests.robustness.process.server import Answer, Client, Server

FENCED, FULL, UNSEEN = "fenced", "full", "unseen"
APPEND, CREATE, WAIT, STOP = "append", "create a topic", "wait", "stop"
CODES = {FENCED: (503, 50301), FULL: (507, 50701)}
VALUE_BYTES = 500
REQUESTS = 60  # enough for two log files and more
CHECKPOINTS = ("--checkpoint-interval-ms=200",)
# Only the stop may reach its fault: an earlier background pass would fence the store.
NO_UPKEEP = ("--checkpoint-interval-ms=3600000", "--flush-interval-ms=3600000")
PATIENCE_S = 20.0
Figures = Callable[[str], None]


class Point(NamedTuple):
    """A failing call (the rule's pattern is below the store), the server's operation meanwhile, and the outcome."""

    name: str
    rule: Rule
    doing: str
    outcome: str


def point(name: str, call: str, action: int, doing: str, outcome: str) -> Point:
    """Return a point. `call`: kind and path."""
    kind, path = call.split(" ")
    return Point(name, Rule(kind, path, action), doing, outcome)


KAFKA = [
    point("flush of an append", "sync t-0/*.log", errno.EIO, APPEND, FENCED),
    point("flush finds the disk full", "sync t-0/*.log", errno.ENOSPC, APPEND, FENCED),
    point("append", "write t-0/*.log", errno.EIO, APPEND, FENCED),
    point("append to a full disk", "write t-0/*.log", errno.ENOSPC, APPEND, FULL),
    point("index entry on a full disk", "write t-0/*.index", errno.ENOSPC, APPEND, FULL),
    point("index entry", "write t-0/*.timeindex", errno.EIO, APPEND, FENCED),
    point("indexes at a roll", "sync t-0/*index", errno.EIO, APPEND, FENCED),
    point("new segment on a full disk", "create t-0/*.log", errno.ENOSPC, APPEND, FULL),
    point("directory at a roll", "sync t-0", errno.EIO, APPEND, FENCED),
    point("producer snapshot at a roll", "write t-0/*.snapshot", errno.ENOSPC, APPEND, FULL),
    point("new topic on a full disk", "mkdir u-*", errno.ENOSPC, CREATE, FULL),
    point("new topic's files", "sync u-*", errno.EIO, CREATE, FENCED),
    point("checkpoint", "sync recovery-point*", errno.EIO, WAIT, FENCED),
    point("name of a checkpoint", "rename recovery-point*", errno.EIO, WAIT, FENCED),
    point("checkpoint on a full disk", "write recovery-point*", errno.ENOSPC, WAIT, UNSEEN),
    point("log at the stop", "sync t-0/*.log", errno.EIO, STOP, FENCED),
    point("mark of a clean stop", "create .kafka_cleanshutdown*", errno.ENOSPC, STOP, FULL),
    point("every write is short", "write *", SHORT, APPEND, UNSEEN),
]
LOG = "commitlog/0*"
ROCKETMQ = [
    point("flush of an append", f"sync {LOG}", errno.EIO, APPEND, FENCED),
    point("flush finds the disk full", f"sync {LOG}", errno.ENOSPC, APPEND, FENCED),
    point("append", f"write {LOG}", errno.EIO, APPEND, FENCED),
    point("append to a full disk", f"write {LOG}", errno.ENOSPC, APPEND, FULL),
    point("append over the quota", f"write {LOG}", errno.EDQUOT, APPEND, FULL),
    point("queue unit", "write consumequeue/*", errno.EIO, APPEND, FENCED),
    point("index entry", "write index/*", errno.EIO, APPEND, FENCED),
    point("new file on a full disk", f"truncate {LOG}", errno.ENOSPC, APPEND, FULL),
    point("directory of a new file", "sync commitlog", errno.EIO, APPEND, FENCED),
    point("new topic on a full disk", "write config/topics.json*", errno.ENOSPC, CREATE, FULL),
    point("new topic", "sync config/topics.json*", errno.EIO, CREATE, FENCED),
    point("queue at a checkpoint", "sync consumequeue/t/0/*", errno.EIO, WAIT, FENCED),
    point("checkpoint", "sync checkpoint*", errno.EIO, WAIT, FENCED),
    point("checkpoint on a full disk", "write checkpoint*", errno.ENOSPC, WAIT, UNSEEN),
    point("log at the stop", f"sync {LOG}", errno.EIO, STOP, FENCED),
    point("mark of a running server", "remove abort", errno.EIO, STOP, FENCED),
    point("every write is short", "write *", SHORT, APPEND, UNSEEN),
]
POINTS = [("kafka", point) for point in KAFKA] + [("rocketmq", point) for point in ROCKETMQ]
QUICK = {"flush of an append", "append to a full disk", "every write is short"}


class Case:
    """One server at one point."""

    def __init__(self, data: Path, backend: Backend, faults: Faults, client: Client) -> None:
        self.data = data
        self.backend = backend
        self.faults = faults
        self.client = client
        self.book = Book()

    def put(self, *, query: str = "") -> Answer:
        """Send one request; a request refused for lack of space counts as never sent."""
        sent = self.book.send(
            TopicPartition("t", 0), 2, size_bytes=VALUE_BYTES, durable=not query, keyed=self.keyed
        )
        answer = produce(self.book, self.client, sent, query=query)
        if answer.status == 507:
            self.book.forget(sent)
        return answer

    @property
    def keyed(self) -> bool:
        """Whether records have a key, which adds an index."""
        return self.backend.name == "rocketmq"

    def create(self) -> Answer:
        """Create another topic."""
        answer = self.client.call("PUT", "/topics/u", {"partitions": 2})
        if answer.status == 201:
            self.book.note(TopicMade("u", 2))
        return answer

    def until_refused(self, outcome: str) -> Answer:
        """Append until a request fails, or, if the outcome is UNSEEN, until the fault was reached.

        A checkpoint may reach the fault late.
        """
        deadline_s = time.monotonic() + PATIENCE_S
        answer, requests = self.put(), 1
        while answer.status == 200 and (outcome != UNSEEN or requests < REQUESTS or not self.met()):
            assert time.monotonic() < deadline_s, "the call is never made"
            answer, requests = self.put(), requests + 1
        return answer

    def until(self, outcome: str) -> None:
        """Wait for a call that fails in the background, and for its outcome."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not self.met() or (outcome == FENCED and not self.fenced()):
            assert time.monotonic() < deadline_s, "the call is never made"
            time.sleep(0.01)

    def fenced(self) -> object:
        """Return the reason why the store accepts no writes; None if it accepts them."""
        return self.client.call("GET", "/readyz").body["fenced"]

    def met(self) -> bool:
        """Return whether a call has failed."""
        return any(call.failed for call in self.faults.calls())

    def check(self) -> int:
        """Check the stored records; return their number."""
        return self.book.check(self.client, whole_batches=self.backend.whole_batches)

    def expect_fenced(self) -> None:
        """Check that no write is accepted, even after the disk works again, and that the stored records are served."""
        for _ in range(2):
            for refused in (self.put(), self.put(query="acks=1"), self.create()):
                assert (refused.status, refused.body["error_code"]) == CODES[FENCED], refused
            ready = self.client.call("GET", "/readyz")
            assert (ready.status, ready.body["disk_full"]) == (503, False)
            assert self.fenced()
            self.faults.end()

    def expect_going_on(self) -> None:
        """Check that the server works normally after the fault ends."""
        self.faults.end()
        assert self.fenced() is None
        for _ in range(REQUESTS):
            expect(self.put())
        if "u" not in self.book.history.topics:
            assert self.create().status == 201
        self.check()


@pytest.mark.parametrize(
    ("backend", "point"),
    [
        pytest.param(
            *(name, point),
            id=f"{name}-{point.name}",
            marks=[] if point.name in QUICK else pytest.mark.slow,
        )
        for name, point in POINTS
    ],
    indirect=["backend"],
)
def test_a_system_call_that_fails(
    tmp_path: Path, backend: Backend, point: Point, faults: Faults, figures: Figures
) -> None:
    data = tmp_path / "data"
    options = (*backend.options, *(NO_UPKEEP if point.doing == STOP else CHECKPOINTS))
    with (
        Server(data, *options, environment=faults.environment) as server,
        server.client() as client,
    ):
        case = Case(data, backend, faults, client)
        case.book.make_topic(client, "t", 1)
        for _ in range(3):
            expect(case.put())
        expect(case.put(query="acks=1"))
        faults.begin(point.rule._replace(pattern=f"{data}/{point.rule.pattern}"))
        if point.doing == STOP:
            stop_at(case, server, point)
        else:
            live_through(case, point)
            server.stop()
            assert backend.is_clean(data) == (point.outcome != FENCED)
    check_never_again(case, point)
    with Server(data, *backend.options) as server, server.client() as client:
        case.client = client
        records = case.check()
        expect(case.put())
        server.stop()
    figures(
        f"system call, {backend.name}: {point.name}: {point.rule}: {point.outcome}, {records} records"
    )


def live_through(case: Case, point: Point) -> None:
    """Do the operation that reaches the point; check the answers that the client sees then and later."""
    if point.doing == WAIT:
        case.until(point.outcome)
        answer = case.put() if point.outcome == FENCED else None
    else:
        answer = case.create() if point.doing == CREATE else case.until_refused(point.outcome)
    assert case.met(), "the call was never made"
    if point.outcome == UNSEEN:
        assert answer is None or answer.status == 200, answer
    else:
        assert answer is not None
        assert (answer.status, answer.body["error_code"]) == CODES[point.outcome], answer
    case.check()
    if point.outcome == FENCED:
        case.expect_fenced()
    else:
        case.expect_going_on()


def stop_at(case: Case, server: Server, point: Point) -> None:
    """Send SIGTERM; the stop must fail to be clean, and report that."""
    expect(case.put(query="acks=1"))
    server.process.terminate()
    _, errors = server.process.communicate(timeout=30)
    assert case.met()
    assert "Traceback" not in errors
    assert "error: " in errors
    assert server.process.returncode == 3
    assert not case.backend.is_clean(case.data)


def check_never_again(case: Case, point: Point) -> None:
    """Check that a failed sync is not repeated: a repeat would succeed, and prove nothing."""
    if point.rule.kind == "sync":
        failed = [call.path for call in case.faults.calls() if call.failed]
        assert len(failed) == len(set(failed)), failed
