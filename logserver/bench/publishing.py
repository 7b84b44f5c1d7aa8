"""The requests that publish a workload's records over HTTP, made before they are sent.

Owns bodies, keys and how requests take turns over topics; must not send them. A value is printable text, so that it
fits into any template.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

from logserver.bench.shapes import Produce, filled, record_values
from logserver.bench.workload import KEYS, Workload

FILL_BYTES: Final = 1_000_000  # of the values of a request that fills a store
FILL_RECORDS: Final = 1000
SEED: Final = 1
_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyz0123456789"


class Requests:
    """Those of one workload for one server."""

    def __init__(self, workload: Workload, produce: Produce, topics: Sequence[str]) -> None:
        self._workload = workload
        self._produce = produce
        self._topics = topics
        self.keyed = workload.key_distributor != "NO_KEY" and bool(produce.keyed_record)
        drawn = random.Random(SEED)
        self._value = bytes(drawn.choices(_LETTERS, k=workload.message_size))

    def repeated(self) -> list[bytes]:
        """To be sent in turn, again and again: the number of one, modulo the topics, is that of its topic."""
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
        """Records of a request that fills: as many as asked for, few enough that each topic gets some."""
        workload = self._workload
        wanted = workload.own.fill_records_per_request
        size = wanted or min(FILL_RECORDS, FILL_BYTES // workload.message_size)
        return max(1, min(size, workload.filled_records // len(self._topics)))

    def filling(self) -> Iterator[bytes]:
        """What the workload asks for, rounded up to whole requests; with keys, each has one of its own: see `key`."""
        size, keyless = self.fill_size, None if self.keyed else self._records(None, self.fill_size)
        for number in range(self.fill_count):
            topic = self._topics[number % len(self._topics)]
            first = number * size
            yield self._made(topic, keyless or self._records(range(first, first + size), size))

    @cached_property
    def fill_count(self) -> int:
        """Requests that fill."""
        return -(-self._workload.filled_records // self.fill_size)

    @property
    def filled_records(self) -> int:
        """Records of all of them."""
        return self.fill_count * self.fill_size

    def topic_of(self, record: int) -> str:
        """Where a record that filled, by its number, went."""
        return self._topics[record // self.fill_size % len(self._topics)]

    def _records(self, keys: Sequence[int] | None, count: int) -> str:
        """The list in a body: all values are alike."""
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
    """Of a record."""
    return b"key-%010d" % number
