"""One request in progress: the data that a handler needs, and the ways to answer.

Owns access to path, query and body with the limits in force; must not decide anything about topics or records.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote, urlencode

import msgspec
from aiohttp import web

from api.connection.body import read_body
from api.connection.delivery import deliver, deliver_once
from api.connection.protocol import ApiProtocol
from api.connection.response_headers import sign
from api.http.errors import MALFORMED, PAYLOAD, UNKNOWN_PARTITION, ApiError
from api.http.parameters import Params
from logserver.config import Address, Settings
from logserver.groups.consumer import Consumer
from logserver.service.memory_budget import Reservation
from logserver.service.requests import host_bytes
from logserver.service.service import LogService
from logserver.validation import in_words, wrong_value
from storage import TopicPartition
from storage.display import encode_json

T = TypeVar("T")

CACHED_HOSTS: Final = 1024
_HOST: Final = re.compile(r"([A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


class RequestContext:
    """A request that has found its route.

    `path` has the decoded parameters of the path, `params` is the query. `answer_type` is the negotiated media type,
    `body_type` the media type of a body that the handler reads itself. The creator of the call releases it.
    """

    __slots__ = ("_reservation", "answer_type", "body_type", "params", "path", "request", "service")

    def __init__(
        self,
        request: web.BaseRequest,
        service: LogService,
        *,
        path: Mapping[str, str],
        params: Params,
        body_type: str,
        answer_type: str,
    ) -> None:
        self.request = request
        self.service = service
        self.params = params
        self.body_type = body_type
        self.answer_type = answer_type
        self.path = path
        self._reservation: Reservation | None = None

    @property
    def reservation(self) -> Reservation:
        """The reservation of the answer's bytes, which begins with none."""
        if self._reservation is None:
            self._reservation = Reservation(self.service.answers)
        return self._reservation

    def release(self) -> None:
        """Release the bytes of the answer: it has been sent, or it is small."""
        if self._reservation is not None:
            self._reservation.release()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.service.settings

    @property
    def topic(self) -> str:
        """The topic in the path."""
        return self.path["topic"]

    @property
    def group(self) -> str:
        """The consumer group in the path."""
        return self.path["group"]

    @property
    def transaction(self) -> str:
        """The id of the transaction in the path."""
        return self.path["transaction"]

    def consumer(self) -> AbstractContextManager[Consumer]:
        """Return the path's consumer instance as a context manager that marks it in use. Raises UnknownConsumer,
        NotReady.
        """
        return self.service.groups.consumers.using(self.group, self.path["instance"])

    @property
    def cluster_id(self) -> str:
        """The cluster in the path, which must be the served cluster. Raises 404."""
        requested, served = self.path["cluster_id"], self.service.cluster_id
        if requested != served:
            raise ApiError(404, f"cluster {requested[:80]!r} is not served here: it is {served!r}")
        return served

    @property
    def base_url(self) -> str:
        """The URL by which the client reached the server: from its Host header, else from the address that it
        connected to.

        Raises 400 for an invalid Host.
        """
        request = self.request
        host = request.headers.get("Host")
        if not host:
            transport = request.transport
            address = None if transport is None else transport.get_extra_info("sockname")
            host = str(self.settings.listen if address is None else Address(*address[:2]))
        elif not _HOST.fullmatch(host):
            raise ApiError(
                400, f"Host is {host[:80]!r}: it must be a name or an address, and a port"
            )
        return f"{request.scheme}://{host}"

    @property
    def peer(self) -> bytes | None:
        """The client's address and port in RocketMQ's form: 4 or 16 bytes, and 4 bytes for the port. None if the
        client has disconnected.
        """
        transport = self.request.transport
        address = None if transport is None else transport.get_extra_info("peername")
        return None if address is None else host_bytes(address[0], address[1])

    @property
    def partition_number(self) -> int | None:
        """The partition number in the path, None if the path has none. Raises 40402 for text that is not a number."""
        text = self.path.get("partition")
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or len(text) > 10:
            raise ApiError(UNKNOWN_PARTITION, f"partition {text[:20]!r} is no partition's number")
        return int(text)

    @property
    def partition(self) -> TopicPartition:
        """The partition in the path, which exists. Raises UnknownTopic, UnknownPartition."""
        number = self.partition_number
        if number is None:
            raise LookupError("the route has no partition")
        return self.service.topics.partition(self.topic, number)

    def body(self, reservation: Reservation) -> Awaitable[bytes]:
        """Read the whole body within the limits; `reservation` has grown by its size."""
        return read_body(self.request, self.service.settings, reservation)

    def while_connected(self) -> AbstractContextManager[None]:
        """Cancel the code inside the block if the client disconnects, until an answer is being sent.

        Only for code that changes nothing.
        """
        return self._connection.while_connected()

    @property
    def half_closed(self) -> asyncio.Future[None]:
        """Done once the client sends no more. It may still read: then it is answered, but only with the data that
        exists now.
        """
        return self._connection.half_closed

    @property
    def _connection(self) -> ApiProtocol:
        return cast("ApiProtocol", self.request.protocol)

    async def deliver(self, response: web.Response, *, once: bool = False) -> None:
        """Send the answer; on return all of it has been passed to the kernel.

        Raises ConnectionError if the client disconnected before. Raises Busy if too many bytes wait for their
        clients; only for GET and HEAD, because the result of a change is always reported. `once`: see
        `delivery.deliver_once`, which also detects a client that had closed both sides.
        """
        if self.request.method in {"GET", "HEAD"}:
            self.reservation.grow_to(response.content_length or 0)
        sign(self.request, response)
        send = deliver_once if once else deliver
        await send(self.request, response, pause_s=self.settings.body_timeout_ms / 1000)

    def link(self, cursor: str) -> str:
        """Return the path of the same call with the same query, continuing at `cursor`."""
        query = {**self.params.query, "cursor": cursor}
        return f"{self.request.rel_url.raw_path}?{urlencode(query, quote_via=quote)}"

    def json(self, value: object, *, status: int = 200) -> web.Response:
        """Return an answer with `value` as JSON."""
        return self.encoded(encode_json(value, enc_hook=_plain), status=status)

    def encoded(
        self,
        body: bytes | bytearray,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> web.Response:
        """Return an answer with an encoded body."""
        named = {**(headers or {}), "Content-Type": self.answer_type}
        return web.Response(status=status, body=body, headers=named)

    async def stream(self, headers: Mapping[str, str], *, status: int = 200) -> web.StreamResponse:
        """Begin a streamed answer: its head is sent, its body is written piece by piece."""
        named = {**headers, "Content-Type": self.answer_type}
        response = web.StreamResponse(status=status, headers=named)
        sign(self.request, response)
        await response.prepare(self.request)
        return response


def decode_json(body: bytes, kind: type[T], *, lax: bool = False) -> T:
    """Decode `body` as `kind`. Raises 40000 for invalid JSON (or UTF-8) and 42201 for JSON of another shape."""
    try:
        return msgspec.json.decode(body, type=kind, strict=not lax)
    except msgspec.ValidationError as error:
        raise ApiError(PAYLOAD, wrong_value(error, kind, body).text) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(MALFORMED, in_words(error, kind, body, whole="the body")) from None
    except RecursionError:
        raise ApiError(PAYLOAD, "the JSON body is nested too deeply") from None


def as_kind(members: Mapping[str, object], kind: type[T]) -> T:
    """Convert the members of a decoded JSON object to `kind`; numbers and booleans may be text. Raises 42201."""
    try:
        return msgspec.convert(members, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ApiError(PAYLOAD, wrong_value(error, kind, members).text) from None


@lru_cache(maxsize=CACHED_HOSTS)
def _plain(value: Any) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)
