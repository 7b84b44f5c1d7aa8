"""The header of an index file counts only where entries and records agree with it: lookups by key miss no record."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import closing

import pytest

from storage.rocketmq.format.index_file import IndexHeader, decode_header, encode_header
from tests.unit.rocketmq.index.test_index_coverage import (
    INDEX,
    PROOF,
    VALUES,
    check_all,
    check_tools,
    filled,
    names,
    put_all,
)
from tests.unit.rocketmq.recovery.foreign_log import inspector
from tests.unit.rocketmq.workshop import Workshop

Change = Callable[[IndexHeader], IndexHeader]


def an_older_one(header: IndexHeader) -> IndexHeader:
    """Return the header as after a lost write: it agrees with the entries that it counts."""
    return header._replace(
        index_count=3,
        end_physical_offset=header.begin_physical_offset,
        end_timestamp_ms=header.begin_timestamp_ms,
    )


CHANGES: dict[str, Change] = {
    "the end is inside the first record": lambda h: h._replace(end_physical_offset=4),
    "the end is the begin of the log": lambda h: h._replace(end_physical_offset=0),
    "the end is that of another record": lambda h: h._replace(
        end_physical_offset=h.begin_physical_offset
    ),
    "the end is after the log": lambda h: h._replace(end_physical_offset=1 << 40),
    "the end is negative": lambda h: h._replace(end_physical_offset=-1),
    "the begin is after the log": lambda h: h._replace(begin_physical_offset=1 << 40),
    "a count that is too small": lambda h: h._replace(index_count=h.index_count - 1),
    "a count that is too large": lambda h: h._replace(index_count=1 << 30),
    "a negative count": lambda h: h._replace(index_count=-7),
    "another time at the begin": lambda h: h._replace(begin_timestamp_ms=5),
    "another time at the end": lambda h: h._replace(end_timestamp_ms=5),
    "another number of slots": lambda h: h._replace(hash_slot_count=6),
    "six small numbers": lambda h: IndexHeader(1, 2, 3, 4, 5, 6),
    "an older header": an_older_one,
}
WHICH = {"all": slice(None), "the last": slice(-1, None), "all but the last": slice(-1)}


def change_headers(shop: Workshop, change: Change, which: slice = slice(None)) -> None:
    for name in names(shop)[which]:
        header = decode_header(shop.fs.read_bytes(INDEX / name))
        shop.overwrite(INDEX / name, 0, encode_header(change(header)))


@pytest.mark.parametrize("which", WHICH.values(), ids=WHICH)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_nothing_is_missed(change: Change, which: slice, shop: Workshop) -> None:
    """This holds also where no clean stop remembered the headers."""
    values = VALUES[:18]
    with closing(shop.open_with_topic()) as store:
        put_all(shop, store, values)
    shop.fs.remove(PROOF)
    change_headers(shop, change, which)
    check_tools(shop, values)
    with closing(shop.open(read_only=True)) as store:
        check_all(store, values)
    more = [*values, b"more-1", b"more-2"]
    with closing(shop.open()) as store:
        check_all(store, values)
        put_all(shop, store, more[-2:])
        check_all(store, more)
    with closing(shop.open()) as store:
        check_all(store, more)


@pytest.mark.parametrize("name", ["the end is inside the first record", "six small numbers"])
def test_nothing_is_missed_after_a_kill(name: str, shop: Workshop) -> None:
    filled(shop)
    store = shop.open()
    put_all(shop, store, [b"more"])
    store.flush()
    killed = shop.after_kill()
    change_headers(killed, CHANGES[name])
    with closing(killed.open()) as again:
        check_all(again, [*VALUES, b"more"])


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("endPhyOffset", CHANGES["the end is inside the first record"]),
        ("beginTimestamp", CHANGES["another time at the begin"]),
        ("indexCount", CHANGES["a count that is too small"]),
    ],
)
def test_it_is_reported_once_and_mended(field: str, change: Change, shop: Workshop) -> None:
    """The correct header follows from the entries: the files are as before."""
    filled(shop)
    before = [shop.fs.read_bytes(INDEX / name) for name in names(shop)]
    shop.fs.remove(PROOF)
    change_headers(shop, change, slice(1, 2))
    with inspector(shop) as tools:
        assert {f.code for f in tools.verify()} & {"wrong-index-header", "wrong-index-slot"}
    with closing(shop.open()) as store:
        (found,) = [f for f in store.recovery.findings if f.code == "wrong-index-header"]
        assert found.path.endswith(names(shop)[1])
        assert str(found.found).startswith(field)
        assert check_all(store) == {True}
    after = [shop.fs.read_bytes(INDEX / name) for name in names(shop)]
    assert after[:-1] == before[:-1], "the last record may be indexed again, as RocketMQ does"
    with closing(shop.open()) as store:
        assert "wrong-index-header" not in [f.code for f in store.recovery.findings]


def test_an_index_that_leads_to_no_records_is_not_believed(shop: Workshop) -> None:
    """Header and entries agree, but no record is stored where the last entry points."""
    filled(shop)
    shop.fs.remove(PROOF)
    for name in names(shop):
        data = shop.fs.read_bytes(INDEX / name)
        header = decode_header(data)
        shifted = header._replace(
            begin_physical_offset=header.begin_physical_offset + 4,
            end_physical_offset=header.end_physical_offset + 4,
        )
        shop.overwrite(INDEX / name, 0, encode_header(shifted))
        for number in range(1, header.index_count):
            at = 40 + 4 * 7 + 20 * number + 4
            (position,) = struct.unpack_from(">q", data, at)
            shop.overwrite(INDEX / name, at, struct.pack(">q", position + 4))
    check_tools(shop)
    for read_only in (True, False):
        with closing(shop.open(read_only=read_only)) as store:
            check_all(store)
