"""One request on its way through: what a handler needs, and how it answers.

Owns access to path, query and body with the limits in force; must not decide anything about topics
or records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from ipaddress import ip_address
from typing import Any, TypeVar, cast

import msgspec
from aiohttp import web

from api.body import read_body
from api.errors import MALFORMED, PAYLOAD, UNKNOWN_PARTITION, ApiError
from api.middleware import ApiProtocol
from api.negotiation import PLAIN_TYPES, media_type
from api.params import Params, check_percent_encoding
from logserver.budget import Hold
from logserver.config import Settings
from logserver.service import LogService
from storage import TopicPartition

T = TypeVar("T")


class Call:
    """A request that has found its route. `answer_type` is the media type agreed on."""

    __slots__ = ("_path", "answer_type", "request", "service")

    def __init__(
        self,
        request: web.BaseRequest,
        service: LogService,
        *,
        path: Mapping[str, str],
        answer_type: str,
    ) -> None:
        self.request = request
        self.service = service
        self.answer_type = answer_type
        self._path = path

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.service.settings

    @property
    def topic(self) -> str:
        """The path's topic."""
        return self._path["topic"]

    @property
    def message_id(self) -> str:
        """The path's message id."""
        return self._path["message_id"]

    @property
    def peer(self) -> bytes | None:
        """The client's address and port as RocketMQ keeps a host: 4 or 16 bytes and 4. None once
        the client has gone.
        """
        transport = self.request.transport
        address = None if transport is None else transport.get_extra_info("peername")
        return None if address is None else host_bytes(address[0], address[1])

    @property
    def partition_number(self) -> int | None:
        """The path's partition, None where the path has none. What is no number is an unknown
        partition.
        """
        text = self._path.get("partition")
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or len(text) > 10:
            raise ApiError(UNKNOWN_PARTITION, f"partition {text[:20]!r} is no partition's number")
        return int(text)

    @property
    def partition(self) -> TopicPartition:
        """The path's partition, which exists. Raises UnknownTopic, UnknownPartition."""
        number = self.partition_number
        if number is None:
            raise LookupError("the route has no partition")
        return self.service.partition(self.topic, number)

    def params(self, *known: str) -> Params:
        """The query, of which only `known` parameters are taken."""
        url = self.request.rel_url
        check_percent_encoding(url.raw_query_string)
        return Params(url.query, known)

    def content_type(self, allowed: Sequence[str]) -> str:
        """The media type of the body, one of `allowed`. Raises 415."""
        return media_type(self.request.headers.get("Content-Type"), allowed)

    async def body(self, hold: Hold) -> bytes:
        """The whole body within the limits; `hold` has grown by its size."""
        return await read_body(self.request, self.settings, hold)

    def while_connected(self) -> AbstractContextManager[None]:
        """Cancel what runs inside once the client has gone away. Only for what changes nothing."""
        return cast("ApiProtocol", self.request.protocol).while_connected()

    async def json_body(self, kind: type[T]) -> T | None:
        """A small JSON body without records as `kind`; None when there is no body."""
        with self.service.hold(0) as hold:
            if self.request.can_read_body:
                self.content_type(PLAIN_TYPES)
            body = await self.body(hold)
            return decode_json(body, kind) if body else None

    def json(self, value: object, *, status: int = 200) -> web.Response:
        """An answer with `value` as JSON."""
        return self.encoded(msgspec.json.encode(value, enc_hook=_plain), status=status)

    def encoded(self, body: bytes, *, status: int = 200) -> web.Response:
        """An answer that is encoded already."""
        return web.Response(status=status, body=body, headers={"Content-Type": self.answer_type})


def decode_json(body: bytes, kind: type[T]) -> T:
    """`body` as `kind`. Raises 40000 for what is no JSON and 42201 for JSON of another shape."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise ApiError(PAYLOAD, str(error)) from None
    except msgspec.DecodeError as error:
        raise ApiError(MALFORMED, str(error)) from None
    except RecursionError:
        raise ApiError(PAYLOAD, "the JSON body is nested too deeply") from None


def host_bytes(host: str, port: int) -> bytes:
    """An IP address and a port as RocketMQ keeps them; an IPv4 address that came by IPv6 as IPv4."""
    address = ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).packed + port.to_bytes(4, "big")


def _plain(value: Any) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)
