"""The shape of an HTTP server's calls: templates of paths and bodies, from a TOML description.

Owns the placeholders and their values; our own server is described in the same way (`shapes/logserver.toml`). Must not
send anything. A call that is missing in a description is a call that the server does not have.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

import msgspec

from logserver.bench.wire import Address, request
from logserver.bench.workload import SUFFIX, decode_toml
from storage.errors import InvalidArgument

PLACEHOLDER: Final = re.compile(r"\{([a-z][a-z_0-9]*)\}")
OURS: Final = "logserver"

_TOPIC: Final = frozenset({"topic", "partitions"})
_PRODUCE: Final = frozenset({"topic", "acks", "records"})
_RECORD: Final = frozenset({"value_base64", "value_text", "key_base64", "key_text"})
_FETCH: Final = frozenset({"topic", "partition", "offset", "max_records", "wait_ms"})
_LOOKUP: Final = frozenset({"topic", "partition", "key", "time_ms"})


class RequestTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request template."""

    method: str = "GET"
    path: str
    headers: dict[str, str] = {}
    body: str = ""

    def made(self, **values: object) -> bytes:
        """Build the request as bytes to send, with the placeholders replaced."""
        body = filled(self.body, values).encode()
        return request(self.method, filled(self.path, values), headers=self.headers, body=body)


class Produce(RequestTemplate, frozen=True, kw_only=True):
    """The call that publishes records. `record` is the template of a record in {records} of the body, separated by
    commas; `keyed_record` the template of a record with a key.

    `placed` finds partition and offset of the first record in a response; without it no end-to-end latency is known.
    """

    method: str = "POST"
    record: str
    keyed_record: str = ""
    placed: str = ""


class Fetch(RequestTemplate, frozen=True, kw_only=True):
    """The call that reads records. The next offset is in a response header, or is counted: each record contains one
    `row`.
    """

    next_offset_header: str = ""
    row: str = ""


class Lookup(RequestTemplate, frozen=True, kw_only=True):
    """A lookup call. `found` is text that a successful response contains."""

    found: str = ""


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server: its address and its calls. `end_offset` returns {"end_offset": N}, the next offset to be assigned."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    url: str = ""
    version: str | None = None
    create: RequestTemplate | None = None
    delete: RequestTemplate | None = None
    produce: Produce
    fetch: Fetch | None = None
    end_offset: RequestTemplate | None = None
    key_lookup: Lookup | None = None
    time_lookup: Lookup | None = None

    def calls(self) -> Iterator[tuple[str, RequestTemplate, frozenset[str]]]:
        """Yield the calls that the description has, with their names and the placeholders that each may use."""
        known = {
            "create": _TOPIC,
            "delete": _TOPIC,
            "produce": _PRODUCE,
            "fetch": _FETCH,
            "end_offset": _FETCH,
            "key_lookup": _LOOKUP,
            "time_lookup": _LOOKUP,
        }
        for name, placeholders in known.items():
            call = getattr(self, name)
            if call is not None:
                yield name, call, placeholders


def filled(template: str, values: dict[str, object]) -> str:
    """Replace each {placeholder} by its value; braces around any other text stay."""
    return PLACEHOLDER.sub(lambda found: str(values[found[1]]), template)


def record_values(value: bytes, key: bytes | None) -> dict[str, object]:
    """Return the values of the placeholders in a record template."""
    values: dict[str, object] = {
        "value_base64": base64.b64encode(value).decode(),
        "value_text": value.decode(),
    }
    if key is not None:
        values |= {"key_base64": base64.b64encode(key).decode(), "key_text": key.decode()}
    return values


def load_shape(place: str) -> Shape:
    """Load a description with a URL from a file. Raises InvalidArgument, which names the field, and OSError."""
    shape = parse_shape(Path(place).read_bytes(), place)
    try:
        Address.of(shape.url)
    except ValueError as error:
        raise InvalidArgument(f"{place}: url: {error}", field="url") from None
    return shape


def our_shape() -> Shape:
    """Return the shape of this project's server; it has no address, since the server is a child process."""
    data = files(__package__).joinpath("shapes", OURS + SUFFIX).read_bytes()
    return parse_shape(data, OURS)


def parse_shape(data: bytes, source: str) -> Shape:
    """Parse the text of a description. Raises InvalidArgument."""
    shape = decode_toml(data, source, Shape)
    for name, call, known in shape.calls():
        _check_line(f"{source}: {name}", call)
        _check(f"{source}: {name}.path", call.path, known)
        _check(f"{source}: {name}.body", call.body, known)
        if isinstance(call, Produce):
            if "{records}" not in call.body:
                problem = f"{call.body!r}: needs {{records}}, else nothing is published"
                raise InvalidArgument(f"{source}: {name}.body: {problem}", field=f"{name}.body")
            _check(f"{source}: {name}.record", call.record, _RECORD - {"key_base64", "key_text"})
            _check(f"{source}: {name}.keyed_record", call.keyed_record, _RECORD)
            _check_expression(f"{source}: {name}.placed", call.placed)
        if isinstance(call, Fetch) and not (call.next_offset_header or call.row):
            problem = "needs next_offset_header or row, to know how many records came"
            raise InvalidArgument(f"{source}: {name}: {problem}", field=name)
    return shape


def _check(field: str, template: str, known: frozenset[str]) -> None:
    for name in PLACEHOLDER.findall(template):
        if name not in known:
            names = ", ".join(f"{{{one}}}" for one in sorted(known))
            raise InvalidArgument(f"{field}: {{{name}}} is none of {names}", field=field)


def _check_line(field: str, call: RequestTemplate) -> None:
    """Check method, path and headers: a space or a line end too many would start another request."""
    if not call.path.startswith("/") or not call.path.isascii() or " " in call.path:
        problem = "needs a / at its beginning, and no spaces or letters beyond ASCII"
        raise InvalidArgument(f"{field}.path: {call.path!r}: {problem}", field=f"{field}.path")
    lines = {"method": call.method, "path": call.path}
    lines |= {f"headers.{name}": f"{name}: {value}" for name, value in call.headers.items()}
    for name, text in lines.items():
        if not (text and text.isascii() and text.isprintable()):
            problem = f"{field}.{name}: {text!r}: may hold printable ASCII only"
            raise InvalidArgument(problem, field=f"{field}.{name}")


def _check_expression(field: str, pattern: str) -> None:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise InvalidArgument(f"{field}: {pattern!r}: {error}", field=field) from None
    if pattern and groups != 2:
        problem = "needs two groups, the partition and the offset"
        raise InvalidArgument(f"{field}: {pattern!r}: {problem}", field=field)
