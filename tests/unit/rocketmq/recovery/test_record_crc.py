"""Records that end in a CRC over the whole record: if the setting says so, or if the log's newest record does."""

from __future__ import annotations

import pytest

from storage import LogStore, Record, StoreOptions, open_store
from storage.errors import UnrepresentableRecord
from storage.model import RawMessage
from storage.rocketmq.format.message import BODY_POSITION
from storage.rocketmq.format.properties import (
    CRC_PROPERTY_SIZE,
    MAX_PROPERTIES_BYTES,
    check_crc_property,
    encode_crc_property,
    has_crc_property,
)
from storage.rocketmq.log.scan import Stop, walk_log
from storage.rocketmq.store import RocketMQStore
from storage.rocketmq.tools.staging import RocketMQStaging
from tests.damage.salvaging import salvage
from tests.unit.rocketmq.workshop import (
    LOG_BYTES,
    ROOT,
    SMALL,
    T0,
    Workshop,
    keyed,
    place_of,
    put_sequenced,
    put_value,
    values,
)

WITH_CRC = {"enabledAppendPropCRC": "true"}
WITHOUT = {"enabledAppendPropCRC": "false"}
BIG = {"mappedFileSizeCommitLog": "65536"}


def closed(store: LogStore) -> list[bool]:
    """Return for each record of the log whether it ends in a correct CRC; check that no record ends in a wrong CRC."""
    assert isinstance(store, RocketMQStore)
    found = []
    run = store.log.run
    for step in walk_log(run, run.start, store.log.end):
        for position, size in () if isinstance(step, Stop) else step.records:
            record = run.read(position, size)
            found.append(has_crc_property(record))
            assert check_crc_property(record) == found[-1]
    return found


def test_it_is_in_every_record_where_it_is_set(shop: Workshop) -> None:
    with shop.open_with_topic(WITH_CRC) as store:
        store.append(T0, [Record(None, b"")])
        put_sequenced(store, 7, 0, count=2)
        store.append(T0, [keyed(b"c"), Record(None, b"d" * 600)])
        assert closed(store) == [True] * 5
        assert values(store) == [b"", b"7/0", b"7/1", b"c", b"d" * 600]
        assert len(store.find("t", key="c").records) == 1


def test_a_log_goes_on_as_its_newest_record_is(shop: Workshop) -> None:
    with shop.open_with_topic() as store:
        put_value(store, b"plain")
    with shop.open(WITH_CRC) as store:
        put_value(store, b"set")
    with shop.open() as store:
        put_value(store, b"found")
        killed = shop.after_kill()
    with killed.open() as store:
        put_value(store, b"found after a kill")
        assert closed(store) == [False, True, True, True]
    with shop.open(WITHOUT) as store:
        put_value(store, b"set otherwise")
    with shop.open() as store:
        put_value(store, b"plain again")
        assert closed(store) == [False, True, True, False, False]


def put_raw(store: LogStore, *properties: bytes) -> None:
    assert isinstance(store, RocketMQStore)
    store.append_messages(T0, [raw(one) for one in properties])


def raw(properties: bytes) -> RawMessage:
    return RawMessage(body=b"", properties=properties, born_timestamp_ms=1, born_host=bytes(8))


@pytest.mark.parametrize(
    "given",
    [b"", b"a\x01b", b"a\x01b\x02", b"a\x01b\x02" + encode_crc_property(b"of another place")],
)
def test_a_message_that_is_handed_in_gets_its_own(shop: Workshop, given: bytes) -> None:
    with shop.open_with_topic(WITH_CRC) as store:
        put_raw(store, given, given)
        assert closed(store) == [True, True]


def test_it_takes_its_part_of_the_properties(shop: Workshop) -> None:
    most = MAX_PROPERTIES_BYTES - CRC_PROPERTY_SIZE
    name = b"a\x01"
    with shop.open_with_topic({**BIG, **WITH_CRC}) as store:
        put_raw(store, name.ljust(most - 1, b"b") + b"\x02")
        with pytest.raises(UnrepresentableRecord):
            put_raw(store, name.ljust(most, b"b") + b"\x02")
        with pytest.raises(UnrepresentableRecord):
            store.append(T0, [Record(None, b"", [("long", b"x" * most)])])
        with pytest.raises(UnrepresentableRecord):
            store.preview_topic("new", [Record(None, b"", [("long", b"x" * most)])])
        assert closed(store) == [True]


def test_what_stands_where_a_salvage_left_something_behind_has_it_too(shop: Workshop) -> None:
    with shop.open_with_topic(WITH_CRC) as store:
        places = [place_of(put_value(store, b"%d" % n * 40)) for n in range(9)]
    for place in (places[1], places[5]):  # within a file, and the last record of another
        base = place - place % LOG_BYTES
        shop.overwrite(shop.log_path(base), place - base + BODY_POSITION, b"x")
    target = ROOT.parent / "new"
    salvage(ROOT, target, SMALL, fs=shop.fs, clock=shop.clock)
    options = StoreOptions(settings=SMALL)
    with open_store("rocketmq", target, options, fs=shop.fs, read_only=True) as store:
        assert len(values(store)) == 7
        assert closed(store) == [True] * 9


def test_what_is_staged_leaves_room_for_it(shop: Workshop) -> None:
    """Room for the CRC is reserved before the store's newest record is known."""
    staging = RocketMQStaging(shop.clock)
    with shop.open_with_topic({**BIG, **WITH_CRC}) as store:
        shape = staging.shape(store, "t")
        fits = Record(None, b"", [("long", b"x" * 32_650)])
        ((_, data),) = staging.encoder().encode([fits], shape, compression=None)
        staging.put(store, T0, data)
        assert closed(store) == [True]
        more = Record(None, b"", [("long", b"x" * 32_710)])
        with pytest.raises(UnrepresentableRecord):
            staging.encoder().encode([more], shape, compression=None)
