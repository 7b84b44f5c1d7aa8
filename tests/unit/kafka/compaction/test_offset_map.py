"""The offset map against a dictionary: the newest offset of each key, in a bounded table."""

from __future__ import annotations

import random

import pytest

from storage.kafka.compaction.offset_map import SLOT_BYTES, OffsetMap


def test_it_answers_like_a_dictionary(seed: int) -> None:
    dice = random.Random(seed)
    offsets, model = OffsetMap(SLOT_BYTES * 500, 0.9), dict[bytes, int]()
    for offset in range(3000):
        key = dice.randbytes(dice.randrange(3))
        if offsets.put(key, offset):
            model[key] = offset
        assert len(offsets) == len(model)
    assert {key: offsets.get(key) for key in model} == model
    assert all(offsets.get(b"%d" % n * 5) == -1 for n in range(500))


@pytest.mark.parametrize(("slots", "load", "most"), [(10, 0.9, 9), (100, 0.5, 50), (1, 0.1, 1)])
def test_a_full_map_takes_no_more(slots: int, load: float, most: int) -> None:
    offsets = OffsetMap(SLOT_BYTES * slots, load)
    for offset in range(most):
        assert offsets.put(b"%d" % offset, offset)
    assert not offsets.put(b"0", most), "as in the broker, not even a known key"
    assert not offsets.put(b"new", most)
    assert offsets.get(b"0") == 0
    assert offsets.latest_offset == most - 1


def test_the_last_slot_is_followed_by_the_first() -> None:
    offsets = OffsetMap(SLOT_BYTES * 7, 1.0)
    for offset in range(7):
        assert offsets.put(b"key%d" % offset, offset)
    assert [offsets.get(b"key%d" % n) for n in range(7)] == list(range(7))


@pytest.mark.timeout(10)
@pytest.mark.parametrize("slots", [1, 7])
def test_a_key_that_a_map_without_a_free_slot_does_not_know(slots: int) -> None:
    offsets = OffsetMap(SLOT_BYTES * slots, 1.0)
    for number in range(slots):
        assert offsets.put(b"%d" % number, number)
    assert not offsets.put(b"unknown", slots)
    assert offsets.get(b"unknown") == -1
    assert [offsets.get(b"%d" % number) for number in range(slots)] == list(range(slots))
