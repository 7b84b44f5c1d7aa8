"""Records of the v3 API: conversion to values and to reports. Pure.

Owns the shapes of v3 produce, in a stream and in a batch; must not know HTTP or the service. A record is an object,
with the types of key and value next to the data:

    type             data                        stored
    BINARY           base64 text                 its bytes
    STRING           text                        UTF-8
    JSON, or none    JSON of any kind            as it was written
    any              null, or missing            null

Types that need a schema registry are recognised and rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from api.http.errors import (
    BASE64,
    BODY_TOO_LARGE,
    MALFORMED,
    NOT_OFFERED,
    PAYLOAD,
    ApiError,
    as_api_error,
)
from api.records.decode import (
    Decoded,
    DelayLevel,
    PartitionNumber,
    Produced,
    RecordRefused,
    Timestamp,
    decode_each,
    delay_of,
    is_bad_base64,
    is_nested_deeper,
)
from api.records.splitter import Item
from logserver.service.requests import AppendOutcome, Delay
from logserver.validation import wrong_json, wrong_value
from storage import Record

T = TypeVar("T")

_NULL: Final = Raw(b"null")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_WITH_SCHEMA: Final = frozenset({"AVRO", "JSONSCHEMA", "PROTOBUF"})
_SCHEMA_FIELDS: Final = (
    "subject", "subject_name_strategy", "schema_id", "schema_version", "schema",
)  # fmt: skip
_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# The depth of the data in a record: the record, then `key` or `value`.
_DEPTH_OF_DATA: Final = 2

MaybeTime: TypeAlias = Annotated[datetime, Meta(tz=True)] | None
EntryId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=80)]


class ProduceHeader(Struct, forbid_unknown_fields=True, gc=False):
    """A header of a record; its value in base64."""

    name: str
    value: bytes | None = None


class ProduceData(Struct, forbid_unknown_fields=True, gc=False):
    """A key or value: `data` as `type` says. Data that needs a schema registry is rejected."""

    type: str | None = None
    data: Raw = field(default_factory=lambda: _NULL)
    subject: str | None = None
    subject_name_strategy: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    schema: str | None = None


class ProduceRequest(Struct, forbid_unknown_fields=True, gc=False):
    """One record; `timestamp` and `deliver_at` in ISO 8601 with their zone.

    On RocketMQ's format a record with one of `delay_level`, `deliver_at` and `delay_ms` is kept until its time.
    """

    partition_id: PartitionNumber | None = None
    headers: list[ProduceHeader] | None = None
    key: ProduceData | None = None
    value: ProduceData | None = None
    timestamp: MaybeTime = None
    delay_level: DelayLevel | None = None
    deliver_at: MaybeTime = None
    delay_ms: Timestamp | None = None


class ProduceBatchEntry(ProduceRequest, forbid_unknown_fields=True, kw_only=True, gc=False):
    """One record of a batch, with a name for its report."""

    id: EntryId


class ProduceBatchRequest(Struct):
    """A batch of records."""

    entries: list[ProduceBatchEntry]


class Shown(Struct, gc=False):
    """A stored key or value: its type and its size in bytes."""

    type: str
    size: int


class _Stored(Struct, gc=False, kw_only=True):
    """The place of a stored record. `key` and `value` are set if the record has them.

    A delayed record has no offset until its delivery at `deliver_at`, after the delay of `delay_level`.
    """

    cluster_id: str
    topic_name: str
    partition_id: int
    offset: int | None
    timestamp: datetime
    key: Shown | UnsetType = UNSET
    value: Shown | UnsetType = UNSET
    delay_level: int | UnsetType = UNSET
    deliver_at: datetime | UnsetType = UNSET


class ProduceResponse(_Stored, gc=False, kw_only=True):
    """The report of a record that was stored."""

    error_code: int = 200


class ProduceFailure(Struct, gc=False):
    """The report of a record that was not stored."""

    error_code: int
    message: str


class BatchSuccess(_Stored, gc=False, kw_only=True):
    """The report of an entry that was stored."""

    id: str


class BatchFailure(Struct, gc=False):
    """The report of an entry that was not stored."""

    id: str
    error_code: int
    message: str


class _Id(Struct, gc=False):
    id: EntryId


class _Entries(Struct, Generic[T]):
    entries: list[T]


class ProduceBatchResponse(Struct):
    """The reports of a batch, each part in the order of its entries."""

    successes: Sequence[BatchSuccess]
    failures: Sequence[BatchFailure]


Kinds: TypeAlias = tuple[str | None, str | None]
Stored = TypeVar("Stored", bound=_Stored)


class TypedRecords(Produced, frozen=True, kw_only=True):
    """Decoded records with the types of key and value, by position, for their reports."""

    kinds: Sequence[Kinds]


def decode_typed(
    items: Sequence[Item],
    *,
    max_depth: int,
    now_ms: int,
    kind: type[ProduceRequest] = ProduceRequest,
) -> TypedRecords:
    """Decode the records of a stream's group, or of a batch.

    A record without a time gets `now_ms`. An invalid record becomes a failure.
    """
    kinds: list[Kinds] = [(None, None)] * len(items)

    def decode(position: int, item: bytes) -> Decoded:
        request = _decoded(item, kind)
        record, kinds[position] = _converted(request, max_depth, now_ms)
        return Decoded(record, request.partition_id, _delay(request))

    return decode_each(items, decode, partial(TypedRecords, kinds=kinds))


def reports_of(
    decoded: TypedRecords,
    runs: Sequence[AppendOutcome],
    make: Callable[[int, Mapping[str, Any]], Stored],
    *,
    append_time: bool,
) -> list[Stored | ApiError]:
    """Return the result of each record, in order.

    `make` gets the position and the fields of the report. With `append_time` the time that the store set at the
    append replaces the record's own time.
    """
    reports: list[Stored | ApiError | None] = [None] * decoded.count
    for position, refused in decoded.failed:
        reports[position] = refused
    for run in runs:
        error = None if run.error is None else as_api_error(run.error)
        for index, at in enumerate(run.positions):
            position = decoded.positions[at]
            if error is not None:
                reports[position] = error
                continue
            record = decoded.records[at]
            own_ms = record.timestamp_ms or 0
            stored_ms = run.timestamp_ms if append_time and run.timestamp_ms >= 0 else own_ms
            key_kind, value_kind = decoded.kinds[position]
            fields: dict[str, Any] = {
                "partition_id": run.partition,
                "offset": run.base_offset + index if run.has_offsets else None,
                "timestamp": _EPOCH + stored_ms * _MILLISECOND,
                "key": _shown(key_kind, record.key),
                "value": _shown(value_kind, record.value),
            }
            if run.delayed is not None:
                fields["delay_level"] = run.delayed.level
                if run.delayed.deliver_at_ms is not None:
                    fields["deliver_at"] = _EPOCH + run.delayed.deliver_at_ms * _MILLISECOND
            reports[position] = make(position, fields)
    return [report for report in reports if report is not None]


def _shown(kind: str | None, data: bytes | None) -> Shown | UnsetType:
    return UNSET if kind is None else Shown(kind, len(data or b""))


def decode_batch(body: bytes, *, max_records: int) -> tuple[Sequence[str], Sequence[bytes]]:
    """Return the ids of a batch's entries, which differ, and the entries as JSON. Raises ApiError for an error of the
    whole batch.
    """
    try:
        body.decode()
        ids = [entry.id for entry in _IDS_DECODER.decode(body).entries]
        entries = [bytes(entry) for entry in _ENTRIES_DECODER.decode(body).entries]
    except _UNDECODABLE as error:
        raise _decoding_error(error, "the body", _Entries[_Id], body) from None
    if not ids:
        raise ApiError(PAYLOAD, "entries is empty: send at least one entry")
    if len(ids) > max_records:
        raise ApiError(
            BODY_TOO_LARGE,
            f"entries holds {len(ids)}, the limit is {max_records} (max_records_per_request)",
            facts={"limit": max_records},
        )
    if len(set(ids)) < len(ids):
        raise ApiError(PAYLOAD, "two entries have the same id: ids must differ")
    return ids, entries


def _decoded(item: bytes, kind: type[ProduceRequest]) -> ProduceRequest:
    try:
        if not item.isascii():
            item.decode()
        return _DECODERS[kind](item)
    except _UNDECODABLE as error:
        raise _decoding_error(error, "the record", kind, item) from None


def _decoding_error(error: Exception, thing: str, kind: Any, text: bytes) -> ApiError:
    if isinstance(error, RecursionError):
        return ApiError(PAYLOAD, f"{thing} is nested too deeply")
    if not isinstance(error, msgspec.ValidationError):
        return ApiError(MALFORMED, f"{thing} is no JSON: {wrong_json(error, text)}")
    code = BASE64 if is_bad_base64(error) else PAYLOAD
    return ApiError(code, wrong_value(error, kind, text, whole=thing).text)


def _converted(request: ProduceRequest, max_depth: int, now_ms: int) -> tuple[Record, Kinds]:
    key, key_kind = _data(request.key, "key", max_depth)
    value, value_kind = _data(request.value, "value", max_depth)
    headers = [(header.name, header.value) for header in request.headers or ()]
    timestamp_ms = now_ms
    if request.timestamp is not None:
        timestamp_ms = (request.timestamp - _EPOCH) // _MILLISECOND
        if timestamp_ms < 0:
            raise ApiError(PAYLOAD, "timestamp is before 1970")
    return Record(key, value, headers, timestamp_ms), (key_kind, value_kind)


def _delay(request: ProduceRequest) -> Delay | None:
    """Return the delay of a record. Raises ApiError for more than one."""
    at = request.deliver_at
    deliver_at_ms = None if at is None else (at - _EPOCH) // _MILLISECOND
    try:
        return delay_of(request.delay_level, deliver_at_ms, request.delay_ms)
    except RecordRefused as error:
        raise ApiError(error.error_code, error.problem.lstrip(".")) from None


def _data(part: ProduceData | None, name: str, max_depth: int) -> tuple[bytes | None, str | None]:
    """Return the bytes of a key or value, and their type; no type if it is missing."""
    if part is None:
        return None, None
    _refuse_schema(part, name)
    data, kind = bytes(part.data), part.type
    convert = _BY_TYPE.get(kind)
    if convert is None:
        raise ApiError(PAYLOAD, f"{name}.type is {kind!r}: it must be one of BINARY, JSON, STRING")
    if data == b"null":
        return None, kind
    if is_nested_deeper(data, max_depth - _DEPTH_OF_DATA):
        raise ApiError(PAYLOAD, f"{name}.data: nested deeper than {max_depth} levels")
    try:
        return convert(data), kind or "JSON"
    except msgspec.ValidationError as error:
        decoded = str if kind == "STRING" else bytes
        wrong = wrong_value(error, decoded, data, within=f"{name}.data").text
        code = BASE64 if is_bad_base64(error) else PAYLOAD
        raise ApiError(code, f"{wrong}, as type {kind} means") from None


def _refuse_schema(part: ProduceData, name: str) -> None:
    fields = [field for field in _SCHEMA_FIELDS if getattr(part, field) is not None]
    if part.type in _WITH_SCHEMA:
        fields.insert(0, "type")
    if fields:
        raise ApiError(
            NOT_OFFERED,
            f"{name}.{fields[0]} means a schema, and this server has no schema registry: use type "
            "BINARY, JSON or STRING",
        )


def _text(data: bytes) -> bytes:
    return _TEXT_DECODER.decode(data).encode()


_DECODERS: Final[Mapping[type[ProduceRequest], Callable[[bytes], ProduceRequest]]] = {
    kind: msgspec.json.Decoder(kind).decode for kind in (ProduceRequest, ProduceBatchEntry)
}
_IDS_DECODER: Final = msgspec.json.Decoder(_Entries[_Id])
_ENTRIES_DECODER: Final = msgspec.json.Decoder(_Entries[Raw])
_TEXT_DECODER: Final = msgspec.json.Decoder(str)
_BY_TYPE: Final[Mapping[str | None, Callable[[bytes], bytes]]] = {
    None: bytes,
    "JSON": bytes,
    "STRING": _text,
    "BINARY": msgspec.json.Decoder(bytes).decode,
}
