"""Record batches sent by a client: checks and corrections before they are stored, as in Kafka's LogValidator."""

from __future__ import annotations

import gzip
import struct

import cramjam
import lz4.frame
import pytest
import zstandard

from storage.errors import InvalidBatch, NotOffered
from storage.model import TopicPartition
from tests.contract.batches import (
    CODECS,
    BatchStore,
    batch,
    changed,
    headers,
    marker,
    transaction,
)
from tests.contract.harness import START_MS, read_all, values


def with_records(block: bytes, codec: int = 0) -> bytes:
    """Return a batch of one record, with `block` in place of its records."""
    data = batch("x")
    sized = data[:8] + struct.pack(">i", 49 + len(block)) + data[12:61] + block
    return changed(sized, 21, ">H", codec)


RECORD = batch("x")[61:]
LONG_RECORD = batch("x" * 100_000)[61:]
NULL_NAME = RECORD.replace(b"\x02h", b"\x01h")
UNREADABLE = {
    "no records": with_records(bytes(20)),
    "bytes after the record": with_records(RECORD + b"xx"),
    "bytes in the record": with_records(bytes([RECORD[0] + 4]) + RECORD[1:] + b"xx"),
    "a null header name": with_records(bytes([RECORD[0] - 2]) + NULL_NAME[1:-2] + b"\1"),
    "the second offset": with_records(RECORD[:3] + b"\x02" + RECORD[4:]),
    "no gzip": with_records(RECORD, 1),
    "gzip, a wrong trailer": with_records(gzip.compress(RECORD)[:-8] + bytes(8), 1),
    "snappy's official framing": with_records(bytes(cramjam.snappy.compress(RECORD)), 2),
    "lz4, two frames": with_records(
        lz4.frame.compress(RECORD[:5], block_linked=False)
        + lz4.frame.compress(RECORD[5:], block_linked=False),
        3,
    ),
    "lz4, linked blocks": with_records(lz4.frame.compress(LONG_RECORD, block_linked=True), 3),
    "zstd and junk": with_records(zstandard.compress(RECORD) + b"junk", 4),
}


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("sent", UNREADABLE.values(), ids=UNREADABLE)
def test_a_clients_records_are_checked(
    batches: BatchStore, partition: TopicPartition, sent: bytes, before: int
) -> None:
    """A client's unreadable records are InvalidBatch with the batch's position; nothing of the call is stored."""
    good = batch("good") * before
    with pytest.raises(InvalidBatch) as refused:
        batches.append_batches(partition, good + sent, client=True)
    assert refused.value.facts() == {"field": "records", "position": len(good)}
    assert refused.value.message.startswith(f"record batch at {len(good)}: ")
    assert batches.bounds(partition).end == 0
    assert batches.append_batches(partition, batch("good"), client=True)[:2] == (0, 0)
    assert values(read_all(batches, partition)) == [b"good"]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
def test_a_clients_good_batches_stay_as_they_are(
    batches: BatchStore, partition: TopicPartition, codec: int
) -> None:
    """A client's valid batches are kept, except for offsets and leader epoch, which the CRC does not cover."""
    sent = batch(*"abc", codec=codec)
    batches.append_batches(partition, sent + sent, client=True)
    data = batches.read_batches(partition, 0).data
    assert [data[at:][16 : len(sent)] for at in (0, len(sent))] == [sent[16:]] * 2


@pytest.mark.parametrize("wrong_ms", [1, -1, START_MS + 1, START_MS + 9999])
@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
def test_a_clients_wrong_latest_time_is_put_right(
    batches: BatchStore, partition: TopicPartition, codec: int, wrong_ms: int
) -> None:
    """A wrong largest time in the header, used by time lookups, is replaced by that of the records, with a new CRC."""
    right = batch("a", "b", "c", codec=codec)
    wrong = changed(right, 35, ">q", wrong_ms)
    batches.append_batches(partition, wrong + right + wrong, client=True)
    data = batches.read_batches(partition, 0).data
    assert [header.max_timestamp for header in headers(data)] == [START_MS + 2] * 3
    assert [header.crc for header in headers(data)] == [headers(right)[0].crc] * 3
    found = batches.offset_for_time(partition, START_MS + 2)
    assert found is not None
    assert found[:2] == (2, START_MS + 2)
    assert batches.offset_for_time(partition, START_MS + 3) is None


def test_a_clients_append_times_stay(batches: BatchStore, partition: TopicPartition) -> None:
    """In a batch marked as log-append time each record has the header's time, so the batch is not wrong."""
    sent = changed(changed(batch("a", "b"), 21, ">H", 8), 35, ">q", 77)
    batches.append_batches(partition, sent, client=True)
    assert [r.timestamp_ms for r in batches.read(partition, 0).records] == [77, 77]


def test_what_is_not_a_clients(batches: BatchStore, partition: TopicPartition) -> None:
    """A client cannot send markers, transactions or delete horizons: only the owner of the log writes them."""
    for data in (transaction("a", sequence=0), marker(commit=True)):
        with pytest.raises(NotOffered):
            batches.append_batches(partition, batch("good") + data, client=True)
    with pytest.raises(InvalidBatch) as refused:
        batches.append_batches(partition, changed(batch("a"), 21, ">H", 0x40), client=True)
    assert refused.value.facts() == {"field": "attributes", "position": 0}
    assert batches.bounds(partition).end == 0


def test_a_clients_first_batches_are_checked_before_their_topic_is_made(
    batches: BatchStore,
) -> None:
    with pytest.raises(InvalidBatch):
        batches.preview_topic("new", UNREADABLE["zstd and junk"])
    batches.preview_topic("new", batch("good"))
