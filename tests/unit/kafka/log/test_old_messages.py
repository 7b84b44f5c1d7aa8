"""Messages of format v0 and v1: not read, but never cut as damage without `accept_loss`."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from storage.contract import StoreOptions
from storage.errors import Corrupt, DamagedStore, Truncated
from storage.kafka.format import old_message as old_format
from storage.kafka.format.batch import seal
from storage.kafka.log.log_file import OLD_FORMAT
from storage.kafka.tools.view import View
from storage.model import Finding
from tests.unit.kafka.log.batches import data_batch, header_of
from tests.unit.kafka.log.old_messages import old_log, old_message
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_value, read_around, values


def with_log(shop: Workshop, data: bytes, *, clean: bool = True) -> Workshop:
    """Return a store with these bytes as its only log, with or without the clean-stop marker."""
    shop.open_with_topic().close()
    for suffix in (".index", ".timeindex"):
        shop.fs.remove(shop.path(0, suffix))
    shop.put(shop.path(0), data)
    if not clean:
        shop.fs.remove(ROOT / ".kafka_cleanshutdown")
    return shop


def batches(first: int, count: int) -> bytes:
    """Encode batches of one record each."""
    return b"".join(data_batch(first + n, value=b"new") for n in range(count))


def reported(findings: list[Finding]) -> list[tuple[str, str, int | None]]:
    """Return code, severity and position of the findings about log files."""
    return [(f.code, f.severity, f.position) for f in findings if f.path.endswith(".log")]


# ---- the bytes ----


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_is_known_by_its_head_and_its_crc(magic: int) -> None:
    data = old_message(7, magic=magic)
    head = old_format.decode_head(b"??" + data, 2)
    assert (head.offset, head.magic, head.size_bytes) == (7, magic, len(data))
    assert old_format.check_crc(data, 0, head)
    for at in range(old_format.CRC_START, len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1
        assert not old_format.check_crc(bytes(flipped), 0, head), at


def test_what_is_no_message_is_refused() -> None:
    data = old_message(7)
    for cut in range(old_format.HEAD_SIZE):
        with pytest.raises(Truncated):
            old_format.decode_head(data[:cut])
    head = old_format.decode_head(data)
    with pytest.raises(Truncated):
        old_format.check_crc(data[:-1], 0, head)
    wrong = {0: b"\xff", 8: struct.pack(">i", 13), 16: b"\x02"}
    for at, value in wrong.items():
        with pytest.raises(Corrupt):
            old_format.decode_head(data[:at] + value + data[at + len(value) :])


# ---- start ----


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_log_of_old_messages_is_refused_and_stays(
    shop: Workshop, magic: int, clean: bool
) -> None:
    data = old_log(20, magic=magic)
    old = with_log(shop, data, clean=clean)
    with pytest.raises(DamagedStore, match=r"v0 or v1, which is not supported.*--read-only"):
        old.open()
    assert old.bytes_of(0) == data
    assert old.cut_dirs() == []
    reader = old.open(read_only=True)
    assert reported(list(reader.recovery.findings)) == [(OLD_FORMAT, "error", 0)]
    assert reader.bounds(T0).end == 20
    records, errors = read_around(reader)
    assert records == []
    assert [error.facts()["kind"] for error in errors] == [OLD_FORMAT]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("before", "count", "behind"),
    [(0, 20, 3), (2, 20, 0), (2, 1, 3)],
    ids=["first", "last", "between"],
)
def test_batches_around_old_messages_are_served(
    shop: Workshop, before: int, count: int, behind: int, clean: bool
) -> None:
    data = batches(0, before) + old_log(count, first=before) + batches(before + count, behind)
    old = with_log(shop, data, clean=clean)
    with pytest.raises(DamagedStore):
        old.open()
    reader = old.open(read_only=True)
    assert reported(list(reader.recovery.findings)) == [
        (OLD_FORMAT, "error", len(batches(0, before)))
    ]
    end = before + count + behind
    assert reader.bounds(T0).end == end
    records, errors = read_around(reader)
    assert [r.offset for r in records] == [*range(before), *range(before + count, end)]
    assert [e.facts()["next_good_offset"] for e in errors] == [before + count if behind else None]


@pytest.mark.parametrize(
    "tail",
    [old_log(20, first=21)[:-5], bytes(1024), data_batch(21)[:-3]],
    ids=["torn", "zeros", "torn batch"],
)
def test_a_torn_tail_behind_old_messages_takes_none_along(shop: Workshop, tail: bytes) -> None:
    data = old_log(20) + tail
    old = with_log(shop, data, clean=False)
    with pytest.raises(DamagedStore):
        old.open()
    assert old.bytes_of(0) == data


def test_a_bad_message_before_good_ones_is_no_torn_tail(shop: Workshop) -> None:
    data = bytearray(old_log(20))
    data[30] ^= 1
    old = with_log(shop, bytes(data), clean=False)
    with pytest.raises(DamagedStore):
        old.open()
    assert old.bytes_of(0) == data


def test_a_sector_of_zeros_in_an_old_message_is_no_lost_write(shop: Workshop) -> None:
    data = old_message(0, value=bytes(2048)) + batches(1, 1)
    old = with_log(shop, data, clean=False)
    with pytest.raises(DamagedStore):
        old.open()
    assert old.bytes_of(0) == data


def test_a_later_segment_of_old_messages_lies_behind(shop: Workshop) -> None:
    old = with_log(shop, batches(0, 1) + data_batch(1)[:-5], clean=False)
    old.put(old.path(2), old_log(3, first=2))
    with pytest.raises(DamagedStore) as refusal:
        old.open()
    assert refusal.value.facts()["path"] == str(old.path(0))
    assert old.bytes_of(2) == old_log(3, first=2)


def test_told_to_accept_the_loss_it_cuts_and_keeps_a_copy(shop: Workshop) -> None:
    data = batches(0, 2) + old_log(5, first=2)
    old = with_log(shop, data)
    with old.open(accept_loss=True) as store:
        assert values(store) == [b"new", b"new"]
        (loss,) = store.recovery.losses
        assert (loss.first_offset, loss.next_offset, loss.reason) == (2, 7, OLD_FORMAT)
        assert old.fs.read_bytes(Path(str(loss.kept_at))) == old_log(5, first=2)
        assert put_value(store, b"again").base_offset == 2


def test_messages_in_a_torn_batch_are_its_value(shop: Workshop) -> None:
    torn = data_batch(2, value=b"[" + old_log(3, first=3) + b"]" * 40)[:-20]
    with with_log(shop, batches(0, 2) + torn, clean=False).open() as store:
        assert values(store) == [b"new", b"new"]
        assert reported(list(store.recovery.findings)) == [("torn-tail", "warning", 142)]


# ---- the tools ----


def test_a_look_tells_each_place_once(shop: Workshop) -> None:
    old = with_log(shop, old_log(5) + batches(5, 1))
    view = View(ROOT, StoreOptions(), fs=old.fs, clock=old.clock)
    for log in view.logs(T0):
        assert len(list(view.reader.batches(log))) == 1
    assert reported(list(view.findings())) == [(OLD_FORMAT, "error", 0)]
    view.close()


# ---- attribute bits without a meaning yet ----


@pytest.mark.parametrize("bits", [0x80, 0x100, -0x8000])
def test_unknown_attribute_bits_are_ignored(shop: Workshop, bits: int) -> None:
    plain = data_batch(1, value=b"odd")
    header = header_of(plain)
    odd = seal(header._replace(attributes=bits), plain[61:]) + plain[61:]
    store = with_log(shop, batches(0, 1) + odd, clean=False)
    with store.open() as opened:
        assert values(opened) == [b"new", b"odd"]
        assert opened.recovery.losses == []


def test_a_batch_with_an_unknown_bit_is_found_behind_damage(shop: Workshop) -> None:
    plain = data_batch(2, value=b"odd")
    odd = seal(header_of(plain)._replace(attributes=0x80), plain[61:]) + plain[61:]
    damaged = bytearray(data_batch(1))
    damaged[8:12] = struct.pack(">i", 1 << 20)
    broken = with_log(shop, batches(0, 1) + bytes(damaged) + odd, clean=False)
    with pytest.raises(DamagedStore):
        broken.open()
    records, _ = read_around(broken.open(read_only=True))
    assert [record.value for record in records] == [b"new", b"odd"]
