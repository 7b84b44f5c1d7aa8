"""Conversion of errors to HTTP status, code and body: the one table.

Owns the codes of the API; must not know handlers. The status is the first three digits of the code; a code of three
digits is the status itself (errors of the HTTP layer). Every error body is {"error_code", "message", facts...}, or
RFC 9457 with the same facts for clients that accept application/problem+json.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from aiohttp import web

from logserver import errors as service
from storage import StorageError, errors
from storage.display import encode_json

PROBLEM_JSON: Final = "application/problem+json"
JSON: Final = "application/json"

MAX_FACT_CHARACTERS: Final = 255
MAX_SHOWN_CHARACTERS: Final = 80

MALFORMED = 40000
UNKNOWN_PARTITION = 40402
PAYLOAD = 42201
BASE64 = 42202
UNREPRESENTABLE = 42206
NOT_OFFERED = 42207
BODY_TOO_LARGE = 41301
RECORD_TOO_LARGE = 41302
CONSUMER_FORMAT = 40601
NOT_READY = 50301
MISSING_PARTITIONS = 50302

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
    errors.FencedCoordinator: 40905,
    errors.RecordTooLarge: RECORD_TOO_LARGE,
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
    errors.MissingPartitions: MISSING_PARTITIONS,
    errors.DataError: 50010,
    errors.Truncated: 50010,
    errors.Corrupt: 50010,
    errors.UnsupportedFormat: 50010,
    errors.DamagedStore: 50010,
    errors.MiscountedResult: 50010,
    errors.IoFailure: 50301,
    errors.DiskFull: 50701,
    service.ServiceError: 50000,
    service.Busy: 42901,
    service.NotReady: 50301,
    service.TimedOut: 50401,
    service.KeyReused: 42209,
    service.UnknownTransaction: 40406,
    service.TransactionEnded: 40903,
    service.TopicInUse: 40903,
    service.SettingsError: 50000,
    service.CannotListen: 50000,
    service.SparkFailed: 50000,
    service.GroupError: 50000,
    service.UnknownConsumer: 40403,
    service.UnknownGroup: 40405,
    service.ConsumerExists: 40902,
    service.ConsumerState: 40903,
    service.InvalidGroup: 42203,
    service.InvalidConsumerConfig: 42204,
}

MEANINGS: Final[Mapping[int, str]] = {
    400: "malformed HTTP, or a body that is broken",
    401: "a token is missing or unknown",
    403: "the token does not allow this, or a preflight is of an origin that `cors_origins` does not name",
    404: "there is nothing at this path",
    405: "the method is not possible here; `Allow` lists the possible methods",
    406: "`Accept` names no media type that this call has",
    408: "the body paused for too long",
    415: "the type or encoding of the body is not accepted here",
    417: "the only accepted `Expect` is `100-continue`",
    500: "the server made a mistake",
    MALFORMED: "the body is no JSON, or a query parameter is malformed, out of its limits or unknown",
    40401: "no such topic",
    UNKNOWN_PARTITION: "no such partition",
    40403: "no such consumer instance: it was deleted, or idle for too long",
    40404: "no such record",
    40405: "no such group: it has neither members nor committed offsets",
    40406: "no such transaction, or its producer id is another one's now",
    CONSUMER_FORMAT: "`Accept` is for another format than the consumer instance's",
    40901: "the topic exists in another shape",
    40902: "the group has a consumer instance of that name",
    40903: "the consumer instance or group is in a state in which this cannot be done, or the transaction has ended, "
    "or open transactions need the topic",
    40904: "the producer's sequence leaves a gap; `expected` is the next sequence",
    40905: "a newer epoch of this producer has been seen: another producer with its transactional id has begun",
    BODY_TOO_LARGE: "the body, or its number of records, is over the limit",
    RECORD_TOO_LARGE: "a record or batch is over `max.message.bytes` (RocketMQ: `maxMessageSize`), or one of a stream "
    "over `max_body_bytes`",
    41601: "the offset is out of range; `earliest` and `latest` are its limits",
    PAYLOAD: "JSON of the wrong shape; the message names the place",
    BASE64: "not base64 (`application/json` means base64)",
    42203: "not a name for a new topic, group or consumer instance, or a name reserved for brokers",
    42204: "not a value for a consumer's setting",
    42205: "not a topic config, or not a value for it",
    UNREPRESENTABLE: "this store cannot store the record unchanged; the message names the field",
    NOT_OFFERED: "known, but not offered",
    42208: "a record batch with a wrong CRC, version, codec or length, or with invalid records",
    42209: "the `Idempotency-Key` belongs to another request of the last day",
    42901: "too much at once: bytes of requests or answers, connections, waiting fetches, instances; `Retry-After`",
    50000: "a failure without a code of its own",
    50010: "damaged data: `file`, `position`, `topic`, `partition`, `offset`, `next_good_offset`",
    50301: "starting, recovering, stopping, read-only, or fenced after a failed write",
    MISSING_PARTITIONS: "partitions of the topic are missing on the disk, or would reuse offsets; "
    "`missing_partitions`",
    50401: "not confirmed within `timeout`; it may be stored",
    50701: "the disk is full; nothing of the request counts as stored",
}

# Errors after which the same request may soon succeed.
_RETRY_AFTER_S: Final[Mapping[type[StorageError], str]] = {service.Busy: "1", service.NotReady: "1"}


class ApiError(Exception):
    """A request that the HTTP layer itself rejects. `facts` are added to the body, `headers` to the answer."""

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
    """Return the API's code of a storage or service error; a class without an entry has its parent's code."""
    for kind in type(error).__mro__:
        if kind in CODES:
            return CODES[kind]
    return CODES[StorageError]


def status_of(error_code: int) -> int:
    """Return the HTTP status of a code."""
    return error_code if error_code < 1000 else error_code // 100


def as_api_error(error: StorageError) -> ApiError:
    """Convert an error to an ApiError with code, facts for JSON, and headers."""
    facts = {name: value for name, value in error.facts().items() if value is not None}
    if isinstance(error, errors.DataError) and "path" in facts:
        facts["file"] = facts.pop("path")
    message = error.message
    for name, fact in facts.items():
        if isinstance(fact, str) and len(fact) > MAX_FACT_CHARACTERS and name != "path":
            # A name sent by the client may be as long as a request line.
            facts[name] = f"{fact[:MAX_FACT_CHARACTERS]}..."
            message = message.replace(fact, f"{fact[:MAX_SHOWN_CHARACTERS]}...")
    retry_after_s = _RETRY_AFTER_S.get(type(error))
    headers = {"Retry-After": retry_after_s} if retry_after_s is not None else None
    return ApiError(code_of(error), message, headers=headers, facts=facts)


def error_body(error: ApiError) -> dict[str, object]:
    """Return the JSON body of an error; it is also used at the end of a stream."""
    body: dict[str, object] = {"error_code": error.error_code, "message": error.message}
    return body | {name: fact for name, fact in error.facts.items() if name not in body}


def error_response(error: ApiError, *, accept: str | None = None) -> web.Response:
    """Return the answer for an error, in the shape that `accept` asks for."""
    status = status_of(error.error_code)
    body, content_type = error_body(error), JSON
    if accept is not None and PROBLEM_JSON in accept:
        content_type = PROBLEM_JSON
        del body["message"]
        body |= {
            "type": f"urn:logserver:error:{error.error_code}",
            "title": HTTPStatus(status).phrase,
            "status": status,
            "detail": error.message,
        }
    return web.Response(
        status=status,
        body=encode_json(body, enc_hook=str),
        headers={"Content-Type": content_type, **error.headers},
    )
