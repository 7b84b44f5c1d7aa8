"""Conversion of one record to the other format and back: a table of cases, and random records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.conversion.mapping import to_kafka, to_rocketmq
from storage.conversion.records import KafkaRecord, QueuedMessage, host_as_text, host_from_text
from storage.errors import Corrupt, UnrepresentableRecord
from storage.model import Header, RawMessage
from storage.rocketmq.format.body import compress_again
from storage.rocketmq.format.message_id import encode_host
from storage.rocketmq.format.properties import decode_properties, encode_properties

HOST = encode_host("10.1.2.3", 10911)
BORN_MS, STORED_MS = 1_700_000_000_000, 1_700_000_000_250
MARKS = [
    ("__store_ts", b"%d" % STORED_MS),
    ("__born_ts", b"%d" % BORN_MS),
    ("__rocketmq_born_host", b"10.1.2.3:10911"),
    ("__rocketmq_store_host", b"10.1.2.3:10911"),
]


def message(
    properties: dict[str, str] | bytes = b"", body: bytes = b"body", **more: object
) -> QueuedMessage:
    """Return a message that a real client could have sent."""
    stored = properties if isinstance(properties, bytes) else encode_properties(properties)
    raw = RawMessage(body, stored, born_timestamp_ms=BORN_MS, born_host=HOST)
    return QueuedMessage(raw._replace(**more), 7, STORED_MS, HOST)  # type: ignore[arg-type]


def record(key: bytes | None = None, value: bytes | None = b"v", *headers: object) -> KafkaRecord:
    """Return a record of a Kafka client."""
    return KafkaRecord(3, BORN_MS, key, value, list(headers))  # type: ignore[arg-type]


def properties_of(found: QueuedMessage) -> dict[str, str]:
    return decode_properties(found.message.properties)


# ---- RocketMQ -> Kafka -> RocketMQ ---------------------------------------------------------------

MESSAGES: dict[str, tuple[QueuedMessage, bytes | None, list[Header]]] = {
    "plain": (message(), None, []),
    "tag and keys": (
        message({"KEYS": "a b", "TAGS": "red"}),
        None,
        [("KEYS", b"a b"), ("TAGS", b"red")],
    ),
    "a key in its place": (
        message({"u": "1", "__SHARDINGKEY": "k", "WAIT": "true"}),
        b"k",
        [("u", b"1"), ("__SHARDINGKEY", None), ("WAIT", b"true")],
    ),
    "the system's properties": (
        message({"UNIQ_KEY": "0A", "TRACE_ON": "true"}),
        None,
        [("UNIQ_KEY", b"0A"), ("TRACE_ON", b"true")],
    ),
    "no last separator": (
        message(b"a\x011"),
        None,
        [("a", b"1"), ("__rocketmq_properties", b"a\x011")],
    ),
    "a name twice": (
        message(b"a\x011\x02a\x012\x02"),
        None,
        [("a", b"2"), ("__rocketmq_properties", b"a\x011\x02a\x012\x02")],
    ),
    "no UTF-8": (
        message(b"a\x01\xff\x02"),
        None,
        [("a", "\ufffd".encode()), ("__rocketmq_properties", b"a\x01\xff\x02")],
    ),
    "a name that conversion uses": (
        message({"__store_ts": "1"}),
        None,
        [("__rocketmq_properties", b"__store_ts\x011\x02")],
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_as_a_record(name: str) -> None:
    queued, key, headers = MESSAGES[name]
    found = to_kafka(queued)
    assert found == KafkaRecord(7, BORN_MS, key, b"body", [*headers, *MARKS])
    assert to_rocketmq(found, least_store_ms=0, encode=False) == (queued, ())


def test_what_a_message_has_beside_its_properties() -> None:
    queued = message(
        flag=-3,
        sys_flag=0x08,
        reconsume_times=2,
        prepared_transaction_offset=99,
        born_host=b"\0" * 20,
    )
    found = to_kafka(queued)
    names = [name for name, _ in found.headers]
    assert dict(found.headers)["__rocketmq_flag"] == b"-3"
    assert names[2:6] == [
        f"__rocketmq_{name}" for name in ("flag", "sys_flag", "reconsume_times", "prepared_offset")
    ]
    assert to_rocketmq(found, least_store_ms=0, encode=False)[0] == queued


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_a_packed_body_is_unpacked_and_packed_again(codec: int) -> None:
    sys_flag = 1 | codec << 8
    queued = message(body=compress_again(b"abc" * 9, sys_flag), sys_flag=sys_flag)
    found = to_kafka(queued)
    assert found.value == b"abc" * 9
    assert to_rocketmq(found, least_store_ms=0, encode=False)[0] == queued


def test_a_body_that_cannot_be_unpacked() -> None:
    with pytest.raises(Corrupt):
        to_kafka(message(body=b"no zlib", sys_flag=1))


@pytest.mark.parametrize("header", ["__store_ts", "__rocketmq_store_host", "__rocketmq_odd"])
@pytest.mark.parametrize("value", [b"", b"x", None, b"99999999999999999999", b"01"])
def test_headers_that_only_look_like_a_message(header: str, value: bytes | None) -> None:
    """Such a record comes from a Kafka client: it is converted back unchanged."""
    headers = [h for h in to_kafka(message()).headers if h[0] != header]
    odd = record(b"k", b"v", *headers, (header, value))
    found, _ = to_rocketmq(odd, least_store_ms=5, encode=True)
    assert "__kafka_offset" in properties_of(found)
    assert to_kafka(found) == odd


# ---- Kafka -> RocketMQ -> Kafka ------------------------------------------------------------------

RECORDS = {
    "plain": (record(), {}),
    "a key": (record(b"k"), {"__SHARDINGKEY": "k", "KEYS": "k"}),
    "a key with a space": (record(b"k 1"), {"__SHARDINGKEY": "k 1"}),
    "headers": (record(None, b"v", ("a", b"1"), ("TAGS", b"t")), {"a": "1", "TAGS": "t"}),
    "keys": (record(None, b"v", ("KEYS", b"a b")), {"KEYS": "a b"}),
    "a key before the keys": (
        record(b"k", b"v", ("KEYS", b"a b")),
        {"__SHARDINGKEY": "k", "KEYS": "k a b", "__kafka_keys": "a b"},
    ),
    "a key among the keys": (
        record(b"k", b"v", ("KEYS", b"a k")),
        {"__SHARDINGKEY": "k", "KEYS": "a k"},
    ),
    "a key that is the keys": (
        record(b"k", b"v", ("KEYS", b"k")),
        {"__SHARDINGKEY": "k", "KEYS": "k", "__kafka_keys": "k"},
    ),
    "append time": (
        record()._replace(log_append_time=True),
        {"__kafka_time_type": "LogAppendTime"},
    ),
    "no time": (record()._replace(timestamp_ms=-1), {}),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_as_a_message(name: str) -> None:
    given_record, properties = RECORDS[name]
    found, problems = to_rocketmq(given_record, least_store_ms=0, encode=False)
    assert list(problems) == []
    assert properties_of(found) == {"__kafka_offset": "3", **properties}
    assert found.message.born_timestamp_ms == given_record.timestamp_ms
    assert to_kafka(found) == given_record
    assert to_kafka(found._replace(offset=1)) == given_record  # at any offset in its queue


@pytest.mark.parametrize(
    ("least_ms", "stored_ms"), [(0, BORN_MS), (BORN_MS + 5, BORN_MS + 5), (-9, BORN_MS)]
)
def test_the_store_time_never_falls(least_ms: int, stored_ms: int) -> None:
    assert (
        to_rocketmq(record(), least_store_ms=least_ms, encode=False)[0].store_timestamp_ms
        == stored_ms
    )


UNREPRESENTABLE = {
    "a null value": (record(None, None), "value", "is null", {"__kafka_null_value": "1"}),
    "an empty key": (record(b""), "key", "is empty", {"__kafka_key": "="}),
    "a binary key": (record(b"\xff"), "key", "is no UTF-8 text", {"__kafka_key": "=/w=="}),
    "a separator in the key": (
        record(b"\x01"),
        "key",
        "holds a separator, 01 or 02",
        {"__kafka_key": "=AQ=="},
    ),
    "a NUL and a space in the key": (
        record(b"a \0"),
        "key",
        "holds a NUL",
        {"__kafka_key": "=YSAA"},
    ),
    "a NUL in a header": (
        record(None, b"v", ("a", b"\0")),
        "headers",
        "the value holds a NUL",
        {"__kafka_header_0": "YQ==.AA=="},
    ),
    "a NUL in a name": (
        record(None, b"v", ("a\0", b"3")),
        "headers",
        "a name holds a NUL",
        {"__kafka_header_0": "YQA=.Mw=="},
    ),
    "a header without a value": (
        record(None, b"v", ("a", None)),
        "headers",
        "the value is null",
        {"__kafka_header_0": "YQ==.-"},
    ),
    "an empty header": (
        record(None, b"v", ("a", b"")),
        "headers",
        "the value is empty",
        {"__kafka_header_0": "YQ==."},
    ),
    "a binary header": (
        record(None, b"v", ("a", b"\xff")),
        "headers",
        "the value is no UTF-8 text",
        {"__kafka_header_0": "YQ==./w=="},
    ),
    "a separator in a header": (
        record(None, b"v", ("a", b"\x02")),
        "headers",
        "the value holds a separator, 01 or 02",
        {"__kafka_header_0": "YQ==.Ag=="},
    ),
    "a header twice": (
        record(None, b"v", ("a", b"1"), ("a", b"2")),
        "headers",
        "a name comes twice",
        {"a": "1", "__kafka_header_1": "YQ==.Mg=="},
    ),
    "no name": (
        record(None, b"v", ("", b"1")),
        "headers",
        "a name is empty",
        {"__kafka_header_0": ".MQ=="},
    ),
    "a name of the system's": (
        record(None, b"v", ("DELAY", b"3")),
        "headers",
        "a name is reserved",
        {"__kafka_header_0": "REVMQVk=.Mw=="},
    ),
    "a name of the conversion's": (
        record(None, b"v", ("__kafka_offset", b"3")),
        "headers",
        "a name is reserved",
        {"__kafka_header_0": "X19rYWZrYV9vZmZzZXQ=.Mw=="},
    ),
    "a separator in a name": (
        record(None, b"v", ("a\x01", b"3")),
        "headers",
        "a name holds a separator, 01 or 02",
        {"__kafka_header_0": "YQE=.Mw=="},
    ),
}


@pytest.mark.parametrize("name", UNREPRESENTABLE)
def test_what_a_message_cannot_keep_is_refused_or_encoded(name: str) -> None:
    odd, field, problem, properties = UNREPRESENTABLE[name]
    with pytest.raises(UnrepresentableRecord, match=f"^{problem}$") as caught:
        to_rocketmq(odd, least_store_ms=0, encode=False)
    assert caught.value.facts()["field"] == field
    found, problems = to_rocketmq(odd, least_store_ms=0, encode=True)
    assert [tuple(reported) for reported in problems] == [(field, problem)]
    assert properties_of(found) == {"__kafka_offset": "3", **properties}
    assert to_kafka(found) == odd


def test_too_many_headers_are_refused_even_when_encoded() -> None:
    odd = record(None, b"v", ("a", b"x" * 32_768))
    with pytest.raises(UnrepresentableRecord, match="32767 bytes"):
        to_rocketmq(odd, least_store_ms=0, encode=True)


@pytest.mark.parametrize(
    "properties",
    [
        {"__kafka_offset": "x"},
        {"__kafka_offset": "5", "DELAY": "1"},
        {"__kafka_offset": "5", "__kafka_header_0": "!"},
        {"a": "1", "__kafka_offset": "5"},
        {"__kafka_offset": "05"},
    ],
)
def test_properties_that_only_look_like_a_record(properties: dict[str, str]) -> None:
    """Such a message comes from a RocketMQ client: it is converted back unchanged."""
    queued = message(properties)
    found = to_kafka(queued)
    assert ("__store_ts", b"%d" % STORED_MS) in found.headers
    assert to_rocketmq(found, least_store_ms=0, encode=False)[0] == queued


# ---- random records and messages -----------------------------------------------------------------

NAMES = st.sampled_from(
    [
        *("TAGS", "KEYS", "a", "UNIQ_KEY", "x\x01", "__SHARDINGKEY", "__store_ts", "__born_ts"),
        *("__kafka_keys", "__kafka_offset", "__kafka_header_1", "__rocketmq_flag"),
    ]
) | st.text(max_size=4)
VALUES = (
    st.none()
    | st.binary(max_size=6)
    | st.sampled_from([b"k", b" ", b"k a", b"a", b"1", b"a b", b"Yg==.-", b"127.0.0.1:3"])
)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
KAFKA_RECORDS = st.builds(
    KafkaRecord,
    st.integers(0, 2**62),
    INT64,
    VALUES,
    VALUES,
    st.lists(st.tuples(NAMES, VALUES), max_size=5),
    st.booleans(),
)
HOSTS = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
PROPERTIES = st.lists(st.tuples(NAMES, st.sampled_from(["k", "k a", "1", "Yg==.-", "\u00e9"]))).map(
    lambda pairs: b"".join(f"{n}\x01{v}\x02".encode(errors="ignore") for n, v in pairs)
) | st.binary(max_size=9)
MESSAGES_STRATEGY = st.builds(
    QueuedMessage,
    st.builds(
        RawMessage,
        st.binary(max_size=8),
        PROPERTIES,
        INT32,
        st.sampled_from([0, 8, 2, 0x40]),
        INT64,
        HOSTS,
        INT32,
        INT64,
    ),
    st.integers(0, 2**62),
    INT64,
    HOSTS,
)


@given(KAFKA_RECORDS)
def test_every_record_comes_back(given_record: KafkaRecord) -> None:
    found, problems = to_rocketmq(given_record, least_store_ms=0, encode=True)
    assert to_kafka(found) == given_record
    if problems:
        with pytest.raises(UnrepresentableRecord):
            to_rocketmq(given_record, least_store_ms=0, encode=False)
    else:
        again, _ = to_rocketmq(given_record, least_store_ms=0, encode=False)
        assert again == found


@given(MESSAGES_STRATEGY)
def test_every_message_comes_back(queued: QueuedMessage) -> None:
    found, _ = to_rocketmq(to_kafka(queued), least_store_ms=queued.store_timestamp_ms, encode=True)
    assert found.message == queued.message
    if b"__kafka_offset" not in queued.message.properties:
        assert found == queued


@given(HOSTS)
def test_every_host_comes_back(host: bytes) -> None:
    assert host_from_text(host_as_text(host)) == host
