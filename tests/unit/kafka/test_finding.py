"""Search: in logs of the real Kafka, falling times, plateaus, gaps and emptied segments hide no record.

Damage hides no record outside the damaged batch.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from storage import Isolation, Page, Record
from storage.errors import Corrupt
from storage.kafka.log.reading import Limits
from storage.kafka.lookup import find
from storage.kafka.partition import Partition
from storage.kafka.store import KafkaStore
from storage.model import TopicPartition
from tests.golden import stores
from tests.golden.stores import GoldenPartition, by_id
from tests.unit.kafka.workshop import T0, Workshop, put_value

PER_BATCH = 3
BATCHES = 10
ALL = 100_000
FEW = 200  # records are enough where a backward search moves by one or three offsets


@pytest.mark.parametrize("partition", stores.partitions(), ids=by_id)
def test_every_record_in_a_range_of_time(partition: GoldenPartition) -> None:
    rows = partition.lines("expected.jsonl")
    times = sorted({row["timestamp"] for row in rows}) or [0]
    address = partition.address
    with stores.open_golden(partition.root, {}, read_only=True) as store:
        for low in (times[0], times[len(times) // 2], times[-1], times[-1] + 1):
            page = store.find(address.topic, from_ms=low, limit=100_000)
            found = [
                record.offset for number, record in page.records if number == address.partition
            ]
            assert found == [row["offset"] for row in rows if row["timestamp"] >= low]
            assert page.complete


@pytest.mark.parametrize("backward", [False, True])
def test_a_search_goes_on_where_retention_deletes_beside_it(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, backward: bool
) -> None:
    """Retention deletes segments after the first page; the search continues to or from the first remaining record."""
    monkeypatch.setattr(find, "PAGE", Limits(max_records=2, max_bytes=1 << 20))
    monkeypatch.setattr(find, "BACKWARD_OFFSETS", 4)
    store = shop.open({"internal.segment.bytes": "300"})
    store.create_topic("t", 1, {"retention.bytes": "600"})
    for number in range(20):
        put_value(store, b"value %02d" % number)
    store.flush()
    read, pages = Partition.read, count()

    def then_retention(self: Partition, offset: int, limits: Limits, isolation: Isolation) -> Page:
        page = read(self, offset, limits, isolation)
        if next(pages) == 0:
            assert store.enforce_retention(shop.clock.now_ms).segments_deleted > 2
        return page

    monkeypatch.setattr(Partition, "read", then_retention)
    page = store.find("t", limit=100, backward=backward)
    left = list(range(store.bounds(T0).start, 20))
    found = [record.offset for _, record in page.records]
    assert page.complete
    assert found == (left[::-1] if backward else [0, 1, *left])


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("partition", stores.partitions(), ids=by_id)
@pytest.mark.parametrize(
    ("offsets", "size_bytes"), [(1, 1 << 20), (3, 0), (1024, 500), (1024, 1 << 22)]
)
def test_the_way_back(
    partition: GoldenPartition, monkeypatch: pytest.MonkeyPatch, offsets: int, size_bytes: int
) -> None:
    """A backward search returns the forward order reversed, for any step in offsets and bytes."""
    rows = partition.lines("expected.jsonl")
    monkeypatch.setattr(find, "BACKWARD_OFFSETS", offsets)
    monkeypatch.setattr(find, "BACKWARD_BYTES", size_bytes)
    address, limit = partition.address, ALL if offsets > FEW else FEW
    with stores.open_golden(partition.root, {}, read_only=True) as store:
        page = store.find(address.topic, limit=limit, backward=True, max_bytes=1 << 30)
        found = [record.offset for number, record in page.records if number == address.partition]
        expected = [row["offset"] for row in reversed(rows)]
        assert found == expected[: len(found)]
        assert len(found) == len(expected) if page.complete else len(page.records) == limit


def damaged_store(shop: Workshop, bad: dict[int, list[int]]) -> KafkaStore:
    """Write ten batches of three records to each of three partitions; flip a CRC bit of the batches in `bad`."""
    store = shop.open_with_topic({"internal.segment.bytes": "1000"}, partitions=3)
    for number in range(3):
        for batch in range(BATCHES):
            values = [b"%d.%d" % (number, PER_BATCH * batch + i) for i in range(PER_BATCH)]
            records = [Record(value[-1:], value, timestamp_ms=batch) for value in values]
            store.append(TopicPartition("t", number), records)
    for number, batches in bad.items():
        at = TopicPartition("t", number)
        for batch in batches:
            offset = PER_BATCH * batch
            base = max(base for base in shop.bases(of=at) if base <= offset)
            path = shop.path(base, of=at)
            data = bytearray(shop.fs.read_bytes(path))
            position = 0
            while int.from_bytes(data[position : position + 8], "big") < offset:
                position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
            data[position + 17] ^= 1
            shop.put(path, bytes(data))
    return store


@pytest.mark.one_in(5)
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("limit", [1, 4, 100])
@pytest.mark.parametrize("span", [1, 5, 1024])
@pytest.mark.parametrize("asked", [{}, {"key": b"4"}, {"from_ms": 3}])
@pytest.mark.parametrize(
    "bad",
    [
        {0: [4]},
        {0: [0], 1: [9], 2: [0, 9]},
        {1: [2, 3, 6]},
        {0: [*range(BATCHES)], 2: [*range(3, BATCHES)]},
    ],
)
def test_damage_is_told_once_and_passed_with_its_cursor(
    monkeypatch: pytest.MonkeyPatch,
    *,
    bad: dict[int, list[int]],
    asked: dict[str, Any],
    span: int,
    limit: int,
    backward: bool,
) -> None:
    """Records before the damage come first; the error's cursor continues after it, in this and the other partitions."""
    monkeypatch.setattr(find, "BACKWARD_OFFSETS", span)
    store = damaged_store(Workshop(), bad)
    found: list[bytes | None] = []
    reported = 0
    cursor: str | None = None
    for _ in range(400):
        try:
            page = store.find("t", limit=limit, cursor=cursor, backward=backward, **asked)
        except Corrupt as error:
            reported += 1
            cursor = error.facts()["cursor"]  # type: ignore[assignment]
        else:
            found += [record.value for _, record in page.records]
            cursor = page.cursor
        if cursor is None:
            break
    expected = [
        b"%d.%d" % (number, offset)
        for number in range(3)
        for offset in range(PER_BATCH * BATCHES)
        if offset // PER_BATCH not in bad.get(number, ())
        and (asked.get("key") is None or offset % 10 == 4)
        and offset // PER_BATCH >= asked.get("from_ms", 0)
    ]
    assert found == (expected[::-1] if backward else expected)
    assert 1 <= reported <= sum(map(len, bad.values()))
    store.close()
