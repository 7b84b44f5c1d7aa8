"""What schemathesis cannot know of our media types: how lines are written, and what is no JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(context: Any, value: Any) -> bytes:
    """A stream of one line, or what was made up as it is."""
    return value if isinstance(value, bytes) else msgspec.json.encode(value) + b"\n"


@schemathesis.deserializer(
    "application/vnd.kafka.recordbatch.v2", "application/x-ndjson", "text/event-stream"
)
def as_it_is(context: Any, response: Any) -> str:
    """What is not one JSON value counts as text."""
    return str(response.content)
