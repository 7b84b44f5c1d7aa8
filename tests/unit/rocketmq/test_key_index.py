"""The key index: the real store's files made again, its answers, rolls, reopening, readers beside it, damage."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.coding.javahash import MASK, java_hash
from storage.errors import Corrupt, DiskFull, IoFailure
from storage.files import FileSystem, HandleCache, OverlayFileSystem, RealFileSystem
from storage.rocketmq.dispatch import Dispatch, dispatch_of
from storage.rocketmq.format.index_file import (
    DEFAULT_ENTRIES,
    DEFAULT_SLOTS,
    HEADER_SIZE,
    IndexHeader,
    decode_header,
    entry_position,
    file_size,
)
from storage.rocketmq.format.names import index_name
from storage.rocketmq.key_index import KeyIndex
from storage.rocketmq.key_index_file import TimeRange
from storage.rocketmq.key_index_sizes import infer_sizes
from storage.rocketmq.key_index_table import KeyHasher
from tests.golden.rocketmq_stores import CLEAN, GoldenStore, all_stores, by_id, golden, put
from tests.unit.kafka.faults import FaultyFileSystem, at_change, disk_full

FOLDER = Path("/store/index")
MS = 1_700_000_000_000
stores = pytest.mark.parametrize("store", all_stores(), ids=by_id)


def open_index(
    fs: FileSystem, slots: int = 16, entries: int = 11, *, directory: Path = FOLDER
) -> KeyIndex:
    index = KeyIndex(HandleCache(fs), directory, slots=slots, entries=entries, clock=lambda: MS)
    index.load()
    return index


def index_like(store: GoldenStore, fs: FileSystem) -> KeyIndex:
    """An empty index with the sizes of a golden store's."""
    return open_index(fs, *sizes_of(store))


def sizes_of(store: GoldenStore) -> tuple[int, int]:
    """(slots, entries) of a golden store's index files."""
    settings = store.settings
    return int(settings["maxHashSlotNum"]), int(settings["maxIndexNum"])


@cache
def dispatches(store: GoldenStore) -> Sequence[Dispatch]:
    return [
        dispatch_of(message, message.physical_offset, with_tags=True)
        for message in store.messages()
    ]


def record(offset: int, *keys: str, time_ms: int | None = None) -> Dispatch:
    """A record of 10 bytes, one a second, indexed under these strings."""
    time_ms = MS + offset * 100 if time_ms is None else time_ms
    return Dispatch("t", 0, offset // 10, offset, 10, 0, time_ms, 0, keys)


def records(count: int, *, keys: int = 2, start: int = 0) -> list[Dispatch]:
    """Records with one string of their own and others that come again."""
    return [
        record(n * 10, f"own {n}", *(f"shared {n % (k + 2)}" for k in range(keys - 1)))
        for n in range(start, start + count)
    ]


def contents(fs: OverlayFileSystem) -> list[bytes]:
    """The bytes of the index files, oldest first."""
    return [fs.read_bytes(FOLDER / name) for name in fs.list_dir(FOLDER)]


def made_of(dispatches: Sequence[Dispatch], *, slots: int = 16, entries: int = 11) -> list[bytes]:
    """The files that these records make when put in one go."""
    fs = OverlayFileSystem()
    index = open_index(fs, slots, entries)
    index.put_all(dispatches)
    index.sync()
    return contents(fs)


# ---- the real store's ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in CLEAN if name != "deleted-head"])
def test_the_real_files_are_made_again(name: str) -> None:
    store = golden(name)
    fs = OverlayFileSystem()
    index = index_like(store, fs)
    index.put_all(dispatches(store))
    index.sync()
    real = [path.read_bytes() for path in sorted((store.root / "index").iterdir())]
    assert contents(fs) == real


@pytest.mark.parametrize("name", [name for name in CLEAN if name != "deleted-head"])
@pytest.mark.parametrize("seed", range(3))
def test_in_pieces_with_reopening_between(name: str, seed: int) -> None:
    """Puts of any size, written back or synced between, closed and opened: the same bytes."""
    store, chance = golden(name), random.Random(seed)
    fs = OverlayFileSystem()
    index = index_like(store, fs)
    waiting = list(dispatches(store))
    while waiting:
        count = chance.randrange(1, 60)
        index.put_all(waiting[:count])
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
    """Every indexOrder; of stores left by a crash (and with files deleted) from an index made anew where that holds
    all, else from the real files.
    """
    fs = OverlayFileSystem()
    if store.name == "deleted-head":
        index = real_index(store)
    else:
        index = index_like(store, fs)
        index.put_all(dispatches(store))
    assert_real_answers(store, index)


@pytest.mark.parametrize("name", CLEAN)
def test_the_real_answers_from_the_real_files(name: str) -> None:
    assert_real_answers(golden(name), real_index(golden(name)))


def real_index(store: GoldenStore) -> KeyIndex:
    fs = OverlayFileSystem(RealFileSystem())
    index = open_index(fs, *sizes_of(store), directory=store.root / "index")
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


@stores
def test_sizes_are_told_by_the_files(store: GoldenStore) -> None:
    assert infer_sizes(RealFileSystem(), store.root / "index") == sizes_of(store)


@stores
def test_sizes_are_told_by_any_one_file(store: GoldenStore) -> None:
    for path in (store.root / "index").iterdir():
        fs = OverlayFileSystem()
        put(fs, FOLDER / path.name, path.read_bytes())
        assert infer_sizes(fs, FOLDER) == sizes_of(store)


# ---- what goes where -------------------------------------------------------------------------------------------------


def test_the_first_record_makes_a_file_even_without_keys() -> None:
    fs = OverlayFileSystem()
    index = open_index(fs)
    assert (index.max_physical_offset, index.end_timestamp_ms) == (-1, 0)
    index.put(record(0))
    index.sync()
    assert fs.list_dir(FOLDER) == [index_name(MS)]
    assert [header for _, header in index.headers()] == [IndexHeader()]
    assert contents(fs) == [
        (IndexHeader().index_count).to_bytes(HEADER_SIZE, "big").ljust(file_size(16, 11), b"\0")
    ]


def test_a_roll_between_two_keys_of_one_record() -> None:
    """Ten entries a file: the record's last keys begin the next file, whose begin is its own."""
    fs = OverlayFileSystem()
    index = open_index(fs)
    index.put_all([record(n, f"a{n}") for n in range(0, 80, 10)])
    index.put(record(80, "b0", "b1", "b2", "b3"))
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
    index.put_all([record(n, f"a{n}") for n in range(0, 100, 10)])
    index.put(record(100, time_ms=MS + 60_000))
    (_, old), (_, new) = index.headers()
    assert new == IndexHeader(MS + 9000, MS + 9000, 90, 90, 0, 1)
    index.put(record(110, "x", "y", time_ms=MS + 60_999))
    index.sync()
    second = contents(fs)[1]
    assert decode_header(second)[:2] == (MS + 60_999, MS + 60_999)
    diffs = [second[entry_position(16, n) + 12 :][:4] for n in (1, 2)]
    assert [int.from_bytes(diff, "big") for diff in diffs] == [51, 0]
    assert old.end_timestamp_ms == MS + 9000


def test_names_are_never_taken_twice() -> None:
    fs = OverlayFileSystem()
    index = open_index(fs)
    index.put_all(records(30))
    names = fs.list_dir(FOLDER)
    assert len(names) == 6
    assert [int(name) for name in names] == list(range(int(names[0]), int(names[0]) + 6))


def test_a_record_that_is_there_is_passed_over_but_the_last_passes() -> None:
    fs = OverlayFileSystem()
    index = open_index(fs)
    index.put_all([record(0, "a"), record(10, "b"), record(0, "a"), record(10, "b")])
    assert index.headers()[0][1].index_count == 4
    assert list(index.candidates("a")) == [0]
    assert list(index.candidates("b")) == [10]
    assert index.query_raw("b", "", max_count=9, begin_ms=0, end_ms=1) == []


def test_a_slot_counts_once() -> None:
    fs = OverlayFileSystem()
    index = open_index(fs, entries=100)
    index.put_all([record(n * 10, "same") for n in range(9)])
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
    """Whatever the sizes, the order of times and the range: nothing in it is missed, in either direction."""
    fs = OverlayFileSystem()
    index = open_index(fs, slots=slots, entries=entries)
    put_ = [record(n * 10, *texts, time_ms=MS + times[n]) for n, texts in enumerate(keys)]
    index.put_all(put_)
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
    index.put_all([record(n * 10, "k", time_ms=MS + n * 1000) for n in range(100)])
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


def test_a_full_cache_of_hashes_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.rocketmq.key_index_table.CACHED", 10)
    hasher = KeyHasher()
    for number in range(5000, 5500):
        text = f"topic{number % 7}#{number * 7919}"
        assert hasher.java_hash(text) == java_hash(text) & MASK
    assert len(hasher.prefixes) <= 10
    assert len(hasher.suffixes) <= 10


# ---- readers beside the writer ---------------------------------------------------------------------------------------


def test_readers_see_what_is_not_written_back() -> None:
    fs = OverlayFileSystem()
    index = open_index(fs, entries=1000)
    index.put_all(records(50))
    assert not any(contents(fs)[0][HEADER_SIZE:])
    assert list(index.candidates("own 17")) == [170]
    index.write_back()
    index.put_all(records(50, start=50))
    assert list(index.candidates("shared 0"))[:3] == [0, 20, 40]
    assert list(index.candidates("own 17")) + list(index.candidates("own 99")) == [170, 990]


def test_a_reader_beside_the_writer() -> None:
    """What was put when the reader asks is found, through rolls and writing back."""
    fs = OverlayFileSystem()
    index = open_index(fs, slots=7, entries=101)
    put_until = 0  # written by the writer, after the put; read by the reader, before it asks
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
            index.put_all(records(3, start=start))
            put_until = start + 3
            if start % 60 == 0:
                index.write_back()
    finally:
        stop.set()
        reader.join()
    assert failures == []


def test_the_tail_is_written_when_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.rocketmq.key_index.TAIL_BYTES", 100)
    fs = OverlayFileSystem()
    index = open_index(fs, entries=1000)
    index.put_all(records(3))
    index.put_all(records(1, start=3))
    (content,) = contents(fs)
    assert any(content[entry_position(16, 1) : entry_position(16, 7)])
    assert not any(content[: entry_position(16, 1)])
    index.sync()
    assert contents(fs) == made_of(records(4), entries=1000)


# ---- removing --------------------------------------------------------------------------------------------------------


@pytest.fixture
def five_files() -> tuple[OverlayFileSystem, KeyIndex]:
    """Ten entries in each file: records 0-4, 5-9, ... with two strings each."""
    fs = OverlayFileSystem()
    index = open_index(fs)
    index.put_all(records(23))
    index.sync()
    return fs, index


def test_files_before_the_log_go_but_not_the_last(
    five_files: tuple[OverlayFileSystem, KeyIndex],
) -> None:
    fs, index = five_files
    ends = [header.end_physical_offset for _, header in index.headers()]
    assert ends == [40, 90, 140, 190, 220]
    assert index.delete_before(40) == 0
    assert index.delete_before(141) == 3
    assert [header.end_physical_offset for _, header in index.headers()] == [190, 220]
    assert len(fs.list_dir(FOLDER)) == 2
    assert index.delete_before(10_000) == 1
    assert list(index.candidates("own 22")) == [220]
    assert list(index.candidates("own 19")) == []
    index.put(record(230, "later"))
    assert list(index.candidates("later")) == [230]


def test_removed_files_are_made_again(five_files: tuple[OverlayFileSystem, KeyIndex]) -> None:
    fs, index = five_files
    whole = contents(fs)
    names = fs.list_dir(FOLDER)
    assert index.remove_named(names[3:]) == 2
    assert fs.list_dir(FOLDER) == names[:3]
    assert index.max_physical_offset == 140
    index.put_all([d for d in records(23) if d.physical_offset > 140])
    index.sync()
    assert contents(fs) == whole
    assert index.remove_named(fs.list_dir(FOLDER)) == 5
    assert index.max_physical_offset == -1
    index.put_all(records(23))
    index.sync()
    assert contents(fs) == whole


def test_who_walks_in_a_file_that_goes_comes_to_an_end(
    five_files: tuple[OverlayFileSystem, KeyIndex],
) -> None:
    _, index = five_files
    walks = [iter(index.candidates(f"own {n}")) for n in range(23)]
    hot = iter(index.candidates("shared 0"))
    assert next(hot) == 0
    index.delete_before(10_000)
    assert [list(walk) for walk in walks] == [[]] * 20 + [[200], [210], [220]]
    assert set(hot) <= {offset * 20 for offset in range(12)}


def test_a_lost_header_shows(five_files: tuple[OverlayFileSystem, KeyIndex]) -> None:
    fs, _ = five_files
    path = FOLDER / fs.list_dir(FOLDER)[-1]
    put(fs, path, bytes(HEADER_SIZE), 0)
    index = open_index(fs)
    assert [file.is_blank for file in index.index_files] == [False] * 4 + [True]


# ---- files that do not fit -------------------------------------------------------------------------------------------


def test_names_that_mean_nothing_are_left_alone() -> None:
    fs = OverlayFileSystem()
    put(fs, FOLDER / "notes.txt", b"mine")
    fs.make_dir(FOLDER / "20261121013209211")
    index = open_index(fs)
    assert [finding.code for finding in index.findings] == ["unknown-file"] * 2
    index.put(record(0, "k"))
    assert fs.read_bytes(FOLDER / "notes.txt") == b"mine"


def test_another_length_is_told_and_never_written_to() -> None:
    fs = OverlayFileSystem()
    path = FOLDER / index_name(MS)
    put(fs, path, b"x" * 500)
    index = open_index(fs)
    (finding,) = index.findings
    assert (finding.code, finding.path) == ("index-file-size", str(path))
    assert list(index.candidates("k")) == []
    with pytest.raises(Corrupt, match="maxHashSlotNum") as refused:
        index.put(record(0, "k"))
    assert refused.value.facts()["path"] == str(path)
    assert fs.read_bytes(path) == b"x" * 500


def test_an_older_file_of_another_length_does_not_stop_the_writer() -> None:
    fs = OverlayFileSystem()
    index = open_index(fs)
    index.put(record(0, "k"))
    index.sync()
    put(fs, FOLDER / "20000101000000000", b"x" * 500)
    index = open_index(fs)
    index.put(record(10, "k"))
    assert list(index.candidates("k")) == [0, 10]


def test_a_file_whose_making_was_cut_short_is_used() -> None:
    fs = OverlayFileSystem()
    put(fs, FOLDER / index_name(MS), b"")
    index = open_index(fs)
    assert (list(index.candidates("k")), index.findings) == ([], [])
    index.put(record(0, "k"))
    index.sync()
    assert contents(fs) == made_of([record(0, "k")])


@pytest.mark.parametrize("seed", range(30))
def test_damaged_files_end_every_walk(seed: int) -> None:
    """Random bytes in slots and entries: no endless loop, no error but of our tree."""
    chance = random.Random(seed)
    fs = OverlayFileSystem()
    index = open_index(fs, entries=200)
    index.put_all(records(60))
    index.sync()
    path = FOLDER / fs.list_dir(FOLDER)[0]
    for _ in range(20):
        at = chance.randrange(file_size(16, 200) - 4)
        put(fs, path, chance.choice([chance.randbytes(4), bytes([0, 0, 0, 9])]), at)
    index = open_index(fs, entries=200)
    for number in range(60):
        list(index.candidates(f"own {number}"))
        index.query_raw("own", str(number), max_count=64, begin_ms=0, end_ms=2**62)


# ---- errors on the way -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fail_at", range(1, 40))
def test_after_a_full_disk_the_same_records_are_put_once(
    fail_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dispatcher hands the same records in again: the files are as if nothing had happened."""
    monkeypatch.setattr("storage.rocketmq.key_index.TAIL_BYTES", 60)
    disk = OverlayFileSystem()
    fs = FaultyFileSystem(disk)
    fs.fault = at_change(fs, fail_at, disk_full)
    index = open_index(fs)
    for batch in (records(7, keys=3), records(9, keys=3, start=7), records(2, keys=3, start=16)):
        try:
            index.put_all(batch)
        except DiskFull:
            index.put_all(batch)
    try:
        index.sync()
    except DiskFull:
        index.sync()
    assert contents(disk) == made_of(records(18, keys=3))


def test_other_failures_come_through() -> None:
    fs = OverlayFileSystem()
    index = open_index(fs)
    index.put_all(records(3))
    index.sync()
    files = HandleCache(fs)
    index = KeyIndex(files, FOLDER, slots=16, entries=11, clock=lambda: MS)
    index.load()
    path = FOLDER / fs.list_dir(FOLDER)[0]
    fs.remove(path)
    files.forget(path)
    with pytest.raises(IoFailure):
        list(index.candidates("own 1"))


# ---- telling the sizes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slots", "entries"), [(1, 2), (5, 100), (100, 5), (16, 11), (997, 1000)])
@pytest.mark.parametrize("count", [1, 3, 30])
def test_sizes_of_ours_are_told(slots: int, entries: int, count: int) -> None:
    fs = OverlayFileSystem()
    index = open_index(fs, slots=slots, entries=entries)
    index.put_all(records(count))
    index.sync()
    assert infer_sizes(fs, FOLDER) == (slots, entries)


def test_the_default_sizes_are_told() -> None:
    fs = OverlayFileSystem()
    index = open_index(fs, slots=DEFAULT_SLOTS, entries=DEFAULT_ENTRIES)
    index.put_all(records(5))
    index.sync()
    assert infer_sizes(fs, FOLDER) == (DEFAULT_SLOTS, DEFAULT_ENTRIES)
    assert list(index.candidates("own 3")) == [30]


def no_folder(fs: OverlayFileSystem) -> None:
    """Nothing at all."""


def no_entries(fs: OverlayFileSystem) -> None:
    """A file in which nothing was put."""
    index = open_index(fs)
    index.put(record(0))
    index.sync()


def two_lengths(fs: OverlayFileSystem) -> None:
    """Files of different sizes."""
    put(fs, FOLDER / "20000101000000000", made_of(records(3), slots=8)[0])
    put(fs, FOLDER / "20000101000000001", made_of(records(3), slots=9)[0])


def no_index(fs: OverlayFileSystem) -> None:
    """A name like an index file's, and anything in it."""
    put(fs, FOLDER / "20000101000000000", random.Random(1).randbytes(1000))
    put(fs, FOLDER / "notes", b"mine")


@pytest.mark.parametrize("make", [no_folder, no_entries, two_lengths, no_index])
def test_sizes_that_cannot_be_told(make: Callable[[OverlayFileSystem], None]) -> None:
    fs = OverlayFileSystem()
    make(fs)
    assert infer_sizes(fs, FOLDER) is None
