"""How a stream of records stands on the wire: as lines of JSON, or as server-sent events.

Owns the bytes of records, heart-beats, errors and the end for each of the two; pure. Either way an
error is the last thing of a stream, in the shape of every other error.

    NDJSON   {"topic":..,"offset":7,..}\\n         event stream   id: 0:7\\ndata: {"topic":..}\\n\\n
             \\n             nothing came                          : nothing new\\nid: 0:7\\n\\n
             {"error_code":..}\\n                                  event: error\\ndata: {"error_code":..}\\n\\n
             (closed)       the end that was asked for            event: end\\ndata: {"next_offset":8}\\n\\n
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from api.errors import MALFORMED, ApiError, error_body
from api.negotiation import EVENT_STREAM, NDJSON
from api.params import checked_integer
from storage import StoredRecord
from storage.shown import encode_json


class Frames(Protocol):
    """One kind of stream over one partition."""

    def records(self, rows: Sequence[bytes], records: Sequence[StoredRecord]) -> bytes:
        """Records, each encoded in its row without a line break."""

    def beat(self, next_offset: int) -> bytes:
        """A sign of life: there is nothing for this reader before `next_offset`."""

    def error(self, error: ApiError) -> bytes:
        """Why the stream ends early."""

    def end(self, next_offset: int) -> bytes:
        """The stream has given what was asked for."""


class Lines:
    """NDJSON. An empty line is a heart-beat; the end is that of the answer."""

    def __init__(self, partition: int) -> None:
        """Lines tell their partition themselves."""

    def records(self, rows: Sequence[bytes], records: Sequence[StoredRecord]) -> bytes:
        return b"\n".join((*rows, b""))

    def beat(self, next_offset: int) -> bytes:
        return b"\n"

    def error(self, error: ApiError) -> bytes:
        return encode_json(error_body(error), enc_hook=str) + b"\n"

    def end(self, next_offset: int) -> bytes:
        return b""


class Events:
    """Server-sent events. A reader goes on behind the last id that it saw; heart-beats move it too,
    past what is not shown to it.
    """

    def __init__(self, partition: int) -> None:
        self._partition = partition

    def records(self, rows: Sequence[bytes], records: Sequence[StoredRecord]) -> bytes:
        number = self._partition
        return b"".join(
            b"id: %d:%d\ndata: %b\n\n" % (number, record.offset, row)
            for record, row in zip(records, rows, strict=True)
        )

    def beat(self, next_offset: int) -> bytes:
        return b": nothing new\n" + self._id(next_offset) + b"\n"

    def error(self, error: ApiError) -> bytes:
        body = encode_json(error_body(error), enc_hook=str)
        return b"event: error\ndata: %b\n\n" % body

    def end(self, next_offset: int) -> bytes:
        return b'%bevent: end\ndata: {"next_offset":%d}\n\n' % (self._id(next_offset), next_offset)

    def _id(self, next_offset: int) -> bytes:
        return b"id: %d:%d\n" % (self._partition, next_offset - 1) if next_offset else b""


FRAMES: Final[Mapping[str, type[Lines] | type[Events]]] = {NDJSON: Lines, EVENT_STREAM: Events}


def resumed_at(last_event_id: str, partition: int) -> int:
    """The offset behind the one that a Last-Event-ID names. Raises 40000."""
    number, colon, offset = last_event_id.partition(":")
    if not colon or number != str(partition):
        raise ApiError(
            MALFORMED,
            f"Last-Event-ID is {last_event_id[:80]!r}: it must be {partition}:OFFSET, "
            "as the events of this partition have it",
        )
    return checked_integer("Last-Event-ID", offset, low=0) + 1
