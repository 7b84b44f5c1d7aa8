"""Records that deliver delayed messages: a copy of the bytes is equal to the message decoded and encoded again, as it
runs here and as compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage.errors import CallerError, DataError
from storage.model import RawMessage, TopicPartition
from storage.rocketmq.format import scan
from storage.rocketmq.format.message import TRANSACTION_PREPARED, decode_message, magic_for
from storage.rocketmq.format.message_encoding import Placement, encode_messages
from storage.rocketmq.format.properties import decode_properties, has_key_beside
from storage.rocketmq.format.queue_entry import QueueEntry
from storage.rocketmq.log import due_messages, record_run
from storage.rocketmq.log.due_messages import DueRecords, time_up
from storage.rocketmq.log.encoding import Encoder
from storage.rocketmq.state.settings import StoreSettings, parse_store_settings
from tests.golden.rocketmq_stores import ROCKETMQ

SETTINGS = parse_store_settings({"maxMessageSize": "3000"})
ANY_SIZE = parse_store_settings({})
SOURCE = TopicPartition("SCHEDULE_TOPIC_XXXX", 2)
START = 1 << 40
ROOM_BYTES = 1 << 20
PLACE = (5, 1 << 33, 1_700_000_000_000)

Targets = dict[TopicPartition, bytes]

hosts = st.binary(min_size=8, max_size=8)
pieces = st.sampled_from(
    [
        *(b"REAL_TOPIC\x01orders", b"REAL_TOPIC\x01", b"REAL_TOPIC", b"REAL_TOPIC\x01a\x01b"),
        *(
            b"REAL_QID\x013",
            b"REAL_QID\x01+3",
            b"REAL_QID\x01-1",
            b"REAL_QID\x01",
            b"REAL_QID\0\x014",
        ),
        *(
            b"xREAL_QID\x014",
            b"REAL_TOPID\x01other",
            b"DELAY\x013",
            b"TAGS\x01t",
            b"\x01",
            b"",
            b"KEYS\x01k",
        ),
        *(b"__SHARDINGKEY\x01k", b"__SHARDINGKEY\x01k y", b"__LOGSERVER_SEQ\x011:0:0:1"),
        *(b"__LOGSERVER_TXN\x01t", b"__CRC32#\x010123456789", b"__CRC32#", b"n\x01__CRC32#\x01"),
        *(b"REAL_TOPIC\x01" + b"x" * 127, b"REAL_TOPIC\x01" + b"x" * 128, b"REAL_TOPIC\x01\xff"),
        b"REAL_TOPIC\x01" + "я".encode() * 100,
    ]
)
usual = st.lists(
    st.sampled_from([b"DELAY\x013", b"TAGS\x01t", b"KEYS\x01k", b"__SHARDINGKEY\x01k", b"a\x01b"])
).map(lambda found: [b"REAL_TOPIC\x01orders", *found, b"REAL_QID\x013"])
properties = st.builds(
    lambda found, end: b"\x02".join(found) + end,
    usual
    | st.lists(pieces, max_size=6)
    | st.tuples(usual, st.lists(pieces)).map(lambda both: [*both[0], *both[1]]),
    st.sampled_from([b"\x02", b""]),
)
messages = st.builds(
    RawMessage,
    body=st.binary(max_size=40) | st.just(bytes(3001)),
    properties=properties,
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
    sys_flag=st.sampled_from([0, 0, 0, 1, 2, 0x700, 4, 8, 12, -1]),
    born_timestamp_ms=st.integers(-(1 << 63), (1 << 63) - 1),
    born_host=hosts | hosts | st.binary(min_size=20, max_size=20),
    reconsume_times=st.integers(-(1 << 31), (1 << 31) - 1),
    prepared_transaction_offset=st.integers(-(1 << 63), (1 << 63) - 1),
)


@contextmanager
def as_compiled() -> Iterator[None]:
    """Take the path of compiled code, which works interpreted too."""
    native = due_messages._NATIVE, record_run._NATIVE
    due_messages._NATIVE = record_run._NATIVE = True  # type: ignore[misc]
    try:
        yield
    finally:
        due_messages._NATIVE, record_run._NATIVE = native  # type: ignore[misc]


def encoder(settings: StoreSettings = SETTINGS) -> Encoder:
    return Encoder(settings, lambda: 0)


def stored(
    given_messages: Sequence[RawMessage],
    *,
    source: TopicPartition = SOURCE,
    store_hosts: Sequence[bytes] = (),
) -> tuple[bytes, list[QueueEntry]]:
    """Return messages as records of a delay level, and their queue entries."""
    data, entries = b"", []
    for at, message in enumerate(given_messages):
        host = store_hosts[at] if store_hosts else bytes(8)
        place = Placement(
            source.topic.encode(),
            magic_for(source.topic),
            source.partition,
            at,
            START + len(data),
            7,
            host,
        )
        (record,) = encode_messages([message], place)
        entries.append(QueueEntry(START + len(data), len(record), 0))
        data += record
    return data, entries


def delivered(
    data: bytes, entries: Sequence[QueueEntry], source: TopicPartition = SOURCE
) -> tuple[Targets, int, set[TopicPartition]]:
    """Deliver records. Return the new ones by queue, the number taken, and the queues with a key outside the index."""
    due = DueRecords(encoder(), source)
    taken, taken_bytes = due.take(data, START, entries, 0, ROOM_BYTES)
    assert taken_bytes == sum(entry.size for entry in entries[:taken])
    runs = due.runs()
    unindexed = {partition for partition, run in runs if run.has_keys_beside}
    return {partition: run.placed(*PLACE) for partition, run in runs}, taken, unindexed


def exactly(
    data: bytes, entries: Sequence[QueueEntry], source: TopicPartition = SOURCE
) -> tuple[Targets, int, set[TopicPartition]]:
    """Return what `delivered` must return, message by message."""
    groups: dict[TopicPartition, list[tuple[bytes, RawMessage]]] = {}
    taken = 0
    for physical_offset, size, _ in entries:
        try:
            message = decode_message(data, physical_offset - START)
            assert message.size == size
            if (message.topic, message.queue_id) != source:
                break
            partition, host, raw = time_up(message)
            encoder(ANY_SIZE).encode_raw(partition, [raw], host)
        except (DataError, CallerError):
            break
        groups.setdefault(partition, []).append((host, raw))
        taken += 1
    found: Targets = {}
    for partition, group in groups.items():
        offset, at, time_ms = PLACE
        found[partition] = b""
        for host, raw in group:
            run = encoder(ANY_SIZE).encode_raw(partition, [raw], host)
            found[partition] += run.placed(offset, at, time_ms)
            offset, at = offset + run.queued, at + run.size_bytes
    unindexed = {
        partition
        for partition, group in groups.items()
        if any(has_key_beside(raw.properties) for _, raw in group)
    }
    return found, taken, unindexed


def check(data: bytes, entries: Sequence[QueueEntry], source: TopicPartition = SOURCE) -> None:
    wanted = exactly(data, entries, source)
    assert delivered(data, entries, source) == wanted
    with as_compiled():
        assert delivered(data, entries, source) == wanted


@given(st.lists(messages, min_size=1, max_size=5), st.lists(hosts, min_size=5, max_size=5))
@example([RawMessage(b"", b"REAL_TOPIC\x01a\x02REAL_QID\x010\x02")] * 2, [bytes(8)] * 5)
def test_copies_are_exact(given_messages: list[RawMessage], store_hosts: list[bytes]) -> None:
    check(*stored(given_messages, store_hosts=store_hosts))


@given(messages)
@example(RawMessage(b"", b"REAL_TOPIC\x01a\x02REAL_QID\x010\x02"))
@example(RawMessage(b"b", b"REAL_TOPIC\x01a\x02REAL_TOPICS\x01b\x02REAL_QID\x010\x02"))
@example(RawMessage(b"b", b"REAL_TOPIC\x01a\x02REAL_QID\x010\x02REAL_QID\x01\x02"))
@example(RawMessage(b"b", b"REAL_TOPIC\x01a\x02REAL_QID\x010\x02REAL_QID\0\x011\x02"))
@example(RawMessage(b"b", b"REAL_TOPIC\x01a\x02REAL_QID\x010\x02__CRC32#\x01\x02"))
@example(RawMessage(b"b", b"REAL_TOPIC\x01a\x02REAL_QID\x010\x02", sys_flag=TRANSACTION_PREPARED))
@example(RawMessage(b"b", b"REAL_TOPIC\x01" + b"x" * 128 + b"\x02REAL_QID\x010\x02"))
@example(RawMessage(bytes(3001), b"REAL_TOPIC\x01a\x02REAL_QID\x010\x02"))
def test_second_of_a_target(message: RawMessage) -> None:
    """The first one of a target is never copied, so others go before the message, to all targets."""
    first = [
        RawMessage(b"b", b"REAL_TOPIC\x01" + topic + b"\x02REAL_QID\x01" + queue_id + b"\x02")
        for topic in (b"orders", b"a\x01b", b"a", b"b", b"other", b"x" * 127, b"x" * 128)
        for queue_id in (b"0", b"1", b"3", b"+3", b"4", b"5")
    ]
    check(*stored([*first, message]))


def test_usual_messages_are_copied() -> None:
    """After the first of a target each one is copied: a test of the speed that depends on no clock."""
    text = b"KEYS\x01k\x02__SHARDINGKEY\x01k\x02REAL_TOPIC\x01t\x02DELAY\x013\x02REAL_QID\x010\x02"
    data, entries = stored([RawMessage(b"body", text)] * 5)
    due = DueRecords(encoder(), SOURCE)
    assert due.take(data, START, entries[:1], 0, ROOM_BYTES) == (1, entries[0].size)
    for physical_offset, size, _ in entries[1:]:
        assert due._copy(data, physical_offset - START, size)
        with as_compiled():
            assert due._copy(data, physical_offset - START, size)


@pytest.mark.parametrize("name", ["broker", "system"])
def test_messages_of_the_real_store(name: str) -> None:
    """All that a real broker scheduled, a level in one pass."""
    levels: dict[TopicPartition, tuple[bytes, list[QueueEntry]]] = {}
    for path in sorted((ROCKETMQ / name / "store" / "commitlog").iterdir()):
        log = path.read_bytes()
        for at, size in scan.records_in(log, 0, scan.walk(log, 0, len(log)).end, 0):
            message = decode_message(log, at)
            if message.topic == SOURCE.topic:
                source = TopicPartition(message.topic, message.queue_id)
                data, entries = levels.setdefault(source, (b"", []))
                entries.append(QueueEntry(START + len(data), size, 0))
                levels[source] = data + log[at : at + size], entries
    assert len(levels) > 3
    for source, (data, entries) in levels.items():
        check(data, entries, source)
        assert delivered(data, entries, source)[1] == len(entries)


@pytest.mark.parametrize("byte", [0, 1, 2, 4, 0x20, 0x7F, 0x80, 0xFF])
def test_one_changed_byte(byte: int) -> None:
    """At each position: a damaged record is not delivered, another field arrives as it is now."""
    text = b"DELAY\x013\x02REAL_TOPIC\x01t\x02__SHARDINGKEY\x01k\x02REAL_QID\x010\x02KEYS\x01k\x02"
    data, entries = stored([RawMessage(b"body", text), RawMessage(b"body", text, sys_flag=8)])
    second = entries[1].physical_offset - START
    for at in range(second, len(data)):
        changed = bytearray(data)
        changed[at] = byte
        if second <= at < second + 4 and byte != data[at]:
            continue  # its size: the entry has another, which the exact way does not compare
        check(bytes(changed), entries)


@pytest.mark.parametrize(
    ("entry", "taken"),
    [
        (QueueEntry(START - 1, 10, 0), 0),
        (QueueEntry(START, 0, 0), 0),
        (QueueEntry(START, -1, 0), 0),
        (QueueEntry(START, 10_000, 0), 0),
        (QueueEntry(1 << 62, 91, 0), 0),
        (QueueEntry(-1, 91, 0), 0),
        (QueueEntry(START, 0x7FFFFFFF, 0), 0),
    ],
)
def test_entries_that_lead_elsewhere(entry: QueueEntry, taken: int) -> None:
    data, _ = stored([RawMessage(b"b", b"REAL_TOPIC\x01t\x02REAL_QID\x010\x02")])
    due = DueRecords(encoder(), SOURCE)
    assert due.take(data, START, [entry], 0, ROOM_BYTES) == (taken, 0)
    assert due.runs() == []


def test_room_ends_the_pass() -> None:
    data, entries = stored([RawMessage(b"b" * 9, b"REAL_TOPIC\x01t\x02REAL_QID\x010\x02")] * 5)
    due = DueRecords(encoder(), SOURCE)
    size = entries[0].size
    assert due.take(data, START, entries, 1, 3 * size - 1) == (2, 2 * size)
    ((_, run),) = due.runs()
    assert run.count == 2


def test_records_of_another_queue_end_the_pass() -> None:
    text = b"REAL_TOPIC\x01t\x02REAL_QID\x010\x02"
    first, one = stored([RawMessage(b"b", text)])
    other, _ = stored([RawMessage(b"b", text)], source=TopicPartition("SCHEDULE_TOPIC_XXXX", 3))
    entries = [*one, QueueEntry(START + len(first), len(other), 0)]
    check(first + other, entries)
    assert delivered(first + other, entries)[1] == 1


def test_crc_over_the_record() -> None:
    """A store that writes it gets it in the copies too."""
    text = b"REAL_TOPIC\x01t\x02REAL_QID\x010\x02"
    data, entries = stored([RawMessage(b"b", text)] * 3)
    due = DueRecords(Encoder(SETTINGS, lambda: 0, with_crc=True), SOURCE)
    assert due.take(data, START, entries, 0, ROOM_BYTES)[0] == 3
    ((_, run),) = due.runs()
    placed, at = run.placed(*PLACE), 0
    for _ in range(3):
        message = decode_message(placed, at)
        assert "__CRC32#" in decode_properties(message.properties)
        at += message.size
    assert at == len(placed)


def test_prepared_message_takes_no_offset() -> None:
    text = b"REAL_TOPIC\x01t\x02REAL_QID\x010\x02"
    data, entries = stored(
        [RawMessage(b"b", text), RawMessage(b"b", text, sys_flag=TRANSACTION_PREPARED)]
    )
    due = DueRecords(encoder(), SOURCE)
    due.take(data, START, entries, 0, ROOM_BYTES)
    ((_, run),) = due.runs()
    assert (run.count, run.queued) == (2, 1)
