"""Append and read: content, order and pages of records, and rejected calls."""

from __future__ import annotations

import pytest

from storage.contract import LogStore
from storage.errors import (
    InvalidArgument,
    InvalidConfig,
    OffsetOutOfRange,
    RecordTooLarge,
    UnrepresentableRecord,
)
from storage.model import (
    Header,
    Isolation,
    OffsetBounds,
    ProducerSequence,
    Record,
    StoredRecord,
    TopicPartition,
)
from tests.contract.flavours import Flavour
from tests.contract.harness import (
    START_MS,
    StoreFactory,
    append_each,
    at_times,
    read_all,
    texts,
    values,
)

BIG = bytes(range(256)) * 400  # 102,400 bytes of every value

RECORDS = {
    "plain": Record(b"key", b"value"),
    "null key": Record(None, b"value"),
    "empty key": Record(b"", b"value"),
    "tombstone": Record(b"key", None),
    "empty value": Record(b"key", b""),
    "nothing at all": Record(None, None),
    "binary": Record(b"\x00\xff\xfe", bytes(range(256))),
    "large": Record(BIG[:40_000], BIG, [("h", BIG[:40_000])]),
    "separator in the key": Record(b"k\x01", b"v"),
    "NUL in the key": Record(b"k\0", b"v", lookup_keys=["a"]),
    "NUL and space in the key": Record(b"k \0", b"v"),
    "header": Record(b"k", b"v", [("name", b"value")]),
    "header null value": Record(b"k", b"v", [("name", None)]),
    "header empty value": Record(b"k", b"v", [("name", b"")]),
    "header empty name": Record(b"k", b"v", [("", b"value")]),
    "header names repeated": Record(
        b"k", b"v", [("a", b"1"), ("b", b"2"), ("a", None), ("a", b"")]
    ),
    "header not ascii": Record(b"k", b"v", [("größe", b"\xff"), ("名", b"\x00")]),
    "header of text": Record(b"k", b"v", [("größe", "groß".encode()), ("名", "前 😀".encode())]),
    "header of a reserved name": Record(b"k", b"v", [("UNIQ_KEY", b"1")]),
    "separator in a header": Record(b"k", b"v", [("h", b"a\x02b")]),
    "NUL in a header": Record(b"k", b"v", [("h", b"a\0b")]),
    "large header": Record(b"k", b"v", [("h", b"x" * 32_800)]),
    "large headers": Record(b"k", b"v", [("h", b"x" * 16_400), ("i", b"x" * 16_400)]),
    "separator in the tag": Record(b"k", b"v", tag="a\x02"),
    "separator in a lookup key": Record(b"k", b"v", lookup_keys=["a", "b\x01"]),
    "many headers": Record(b"k", b"v", [(f"h{i}", b"%d" % i) for i in range(300)]),
    "time zero": Record(b"k", b"v", (), 0),
    "time one": Record(b"k", b"v", (), 1),
    "time before 1970": Record(b"k", b"v", (), -86_400_000),
    "time minus one": Record(b"k", b"v", (), -1),
    "time huge": Record(b"k", b"v", (), (1 << 63) - 1),
    "time beyond 32 bits": Record(b"k", b"v", (), 1 << 40),
}


def content(
    record: Record | StoredRecord,
) -> tuple[bytes | None, bytes | None, list[Header], int | None]:
    """Return the content that must be read back: key, value, headers in order (without tag and lookup keys), time."""
    headers = [(n, v) for n, v in record.headers if n not in ("TAGS", "KEYS")]
    return record.key, record.value, headers, record.timestamp_ms


def kept(flavour: Flavour) -> list[Record]:
    """Return the records that this backend can represent."""
    return [timed(record) for name, record in RECORDS.items() if name not in flavour.unkept]


def timed(record: Record) -> Record:
    """Return the record, with a time if it has none."""
    return record if record.timestamp_ms is not None else record._replace(timestamp_ms=START_MS)


@pytest.mark.parametrize("name", RECORDS)
def test_round_trip(
    store: LogStore, partition: TopicPartition, flavour: Flavour, name: str
) -> None:
    """A record is read back unchanged: null differs from empty, and headers keep order and repeats.

    A record that a backend cannot represent is rejected with its field and index, and nothing is stored.
    """
    record = timed(RECORDS[name])
    if name in flavour.unkept:
        with pytest.raises(UnrepresentableRecord) as refused:
            store.append(partition, [Record(b"k", b"v"), record])
        assert refused.value.facts() == {"field": flavour.unkept[name], "index": 1}
        assert store.bounds(partition).end == 0
        return
    store.append(partition, [record])
    (stored,) = store.read(partition, 0).records
    assert content(stored) == content(record)
    assert (stored.offset, stored.timestamp_type) == (0, "CreateTime")


@pytest.mark.parametrize("compression", [None, "none", "gzip", "snappy", "lz4", "zstd", "zlib"])
def test_round_trip_together(
    store: LogStore, partition: TopicPartition, flavour: Flavour, compression: str | None
) -> None:
    """Records of a single append are read back unchanged under each codec; a codec not offered is InvalidArgument."""
    records = [*kept(flavour), timed(Record(b"k", BIG[:10_000]))]
    if compression is not None and compression not in flavour.codecs:
        with pytest.raises(InvalidArgument) as refused:
            store.append(partition, records, compression=compression)
        assert refused.value.facts()["field"] == "compression"
        return
    store.append(partition, records, compression=compression)
    assert [content(r) for r in read_all(store, partition)] == [content(r) for r in records]


@pytest.mark.parametrize("codec", ["uncompressed", "producer", "gzip", "snappy", "lz4", "zstd"])
def test_topic_codec(store: LogStore, flavour: Flavour, codec: str) -> None:
    """A topic's codec, where such a config exists, does not change the records read."""
    if flavour.codec_config is None:
        with pytest.raises(InvalidConfig):
            store.create_topic("packed", 1, {"compression.type": codec})
        return
    store.create_topic("packed", 1, {flavour.codec_config: codec})
    partition = TopicPartition("packed", 0)
    store.append(partition, texts(*"abc"))
    assert values(store.read(partition, 0)) == [b"a", b"b", b"c"]


def test_tag_and_lookup_keys(store: LogStore, partition: TopicPartition) -> None:
    """Tag and lookup keys are read back in their own fields, the keys in order."""
    store.append(partition, [Record(b"k", b"v", tag="red", lookup_keys=["k1", "k2"])])
    store.append(partition, [Record(b"k", b"v")])
    marked, plain = store.read(partition, 0).records
    assert (marked.tag, list(marked.lookup_keys)) == ("red", ["k1", "k2"])
    assert (plain.tag, list(plain.lookup_keys)) == (None, [])


def test_time_by_the_clock(store_factory: StoreFactory) -> None:
    """A record without a time gets the store's clock; a record with a time keeps it."""
    store = store_factory.open()
    store.create_topic("a")
    store_factory.clock.now_ms = 1_234_567_890_123
    result = store.append(TopicPartition("a", 0), [Record(b"k", b"v"), Record(b"k", b"v", (), 5)])
    assert result.timestamp_ms == -1
    records = store.read(TopicPartition("a", 0), 0).records
    assert [r.timestamp_ms for r in records] == [1_234_567_890_123, 5]
    if store.capabilities.time_axis == "store_timestamp":
        assert [r.store_timestamp_ms for r in records] == [1_234_567_890_123] * 2


def test_append_time(store_factory: StoreFactory) -> None:
    """Under LogAppendTime every record has the time of its append, which the result reports.

    A backend that stores the append's time next to the record's own has no such config.
    """
    store = store_factory.open()
    append_time = store_factory.flavour.append_time
    assert (append_time is None) == (store.capabilities.time_axis == "store_timestamp")
    if append_time is None:
        return
    store.create_topic("a", 1, append_time)
    store_factory.clock.now_ms = 1_234_567_890_123
    result = store.append(TopicPartition("a", 0), [Record(b"k", b"v"), Record(b"k", b"v", (), 5)])
    assert result.timestamp_ms == 1_234_567_890_123
    for record in store.read(TopicPartition("a", 0), 0).records:
        assert record.timestamp_ms == 1_234_567_890_123
        assert record.timestamp_type == "LogAppendTime"


def test_offsets_are_dense(store: LogStore, partition: TopicPartition) -> None:
    """Offsets count from 0 without gaps, in append order, in each partition separately."""
    other = TopicPartition("events", 1)
    assert store.append(partition, texts("a", "b", "c"))[:2] == (0, 2)
    assert store.append(other, texts("x"))[:2] == (0, 0)
    assert store.append(partition, texts("d"))[:2] == (3, 3)
    assert [(r.offset, r.value) for r in read_all(store, partition)] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
        (3, b"d"),
    ]
    assert values(read_all(store, other)) == [b"x"]


def test_locators(store: LogStore, partition: TopicPartition) -> None:
    """An append returns a locator for each record, equal to the locators of a read."""
    locators = [
        n for r in (texts("a", "b"), texts("c")) for n in store.append(partition, r).locators
    ]
    assert locators == [record.locator for record in read_all(store, partition)]
    assert len(set(locators)) == 3


def test_empty_append_is_refused(store: LogStore, partition: TopicPartition) -> None:
    """An append without records is rejected."""
    with pytest.raises(InvalidArgument) as refused:
        store.append(partition, [])
    assert refused.value.facts()["field"] == "records"
    assert store.bounds(partition).end == 0


def test_unknown_codec_is_refused(store: LogStore, partition: TopicPartition) -> None:
    """A codec that does not exist is InvalidArgument and stores nothing."""
    with pytest.raises(InvalidArgument) as refused:
        store.append(partition, texts("a"), compression="rar")
    assert refused.value.facts()["field"] == "compression"
    assert store.bounds(partition).end == 0


@pytest.mark.parametrize("time_ms", [1 << 63, -(1 << 63) - 1])
def test_time_beyond_64_bits(store: LogStore, partition: TopicPartition, time_ms: int) -> None:
    """A time that does not fit into 64 bits is rejected with field and record index, and nothing is stored."""
    with pytest.raises(UnrepresentableRecord) as refused:
        store.append(partition, [Record(b"k", b"v"), Record(b"k", b"v", (), time_ms)])
    assert refused.value.facts() == {"field": "timestamp", "index": 1}
    assert store.bounds(partition).end == 0


def test_record_too_large(store_factory: StoreFactory) -> None:
    """A record over the configured limit is rejected with its sizes and index; nothing is stored."""
    store, partition = store_factory.open_limited(1000)
    with pytest.raises(RecordTooLarge) as refused:
        store.append(partition, [Record(b"k", b"fits"), Record(b"k", bytes(5000))])
    facts = refused.value.facts()
    assert (facts["limit_bytes"], facts["index"]) == (1000, 1)
    assert isinstance(facts["size_bytes"], int)
    assert facts["size_bytes"] >= 5000
    assert store.bounds(partition).end == 0


def test_sequenced_append_must_fit_as_one(store_factory: StoreFactory) -> None:
    """An append with a producer is one unit.

    Where it is a batch, records that are too large together are rejected, and the sequence stays. Where it is a run of
    messages, only each message has a limit.
    """
    store, partition = store_factory.open_limited(1000)
    store.append(partition, texts("first"), producer=ProducerSequence(1, 0, 0))
    large, mark = texts("x" * 400) * 60, ProducerSequence(1, 0, 1)
    if store.capabilities.messages:
        assert store.append(partition, large, producer=mark)[:2] == (1, 60)
        again = store.append(partition, large, producer=mark)
        assert (again[:2], again.duplicate) == ((1, 60), True)
        return
    with pytest.raises(RecordTooLarge):
        store.append(partition, large, producer=mark)
    assert store.bounds(partition).end == 1
    assert store.append(partition, texts("next"), producer=mark)[:2] == (1, 1)


@pytest.mark.parametrize("producer", [None, ProducerSequence(1, 0, 0)])
def test_a_preview_refuses_what_the_append_would(
    store_factory: StoreFactory, producer: ProducerSequence | None
) -> None:
    """A preview rejects the same records as an append, by the limits of an existing topic, and stores nothing.

    Records with a producer count as one unit.
    """
    store, partition = store_factory.open_limited(1000)
    too_large, no_time = Record(b"k", bytes(5000)), Record(b"k", b"v", (), 1 << 63)
    for record in (too_large, no_time):
        records = [Record(b"k", b"fits"), record]
        with pytest.raises((RecordTooLarge, UnrepresentableRecord)) as previewed:
            store.preview_topic(partition.topic, records, producer=producer)
        with pytest.raises((RecordTooLarge, UnrepresentableRecord)) as appended:
            store.append(partition, records, producer=producer)
        assert previewed.value.facts() == appended.value.facts()
    fits = texts("x" * 400) * (1 if producer is not None else 60)
    assert store.preview_topic(partition.topic, fits, producer=producer).name == partition.topic
    assert store.bounds(partition).end == 0


def test_default_limit(store: LogStore, partition: TopicPartition, flavour: Flavour) -> None:
    """Without a setting, a value up to the backend's default limit fits, and a larger value does not."""
    fits, too_large = flavour.default_limit
    store.append(partition, [Record(None, bytes(fits))])
    with pytest.raises(RecordTooLarge) as refused:
        store.append(partition, [Record(None, b"fits"), Record(None, bytes(too_large))])
    assert refused.value.facts()["index"] == 1
    assert store.bounds(partition).end == 1


def test_max_records(store: LogStore, partition: TopicPartition) -> None:
    """A page has at most `max_records` records, and that many if they exist; it may begin within an append."""
    store.append(partition, texts(*"abcdefg"))
    page = store.read(partition, 2, max_records=3)
    assert (values(page), page.next_offset) == ([b"c", b"d", b"e"], 5)
    page = store.read(partition, page.next_offset, max_records=3)
    assert (values(page), page.next_offset) == ([b"f", b"g"], 7)


@pytest.mark.parametrize("together", [True, False], ids=["one append", "each its own"])
def test_max_bytes(store: LogStore, partition: TopicPartition, together: bool) -> None:
    """The values of a page stay within `max_bytes`; reading page by page returns every record once."""
    records = texts(*(f"{i:04d}" * 250 for i in range(20)))
    if together:
        store.append(partition, records)
    else:
        append_each(store, partition, records)
    seen, offset = list[bytes | None](), 0
    while offset < 20:
        page = store.read(partition, offset, max_bytes=4500)
        assert 1 <= len(page.records) <= 4
        assert page.next_offset == offset + len(page.records)
        seen += values(page)
        offset = page.next_offset
    assert seen == [r.value for r in records]


@pytest.mark.parametrize("max_bytes", [0, 1, -1])
def test_at_least_one(
    store: LogStore, partition: TopicPartition, flavour: Flavour, max_bytes: int
) -> None:
    """A record larger than `max_bytes` is returned alone, so that no reader is stuck before it."""
    size = flavour.big_bytes
    append_each(store, partition, [Record(None, bytes(size)), Record(None, b"after")])
    page = store.read(partition, 0, max_bytes=max_bytes if max_bytes >= 0 else size - 1)
    assert [len(value or b"") for value in values(page)] == [size]
    assert page.next_offset == 1


def test_bounds(store: LogStore, partition: TopicPartition) -> None:
    """Bounds are start = 0 <= stable <= end = the next offset; a page has the bounds at its time."""
    assert store.bounds(partition) == OffsetBounds(0, 0, 0)
    store.append(partition, texts("a", "b"))
    assert store.bounds(partition) == OffsetBounds(start=0, stable=2, end=2)
    assert store.read(partition, 1).bounds == OffsetBounds(0, 2, 2)


def test_read_at_the_end(store: LogStore, partition: TopicPartition) -> None:
    """A read at the end returns an empty page and the same offset, not an error."""
    page = store.read(partition, 0)
    assert (list(page.records), page.next_offset) == ([], 0)
    store.append(partition, texts("a"))
    page = store.read(partition, 1)
    assert (list(page.records), page.next_offset) == ([], 1)


@pytest.mark.parametrize("offset", [-1, 3, 4, 1 << 62, -(1 << 62)])
@pytest.mark.parametrize("isolation", Isolation)
def test_out_of_range(
    store: LogStore, partition: TopicPartition, offset: int, isolation: Isolation
) -> None:
    """A read outside [start, end] is rejected with both bounds."""
    store.append(partition, texts("a", "b"))
    with pytest.raises(OffsetOutOfRange) as refused:
        store.read(partition, offset, isolation=isolation)
    assert (refused.value.earliest, refused.value.latest) == (0, 2)
    assert refused.value.code == "offset-out-of-range"
    assert refused.value.facts() == {
        "topic": "events",
        "partition": 0,
        "offset": offset,
        "earliest": 0,
        "latest": 2,
    }


@pytest.mark.parametrize("isolation", Isolation)
def test_isolation_without_transactions(
    store: LogStore, partition: TopicPartition, isolation: Isolation
) -> None:
    """Without an open transaction both isolations read the same records."""
    store.append(partition, texts("a", "b"))
    assert values(store.read(partition, 0, isolation=isolation)) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (None, None, "abcdef"),
        (2, None, "cdef"),
        (None, 2, "ab"),
        (1, 5, "bcde"),
        (3, 3, ""),
        (4, 2, ""),
        (6, None, ""),
        (0, 99, "abcdef"),
    ],
)
def test_scan(
    store: LogStore, partition: TopicPartition, start: int | None, stop: int | None, expected: str
) -> None:
    """`scan` returns records of start <= offset < stop, up to the end at the beginning of the scan."""
    store.append(partition, texts(*"abcd"))
    store.append(partition, texts(*"ef"))
    assert [r.value for r in store.scan(partition, start, stop)] == [c.encode() for c in expected]


def test_scan_ends_where_the_log_ended(store: LogStore, partition: TopicPartition) -> None:
    """Records appended during a scan are not in it, so it ends."""
    store.append(partition, texts("a", "b"))
    seen = 0
    for _ in store.scan(partition):
        store.append(partition, texts("more"))
        seen += 1
    assert seen == 2


def test_stats_count(store: LogStore, partition: TopicPartition, flavour: Flavour) -> None:
    """`stats` counts topics, partitions and at least the bytes of the values."""
    empty = store.stats()
    append_each(store, partition, at_times(1, 2, 3))
    store.append(partition, [Record(None, BIG[: flavour.big_bytes])])
    stats = store.stats()
    assert (stats.topics, stats.partitions, stats.fenced) == (1, 2, None)
    assert stats.size_bytes >= empty.size_bytes + flavour.big_bytes
