"""The bytes of a record stream: lines of JSON, or server-sent events.

Owns the bytes of records, heart-beats, errors and the end in each of the two forms; must not know HTTP. Pure. In both
forms an error is the last element of a stream, in the shape of every other error.

    NDJSON   {"topic":..,"offset":7,..}\\n         event stream   id: 0:7\\ndata: {"topic":..}\\n\\n
             \\n             no new record                         : nothing new\\nid: 0:7\\n\\n
             {"error_code":..}\\n                                  event: error\\ndata: {"error_code":..}\\n\\n
             (closed)       the requested end                     event: end\\ndata: {"next_offset":8}\\n\\n
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from api.http.errors import MALFORMED, ApiError, error_body
from api.http.negotiation import EVENT_STREAM, NDJSON
from api.http.parameters import checked_integer
from storage import StoredRecord
from storage.display import encode_json


class Lines:
    """NDJSON over one partition. An empty line is a heart-beat; the stream ends with the answer."""

    def __init__(self, partition: int) -> None:
        self._partition = partition

    def records(self, rows: Sequence[bytes], records: Sequence[StoredRecord]) -> bytes:
        """Return the bytes of records; each row is an encoded record without a line break."""
        return b"\n".join((*rows, b""))

    def beat(self, next_offset: int) -> bytes:
        """Return a heart-beat: there is no record for this reader before `next_offset`."""
        return b"\n"

    def error(self, error: ApiError) -> bytes:
        """Return the bytes of the error that ends the stream early."""
        return encode_json(error_body(error), enc_hook=str) + b"\n"

    def end(self, next_offset: int) -> bytes:
        """Return the bytes of the requested end of the stream."""
        return b""


class Events(Lines):
    """Server-sent events. A reader continues after the last id that it received; heart-beats also advance the id past
    hidden offsets.
    """

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


FRAMES: Final[Mapping[str, type[Lines]]] = {NDJSON: Lines, EVENT_STREAM: Events}


def resumed_at(last_event_id: str, partition: int) -> int:
    """Return the offset after the offset in a Last-Event-ID. Raises 40000."""
    number, colon, offset = last_event_id.partition(":")
    if not colon or number != str(partition):
        raise ApiError(
            MALFORMED,
            f"Last-Event-ID is {last_event_id[:80]!r}: it must be {partition}:OFFSET, "
            "as the events of this partition have it",
        )
    return checked_integer("Last-Event-ID", offset, low=0) + 1
