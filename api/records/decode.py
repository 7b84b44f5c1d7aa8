"""Conversion of JSON to records: pure.

Owns the shapes of produce bodies and their limits for each embedded format; must not know HTTP or the service. A body
is decoded as a whole; only if that fails it is decoded record by record, so that one invalid record fails alone. Of a
repeated name the last value counts. An unknown name is rejected, so that a misspelt `value` does not become a null.

    format  key and value            header value
    binary  base64                   base64
    json    JSON, kept verbatim      base64
    text    text                     text
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, NamedTuple, Self, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, field, structs

from api.http.errors import BASE64, BODY_TOO_LARGE, MALFORMED, PAYLOAD, ApiError
from api.http.negotiation import Format
from logserver.service.requests import Delay
from logserver.validation import wrong_json, wrong_value
from storage import Record

T = TypeVar("T")
S = TypeVar("S")
P = TypeVar("P", bound="Produced")
V = TypeVar("V")

PartitionNumber: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Timestamp: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
DelayLevel: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]

# A JSON value is at depth three of its body: object, `records`, record.
_DEPTH_OF_VALUE: Final = 3
# Larger bodies are counted before they are decoded: decoded empty records take forty times their size.
_COUNTED_BYTES: Final = 256 << 10
PLACE: Final = "records[{}]"
"""The name of a record in a body, by its position."""
_NULL: Final = Raw(b"null")
_BRACKETS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
_BASE64_HINT: Final = (
    "application/json means base64: send Content-Type application/vnd.kafka.json.v2+json for JSON "
    "values, or format=text for text"
)


class BytesHeader(Struct, forbid_unknown_fields=True, gc=False):
    """A header whose value is base64."""

    key: str
    value: bytes | None = None


class TextHeader(Struct, forbid_unknown_fields=True, gc=False):
    """A header whose value is text."""

    key: str
    value: str | None = None


class _Common(Struct, forbid_unknown_fields=True, gc=False):
    """The members that a record can have in every format, other than key, value and headers."""

    partition: PartitionNumber | None = None
    timestamp: Timestamp | None = None
    tag: str | None = None
    keys: list[str] | None = None
    properties: dict[str, str] | None = None
    delay_level: DelayLevel | None = None
    deliver_at: Timestamp | None = None
    delay_ms: Timestamp | None = None


class PlainRecord(Struct, forbid_unknown_fields=True, gc=False):
    """The most common form of a record: key and value in base64 and nothing else."""

    key: bytes | None = None
    value: bytes | None = None


class BinaryRecord(_Common, forbid_unknown_fields=True, gc=False):
    """A record to produce; key and value in base64."""

    key: bytes | None = None
    value: bytes | None = None
    headers: list[BytesHeader] | None = None


class JsonRecord(_Common, forbid_unknown_fields=True, gc=False):
    """A record to produce; key and value are JSON of any kind."""

    key: Raw = field(default_factory=lambda: _NULL)
    value: Raw = field(default_factory=lambda: _NULL)
    headers: list[BytesHeader] | None = None


class TextRecord(_Common, forbid_unknown_fields=True, gc=False):
    """A record to produce; key and value are text."""

    key: str | None = None
    value: str | None = None
    headers: list[TextHeader] | None = None


class Body(Struct, Generic[T]):
    """A produce body. Schema ids and similar members, which older clients send, are ignored."""

    records: Annotated[list[T], Meta(extra_json_schema={"minItems": 1})]


class _Anything(Struct, gc=False):
    """An object that is only counted."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a produce body."""

    max_records: int
    max_depth: int


class Produced(Struct, frozen=True, kw_only=True):
    """A decoded body: the valid records with their positions in it, and the records that failed alone.

    `delays`: of each valid record, None if no record has one. `may_have_times` False: no record has a timestamp of the
    client.
    """

    count: int
    records: Sequence[Record]
    positions: Sequence[int]
    partitions: Sequence[int | None] | None
    failed: Sequence[tuple[int, ApiError]] = ()
    delays: Sequence[Delay | None] | None = None
    may_have_times: bool = True

    def for_partition(self, partition: int | None, place: str = "") -> Self:
        """Return the same for a request to this partition: a record that names another partition fails alone.

        `place` names a record by its position.
        """
        if partition is None or self.partitions is None:
            return self
        errors = {}
        for position, number in zip(self.positions, self.partitions, strict=True):
            if number not in {None, partition}:
                member = f"{place.format(position)}.partition".lstrip(".")
                message = f"{member} is {number}, and the path says {partition}"
                errors[position] = ApiError(PAYLOAD, message)
        return self.refusing(errors)

    def refusing(self, errors: Mapping[int, ApiError]) -> Self:
        """Return the same with these errors instead of the records at these positions."""
        valid = [index for index, at in enumerate(self.positions) if at not in errors]
        numbers, delays = self.partitions, self.delays
        return structs.replace(
            self,
            records=[self.records[index] for index in valid],
            positions=[self.positions[index] for index in valid],
            partitions=None if numbers is None else [numbers[index] for index in valid],
            delays=None if delays is None else [delays[index] for index in valid],
            failed=[*self.failed, *errors.items()],
        )


@dataclass(frozen=True, slots=True)
class _Kind:
    """One embedded format: its decoders and its conversion of a decoded record."""

    record: type[_Common]
    decode_body: Callable[[bytes], Body[Any]]
    decode_record: Callable[[bytes | Raw], Any]
    convert: Callable[[Any, int], Record]


def decode_produce(body: bytes, kind: Format, limits: Limits) -> Produced:
    """Decode the records of a produce body.

    Raises ApiError for an error of the whole body: invalid JSON, no `records`, an empty list, or too many records.
    """
    if not body.isascii():
        _check_utf8(body)
    try:
        return _decode_typed(body, kind, limits) or _decode_one_by_one(body, _KINDS[kind], limits)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _decoding_error(error, Body[Raw], body, limits) from None


def decode_records(records: Sequence[bytes | ApiError], kind: Format, limits: Limits) -> Produced:
    """Decode the records of a stream, each a JSON value of its own. Errors among them are passed on as failures.

    Raises nothing: an invalid record becomes a failure of this record.
    """
    whole = [record for record in records if isinstance(record, bytes)]
    if len(whole) == len(records):
        typed = _decode_records_typed(whole, _KINDS[kind], limits)
        if typed is not None:
            return typed
    return _one_by_one(records, _KINDS[kind], limits, "")


def _decode_records_typed(records: Sequence[bytes], how: _Kind, limits: Limits) -> Produced | None:
    """Decode all records; None if one is invalid."""
    try:
        for record in records:
            if not record.isascii():
                record.decode()
        decoded = [how.decode_record(record) for record in records]
        converted = [how.convert(record, limits.max_depth) for record in decoded]
        return _all_valid(converted, decoded)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, RecordRefused):
        return None


def _decode_typed(body: bytes, kind: Format, limits: Limits) -> Produced | None:
    """Decode the body as a whole; None if the body or a record in it is invalid."""
    how = _KINDS[kind]
    try:
        if len(body) > _COUNTED_BYTES and body.count(b"{") > limits.max_records:
            _check_count(len(_COUNTER.decode(body).records), limits)
        elif kind is Format.BINARY:
            plain = _decode_plain(body, limits)
            if plain is not None:
                return plain
        decoded = how.decode_body(body).records
        _check_count(len(decoded), limits)
        records = [how.convert(record, limits.max_depth) for record in decoded]
        return _all_valid(records, decoded)
    except (msgspec.ValidationError, RecordRefused):
        return None


def _decode_plain(body: bytes, limits: Limits) -> Produced | None:
    """Decode a body of plain records only, at half the cost; None if the body has any other record."""
    try:
        decoded = _PLAIN_DECODER.decode(body).records
    except msgspec.ValidationError:
        return None
    _check_count(len(decoded), limits)
    records = [_new(Record, (one.key, one.value, (), None, None, (), None)) for one in decoded]
    return Produced(
        count=len(records),
        records=records,
        positions=range(len(records)),
        partitions=None,
        may_have_times=False,
    )


def _decode_one_by_one(body: bytes, how: _Kind, limits: Limits) -> Produced:
    """Decode every record by itself, to find the invalid ones."""
    raws = _RAW_DECODER.decode(body).records
    _check_count(len(raws), limits)
    return _one_by_one(raws, how, limits, PLACE)


def _one_by_one(
    raws: Sequence[bytes | Raw | ApiError], how: _Kind, limits: Limits, place: str
) -> Produced:
    """Decode each record, or note its failure; `place` names a record by its position, in front of the problem."""
    return decode_each(
        raws, lambda position, raw: _decode_one(raw, how, limits, place.format(position)), Produced
    )


def decode_each(
    items: Sequence[S | ApiError],
    decode: Callable[[int, S], Decoded],
    make: Callable[..., P],
) -> P:
    """Decode each item by itself. An item that is an error, or raises one, becomes a failure.

    `decode` gets the position of an item and returns a record with the partition and the delay that it names. `make`
    creates the result from the members of `Produced`.
    """
    records: list[Record] = []
    positions: list[int] = []
    partitions: list[int | None] = []
    delays: list[Delay | None] = []
    failed: list[tuple[int, ApiError]] = []
    for position, item in enumerate(items):
        try:
            if isinstance(item, ApiError):
                raise item
            record, partition, delay = decode(position, item)
        except ApiError as error:
            failed.append((position, error))
        else:
            records.append(record)
            positions.append(position)
            partitions.append(partition)
            delays.append(delay)
    return make(
        count=len(items),
        records=records,
        positions=positions,
        partitions=_if_any(partitions),
        failed=failed,
        delays=_if_any(delays),
    )


def _decode_one(raw: bytes | Raw, how: _Kind, limits: Limits, where: str) -> Decoded:
    """Return a record with its partition and its delay. Raises ApiError, which names the place."""
    try:
        if isinstance(raw, bytes):
            _check_utf8(raw)
        decoded = how.decode_record(raw)
        record = how.convert(decoded, limits.max_depth)
        return Decoded(record, decoded.partition, _delay_of(decoded))
    except (msgspec.DecodeError, RecursionError) as error:
        raise _decoding_error(error, how.record, raw, limits, where) from None
    except RecordRefused as error:
        raise ApiError(error.error_code, (where + error.problem).lstrip(".")) from None


def _all_valid(records: Sequence[Record], decoded: Sequence[_Common]) -> Produced:
    return Produced(
        count=len(records),
        records=records,
        positions=range(len(records)),
        partitions=_if_any([record.partition for record in decoded]),
        delays=_if_any([_delay_of(record) for record in decoded]),
    )


def _if_any(values: Sequence[V | None]) -> Sequence[V | None] | None:
    return values if any(value is not None for value in values) else None


def _delay_of(record: _Common) -> Delay | None:
    return delay_of(record.delay_level, record.deliver_at, record.delay_ms)


def delay_of(level: int | None, deliver_at_ms: int | None, delay_ms: int | None) -> Delay | None:
    """Return the delay of a record; None without one. Raises RecordRefused for more than one."""
    given = {"delay_level": level, "deliver_at": deliver_at_ms, "delay_ms": delay_ms}
    named = [name for name, value in given.items() if value is not None]
    if not named:
        return None
    if len(named) > 1:
        raise RecordRefused(PAYLOAD, f".{named[0]}: excludes {named[1]}: give one of them")
    return Delay(level, deliver_at_ms, delay_ms)


class Decoded(NamedTuple):
    """A decoded record, the partition that it names, and its delay."""

    record: Record
    partition: int | None
    delay: Delay | None


class NotBase64(ApiError):
    """A key or a value of a record, or of its header, is not the base64 text that its format requires."""


class RecordRefused(Exception):
    """A record of the right shape that is rejected; `problem` is appended to `records[N]`."""

    def __init__(self, error_code: int, problem: str) -> None:
        super().__init__(problem)
        self.error_code = error_code
        self.problem = problem


def _from_binary(record: BinaryRecord, max_depth: int) -> Record:
    headers = () if record.headers is None else [(h.key, h.value) for h in record.headers]
    keys = record.keys or ()
    return _new(
        Record,
        (record.key, record.value, headers, record.timestamp, record.tag, keys, record.properties),
    )


def _from_json(record: JsonRecord, max_depth: int) -> Record:
    key, value = bytes(record.key), bytes(record.value)
    _check_depth(key, ".key", max_depth)
    _check_depth(value, ".value", max_depth)
    headers = () if record.headers is None else [(h.key, h.value) for h in record.headers]
    return Record(
        None if key == b"null" else key,
        None if value == b"null" else value,
        headers,
        record.timestamp,
        record.tag,
        record.keys or (),
        record.properties,
    )


def _from_text(record: TextRecord, max_depth: int) -> Record:
    return Record(
        _encoded(record.key),
        _encoded(record.value),
        [(header.key, _encoded(header.value)) for header in record.headers or ()],
        record.timestamp,
        record.tag,
        record.keys or (),
        record.properties,
    )


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _check_depth(value: bytes, path: str, max_depth: int) -> None:
    if is_nested_deeper(value, max_depth - _DEPTH_OF_VALUE):
        raise RecordRefused(PAYLOAD, f"{path}: nested deeper than {max_depth} levels")


def is_nested_deeper(value: bytes, levels: int) -> bool:
    """Return whether valid JSON is nested deeper than `levels`. The number of brackets decides most cases."""
    if value.count(b"[") + value.count(b"{") <= levels:
        return False
    depth = 0
    for token in _BRACKETS.finditer(value):
        first = value[token.start()]
        if first in b"[{":
            depth += 1
            if depth > levels:
                return True
        elif first in b"]}":
            depth -= 1
    return False


def _check_utf8(body: bytes) -> None:
    """Check that JSON is UTF-8, also JSON that is kept verbatim and never parsed."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise ApiError(
            MALFORMED, f"the JSON is not UTF-8 at byte {error.start}: it must be"
        ) from None


def _check_count(count: int, limits: Limits) -> None:
    if count == 0:
        raise ApiError(PAYLOAD, "records is empty: send at least one record")
    if count > limits.max_records:
        raise ApiError(
            BODY_TOO_LARGE,
            f"records holds {count}, the limit is {limits.max_records} (max_records_per_request)",
            facts={"limit": limits.max_records},
        )


def _decoding_error(
    error: msgspec.DecodeError | RecursionError,
    kind: Any,
    text: bytes | Raw,
    limits: Limits,
    where: str = "",
) -> ApiError:
    """Convert an error of the decoder. `kind` is the type that was decoded; `where` is the place of a record in its
    body.
    """
    thing = "the body" if kind is Body[Raw] else "the record"
    if isinstance(error, RecursionError):
        return ApiError(PAYLOAD, f"{thing} is nested deeper than {limits.max_depth} levels")
    if not isinstance(error, msgspec.ValidationError):
        return ApiError(MALFORMED, f"{thing} is no JSON: {wrong_json(error, bytes(text))}")
    wrong = wrong_value(error, kind, text, whole=where or thing, within=where)
    if not wrong.needs_base64:
        return ApiError(PAYLOAD, wrong.text)
    code = BASE64 if is_bad_base64(error) else PAYLOAD
    return NotBase64(code, f"{wrong.text} ({_BASE64_HINT})")


def is_bad_base64(error: msgspec.ValidationError) -> bool:
    """Return whether the value is text that is not base64, and not a value of another type."""
    return "Invalid base64" in str(error)


_new = tuple.__new__  # the same as Record(...), without a Python call
_KINDS: Final = {
    Format.BINARY: _Kind(
        BinaryRecord,
        msgspec.json.Decoder(Body[BinaryRecord]).decode,
        msgspec.json.Decoder(BinaryRecord).decode,
        _from_binary,
    ),
    Format.JSON: _Kind(
        JsonRecord,
        msgspec.json.Decoder(Body[JsonRecord]).decode,
        msgspec.json.Decoder(JsonRecord).decode,
        _from_json,
    ),
    Format.TEXT: _Kind(
        TextRecord,
        msgspec.json.Decoder(Body[TextRecord]).decode,
        msgspec.json.Decoder(TextRecord).decode,
        _from_text,
    ),
}
_PLAIN_DECODER: Final = msgspec.json.Decoder(Body[PlainRecord])
_RAW_DECODER: Final = msgspec.json.Decoder(Body[Raw])
_COUNTER: Final = msgspec.json.Decoder(Body[_Anything])
