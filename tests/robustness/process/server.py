"""`logserver serve` as a child process, and a blocking client for it.

Owns starting, stopping and calling the server; must not know the expected answers. A child is ended by its own pid
only.
"""

from __future__ import annotations

import http.client
import json
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.robustness.process.forked import Forked

JSON = "application/vnd.kafka.json.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
TIMEOUT_S = 30.0


class Answer(NamedTuple):
    """One answer; `body` is decoded."""

    status: int
    body: Any
    headers: Mapping[str, str]


class Client:
    """One connection, for one thread. Raises OSError or http.client.HTTPException when the server ends."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S)

    def call(self, method: str, path: str, body: object = None, *, kind: str = JSON) -> Answer:
        """Send one request; a body is sent as JSON of this embedded format."""
        data = None if body is None else json.dumps(body)
        headers = {"Accept": kind, "Content-Type": kind}
        self._connection.request(method, path, body=data, headers=headers)
        with self._connection.getresponse() as response:
            content = response.read()
            decoded = json.loads(content) if content else None
            return Answer(response.status, decoded, dict(response.headers))

    def produce(
        self, path: str, records: Sequence[Mapping[str, object]], *, kind: str = JSON
    ) -> Answer:
        """POST records to a topic or partition."""
        return self.call("POST", path, {"records": records}, kind=kind)

    def records(self, topic: str, partition: int, *, kind: str = JSON) -> list[dict[str, Any]]:
        """Return every record of a partition, read page by page."""
        path = f"/topics/{topic}/partitions/{partition}/records?max_records=5000&offset="
        found: list[dict[str, Any]] = []
        at = "earliest"
        while True:
            answer = self.call("GET", path + at, kind=kind)
            assert answer.status == 200, answer
            following = answer.headers["X-Next-Offset"]
            found += answer.body
            if following in (at, answer.headers["X-End-Offset"]):
                return found
            at = following

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def start(
    data: Path,
    *options: str,
    open_files: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Forked:
    """Start a server process; `open_files`: a limit of the process."""
    command = ["serve", "--listen", "127.0.0.1:0", "--data", str(data), *options]
    return Forked(command, open_files=open_files, environment=environment)


class Server:
    """A running server.

    The constructor returns once it serves; the end of the `with` block kills it if it still runs.
    """

    def __init__(
        self,
        data: Path,
        *options: str,
        open_files: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """See `start`."""
        self.data = data
        self.errors = ""  # the content of standard error, once it has ended
        self.process = start(data, *options, open_files=open_files, environment=environment)
        line = self.process.stdout.readline()
        assert line, f"did not start: {self.process.communicate()[1]}"
        started = json.loads(line)
        self.url: str = started["url"]
        # HOST:PORT for Kafka clients, if they are served.
        self.kafka: str | None = started.get("kafka")

    def client(self) -> Client:
        """Return a new connection."""
        return Client(self.url)

    def kill(self) -> None:
        """Send SIGKILL, as the machine's OOM killer does."""
        self._end(signal.SIGKILL)

    def stop(self) -> str:
        """Send SIGTERM; the server must end with 0. Return the content of standard error."""
        errors = self._end(signal.SIGTERM)
        assert self.process.returncode == 0, errors
        assert "Traceback" not in errors, errors
        return errors

    def _end(self, number: int) -> str:
        self.process.send_signal(number)
        _, self.errors = self.process.communicate(timeout=TIMEOUT_S)
        return self.errors

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()
