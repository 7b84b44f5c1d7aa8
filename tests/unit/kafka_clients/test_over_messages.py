"""Kafka's batches over RocketMQ messages: the same records as by the store's own calls, whatever the store holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import ClientBatches, LogStore, StoredRecord, client_batches_of, open_store
from storage.errors import InvalidBatch, UnrepresentableRecord
from storage.files import OverlayFileSystem
from storage.kafka.format.batch import decode_records, encode_batch, split_batches
from storage.model import ConfigSource, Header, RawMessage, Record, TopicPartition
from storage.rocketmq.store import RocketMQStore
from tests.contract.harness import START_MS, ManualClock
from tests.golden.rocketmq_stores import GoldenStore, all_stores, open_golden

AT = TopicPartition("t", 0)


@pytest.fixture
def store() -> RocketMQStore:
    """An open, empty store with the topic t."""
    return new_store()


def new_store(**options: str) -> RocketMQStore:
    """Return an open store with the topic t."""
    from storage import StoreOptions

    made = open_store(
        "rocketmq",
        Path("/store"),
        StoreOptions(settings=options),
        fs=OverlayFileSystem(),
        clock=ManualClock(),
    )
    assert isinstance(made, RocketMQStore)
    made.create_topic("t", 1)
    return made


def clients_of(store: LogStore) -> ClientBatches:
    """Return a store as Kafka clients see it."""
    found = client_batches_of(store)
    assert found is not None
    return found


def encoded(*records: Record) -> bytes:
    """Return a batch of a producer."""
    return encode_batch(records, base_offset=0, leader_epoch=-1, now_ms=START_MS)


def read(
    clients: ClientBatches, at: TopicPartition, offset: int, *, max_bytes: int = 1 << 20
) -> tuple[list[Record], list[int], int]:
    """Return the records of a page, their offsets, and the next offset. Every batch has no gap."""
    page = clients.read_batches(at, offset, max_bytes=max_bytes)
    records: list[Record] = []
    offsets: list[int] = []
    for position, header in split_batches(page.data):
        assert header.count == header.last_offset_delta + 1
        for number, time_ms, key, value, headers in decode_records(page.data, position):
            records.append(Record(key, value, list(headers), time_ms))
            offsets.append(number)
    return records, offsets, page.next_offset


def as_sent(record: StoredRecord) -> Record:
    """Return the record that a Kafka consumer gets."""
    headers: list[Header] = list(record.headers)
    if record.tag is not None:
        headers.append(("TAGS", record.tag.encode()))
    if record.lookup_keys:
        headers.append(("KEYS", " ".join(record.lookup_keys).encode()))
    return Record(record.key, record.value, headers, record.timestamp_ms)


@pytest.mark.parametrize("golden", all_stores(), ids=str)
def test_a_real_store_is_read_as_by_its_own_calls(golden: GoldenStore) -> None:
    """Every record of every topic for clients, page by page, with its offset; nothing else."""
    with open_golden(golden, read_only=True) as store:
        clients = clients_of(store)
        served = [name for name in store.topics() if clients.serves(name)]
        assert served or golden.name == "system"
        for name in served:
            for number in store.topics()[name].partitions:
                at = TopicPartition(name, number)
                expected = list(store.scan(at))
                offset, end = store.bounds(at).start, store.bounds(at).end
                found: list[Record] = []
                offsets: list[int] = []
                while offset < end:
                    records, numbers, following = read(clients, at, offset, max_bytes=5000)
                    assert following > offset
                    found += records
                    offsets += numbers
                    offset = following
                assert offsets == [record.offset for record in expected]
                assert found == [as_sent(record) for record in expected]


def test_topics_that_are_not_for_clients(store: RocketMQStore) -> None:
    serves = clients_of(store).serves
    for name in ("orders", "a_b-c", "DefaultCluster", "x" * 127, "a.b"):
        assert serves(name)
    for name in (
        *("%RETRY%group", "%DLQ%group", "a|b", "", "..", "x" * 250, "__cluster_metadata"),
        *("TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer"),
        *("SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT", "RMQ_SYS_TRANS_HALF_TOPIC"),
    ):
        assert not serves(name)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\1\2"), min_size=1, max_size=8)
NAME = TEXT.map(lambda text: f"n{text}")
HEADERS = st.dictionaries(NAME, TEXT, max_size=3).map(
    lambda named: [(name, value.encode()) for name, value in named.items()]
)
WORD = st.text("abc日", min_size=1, max_size=4)
RECORD = st.builds(
    Record,
    st.none() | TEXT.map(str.encode),
    st.binary(max_size=50),
    HEADERS,
    st.integers(0, 1 << 50),
    st.none() | WORD,
    st.lists(WORD, max_size=3, unique=True).map(tuple),
    st.none(),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(RECORD, min_size=1, max_size=8))
def test_a_record_is_the_same_however_it_came(records: list[Record]) -> None:
    """By a batch of a Kafka client, with tag and lookup keys as headers, or by an append of records."""
    batches = [
        Record(
            record.key,
            record.value,
            [
                *record.headers,
                *([("TAGS", record.tag.encode())] if record.tag is not None else []),
                *([("KEYS", " ".join(record.lookup_keys).encode())] if record.lookup_keys else []),
            ],
            record.timestamp_ms,
        )
        for record in records
    ]
    with new_store() as store, new_store() as other:
        clients_of(store).append_batches(AT, encoded(*batches))
        other.append(AT, records)
        ours, theirs = list(store.scan(AT)), list(other.scan(AT))
        assert [without_ids(record) for record in ours] == [without_ids(r) for r in theirs]
        found, offsets, _ = read(clients_of(store), AT, 0)
        assert found == [as_sent(record) for record in theirs]
        assert offsets == list(range(len(records)))


def without_ids(record: StoredRecord) -> object:
    properties = dict(record.properties or {})
    assert properties.pop("UNIQ_KEY")
    return (record.offset, as_sent(record), record.tag, record.lookup_keys, properties)


def test_the_clients_address_is_the_born_host(store: RocketMQStore) -> None:
    host = bytes([10, 0, 0, 7, 0, 0, 0x9C, 0x42])
    clients_of(store).append_batches(AT, encoded(Record(None, b"v")), born_host=host)
    (record,) = store.scan(AT)
    assert store.message_by_id(store.record_id(AT, record.locator)).message.born_host == host


def test_a_record_without_a_time_is_born_now(store: RocketMQStore) -> None:
    clients_of(store).append_batches(AT, encoded(Record(None, b"v", (), -1)))
    assert [record.timestamp_ms for record in store.scan(AT)] == [START_MS]


def test_one_batch_for_a_partition(store: RocketMQStore) -> None:
    """The real broker takes no more from a client (ProduceRequest.validateRecords)."""
    data = encoded(Record(None, b"v"))
    with pytest.raises(InvalidBatch, match="2 record batches"):
        clients_of(store).append_batches(AT, data + data)


def test_the_record_of_a_marker_is_named(store: RocketMQStore) -> None:
    from tests.contract.batches import marker, transaction

    for data in (marker(commit=False), transaction("a", sequence=0)):
        with pytest.raises(UnrepresentableRecord) as refused:
            clients_of(store).append_batches(AT, data)
        assert refused.value.facts() == {"field": "attributes", "index": 0}


def test_bodies_that_are_compressed_in_the_log_count_with_their_size(store: RocketMQStore) -> None:
    """A page has about as many bytes as were asked for, but for its first record."""
    for _ in range(8):
        store.append(AT, [Record(None, bytes(50_000))], compression="zlib")
    clients = clients_of(store)
    _, offsets, following = read(clients, AT, 2, max_bytes=120_000)
    assert (offsets, following) == ([2, 3], 4)
    _, offsets, following = read(clients, AT, 4, max_bytes=10)
    assert (offsets, following) == ([4], 5)
    assert read(clients, AT, 0)[1] == list(range(8))


def test_a_queue_with_gaps(store: RocketMQStore) -> None:
    """Filler entries of a queue are in no batch, and a reader passes over them."""
    clients = clients_of(store)
    store.append_messages(AT, [RawMessage(b"%d" % number, b"") for number in range(6)])
    store.files.catch_up(store.queue(AT), 6)
    units = store.queue(AT).units
    read_units = units.read

    def with_fillers(offset: int, count: int) -> object:
        return [
            unit._replace(physical_offset=0, size=0x7FFFFFFF) if offset + at in {0, 3, 5} else unit
            for at, unit in enumerate(read_units(offset, count))
        ]

    units.read = with_fillers  # type: ignore[method-assign,assignment]
    _, offsets, following = read(clients, AT, 0)
    assert (offsets, following) == ([1, 2, 4], 6)
    assert read(clients, AT, 5) == ([], [], 6)


def test_configs() -> None:
    store = new_store(maxMessageSize="1000", fileReservedTime="2")
    store.alter_topic("t", {"perm": "4"})
    clients = clients_of(store)
    configs = {config.name: config for config in clients.describe_configs("t")}
    assert (configs["perm"].value, configs["perm"].inherited) == ("4", "6")
    assert configs["perm"].source is ConfigSource.TOPIC
    assert configs["order"].source is ConfigSource.DEFAULT
    assert configs["max.message.bytes"].value == "1000"
    assert (configs["retention.ms"].value, configs["retention.ms"].source) == (
        "7200000",
        ConfigSource.STORE,
    )
    assert {config.value for config in clients.default_configs() if config.name == "perm"} == {"6"}
