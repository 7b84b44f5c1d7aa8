"""Record batches of Kafka clients in front of every backend that they may use: stored as batches, or as messages."""

from __future__ import annotations

import pytest

from storage import ClientBatches, client_batches_of
from storage.contract import LogStore
from storage.errors import (
    FencedProducer,
    InvalidBatch,
    NotOffered,
    OffsetOutOfRange,
    OutOfOrderSequence,
    UnknownPartition,
    UnknownTopic,
    UnrepresentableRecord,
)
from storage.kafka.format.batch import decode_records, encode_batch, split_batches
from storage.model import Header, Isolation, ProducerSequence, Record, TopicPartition
from tests.contract.batches import CODECS, changed, headers, marker, transaction
from tests.contract.harness import START_MS, StoreFactory, read_all, values
from tests.contract.test_client_batches import UNREADABLE

FOR_CLIENTS_ONLY = {"snappy's official framing", "lz4, two frames", "lz4, linked blocks"}
"""Records that are complete, in blocks that some clients cannot read. A message is stored without the block."""


@pytest.fixture
def clients(store: LogStore) -> ClientBatches:
    """The `store` as Kafka clients see it."""
    found = client_batches_of(store)
    if found is None:
        pytest.skip(f"{store.capabilities.backend} is not offered to Kafka clients")
    return found


def sent(*texts: str, codec: int = 0, producer: ProducerSequence | None = None) -> bytes:
    """Return a batch whose records every backend can keep."""
    named: list[Header] = [("h", b"x")]
    mark = producer or ProducerSequence(-1, -1, -1)
    return encode_batch(
        [Record(b"k", text.encode(), named, START_MS + i) for i, text in enumerate(texts)],
        base_offset=4711,
        leader_epoch=-1,
        now_ms=START_MS,
        codec=codec,
        producer_id=mark.producer_id,
        producer_epoch=mark.epoch,
        base_sequence=mark.sequence,
    )


def records_in(data: bytes) -> list[tuple[int, int, bytes | None, bytes | None, list[Header]]]:
    """Return all records of batches: offset, time, key, value, headers."""
    return [
        (*record[:4], list(record[4]))
        for at, _ in split_batches(data)
        for record in decode_records(data, at)
    ]


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
def test_what_is_sent_is_read(
    store: LogStore, clients: ClientBatches, partition: TopicPartition, codec: int, checked: bool
) -> None:
    data = sent(*"abc", codec=codec)
    assert clients.are_compressed(data) == bool(codec)
    if checked:
        data = clients.check_client_batches("events", data)
    for base in (0, 3):
        stored = clients.append_batches(partition, data, checked=checked)
        assert (stored.base_offset, stored.last_offset) == (base, base + 2)
    page = clients.read_batches(partition, 0)
    assert (page.next_offset, page.bounds.end, page.aborted) == (6, 6, ())
    assert records_in(page.data) == [
        (offset, START_MS + offset % 3, b"k", b"abc"[offset % 3 : offset % 3 + 1], [("h", b"x")])
        for offset in range(6)
    ]
    assert {header.leader_epoch for header in headers(page.data)} == {0}
    assert [record.key for record in read_all(store, partition)] == [b"k"] * 6


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_batches(
    clients: ClientBatches, store: LogStore, partition: TopicPartition, name: str
) -> None:
    if not store.capabilities.batch_bytes and name in FOR_CLIENTS_ONLY:
        return
    with pytest.raises(InvalidBatch) as refused:
        clients.append_batches(partition, UNREADABLE[name])
    assert refused.value.facts()["field"] == "records"
    assert clients.bounds(partition).end == 0


def test_broken_batches(clients: ClientBatches, partition: TopicPartition) -> None:
    good = sent("a", "b")
    for wrong, field in (
        (good[:-1], "length"),
        (b"", "length"),
        (changed(good, 17, ">I", 7, new_crc=False), "crc"),
        (changed(good, 16, ">B", 1), "magic"),
        (changed(good, 57, ">i", 1), "count"),
        (changed(good, 57, ">i", 1 << 30), "count"),
    ):
        with pytest.raises(InvalidBatch) as refused:
            clients.check_client_batches("events", wrong)
        assert refused.value.facts()["field"] == field
        with pytest.raises(InvalidBatch) as refused:
            clients.append_batches(partition, wrong)
        assert refused.value.facts()["field"] == field
    assert clients.bounds(partition).end == 0


def test_what_no_client_sends(clients: ClientBatches, partition: TopicPartition) -> None:
    """Markers of transactions, and batches of a transaction that is not named."""
    for data in (marker(commit=True), transaction("a", sequence=0)):
        for refuse in (
            lambda data=data: clients.append_batches(partition, data),
            lambda data=data: clients.check_client_batches("events", data),
        ):
            with pytest.raises((NotOffered, UnrepresentableRecord)):
                refuse()
    assert clients.bounds(partition).end == 0


def test_a_batch_is_all_or_nothing(
    store: LogStore, clients: ClientBatches, partition: TopicPartition
) -> None:
    """A record that the backend cannot keep refuses its batch, and the error names it."""
    unkept: list[Record] = [
        Record(b"k", None, (), START_MS),
        Record(b"\xff", b"v", (), START_MS),
        Record(b"", b"v", (), START_MS),
        Record(None, b"v", [("a", b"1"), ("a", b"2")], START_MS),
        Record(None, b"v", [("a", None)], START_MS),
        Record(None, b"v", [("", b"x")], START_MS),
        Record(None, b"v", [("a\x01b", b"x")], START_MS),
        Record(None, b"v", [("UNIQ_KEY", b"x")], START_MS),
        Record(None, b"v", [("TAGS", b"\xff")], START_MS),
        Record(None, b"v", [("KEYS", b"a  b")], START_MS),
        Record(None, b"v", [("TAGS", b"a"), ("TAGS", b"b")], START_MS),
    ]
    stored = 0
    for record in unkept:
        good = Record(b"k", b"good", (), START_MS)
        data = encode_batch([good, record], base_offset=0, leader_epoch=-1, now_ms=START_MS)
        if store.capabilities.batch_bytes:
            clients.append_batches(partition, data)
            stored += 2
            continue
        with pytest.raises(UnrepresentableRecord) as refused:
            clients.append_batches(partition, data)
        assert refused.value.facts()["index"] == 1
    assert clients.bounds(partition).end == stored


def test_an_idempotent_producer(clients: ClientBatches, partition: TopicPartition) -> None:
    def produced(sequence: int, *texts: str, epoch: int = 0, checked: bool = False) -> object:
        data = sent(*texts, producer=ProducerSequence(5, epoch, sequence), codec=1)
        if checked:
            data = clients.check_client_batches("events", data)
        result = clients.append_batches(partition, data, checked=checked)
        return result.base_offset, result.duplicate

    assert produced(0, "a", "b") == (0, False)
    assert produced(2, "c", checked=True) == (2, False)
    assert produced(0, "a", "b", checked=True) == (0, True)
    assert produced(2, "c") == (2, True)
    with pytest.raises(OutOfOrderSequence):
        produced(9, "x")
    assert produced(0, "d", epoch=1) == (3, False)
    with pytest.raises(FencedProducer):
        produced(3, "x")
    assert values_of(clients, partition) == [b"a", b"b", b"c", b"d"]


def values_of(clients: ClientBatches, partition: TopicPartition) -> list[bytes | None]:
    """Return the values of all records, read page by page from small pages."""
    found: list[bytes | None] = []
    offset = 0
    while True:
        page = clients.read_batches(partition, offset, max_bytes=1)
        if not page.data:
            return found
        found += [record[3] for record in records_in(page.data) if record[0] >= offset]
        offset = page.next_offset


def test_sequences_survive_a_kill(durable_factory: StoreFactory) -> None:
    store = durable_factory.open()
    store.create_topic("events", 1)
    at = TopicPartition("events", 0)
    clients = client_batches_of(store)
    assert clients is not None
    data = sent("a", "b", producer=ProducerSequence(5, 0, 0))
    assert clients.append_batches(at, data)[:2] == (0, 1)
    store.flush([at])
    again = client_batches_of(durable_factory.after_kill())
    assert again is not None
    repeated = again.append_batches(at, data)
    assert (repeated.base_offset, repeated.last_offset, repeated.duplicate) == (0, 1, True)


def test_unpublished_batches_are_not_read(
    store: LogStore, clients: ClientBatches, partition: TopicPartition
) -> None:
    clients.append_batches(partition, sent("a"), publish=False)
    assert clients.read_batches(partition, 0)[:2] == (b"", 0)
    store.flush([partition])
    assert values(read_all(store, partition)) == [b"a"]
    assert len(records_in(clients.read_batches(partition, 0).data)) == 1


def test_pages(clients: ClientBatches, partition: TopicPartition) -> None:
    for text in "abcd":
        clients.append_batches(partition, sent(text * 1000))
    for isolation in Isolation:
        page = clients.read_batches(partition, 1, max_bytes=2600, isolation=isolation)
        assert [record[0] for record in records_in(page.data)] == [1, 2]
        assert page.next_offset == 3
    assert clients.read_batches(partition, 4)[:2] == (b"", 4)
    for offset in (-1, 5):
        with pytest.raises(OffsetOutOfRange):
            clients.read_batches(partition, offset)
    with pytest.raises(UnknownPartition):
        clients.read_batches(TopicPartition("events", 9), 0)
    with pytest.raises(UnknownTopic):
        clients.read_batches(TopicPartition("other", 0), 0)


def test_leader_epochs(clients: ClientBatches, partition: TopicPartition) -> None:
    clients.append_batches(partition, sent("a", "b"))
    assert clients.leader_epoch(partition) == 0
    assert clients.end_of_epoch(partition, 0) == (0, 2)
    assert clients.end_of_epoch(partition, 1) is None
    with pytest.raises(UnknownTopic):
        clients.leader_epoch(TopicPartition("other", 0))


def test_configs(store: LogStore, clients: ClientBatches, partition: TopicPartition) -> None:
    described = clients.describe_configs("events")
    assert [config.name for config in described] == sorted(config.name for config in described)
    assert list(described) == list(clients.default_configs())
    policy = next(config for config in described if config.name == "cleanup.policy")
    assert (policy.value, policy.kind) == ("delete", "list")
    with pytest.raises(UnknownTopic):
        clients.describe_configs("other")
