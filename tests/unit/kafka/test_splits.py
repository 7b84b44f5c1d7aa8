"""Splits of a store that is being written: however it grows and is cut, they hold the records of a store read."""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from storage import Isolation, OffsetRange, Record, StoreOptions
from storage.errors import InvalidArgument, OffsetOutOfRange, UnknownPartition, UnknownTopic
from storage.kafka.columns.splits import PIECE_COST_BYTES, KafkaSplitter, open_splitter
from storage.kafka.format.batch import encode_batch
from storage.kafka.store import KafkaStore
from storage.model import TopicPartition
from tests.chunks import stored_row
from tests.robustness.crash.counted import CountedReads
from tests.unit.files.guarded import Watched, failing
from tests.unit.kafka.log.batches import data_batch, marker
from tests.unit.kafka.log.splitting import read_rows, splitter_of, whole
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_value

DENSE = {"index.interval.bytes": "200"}
BATCH_BYTES = 300
SMALL = {"internal.segment.bytes": "2000", "index.interval.bytes": "200"}


def check_same(
    shop: Workshop, store: KafkaStore, splitter: KafkaSplitter, split_bytes: int
) -> None:
    """Check that the splitter shows the partitions, bounds, times and records of the store."""
    addresses = [
        TopicPartition(topic, number)
        for topic, info in sorted(store.topics().items())
        for number in info.partitions
    ]
    assert list(splitter.partitions()) == addresses
    assert [splitter.bounds(a) for a in addresses] == [store.bounds(a) for a in addresses]
    for address in addresses:
        for time_ms in (-6, 0, 7, 2**20, 2**41):
            found = store.offset_for_time(address, time_ms)
            assert splitter.offset_for_time(address, time_ms) == found
    for isolation in Isolation:
        splits = splitter.plan(whole(splitter), split_bytes=split_bytes, isolation=isolation)
        expected = [
            stored_row(address, record)
            for address in addresses
            for record in store.scan(address, isolation=isolation)
        ]
        assert read_rows(shop, splits) == expected


class Life:
    """A store and a splitter that follows its files; numbers choose the steps of both."""

    def __init__(self, shop: Workshop) -> None:
        self.shop = shop
        self.store = shop.open({**SMALL, "log.retention.bytes": "4000"})
        self.store.create_topic("t", 2)
        self.splitter = splitter_of(shop)
        self.turn = 0
        self.sequences = {5: 0, 6: 0}

    def append(self, records: list[Record], codec: int) -> None:
        batch = encode_batch(records, base_offset=0, leader_epoch=0, now_ms=7, codec=codec)
        self.store.append_batches(self._place(), batch)

    def transact(self, turn: int) -> None:
        """Append a part of a transaction, or its end."""
        producer = 5 + turn % 2
        if turn % 5 == 0:
            end = marker(0, producer, commit=turn % 3 == 0)
            self.store.append_batches(T0, end)
            return
        count, mark = turn % 4 + 1, (producer, 0, self.sequences[producer])
        part = data_batch(0, count=count, producer=mark, transactional=True)
        self.sequences[producer] += count
        self.store.append_batches(T0, part)

    def grow(self, count: int) -> None:
        for _ in range(count):
            self.store.append(self._place(), [Record(None, bytes(300))] * 3)

    def do(self, what: int) -> None:
        if what == 0:
            self.store.enforce_retention(self.shop.clock())
        elif what == 1:
            self.store.close()
            self.store = self.shop.open({**SMALL, "log.retention.bytes": "4000"})
        elif what == 2:
            self.store.delete_topic("t")
            self.store.create_topic("t", 2)
        elif f"new{what}" not in self.store.topics():
            self.store.create_topic(f"new{what}", 1)

    def look(self, split_bytes: int) -> None:
        self.store.flush()
        self.splitter.refresh()
        check_same(self.shop, self.store, self.splitter, split_bytes)

    def _place(self) -> TopicPartition:
        self.turn += 1
        return TopicPartition("t", self.turn % 2)


blobs = st.none() | st.binary(max_size=40) | st.binary(min_size=60, max_size=70)
header_lists = st.lists(
    st.tuples(st.sampled_from(["TAGS", "KEYS", "", "ключ", "TAGT"]), blobs), max_size=4
)
made_records: SearchStrategy[list[Record]] = st.lists(
    st.builds(Record, blobs, blobs, header_lists, st.none() | st.integers(-5, 2**41)),
    min_size=1,
    max_size=6,
)
steps = st.one_of(
    st.tuples(st.just("append"), made_records, st.integers(0, 4)),
    st.tuples(st.just("transact"), st.integers(0, 40)),
    st.tuples(st.just("grow"), st.integers(1, 6)),
    st.tuples(st.just("do"), st.integers(0, 4)),
    st.tuples(st.just("look"), st.sampled_from([1, 500, 3000, 1 << 26])),
)


@given(st.lists(steps, max_size=25))
@settings(max_examples=60, deadline=None)
def test_splits_follow_a_store_as_it_lives(wanted: list[tuple[object, ...]]) -> None:
    life = Life(Workshop())
    for name, *arguments in wanted:
        getattr(life, str(name))(*arguments)
    life.look(700)
    life.splitter.close()
    life.store.close()


# ---- plans ---------------------------------------------------------------------------------------


@pytest.fixture
def hot(shop: Workshop) -> Workshop:
    """A flushed but not stopped store with a hundred batches of 300 bytes in one segment of one partition."""
    store = shop.open_with_topic(DENSE)
    for number in range(100):
        store.append(T0, [Record(b"%d" % number, bytes(100))] * 2)
    store.flush()
    return shop


def test_a_hot_partition_is_cut_like_any_other(hot: Workshop) -> None:
    splitter = splitter_of(hot, DENSE)
    total = hot.fs.size(hot.path(0))
    for split_bytes in (300, 1000, 5000, total):
        splits = splitter.plan(whole(splitter), split_bytes=split_bytes)
        sizes = [split.size_bytes for split in splits]
        assert sum(sizes) == total
        assert max(sizes) <= split_bytes + BATCH_BYTES
        assert len(splits) <= -(-(total + PIECE_COST_BYTES) // split_bytes)
    for min_splits in (1, 2, 7, 40):
        splits = splitter.plan(whole(splitter), min_splits=min_splits)
        assert len(splits) == min_splits
        assert all(
            abs(split.size_bytes - total / min_splits) <= 2 * BATCH_BYTES for split in splits
        )
    splitter.close()


@pytest.mark.parametrize(
    ("batches", "tasks"), [([20, 20, 20], 2), ([13] * 5, 2), ([40, 10, 10], 2), ([24] * 9, 8)]
)
def test_partitions_of_any_sizes_make_as_many_splits_as_are_asked_for(
    shop: Workshop, batches: list[int], tasks: int
) -> None:
    store = shop.open_with_topic(DENSE, partitions=len(batches))
    for number, count in enumerate(batches):
        for _ in range(count):
            store.append(TopicPartition("t", number), [Record(None, bytes(10_000))])
    splitter = splitter_of(shop, DENSE)
    splits = splitter.plan(whole(splitter), min_splits=tasks)
    share = sum(batches) / tasks
    near = [split.size_bytes / 10_000 for split in splits]
    assert len(splits) == tasks
    assert all(share * 7 / 8 - 8 <= size <= share * 9 / 8 + 8 for size in near), near
    check_same(shop, store, splitter, 50_000)
    splitter.close()


@pytest.mark.parametrize("least", [20, 21, 40, 1000])
def test_partitions_of_one_batch_share_no_split_where_more_are_asked_for(
    shop: Workshop, least: int
) -> None:
    store = shop.open_with_topic(partitions=20)
    for number in range(20):
        value = bytes(1000 + 97 * number % 2000)
        store.append(TopicPartition("t", number), [Record(None, value)])
    splitter = splitter_of(shop)
    assert len(splitter.plan(whole(splitter), min_splits=least)) == 20
    sizes = [split.size_bytes for split in splitter.plan(whole(splitter), split_bytes=1 << 17)]
    assert max(sizes) < 4 * min(sizes)
    splitter.close()


def test_no_part_of_a_range_is_empty(hot: Workshop) -> None:
    splitter = splitter_of(hot, DENSE)
    for start, end in ((2, 8), (3, 8), (34, 150), (91, 200)):
        splits = splitter.plan([OffsetRange(T0, start, end)], split_bytes=300)
        assert all(read_rows(hot, [split]) for split in splits)
    splitter.close()


def test_batches_that_the_index_names_far_apart_are_cut_as_often_as_can_be(shop: Workshop) -> None:
    store = shop.open_with_topic(DENSE)
    for size in (300, 300, 300, 30_000):
        store.append(T0, [Record(None, bytes(size))])
    splitter = splitter_of(shop, DENSE)
    assert len(splitter.plan(whole(splitter), min_splits=3)) >= 3
    splitter.close()


def test_a_few_records_are_read_without_what_lies_before_and_behind(hot: Workshop) -> None:
    splitter = splitter_of(hot, DENSE)
    for start, end in ((0, 1), (90, 100), (91, 92), (199, 200)):
        (split,) = splitter.plan([OffsetRange(T0, start, end)])
        assert [row.offset for row in read_rows(hot, [split])] == list(range(start, end))
        assert split.size_bytes < 4000
    assert splitter.plan([OffsetRange(T0, 7, 7)]) == []
    splitter.close()


@pytest.mark.parametrize("seed", range(12))
def test_an_index_that_lies_costs_no_record(hot: Workshop, seed: int) -> None:
    """After a clean stop indexes are trusted as a whole, but each entry is checked when it is used."""
    shop = hot.after_kill()
    shop.open(DENSE).close()
    rng = random.Random(seed)
    data = bytearray(shop.bytes_of(0, ".index"))
    for _ in range(rng.randrange(1, 30)):
        at = rng.randrange(len(data) // 4) * 4
        other = rng.randrange(len(data) // 4) * 4
        data[at : at + 4] = rng.choice((data[other : other + 4], rng.randbytes(4), bytes(4)))
    shop.put(shop.path(0, ".index"), bytes(data))
    splitter = splitter_of(shop, DENSE)
    for split_bytes in (1, 700, 5000):
        for start, end in ((0, 200), (33, 150), (90, 91)):
            splits = splitter.plan([OffsetRange(T0, start, end)], split_bytes=split_bytes)
            assert [row.offset for row in read_rows(shop, splits)] == list(range(start, end))
    splitter.close()


def test_small_partitions_share_a_split(shop: Workshop) -> None:
    store = shop.open_with_topic(partitions=30)
    for number in range(30):
        store.append(TopicPartition("t", number), [Record(None, b"%d" % number)])
    splitter = splitter_of(shop)
    assert len(splitter.plan(whole(splitter))) == 1
    check_same(shop, store, splitter, 1 << 26)
    splitter.close()


def test_what_cannot_be_planned_is_refused(hot: Workshop) -> None:
    splitter = splitter_of(hot)
    with pytest.raises(UnknownTopic):
        splitter.plan([OffsetRange(TopicPartition("x", 0), 0, 1)])
    with pytest.raises(UnknownPartition):
        splitter.bounds(TopicPartition("t", 1))
    for start, end in ((0, 201), (-1, 5), (201, 201)):
        with pytest.raises(OffsetOutOfRange):
            splitter.plan([OffsetRange(T0, start, end)])
    with pytest.raises(InvalidArgument, match="split_bytes"):
        splitter.plan(whole(splitter), split_bytes=0)
    with pytest.raises(InvalidArgument, match="min_splits"):
        splitter.plan(whole(splitter), min_splits=0)
    splitter.close()


def test_offsets_beyond_32_bits(shop: Workshop) -> None:
    store = shop.open_with_topic(SMALL)
    for number in range(30):
        base_offset = number << 28 if number < 8 else (1 << 40) + number
        store.append_batches(T0, data_batch(base_offset, value=bytes(100)), keep_offsets=True)
    splitter = splitter_of(shop)
    check_same(shop, store, splitter, 300)
    splitter.close()


# ---- refresh -------------------------------------------------------------------------------------


@pytest.mark.parametrize("preallocate", ["true", "false"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_look_costs_what_is_new(shop: Workshop, preallocate: str, clean: bool) -> None:
    options = {"internal.segment.bytes": "2000000", "log.preallocate": preallocate}
    store = shop.open_with_topic(options)
    store.append(T0, [Record(None, bytes(1000))] * 900)
    if clean:
        store.close()
        store = shop.open(options)
    store.flush()
    counted = CountedReads(shop.fs)
    splitter = open_splitter(ROOT, StoreOptions(), fs=counted, clock=shop.clock)
    assert splitter.bounds(T0).end == 900
    put_value(store, b"first")
    store.flush()
    splitter.refresh()  # after a clean stop the indexes are read here
    for number in range(1, 5):
        counted.count_bytes = 0
        put_value(store, b"more" * 100)
        store.flush()
        splitter.refresh()
        assert splitter.bounds(T0).end == 901 + number
        splits = splitter.plan([OffsetRange(T0, 900 + number, 901 + number)])
        assert counted.count_bytes < 12_000
        assert [row.value for row in read_rows(shop, splits)] == [b"more" * 100]
    counted.count_bytes = 0
    splitter.refresh()
    assert counted.count_bytes < 9000
    splitter.close()


def test_a_partition_that_was_cut_is_opened_anew(hot: Workshop) -> None:
    splitter = splitter_of(hot)
    assert splitter.bounds(T0).end == 200
    hot.truncate(hot.fs.size(hot.path(0)) // 2)
    splitter.refresh()
    end = splitter.bounds(T0).end
    assert 90 < end < 101
    hot.put(hot.path(0), b"".join(data_batch(at, value=bytes(500)) for at in range(200)))
    splitter.refresh()
    splits = splitter.plan(whole(splitter))
    assert {row.value for row in read_rows(hot, splits)} == {bytes(500)}
    splitter.close()


def test_an_empty_topic_that_was_made_again(shop: Workshop) -> None:
    store = shop.open_with_topic()
    splitter = splitter_of(shop)
    assert splitter.offset_for_time(T0, 0) is None
    store.delete_topic("t")
    store.create_topic("t", 1)
    put_value(store, b"v")
    splitter.refresh()
    check_same(shop, store, splitter, 1 << 26)
    splitter.close()


@pytest.mark.parametrize("times", [1, 2])
def test_files_that_go_while_a_partition_is_looked_at(hot: Workshop, times: int) -> None:
    watched = Watched(hot.fs)
    step = ("open", hot.path(0).name)
    missing = failing(errno.ENOENT)

    def fail() -> None:
        if times == 2:
            watched.before[step] = missing
        missing()

    watched.before[step] = fail
    splitter = open_splitter(ROOT, StoreOptions(), fs=watched, clock=hot.clock)
    assert splitter.bounds(T0).end == 200
    splitter.close()
    assert watched.open_now <= times  # handles of the failed opens


def test_a_torn_tail_is_no_record_until_the_rest_is_there(hot: Workshop) -> None:
    batch = data_batch(200, value=bytes(500))
    size_bytes = hot.fs.size(hot.path(0))
    splitter = splitter_of(hot)
    for cut in (1, 20, 61, len(batch) - 1):
        hot.overwrite(size_bytes, batch[:cut])
        for _ in range(2):
            splitter.refresh()
            assert splitter.bounds(T0).end == 200
    hot.overwrite(size_bytes, batch)
    splitter.refresh()
    assert splitter.bounds(T0).end == 201
    assert len(read_rows(hot, splitter.plan(whole(splitter), split_bytes=500))) == 201
    splitter.close()


def test_what_a_start_would_cut_is_not_followed(shop: Workshop) -> None:
    """A lost write in the middle ends the log, also for a later refresh, until a server has cut it."""
    store = shop.open_with_topic({"internal.segment.bytes": "20000"})
    for number in range(60):
        put_value(store, b"%d" % number + bytes(999))
    store.flush()
    assert len(shop.bases()) > 2
    shop.overwrite(10_240, bytes(2048))
    shop.put(ROOT / "recovery-point-offset-checkpoint", b"0\n0\n")
    splitter = splitter_of(shop)
    end = splitter.bounds(T0).end
    assert 0 < end < 12
    splitter.refresh()
    assert splitter.bounds(T0).end == end
    with shop.after_kill().open() as recovered:  # continues above the segments that were cut
        assert recovered.bounds(T0).end == 54
        records = recovered.read(T0, 0, max_records=99).records
        assert [record.offset for record in records] == list(range(end))
    splitter.close()
