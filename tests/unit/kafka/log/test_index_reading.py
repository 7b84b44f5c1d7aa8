"""Index reads of a start: how often, and how many bytes; preallocated files are mostly holes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from storage.files import File, OverlayFileSystem
from storage.files.fs import FileSystem
from storage.kafka.format import names
from storage.kafka.format.sparse_index import offset_index, time_index
from storage.kafka.index.indexes import IndexReader, index_bytes
from tests.robustness.crash.relay import Relay, RelayFile
from tests.unit.kafka.workshop import ROOT, Workshop, put_value, values

PREALLOCATED = 10 << 20
FEW_BYTES = 16 << 10
DENSE = {"index.interval.bytes": "1"}


class IndexReads(Relay):
    """A disk that counts the reads of index files and their bytes, by suffix."""

    def __init__(self, fs: FileSystem) -> None:
        super().__init__(fs)
        self.times: Counter[str] = Counter()
        self.count_bytes: Counter[str] = Counter()

    def wrap(self, file: File) -> File:
        return _Counted(self, file)


class _Counted(RelayFile):
    def __init__(self, counted: IndexReads, file: File) -> None:
        super().__init__(counted, file)
        self._counted = counted

    def pread(self, size_bytes: int, position: int) -> bytes:
        data = super().pread(size_bytes, position)
        self._counted.times[self.path.suffix] += 1
        self._counted.count_bytes[self.path.suffix] += len(data)
        return data


def preallocated(shop: Workshop, *, records: int, clean: bool) -> None:
    """Write a store with active indexes preallocated as by a broker, with or without the clean-stop marker."""
    with shop.open_with_topic(DENSE) as store:
        for n in range(records):
            shop.clock.now_ms += 1
            put_value(store, b"%d" % n)
    for suffix in (names.INDEX, names.TIME_INDEX):
        file = shop.fs.open(shop.path(0, suffix), write=True)
        file.truncate(PREALLOCATED)
        file.close()
    if not clean:
        shop.fs.remove(ROOT / names.CLEAN_SHUTDOWN)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("records", [0, 1, 40])
def test_a_start_reads_each_active_index_once(
    shop: Workshop, records: int, read_only: bool, clean: bool
) -> None:
    """After a kill once more, and one page of it: to see what it lacks."""
    preallocated(shop, records=records, clean=clean)
    counted = IndexReads(shop.fs)
    other = Workshop(counted)
    other.clock.now_ms = shop.clock.now_ms
    store = other.open(DENSE, read_only=read_only)
    most = 1 if clean else 2
    assert counted.times[names.INDEX] <= most
    assert counted.times[names.TIME_INDEX] <= most
    assert sum(counted.count_bytes.values()) < FEW_BYTES
    assert len(values(store)) == records
    assert sum(counted.count_bytes.values()) < 2 * FEW_BYTES
    store.close()


CONTENTS = {
    "offsets": b"".join(offset_index.encode_entry(n, n * 70) for n in range(1, 900)),
    "an entry that ends in zeros": offset_index.encode_entry(1, 1)
    + offset_index.encode_entry(2, 1 << 24),
    "times": b"".join(time_index.encode_entry(1 << 40 | n, n) for n in range(1, 400)),
    "garbage": b"\xff" * 4095,
    "nothing": b"",
}


@pytest.mark.parametrize("size", [0, 1, 4096, 5000, PREALLOCATED])
@pytest.mark.parametrize("case", CONTENTS)
@pytest.mark.parametrize("real", [True, False])
def test_what_is_left_out_are_zeros(tmp_path: Path, case: str, size: int, real: bool) -> None:
    """The bytes that are read decode to the entries of the whole file."""
    from storage.files import RealFileSystem

    fs: FileSystem = RealFileSystem() if real else OverlayFileSystem()
    path = tmp_path / "x.index"
    fs.make_dir(tmp_path)
    file = fs.open(path, write=True, create=True)
    file.pwrite(CONTENTS[case], 0)
    file.truncate(max(size, len(CONTENTS[case])))
    found, whole = index_bytes(file), fs.read_bytes(path)
    file.close()
    assert whole.startswith(found)
    assert not any(whole[len(found) :])
    for entry_format in (offset_index, time_index):
        assert outcome(entry_format.decode_entries, found) == outcome(
            entry_format.decode_entries, whole
        )
        assert entry_format.leading_entries(found) == entry_format.leading_entries(whole)


def outcome(decode: object, data: bytes) -> object:
    assert callable(decode)
    try:
        return decode(data)
    except Exception as error:  # noqa: BLE001  # the type of the error is compared
        return type(error)


def test_a_reader_keeps_one_file_of_each_kind(shop: Workshop) -> None:
    shop.open_with_topic().close()
    for base in (1, 2):
        for suffix in (names.INDEX, names.TIME_INDEX):
            shop.put(shop.path(base, suffix), b"%d" % base)
    counted = IndexReads(shop.fs)
    reader = IndexReader(counted)
    for base in (1, 1, 2, 2, 1):
        for suffix in (names.INDEX, names.TIME_INDEX):
            assert reader.read_bytes(shop.path(base, suffix)) == b"%d" % base
    assert counted.times == {names.INDEX: 3, names.TIME_INDEX: 3}
