"""What a review broke: raw batches that lie, starts over odd folders, retention on a full disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

import storage
from storage import Finding, Record, TopicPartition
from storage.errors import DamagedStore, InvalidBatch, OutOfOrderSequence, UnsupportedFormat
from storage.files import OverlayFileSystem
from storage.kafka.format import names
from storage.kafka.format.batch import encode_batch
from storage.kafka.format.batch_header import HEADER_SIZE, decode_header, seal
from storage.kafka.store import KafkaStore

ROOT = Path("/store")
P0 = TopicPartition("t", 0)
NOW_MS = 1_700_000_000_000


def opened(fs: OverlayFileSystem, **settings: str) -> KafkaStore:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    options = storage.StoreOptions(settings=given)
    store = storage.open_store("kafka", ROOT, options, fs=fs, clock=lambda: NOW_MS)
    return cast(KafkaStore, store)


@pytest.fixture
def fs() -> OverlayFileSystem:
    made = OverlayFileSystem(clock=lambda: NOW_MS)
    made.make_dir(ROOT)
    return made


@pytest.fixture
def store(fs: OverlayFileSystem) -> KafkaStore:
    made = opened(fs)
    made.create_topic("t")
    return made


def client_batch(*values: bytes, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    return encode_batch(
        [Record(None, value, (), NOW_MS) for value in values],
        base_offset=0,
        leader_epoch=0,
        now_ms=NOW_MS,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
    )


def lying(data: bytes, **fields: int) -> bytes:
    """The batch with header fields changed and a CRC that fits."""
    header = decode_header(data)._replace(**fields)
    return seal(header, data[HEADER_SIZE:]) + data[HEADER_SIZE:]


def values(store: KafkaStore) -> list[bytes | None]:
    return [record.value for record in store.scan(P0)]


LIES = {
    "a producer without a sequence": ({"producer_id": 5, "producer_epoch": 0}, "base_sequence"),
    "a producer without an epoch": ({"producer_id": 5, "base_sequence": 0}, "producer_epoch"),
    "a producer id below -1": ({"producer_id": -7}, "producer_id"),
    "more records than bytes": ({"count": 2**31 - 1, "last_offset_delta": 2**31 - 2}, "count"),
    "no records": ({"count": 0, "last_offset_delta": 0}, "count"),
}


@pytest.mark.parametrize(("fields", "named"), LIES.values(), ids=LIES.keys())
def test_a_batch_that_lies_is_refused(
    store: KafkaStore, fields: dict[str, int], named: str
) -> None:
    """The CRC vouches for the bytes, not for what they claim."""
    with pytest.raises(InvalidBatch) as refused:
        store.append_batches(P0, lying(client_batch(b"x"), **fields))
    assert refused.value.facts()["field"] == named
    assert store.bounds(P0).end == 0


def test_a_set_wider_than_a_segment_is_refused(store: KafkaStore) -> None:
    """Kept offsets may leap, but not further within one append than a segment can count."""
    far = lying(client_batch(b"b"), base_offset=2**31 + 5)
    with pytest.raises(InvalidBatch):
        store.append_batches(P0, client_batch(b"a") + far, keep_offsets=True)
    store.append(P0, [Record(None, b"next")])
    assert values(store) == [b"next"]


def test_a_repeat_of_several_batches_gets_its_first_offsets(store: KafkaStore) -> None:
    """All of them are known, so nothing is stored twice."""
    both = client_batch(b"a", b"b", producer=(7, 0, 0)) + client_batch(b"c", producer=(7, 0, 2))
    first = store.append_batches(P0, both)
    again = store.append_batches(P0, both)
    assert (again[:2], again.duplicate) == (first[:2], True)
    assert values(store) == [b"a", b"b", b"c"]


def test_a_sequenced_batch_behind_an_unsequenced_one_is_checked(store: KafkaStore) -> None:
    """A body of both is refused: its repeat could not be recognised."""
    mixed = client_batch(b"a") + client_batch(b"b", producer=(7, 0, 5))
    with pytest.raises(InvalidBatch):
        store.append_batches(P0, mixed)
    store.append_batches(P0, client_batch(b"x", producer=(7, 0, 0)))
    with pytest.raises(OutOfOrderSequence):
        store.append_batches(P0, client_batch(b"y", producer=(7, 0, 5)))


def log_of(fs: OverlayFileSystem, base_offset: int = 0, suffix: str = names.LOG) -> Path:
    return ROOT / "t-0" / names.segment_name(base_offset, suffix)


def kill(store: KafkaStore) -> OverlayFileSystem:
    """The disk as a kill -9 leaves it: everything written is there, nothing is closed."""
    fs = cast(OverlayFileSystem, store.fs)
    left = OverlayFileSystem(clock=lambda: NOW_MS)
    _copy(fs, left, ROOT)
    return left


def _copy(source: OverlayFileSystem, target: OverlayFileSystem, path: Path) -> None:
    if source.is_dir(path):
        target.make_dir(path)
        for name in source.list_dir(path):
            _copy(source, target, path / name)
    else:
        write(target, path, source.read_bytes(path))


def write(fs: OverlayFileSystem, path: Path, data: bytes) -> None:
    file = fs.open(path, write=True, create=True)
    file.truncate(0)
    file.pwrite(data, 0)
    file.close()


def test_zeros_below_the_recovery_point_are_damage(store: KafkaStore) -> None:
    """What lies there had reached the disk: a zero sector is a record's own, not a lost write."""
    store.append(P0, [Record(None, bytes(4096))])
    store.append(P0, [Record(None, b"after")])
    store.flush()
    store.checkpoint()
    fs = kill(store)
    data = bytearray(fs.read_bytes(log_of(fs)))
    data[70] ^= 1
    write(fs, log_of(fs), bytes(data))
    with pytest.raises(DamagedStore):
        opened(fs)


@pytest.mark.parametrize("swap", [b"", b"torn"], ids=["empty", "torn"])
def test_a_swap_that_is_not_whole_replaces_nothing(store: KafkaStore, swap: bytes) -> None:
    """The segment that it should have replaced is there and good."""
    store.append(P0, [Record(None, b"kept")])
    store.close()
    fs = cast(OverlayFileSystem, store.fs)
    write(fs, Path(f"{log_of(fs)}{names.SWAP}"), swap)
    assert values(opened(fs)) == [b"kept"]


def test_a_torn_swap_alone_is_recovered(store: KafkaStore) -> None:
    """Nothing else has its records: what is good in it stays, the rest is cut and kept aside."""
    store.append(P0, [Record(None, b"kept")])
    store.flush()
    fs = kill(store)
    swapped = fs.read_bytes(log_of(fs)) + b"torn"
    fs.remove(log_of(fs))
    write(fs, Path(f"{log_of(fs)}{names.SWAP}"), swapped)
    again = opened(fs)
    assert values(again) == [b"kept"]
    (loss,) = again.recovery.losses
    assert loss.kept_at is not None
    assert fs.read_bytes(Path(loss.kept_at)) == b"torn"


def codes(found: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in found]


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_emptied_behind_our_back_is_told(store: KafkaStore, clean: bool) -> None:
    """Nothing in the log is damaged, but the recovery point says that there was more."""
    store.append(P0, [Record(None, b"gone")] * 10)
    store.close()
    fs = cast(OverlayFileSystem, store.fs)
    write(fs, log_of(fs), b"")
    if not clean:
        fs.remove(ROOT / names.CLEAN_SHUTDOWN)
    again = opened(fs)
    assert ("checkpoint-ahead", "error") in codes(again.recovery.findings)
    again.close()
    assert codes(opened(fs).recovery.findings) == []


@pytest.mark.parametrize("clean", [True, False])
def test_a_stray_empty_log_hides_nothing(store: KafkaStore, clean: bool) -> None:
    """It lies inside the range of the segment before it."""
    for value in (b"a", b"b", b"c", b"d"):
        store.append(P0, [Record(None, value)])
    store.close()
    fs = cast(OverlayFileSystem, store.fs)
    write(fs, log_of(fs, 2), b"")
    if not clean:
        fs.remove(ROOT / names.CLEAN_SHUTDOWN)
    again = opened(fs)
    assert values(again) == [b"a", b"b", b"c", b"d"]
    assert again.append(P0, [Record(None, b"e")]).base_offset == 4
    assert not fs.exists(log_of(fs, 2))


def test_only_the_brokers_own_names_are_cleared_away(store: KafkaStore) -> None:
    """A folder that merely ends in -delete is somebody's."""
    store.close()
    fs = cast(OverlayFileSystem, store.fs)
    mine = ROOT / f"t-1.{'0' * 32}-delete"
    other = ROOT / "please-do-not-delete"
    for folder in (mine, other):
        fs.make_dir(folder)
        write(fs, folder / "file", b"x")
    opened(fs).close()
    assert (fs.exists(mine), fs.exists(other)) == (False, True)


@pytest.mark.parametrize("topic", ["t", "a" * 249])
def test_a_folder_being_deleted_keeps_its_partition_in_its_name(topic: str) -> None:
    """Else the broker would not know it for one, and would not start."""
    name = names.deleted_dir_name(topic, 17, "0f" * 16)
    assert name.endswith(f"-17.{'0f' * 16}-delete")
    assert len(name) <= 255
    assert names.is_deleted_dir(name)
    assert names.parse_partition_dir(name) is None


def test_bad_stored_configs_are_left_out_and_told(store: KafkaStore) -> None:
    """The file may have been edited; a start must not break over it."""
    store.close()
    fs = cast(OverlayFileSystem, store.fs)
    text = b'{"t": {"segment.bytes": "abc", "index.interval.bytes": "100"}}'
    write(fs, ROOT / ".logserver.topics.json", text)
    again = opened(fs)
    assert again.topics()["t"].configs == {"index.interval.bytes": "100"}
    assert ("bad-root-file", "warning") in codes(again.recovery.findings)


def test_another_version_of_our_own_file_is_refused(store: KafkaStore) -> None:
    """What a later version wrote may mean something else."""
    store.close()
    fs = cast(OverlayFileSystem, store.fs)
    write(fs, ROOT / ".logserver.store.json", b'{"backend": "kafka", "version": 9}')
    with pytest.raises(UnsupportedFormat):
        opened(fs)


def test_a_snapshot_above_the_end_does_not_keep_a_new_one_away(store: KafkaStore) -> None:
    """A clean stop leaves the producers' state beside the log's end."""
    store.append_batches(P0, client_batch(b"a", producer=(7, 0, 0)))
    store.close()
    fs = cast(OverlayFileSystem, store.fs)
    write(fs, log_of(fs, 900, names.SNAPSHOT), fs.read_bytes(log_of(fs, 1, names.SNAPSHOT)))
    again = opened(fs)
    again.append_batches(P0, client_batch(b"b", producer=(7, 0, 1)))
    again.close()
    assert fs.exists(log_of(fs, 2, names.SNAPSHOT))
    assert dataclasses.asdict(opened(fs).recovery)["findings"] == []


def test_batches_stored_apart_are_no_repeat_of_one_request(store: KafkaStore) -> None:
    """Their answer could not be one run of offsets."""
    first = client_batch(b"a", producer=(7, 0, 0))
    second = client_batch(b"b", producer=(7, 0, 1))
    store.append_batches(P0, first)
    store.append(P0, [Record(None, b"between")])
    store.append_batches(P0, second)
    with pytest.raises(OutOfOrderSequence):
        store.append_batches(P0, first + second)
    assert values(store) == [b"a", b"between", b"b"]


def test_a_preview_refuses_what_the_append_would(store: KafkaStore) -> None:
    """So that no empty topic is made for it."""
    mixed = client_batch(b"a") + client_batch(b"b", producer=(7, 0, 5))
    with pytest.raises(InvalidBatch):
        store.preview_topic("new", mixed)
    assert store.preview_topic("new", client_batch(b"a")).name == "new"


def test_a_stray_empty_log_goes_with_a_cut(store: KafkaStore) -> None:
    """Else it would be the end of the log at the next start, and offsets would be skipped."""
    for value in (b"a", b"b", b"c", b"d"):
        store.append(P0, [Record(None, value)])
    store.flush()
    fs = kill(store)
    data = bytearray(fs.read_bytes(log_of(fs)))
    size = len(data) // 4
    data[2 * size - 1] ^= 1
    write(fs, log_of(fs), bytes(data))
    write(fs, log_of(fs, 3), b"")
    options = storage.StoreOptions(accept_loss=True)
    again = storage.open_store("kafka", ROOT, options, fs=fs, clock=lambda: NOW_MS)
    assert again.bounds(P0).end == 1
    again.close()
    assert opened(fs).bounds(P0).end == 1
    assert not fs.exists(log_of(fs, 3))
