"""Limits of the process: few open files, files that may not grow; and a second server on a store in use."""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from storage import TopicPartition
from tests.robustness.process.backends import Backend
from tests.robustness.process.clients import Book, expect, produce
from tests.robustness.process.server import Client, Server, start

DISK_FULL = 50701
PARTITIONS = 100
VALUE_BYTES = 1000
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
            told, errors = second.communicate(timeout=30)
            assert (second.returncode, told) == (3, "")
            (line,) = errors.splitlines()
            assert line.startswith("error: ")
            assert f"is locked by process {server.process.pid}" in line
            assert line.endswith("[store-locked]")
            put(book, client, 0)
        server.kill()
        with Server(data, *backend.options) as third, third.client() as other:
            assert book.check(other, whole_batches=backend.whole_batches) == 3
