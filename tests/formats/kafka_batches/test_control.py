"""Control batches: markers that the real coordinator wrote, both directions, and records that are no markers."""

from __future__ import annotations

from contextlib import suppress

import pytest

from storage.errors import Corrupt, InvalidArgument, Truncated
from storage.kafka.format.batch import (
    ABORT,
    COMMIT,
    HEADER_SIZE,
    BatchHeader,
    ControlMarker,
    decode_control,
    decode_header,
    decode_records,
    encode_control_batch,
    seal,
    split_batches,
)
from storage.kafka.format.record import encode_records
from tests.formats.kafka_batches.cases import COMMIT_TEXT, HORIZON_COMMIT_TEXT, PRODUCED

COMMIT_BATCH = bytes.fromhex(COMMIT_TEXT)
WHEN = 1_795_227_355_771


def control(key: bytes | None, value: bytes | None) -> bytes:
    """Return a control batch with this record."""
    payload, _ = encode_records([(key, value, (), WHEN)], base_timestamp_ms=WHEN, now_ms=WHEN)
    return seal(decode_header(COMMIT_BATCH), payload) + payload


def test_both_directions() -> None:
    data = encode_control_batch(
        commit=True,
        coordinator_epoch=0,
        producer_id=3,
        producer_epoch=12,
        base_offset=251,
        leader_epoch=2,
        timestamp_ms=WHEN,
    )
    assert data == COMMIT_BATCH
    assert decode_control(data) == ControlMarker(COMMIT, 0, WHEN)
    assert decode_control(b"..." + data, 3) == ControlMarker(COMMIT, 0, WHEN)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("coordinator_epoch", [-1, 0, 2**31 - 1])
def test_any_marker_comes_back(commit: bool, coordinator_epoch: int) -> None:
    data = encode_control_batch(
        commit=commit,
        coordinator_epoch=coordinator_epoch,
        producer_id=2**62,
        producer_epoch=2**15 - 1,
        base_offset=2**40,
        leader_epoch=7,
        timestamp_ms=-1,
    )
    ((_, header),) = split_batches(data)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**62, 32767, -1)
    assert decode_control(data) == ControlMarker(COMMIT if commit else ABORT, coordinator_epoch, -1)


def test_a_delete_horizon_does_not_change_the_marker_s_time() -> None:
    data = bytes.fromhex(HORIZON_COMMIT_TEXT)
    header = decode_header(data)
    assert header.has_delete_horizon
    assert header.base_timestamp == 1_795_313_755_635
    assert decode_control(data) == ControlMarker(COMMIT, 0, 1_795_227_354_769)


def test_its_record_is_handed_out_raw() -> None:
    ((_, _, key, value, headers),) = decode_records(COMMIT_BATCH)
    assert (key, value, headers) == (b"\0\0\0\x01", bytes(6), ())


def test_emptied_by_compaction() -> None:
    header: BatchHeader = decode_header(COMMIT_BATCH)._replace(count=0)
    assert decode_control(seal(header, b"")) is None


@pytest.mark.parametrize("kind", [2, 3, 6, 99, -1])
def test_the_controller_s_records_are_no_markers(kind: int) -> None:
    key = b"\0\0" + kind.to_bytes(2, "big", signed=True)
    assert decode_control(control(key, b"whatever")) == ControlMarker(kind, -1, WHEN)
    assert decode_control(control(key, None)) == ControlMarker(kind, -1, WHEN)


def test_longer_keys_and_values_of_a_later_version() -> None:
    data = control(b"\0\1\0\0more", b"\0\1\0\0\0\x09more")
    assert decode_control(data) == ControlMarker(ABORT, 9, WHEN)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, bytes(6)),
        (b"", bytes(6)),
        (b"\0\0\0", bytes(6)),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b""),
        (b"\0\0\0\1", bytes(5)),
    ],
)
def test_too_short(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(Corrupt) as caught:
        decode_control(b"..." + control(key, value), 3)
    assert caught.value.facts()["position"] == 3


def test_a_batch_of_records_is_none() -> None:
    with pytest.raises(Corrupt, match="no control batch"):
        decode_control(PRODUCED[0].data)


@pytest.mark.parametrize("cut", range(len(COMMIT_BATCH)))
def test_cut(cut: int) -> None:
    with pytest.raises(Truncated):
        decode_control(COMMIT_BATCH[:cut])


@pytest.mark.parametrize("position", range(HEADER_SIZE, len(COMMIT_BATCH)))
def test_one_flipped_bit(position: int) -> None:
    for bit in range(8):
        data = bytearray(COMMIT_BATCH)
        data[position] ^= 1 << bit
        with suppress(Corrupt):
            decode_control(bytes(data))
        with pytest.raises(Corrupt):
            split_batches(bytes(data))


@pytest.mark.parametrize("epoch", [-(1 << 31) - 1, 1 << 31, 1 << 64])
def test_a_coordinator_epoch_out_of_range_is_an_error_of_ours(epoch: int) -> None:
    with pytest.raises(InvalidArgument):
        encode_control_batch(
            commit=True,
            coordinator_epoch=epoch,
            producer_id=3,
            producer_epoch=12,
            base_offset=251,
            leader_epoch=2,
            timestamp_ms=WHEN,
        )
