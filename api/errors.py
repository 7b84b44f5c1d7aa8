"""From an error to its HTTP status, code and body: the one table.

Owns the codes of the API; must not know handlers. The status is the first three digits of the code;
a code of three digits is the status itself (the HTTP layer's own errors). Every error body is
{"error_code", "message", facts...}, or RFC 9457 with the same facts for those who accept
application/problem+json.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

from logserver import errors as service
from storage import StorageError, errors

PROBLEM_JSON: Final = "application/problem+json"
JSON: Final = "application/json"

MALFORMED = 40000
UNKNOWN_PARTITION = 40402
PAYLOAD = 42201
BASE64 = 42202
UNREPRESENTABLE = 42206
NOT_OFFERED = 42207
BODY_TOO_LARGE = 41301

CODES: Final[Mapping[type[StorageError], int]] = {
    StorageError: 50000,
    errors.CallerError: PAYLOAD,
    errors.InvalidArgument: PAYLOAD,
    errors.UnknownTopic: 40401,
    errors.UnknownPartition: UNKNOWN_PARTITION,
    errors.RecordNotFound: 40404,
    errors.TopicExists: 40901,
    errors.OutOfOrderSequence: 40904,
    errors.FencedProducer: 40905,
    errors.RecordTooLarge: 41302,
    errors.OffsetOutOfRange: 41601,
    errors.InvalidTopic: 42203,
    errors.InvalidConfig: 42205,
    errors.UnrepresentableRecord: UNREPRESENTABLE,
    errors.NotOffered: NOT_OFFERED,
    errors.InvalidBatch: 42208,
    errors.StateError: 50301,
    errors.StoreClosed: 50301,
    errors.StoreReadOnly: 50301,
    errors.StoreLocked: 50301,
    errors.StoreFenced: 50301,
    errors.DataError: 50010,
    errors.Truncated: 50010,
    errors.Corrupt: 50010,
    errors.UnsupportedFormat: 50010,
    errors.DamagedStore: 50010,
    errors.IoFailure: 50301,
    errors.DiskFull: 50701,
    service.ServiceError: 50000,
    service.Busy: 42901,
    service.NotReady: 50301,
    service.TimedOut: 50401,
    service.SettingsError: 50000,
    service.CannotListen: 50000,
}

# Errors after which the same request may well succeed soon.
_RETRY_AFTER_S: Final[Mapping[type[StorageError], str]] = {
    service.Busy: "1",
    service.NotReady: "1",
}


class ApiError(Exception):
    """A request that the HTTP layer itself refuses. `facts` join the body, `headers` the answer."""

    def __init__(
        self,
        error_code: int,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = message
        self.headers = headers or {}
        self.facts = facts or {}


def code_of(error: StorageError) -> int:
    """The API's code of a storage or service error; a class without a row has its parent's."""
    for kind in type(error).__mro__:
        if kind in CODES:
            return CODES[kind]
    return CODES[StorageError]


def status_of(error_code: int) -> int:
    """The HTTP status that a code means."""
    return error_code if error_code < 1000 else error_code // 100


def as_api_error(error: StorageError) -> ApiError:
    """The same error with code, facts as JSON has them, and headers."""
    facts = {name: value for name, value in error.facts().items() if value is not None}
    if isinstance(error, errors.DataError) and "path" in facts:
        facts["file"] = facts.pop("path")
    retry_after_s = _RETRY_AFTER_S.get(type(error))
    headers = {"Retry-After": retry_after_s} if retry_after_s is not None else None
    return ApiError(code_of(error), error.message, headers=headers, facts=facts)


def error_response(error: ApiError, *, accept: str | None = None) -> web.Response:
    """The answer for an error, in the shape that `accept` asks for."""
    status = status_of(error.error_code)
    body: dict[str, object] = {"error_code": error.error_code, "message": error.message}
    content_type = JSON
    if accept is not None and PROBLEM_JSON in accept:
        content_type = PROBLEM_JSON
        body = {
            "type": f"urn:logserver:error:{error.error_code}",
            "title": HTTPStatus(status).phrase,
            "status": status,
            "detail": error.message,
            "error_code": error.error_code,
        }
    body |= {name: value for name, value in error.facts.items() if name not in body}
    return web.Response(
        status=status,
        body=msgspec.json.encode(body, enc_hook=str),
        headers={"Content-Type": content_type, **error.headers},
    )
