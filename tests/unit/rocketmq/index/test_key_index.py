"""The key index: placement of entries, the real store's files reproduced, its answers, readers next to the writer."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.coding.hashes import CACHED, MASK, KeyHasher, java_hash
from storage.files import OverlayFileSystem
from storage.rocketmq.format.index_file import (
    HEADER_SIZE,
    IndexHeader,
    decode_header,
    entry_position,
    file_size,
)
from storage.rocketmq.format.names import index_name
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.index.key_index_file import TimeRange
from tests.golden.rocketmq_stores import CLEAN, GoldenStore, all_stores, by_id, golden
from tests.unit.rocketmq.index.indexes import (
    FOLDER,
    MS,
    contents,
    dispatches,
    index_like,
    made_of,
    open_index,
    put_all,
    record,
    records,
)
from tests.unit.rocketmq.workshop import put_file

stores = pytest.mark.parametrize("store", all_stores(), ids=by_id)


@pytest.mark.parametrize("name", [name for name in CLEAN if name != "deleted-head"])
def test_the_real_files_are_made_again(name: str) -> None:
    store = golden(name)
    fs = OverlayFileSystem()
    index = index_like(store, fs)
    put_all(index, dispatches(store))
    index.sync()
    real = [path.read_bytes() for path in sorted((store.root / "index").iterdir())]
    assert contents(fs) == real


@pytest.mark.parametrize("name", [name for name in CLEAN if name != "deleted-head"])
@pytest.mark.parametrize("seed", range(3))
def test_in_pieces_with_reopening_between(name: str, seed: int) -> None:
    """Puts of any size, with write-backs, syncs and reopening between them, give the same bytes."""
    store, chance = golden(name), random.Random(seed)
    fs = OverlayFileSystem()
    index = index_like(store, fs)
    waiting = list(dispatches(store))
    while waiting:
        count = chance.randrange(1, 60)
        put_all(index, waiting[:count])
        del waiting[:count]
        choice = chance.randrange(4)
        if choice == 0:
            index.write_back()
        elif choice == 1:
            index.sync()
            index = index_like(store, fs)
    index.sync()
    assert contents(fs) == [p.read_bytes() for p in sorted((store.root / "index").iterdir())]


@stores
def test_the_real_answers(store: GoldenStore) -> None:
    """Every `indexOrder` is reproduced from an index that is rebuilt from the log, also for stores left by a crash.

    Where the log no longer holds all indexed records (deleted head), the real files are used.
    """
    fs = OverlayFileSystem()
    if store.name == "deleted-head":
        index = real_index(store)
    else:
        index = index_like(store, fs)
        put_all(index, dispatches(store))
    assert_real_answers(store, index)


@pytest.mark.parametrize("name", CLEAN)
def test_the_real_answers_from_the_real_files(name: str) -> None:
    assert_real_answers(golden(name), real_index(golden(name)))


def real_index(store: GoldenStore) -> KeyIndex:
    """Return an index over the real files, copied into memory."""
    fs = OverlayFileSystem()
    fs.make_dir(FOLDER)
    for path in (store.root / "index").iterdir():
        put_file(fs, FOLDER / path.name, path.read_bytes())
    index = index_like(store, fs)
    assert index.findings == []
    return index


def assert_real_answers(store: GoldenStore, index: KeyIndex) -> None:
    queries = store.json("queries.json")
    assert queries
    for query in queries:
        found = index.query_raw(
            query["topic"],
            query["key"],
            max_count=query["maxNum"],
            begin_ms=query["begin"],
            end_ms=query["end"],
            index_type=query.get("indexType"),
        )
        assert found == query["indexOrder"], query
        assert index.end_timestamp_ms == query["indexLastUpdateTimestamp"]
        assert index.max_physical_offset == query["indexLastUpdatePhyoffset"]


def test_the_first_record_makes_a_file_even_without_keys() -> None:
    fs = OverlayFileSystem()
    index = open_index(fs)
    assert (index.max_physical_offset, index.end_timestamp_ms) == (-1, 0)
    put_all(index, [record(0)])
    index.sync()
    assert fs.list_dir(FOLDER) == [index_name(MS)]
    assert [header for _, header in index.headers()] == [IndexHeader()]
    assert contents(fs) == [
        (IndexHeader().index_count).to_bytes(HEADER_SIZE, "big").ljust(file_size(16, 11), b"\0")
    ]


def test_a_roll_between_two_keys_of_one_record() -> None:
    """With ten entries a file, the record's last keys begin the next file, and its begin is this record."""
    fs = OverlayFileSystem()
    index = open_index(fs)
    put_all(index, [record(n, f"a{n}") for n in range(0, 80, 10)])
    put_all(index, [record(80, "b0", "b1", "b2", "b3")])
    index.sync()
    (_, old), (_, new) = index.headers()
    assert (old.index_count, new.index_count) == (11, 3)
    assert old.end_physical_offset == new.begin_physical_offset == new.end_physical_offset == 80
    assert new.begin_timestamp_ms == MS + 8000
    assert old.end_timestamp_ms == MS + 8000
    assert index.query_raw("b", "", max_count=9, begin_ms=0, end_ms=2**62) == []
    for key in ("b0", "b1", "b2", "b3"):
        assert list(index.candidates(key)) == [80]


def test_a_new_file_inherits_the_end_and_its_first_entry_counts_from_there() -> None:
    fs = OverlayFileSystem()
    index = open_index(fs)
    put_all(index, [record(n, f"a{n}") for n in range(0, 100, 10)])
    put_all(index, [record(100, time_ms=MS + 60_000)])
    (_, old), (_, new) = index.headers()
    assert new == IndexHeader(MS + 9000, MS + 9000, 90, 90, 0, 1)
    put_all(index, [record(110, "x", "y", time_ms=MS + 60_999)])
    index.sync()
    second = contents(fs)[1]
    assert decode_header(second)[:2] == (MS + 60_999, MS + 60_999)
    diffs = [second[entry_position(16, n) + 12 :][:4] for n in (1, 2)]
    assert [int.from_bytes(diff, "big") for diff in diffs] == [51, 0]
    assert old.end_timestamp_ms == MS + 9000


def test_a_new_file_inherits_though_its_header_was_lost() -> None:
    """Earlier, a file that a kill left without a header took its first record's time as its begin time."""
    first = [record(n, f"a{n}") for n in range(0, 100, 10)]
    later = [record(100, time_ms=MS + 60_000), record(110, "x", "y", time_ms=MS + 60_999)]
    fs = OverlayFileSystem()
    killed = open_index(fs)
    put_all(killed, [*first, later[0]])
    assert decode_header(contents(fs)[1]) == IndexHeader(0, 0, 0, 0, 0, 0)
    index = open_index(fs)
    put_all(index, later)
    index.sync()
    assert contents(fs) == made_of([*first, *later])


def test_names_are_never_taken_twice() -> None:
    fs = OverlayFileSystem()
    index = open_index(fs)
    put_all(index, records(30))
    names = fs.list_dir(FOLDER)
    assert len(names) == 6
    assert [int(name) for name in names] == list(range(int(names[0]), int(names[0]) + 6))


def test_a_record_that_is_there_is_passed_over_but_the_last_passes() -> None:
    fs = OverlayFileSystem()
    index = open_index(fs)
    put_all(index, [record(0, "a"), record(10, "b"), record(0, "a"), record(10, "b")])
    assert index.headers()[0][1].index_count == 4
    assert list(index.candidates("a")) == [0]
    assert list(index.candidates("b")) == [10]
    assert index.query_raw("b", "", max_count=9, begin_ms=0, end_ms=1) == []


def test_a_slot_counts_once() -> None:
    fs = OverlayFileSystem()
    index = open_index(fs, entries=100)
    put_all(index, [record(n * 10, "same") for n in range(9)])
    assert index.headers()[0][1].hash_slot_count == 1


@given(
    st.lists(
        st.lists(st.sampled_from([f"k{n}" for n in range(12)]), max_size=4).map(tuple), max_size=30
    ),
    st.integers(1, 40),
    st.integers(2, 12),
    st.lists(st.integers(0, 20_000), min_size=30, max_size=30),
)
def test_every_string_leads_to_its_records(
    keys: list[tuple[str, ...]], slots: int, entries: int, times: list[int]
) -> None:
    """For all sizes, orders of times and ranges: no record in a range is missed, in either direction."""
    fs = OverlayFileSystem()
    index = open_index(fs, slots=slots, entries=entries)
    put_ = [record(n * 10, *texts, time_ms=MS + times[n]) for n, texts in enumerate(keys)]
    put_all(index, put_)
    begin_ms, end_ms = MS + 5000, MS + 12_345
    for key in {key for texts in keys for key in texts}:
        all_of_them = [d.physical_offset for d in put_ if key in d.keys]
        assert list(index.candidates(key)) == all_of_them
        assert list(index.candidates(key, backward=True)) == all_of_them[::-1]
        assert list(index.candidates(key, low=50, high=150)) == [
            offset for offset in all_of_them if 50 <= offset < 150
        ]
        wanted = {
            d.physical_offset
            for d in put_
            if key in d.keys and begin_ms <= d.store_timestamp_ms <= end_ms
        }
        found = list(index.candidates(key, times=TimeRange(begin_ms, end_ms)))
        assert wanted <= set(found) <= set(all_of_them)


def test_times_rule_out_what_cannot_match() -> None:
    fs = OverlayFileSystem()
    index = open_index(fs, entries=1000)
    put_all(index, [record(n * 10, "k", time_ms=MS + n * 1000) for n in range(100)])
    found = index.candidates("k", times=TimeRange(MS + 50_000, MS + 52_000))
    assert list(found) == [500, 510, 520]


def test_hashes_of_strings_in_parts() -> None:
    hasher, chance = KeyHasher(), random.Random(1)
    texts = [
        "",
        "a",
        "abc",
        "abcd",
        "polygenelubricants",
        "日本語#abcdef",
        "\U0001f600" * 5 + "abc",
    ]
    texts += [
        "".join(chance.choice("ab#1é\U0001f600") for _ in range(chance.randrange(30)))
        for _ in range(2000)
    ]
    for text in texts * 2:
        assert hasher.java_hash(text) == java_hash(text) & MASK


def test_a_full_cache_of_hashes_begins_anew() -> None:
    hasher = KeyHasher()
    for number in range(CACHED + 100):
        text = f"{number:x}#{number:o}"
        assert hasher.java_hash(text) == java_hash(text) & MASK
        assert len(hasher.prefixes) <= CACHED
        assert len(hasher.suffixes) <= CACHED
    assert len(hasher.prefixes) < 1000


def test_readers_see_what_is_not_written_back() -> None:
    fs = OverlayFileSystem()
    index = open_index(fs, entries=1000)
    put_all(index, records(50))
    assert not any(contents(fs)[0][HEADER_SIZE:])
    assert list(index.candidates("own 17")) == [170]
    index.write_back()
    put_all(index, records(50, start=50))
    assert list(index.candidates("shared 0"))[:3] == [0, 20, 40]
    assert list(index.candidates("own 17")) + list(index.candidates("own 99")) == [170, 990]


def test_a_reader_beside_the_writer() -> None:
    """A reader finds every record that was put before its lookup, across rolls and write-backs."""
    fs = OverlayFileSystem()
    index = open_index(fs, slots=7, entries=101)
    put_until = 0  # set by the writer after each put; read by the reader before each lookup
    stop = threading.Event()
    failures: list[object] = []

    def read() -> None:
        chance = random.Random(2)
        while not stop.is_set():
            end = put_until
            if not end:
                continue
            number = chance.randrange(end)
            found = list(index.candidates(f"own {number}"))
            hot = list(index.candidates("shared 0", backward=True))
            expected = list(range(0, end * 10, 20))[::-1]
            if found != [number * 10] or hot[len(hot) - len(expected) :] != expected:
                failures.append((number, end, found))
                return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for start in range(0, 1000, 3):
            put_all(index, records(3, start=start))
            put_until = start + 3
            if start % 60 == 0:
                index.write_back()
    finally:
        stop.set()
        reader.join()
    assert failures == []


def test_the_tail_is_written_when_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.rocketmq.index.key_index.TAIL_BYTES", 100)
    fs = OverlayFileSystem()
    index = open_index(fs, entries=1000)
    put_all(index, records(3))
    put_all(index, records(1, start=3))
    (content,) = contents(fs)
    assert any(content[entry_position(16, 1) : entry_position(16, 7)])
    assert not any(content[: entry_position(16, 1)])
    index.sync()
    assert contents(fs) == made_of(records(4), entries=1000)
