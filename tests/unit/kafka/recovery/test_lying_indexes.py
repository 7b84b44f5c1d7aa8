"""Index files that do not match their log: lookups by time, searches and fetches miss no record."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from storage import Record
from storage.kafka.store import KafkaStore
from tests.unit.kafka.workshop import T0, Workshop, values

SETTINGS = {"index.interval.bytes": "1", "internal.segment.bytes": "2000"}
COUNT = 60
STEP_MS = 1000
START_MS = 1_700_000_000_000
TIME, OFFSET = ".timeindex", ".index"


def filled(shop: Workshop, times_ms: Callable[[int], int]) -> None:
    """Write a cleanly stopped store of several segments with an index entry for nearly each batch."""
    store = shop.open_with_topic(SETTINGS)
    for number in range(COUNT):
        record = Record(b"k%d" % number, b"v" * 40, timestamp_ms=times_ms(number))
        store.append(T0, [record])
    store.close()


def rising(number: int) -> int:
    return START_MS + number * STEP_MS


def in_steps(number: int) -> int:
    """Return times that are equal for three records each."""
    return START_MS + number // 3 * 3 * STEP_MS


def back_and_forth(number: int) -> int:
    """Return times that fall within each group of four records."""
    return START_MS + (number ^ 3) * STEP_MS


def changed(suffix: str, change: Callable[[bytes], bytes]) -> Callable[[Workshop], None]:
    """Return a damage that changes the index files of all segments but the last."""

    def damage(shop: Workshop) -> None:
        for base in shop.bases()[:-1]:
            shop.put(shop.path(base, suffix), change(shop.bytes_of(base, suffix)))

    return damage


def entry(at: int, size: int, *fields: int, form: str) -> Callable[[bytes], bytes]:
    """Return a change that replaces the entry with number `at`."""
    data = struct.pack(form, *fields)
    return lambda old: old[: at * size] + data + old[(at + 1) * size :]


def of_the_segment_before(suffix: str) -> Callable[[Workshop], None]:
    def damage(shop: Workshop) -> None:
        first, second, *_ = shop.bases()
        shop.put(shop.path(second, suffix), shop.bytes_of(first, suffix))

    return damage


DAMAGES: dict[str, Callable[[Workshop], None]] = {
    "no time entries": changed(TIME, lambda old: b""),
    "no last time entry": changed(TIME, lambda old: old[:-12]),
    "half of the time entries": changed(TIME, lambda old: old[: len(old) // 24 * 12]),
    "the first time entry only": changed(TIME, lambda old: old[:12]),
    "no time entry in the middle": changed(TIME, lambda old: old[:24] + old[36:]),
    "zeros in the middle of the times": changed(TIME, lambda old: old[:24] + bytes(12) + old[36:]),
    "zeros at the end of the times": changed(TIME, lambda old: old[:-24] + bytes(24)),
    "a time entry of a later offset": changed(
        TIME, lambda old: old[:12] + old[12:20] + old[-4:] + old[24:]
    ),
    "a time entry of an earlier time": changed(
        TIME, lambda old: old[:24] + struct.pack(">q", int.from_bytes(old[12:20]) + 1) + old[32:]
    ),
    "a last time entry after the log": changed(
        TIME, lambda old: old[:-12] + struct.pack(">qi", int.from_bytes(old[-12:-4]) - 1, 5000)
    ),
    "the times of another segment": of_the_segment_before(TIME),
    "no offset entries": changed(OFFSET, lambda old: b""),
    "half of the offset entries": changed(OFFSET, lambda old: old[: len(old) // 16 * 8]),
    "zeros in the middle of the offsets": changed(
        OFFSET, lambda old: old[:16] + bytes(16) + old[32:]
    ),
    "an offset entry past its batch": changed(
        OFFSET, lambda old: old[:16] + old[16:20] + old[28:32] + old[24:]
    ),
    "an offset entry after the log": changed(OFFSET, entry(2, 8, 5, 100_000, form=">ii")),
    "an offset entry inside a batch": changed(
        OFFSET, lambda old: old[:20] + struct.pack(">i", int.from_bytes(old[20:24]) + 7) + old[24:]
    ),
    "the offsets of another segment": of_the_segment_before(OFFSET),
}


def check(store: KafkaStore, times_ms: Callable[[int], int]) -> None:
    """Check that every lookup by time returns the result of a walk over all records."""
    everything = list(store.scan(T0))
    assert [record.offset for record in everything] == list(range(COUNT))
    for number in range(COUNT):
        at_ms = times_ms(number)
        wanted = [record.offset for record in everything if record.timestamp_ms >= at_ms]
        for backward in (False, True):
            page = store.find("t", from_ms=at_ms, limit=999, backward=backward)
            assert sorted(record.offset for _, record in page.records) == wanted, at_ms
            assert page.complete
        (found,) = store.find("t", key=b"k%d" % number, from_ms=at_ms, to_ms=at_ms).records
        assert found[1].offset == number
        assert store.read(T0, number, max_records=1).records[0].offset == number
        timely = store.offset_for_time(T0, at_ms)
        assert timely is not None
        assert timely.offset == wanted[0], at_ms


@pytest.mark.one_in(3)
@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("times_ms", [rising, in_steps, back_and_forth])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_nothing_is_missed(
    damage: Callable[[Workshop], None],
    times_ms: Callable[[int], int],
    read_only: bool,
    shop: Workshop,
) -> None:
    filled(shop, times_ms)
    assert len(shop.bases()) > 3
    damage(shop)
    store = shop.open(SETTINGS, read_only=read_only)
    check(store, times_ms)
    if not read_only:
        store.append(T0, [Record(b"more", b"v", timestamp_ms=rising(COUNT))])
        assert len(values(store)) == COUNT + 1
    store.close()
