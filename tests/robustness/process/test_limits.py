"""Limits of the process: few open files, files that may not grow, memory; and a second server on a store in use."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from api.kafka.apis import SERVED
from api.kafka.protocol.messages.metadata import MetadataRequest
from api.kafka.protocol.primitives import MAX_ITEMS
from storage import TopicPartition
from tests.robustness.process.backends import Backend
from tests.robustness.process.clients import Book, expect, produce
from tests.robustness.process.server import Client, Server, start
from tests.wire.harness import frame

DISK_FULL = 50701
PARTITIONS = 100
VALUE_BYTES = 1000
MB = 1 << 20
MAX_FRAME_BYTES = 4 * MB
MAX_IN_FLIGHT_BYTES = 16 * MB
OTHER_BYTES = (
    32 * MB
)  # of messages, answers and frames too small to be counted before they are whole
SMALL_FRAME_BYTES = 60_000
SENT_BYTES = 1 << 18
Figures = Callable[[str], None]


@contextmanager
def crowd(url: str, connections: int) -> Iterator[None]:
    """Hold this number of idle connections open."""
    parts = urlsplit(url)
    with ExitStack() as open_ones:
        for _ in range(connections):
            open_ones.enter_context(socket.create_connection((parts.hostname, parts.port or 0)))
        yield


@pytest.mark.parametrize("limit", [64, pytest.param(256, marks=pytest.mark.slow)])
def test_many_partitions_and_few_open_files(
    tmp_path: Path, backend: Backend, limit: int, figures: Figures
) -> None:
    """Files are rolled, read and checkpointed in turn while more clients connect than can be accepted."""
    data = tmp_path / "data"
    book = Book()
    options = (*backend.options, "--checkpoint-interval-ms=100")
    with Server(data, *options, open_files=limit) as server, server.client() as client:
        book.make_topic(client, "t", PARTITIONS)
        for number in range(PARTITIONS):
            put(book, client, number)
        with crowd(server.url, 2 * limit):
            for number in range(PARTITIONS):
                put(book, client, number)
        for _ in range(60):  # segments roll
            put(book, client, 0)
        assert expect(client.call("GET", "/readyz")).body["fenced"] is None
        book.check(client, whole_batches=backend.whole_batches)
        assert "open_files lowered" in server.stop()
    assert backend.is_clean(data)
    with Server(data, *options, open_files=limit) as server, server.client() as client:
        records = book.check(client, whole_batches=backend.whole_batches)
        server.kill()
    with Server(data, *options, open_files=limit) as server, server.client() as client:
        assert book.check(client, whole_batches=backend.whole_batches) == records
    figures(
        f"{limit} open files, {backend.name}: {PARTITIONS} partitions, {2 * limit} connections at once, "
        f"{records} records"
    )


def put(book: Book, client: Client, partition: int) -> None:
    """Produce one record and expect its acknowledgement."""
    sent = book.send(TopicPartition("t", partition), 1, size_bytes=VALUE_BYTES)
    expect(produce(book, client, sent))


@pytest.mark.slow
def test_files_that_may_not_grow(tmp_path: Path, backend: Backend, figures: Figures) -> None:
    """As on a full disk: a record that does not fit is refused, and the server continues once files may grow."""
    data = tmp_path / "data"
    book = Book()
    with Server(data, *backend.options) as server, server.client() as client:
        book.make_topic(client, "t", 1)
        for _ in range(5):
            put(book, client, 0)
        allow(server, 10_000)
        refused = put_until_refused(book, client)
        book.check(client, whole_batches=backend.whole_batches)
        assert put_until_refused(book, client) == 0
        assert expect(client.call("GET", "/readyz")).body["fenced"] is None
        allow(server, resource.RLIM_INFINITY)
        for _ in range(50):
            put(book, client, 0)
        server.stop()
    assert backend.is_clean(data)
    with Server(data, *backend.options) as server, server.client() as client:
        records = book.check(client, whole_batches=backend.whole_batches)
    figures(f"file size limit, {backend.name}: refused after {refused} records, {records} there")


def allow(server: Server, file_bytes: int) -> None:
    """Set the largest file size allowed to a running server."""
    resource.prlimit(
        server.process.pid, resource.RLIMIT_FSIZE, (file_bytes, resource.RLIM_INFINITY)
    )


def put_until_refused(book: Book, client: Client) -> int:
    """Send requests until one is refused; return the number of requests stored before."""
    for number in range(100):
        sent = book.send(TopicPartition("t", 0), 2, size_bytes=VALUE_BYTES)
        answer = produce(book, client, sent)
        if answer.status != 200:
            assert (answer.status, answer.body["error_code"]) == (507, DISK_FULL), answer
            assert "larger than allowed" in answer.body["message"]
            book.forget(sent)
            return number
    raise AssertionError("the files grew on")


@pytest.mark.slow
def test_a_store_has_one_server(tmp_path: Path, backend: Backend) -> None:
    """The second server reports the pid of the first and disturbs nothing; a kill frees the store at once."""
    data = tmp_path / "data"
    with Server(data, *backend.options) as server, server.client() as client:
        book = Book()
        book.make_topic(client, "t", 1)
        for _ in range(3):
            second = start(data, *backend.options)
            reported, errors = second.communicate(timeout=30)
            assert (second.returncode, reported) == (3, "")
            (line,) = errors.splitlines()
            assert line.startswith("error: ")
            assert f"is locked by process {server.process.pid}" in line
            assert line.endswith("[store-locked]")
            put(book, client, 0)
        server.kill()
        with Server(data, *backend.options) as third, third.client() as other:
            assert book.check(other, whole_batches=backend.whole_batches) == 3


def memory(server: Server) -> tuple[int, int]:
    """Return the resident size of a server in bytes, and its largest so far."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    fields = dict(line.split(":") for line in lines)
    now, peak = (int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    return now, peak


class Hostile:
    """Connections to the Kafka port of a server that stay open, and frames that claim much."""

    def __init__(self, server: Server, open_ones: ExitStack) -> None:
        assert server.kafka is not None
        host, port = server.kafka.rsplit(":", 1)
        self._address = host, int(port)
        self._open_ones = open_ones

    def connect(self) -> socket.socket:
        """Return a connection that stays open."""
        return self._open_ones.enter_context(socket.create_connection(self._address, timeout=30))

    def send_whole(self, data: bytes) -> None:
        """Send a frame by a connection of its own, and take what the server answers until it ends."""
        with (
            socket.create_connection(self._address, timeout=30) as client,
            suppress(ConnectionError),  # the server ends it, at the latest after the answer
        ):
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while client.recv(MB):
                pass

    def send_most(self, count: int, size_bytes: int) -> None:
        """Send frames that lack their last byte, on many connections at once, as far as the server takes them."""
        left = {}
        for _ in range(count):
            client = self.connect()
            client.sendall(size_bytes.to_bytes(4))
            client.setblocking(False)
            left[client] = size_bytes - 1
        for _ in range(2 * size_bytes // SENT_BYTES + 1):
            for client, size in left.items():
                with suppress(BlockingIOError):
                    left[client] -= client.send(bytes(min(size, SENT_BYTES)))
            self.check_served()

    def check_served(self) -> None:
        """Check that another client is served."""
        with socket.create_connection(self._address, timeout=30) as client:
            client.sendall(frame(MetadataRequest(topics=[]), 12))
            assert client.recv(4)


def wrong_frames() -> Iterator[bytes]:
    """Yield counts and lengths that no frame holds, for each API, and as many array items as a message may have."""
    wrong = (
        b"\x7f\xff\xff\xff" * 8,
        b"\xff\xff\xff\xff\x0f" * 8,
        b"\0\3\xff\xff" * 50_000,
        b"\2" * 1000,  # arrays of one item, as deep as the message has them
    )
    bodies = [
        struct.pack(">hhih", key, version, 1, -1) + rest
        for key, served in SERVED.items()
        for version in (served.first, served.last)
        for rest in wrong
    ]
    for count in (MAX_ITEMS - 1, MAX_ITEMS, MAX_ITEMS + 1):
        start = struct.pack(">hhihi", MetadataRequest.API_KEY, 1, 1, -1, count)
        bodies.append(start + bytes(2 * count))
    for body in bodies:
        yield len(body).to_bytes(4) + body


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_after_hostile_frames(tmp_path: Path, backend: Backend, figures: Figures) -> None:
    """More than at its start, a process holds the bytes in flight that it may have, and a bounded rest."""
    options = (
        *(*backend.options, "--listen-kafka=127.0.0.1:0"),
        *(f"--max-body-bytes={MAX_FRAME_BYTES}", f"--max-in-flight-bytes={MAX_IN_FLIGHT_BYTES}"),
    )
    with Server(tmp_path / "data", *options) as server, ExitStack() as open_ones:
        hostile = Hostile(server, open_ones)
        hostile.check_served()
        begun, _ = memory(server)
        for data in wrong_frames():
            hostile.send_whole(data)
        hostile.send_most(60, MAX_FRAME_BYTES)
        hostile.send_most(200, SMALL_FRAME_BYTES)
        now, peak = memory(server)
    more, most = now - begun, peak - begun
    figures(
        f"hostile frames, {backend.name}: {more / MB:.0f} MB more than at the start, at most {most / MB:.0f}"
    )
    assert more <= most <= MAX_IN_FLIGHT_BYTES + OTHER_BYTES
