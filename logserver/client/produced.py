"""Answers to produce requests: one whole answer, or rows from a request that streams both ways.

Owns how rows become values or errors; must not know the form of records in a request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from logserver.client.outgoing import produce_lines
from logserver.client.transport import NDJSON, Query, Response, Transport, lines_of
from logserver.client.values import Placed, PlacedLater, ProducedRow
from logserver.errors import PartlyStored, ServerRefused, StrangeAnswer
from logserver.validation import in_words
from storage import Record

_UNKNOWN: Final = 50000


class _Produced(Struct):
    offsets: Sequence[ProducedRow] | None


def placed(answer: Response) -> list[Placed]:
    """Return the places of the records of a produce request. Raises PartlyStored."""
    places: list[Placed] = []
    rows = answer.decoded(_Produced).offsets or ()
    for row in rows:
        if row.partition is None or row.error_code is not None:
            raise _partly_stored(rows)
        places.append(_place(row, row.partition))
    return places


def _place(row: ProducedRow, partition: int) -> Placed:
    if row.offset is not None:
        return Placed(partition, row.offset, row.message_id)
    return PlacedLater(partition, -1, row.message_id, row.delay_level or 0, row.deliver_at)


class ProduceStream:
    """A request that streams records to the server and rows back, at the same time."""

    def __init__(self, records: Iterable[Record] | AsyncIterable[Record]) -> None:
        self._records = records
        self._sent = 0
        self._is_sent = False

    async def run(
        self, transport: Transport, path: str, query: Query
    ) -> AsyncGenerator[ProducedRow, None]:
        """Yield the rows, one for each record. Raises ServerRefused if the stream ended before its records did."""
        headers = {"Content-Type": NDJSON, "Accept": NDJSON}
        count, last = 0, None
        async with transport.stream(
            "POST", path, query=query, body=self._body(), headers=headers
        ) as content:
            async for line in lines_of(content):
                last = _row(line)
                count += 1
                yield last
        if not self._is_sent or count != self._sent:
            raise _ended_early(last)

    async def _body(self) -> AsyncGenerator[bytes, None]:
        async for count, lines in produce_lines(self._records):
            self._sent += count
            yield lines
        self._is_sent = True


def _row(line: bytes) -> ProducedRow:
    try:
        return msgspec.json.decode(line, type=ProducedRow)
    except msgspec.DecodeError as error:
        problem = in_words(error, ProducedRow, line, whole="the line")
        raise StrangeAnswer(f"{line[:80]!r} is no row: {problem}", status=200) from None


def _ended_early(last: ProducedRow | None) -> ServerRefused:
    code = (last.error_code if last is not None else None) or _UNKNOWN
    reason = (last.error if last is not None else None) or "the connection broke"
    return ServerRefused(
        f"the stream ended before its records did: {reason}",
        status=code // 100 if code >= 1000 else code,
        error_code=code,
        answer={},
    )


def _partly_stored(rows: Sequence[ProducedRow]) -> PartlyStored:
    refused = [row for row in rows if row.error_code is not None]
    code = refused[0].error_code or _UNKNOWN
    return PartlyStored(
        f"{len(refused)} of {len(rows)} records were refused, the others are stored: "
        f"{refused[0].error}",
        status=code // 100,
        error_code=code,
        answer={"rows": [msgspec.to_builtins(row) for row in rows]},
    )
