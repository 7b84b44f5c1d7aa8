"""Messages: the fields of a record in a backend with `capabilities.messages`, and their rejection by other backends."""

from __future__ import annotations

import pytest

from storage.contract import LogStore, SupportsRawMessages
from storage.errors import InvalidArgument, NotOffered, OutOfOrderSequence, UnrepresentableRecord
from storage.model import ProducerSequence, RawMessage, Record, TopicPartition
from tests.contract.harness import START_MS, StoreFactory, read_all, texts, values

HOST = bytes([10, 1, 2, 7]) + (40002).to_bytes(4, "big")
HOST_V6 = bytes.fromhex("20010db8000000000000000000000001") + (40002).to_bytes(4, "big")
PREPARED, COMMITTED, ROLLED_BACK = 4, 8, 12


class MessageStore(SupportsRawMessages, LogStore):
    """A store that accepts messages, for the type checker."""


@pytest.fixture
def messages(store: LogStore) -> MessageStore:
    """The `store`, if its records are messages."""
    assert isinstance(store, SupportsRawMessages) == store.capabilities.messages
    if not store.capabilities.messages:
        pytest.skip(f"{store.capabilities.backend} keeps no messages")
    return store  # type: ignore[return-value]


def test_properties_are_for_messages(store: LogStore, partition: TopicPartition) -> None:
    """A backend without messages rejects a record with properties, with the field's name."""
    record = Record(b"k", b"v", properties={"WAIT": "false"})
    if store.capabilities.messages:
        store.append(partition, [record])
        return
    with pytest.raises(UnrepresentableRecord) as refused:
        store.append(partition, [Record(b"k", b"v"), record])
    assert refused.value.facts() == {"field": "properties", "index": 1}
    assert store.bounds(partition).end == 0


def test_what_a_record_becomes(messages: MessageStore, partition: TopicPartition) -> None:
    """Key, tag, lookup keys and headers are stored in the properties, with the key first in KEYS."""
    record = Record(
        b"k",
        b"v",
        [("colour", b"red")],
        5,
        tag="T",
        lookup_keys=["a", "b"],
        properties={"UNIQ_KEY": "U1", "WAIT": "false"},
    )
    messages.append(partition, [record])
    (stored,) = messages.read(partition, 0).records
    assert dict(stored.properties or {}) == {
        "colour": "red",
        "UNIQ_KEY": "U1",
        "WAIT": "false",
        "__SHARDINGKEY": "k",
        "KEYS": "k a b",
        "TAGS": "T",
    }
    assert (stored.timestamp_ms, stored.store_timestamp_ms) == (5, START_MS)
    assert [tuple(header) for header in stored.headers] == [("colour", b"red")]
    assert list(stored.lookup_keys) == ["a", "b"]


@pytest.mark.parametrize(
    ("record", "keys"),
    [
        (Record(b"k", b"v", lookup_keys=["k"]), "k"),
        (Record(b"k", b"v", lookup_keys=["a", "k"]), "a k"),
        (Record(b"a b", b"v", lookup_keys=["c"]), "c"),
        (Record(b"a b", b"v"), None),
        (Record(None, b"v"), None),
    ],
)
def test_keys(
    messages: MessageStore, partition: TopicPartition, record: Record, keys: str | None
) -> None:
    """The key is added to KEYS, unless KEYS already contains it or the key contains a space."""
    messages.append(partition, [record])
    (stored,) = messages.read(partition, 0).records
    assert (stored.properties or {}).get("KEYS") == keys
    assert stored.key == record.key
    for key in filter(None, [record.key, *(k.encode() for k in record.lookup_keys)]):
        assert len(messages.find("events", key=key).records) == 1


@pytest.mark.parametrize("name", ["KEYS", "TAGS", "DELAY", "MY_OWN"])
def test_other_properties_are_refused(
    messages: MessageStore, partition: TopicPartition, name: str
) -> None:
    """Only UNIQ_KEY and WAIT can be set; other properties come from the record's fields or from the broker."""
    with pytest.raises(UnrepresentableRecord) as refused:
        messages.append(partition, [Record(b"k", b"v", properties={name: "1"})])
    assert refused.value.facts() == {"field": "properties", "index": 0}


def test_unique_ids(messages: MessageStore, partition: TopicPartition) -> None:
    """A record is found by the unique id it is appended with."""
    for text in ("U1", "U2"):
        messages.append(partition, [Record(b"k", b"v", properties={"UNIQ_KEY": text})])
    page = messages.find("events", unique_id="U2")
    assert [record.offset for _, record in page.records] == [1]
    assert page.indexed
    assert list(messages.find("events", unique_id="U3").records) == []
    scanned = messages.find("events", unique_id="U2", scan=True)
    assert (list(scanned.records), scanned.indexed) == (list(page.records), False)


def test_ids_are_given_where_hosts_are(messages: MessageStore, partition: TopicPartition) -> None:
    """Records appended with a born host get a unique id each."""
    messages.append(partition, texts(*"abcdef"), born_hosts=[HOST] * 6)
    ids = [(record.properties or {})["UNIQ_KEY"] for record in read_all(messages, partition)]
    assert len({*ids}) == 6
    assert {len(text) for text in ids} == {32}
    for offset, text in enumerate(ids):
        ((_, record),) = messages.find("events", unique_id=text).records
        assert record.offset == offset


def test_raw_messages(messages: MessageStore, partition: TopicPartition) -> None:
    """Raw messages are stored unchanged; prepared and rolled back messages are in no queue."""
    flags = [0, PREPARED, COMMITTED, ROLLED_BACK, 0]
    raw = [
        RawMessage(b"%d" % n, b"KEYS\x01k%d\x02" % n, 7, flag, n) for n, flag in enumerate(flags)
    ]
    result = messages.append_messages(partition, raw, store_timestamp_ms=START_MS + 5)
    assert result[:2] == (0, 2)
    records = read_all(messages, partition)
    assert [(r.value, r.timestamp_ms, r.store_timestamp_ms) for r in records] == [
        (b"%d" % n, n, START_MS + 5) for n in (0, 2, 4)
    ]
    assert len(result.locators) == len(raw)
    assert [r.locator for r in records] == [result.locators[n] for n in (0, 2, 4)]


@pytest.mark.parametrize("born", [HOST, HOST_V6])
@pytest.mark.parametrize("stored", [HOST, HOST_V6])
def test_raw_hosts(
    messages: MessageStore, partition: TopicPartition, born: bytes, stored: bytes
) -> None:
    """Hosts may be IPv4 or IPv6; the store host is part of the record's id."""
    message = RawMessage(b"body", b"", born_host=born)
    result = messages.append_messages(partition, [message], store_host=stored)
    record_id = messages.record_id(partition, result.locators[0])
    assert record_id == stored.hex().upper() + "0" * 16
    assert messages.find_by_id(record_id) == (partition, messages.read(partition, 0).records[0])


@pytest.mark.parametrize("host", [b"", bytes(4), bytes(7), bytes(16), bytes(21)])
def test_bad_hosts(messages: MessageStore, partition: TopicPartition, host: bytes) -> None:
    """A host must have 8 or 20 bytes."""
    for born, stored in ((host, HOST), (HOST, host)):
        with pytest.raises(InvalidArgument):
            messages.append_messages(
                partition, [RawMessage(b"", b"", born_host=born)], store_host=stored
            )
    assert messages.bounds(partition).end == 0


def test_raw_messages_need_one(messages: MessageStore, partition: TopicPartition) -> None:
    """An append without messages is rejected."""
    with pytest.raises(InvalidArgument):
        messages.append_messages(partition, [])


def test_only_an_empty_log_begins_elsewhere(
    messages: MessageStore, partition: TopicPartition
) -> None:
    """The beginning of the log can be set only while the log is empty."""
    messages.append(partition, texts("a"))
    with pytest.raises(InvalidArgument) as refused:
        messages.append_messages(partition, [RawMessage(b"b", b"")], start_physical_offset=1 << 30)
    assert refused.value.facts()["field"] == "start_physical_offset"
    assert values(read_all(messages, partition)) == [b"a"]


def test_the_mark_of_a_producer_is_nobody_elses(
    messages: MessageStore, partition: TopicPartition
) -> None:
    """The property with a producer's sequence is not shown as a header, and not accepted as a header."""
    messages.append(partition, texts("a"), producer=ProducerSequence(7, 0, 0))
    (stored,) = messages.read(partition, 0).records
    assert list(stored.headers) == []
    with pytest.raises(UnrepresentableRecord):
        messages.append(partition, [Record(b"k", b"v", [("__LOGSERVER_SEQ", b"7:0:1:1")])])
    with pytest.raises(OutOfOrderSequence):
        messages.append(partition, texts("b"), producer=ProducerSequence(7, 0, 5))


@pytest.mark.parametrize("stop", ["close", "kill"])
def test_messages_over_a_restart(durable_factory: StoreFactory, stop: str) -> None:
    """Raw messages, ids and properties are the same after a stop."""
    store = durable_factory.open()
    if not isinstance(store, SupportsRawMessages):
        store.create_topic("events", 1)
        with pytest.raises(NotOffered):
            store.find("events", unique_id="U1")
        return
    store.create_topic("events", 1)
    partition = TopicPartition("events", 0)
    flags = [PREPARED, 0, ROLLED_BACK, COMMITTED]
    store.append_messages(
        partition,
        [RawMessage(b"%d" % n, b"UNIQ_KEY\x01U%d\x02" % n, 0, f) for n, f in enumerate(flags)],
    )
    store.flush()
    before = read_all(store, partition)
    store = durable_factory.reopen(store) if stop == "close" else durable_factory.after_kill()
    assert read_all(store, partition) == before
    assert [r.value for r in before] == [b"1", b"3"]
    for n, there in enumerate([False, True, False, True]):
        assert len(store.find("events", unique_id=f"U{n}").records) == there
