"""Record batches stored and read unchanged: the promises of a backend with `capabilities.batch_bytes`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from storage.contract import LogStore, SupportsBatchBytes, batches_of
from storage.errors import (
    Corrupt,
    FencedProducer,
    InvalidBatch,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RecordTooLarge,
    StoreClosed,
    StoreReadOnly,
    UnknownPartition,
    UnknownTopic,
)
from storage.model import Isolation, ProducerSequence, TopicPartition
from tests.contract.batches import (
    CODECS,
    BatchStore,
    batch,
    changed,
    headers,
    marker,
    texts_in,
    transaction,
)
from tests.contract.harness import START_MS, StoreFactory, read_all, texts, values

COMMITTED = Isolation.READ_COMMITTED


@pytest.mark.parametrize("time_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("client", [False, True])
@pytest.mark.parametrize("sizes", [(100_000,), (100_000, 10, 50_000), (10,) * 40])
def test_the_bytes_of_the_caller_do_not_change(
    batches: BatchStore, sizes: tuple[int, ...], client: bool, time_type: str
) -> None:
    """Batches large and small are written with new headers, and the caller's bytes stay as they are."""
    batches.create_topic("own", 1, {"message.timestamp.type": time_type})
    own = TopicPartition("own", 0)
    data = b"".join(batch("x" * size) for size in sizes)
    before = bytearray(data)
    for again in range(2):
        result = batches.append_batches(own, data, client=client)
        assert result[:2] == (again * len(sizes), (again + 1) * len(sizes) - 1)
        assert data == before
    stored = batches.read_batches(own, 0, max_bytes=1 << 20).data
    assert [header.base_offset for header in headers(stored)] == list(range(2 * len(sizes)))
    assert texts_in(stored) == [b"x" * size for size in sizes] * 2


def test_the_capability_says_what_the_type_says(store: LogStore) -> None:
    assert batches_of(store) is (store if isinstance(store, SupportsBatchBytes) else None)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
def test_taken_as_it_is(batches: BatchStore, partition: TopicPartition, codec: int) -> None:
    """A batch is stored unchanged except for base offset and leader epoch, which the CRC does not cover."""
    batches.append(partition, texts("before"))
    sent = batch("a", "b", "c", codec=codec)
    result = batches.append_batches(partition, sent)
    assert (result[:2], list(result.locators), result.duplicate) == ((1, 3), [1, 2, 3], False)
    assert result.timestamp_ms == -1
    page = batches.read_batches(partition, 1)
    assert page.data[8:12] + page.data[16:] == sent[8:12] + sent[16:]
    (header,) = headers(page.data)
    own_epoch = headers(batches.read_batches(partition, 0).data)[0].leader_epoch
    assert (header.base_offset, header.leader_epoch, header.codec) == (1, own_epoch, codec)
    assert own_epoch != 77
    assert (page.next_offset, page.bounds.end) == (4, 4)
    assert values(batches.read(partition, 1)) == [b"a", b"b", b"c"]
    assert [r.timestamp_ms for r in batches.read(partition, 1).records] == [
        START_MS,
        START_MS + 1,
        START_MS + 2,
    ]


def test_several_in_one_call(batches: BatchStore, partition: TopicPartition) -> None:
    """Batches in a single call get consecutive offsets, whatever their own offsets and codecs are."""
    sent = [batch(*"ab"), batch("c", codec=4, base_offset=0), batch(*"def", codec=1, base_offset=9)]
    result = batches.append_batches(partition, b"".join(sent))
    assert (result[:2], list(result.locators)) == ((0, 5), list(range(6)))
    data = batches.read_batches(partition, 0).data
    assert [h.base_offset for h in headers(data)] == [0, 2, 3]
    assert [h.crc for h in headers(data)] == [headers(one)[0].crc for one in sent]
    assert values(read_all(batches, partition)) == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_never_decoded(batches: BatchStore, partition: TopicPartition) -> None:
    """The store does not decode a batch with a correct CRC, unless a client sent it, so invalid records may be stored.

    Reading these records is Corrupt, with the offset where good data continues; reading batches returns them unchanged.
    """
    good = batch("good")
    nonsense = changed(batch("a", "b"), 61, ">Q", 0xFFFF_FFFF_FFFF_FFFF)
    batches.append_batches(partition, good + nonsense + good)
    page = batches.read_batches(partition, 0)
    assert page.data[headers(good)[0].size_bytes :][16 : len(nonsense)] == nonsense[16:]
    assert page.next_offset == 4
    assert values(batches.read(partition, 0, max_records=1)) == [b"good"]
    with pytest.raises(Corrupt) as refused:
        batches.read(partition, 1)
    assert refused.value.facts()["next_good_offset"] == 3
    assert values(batches.read(partition, 3)) == [b"good"]


def test_appended_records_come_as_batches(batches: BatchStore, partition: TopicPartition) -> None:
    """Records stored by `append` can be read as batches."""
    batches.append(partition, texts("a", "b"), compression="lz4")
    batches.append(partition, texts("c"), producer=ProducerSequence(7, 1, 5))
    data = batches.read_batches(partition, 0).data
    first, second = headers(data)
    assert (first.base_offset, first.count, first.codec, first.producer_id) == (0, 2, 3, -1)
    assert (second.base_offset, second.count, second.codec) == (2, 1, 0)
    assert (second.producer_id, second.producer_epoch, second.base_sequence) == (7, 1, 5)
    assert texts_in(data) == [b"a", b"b", b"c"]


def test_fetch_from_within(batches: BatchStore, partition: TopicPartition) -> None:
    """A fetch from the middle of a batch begins with the whole batch; `read` begins at the offset."""
    batches.append_batches(partition, batch(*"abcde") + batch(*"fghij", codec=2))
    for offset in range(5):
        page = batches.read_batches(partition, offset)
        assert [h.base_offset for h in headers(page.data)] == [0, 5]
        assert batches.read(partition, offset).records[0].offset == offset
    for offset in range(5, 10):
        page = batches.read_batches(partition, offset)
        assert [h.base_offset for h in headers(page.data)] == [5]
        assert page.next_offset == 10
        assert batches.read(partition, offset).records[0].offset == offset


def test_max_bytes(batches: BatchStore, partition: TopicPartition) -> None:
    """A fetch returns as many whole batches as fit, at least the batch with the offset."""
    sent = [batch(*"abc"), batch("d" * 3000), batch("e")]
    sizes = [len(one) for one in sent]
    batches.append_batches(partition, b"".join(sent))
    for max_bytes, count in (
        (0, 1),
        (1, 1),
        (sizes[0], 1),
        (sizes[0] + sizes[1] - 1, 1),
        (sizes[0] + sizes[1], 2),
        (sum(sizes), 3),
    ):
        page = batches.read_batches(partition, 2, max_bytes=max_bytes)
        assert len(page.data) == sum(sizes[:count]), max_bytes
        assert page.next_offset == [3, 4, 5][count - 1]
    assert len(batches.read_batches(partition, 3, max_bytes=1).data) == sizes[1]


def test_fetch_at_the_end(batches: BatchStore, partition: TopicPartition) -> None:
    """A fetch at the end returns no batches; a fetch outside the bounds is rejected with both bounds."""
    batches.append_batches(partition, batch("a", "b"))
    page = batches.read_batches(partition, 2)
    assert (page.data, page.next_offset) == (b"", 2)
    for offset in (-1, 3):
        with pytest.raises(OffsetOutOfRange) as refused:
            batches.read_batches(partition, offset)
        assert (refused.value.earliest, refused.value.latest) == (0, 2)


def test_held_batches(batches: BatchStore, partition: TopicPartition) -> None:
    """Held batches become visible with the flush, never in part, like held appends."""
    batches.append_batches(partition, batch("a"))
    batches.append_batches(partition, batch("b") + batch("c"), publish=False)
    batches.append_batches(partition, batch("d"))
    assert texts_in(batches.read_batches(partition, 0).data) == [b"a"]
    assert batches.read_batches(partition, 1).data == b""
    batches.flush([partition])
    assert texts_in(batches.read_batches(partition, 0).data) == [b"a", b"b", b"c", b"d"]


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], Sequence[str]]] = {
    "crc": (lambda data: changed(data, 17, ">I", 0xDEADBEEF, new_crc=False), ["crc"]),
    "bit in the records": (lambda data: data[:-1] + bytes([data[-1] ^ 1]), ["crc"]),
    "bit in the header": (lambda data: changed(data, 35, ">Q", 5, new_crc=False), ["crc"]),
    "magic 0": (lambda data: changed(data, 16, "b", 0), ["magic"]),
    "magic 1": (lambda data: changed(data, 16, "b", 1), ["magic"]),
    "magic 3": (lambda data: changed(data, 16, "b", 3), ["magic"]),
    "codec 5": (lambda data: changed(data, 21, ">H", 5), ["codec", "attributes"]),
    "codec 7": (lambda data: changed(data, 21, ">H", 7), ["codec", "attributes"]),
    "length 0": (lambda data: changed(data, 8, ">i", 0), ["length"]),
    "length negative": (lambda data: changed(data, 8, ">i", -1), ["length"]),
    "length huge": (lambda data: changed(data, 8, ">i", 0x7FFFFFFF), ["length"]),
    "count more than offsets": (lambda data: changed(data, 57, ">i", 9), ["count"]),
    "count less than offsets": (lambda data: changed(data, 57, ">i", 2), ["count"]),
    "count negative": (lambda data: changed(data, 57, ">i", -1), ["count"]),
    "delta negative": (lambda data: changed(data, 23, ">i", -2), ["last offset delta"]),
    "a byte short": (lambda data: data[:-1], ["length"]),
    "header only": (lambda data: data[:61], ["length"]),
    "header cut": (lambda data: data[:60], ["length"]),
    "base offset only": (lambda data: data[:8], ["length"]),
    "bytes after it": (lambda data: data + b"\0" * 5, ["length"]),
    "zeros after it": (lambda data: data + b"\0" * 100, ["length", "magic"]),
}


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize(("damage", "fields"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_batch(
    batches: BatchStore,
    partition: TopicPartition,
    damage: Callable[[bytes], bytes],
    fields: Sequence[str],
    before: int,
) -> None:
    """A wrong batch is InvalidBatch with field and position, and nothing of the call is stored."""
    batches.append(partition, texts("there"))
    good = batch("good")
    damaged = damage(batch(*"abc"))
    with pytest.raises(InvalidBatch) as refused:
        batches.append_batches(partition, good * before + damaged)
    assert refused.value.code == "invalid-batch"
    facts = refused.value.facts()
    assert facts["field"] in fields
    assert isinstance(facts["position"], int)
    start = len(good) * before
    assert start <= facts["position"] <= start + len(damaged)
    assert batches.bounds(partition).end == 1
    assert batches.append_batches(partition, good).base_offset == 1
    assert values(read_all(batches, partition)) == [b"there", b"good"]


def test_no_batch_at_all(batches: BatchStore, partition: TopicPartition) -> None:
    """A call without bytes is InvalidBatch."""
    with pytest.raises(InvalidBatch):
        batches.append_batches(partition, b"")


def test_batch_too_large(batches: BatchStore) -> None:
    """A batch over `max.message.bytes` rejects the call; the limit applies to each batch, not to the sum."""
    batches.create_topic("small", 1, {"max.message.bytes": "1000"})
    partition = TopicPartition("small", 0)
    with pytest.raises(RecordTooLarge) as refused:
        batches.append_batches(partition, batch("fits") + batch("x" * 1000))
    facts = refused.value.facts()
    assert facts["limit_bytes"] == 1000
    assert facts["size_bytes"] == len(batch("x" * 1000))
    assert batches.bounds(partition).end == 0
    batches.append_batches(partition, batch("x" * 600) * 3)
    assert batches.bounds(partition).end == 3


def test_exact_limit(batches: BatchStore) -> None:
    """The limit is the largest accepted size, header included."""
    data = batch("x" * 100)
    batches.create_topic("exact", 1, {"max.message.bytes": str(len(data))})
    batches.create_topic("less", 1, {"max.message.bytes": str(len(data) - 1)})
    batches.append_batches(TopicPartition("exact", 0), data)
    with pytest.raises(RecordTooLarge):
        batches.append_batches(TopicPartition("less", 0), data)


def test_sequences_in_the_header(batches: BatchStore, partition: TopicPartition) -> None:
    """Producer id, epoch and sequence of a batch follow the rules of `append`, and share its state."""
    first = batch(*"abc", producer=ProducerSequence(7, 1, 0))
    assert not batches.append_batches(partition, first).duplicate
    again = batches.append_batches(partition, first)
    assert (again[:2], again.duplicate) == ((0, 2), True)
    with pytest.raises(OutOfOrderSequence) as refused:
        batches.append_batches(partition, batch("x", producer=ProducerSequence(7, 1, 4)))
    assert refused.value.facts() == {"producer_id": 7, "sequence": 4, "expected": 3}
    with pytest.raises(FencedProducer):
        batches.append_batches(partition, batch("x", producer=ProducerSequence(7, 0, 3)))
    assert (
        batches.append(partition, texts("d"), producer=ProducerSequence(7, 1, 3)).base_offset == 3
    )
    again = batches.append_batches(partition, batch("d", producer=ProducerSequence(7, 1, 3)))
    assert (again.base_offset, again.duplicate) == (3, True)
    assert batches.bounds(partition).end == 4


def test_append_time(batches: BatchStore, store_factory: StoreFactory) -> None:
    """Under LogAppendTime the header gets the time of the append, and a matching CRC."""
    batches.create_topic("a", 1, {"message.timestamp.type": "LogAppendTime"})
    partition = TopicPartition("a", 0)
    store_factory.clock.now_ms = START_MS + 5000
    result = batches.append_batches(partition, batch("a", "b", codec=4))
    assert result.timestamp_ms == START_MS + 5000
    (header,) = headers(batches.read_batches(partition, 0).data)
    assert (header.is_log_append_time, header.max_timestamp) == (True, START_MS + 5000)
    assert [r.timestamp_ms for r in batches.read(partition, 0).records] == [START_MS + 5000] * 2


def test_keep_offsets(batches: BatchStore, partition: TopicPartition) -> None:
    """With `keep_offsets` every byte is kept: offsets, leader epoch and times are the sender's."""
    sent = batch(*"abc", base_offset=0) + batch("d", base_offset=3, codec=3)
    result = batches.append_batches(partition, sent, keep_offsets=True)
    assert result[:2] == (0, 3)
    assert batches.read_batches(partition, 0).data == sent
    assert values(read_all(batches, partition)) == [b"a", b"b", b"c", b"d"]


def test_kept_offsets_may_leave_gaps(batches: BatchStore, partition: TopicPartition) -> None:
    """Kept offsets may have gaps, as in a compacted log: reading continues at the next existing record."""
    sent = batch("a", base_offset=0) + batch("b", "c", base_offset=10)
    assert batches.append_batches(partition, sent, keep_offsets=True)[:2] == (0, 11)
    assert [r.offset for r in read_all(batches, partition)] == [0, 10, 11]
    page = batches.read(partition, 4)
    assert ([r.offset for r in page.records], page.next_offset) == ([10, 11], 12)
    assert headers(batches.read_batches(partition, 4).data)[0].base_offset == 10
    assert batches.append(partition, texts("d")).base_offset == 12


@pytest.mark.parametrize("base_offset", [0, 2, -1])
def test_kept_offsets_never_go_back(
    batches: BatchStore, partition: TopicPartition, base_offset: int
) -> None:
    """A kept offset that already exists is InvalidBatch; nothing of the call is stored."""
    batches.append(partition, texts("a", "b", "c"))
    sent = batch("x", base_offset=3) + batch("y", base_offset=base_offset)
    with pytest.raises(InvalidBatch) as refused:
        batches.append_batches(partition, sent, keep_offsets=True)
    assert refused.value.facts()["field"] in {"base_offset", "base offset"}
    assert refused.value.facts()["position"] == len(batch("x"))
    assert batches.bounds(partition).end == 3


def test_open_transaction_bounds_committed_reads(
    batches: BatchStore, partition: TopicPartition
) -> None:
    """The last stable offset is that of the first open transaction; later records wait for its end."""
    batches.append(partition, texts("before"))
    batches.append_batches(partition, transaction("a", "b", sequence=0))
    batches.append(partition, texts("behind"))
    assert batches.bounds(partition) == (0, 1, 4)
    assert values(batches.read(partition, 0)) == [b"before", b"a", b"b", b"behind"]
    assert values(batches.read(partition, 0, isolation=COMMITTED)) == [b"before"]
    assert texts_in(batches.read_batches(partition, 0, isolation=COMMITTED).data) == [b"before"]
    assert [r.value for r in batches.scan(partition, isolation=COMMITTED)] == [b"before"]


@pytest.mark.parametrize("commit", [True, False])
def test_end_of_a_transaction(batches: BatchStore, partition: TopicPartition, commit: bool) -> None:
    """Both isolations read committed records, only read_uncommitted reads aborted ones; markers are never read."""
    batches.append_batches(partition, transaction("a", sequence=0))
    batches.append(partition, texts("between"))
    batches.append_batches(partition, transaction("b", sequence=1))
    batches.append_batches(partition, marker(commit=commit))
    assert batches.bounds(partition) == (0, 4, 4)
    page = batches.read(partition, 0)
    assert (values(page), page.next_offset) == ([b"a", b"between", b"b"], 4)
    page = batches.read(partition, 0, isolation=COMMITTED)
    expected = [b"a", b"between", b"b"] if commit else [b"between"]
    assert (values(page), page.next_offset) == (expected, 4)
    page = batches.read(partition, 3, isolation=COMMITTED)
    assert (values(page), page.next_offset) == ([], 4)


def test_refused_where_append_is(batches: BatchStore, store_factory: StoreFactory) -> None:
    """Batches are rejected like appends: unknown topic or partition, closed or read-only store."""
    batches.create_topic("events", 1)
    with pytest.raises(UnknownTopic):
        batches.append_batches(TopicPartition("none", 0), batch("a"))
    with pytest.raises(UnknownTopic):
        batches.read_batches(TopicPartition("none", 0), 0)
    with pytest.raises(UnknownPartition):
        batches.append_batches(TopicPartition("events", 1), batch("a"))
    with pytest.raises(UnknownPartition):
        batches.read_batches(TopicPartition("events", 1), 0)
    batches.close()
    with pytest.raises(StoreClosed):
        batches.append_batches(TopicPartition("events", 0), batch("a"))
    with pytest.raises(StoreClosed):
        batches.read_batches(TopicPartition("events", 0), 0)
    read_only = store_factory.open(read_only=True)
    assert isinstance(read_only, SupportsBatchBytes)
    with pytest.raises(StoreReadOnly):
        read_only.append_batches(TopicPartition("events", 0), batch("a"))


@pytest.mark.parametrize("stop", ["close", "kill"])
def test_bytes_outlive_the_process(
    batches: BatchStore, partition: TopicPartition, store_factory: StoreFactory, stop: str
) -> None:
    """After a clean or unclean stop the same bytes are read; sequences and open transactions are still known."""
    batches.append_batches(partition, batch(*"abc", codec=4) + batch("d", codec=1))
    batches.append_batches(partition, batch("e", producer=ProducerSequence(7, 1, 0)))
    batches.append_batches(partition, transaction("open", sequence=0))
    batches.flush()
    before = batches.read_batches(partition, 0)
    again = store_factory.reopen(batches) if stop == "close" else store_factory.after_kill()
    assert isinstance(again, SupportsBatchBytes)
    assert again.read_batches(partition, 0) == before
    assert again.bounds(partition) == (0, 5, 6)
    repeat = again.append_batches(partition, batch("e", producer=ProducerSequence(7, 1, 0)))
    assert (repeat.base_offset, repeat.duplicate) == (4, True)
    again.append_batches(partition, marker(commit=True))
    assert again.bounds(partition).stable == 7
