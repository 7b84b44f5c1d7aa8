"""Calls to an HTTP server outside the load: create and delete topics, read their log ends.

Owns these calls, which block and open a connection each; must not be used during a measurement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import msgspec

from logserver.bench.http_templates import RequestTemplate, Shape, filled
from logserver.bench.wire import Address, WireResponse, call
from logserver.errors import ServerRefused, StrangeAnswer

PartitionKey = tuple[str, int]


class _EndOffset(msgspec.Struct):
    end_offset: int


class Topics:
    """The topics of one repeat, of `partitions` each. Raises OSError, ServerRefused, StrangeAnswer."""

    def __init__(
        self, shape: Shape, address: Address, names: Sequence[str], partitions: int
    ) -> None:
        self.names = names
        self._shape = shape
        self.address = address
        self._partitions = partitions

    def create(self) -> None:
        """Create all topics, if the server has a call for it."""
        for topic in self.names:
            self._call(self._shape.create, topic=topic, partitions=self._partitions)

    def delete(self) -> None:
        """Delete all topics, if the server has a call for it."""
        for topic in self.names:
            self._call(self._shape.delete, topic=topic, partitions=self._partitions)

    @property
    def places(self) -> Iterable[PartitionKey]:
        """All partitions of all topics."""
        return product(self.names, range(self._partitions))

    def ends(self, places: Iterable[PartitionKey]) -> Mapping[PartitionKey, int]:
        """Return the next offset of each partition; empty if the server does not report it."""
        if self._shape.end_offset is None:
            return {}
        return {place: self._end(*place) for place in places}

    def stored(self) -> int | None:
        """Return the number of records in all partitions; None if the server does not report it."""
        ends = self.ends(self.places)
        return sum(ends.values()) if ends else None

    def _end(self, topic: str, partition: int) -> int:
        answer = self._call(self._shape.end_offset, topic=topic, partition=partition)
        if answer is None:
            return 0
        try:
            return msgspec.json.decode(answer.body, type=_EndOffset).end_offset
        except ValueError as error:
            message = f'end_offset: {answer.body[:200]!r} is not {{"end_offset": N}}: {error}'
            raise StrangeAnswer(message, status=answer.status) from None

    def _call(self, wanted: RequestTemplate | None, **values: object) -> WireResponse | None:
        if wanted is None:
            return None
        path, body = filled(wanted.path, values), filled(wanted.body, values).encode()
        answer = call(self.address, wanted.method, path, headers=wanted.headers, body=body)
        if answer.status >= 300:
            message = f"{wanted.method} {path}: {answer.status} {answer.body[:300]!r}"
            raise ServerRefused(message, status=answer.status, error_code=answer.status, answer={})
        return answer
