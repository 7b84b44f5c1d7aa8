"""One side of diff_fuzz: builds the cases of a range and prints the result of the codec modules for each.

    diff_fuzz_cases.py MODULES SEED START STOP [--show]

A case depends only on the seed and its number, so both sides get the same input without communicating. The first line
has the files of MODULES, names with commas between them. Each other line has a digest of the result and `given` or
`refused`; with --show it has the input and the whole result.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import itertools
import json
import random
import struct
import sys
from array import array
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from api.kafka.protocol.messages import APIS
from api.kafka.protocol.primitives import Malformed, Reader, Writer
from storage.coding import cursor, hashes, varint
from storage.errors import StorageError
from storage.kafka.compaction import record_pass as compaction
from storage.kafka.compaction.offset_map import OffsetMap
from storage.kafka.format import batch, record_scan
from storage.kafka.format.record import Part
from storage.kafka.log import encoding as kafka_encoding
from storage.kafka.state.settings import parse_store_settings as parse_kafka_settings
from storage.model import ProducerSequence, RawMessage, Record, TopicPartition
from storage.rocketmq.format import (
    index_file,
    message,
    message_encoding,
    message_id,
    names,
    properties,
    queue_entry,
    scan,
    suspect_fields,
)
from storage.rocketmq.index import (
    dispatch_request,
    entry_match,
    key_index_table,
    queue_runs,
    record_pass,
)
from storage.rocketmq.log import due_messages, encoding
from storage.rocketmq.state.settings import parse_store_settings

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
LIMIT_BYTES = 1 << 20
SMALL_BATCH_BYTES = 1 << 13
SMALL_MESSAGE_BYTES = 1 << 11
EDGES = (0, 1, 63, 64, 0x7F, 0x80, 8191, 8192, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64)
HEADER_FACTS = (
    *("size_bytes", "last_offset", "next_offset", "codec", "is_log_append_time"),
    *("is_transactional", "is_control", "has_delete_horizon", "last_sequence"),
)

# Messages of Kafka's protocol: class, first and last version, and the first flexible one.
WIRE: tuple[tuple[Any, int, int, int], ...] = tuple(
    (kind, api.first, api.last, api.flexible_from)
    for api in APIS.values()
    for kind in (api.request, api.response)
)

Call = tuple[Callable[..., object], tuple[object, ...], dict[str, object]]


@cache
def batches() -> list[bytes]:
    """Return small real record batches, one of every shape in the golden logs."""
    found: dict[object, bytes] = {}
    for path in sorted(GOLDEN.glob("kafka/*/data/*/*.log")):
        data = path.read_bytes()
        for position, header in batch.split_batches(data):
            shape = (header.attributes, header.count, path.parent.name)
            if header.size_bytes <= SMALL_BATCH_BYTES:
                found.setdefault(shape, data[position : position + header.size_bytes])
    return list(found.values())


@cache
def messages() -> list[bytes]:
    """Return small real messages, one of every shape in the golden commit logs."""
    found: dict[object, bytes] = {}
    for path in sorted(GOLDEN.glob("rocketmq/*/store/commitlog/*")):
        data = path.read_bytes()
        for position, size in scan.records_in(data, 0, scan.walk(data, 0, len(data)).end, 0):
            one = message.decode_message(data, position)
            shape = (one.magic, one.sys_flag, one.topic)
            if size <= SMALL_MESSAGE_BYTES:
                found.setdefault(shape, data[position : position + size])
    return list(found.values())


def number(rng: random.Random) -> int:
    """Return a number near the limit of some integer width, or any number; of either sign."""
    edge = rng.choice(EDGES) + rng.choice((-1, 0, 0, 1))
    return rng.choice((1, -1)) * rng.choice((edge, rng.getrandbits(rng.randrange(1, 66))))


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Apply up to four changes: to a bit, to bytes, to a number, to the length."""
    out = bytearray(data)
    for _ in range(rng.randrange(5)):
        at = rng.randrange(len(out) + 1)
        piece = slice(at, at + rng.randrange(1, 9))
        match rng.randrange(6):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[piece] = rng.randbytes(rng.randrange(1, 9))
            case 2:
                out[at : at + 4] = struct.pack(">I", number(rng) & 0xFFFFFFFF)
            case 3:
                del out[at:]
            case 4:
                out[at:at] = out[piece]
            case _:
                del out[piece]
    return bytes(out)


def damaged_batch(rng: random.Random) -> bytes:
    """Return a real batch with changes anywhere, or only in its records, so that the header stays readable."""
    data = rng.choice(batches())
    if rng.random() < 0.4:
        return mutated(rng, data)
    inside = mutated(rng, data[batch.HEADER_SIZE :])
    length = batch.MIN_LENGTH + len(inside)
    return data[:8] + struct.pack(">i", length) + data[12 : batch.HEADER_SIZE] + inside


def some_bytes(rng: random.Random) -> bytes | None:
    """Return None, empty bytes, or up to 200 bytes."""
    return rng.choice((None, b"", rng.randbytes(rng.randrange(200))))


def record(rng: random.Random) -> tuple[object, ...]:
    """Return a record of any shape, sometimes an invalid one (a lone surrogate, a time beyond 64 bits)."""
    names = ("", "n", "ключ", "\ud800" if rng.random() < 0.05 else "z")
    headers = [(rng.choice(names), some_bytes(rng)) for _ in range(rng.choice((0, 0, 1, 3)))]
    times = (None, rng.randrange(2**41), in_range(rng, 64))
    return some_bytes(rng), some_bytes(rng), headers, rng.choice(times)


def in_range(rng: random.Random, bits: int) -> int:
    """Return a signed number that mostly fits into `bits`."""
    value = number(rng)
    return value if rng.random() < 0.02 else value % (1 << bits - 1)


def encode_call(rng: random.Random) -> Call:
    """Return a call that encodes a new batch, sometimes with a field out of range."""
    fields: dict[str, object] = {
        "base_offset": in_range(rng, 62),
        "leader_epoch": in_range(rng, 32),
        "now_ms": in_range(rng, 42),
        "codec": rng.randrange(5),
        "log_append_time": rng.random() < 0.2,
        "producer_id": in_range(rng, 64),
        "producer_epoch": in_range(rng, 16),
        "base_sequence": in_range(rng, 32),
        "transactional": rng.random() < 0.2,
    }
    given = [record(rng) for _ in range(rng.choice((0, 1, 1, 2, 5, 70)))]
    return encode_and_decode, (given,), fields


def encode_and_decode(given: list[tuple[object, ...]], **fields: Any) -> object:
    """Encode a batch and decode it."""
    data = batch.encode_batch(given, **fields)
    return data, batch.decode_header(data), batch.decode_records(data, max_bytes=LIMIT_BYTES)


def restamp(data: bytes, position: int, timestamp_ms: int) -> bytes:
    """Return the batch after stamping an append time and a base offset on it."""
    buffer = bytearray(data)
    batch.restamp_append_time(buffer, position, timestamp_ms)
    batch.stamp(buffer, position, base_offset=timestamp_ms, leader_epoch=7)
    return bytes(buffer)


def check(data: bytes, position: int) -> object:
    """Check a producer's batch; return its latest timestamp and the batch with that as its max timestamp."""
    header = batch.decode_header(data, position)
    latest = batch.check_records(data, position, header, max_bytes=LIMIT_BYTES)
    buffer = bytearray(data)
    batch.restamp_latest(buffer, position, latest)
    return latest, bytes(buffer)


def positions(data: bytes, position: int, end: int, count: int) -> object:
    """Return whether records fill the data, and their positions."""
    out: list[int] = []
    return record_scan.add_positions(out, data, position, end, count), out


def cleaned(data: bytes, number: int, first_offset: int, to_base_ms: int) -> object:
    """Return what compaction keeps of a batch after the keys of its first records were mapped."""
    header = batch.decode_header(data)
    content, start, end = batch.content_of(data, 0, header, LIMIT_BYTES)
    offsets = OffsetMap(24 * (number + 1), 0.9)
    fields: dict[str, Any] = {"end": end, "count": header.count, "base_offset": header.base_offset}
    is_whole = compaction.add_keys(offsets, content, start, first_offset=first_offset, **fields)
    drops = number % 2 == 0
    base_ms = header.base_timestamp
    found = compaction.select(
        offsets, content, start, base_time_ms=base_ms, drops_tombstones=drops, **fields
    )
    append_time_ms = header.max_timestamp if header.is_log_append_time else None
    moved = compaction.rebase_runs(
        content,
        found.runs,
        from_base_ms=base_ms,
        to_base_ms=to_base_ms,
        append_time_ms=append_time_ms,
    )
    kept = compaction.copy_runs(content, found.runs)
    times = found.first_time_ms, found.latest_time_ms
    counts = len(offsets), offsets.latest_offset, found.kept, found.keyless, found.has_tombstone
    return is_whole, counts, times, kept, moved, batch.keyless(data, 0, header)


def wire_call(rng: random.Random) -> Call:
    """Read bytes as a message of Kafka's protocol and write it again."""
    kind, first, last, flexible_from = rng.choice(WIRE)
    version = rng.randrange(first, last + 1)
    writer = Writer(flexible=version >= flexible_from)
    kind().write(writer, version)
    seed = b"".join(writer.parts) + rng.randbytes(rng.choice((0, 0, 40)))
    return read_and_write, (kind, mutated(rng, seed), version, writer.flexible), {}


def read_and_write(kind: Any, data: bytes, version: int, flexible: bool) -> object:
    """Return the message, where its bytes end, and the bytes that it is written in."""
    reader = Reader(data, flexible=flexible)
    try:
        found = kind.read(reader, version)
    except Malformed as error:
        return str(error)
    writer = Writer(flexible=flexible)
    found.write(writer, version)
    return found, reader.at, b"".join(writer.parts)


def taken_call(rng: random.Random) -> Call:
    """Take in and stamp a client's batches, with changes that the CRC does not show."""
    data = b"".join(damaged_batch(rng) for _ in range(rng.choice((1, 1, 1, 2))))
    numbers = rng.randrange(1 << 40), rng.randrange(1 << 16), rng.randrange(1 << 41)
    return taken_in, (data, *numbers, rng.random() < 0.3), {"client": rng.random() < 0.7}


def taken_in(data: bytes, *stamp: Any, client: bool) -> object:
    """Return the batches as they would be written."""
    settings = parse_kafka_settings({}).of_topic("t", {})
    new = kafka_encoding.taken(
        data, settings, kafka_encoding.BatchRules(client=client, checked=True)
    )
    if client:
        new = kafka_encoding.take_in(data, new.batches)
    stamped = kafka_encoding.stamp_batches(new.data, new.batches, kafka_encoding.Stamp(*stamp))
    return stamped.data, stamped.batches, [bytes(part) for part in stamped.parts]


def varint_call(rng: random.Random) -> Call:
    """Return a call that encodes or decodes a varint."""
    if rng.random() < 0.5:
        return rng.choice((varint.encode_varint, varint.encode_uvarint)), (number(rng),), {}
    decode = rng.choice((varint.decode_varint, varint.decode_uvarint))
    return decode, (bytes(rng.choices((0, 1, 0x7F, 0x80, 0xFF), k=rng.randrange(13))), 0), {}


def hash_call(rng: random.Random) -> Call:
    """Return a call of either hash, on any bytes or any text."""
    if rng.random() < 0.5:
        return hashes.murmur2, (some_bytes(rng) or b"",), {}
    text = "".join(rng.choices("aZ\u00e9\u4e16\U0001f680\ud800\0", k=rng.randrange(60)))
    return hashes.java_hash, (text,), {}


def decode_call(rng: random.Random) -> Call:
    """Return a call of one of the decoders, on a mutated real batch."""
    data = damaged_batch(rng)
    position = 0 if rng.random() < 0.95 else rng.randrange(len(data) + 2)
    followed = data + damaged_batch(rng)
    end = rng.randrange(len(followed) + 2)
    calls: tuple[Call, ...] = (
        (cursor.decode_blob, (data, position, min(end, len(data))), {}),
        (batch.decode_header, (data, position), {}),
        (batch.decode_control, (data, position), {}),
        (batch.split_batches, (followed,), {}),
        (batch.scan_headers, (followed, position, end), {}),
        (restamp, (data, position, in_range(rng, 63)), {}),
        (check, (data, position), {}),
        (positions, (data, min(batch.HEADER_SIZE, len(data)), end, rng.randrange(200)), {}),
        (cleaned, (data, rng.randrange(20), rng.randrange(1000), number(rng) % (1 << 41)), {}),
    )
    if rng.random() < 0.5:
        part = Part(rng.randrange(100), rng.randrange(-1, 50), rng.randrange(-1, 10_000))
        options: dict[str, object] = {"max_bytes": LIMIT_BYTES, "part": rng.choice((None, part))}
        return batch.decode_records, (data, position), options
    return rng.choice(calls)


def new_message(rng: random.Random) -> RawMessage:
    """Return a message of any shape, sometimes with a value that does not fit its field."""
    hosts = (8, 8, 8, 20, 20) if rng.random() < 0.99 else (0, 7, 12)
    return RawMessage(
        some_bytes(rng) or b"",
        rng.randbytes(rng.choice((0, 40, 2047, 2048, 32767 + (rng.random() < 0.05)))),
        in_range(rng, 32),
        in_range(rng, 12) & rng.choice((~0, ~message.TRANSACTION_MASK)),
        in_range(rng, 64),
        rng.randbytes(rng.choice(hosts)),
        in_range(rng, 32),
        in_range(rng, 64),
    )


def encode_messages_call(rng: random.Random) -> Call:
    """Return a call that encodes a run of new messages."""
    placement = message_encoding.Placement(
        rng.randbytes(rng.choice((0, 1, 20, 127, 128, 200))),
        rng.choice((message.MAGIC_V1, message.MAGIC_V2)),
        in_range(rng, 32),
        rng.randrange(1 << 62),
        rng.randrange(1 << 62),
        rng.randrange(1 << 42),
        rng.randbytes(rng.choice((8, 8, 20))),
    )
    given = [new_message(rng) for _ in range(rng.choice((0, 1, 1, 2, 5, 20)))]
    return message_encoding.encode_messages, (given, placement), {}


def append_call(rng: random.Random) -> Call:
    """Return a call that appends records of any shape."""
    given = [lookup_record(rng) for _ in range(rng.choice((1, 1, 2, 5)))]
    options: dict[str, object] = {
        "compression": rng.choice((None, None, "none", "zlib", "lzma")),
        "producer": rng.choice((None, ProducerSequence(number(rng), 1, 2))),
        "born_hosts": rng.choice(((), [rng.randbytes(8)] * len(given))),
    }
    return append, (given,), options


def lookup_record(rng: random.Random) -> Record:
    """Return a record of any shape with its own tag, keys and unique id."""
    key, value, _, timestamp_ms = record(rng)
    texts = ("a", "k1", "ключ", "", "b c", "\1", "\ud800")
    weights = (40, 40, 20, 1, 1, 1, 1)
    some = rng.choices(texts, weights, k=6)
    headers = [
        (f"{name}{at}", rng.choice((b"v", some_bytes(rng))))
        for at, name in enumerate(some[: rng.randrange(3)])
    ]
    return Record(
        rng.choice((None, b"k1", b"b c", key)),  # type: ignore[arg-type]  # wrong types are intended
        value if rng.random() < 0.1 else rng.randbytes(rng.randrange(200)),  # type: ignore[arg-type]  # likewise
        headers if rng.random() < 0.5 else (),
        timestamp_ms,  # type: ignore[arg-type]  # likewise
        rng.choice((None, some[3])),
        some[4 : 4 + rng.randrange(3)],
        {"UNIQ_KEY": f"{rng.randrange(1 << 30):032X}"},
    )


def encoder() -> encoding.Encoder:
    """Return an encoder of bodies of up to 190 bytes."""
    settings = dataclasses.replace(parse_store_settings({}), max_message_bytes=190)
    return encoding.Encoder(settings, lambda: 1 << 40)


def append(given: list[Record], **options: Any) -> object:
    """Encode records as an append does; return their bytes at a place, and their dispatches to queues and index."""
    run = encoder().encode_run(TopicPartition("t", 1), given, **options)
    data = run.placed(2, 3, 1 << 40)
    facts = run.count, run.queued, run.largest_bytes, run.sizes()
    return data, facts, passed_over(data, 3, Rules(0), with_tags=True)


def decode_message_call(rng: random.Random) -> Call:
    """Return a call of the message decoder, the walk, or the check for suspect parts, on mutated messages."""
    run = [rng.choice(messages()) for _ in range(rng.randrange(1, 6))]
    at = rng.randrange(len(run))
    if rng.random() < 0.8:
        run[at] = mutated(rng, run[at])
    run.append(rng.choice((b"", bytes(rng.randrange(12)), message.encode_padding(8), b"\1\0\0")))
    data = b"".join(run)
    check_crc = rng.random() < 0.5
    if rng.random() < 0.5:
        position = sum(len(one) for one in run[:at])
        if rng.random() < 0.5:
            return suspects, (data, position, rng.choice((0, position, number(rng)))), {}
        return message.decode_message, (data, position), {"check_crc": check_crc}
    end = rng.choice((len(data), rng.randrange(len(data) + 2)))
    known = sorted(rng.sample(range(999), 9))
    if rng.random() < 0.5:
        return walked, (data, end, rng.randrange(1 << 40)), {"known": known}
    return scan.walk, (data, 0, end), {"check_crc": check_crc}


def walked(data: bytes, end: int, shift: int, *, known: list[int]) -> object:
    """Return the good records, and the ranges of those that are not among the known ones."""
    stop = scan.walk(data, 0, end).end
    records = scan.records_in(data, 0, stop, shift)
    places = {shift + at for at in known} | {at for at, size in records if size % 2}
    packed = b"".join(place.to_bytes(8) for place in sorted(places))
    return records, scan.unmatched(data, 0, stop, shift, known=packed, at=0)


def suspects(data: bytes, position: int, physical_offset: int) -> object:
    """Return the suspect parts of a record."""
    record = message.decode_message(data, position, check_crc=False)
    record = record._replace(physical_offset=physical_offset)
    return suspect_fields.suspect_parts(record, physical_offset)


def header_facts(data: bytes, position: int) -> object:
    """Return a batch's header with its properties, and whether its CRC is right."""
    header = batch.decode_header(data, position)
    facts = [getattr(header, name) for name in HEADER_FACTS]
    return header, facts, batch.check_crc(data, position, header)


def parts_call(rng: random.Random) -> Call:
    """Return a call of a function that no other case calls: control batches, queue entries and index entries."""
    numbers = [in_range(rng, bits) for bits in (32, 64, 32, 32)]
    marker: dict[str, object] = {
        **{"commit": rng.random() < 0.5, "coordinator_epoch": in_range(rng, 32)},
        **{"producer_id": in_range(rng, 64), "producer_epoch": in_range(rng, 16)},
        **{"base_offset": in_range(rng, 62), "leader_epoch": in_range(rng, 32)},
        "timestamp_ms": in_range(rng, 64),
    }
    raw = rng.randbytes(rng.choice((20, 40, 41, 19, 0)))
    sizes: dict[str, object] = {
        **{"topic_bytes": rng.randrange(300), "body_bytes": rng.randrange(1 << 20)},
        **{"properties_bytes": rng.randrange(1 << 15), "sys_flag": rng.randrange(1 << 11)},
        "magic": rng.choice((message.MAGIC_V1, message.MAGIC_V2)),
    }
    calls: tuple[Call, ...] = (
        (header_facts, (damaged_batch(rng), 0), {}),
        (batch.encode_control_batch, (), marker),
        (hashes.partition_for_key, (some_bytes(rng) or b"", rng.randrange(1, 1 << 31)), {}),
        (message.message_size, (), sizes),
        (queue_entry.encode_unit, (numbers[1], numbers[0], in_range(rng, 64)), {}),
        (queue_entry.decode_units, (raw,), {}),
        (queue_entry.positions_in, (units(rng),), {}),
        (entries_of, (b"".join(units(rng) for _ in range(3)), rng.randrange(9)), {}),
        (in_order, ([units(rng) for _ in range(rng.randrange(5))], rng.random() < 0.3), {}),
        (key_index_table.summed, (bytes(rng.choices(range(256), k=60)), 16, 20), {}),
        (queue_entry.sound_part, (units(rng), rng.randrange(-1, 9)), {}),
        (queue_entry.delay_code, (rng.randrange(-1, 30), in_range(rng, 62)), {}),
        (index_file.encode_entry, (index_file.IndexEntry(*numbers),), {}),
        (index_file.decode_entry, (raw, rng.randrange(30)), {}),
        (index_file.entry_position, (rng.randrange(1 << 31), rng.randrange(1 << 31)), {}),
    )
    return rng.choice(calls)


def dispatch_call(rng: random.Random) -> Call:
    """Return a call that builds dispatches or queue entries from real messages."""
    data = b"".join(rng.choice(messages()) for _ in range(rng.randrange(1, 6)))
    start = rng.randrange(1 << 40)
    if rng.random() < 0.3:
        properties = {"DELAY": rng.choice(("", "0", "18", "19", "-3", "x", "9" * 12)), "TAGS": "a"}
        delays = rng.choice((None, (7000,), (7000, 1 << 40, 0)))
        topic = rng.choice(("t", names.SCHEDULE_TOPIC))
        return queue_entry.code_of, (topic, properties, in_range(rng, 42), delays), {}
    if rng.random() < 0.3:
        one = message.decode_message(data)
        return dispatch_request.dispatch_of, (one, start), {"with_tags": rng.random() < 0.5}
    if rng.random() < 0.3:
        return due_call(rng)
    tags: dict[str, object] = {"with_tags": rng.random() < 0.5}
    if rng.random() < 0.5:
        rules = Rules(start + rng.choice((0, rng.randrange(len(data)))))
        return passed_over, (data, start, rules), tags
    ends: dict[str, object] = {"last_end": start + rng.randrange(999)}
    ends["bad_places"] = sorted((start + rng.randrange(999), 9) for _ in range(rng.randrange(3)))
    ends["with_fillers"] = rng.random() < 0.5
    return fitted, (data, start, rng.choice((0, 1, 40, -queue_runs.LARGEST_GAP))), ends


def due_call(rng: random.Random) -> Call:
    """Return a call that delivers messages of one queue: some are damaged or name no queue."""
    start, data, entries = rng.randrange(1 << 40), b"", []
    one = rng.choice(messages())
    for _ in range(rng.randrange(1, 6)):
        added = rng.choice((one, one, one, mutated(rng, one), rng.choice(messages())))
        entries.append(queue_entry.QueueEntry(start + len(data), len(added), 0))
        data += added
    wanted = message.decode_message(one)
    partition = TopicPartition(wanted.topic, wanted.queue_id)
    room_bytes = rng.choice((1 << 20, len(data) // 2))
    return taken_due, (data, start, entries, partition, room_bytes), {}


def taken_due(data: bytes, start: int, found: list[Any], of: TopicPartition, room: int) -> object:
    """Return what the pass over due messages takes, and what the first one is on its own."""
    due = due_messages.DueRecords(encoder(), of)
    ended = due.take(data, start, found, 0, room)
    made = [(target, run.placed(1, 2, 3), run.has_keys_beside) for target, run in due.runs()]
    return ended, made, due_messages.time_up(message.decode_message(data))


def units(rng: random.Random) -> bytes:
    """Return queue entries, most of them sound."""
    at = itertools.accumulate(rng.choice((1, 1, 300, 1 << 40, -2)) for _ in range(rng.randrange(9)))
    sizes = (91, 91, 91, 0, -1, queue_entry.FILLER_SIZE)
    found = [queue_entry.UNIT.pack(place, rng.choice(sizes), rng.randrange(9)) for place in at]
    return b"".join([*found, *rng.choices((queue_entry.FILLER, bytes(20)), k=rng.randrange(3))])


def entries_of(data: bytes, limit: int) -> object:
    """Return queue entries, the first that is due later, and how far each reaches."""
    found = queue_entry.decode_units(data)
    ends = [queue_entry.reach(found, at, near_bytes=9, limit_bytes=99) for at in range(len(found))]
    return found, queue_entry.first_after(found, limit), ends


def in_order(all_units: list[bytes], doubt: bool) -> bytes:
    """Return the physical offsets of entries in ascending order."""
    parts = list(map(queue_entry.positions_in, all_units))
    return queue_entry.in_order(parts, frozenset({1, 300} if doubt else ()))


class Rules:
    """Rules of the pass by which the records below an offset were deleted."""

    def __init__(self, below: int) -> None:
        self._below = below

    def __repr__(self) -> str:
        return f"Rules({self._below})"

    def alive_from(self, topic: str, queue_id: int) -> int:
        """Return the offset."""
        return self._below

    def is_over(self, dispatch: dispatch_request.Dispatch) -> bool:
        """Return whether a record is below the offset."""
        return dispatch.physical_offset < self._below

    def code_of(self, dispatch: dispatch_request.Dispatch) -> int:
        """Return the computed code."""
        return dispatch.tags_code


def passed_over(data: bytes, start: int, rules: Rules, *, with_tags: bool) -> object:
    """Return what the pass makes of good records, and its state after them."""
    done = record_pass.RecordPass(rules, with_tags=with_tags)
    done.take(data, 0, len(data), start)
    last = done.last_offset, done.last_time_ms, done.left_out
    alive = done.last_alive_offset, done.last_alive_time_ms, done.last_alive_strings
    return done.next_offsets(), list(done.unqueued), last, alive, done.taken()


def fitted(data: bytes, start: int, following: int, **ends: Any) -> object:
    """Return what queues with this next offset take of good records."""
    done = record_pass.RecordPass(Rules(0), with_tags=False)
    done.take(data, 0, len(data), start)
    return [queue_runs.fit(group, following, **ends) for group in done.taken().queues]


def properties_call(rng: random.Random) -> Call:
    """Return a call on encoded or decoded properties, or on a small function for records."""
    texts = ("KEYS", "TAGS", "", "a", "ключ", "\1", "b\2c", "\ud800" if rng.random() < 0.1 else "z")
    given = {rng.choice(texts): rng.choice(texts) * rng.randrange(1, 9) for _ in range(4)}
    raw = b"".join(rng.choices((b"a", b"bc", b"\1", b"\1", b"\2", b"\xed\xa0\x80", b"\xff"), k=12))
    record = mutated(rng, rng.choice(messages()))
    crc = properties.encode_crc_property(record)
    calls: tuple[Call, ...] = (
        (properties.encode_properties, (given,), {}),
        (properties.decode_properties, (raw,), {}),
        (properties.decode_properties, (mutated(rng, record[-60:]),), {}),
        (properties.check_crc_property, (mutated(rng, record + crc),), {}),
        (properties.has_crc_property, (mutated(rng, record + crc),), {}),
        (properties.with_crc_place, (rng.choice((raw, raw + crc)),), {}),
        (properties.closed_record, (mutated(rng, record + crc),), {}),
        (message.peek, (record, rng.randrange(-1, len(record) + 2)), {}),
        (message.encode_padding, (number(rng),), {}),
        (message.magic_for, (rng.choice(texts) * rng.choice((1, 63, 64, 127, 128, 20_000)),), {}),
    )
    return rng.choice(calls)


def id_call(rng: random.Random) -> Call:
    """Return a call on hosts and message ids."""
    host = rng.randbytes(rng.choice((8, 20, 20, 7)))
    if len(host) == 20 and rng.random() < 0.5:
        host = bytes(10) + b"\xff\xff" + host[12:]
    text = (host + rng.randbytes(8)).hex()
    texts = (text, text.upper(), text[1:], text[:-1] + "g", "", " " + text[1:])
    address = rng.choice(("10.1.2.7", "::1", "fd00:4::1:ffff", "fe80::1%eth0", "host", "1.2.3", ""))
    calls: tuple[Call, ...] = (
        (message_id.encode_host, (address, rng.choice((0, 10911, 65535, 65536, -1))), {}),
        (message_id.host_text, (host,), {}),
        (message_id.offset_id, (host, number(rng)), {}),
        (message_id.decode_offset_id, (rng.choice(texts),), {}),
        (unique_ids, (host, rng.randrange(1 << 40), rng.randrange(700)), {}),
    )
    return rng.choice(calls)


def unique_ids(host: bytes, now_ms: int, count: int) -> object:
    """Return ids of a generator whose clock is set back, and then goes on to the next month."""
    times = iter((now_ms, now_ms, now_ms - 5000, now_ms - (1 << 21)))
    ids = message_id.UniqueIds(
        host, pid=70_000, loader_hash=1 << 35, clock=lambda: next(times, now_ms + (1 << 32))
    )
    return ids.take(count), ids.runs(count), ids.take(300)


def chains(data: bytes, count: int, number: int) -> object:
    """Return whether index entries form valid chains, and the slots after them."""
    slots = array("i", bytes(4 * count))
    return key_index_table.follow_chains(data, slots, number), list(slots)


def chain_entries(rng: random.Random, count: int) -> bytes:
    """Return index entries for `count` slots, most of them valid."""
    slots = [0] * count
    made = b""
    for entry in range(1, rng.randrange(2, 12)):
        hashed = rng.choice((rng.randrange(1 << 31), rng.randrange(count)))
        slot = hashed % count
        previous = slots[slot] if rng.random() < 0.97 else number(rng) % 99
        made += index_file.ENTRY.pack(hashed, rng.randrange(1 << 40), rng.randrange(99), previous)
        slots[slot] = entry
    return made


def index_call(rng: random.Random) -> Call:
    """Return a call that puts keys into an index file with arbitrary slots, or a call of the index codecs."""
    slots = rng.randrange(1, 3000)
    sizes: dict[str, object] = {
        "slots": slots,
        "entries": rng.choice((1, 2, 10, 100)),
        "seed": rng.randrange(1 << 30),
    }
    header = index_file.IndexHeader(
        *(in_range(rng, 42), in_range(rng, 42), in_range(rng, 62), in_range(rng, 62)),
        *(rng.randrange(100), rng.choice((0, 1, 1, 1, 50))),
    )
    raw = rng.randbytes(rng.randrange(90))
    words = ("KEYS", "TAGS", "UNIQ_KEY", "", " ", "a b", "ключ\U0001f680")
    properties_of = {rng.choice(words): rng.choice(words) * rng.randrange(1, 4) for _ in range(4)}
    key = "".join(rng.choices("aZ\u4e16\U0001f680", k=rng.randrange(40)))
    calls: tuple[Call, ...] = (
        (index_file.decode_header, (raw, rng.randrange(50)), {}),
        (index_file.decode_entries, (raw,), {}),
        (index_file.encode_header, (header._replace(end_timestamp_ms=number(rng)),), {}),
        (index_file.time_diff_s, (in_range(rng, 64), in_range(rng, 64)), {}),
        (index_file.key_hash, (key,), {}),
        (index_file.index_keys, (rng.choice(words), properties_of), {}),
        (chains, (chain_entries(rng, 7), 7, 1), {}),
        (matched, (rng.randrange(1 << 30),), {}),
    )
    return rng.choice(calls) if rng.random() < 0.5 else (put_and_look, (header,), sizes)


def matched(seed: int) -> object:
    """Return which records lack an entry, and which files are wrong, of a few records with few hashes."""
    rng = random.Random(seed)
    records = [
        (at * 100, 10**12 + rng.randrange(5000), rng.choices(range(3), k=rng.randrange(4)))
        for at in range(rng.randrange(9))
    ]
    strings, required = (
        b"".join(
            record_pass.STRING.pack(hashed, at, time_ms)
            for at, time_ms, hashes in records
            for hashed in hashes[: len(hashes) - less] or [record_pass.NO_STRING]
        )
        for less in (0, 1)
    )
    begin_ms = records[0][1] if records else 0
    entries = [
        (hashed, at, index_file.time_diff_s(time_ms, begin_ms), 0)
        for at, time_ms, hashes in records
        for hashed in hashes[: len(hashes) - rng.randrange(2)]
    ]
    for _ in range(rng.randrange(3)):
        odd = rng.choice((-1, 2)), rng.choice((-7, 100, 150, 1 << 62)), rng.choice((-1, 0)), 0
        entries.insert(rng.randrange(len(entries) + 1), odd)
    split = rng.randrange(len(entries) + 1)
    pack = index_file.ENTRY.pack
    blocks = [
        entry_match.EntryBlock(file, number, begin_ms, b"".join(itertools.starmap(pack, part)))
        for file, number, part in ((0, 1, entries[:split]), (1, 1, entries[split:]))
        if part
    ]
    wrong: set[int] = set()
    match = entry_match.EntryMatch(iter(blocks), rng.choice((0, 200)), wrong)
    return match.lacking(strings, lambda: required), sorted(wrong)


def put_and_look(header: Any, *, slots: int, entries: int, seed: int) -> list[object]:
    """Put the keys of some records into the table; return its whole state."""
    rng = random.Random(seed)
    held = rng.choice((bytes, rng.randbytes))(slots * 4)
    header = index_file.decode_header(index_file.encode_header(header))  # one that a file can have
    table = key_index_table.KeyIndexTable(header, held, slots, entries=entries)
    offsets = sorted(rng.randrange(1 << 60) for _ in range(rng.randrange(20)))
    pack = record_pass.STRING.pack
    strings = b"".join(
        pack(rng.choice((-1, rng.randrange(1 << 31))), at, rng.randrange(1 << 42))
        for at in offsets
        for _ in range(rng.randrange(5))
    )
    position = rng.choice((0, 0, len(strings)))
    done = table.put_strings(strings, position)
    first, tail = table.tail
    return [done, table.header, first, tail.getvalue(), table.dirty_slots(), list(table.slots)]


MAKERS = (
    *(varint_call, hash_call, encode_call, decode_call, decode_call, decode_call),
    *(encode_messages_call, decode_message_call, decode_message_call, properties_call),
    *(index_call, dispatch_call, parts_call, append_call, id_call),
    *(wire_call, taken_call),
)


def case(seed: int, index: int) -> Call:
    """Return the call of this case: function and arguments."""
    rng = random.Random(f"{seed}:{index}")
    return rng.choice(MAKERS)(rng)


def answer(call: Call) -> tuple[str, str]:
    """Call the function. Return the value, or the error with its facts, as text; and how the call ended."""
    function, arguments, options = call
    try:
        return repr(function(*arguments, **options)), "given"
    except StorageError as error:
        return f"{type(error).__name__}: {error} {sorted(error.facts().items())}", "refused"
    except BaseException as error:  # noqa: BLE001  # the fuzz reports any exception
        return f"{type(error).__name__}: {error}", "FAULT"


def main() -> None:
    """Print the origin of the modules, then a line for each case."""
    names = sys.argv[1].split(",")
    seed, start, stop = (int(argument) for argument in sys.argv[2:5])
    print(json.dumps([str(importlib.import_module(name).__file__) for name in names]))
    for index in range(start, stop):
        call = case(seed, index)
        text, end = answer(call)
        if "--show" in sys.argv:
            print(f"{end}: {call[0].__name__}{call[1]!r} {call[2]!r}\n    {text}")
        else:
            print(hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:16], end)


if __name__ == "__main__":
    main()
