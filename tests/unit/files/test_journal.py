"""The journal next to a store: the entries that count after any tear, and its bounded size."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import StoreOptions, open_journal, open_store
from storage.errors import DiskFull, IoFailure, StoreFenced, StoreReadOnly
from storage.files import FileSystem, OverlayFileSystem
from storage.shared.journal import Journal, decode_entries, encode_entries
from tests.robustness.crash.recorder import Recorder
from tests.robustness.crash.relay import Relay

PATH = Path("/")
CURRENT, OLD = PATH / ".logserver.keys", PATH / ".logserver.keys.old"
ENTRIES = st.lists(st.binary(min_size=1, max_size=40), max_size=8)


def opened(fs: FileSystem, limit: int = 1000) -> Journal:
    return Journal(fs, PATH, "keys", generation_entries=limit)


def content(fs: FileSystem) -> list[bytes]:
    return list(opened(fs).take())


# -- the format


def test_an_entry_is_size_crc_and_payload() -> None:
    assert encode_entries([b"123456789"]) == bytes.fromhex("00000009 e3069283") + b"123456789"


@given(ENTRIES, st.data())
def test_a_file_cut_anywhere_gives_the_entries_before_the_cut(
    entries: list[bytes], data: st.DataObject
) -> None:
    whole = encode_entries(entries)
    cut = data.draw(st.integers(0, len(whole)))
    found, end = decode_entries(whole[:cut])
    assert found == entries[: len(found)]
    assert whole[:end] == encode_entries(found)
    assert end <= cut < end + 8 + 41


@given(ENTRIES.filter(bool), st.data())
def test_a_changed_bit_ends_it(entries: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(encode_entries(entries))
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    found, end = decode_entries(bytes(whole))
    assert found == entries[: len(found)]
    assert end <= bit // 8


@given(st.binary(max_size=200))
def test_any_bytes_are_entries_or_their_end(data: bytes) -> None:
    found, end = decode_entries(data)
    assert encode_entries(found) == data[:end]


def test_zeros_are_no_entries() -> None:
    assert decode_entries(bytes(4096)) == ([], 0)


# -- the files


def test_nothing_is_made_before_the_first_entry() -> None:
    fs = OverlayFileSystem()
    journal = opened(fs)
    assert journal.take() == []
    journal.flush()
    assert not fs.exists(CURRENT)


def test_entries_come_back_in_order_and_once() -> None:
    fs = OverlayFileSystem()
    journal = opened(fs)
    journal.append([b"a", b"b"], sync=True)
    journal.append([b"c"], sync=False)
    journal.close()
    again = opened(fs)
    assert again.take() == [b"a", b"b", b"c"]
    assert again.take() == []
    again.append([b"d"], sync=False)
    assert content(fs) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("torn", [b"\0", bytes(300), encode_entries([b"half"])[:-1]])
def test_a_torn_end_is_cut_and_written_over(torn: bytes) -> None:
    fs = OverlayFileSystem()
    file = fs.open(CURRENT, write=True, create=True)
    file.pwrite(encode_entries([b"whole"]) + torn, 0)
    journal = opened(fs)
    assert journal.take() == [b"whole"]
    journal.append([b"n"], sync=True)
    assert fs.read_bytes(CURRENT) == encode_entries([b"whole", b"n"])


def test_two_generations_are_kept() -> None:
    fs = OverlayFileSystem()
    journal = opened(fs, limit=3)
    for number in range(1, 11):
        journal.append([b"%d" % number], sync=False)
        newest = [b"%d" % n for n in range(max(1, number - 2), number + 1)]
        assert content(fs)[-3:] == newest
        assert len(content(fs)) <= 6
    assert fs.read_bytes(OLD) == encode_entries([b"7", b"8", b"9"])


def test_a_generation_is_counted_on_after_a_restart() -> None:
    fs = OverlayFileSystem()
    for number in range(5):
        opened(fs, limit=3).append([b"%d" % number], sync=False)
    assert fs.read_bytes(OLD) == encode_entries([b"0", b"1", b"2"])


def test_replaced_entries_are_all_that_is_left() -> None:
    fs = OverlayFileSystem()
    journal = opened(fs, limit=1)
    journal.append([b"a"], sync=False)
    journal.append([b"b"], sync=False)
    assert fs.exists(OLD)
    journal.replace([b"c"])
    assert content(fs) == [b"c"]
    journal.append([b"d"], sync=True)
    assert content(fs) == [b"c", b"d"]


# -- after a kill, and then a power loss


def after_power_loss(recorder: Recorder) -> list[bytes]:
    """Return the entries that are left if the disk kept only synced data."""
    return content(recorder.now().left(lambda pending: ()))


def killed_unsynced() -> Recorder:
    """Return the disk of a process that was killed after a write and before its sync; the machine kept running."""
    recorder = Recorder()
    opened(recorder).append([b"a"], sync=False)
    return recorder.after_kill()


def test_a_flush_makes_durable_what_a_killed_process_wrote() -> None:
    recorder = killed_unsynced()
    assert after_power_loss(recorder) == []
    opened(recorder).flush()
    assert after_power_loss(recorder) == [b"a"]


def test_a_sync_of_the_next_generation_takes_what_a_killed_process_wrote_with_it() -> None:
    recorder = killed_unsynced()
    opened(recorder, limit=1).append([b"b"], sync=True)
    assert after_power_loss(recorder) == [b"a", b"b"]


def test_the_name_that_a_killed_process_made_is_synced_too() -> None:
    recorder = Recorder()
    recorder.open(CURRENT, write=True, create=True)
    recorder = recorder.after_kill()
    opened(recorder).append([b"a"], sync=True)
    assert after_power_loss(recorder) == [b"a"]


# -- a disk that fails


class Failing(Relay):
    """A file system that fails one operation, once."""

    def __init__(self, operation: str, error: IoFailure, fs: FileSystem | None = None) -> None:
        super().__init__(fs or OverlayFileSystem())
        self._operation: str | None = operation
        self._error = error

    def step(self, operation: str, path: Path) -> None:
        if operation == self._operation:
            self._operation = None
            raise self._error


def test_a_full_disk_leaves_nothing_and_it_goes_on() -> None:
    fs = Failing("write", DiskFull("full", path="f", operation="write", errno=errno.ENOSPC))
    journal = opened(fs)
    with pytest.raises(DiskFull):
        journal.append([b"lost", b"lost too"], sync=True)
    journal.append([b"kept"], sync=True)
    assert fs.read_bytes(CURRENT) == encode_entries([b"kept"])


def test_what_could_not_be_replaced_is_still_to_be_synced() -> None:
    recorder = killed_unsynced()
    error = DiskFull("full", path="f", operation="write", errno=errno.ENOSPC)
    journal = opened(Failing("write", error, recorder))
    with pytest.raises(DiskFull):
        journal.replace([b"new"])
    journal.flush()
    assert after_power_loss(recorder) == [b"a"]


@pytest.mark.parametrize("operation", ["write", "datasync"])
def test_after_a_failed_write_or_sync_it_takes_no_more(operation: str) -> None:
    fs = Failing(operation, IoFailure("bad", path="f", operation=operation, errno=errno.EIO))
    journal = opened(fs)
    with pytest.raises(StoreFenced):
        journal.append([b"a"], sync=True)
    with pytest.raises(StoreFenced):
        journal.append([b"b"], sync=True)
    if operation == "datasync":
        with pytest.raises(StoreFenced):  # the written entry cannot be made durable
            journal.flush()
    else:
        journal.flush()


# -- next to a store


@pytest.mark.parametrize("backend", ["memory", "kafka", "rocketmq"])
def test_every_store_has_one(tmp_path: Path, backend: str) -> None:
    with open_store(backend, tmp_path / "s", StoreOptions()) as store:
        journal = open_journal(store, "keys", generation_entries=10)
        journal.append([b"a"], sync=True)
        journal.close()
    if backend != "memory":
        assert (tmp_path / "s" / ".logserver.keys").read_bytes() == encode_entries([b"a"])


@pytest.mark.parametrize("backend", ["kafka", "rocketmq"])
def test_a_store_that_is_read_only_has_none(tmp_path: Path, backend: str) -> None:
    open_store(backend, tmp_path, StoreOptions()).close()
    with (
        open_store(backend, tmp_path, StoreOptions(), read_only=True) as store,
        pytest.raises(StoreReadOnly),
    ):
        open_journal(store, "keys", generation_entries=10)
