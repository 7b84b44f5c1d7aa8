"""Damage that no golden log contains: no bad record is served, and no good batch is cut without `accept_loss`."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from storage.errors import DamagedStore, MissingPartitions
from storage.files import OverlayFileSystem
from storage.kafka.format import names
from storage.kafka.format.batch import encode_batch, scan_headers
from storage.kafka.store import KafkaStore
from storage.model import TopicPartition
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_value, read_around, values

SMALL = (b"first", b"second", b"third")


def one_batch(value: bytes, base_offset: int) -> bytes:
    """Encode a batch of one record."""
    return encode_batch([(None, value, (), 1)], base_offset=base_offset, leader_epoch=0, now_ms=1)


def three_batches(shop: Workshop) -> tuple[list[int], bytes]:
    """Write three batches without a clean stop; return their positions and the end, and the bytes of the log."""
    store = shop.open_with_topic()
    for value in SMALL:
        shop.clock.now_ms += 1
        put_value(store, value)
    store.flush()
    data = shop.bytes_of(0)
    starts = [position for position, *_ in scan_headers(data, 0, len(data))]
    return [*starts, len(data)], data


@pytest.mark.parametrize("jump", [1, 2, 200, 1 << 20, 1 << 33, 1 << 62])
def test_a_larger_base_offset_is_seen_by_the_batch_behind_it(shop: Workshop, jump: int) -> None:
    starts, _ = three_batches(shop)
    broken = shop.after_kill()
    broken.overwrite(starts[1], struct.pack(">q", 1 + jump))
    with pytest.raises(DamagedStore) as refusal:
        broken.open()
    assert refusal.value.facts()["position"] == starts[1]
    records, errors = read_around(broken.open(read_only=True))
    assert [(record.offset, record.value) for record in records] == [(0, b"first"), (2, b"third")]
    assert [error.facts()["next_good_offset"] for error in errors] == [2]


def test_gaps_that_the_cleaner_left_are_no_damage(shop: Workshop) -> None:
    store = shop.open_with_topic()
    for offset in (3, 4, 900, 1 << 20, (1 << 20) + 7):
        data = one_batch(b"%d" % offset, offset)
        store.append_batches(T0, data, keep_offsets=True)
    found = shop.after_kill().open()
    assert found.recovery.findings == []
    assert values(found) == [b"3", b"4", b"900", b"1048576", b"1048583"]


@pytest.mark.parametrize("size", range(8, 73))
def test_a_batch_torn_anywhere_is_cut_and_nothing_else(shop: Workshop, size: int) -> None:
    starts, data = three_batches(shop)
    torn = shop.after_kill()
    torn.truncate(starts[2] + size)
    store = torn.open()
    assert values(store) == [b"first", b"second"]
    (finding,), (loss,) = store.recovery.findings, store.recovery.losses
    assert (finding.code, finding.position) == ("torn-tail", starts[2])
    assert (loss.position, loss.size_bytes, loss.first_offset) == (starts[2], size, 2)
    assert torn.fs.read_bytes(Path(str(loss.kept_at))) == data[starts[2] : starts[2] + size]
    assert torn.bytes_of(0) == data[: starts[2]]
    put_value(store, b"again")
    assert values(torn.after_kill().open()) == [b"first", b"second", b"again"]


@pytest.mark.parametrize("size", range(1, 8))
def test_zeros_of_a_torn_offset_are_no_loss(shop: Workshop, size: int) -> None:
    starts, _ = three_batches(shop)
    assert starts[3] - starts[2] == 73, "the sizes above are all that there are"
    torn = shop.after_kill()
    torn.truncate(starts[2] + size)
    store = torn.open()
    assert values(store) == [b"first", b"second"]
    assert [(f.code, f.position) for f in store.recovery.findings] == [("zero-tail", starts[2])]
    assert torn.cut_dirs() == []


# ---- writes that the disk lost ---------------------------------------------------------------------------------------

LARGE = [bytes([65 + n]) * 2000 for n in range(4)]


def large_batches(shop: Workshop) -> list[int]:
    """Write four batches of about 2 KB without a stop; return their positions."""
    store = shop.open_with_topic()
    for value in LARGE:
        put_value(store, value)
    data = shop.bytes_of(0)
    return [position for position, *_ in scan_headers(data, 0, len(data))]


def test_a_lost_write_after_a_crash_is_a_torn_tail(shop: Workshop) -> None:
    starts = large_batches(shop)
    broken = shop.after_kill()
    before = broken.bytes_of(0)
    broken.overwrite(-(-(starts[1] + 100) // 512) * 512, bytes(512))
    damaged = broken.bytes_of(0)
    store = broken.open()
    assert values(store) == LARGE[:1]
    (finding,), (loss,) = store.recovery.findings, store.recovery.losses
    assert (finding.code, finding.position, finding.severity) == (
        "torn-tail",
        starts[1],
        "warning",
    )
    assert (loss.first_offset, loss.next_offset) == (1, 4)
    assert broken.fs.read_bytes(Path(str(loss.kept_at))) == damaged[starts[1] :]
    assert broken.bytes_of(0) == before[: starts[1]]


def test_a_lost_write_is_damage_when_no_crash_explains_it(shop: Workshop) -> None:
    starts = large_batches(shop)
    broken = shop.after_kill()
    broken.open().close()
    broken.overwrite(-(-(starts[3] + 100) // 512) * 512, bytes(512))
    with broken.open() as store:
        assert values(store) == LARGE[:3], "nothing after it: torn all the same"
    broken = shop.after_kill()
    broken.open().close()
    broken.overwrite(-(-(starts[2] + 100) // 512) * 512, bytes(512))
    with pytest.raises(DamagedStore):
        broken.open()


def test_zeros_across_sectors_are_damage(shop: Workshop) -> None:
    starts = large_batches(shop)
    broken = shop.after_kill()
    broken.overwrite(-(-(starts[1] + 100) // 512) * 512 + 1, bytes(1022))
    with pytest.raises(DamagedStore) as refusal:
        broken.open()
    assert refusal.value.facts()["position"] == starts[1]


# ---- batches in batches ----------------------------------------------------------------------------------------------


def with_a_log_in_a_value(shop: Workshop, *, copies: int, behind: bytes) -> list[int]:
    """Write three batches, the second with complete batches of later offsets in its value; return the positions."""
    inner = b"".join(one_batch(b"not of this log", 50 + n) for n in range(copies))
    store = shop.open_with_topic()
    for value in (b"first", b"[" + inner + behind, b"third"):
        put_value(store, value)
    data = shop.bytes_of(0)
    return [position for position, *_ in scan_headers(data, 0, len(data))]


@pytest.mark.parametrize("copies", [1, 3])
def test_a_batch_inside_a_damaged_batch_is_not_served(shop: Workshop, copies: int) -> None:
    starts = with_a_log_in_a_value(shop, copies=copies, behind=b"]")
    broken = shop.after_kill()
    broken.overwrite(starts[1] + 70, b"X")
    records, errors = read_around(broken.open(read_only=True))
    assert [(record.offset, record.value) for record in records] == [(0, b"first"), (2, b"third")]
    assert [error.facts()["next_good_offset"] for error in errors] == [2]
    with pytest.raises(DamagedStore):
        broken.open()


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("kept", [-1, -20, "flip"])
def test_a_batch_inside_a_torn_batch_is_torn_with_it(
    shop: Workshop, copies: int, kept: int | str
) -> None:
    starts = with_a_log_in_a_value(shop, copies=copies, behind=b"]" * 30)
    broken = shop.after_kill()
    broken.truncate(starts[2] + (kept if isinstance(kept, int) else 0))
    if kept == "flip":
        broken.overwrite(starts[1] + 70, b"X")
    for store in (broken.open(read_only=True), broken.open()):
        assert values(store) == [b"first"]
        assert [f.code for f in store.recovery.findings] == ["torn-tail"]


@pytest.mark.parametrize("length", [0x7FFFFFFF, 100_000, 250, 200, 100, 49, 48, 0, -1])
def test_good_batches_are_found_behind_any_length(shop: Workshop, length: int) -> None:
    starts, _ = three_batches(shop)
    broken = shop.after_kill()
    broken.overwrite(starts[0] + 8, struct.pack(">i", length))
    records, _ = read_around(broken.open(read_only=True))
    assert [(record.offset, record.value) for record in records] == [(1, b"second"), (2, b"third")]
    with pytest.raises(DamagedStore):
        broken.open()


def test_good_batches_are_found_between_a_bad_length_and_a_torn_tail(shop: Workshop) -> None:
    starts, _ = three_batches(shop)
    broken = shop.after_kill()
    broken.overwrite(starts[0] + 8, struct.pack(">i", 100_000))
    broken.truncate(starts[2] + 30)
    with pytest.raises(DamagedStore):
        broken.open()
    records, _ = read_around(broken.open(read_only=True))
    assert [(record.offset, record.value) for record in records] == [(1, b"second")]


# ---- damage outside the recovery scan --------------------------------------------------------------------------------


def test_damage_below_the_recovery_point_is_met_by_readers_only(shop: Workshop) -> None:
    settings = {"internal.segment.bytes": "150"}
    store = shop.open_with_topic(settings)
    for n in range(8):
        put_value(store, b"value %d" % n)
    store.flush()
    store.checkpoint()
    broken = shop.after_kill()
    assert broken.bases() == [0, 2, 4, 6]
    broken.overwrite(70, b"X", base_offset=2)
    with broken.open(settings) as again:
        assert not again.recovery.clean_shutdown
        assert again.recovery.findings == []
        assert again.recovery.segments_scanned == 1
        records, errors = read_around(again)
        assert [record.offset for record in records] == [0, 1, 3, 4, 5, 6, 7]
        facts = errors[0].facts()
        assert (facts["path"], facts["position"]) == (str(broken.path(2)), 0)
        assert put_value(again, b"value 8").base_offset == 8


def test_a_torn_tail_beside_the_marker_makes_it_look_at_the_whole_segment(shop: Workshop) -> None:
    settings = {"index.interval.bytes": "0"}
    store = shop.open_with_topic(settings)
    for n in range(8):
        put_value(store, b"value %d" % n)
    store.close()
    broken = shop.after_kill()
    broken.overwrite(140, b"X")
    with broken.open(settings) as unseen:
        assert unseen.recovery.findings == []
    broken.truncate(len(broken.bytes_of(0)) - 5)
    with pytest.raises(DamagedStore) as refusal:
        broken.open(settings)
    assert refusal.value.facts()["position"] == 75
    with broken.open(settings, accept_loss=True) as rest:
        assert values(rest) == [b"value 0"]
    assert broken.open(settings).recovery.findings == []


def test_appending_behind_a_damaged_first_batch(shop: Workshop) -> None:
    three_batches(shop)
    settings = {"index.interval.bytes": "0", "segment.ms": "5"}
    broken = shop.after_kill()
    broken.fs.remove(broken.path(0, ".index"))
    broken.open(settings).close()
    broken.overwrite(0, bytes(12))
    with broken.open(settings) as store:
        put_value(store, b"fourth")
    assert values(broken.open(settings)) == [b"second", b"third", b"fourth"]


def test_one_damaged_partition_of_two(shop: Workshop) -> None:
    store = shop.open_with_topic(partitions=2)
    other = TopicPartition("t", 1)
    for address in (T0, other):
        for value in SMALL:
            put_value(store, value, address)
    broken = shop.after_kill()
    broken.overwrite(75, b"X" * 4)
    fs = OverlayFileSystem(broken.fs)
    with pytest.raises(DamagedStore) as refusal:
        Workshop(fs).open()
    assert refusal.value.facts()["path"] == str(broken.path(0))
    assert [path for path in fs.changed() if path != ROOT / ".lock"] == []
    reader = broken.open(read_only=True)
    assert (values(reader), values(reader, other)) == ([b"first", b"third"], list(SMALL))
    whole = broken.fs.read_bytes(broken.path(0, of=other))
    with broken.open(accept_loss=True) as rest:
        assert (values(rest), values(rest, other)) == ([b"first"], list(SMALL))
        assert [(loss.partition, loss.first_offset) for loss in rest.recovery.losses] == [(0, 1)]
    assert broken.fs.read_bytes(broken.path(0, of=other)) == whole


def test_a_preallocated_log_after_a_crash(shop: Workshop) -> None:
    settings = {"internal.segment.bytes": "5000", "preallocate": "true"}
    store = shop.open_with_topic(settings)
    for value in SMALL:
        put_value(store, value)
    assert len(shop.bytes_of(0)) == 5000
    found = shop.after_kill()
    with found.open(settings) as again:
        assert values(again) == list(SMALL)
        assert [(f.code, f.severity) for f in again.recovery.findings] == [("zero-tail", "info")]
        assert again.recovery.losses == []
        put_value(again, b"fourth")
    assert found.cut_dirs() == []
    assert values(found.open(settings)) == [*SMALL, b"fourth"]


def test_a_preallocated_log_torn_in_its_last_batch(shop: Workshop) -> None:
    settings = {"internal.segment.bytes": "5000", "preallocate": "true"}
    store = shop.open_with_topic(settings)
    for value in SMALL:
        put_value(store, value)
    found = shop.after_kill()
    found.overwrite(73 + 74 + 20, bytes(53))
    with found.open(settings) as again:
        assert values(again) == [b"first", b"second"]
        assert [(f.code, f.position) for f in again.recovery.findings] == [("torn-tail", 147)]
        assert len(found.cut_dirs()) == 1


def test_zeros_below_the_recovery_point_are_damage(shop: Workshop) -> None:
    """Data below the recovery point was synced: a sector of zeros there is record content, not a lost write."""
    store = shop.open_with_topic()
    put_value(store, bytes(4096))
    put_value(store, b"after")
    store.flush()
    store.checkpoint()
    found = shop.after_kill()
    found.overwrite(70, bytes([found.bytes_of(0)[70] ^ 1]))
    with pytest.raises(DamagedStore):
        found.open()


# ---- empty logs ------------------------------------------------------------------------------------------------------


def four_records(shop: Workshop) -> KafkaStore:
    store = shop.open_with_topic()
    for value in (b"a", b"b", b"c", b"d"):
        put_value(store, value)
    return store


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_emptied_behind_our_back_is_told(shop: Workshop, clean: bool) -> None:
    """An empty log without any damaged batch is still reported, because the recovery point is higher."""
    four_records(shop).close()
    shop.truncate(0)
    if not clean:
        shop.fs.remove(ROOT / names.CLEAN_SHUTDOWN)
    for _ in range(2):  # every start reports it
        with shop.open() as again:
            found = [(finding.code, finding.severity) for finding in again.recovery.findings]
            assert ("checkpoint-ahead", "error") in found
            with pytest.raises(MissingPartitions):
                put_value(again, b"e")
    with shop.open(accept_loss=True) as accepted:
        assert put_value(accepted, b"e").base_offset == 4
    assert shop.open().recovery.findings == []


@pytest.mark.parametrize("clean", [True, False])
def test_a_stray_empty_log_hides_nothing(shop: Workshop, clean: bool) -> None:
    """The base offset of the stray log is inside the range of the segment before it."""
    four_records(shop).close()
    shop.put(shop.path(2), b"")
    if not clean:
        shop.fs.remove(ROOT / names.CLEAN_SHUTDOWN)
    again = shop.open()
    assert values(again) == [b"a", b"b", b"c", b"d"]
    assert put_value(again, b"e").base_offset == 4
    assert shop.bases() == [0]


def test_a_stray_empty_log_goes_with_a_cut(shop: Workshop) -> None:
    """A cut removes the stray log. Otherwise the next start would take it as the log end and skip offsets."""
    four_records(shop).flush()
    found = shop.after_kill()
    data = found.bytes_of(0)
    at = len(data) // 2 - 1  # the last byte of the second batch
    found.overwrite(at, bytes([data[at] ^ 1]))
    found.put(found.path(3), b"")
    with found.open(accept_loss=True) as cut:
        assert cut.bounds(T0).end == 1
    assert found.open().bounds(T0).end == 1
    assert found.bases() == [0]


@pytest.mark.parametrize("begin", range(498, 505))
@pytest.mark.parametrize("flushed", [False, True])
def test_a_batch_whose_base_offset_a_power_loss_took(
    shop: Workshop, begin: int, flushed: bool
) -> None:
    """The base offset of a batch is lost if the batch begins in the last bytes of a sector that a power loss took.
    From position 501 on the batch looks complete, with offset 0. Flushed batches are never cut.
    """
    shop.open_with_topic().close()
    empty = len(one_batch(b"", 0))
    data = one_batch(
        b"x" * (begin - empty - 2), 0
    )  # the length varints of record and value take one byte more each
    assert len(data) == begin
    lost = data.ljust(512, b"\0") + one_batch(b"second", 1)[512 - begin :]
    shop.put(shop.path(0), lost)
    shop.fs.remove(ROOT / names.CLEAN_SHUTDOWN)
    for name in (names.RECOVERY_POINTS, names.HIGH_WATERMARKS):
        shop.put(ROOT / name, b"0\n1\nt 0 %d\n" % (2 if flushed else 0))
    if flushed:
        if begin >= 501:
            with pytest.raises(DamagedStore):
                shop.open()
        return
    with shop.open() as store:
        assert len(values(store)) == 1
        assert [f.code for f in store.recovery.findings] == ["torn-tail"]
        assert put_value(store, b"more").base_offset == 1
