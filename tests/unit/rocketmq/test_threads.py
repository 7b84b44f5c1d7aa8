"""Reads of a store while it is written: the dispatcher's thread, checkpoints and deletions next to readers."""

from __future__ import annotations

from storage.errors import OffsetOutOfRange, UnknownTopic
from storage.rocketmq.store import RocketMQStore
from tests.beside import beside
from tests.unit.rocketmq.workshop import T0, Workshop, check_lookups, put_value, values

VALUES = [b"value-%03d" % n for n in range(300)]


def write_all(store: RocketMQStore, written: list[bytes]) -> None:
    """Append all values one by one, and add each to `written`."""
    for value in VALUES:
        put_value(store, value)
        written.append(value)


def test_what_was_appended_is_found_at_once(shop: Workshop) -> None:
    """Lookups by offset, key, unique id, record id and time find it, whether the thread dispatched it before or not."""
    store = shop.open(thread=True)
    store.create_topic("t", 1)
    written: list[bytes] = []

    def read() -> None:
        count = len(written)
        assert values(store)[:count] == VALUES[:count]

    def find() -> None:
        if written:
            offset, value = len(written) - 1, written[-1]
            for page in (
                store.find("t", key=value),
                store.find("t", unique_id=value.decode()),
                store.find("t", key=value, scan=True),
            ):
                ((_, record),) = page.records
                assert (record.offset, record.value) == (offset, value)
                record_id = store.record_id(T0, record.locator)
                assert store.find_by_id(record_id) == (T0, record)
            assert store.offset_for_time(T0, 0) is not None

    beside(lambda: write_all(store, written), read, find, store.checkpoint)
    assert values(store) == VALUES
    found = shop.after_kill()
    with found.open() as again:
        assert values(again) == VALUES
    store.close()
    with shop.open() as again:
        assert again.recovery.clean_shutdown
        check_lookups(again)


def test_topics_deleted_beside_readers(shop: Workshop) -> None:
    """A reader of a topic that is deleted gets an error that says so, and never one about damage or missing files."""
    store = shop.open(thread=True)
    other = T0._replace(topic="u")
    store.create_topic("u", 1)

    def come_and_go() -> None:
        for turn in range(25):
            store.create_topic("t", 1)
            for value in VALUES[:8]:
                put_value(store, value)
            put_value(store, b"%d" % turn, other)
            store.delete_topic("t")

    def read() -> None:
        try:
            found = values(store)
            assert found == VALUES[: len(found)]
        except (UnknownTopic, OffsetOutOfRange):
            return  # deleted, or created again between two pages

    def find() -> None:
        try:
            for scan in (False, True):
                for _, record in store.find("t", key=VALUES[3], scan=scan).records:
                    assert (record.offset, record.value) == (3, VALUES[3])
            store.offset_for_time(T0, 0)
        except UnknownTopic:
            return

    beside(come_and_go, read, find, store.checkpoint)
    assert values(store, other) == [b"%d" % turn for turn in range(25)]
    assert list(store.topics()) == ["u"]
    store.close()
