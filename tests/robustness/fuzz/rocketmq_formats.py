"""Fuzz targets: everything in a RocketMQ store that is decoded from bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from zlib import crc32

from scripts.diff_fuzz_cases import messages
from storage.errors import CallerError, InvalidArgument, InvalidTopic
from storage.model import RawMessage
from storage.rocketmq.format import (
    checkpoint,
    config_json,
    index_file,
    message,
    message_encoding,
    message_id,
    names,
    properties,
    queue_entry,
)
from storage.rocketmq.format.scan import BAD, BLANK, PADDING, SHORT
from storage.rocketmq.state.topics_file import TopicTable
from tests.formats.rocketmq_messages import batch_body
from tests.formats.rocketmq_messages.cases import walked
from tests.golden.rocketmq_stores import all_stores
from tests.robustness.fuzz.target import SEED_BYTES, Check, Target, text_of, tried, unless
from tests.unit.rocketmq.index.passes import check_pass

SEEDS = 12
ENDS = (SHORT, BLANK, PADDING, BAD)


@cache
def files(pattern: str) -> Sequence[bytes]:
    """Return parts of real files of one kind, each content once."""
    found: dict[bytes, None] = {}
    for store in all_stores():
        for path in sorted(store.root.glob(pattern)):
            with path.open("rb") as file:
                found[file.read(SEED_BYTES)] = None
    return [data for data in found if data.strip(b"\0")][:SEEDS]


def some_messages() -> Sequence[bytes]:
    """Return short records, some joined, followed by the possible ends of a file."""
    short = sorted(messages(), key=len)[: 2 * SEEDS]
    padding = message.encode_padding(8)
    return [*short, short[0] + short[1] + padding, short[2] + bytes(8), short[3][:-3]]


# ---- the log ---------------------------------------------------------------------------------------------------------


def check_message(data: bytes) -> None:
    """Check that a decoded record is encoded to the same bytes, if its CRC is correct and its topic is UTF-8."""
    tried(message.peek, data, 0)
    loose = tried(message.decode_message, data, check_crc=False)
    strict = tried(message.decode_message, data)
    assert strict is None or strict == loose
    if strict is not None and "\ufffd" not in strict.topic:
        again = encoded(strict)
        assert again is None or data.startswith(again)


def encoded(one: message.Message) -> bytes | None:
    """Return the record encoded again; None for a record that we never write so.

    Such a record has a CRC that is not checked, or a queue offset that does not count.
    """
    if one.body_crc != crc32(one.body) & message.CRC_MASK:
        return None
    if not one.in_queue and one.queue_offset:
        return None
    placement = message_encoding.Placement(
        one.topic.encode(),
        one.magic,
        one.queue_id,
        one.queue_offset,
        one.physical_offset,
        one.store_timestamp_ms,
        one.store_host,
    )
    raw = RawMessage(
        one.body,
        one.properties,
        one.flag,
        one.sys_flag,
        one.born_timestamp_ms,
        one.born_host,
        one.reconsume_times,
        one.prepared_transaction_offset,
    )
    return message_encoding.encode_messages([raw], placement)[0]


def check_walk(data: bytes) -> None:
    """Check that the walk returns consecutive, decodable records and the reason for its end; it never raises."""
    for check_crc in (True, False):
        found, end, why = walked(data, 0, len(data), 100, check_crc=check_crc)
        at = 0
        for physical_offset, size in found:
            assert physical_offset - 100 == at
            assert message.decode_message(data, at, check_crc=check_crc).size == size
            at += size
        assert at == end <= len(data)
        assert why in ENDS
        check_pass(data, found, 100)


def check_batch_body(data: bytes) -> None:
    """Check that batch members are encoded to the same bytes, except two fields that no reader checks."""
    members = tried(batch_body.decode_batch_body, data)
    if members is not None:
        again = batch_body.encode_batch_body(members)
        assert len(again) == len(data)
        assert batch_body.decode_batch_body(again) == members


def batch_bodies() -> Sequence[bytes]:
    """Return batch bodies with and without properties."""
    member = batch_body.BatchMember
    given = [member(b"one", b"KEYS\1k\2", 7), member(b"", b""), member(b"x" * 40, b"TAGS\1t\2", -1)]
    return [batch_body.encode_batch_body(given[:count]) for count in (1, 2, 3)]


def check_properties(data: bytes) -> None:
    """Check that any bytes decode to properties; properties that can be encoded decode to the same value."""
    read = properties.decode_properties(data)
    index_file.index_keys("t", read)
    queue_entry.code_of(names.SCHEDULE_TOPIC, read, 1)
    again = unless(CallerError, properties.encode_properties, read)
    assert again is None or properties.decode_properties(again) == read
    closed = data + properties.encode_crc_property(data)
    assert properties.has_crc_property(closed)
    assert properties.check_crc_property(closed)
    properties.check_crc_property(data)


def some_properties() -> Sequence[bytes]:
    """Return the properties of real records."""
    found = {message.decode_message(data).properties for data in some_messages()[:SEEDS]}
    return [b"\1\2", *sorted(found - {b""})]


# ---- derived files ---------------------------------------------------------------------------------------------------


def check_units(data: bytes) -> None:
    """Check that valid queue entries are encoded to the same bytes."""
    units = tried(queue_entry.decode_units, data)
    for number, unit in enumerate(units or ()):
        if unit.is_valid:
            at = number * queue_entry.UNIT_SIZE
            assert queue_entry.encode_unit(*unit) == data[at : at + queue_entry.UNIT_SIZE]


def check_index(data: bytes) -> None:
    """Check that header and entries are encoded to the same bytes."""
    header = tried(index_file.decode_header, data)
    if header is not None:
        assert data.startswith(index_file.encode_header(header))
        assert index_file.time_diff_s(header.end_timestamp_ms, header.begin_timestamp_ms) >= 0
    entries = tried(index_file.decode_entries, data)
    if entries is not None:
        assert b"".join(map(index_file.encode_entry, entries)) == data


def check_checkpoint(data: bytes) -> None:
    """Check that the numbers are encoded to the same bytes; a file of an older version is extended."""
    read = tried(checkpoint.decode_checkpoint, data)
    if read is not None:
        again = checkpoint.encode_checkpoint(read)
        assert checkpoint.decode_checkpoint(again) == read
        numbers = data[: len(data) // 8 * 8][: checkpoint.FIELDS_SIZE]
        assert again.startswith(numbers)


# ---- config files ----------------------------------------------------------------------------------------------------


def check_config(data: bytes) -> None:
    """Check that a decoded value survives encoding and decoding, except numbers and texts that JSON cannot hold."""
    value = tried(config_json.decode_config, data)
    again = unless(InvalidArgument, config_json.encode_config, value)
    if value is not None and again is not None:
        assert config_json.decode_config(again) == value


def check_topics(data: bytes) -> None:
    """Check that every topic of a table can be described, and the table can be changed."""
    table = tried(TopicTable.decode, data)
    if table is None:
        return
    for topic in table.topics[:20]:
        info = table.info(topic, (0, 7))
        changed = unless(CallerError, table.altered, info, {"topicSysFlag": "1"}, now_ms=5)
        assert changed is None or changed.info(topic).configs["topicSysFlag"] == "1"
        assert topic not in table.without([topic], now_ms=5).topics
    created = table.created("new", 3, {}, now_ms=5)
    assert len(created.info("new").partitions) == 3
    unless(InvalidArgument, created.encode)


# ---- ids and names ---------------------------------------------------------------------------------------------------


def check_ids(data: bytes) -> None:
    """Check that a parsed id is the id that would be generated."""
    text = text_of(data)
    found = unless(InvalidArgument, message_id.decode_offset_id, text)
    if found is not None:
        assert message_id.offset_id(*found) == text.upper()
        assert message_id.host_text(found[0])
    unless(InvalidArgument, message_id.host_text, data)
    unless(InvalidArgument, message_id.encode_host, text, 80)


def check_names(data: bytes) -> None:
    """Check that a parsed name is the name that would be generated."""
    text = text_of(data)
    position = names.parse_file_name(text)
    assert position is None or names.file_name(position) == text
    queue_id = names.parse_queue_id(text)
    assert queue_id is None or str(queue_id) == text
    names.parse_index_name(text)
    unless(InvalidTopic, names.validate_new_topic, text)
    unless(InvalidTopic, message.magic_for, text)


def some_ids() -> Sequence[bytes]:
    """Return ids with both sizes of hosts, and hosts as text."""
    hosts = [message_id.encode_host(address, 10911) for address in ("10.1.2.7", "fd00:4::1:ffff")]
    return [
        *hosts,
        *(message_id.offset_id(host, 1 << 40).encode() for host in hosts),
        *(b"10.1.2.7", b"::ffff:1.2.3.4", b"fe80::1%eth0"),
    ]


def some_names() -> Sequence[bytes]:
    """Return names of every kind that a store contains."""
    found = {path.name for store in all_stores()[:4] for path in store.root.rglob("*")}
    return [name.encode() for name in sorted(found)[: 2 * SEEDS]]


def from_files(name: str, pattern: str, run: Callable[[bytes], None]) -> Check:
    """Return a check that starts from real files."""
    return Check(f"rocketmq-{name}", partial(files, pattern), run)


MESSAGES = Target(
    "rocketmq-messages",
    (
        Check("rocketmq-message", some_messages, check_message),
        Check("rocketmq-walk", some_messages, check_walk),
        Check("rocketmq-batch-body", batch_bodies, check_batch_body),
        Check("rocketmq-properties", some_properties, check_properties),
    ),
    share=3,
)
FILES = Target(
    "rocketmq-files",
    (
        from_files("units", "consumequeue/*/*/*", check_units),
        from_files("index", "index/*", check_index),
        from_files("checkpoint", "checkpoint", check_checkpoint),
        from_files("config", "config/*.json", check_config),
        from_files("topics", "config/topics.json", check_topics),
        Check("rocketmq-ids", some_ids, check_ids),
        Check("rocketmq-names", some_names, check_names),
    ),
    share=2,
)
