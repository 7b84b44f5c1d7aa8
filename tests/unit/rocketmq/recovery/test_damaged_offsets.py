"""A damaged queue offset in the log costs a queue that is built from the log no other record, and is reported."""

from __future__ import annotations

import struct
from contextlib import closing

import pytest

from storage import StoreOptions
from storage.rocketmq.format.message import decode_message
from storage.rocketmq.store import RocketMQStore
from storage.rocketmq.tools import open_inspector
from tests.unit.rocketmq.workshop import ROOT, Workshop, place_of, put_value, values

QUEUE_OFFSET_POSITION = 20
VALUES = [b"a", b"b", b"c", b"d"]
CASES = {
    # case: (damaged record, its queue offset, values that the queue keeps)
    "first, above the others": (0, 40, VALUES[1:]),
    "first, far above": (0, 1 << 40, VALUES[1:]),
    "first, no position in a file": (0, 1 << 62, VALUES[1:]),
    "first, the largest number": (0, (1 << 63) - 1, VALUES[1:]),
    "first, negative": (0, -1, VALUES[1:]),
    "last, negative": (3, -1, VALUES[:3]),
    "last, taken": (3, 1, VALUES[:3]),
    "last, no position in a file": (3, 1 << 62, VALUES[:3]),
}


@pytest.fixture(params=list(CASES.values()), ids=list(CASES))
def case(request: pytest.FixtureRequest, shop: Workshop) -> tuple[Workshop, int, list[bytes]]:
    """A closed store with one damaged record, the record's physical offset, and the values that its queue keeps."""
    record, offset, kept = request.param
    with closing(shop.open_with_topic()) as store:
        places = [place_of(put_value(store, value)) for value in VALUES]
    at = places[record]
    shop.overwrite(shop.log_path(), at + QUEUE_OFFSET_POSITION, struct.pack(">q", offset))
    assert decode_message(shop.log_bytes(), at).queue_offset == offset
    return shop, at, kept


def found(store: RocketMQStore) -> list[tuple[str, int | None]]:
    return [(one.code, one.position) for one in store.recovery.findings]


def test_a_rebuild_keeps_the_other_records(case: tuple[Workshop, int, list[bytes]]) -> None:
    shop, at, kept = case
    inspector = open_inspector(ROOT, StoreOptions(), fs=shop.fs, clock=shop.clock)
    assert inspector is not None
    with closing(inspector):
        report = inspector.rebuild("consumequeue", write=True)
    refused = [one for one in report.findings if one.code == "impossible-queue-offset"]
    assert [(one.position, one.topic, one.partition) for one in refused] == [(at, "t", 0)]
    assert str(shop.log_path().parent) in refused[0].path
    with closing(shop.open()) as store:
        assert values(store) == kept
        put_value(store, b"next")
        assert values(store) == [*kept, b"next"]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_start_keeps_the_other_records(
    case: tuple[Workshop, int, list[bytes]], read_only: bool
) -> None:
    """The queue's files were lost, so the start builds it from the log."""
    shop, at, kept = case
    for base in shop.queue_bases():
        shop.fs.remove(ROOT / "consumequeue" / "t" / "0" / f"{base:020d}")
    with closing(shop.open(read_only=read_only)) as store:
        assert ("impossible-queue-offset", at) in found(store)
        assert values(store) == kept
    if not read_only:
        with closing(shop.open()) as store:
            assert values(store) == kept
