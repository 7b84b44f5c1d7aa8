"""Requests to one server: connections, time-outs, retries, and errors as exceptions.

Owns all HTTP on the client's side; must not know topics or records. A request is repeated only if that is safe: a GET
after any temporary failure, any other request only if the answer has a Retry-After. By this header the server says
that it has done nothing.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ssl import SSLCertVerificationError, SSLContext, SSLError
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from yarl import URL

from logserver.client.values import ErrorBody
from logserver.errors import ServerRefused, ServerUnreachable, StrangeAnswer
from logserver.validation import in_words
from storage.errors import InvalidArgument

T = TypeVar("T")

log: Final = logging.getLogger(__name__)

JSON: Final = "application/json"
BINARY_JSON: Final = "application/vnd.kafka.binary.v2+json"
V2_JSON: Final = "application/vnd.kafka.v2+json"
RECORD_BATCH: Final = "application/vnd.kafka.recordbatch.v2"
NDJSON: Final = "application/x-ndjson"

Query: TypeAlias = Mapping[str, object]

_MAY_PASS: Final = frozenset({429, 503})
_LARGE_BYTES: Final = 1 << 20
_WARNINGS: Final = "X-Warnings"
_FAILURES: Final = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class Retry:
    """The number of attempts of a request, and the pauses between them.

    Each pause is twice the pause before; half of it is random, so that many clients do not return at the same time.
    """

    attempts: int = 5
    first_s: float = 0.1
    most_s: float = 5.0

    def pause_s(self, attempt: int, retry_after: str | None) -> float:
        """Return the pause after this attempt (counted from 1), in seconds."""
        grown_s = min(self.first_s * float(2 ** (attempt - 1)), self.most_s)
        asked_s = float(retry_after) if retry_after is not None and retry_after.isdigit() else 0.0
        return max(min(asked_s, self.most_s), grown_s * random.uniform(0.5, 1.0))


class Response(NamedTuple):
    """An HTTP answer, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def decoded(self, kind: type[T]) -> T:
        """Decode the JSON body as `kind`. Raises StrangeAnswer."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except msgspec.DecodeError as error:
            problem = in_words(error, kind, self.body, whole="the body")
            raise StrangeAnswer(
                f"the answer is not what a log server gives: {problem}", status=self.status
            ) from None


class Transport:
    """One server and the connections to it. Calls may run concurrently."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        timeout_s: float,
        retry: Retry,
        tls: SSLContext | None,
    ) -> None:
        _check_address(url)
        self.url = url.rstrip("/")
        self._token = token
        self._tls = tls
        self._timeout_s = timeout_s
        self._retry = retry
        self._session: aiohttp.ClientSession | None = None
        self._warned: set[str] = set()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The connections, opened at the first use."""
        if self._session is None or self._session.closed:
            headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
            # Each followed partition uses one connection; the server limits their number.
            connector = aiohttp.TCPConnector(limit=0, ssl=self._tls or True)
            self._session = aiohttp.ClientSession(headers=headers, connector=connector)
        return self._session

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        wait_ms: int = 0,
        repeatable: bool | None = None,
        idempotency_key: str | None = None,
    ) -> Response:
        """Send one request and return its answer; repeat it if that is safe.

        `wait_ms`: the time that the server itself may wait. `repeatable`: whether a repeat has no further effect; by
        default true for a GET and for a request with an idempotency key.

        Raises ServerRefused, ServerUnreachable.
        """
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        if repeatable is None:
            repeatable = method == "GET" or idempotency_key is not None
        url = self._address(path, query or {})
        for attempt in range(1, self._retry.attempts + 1):
            is_last = attempt == self._retry.attempts
            try:
                answer = await self._once(method, url, headers, body, wait_ms=wait_ms)
            except ServerUnreachable:
                if is_last or not repeatable:
                    raise
                retry_after = None
            else:
                retry_after = answer.headers.get("Retry-After")
                if answer.status < 400:
                    self._pass_on_warnings(answer)
                    return answer
                may_pass = answer.status in _MAY_PASS and (repeatable or retry_after is not None)
                if is_last or not may_pass:
                    raise refusal(answer.status, answer.body, self.url)
            await asyncio.sleep(self._retry.pause_s(attempt, retry_after))
        raise ServerUnreachable(f"{self.url} was not asked: attempts is 0", url=self.url)

    def _pass_on_warnings(self, answer: Response) -> None:
        """Log what the server warns of, such as a time far in the future: each problem once."""
        text = answer.headers.get(_WARNINGS)
        if text is not None and (problem := text.partition(":")[0]) not in self._warned:
            self._warned.add(problem)
            log.warning("the server warns: %s", text)

    async def json(self, kind: type[T], method: str, path: str, **options: Any) -> T:
        """Make a call with a JSON answer of this kind. Raises what `call` raises, and StrangeAnswer."""
        return (await self.call(method, path, **options)).decoded(kind)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: AsyncIterator[bytes] | None = None,
        headers: Mapping[str, str],
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Send a request and yield its answer as it arrives; only the connect has a timeout.

        Raises ServerRefused, ServerUnreachable.
        """
        url = self._address(path, query or {})
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout_s)
        try:
            async with self.session.request(
                method, url, data=body, headers=headers, timeout=timeout
            ) as response:
                if response.status >= 400:
                    raise refusal(response.status, await response.read(), self.url)
                yield response.content
        except _FAILURES as error:
            raise self._unreachable(error) from None

    def _address(self, path: str, query: Query) -> URL:
        chosen = {name: _text(value) for name, value in query.items() if value is not None}
        joint = "&" if "?" in path else "?"
        tail = joint + urlencode(chosen, quote_via=quote) if chosen else ""
        return URL(f"{self.url}{path}{tail}", encoded=True)

    async def _once(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None, *, wait_ms: int
    ) -> Response:
        timeout = aiohttp.ClientTimeout(total=self._timeout_s + wait_ms / 1000)
        # aiohttp warns about large bytes objects; a file object sends the same bytes.
        data = io.BytesIO(body) if body is not None and len(body) > _LARGE_BYTES else body
        try:
            async with self.session.request(
                method, url, data=data, headers=headers, timeout=timeout
            ) as response:
                return Response(response.status, response.headers, await response.read())
        except _FAILURES as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: BaseException) -> ServerUnreachable:
        return ServerUnreachable(f"{self.url} gives no answer: {_reason(error)}", url=self.url)


def _reason(error: BaseException) -> str:
    """Return in words why a request got no answer."""
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error  # aiohttp's text mentions TLS also without TLS
    tls = error if isinstance(error, SSLError) else error.__cause__
    if isinstance(tls, SSLError):
        return _tls_reason(tls)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "Server disconnected. An HTTPS port needs https://, a port for Kafka clients -b HOST:PORT"
    number = getattr(error, "errno", None) or 0
    reason = getattr(error, "strerror", None) or str(error)
    if number > 0:
        reason = os.strerror(number)  # asyncio's own text repeats the address
    if not reason and isinstance(error, TimeoutError):
        reason = "no answer in time"
    return reason or type(error).__name__


def _tls_reason(error: SSLError) -> str:
    """Return in words why TLS failed. The number of such an error is not one of the system."""
    if isinstance(error, SSLCertVerificationError):
        problem = error.verify_message.rstrip(".")
        hint = "" if "mismatch" in problem else "; --ca-file names the authority to trust"
        return f"its certificate is not accepted: {problem}{hint}"
    problem = (error.reason or "unknown reason").replace("_", " ").lower()
    hints = {"WRONG_VERSION_NUMBER": "; a port without TLS needs http://"}
    if "CERTIFICATE_REQUIRED" in (error.reason or ""):
        hints[error.reason] = "; --cert-file names the certificate to show"
    return f"TLS fails: {problem}{hints.get(error.reason, '')}"


async def lines_of(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, however long, without blank lines."""
    rest = b""
    async for data in content.iter_any():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
    if rest.strip():
        yield rest


def topic_path(topic: str) -> str:
    """Return the path of a topic."""
    return f"/topics/{segment(topic)}"


def partition_path(topic: str, partition: int) -> str:
    """Return the path of a partition."""
    return f"{topic_path(topic)}/partitions/{partition}"


def segment(text: object) -> str:
    """Return one segment of a path, percent-encoded.

    Raises InvalidArgument for an empty segment, which would make another path.
    """
    if text == "":
        raise InvalidArgument("a name is empty", field="name")
    return quote(str(text), safe="")


def refusal(status: int, body: bytes, url: str) -> ServerRefused | StrangeAnswer:
    """Return the exception for an answer with an error."""
    try:
        error = msgspec.json.decode(body, type=ErrorBody)
        facts = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        return StrangeAnswer(
            f"{url} answers {status} without saying why: is it a log server?", status=status
        )
    del facts["error_code"], facts["message"]
    return ServerRefused(error.message, status=status, error_code=error.error_code, answer=facts)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_address(url: str) -> None:
    """Raise InvalidArgument for an invalid address of a server."""
    try:
        address = URL(url)
        is_address = address.scheme in {"http", "https"} and bool(address.host)
    except ValueError as error:
        raise InvalidArgument(f"{url!r} is no address: {error}", field="url") from None
    if not is_address or address.raw_query_string or address.raw_fragment:
        raise InvalidArgument(f"{url!r} is no http:// address of a server", field="url")
