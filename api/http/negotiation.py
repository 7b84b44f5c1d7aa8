"""Content types: the type of a body, and the possible types of the answer.

Owns the media types of the API and the rules for Content-Type and Accept; must not know calls or records. Pure. The
embedded format defines how the bytes of keys and values are represented in JSON: base64 (binary), JSON itself, or
plain text.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final

from api.http.errors import JSON, PROBLEM_JSON, ApiError


class Format(enum.Enum):
    """The representation of keys and values in JSON."""

    BINARY = "binary"
    JSON = "json"
    TEXT = "text"


V2_JSON: Final = "application/vnd.kafka.v2+json"
BINARY_V2_JSON: Final = "application/vnd.kafka.binary.v2+json"
JSON_V2_JSON: Final = "application/vnd.kafka.json.v2+json"
RECORD_BATCH: Final = "application/vnd.kafka.recordbatch.v2"
NDJSON: Final = "application/x-ndjson"
EVENT_STREAM: Final = "text/event-stream"
OCTET_STREAM: Final = "application/octet-stream"
HTML: Final = "text/html"
_FORM: Final = "application/x-www-form-urlencoded"

FORMATS: Final[Mapping[str, Format]] = {kind.value: kind for kind in Format}

# The first type of each is the answer to a client that accepts any type.
PLAIN_TYPES: Final = (JSON, V2_JSON, BINARY_V2_JSON, JSON_V2_JSON)
STREAM_TYPES: Final = (NDJSON, EVENT_STREAM)

RECORD_FORMATS: Final[Mapping[str, Format]] = {
    JSON: Format.BINARY,
    V2_JSON: Format.BINARY,
    BINARY_V2_JSON: Format.BINARY,
    JSON_V2_JSON: Format.JSON,
}


def media_type(content_type: str | None, allowed: Sequence[str]) -> str:
    """Return the media type of a body, one of `allowed`. Raises 415."""
    if content_type is None:
        raise ApiError(415, f"Content-Type is missing: send one of {', '.join(allowed)}")
    if content_type in allowed:
        return content_type
    kind, *parameters = (part.strip().lower() for part in content_type.split(";"))
    if kind not in allowed:
        by_curl = " (curl sends it by itself: give -H 'Content-Type: ...')" if kind == _FORM else ""
        raise ApiError(
            415,
            f"Content-Type {kind[:80]!r} is not taken here{by_curl}: send one of {', '.join(allowed)}",
        )
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name == "charset" and value.strip('"') not in {"utf-8", "utf8", "us-ascii"}:
            raise ApiError(415, f"charset {value[:40]!r} is not taken: send JSON as UTF-8")
    return kind


def negotiate(accept: str | None, offers: Sequence[str]) -> str:
    """Return the best of `offers` for an Accept header. Raises 406.

    application/problem+json concerns errors only; for other answers it counts as JSON.
    """
    if accept is None or accept == "*/*" or accept == offers[0]:
        return offers[0]
    best = ""
    best_rank = (0.0, 0)
    for entry in accept.split(","):
        kind, quality = _entry(entry)
        offer, precision = _match(kind, offers)
        if offer is not None and quality > 0 and (quality, precision) > best_rank:
            best, best_rank = offer, (quality, precision)
    if not best:
        raise ApiError(406, f"Accept {accept[:200]!r} names none of {', '.join(offers)}")
    return best


def wants_page(accept: str | None, offers: Sequence[str]) -> bool:
    """Return whether the client is a browser that asks for a page: `text/html` is offered, named in Accept, and the
    best of the offers.
    """
    if HTML not in offers or accept is None or HTML not in accept.lower():
        return False
    try:
        return negotiate(accept, offers) == HTML
    except ApiError:  # its quality is 0, and nothing else is offered
        return False


def _entry(entry: str) -> tuple[str, float]:
    kind, *parameters = (part.strip().lower() for part in entry.split(";"))
    quality = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                quality = float(value)
            except ValueError:
                quality = 0.0
    return kind, quality


def _match(kind: str, offers: Sequence[str]) -> tuple[str | None, int]:
    """Return the offer that one entry of Accept matches, and how specific the match is."""
    if kind in offers:
        return kind, 3
    if kind == PROBLEM_JSON:
        return JSON if JSON in offers else None, 1
    if kind == "*/*":
        return offers[0], 1
    if kind.endswith("/*"):
        return next((offer for offer in offers if offer.startswith(kind[:-1])), None), 2
    return None, 0
