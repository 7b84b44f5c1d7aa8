"""Records of an append in one buffer: equal to the messages encoded one by one, as it runs here and as compiled."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage.errors import InvalidTopic, StorageError, UnrepresentableRecord
from storage.model import ProducerSequence, RawMessage, Record, TopicPartition
from storage.rocketmq.format.message import (
    TRANSACTION_PREPARED,
    decode_message,
    magic_for,
    takes_queue_offset,
)
from storage.rocketmq.format.message_encoding import Placement, encode_messages
from storage.rocketmq.format.properties import check_crc_property, closed_record
from storage.rocketmq.log import encoding, record_run
from storage.rocketmq.log.encoding import Encoder
from storage.rocketmq.log.record_run import SEQUENCE_PROPERTY, RecordRun
from storage.rocketmq.state.settings import parse_store_settings

SETTINGS = parse_store_settings({"maxMessageSize": "300"})
NOW_MS = 1_700_000_000_000
QUEUE = TopicPartition("orders", 3)
PRODUCER = ProducerSequence(17, 2, 40)

ascii_text = st.text(st.characters(min_codepoint=3, max_codepoint=0x7F), min_size=1, max_size=12)
plain = ascii_text | st.text(
    st.characters(min_codepoint=3, exclude_categories=["Cs"]), min_size=1, max_size=6
)
users_names = plain.filter(lambda name: name not in record_run.NOT_THE_USERS)
any_text = plain | st.sampled_from(
    ["", "a b", "\x01", "\x02", "\0", "ключ", "\ud800", "TAGS", "a\x7f"]
)
headers = st.lists(
    st.tuples(any_text, st.none() | any_text.map(lambda t: t.encode(errors="ignore")))
)
records = st.builds(
    Record,
    key=st.none() | st.binary(max_size=6) | plain.map(str.encode),
    value=st.none() | st.binary(max_size=310) | st.binary(max_size=20),
    headers=headers | st.lists(st.tuples(plain, plain.map(str.encode)), max_size=3),
    timestamp_ms=st.none() | st.integers(-(1 << 63) - 1, 1 << 63),
    tag=st.none() | any_text,
    lookup_keys=st.lists(any_text, max_size=3) | st.lists(st.sampled_from("ab"), max_size=2),
    properties=st.none()
    | st.dictionaries(st.sampled_from(["UNIQ_KEY", "WAIT", "other"]), any_text, max_size=2)
    | plain.map(lambda text: {"UNIQ_KEY": text}),
)
usual = st.builds(
    Record,
    key=st.none() | plain.map(str.encode),
    value=st.binary(max_size=300),
    headers=st.dictionaries(users_names, plain.map(str.encode), max_size=3).map(
        lambda found: list(found.items())
    ),
    timestamp_ms=st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
    tag=st.none() | plain,
    lookup_keys=st.lists(plain.map(lambda text: text.replace(" ", "_")), max_size=3),
    properties=st.none() | plain.map(lambda text: {"UNIQ_KEY": text}),
)
hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
messages = st.builds(
    RawMessage,
    body=st.binary(max_size=100),
    properties=st.binary(max_size=100),
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
    sys_flag=st.integers(-(1 << 31), (1 << 31) - 1),
    born_timestamp_ms=st.integers(-(1 << 63), (1 << 63) - 1),
    born_host=hosts,
    reconsume_times=st.integers(-(1 << 31), (1 << 31) - 1),
    prepared_transaction_offset=st.integers(-(1 << 63), (1 << 63) - 1),
)
places = st.tuples(
    st.integers(0, 1 << 40), st.integers(0, 1 << 60), st.integers(-(1 << 60), 1 << 60)
)


@pytest.fixture(autouse=True)
def _same_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all encoders make the same unique ids."""
    monkeypatch.setattr(secrets, "randbits", lambda bits: 77)


def encoder(*, with_crc: bool = False) -> Encoder:
    return Encoder(SETTINGS, lambda: NOW_MS, with_crc=with_crc)


@contextmanager
def as_compiled() -> Iterator[None]:
    """Take the path of compiled code, which works interpreted too."""
    native = encoding._NATIVE, record_run._NATIVE
    encoding._NATIVE = record_run._NATIVE = True  # type: ignore[misc]
    try:
        yield
    finally:
        encoding._NATIVE, record_run._NATIVE = native  # type: ignore[misc]


def one_by_one(
    topic: str,
    queue_id: int,
    given_messages: Sequence[RawMessage],
    place: tuple[int, int, int],
    store_host: bytes,
) -> list[bytes]:
    """Encode messages one by one, each with the place that follows from those before it."""
    offset, physical_offset, time_ms = place
    out: list[bytes] = []
    for message in given_messages:
        where = Placement(
            topic.encode(), magic_for(topic), queue_id, offset, physical_offset, time_ms, store_host
        )
        (record,) = encode_messages([message], where)
        out.append(record)
        offset += takes_queue_offset(message.sys_flag)
        physical_offset += len(record)
    return out


def outcome(
    given_records: Sequence[Record],
    place: tuple[int, int, int],
    *,
    partition: TopicPartition = QUEUE,
    compression: str | None = None,
    producer: ProducerSequence | None = None,
    born_hosts: Sequence[bytes] = (),
) -> object:
    """Return the bytes of an append, or its error."""
    try:
        run = encoder().encode_run(
            partition,
            given_records,
            compression=compression,
            producer=producer,
            born_hosts=born_hosts,
        )
    except StorageError as error:
        return type(error), error.message, error.facts()
    check_shape(run)
    return run.placed(*place)


def check_shape(run: RecordRun) -> None:
    data = run.placed(0, 0, 0)
    at, sizes = 0, []
    while at < len(data):
        sizes.append(decode_message(data, at, check_crc=False).size)
        at += sizes[-1]
    assert (run.count, run.size_bytes, run.largest_bytes) == (len(sizes), len(data), max(sizes))
    assert run.sizes() == sizes
    assert run.starts(1 << 90) == [(1 << 90) + sum(sizes[:at]) for at in range(len(sizes))]


def expected(
    given_records: Sequence[Record],
    place: tuple[int, int, int],
    *,
    partition: TopicPartition = QUEUE,
    compression: str | None = None,
    producer: ProducerSequence | None = None,
    born_hosts: Sequence[bytes] = (),
) -> object:
    """Return what `outcome` must return, by way of one message for each record."""
    try:
        made = list(encoder().encode(given_records, compression=compression))
    except StorageError as error:
        return type(error), error.message, error.facts()
    if producer is not None:
        mark = f"{SEQUENCE_PROPERTY}\x0117:2:40:{len(made)}\x02".encode()
        made[0] = made[0]._replace(properties=made[0].properties + mark)
    if born_hosts:
        pairs = zip(made, born_hosts, strict=True)
        made = [message._replace(born_host=host) for message, host in pairs]
    return b"".join(one_by_one(*partition, made, place, SETTINGS.store_host))


@given(st.lists(records | usual, min_size=1, max_size=4), places)
@example([Record(b"k y", b"v", (), None, "t", ("k1",))], (1, 2, 3))
@example([Record(b"k", b"", (("a", b"b"),), 5, None, ("k", "l"), {"UNIQ_KEY": "u"})], (1, 2, 3))
@example([Record(None, b"v", (), None, "t" * 40_000)], (0, 0, 0))
def test_any_records(given_records: list[Record], place: tuple[int, int, int]) -> None:
    wanted = expected(given_records, place)
    assert outcome(given_records, place) == wanted
    with as_compiled():
        assert outcome(given_records, place) == wanted


@given(
    st.lists(usual, min_size=1, max_size=4),
    places,
    st.none() | st.sampled_from(["zlib", "lz4", "zstd"]),
    st.none() | st.just(PRODUCER),
    st.lists(hosts, min_size=4, max_size=4) | st.just([]),
    st.sampled_from(["orders", "я", "x" * 127, "x" * 128, "%RETRY%group"]),
)
def test_usual_records(
    given_records: list[Record],
    place: tuple[int, int, int],
    compression: str | None,
    producer: ProducerSequence | None,
    born_hosts: list[bytes],
    topic: str,
) -> None:
    options = {
        "partition": TopicPartition(topic, 7),
        "compression": compression,
        "producer": producer,
        "born_hosts": born_hosts[: len(given_records)],
    }
    wanted = expected(given_records, place, **options)  # type: ignore[arg-type]
    assert isinstance(wanted, bytes)
    assert outcome(given_records, place, **options) == wanted  # type: ignore[arg-type]
    with as_compiled():
        assert outcome(given_records, place, **options) == wanted  # type: ignore[arg-type]


@given(usual)
def test_fast_way_takes_usual_records(record: Record) -> None:
    """No usual record needs the slow way: a test of the speed that depends on no clock."""
    writer = record_run.RunWriter(record_run.form_of("t"), 0, SETTINGS.store_host, limit_bytes=300)
    assert writer.put_usual(record, 0, bytes(8), 0)


def test_unique_ids_of_many_records() -> None:
    """Ids continue across the runs in which they are made."""
    given_records = [Record(None, b"v")] * 600
    with as_compiled():
        assert outcome(given_records, (5, 6, 7)) == expected(given_records, (5, 6, 7))


@given(st.lists(messages, min_size=1, max_size=4), places, hosts)
def test_raw_messages(
    given_messages: list[RawMessage], place: tuple[int, int, int], store_host: bytes
) -> None:
    run = encoder().encode_raw(QUEUE, given_messages, store_host)
    check_shape(run)
    wanted = one_by_one(*QUEUE, given_messages, place, store_host)
    assert run.placed(*place) == b"".join(wanted)
    assert run.queued == sum(takes_queue_offset(message.sys_flag) for message in given_messages)
    with as_compiled():
        assert run.placed(*place) == b"".join(wanted)


@given(st.lists(messages, min_size=1, max_size=4), places)
def test_crc_over_the_record(given_messages: list[RawMessage], place: tuple[int, int, int]) -> None:
    run = encoder(with_crc=True).encode_raw(QUEUE, given_messages, bytes(8))
    data = run.placed(*place)
    starts = [*run.starts(0), len(data)]
    assert all(check_crc_property(data[start:stop]) for start, stop in pairwise(starts))
    assert data == b"".join(closed_record(data[start:stop]) for start, stop in pairwise(starts))


def test_parts() -> None:
    """A part has as many records as fit, at least one; together they are the run."""
    bodies = [10, 10, 250, 10, 10, 10]
    given_messages = [RawMessage(bytes(size), b"", sys_flag=4 * (size > 10)) for size in bodies]
    run = encoder().encode_raw(QUEUE, given_messages, bytes(8))
    small, large = run.sizes()[0], run.sizes()[2]
    for limit, counts in (
        (small * 2, [2, 1, 2, 1]),
        (small * 2 + 1, [2, 1, 2, 1]),
        (small - 1, [1] * 6),
        (large + small, [2, 2, 2]),
        (run.size_bytes, [6]),
    ):
        parts = run.parts(limit)
        assert [part.count for part in parts] == counts
        assert sum(part.queued for part in parts) == 5
        assert b"".join(part.placed(0, 0, 1) for part in parts)[56:64] == bytes(7) + b"\1"
        assert [size for part in parts for size in part.sizes()] == run.sizes()


@pytest.mark.parametrize(
    "place", [(1 << 63, 0, 0), (0, 1 << 63, 0), (0, 0, 1 << 63), (0, 0, -(1 << 64))]
)
def test_number_outside_its_field(place: tuple[int, int, int]) -> None:
    run = encoder().encode_raw(QUEUE, [RawMessage(b"", b"")], bytes(8))
    with pytest.raises(UnrepresentableRecord):
        run.placed(*place)


@pytest.mark.parametrize("queue_id", [1 << 31, -(1 << 31) - 1, 1 << 32, 1 << 64])
def test_queue_id_outside_its_field(queue_id: int) -> None:
    """No record gets another queue id, as its lowest four bytes would be."""
    queue, records = QUEUE._replace(partition=queue_id), [Record(None, b"v")]
    with as_compiled(), pytest.raises(UnrepresentableRecord):
        encoder().encode_run(queue, records)
    with pytest.raises(UnrepresentableRecord):
        encoder().encode_run(queue, records)


def test_prepared_message_keeps_offset_zero() -> None:
    given_messages = [RawMessage(b"", b"", sys_flag=TRANSACTION_PREPARED), RawMessage(b"", b"")]
    run = encoder().encode_raw(QUEUE, given_messages, bytes(8))
    data = run.placed(9, 0, 0)
    offsets = [decode_message(data, start).queue_offset for start in run.starts(0)]
    assert offsets == [0, 9]


def test_topic_that_no_record_can_hold() -> None:
    with pytest.raises(InvalidTopic):
        encoder().encode_run(TopicPartition("я" * 100, 0), [Record(None, b"v")])
