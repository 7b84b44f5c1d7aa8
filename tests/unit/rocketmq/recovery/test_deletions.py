"""Deleted topics: their records stay in the commit log, and must not reappear in any way, after any stop."""

from __future__ import annotations

import pytest

from storage import LogStore, Record
from storage.errors import RecordNotFound
from storage.files import OverlayFileSystem
from tests.robustness.crash.power import Power, moments
from tests.unit.rocketmq.recovery.outage import safe_place
from tests.unit.rocketmq.workshop import (
    ROOT,
    T0,
    Workshop,
    check_lookups,
    keyed,
    on,
    put_sequenced,
    put_value,
    values,
)

OLD = [b"old-%02d" % n for n in range(9)]
NEW = [b"new-%02d" % n for n in range(5)]
STOPS = ["close", "kill", "kill after a checkpoint"]


def stopped(shop: Workshop, store: LogStore, stop: str) -> Workshop:
    """Stop the store in the given way; return the workshop that the next start finds."""
    if stop == "close":
        store.close()
        return shop
    if stop.endswith("checkpoint"):
        store.checkpoint()
    return shop.after_kill()


def check_gone(store: LogStore, ids: list[str]) -> None:
    """Check that no lookup finds an old record."""
    for value in OLD:
        for found in (
            store.find("t", key=value),
            store.find("t", key=value, scan=True),
            store.find("t", unique_id=value.decode()),
        ):
            assert list(found.records) == []
    for record_id in ids:
        with pytest.raises(RecordNotFound):
            store.find_by_id(record_id)


@pytest.mark.parametrize("looked", [True, False], ids=["dispatched", "not dispatched"])
@pytest.mark.parametrize("stop", STOPS)
def test_a_topic_made_again_has_none_of_the_old_records(
    shop: Workshop, stop: str, looked: bool
) -> None:
    store = shop.open_with_topic()
    ids = [store.record_id(T0, put_value(store, value).locators[0]) for value in OLD]
    if looked:
        check_lookups(store)
    store.delete_topic("t")
    assert shop.names("consumequeue") == []
    store.create_topic("t", 1)
    check_gone(store, ids)
    for value in NEW:
        put_value(store, value)
    for _ in range(2):
        assert values(store) == NEW
        check_gone(store, ids)
        check_lookups(store)
        shop = stopped(shop, store, stop)
        store = shop.open()


@pytest.mark.parametrize("stop", STOPS)
def test_a_deleted_topic_stays_away(shop: Workshop, stop: str) -> None:
    store = shop.open_with_topic()
    store.create_topic("u", 1)
    for value in OLD:
        put_value(store, value)
        put_value(store, value, T0._replace(topic="u"))
    store.delete_topic("t")
    found = stopped(shop, store, stop)
    for _ in range(2):
        with found.open() as again:
            assert list(again.topics()) == ["u"]
            assert values(again, T0._replace(topic="u")) == OLD
            assert found.names("consumequeue") == ["u"]


@pytest.mark.parametrize("gone", ["consumequeue", "index"])
def test_what_is_built_again_leaves_them_out(shop: Workshop, gone: str) -> None:
    store = shop.open_with_topic()
    ids = [store.record_id(T0, put_value(store, value).locators[0]) for value in OLD]
    store.delete_topic("t")
    store.create_topic("t", 1)
    for value in NEW:
        put_value(store, value)
    check_lookups(store)
    found = shop.after_kill()
    found.fs.remove_tree(ROOT / gone)
    with found.open() as again:
        assert values(again) == NEW
        check_gone(again, ids)
        check_lookups(again)


@pytest.mark.parametrize("stop", STOPS)
def test_a_producer_begins_anew(shop: Workshop, stop: str) -> None:
    """The sequence numbers of the old records do not count: a first append is no gap and no repeat."""
    store = shop.open_with_topic()
    for sequence in range(4):
        put_sequenced(store, 7, sequence)
    store.delete_topic("t")
    store.create_topic("t", 1)
    store.append(T0, [Record(None, b"x")])
    again = stopped(shop, store, stop).open()
    result = put_sequenced(again, 7, 0)
    assert (result.duplicate, result.base_offset) == (False, 1)


def test_a_topic_that_was_never_written_leaves_no_folder(shop: Workshop) -> None:
    store = shop.open_with_topic()
    store.delete_topic("t")
    assert shop.names("consumequeue") == []
    store.close()
    assert shop.open().topics() == {}


def test_power_lost_in_a_deletion(power: Power) -> None:
    """The topic exists completely or not at all; created again it is empty."""
    shop = safe_place(power)
    store = shop.open_with_topic()
    for value in OLD:
        put_value(store, value)
    store.flush()
    check_lookups(store)
    cuts = moments(power, lambda: store.delete_topic("t"))
    whole = []
    for cut in cuts:
        with on(cut, shop).open() as again:
            whole.append("t" in again.topics())
            if whole[-1]:
                assert values(again) == OLD
            else:
                again.create_topic("t", 1)
                again.append(T0, [keyed(NEW[0])])
                assert values(again) == NEW[:1]
                check_gone(again, [])
        with on(OverlayFileSystem(cut), shop).open() as again:
            assert values(again) == (OLD if whole[-1] else NEW[:1])
    assert whole == sorted(whole, reverse=True)
    assert (whole[0], whole[-1]) == (True, False)
