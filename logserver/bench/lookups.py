"""Requests sent one at a time to a store of a given size: lookups by key and time, pages at random offsets, appends.

Owns the content of the requests and the check that a lookup's response holds the record. Must not fill the store.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from logserver.bench.http_templates import Fetch, Lookup, Shape, filled
from logserver.bench.load_loops import Closed, Sample
from logserver.bench.publishing import SEED, Requests, key
from logserver.bench.topics import PartitionKey
from logserver.bench.wire import Connection, request

LOOKUP_S: Final = 600.0  # for each kind, at most


class Lookups:
    """Lookups, `count` of each kind. `filled_ms`: the time range in which the store was filled. `note` gets each sample
    with its name and the number of lookups that found nothing.
    """

    def __init__(
        self,
        shape: Shape,
        requests: Requests,
        *,
        count: int,
        filled_ms: range,
        run: Callable[[Closed], Sample],
        note: Callable[[str, Sample, int], None],
    ) -> None:
        self._shape = shape
        self._requests = requests
        self._count = count
        self._filled_ms = filled_ms
        self._run = run
        self._note = note
        self._drawn = random.Random(SEED)

    def by_key_and_time(self) -> None:
        """Look up fill records by key and by time."""
        if not self._requests.filled_records:
            return
        places = list(self._places())
        if self._requests.keyed:
            self._take("key_lookup", self._shape.key_lookup, places)
        self._take("time_lookup", self._shape.time_lookup, places)

    def pages(self, ends: Mapping[PartitionKey, int], size: int) -> None:
        """Fetch pages of `size` records at random offsets."""
        filled_ends = [(place, end) for place, end in ends.items() if end]
        if self._shape.fetch is None or not filled_ends:
            return
        made = [
            _page(self._shape.fetch, place, self._drawn.randrange(max(1, end - size)), size)
            for place, end in self._drawn.choices(filled_ends, k=self._count)
        ]
        self._one_by_one("fetch", made)

    def appends(self) -> Sample:
        """Append requests as the workload publishes them."""
        return self._one_by_one("append", (self._requests.repeated() * self._count)[: self._count])

    def _places(self) -> Iterator[Mapping[str, object]]:
        for _ in range(self._count):
            record = self._drawn.randrange(self._requests.filled_records)
            yield {
                "topic": self._requests.topic_of(record),
                "partition": 0,
                "key": key(record).decode(),
                "time_ms": self._drawn.choice(self._filled_ms),
            }

    def _take(self, name: str, lookup: Lookup | None, places: list[Mapping[str, object]]) -> None:
        if lookup is not None:
            self._one_by_one(name, [lookup.made(**place) for place in places], lookup.found)

    def _one_by_one(self, name: str, requests: list[bytes], found: str = "") -> Sample:
        missed = []

        def watch(connection: Connection) -> None:
            if found.encode() not in connection.body():
                missed.append(connection.number)

        sample = self._run(Closed(requests, seconds=LOOKUP_S, most=len(requests), watch=watch))
        self._note(name, sample, len(missed))
        return sample


def _page(fetch: Fetch, place: PartitionKey, offset: int, size: int) -> bytes:
    topic, partition = place
    values: dict[str, object] = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "max_records": size,
        "wait_ms": 0,
    }
    return request(fetch.method, filled(fetch.path, values), headers=fetch.headers)
