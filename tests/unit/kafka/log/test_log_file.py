"""Walks of a log over good batches and damaged ranges."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from storage.files import OverlayFileSystem
from storage.files.fs import File
from storage.kafka.log.log_file import (
    CHUNK_BYTES,
    Gap,
    StoredBatch,
    holds_lost_write,
    is_zero,
    walk,
)
from tests.unit.kafka.log.batches import data_batch

SIZE = len(data_batch())


def a_file(*parts: bytes) -> File:
    """Return a log file with these bytes."""
    file = OverlayFileSystem().open(Path("/0.log"), create=True)
    file.pwrite(b"".join(parts), 0)
    return file


def walked(file: File, **limits: int) -> list[tuple[object, ...]]:
    """Walk a log; return (position, base offset) of a batch, (position, end, next offset, reason) of a gap."""
    start: dict[str, Any] = {"position": 0, "next_offset": 0, "end": file.size()} | limits
    return [
        (item.position, item.header.base_offset)
        if isinstance(item, StoredBatch)
        else (item.position, item.end, item.next_offset, item.reason)
        for item in walk(file, **start)
    ]


def broken(data: bytes, at: int = -1) -> bytes:
    """Return the batch with one byte changed (by default the last byte: the CRC is wrong)."""
    changed = bytearray(data)
    changed[at] ^= 0x55
    return bytes(changed)


def test_an_empty_log() -> None:
    assert walked(a_file()) == []


def test_good_batches_come_with_their_bytes() -> None:
    batches = [data_batch(n, value=b"v" * n) for n in range(5)]
    file = a_file(*batches)
    items = list(walk(file, position=0, end=file.size(), next_offset=0))
    assert [
        item.data[item.at : item.at + item.header.size_bytes]
        for item in items
        if isinstance(item, StoredBatch)
    ] == batches


def test_a_walk_may_begin_at_any_batch_and_end_before_the_file() -> None:
    file = a_file(*map(data_batch, range(4)))
    assert walked(file, position=SIZE, end=3 * SIZE) == [(SIZE, 1), (2 * SIZE, 2)]


@pytest.mark.parametrize("seed", range(5))
def test_batches_across_the_window_are_whole(seed: int) -> None:
    source = random.Random(seed)
    batches, offset, size = [], 0, 0
    while size < 3 * CHUNK_BYTES:
        batches.append(
            data_batch(offset, value=source.randbytes(source.choice([10, 9000, 700_000])))
        )
        offset, size = offset + 1, size + len(batches[-1])
    file = a_file(*batches)
    found = list(walk(file, position=0, end=size, next_offset=0))
    assert len(found) == len(batches)
    for item, data in zip(found, batches, strict=True):
        assert isinstance(item, StoredBatch)
        assert item.data[item.at : item.at + len(data)] == data


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (data_batch(1)[:60], "torn"),
        (data_batch(1)[:61], "torn"),
        (data_batch(1)[:-1], "torn"),
        (b"\0" * 60, "torn"),
        (b"\0" * 61, "zeros"),
        (b"\0" * 5000, "zeros"),
        (b"garbage " * 20, "header"),
        (broken(data_batch(1)), "crc"),
        (broken(data_batch(1), 16), "header"),
    ],
)
def test_a_bad_end(tail: bytes, reason: str) -> None:
    file = a_file(data_batch(0), tail)
    assert walked(file) == [(0, 0), (SIZE, SIZE + len(tail), None, reason)]


@pytest.mark.parametrize("at", [8, 9, 11, 16, 17, 40, -1])
def test_the_next_good_batch_is_found(at: int) -> None:
    file = a_file(data_batch(0), broken(data_batch(1), at), data_batch(2), data_batch(3))
    found = walked(file)
    assert found[0] == (0, 0)
    assert found[1][:3] == (SIZE, 2 * SIZE, 2)
    assert found[2:] == [(2 * SIZE, 2), (3 * SIZE, 3)]


def test_several_bad_places() -> None:
    parts = [data_batch(n) if n % 2 == 0 else broken(data_batch(n)) for n in range(6)]
    assert walked(a_file(*parts)) == [
        (0, 0),
        (SIZE, 2 * SIZE, 2, "crc"),
        (2 * SIZE, 2),
        (3 * SIZE, 4 * SIZE, 4, "crc"),
        (4 * SIZE, 4),
        (5 * SIZE, 6 * SIZE, None, "crc"),
    ]


def test_a_good_batch_is_found_behind_megabytes_of_garbage() -> None:
    noise = random.Random(1).randbytes(3 * CHUNK_BYTES + 17)
    file = a_file(data_batch(0), noise, data_batch(5))
    assert walked(file)[1:] == [
        (SIZE, SIZE + len(noise), 5, walked(file)[1][3]),
        (SIZE + len(noise), 5),
    ]


@pytest.mark.parametrize("shift", range(-64, 65, 8))
def test_a_good_batch_is_found_across_the_border_of_what_is_read_at_a_time(shift: int) -> None:
    noise = b"\xaa" * (CHUNK_BYTES + shift)
    assert walked(a_file(noise, data_batch(5)))[-1] == (len(noise), 5)


def test_offsets_must_not_go_back() -> None:
    file = a_file(data_batch(5), data_batch(4), data_batch(5), data_batch(6))
    assert walked(file, next_offset=5) == [
        (0, 5),
        (SIZE, 3 * SIZE, 6, "offset-order"),
        (3 * SIZE, 6),
    ]
    assert walked(file, next_offset=6) == [(0, 3 * SIZE, 6, "offset-order"), (3 * SIZE, 6)]


def test_offsets_must_stay_below_the_next_segment() -> None:
    file = a_file(data_batch(0), data_batch(1, count=2))
    assert walked(file, limit_offset=3) == [(0, 0), (SIZE, 1)]
    assert [row[-1] for row in walked(file, limit_offset=2)] == [0, "offset-order"]


def test_a_jump_is_believed_unless_the_next_batch_goes_on_from_before_it() -> None:
    assert walked(a_file(data_batch(0), data_batch(90), data_batch(91)))[1:] == [
        (SIZE, 90),
        (2 * SIZE, 91),
    ]
    assert walked(a_file(data_batch(0), data_batch(90)))[1:] == [(SIZE, 90)]
    assert walked(a_file(data_batch(0), data_batch(90), data_batch(2)))[1:] == [
        (SIZE, 2 * SIZE, 2, "offset-order"),
        (2 * SIZE, 2),
    ]


@pytest.mark.parametrize(
    ("zeros_from", "size", "found"),
    [
        (512, 512, True),
        (511, 514, True),
        (513, 1022, False),
        (513, 1023, True),
        (600, 2000, True),
        (512, 511, False),
        (2048, 600, True),
    ],
)
def test_a_lost_write_is_an_aligned_sector(zeros_from: int, size: int, found: bool) -> None:
    data = bytearray(b"x" * 4000)
    data[zeros_from : zeros_from + size] = bytes(size)
    assert holds_lost_write(a_file(bytes(data)), position=100, end=4000) is found


def test_of_the_sector_in_which_the_place_begins_the_rest_counts() -> None:
    """A lost write left zeros up to the end of its sector; seven zeros prove nothing, as a base offset may begin so."""
    file = a_file(b"x" * 512, bytes(512), b"x" * 512)
    assert holds_lost_write(file, position=512, end=1024)
    assert holds_lost_write(file, position=513, end=1536)
    assert holds_lost_write(file, position=1016, end=1536)
    assert not holds_lost_write(file, position=1017, end=1536)
    assert not holds_lost_write(file, position=500, end=600)
    assert not holds_lost_write(file, position=512, end=519)


def test_the_next_batch_may_begin_in_the_sector_that_was_lost() -> None:
    """Up to seven zeros at the end of the lost sector may be the base offset of a complete next batch."""
    file = a_file(b"x" * 512, bytes(512), b"x" * 512)
    assert holds_lost_write(file, position=100, end=1024 - 7)
    assert not holds_lost_write(file, position=100, end=1024 - 8)


def test_zeros() -> None:
    file = a_file(b"x", bytes(3 * CHUNK_BYTES), b"x")
    end = file.size()
    assert is_zero(file, position=1, end=end - 1)
    assert not is_zero(file, position=0, end=end - 1)
    assert not is_zero(file, position=1, end=end)
    assert is_zero(file, position=end, end=end)


def test_a_gap_tells_what_was_expected_and_found() -> None:
    file = a_file(data_batch(0), data_batch(1)[:30])
    gap = list(walk(file, position=0, end=file.size(), next_offset=0))[-1]
    assert isinstance(gap, Gap)
    assert (gap.expected, gap.found) == ("a header of 61 bytes", "30 bytes")
