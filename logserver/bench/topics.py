"""What is asked of an HTTP server beside the load: topics, and what they hold.

Owns these calls, blocking, one connection each; must not be used while something is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import msgspec

from logserver.bench.shapes import Call, Shape, filled
from logserver.bench.wire import Address, Answer, call
from logserver.errors import ServerRefused, StrangeAnswer

Place = tuple[str, int]


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
        """All of them, where the server has a call for that."""
        for topic in self.names:
            self._call(self._shape.create, topic=topic, partitions=self._partitions)

    def delete(self) -> None:
        """All of them, where the server has a call for that."""
        for topic in self.names:
            self._call(self._shape.delete, topic=topic, partitions=self._partitions)

    @property
    def places(self) -> Iterable[Place]:
        """Each partition of each topic."""
        return product(self.names, range(self._partitions))

    def ends(self, places: Iterable[Place]) -> Mapping[Place, int]:
        """The next offset of each; none where the server does not tell."""
        if self._shape.end_offset is None:
            return {}
        return {place: self._end(*place) for place in places}

    def stored(self) -> int | None:
        """What all hold together; None where that is not told."""
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

    def _call(self, wanted: Call | None, **values: object) -> Answer | None:
        if wanted is None:
            return None
        path, body = filled(wanted.path, values), filled(wanted.body, values).encode()
        answer = call(self.address, wanted.method, path, headers=wanted.headers, body=body)
        if answer.status >= 300:
            message = f"{wanted.method} {path}: {answer.status} {answer.body[:300]!r}"
            raise ServerRefused(message, status=answer.status, error_code=answer.status, answer={})
        return answer
