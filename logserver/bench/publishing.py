"""HTTP requests that publish a workload's records, built before they are sent.

Owns bodies, keys and the order of topics; must not send requests. A value is printable text, so that it fits into any
template.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

from logserver.bench.http_templates import Produce, filled, record_values
from logserver.bench.workload import KEYS, Workload

FILL_BYTES: Final = 1_000_000  # total size of the values in a request that fills a store
FILL_RECORDS: Final = 1000
SEED: Final = 1
_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyz0123456789"


class Requests:
    """The requests of one workload for one server."""

    def __init__(self, workload: Workload, produce: Produce, topics: Sequence[str]) -> None:
        self._workload = workload
        self._produce = produce
        self._topics = topics
        self.keyed = workload.key_distributor != "NO_KEY" and bool(produce.keyed_record)
        drawn = random.Random(SEED)
        self._value = bytes(drawn.choices(_LETTERS, k=workload.message_size))

    def repeated(self) -> list[bytes]:
        """Build requests that are sent in a cycle. Request number n is for topic n modulo the number of topics."""
        size = self._workload.own.records_per_request
        bodies = [self._records(None, size)]
        if self.keyed:
            numbers = list(range(KEYS))
            if self._workload.key_distributor == "RANDOM_NANO":
                random.Random(SEED).shuffle(numbers)
            bodies = [
                self._records(numbers[begin : begin + size], size)
                for begin in range(0, max(KEYS - size, 0) + 1, size)
            ]
        count = len(self._topics)
        turns = -(-max(count, len(bodies)) // count)
        return [
            self._made(self._topics[number % count], bodies[number % len(bodies)])
            for number in range(turns * count)
        ]

    @property
    def fill_size(self) -> int:
        """Number of records in a fill request: as many as the workload asks for, few enough that each topic gets
        some.
        """
        workload = self._workload
        wanted = workload.own.fill_records_per_request
        size = wanted or min(FILL_RECORDS, FILL_BYTES // workload.message_size)
        return max(1, min(size, workload.filled_records // len(self._topics)))

    def filling(self) -> Iterator[bytes]:
        """Yield the fill requests, rounded up to whole requests. If the workload has keys, each record has its own: see
        `key`.
        """
        size, keyless = self.fill_size, None if self.keyed else self._records(None, self.fill_size)
        for number in range(self.fill_count):
            topic = self._topics[number % len(self._topics)]
            first = number * size
            yield self._made(topic, keyless or self._records(range(first, first + size), size))

    @cached_property
    def fill_count(self) -> int:
        """Number of fill requests."""
        return -(-self._workload.filled_records // self.fill_size)

    @property
    def filled_records(self) -> int:
        """Number of records in all fill requests."""
        return self.fill_count * self.fill_size

    def topic_of(self, record: int) -> str:
        """Return the topic that a fill record, given by its number, was sent to."""
        return self._topics[record // self.fill_size % len(self._topics)]

    def _records(self, keys: Sequence[int] | None, count: int) -> str:
        """Build the record list of a body; all records have the same value."""
        if keys is None:
            return ",".join(
                [filled(self._produce.record, record_values(self._value, None))] * count
            )
        template = filled(
            self._produce.keyed_record,
            record_values(self._value, None)
            | {"key_base64": "{key_base64}", "key_text": "{key_text}"},
        )
        return ",".join(filled(template, record_values(b"", key(number))) for number in keys)

    def _made(self, topic: str, records: str) -> bytes:
        acks = self._workload.own.acks
        return self._produce.made(topic=topic, acks=acks, records=records)


def key(number: int) -> bytes:
    """Return the key of a record by its number."""
    return b"key-%010d" % number
