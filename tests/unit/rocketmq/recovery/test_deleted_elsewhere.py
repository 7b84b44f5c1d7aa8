"""Topics deleted by the real broker, which leaves no note: their records stay in the log and must not reappear."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storage import TopicPartition
from storage.errors import RecordNotFound
from storage.files import FileSystem
from storage.model import RawMessage
from storage.rocketmq.format import names
from storage.rocketmq.format.queue_entry import UNIT
from storage.rocketmq.state.root import StoreDirectory
from storage.rocketmq.state.topics_file import TopicTable
from storage.rocketmq.store import RocketMQStore
from tests.robustness.crash.power import Power, moments
from tests.unit.rocketmq.workshop import (
    ROOT,
    T0,
    Workshop,
    check_lookups,
    on,
    place_of,
    put_file,
    put_value,
    values,
)

T1 = T0._replace(partition=1)
STAY = TopicPartition("stay", 0)
OLD = [b"old-%02d" % n for n in range(12)]
NEW = [b"new-%02d" % n for n in range(5)]
TOPICS = ROOT / names.CONFIG / names.TOPICS
QUEUES = ROOT / names.CONSUME_QUEUE
read_only_or_not = pytest.mark.parametrize("read_only", [True, False])
whose = pytest.mark.parametrize("ours", [True, False], ids=["ours before", "of the broker"])


def filled(shop: Workshop) -> RocketMQStore:
    """Return a store with the old values in the topics t and stay, in turn; the last record is in stay."""
    store = shop.open_with_topic(partitions=2)
    store.create_topic("stay", 1)
    for value in OLD:
        for address in (T0, T1, STAY):
            put_value(store, value, address)
    return store


def forget_us(fs: FileSystem) -> None:
    """Remove this program's own files, as if a real broker had written the store."""
    for name in fs.list_dir(ROOT):
        if name.startswith(".logserver."):
            fs.remove(ROOT / name)


def remove_entry(fs: FileSystem, topic: str = "t") -> None:
    table = TopicTable.decode(fs.read_bytes(TOPICS))
    put_file(fs, TOPICS, table.without([topic], now_ms=9).encode())


def delete_as_the_broker(shop: Workshop, *, ours: bool = True) -> None:
    """Delete t as TopicConfigManager.deleteTopicConfig and DefaultMessageStore.deleteTopics do, before a clean stop."""
    remove_entry(shop.fs)
    shop.fs.remove_tree(QUEUES / "t")
    if not ours:
        forget_us(shop.fs)


def deleted(shop: Workshop) -> dict[str, int]:
    return StoreDirectory(shop.fs, ROOT).deleted_topics().topics


@whose
def test_a_deleted_topic_stays_away(shop: Workshop, ours: bool) -> None:
    """This holds although the queues were longer at the last checkpoint, and although the walk meets the records."""
    filled(shop).close()
    delete_as_the_broker(shop, ours=ours)
    before = shop.files()
    with shop.open(read_only=True) as view:
        assert list(view.topics()) == ["stay"]
        assert values(view, STAY) == OLD
    assert shop.files() == before
    for _ in range(2):
        store = shop.open()
        assert list(store.topics()) == ["stay"]
        assert shop.names("consumequeue") == ["stay"]
        assert deleted(shop) == {"t": store.log.end}
        check_lookups(store, STAY)
        shop = shop.after_kill()
    shop.fs.remove_tree(QUEUES)
    with shop.open() as again:  # after a kill, with a walk of the whole log
        assert list(again.topics()) == ["stay"]
        assert values(again, STAY) == OLD


def test_a_start_that_loses_its_power_forgets_none(shop: Workshop) -> None:
    """Once `abort` exists, the files no longer prove the deletion: it is noted before."""
    filled(shop).close()
    delete_as_the_broker(shop, ours=False)
    power = Power(shop.fs)
    cuts = moments(power, on(power, shop).open)
    assert any(cut.exists(ROOT / names.ABORT) for cut in cuts)
    for cut in cuts:
        with on(cut, shop).open() as store:
            assert list(store.topics()) == ["stay"]


def test_its_name_can_be_used_again(shop: Workshop) -> None:
    with filled(shop) as store:
        ids = [store.record_id(T0, record.locator) for record in store.scan(T0)]
    delete_as_the_broker(shop)
    store = shop.open()
    store.create_topic("t", 2)
    for value in NEW:
        put_value(store, value)
    for _ in range(2):
        assert (values(store), values(store, T1)) == (NEW, [])
        assert [list(store.find("t", key=value).records) for value in OLD] == [[]] * len(OLD)
        for record_id in ids:
            with pytest.raises(RecordNotFound):
                store.find_by_id(record_id)
        shop = shop.after_kill()
        store = shop.open()


def unclean(fs: FileSystem) -> None:
    put_file(fs, ROOT / names.ABORT, b"1")


def no_topics_file(fs: FileSystem) -> None:
    fs.remove(TOPICS)


def damaged_topics_file(fs: FileSystem) -> None:
    """Damage the file; its `.bak` is read, which may lack the newest topics."""
    backup = TOPICS.with_name(TOPICS.name + names.BACKUP)
    put_file(fs, backup, fs.read_bytes(TOPICS))
    put_file(fs, TOPICS, b'{"topicConfigTable":{')


def all_queues_lost(fs: FileSystem) -> None:
    fs.remove_tree(QUEUES)


def a_folder(fs: FileSystem) -> None:
    fs.make_dir(QUEUES / "t")


def an_entry_that_cannot_be_understood(fs: FileSystem) -> None:
    table = fs.read_bytes(TOPICS)
    put_file(fs, TOPICS, table.replace(b'"topicConfigTable":{', b'"topicConfigTable":{"t":5,'))


@pytest.mark.parametrize(
    "more",
    [
        unclean,
        no_topics_file,
        damaged_topics_file,
        all_queues_lost,
        a_folder,
        an_entry_that_cannot_be_understood,
    ],
)
@read_only_or_not
def test_a_topic_that_may_be_there_is_made_again(
    shop: Workshop, more: Callable[[FileSystem], None], read_only: bool
) -> None:
    filled(shop).close()
    delete_as_the_broker(shop)
    more(shop.fs)
    with shop.open(read_only=read_only) as store:
        assert values(store) == values(store, T1) == values(store, STAY) == OLD
    assert deleted(shop) == {}


def test_a_topic_with_a_folder_of_batches_was_not_deleted(shop: Workshop) -> None:
    filled(shop).close()
    delete_as_the_broker(shop)
    shop.fs.make_dir(ROOT / names.BATCH_QUEUE / "t" / "0")
    with shop.open() as store:
        assert "t" not in store.topics()
    assert deleted(shop) == {}


def test_an_entry_without_a_folder_has_lost_its_queues(shop: Workshop) -> None:
    filled(shop).close()
    shop.fs.remove_tree(QUEUES / "t")
    with shop.open() as store:
        assert values(store) == values(store, T1) == OLD


@pytest.mark.parametrize("topic", [names.SCHEDULE_TOPIC, names.HALF_TOPIC, "rmq_sys_wheel_timer"])
@pytest.mark.parametrize("lost", [True, False], ids=["folder lost", "folder there"])
def test_the_brokers_own_topics_cannot_be_deleted(shop: Workshop, topic: str, lost: bool) -> None:
    address = TopicPartition(topic, 0)
    store = filled(shop)
    store.append_messages(address, [RawMessage(value, b"") for value in OLD])
    store.close()
    if lost:
        shop.fs.remove_tree(QUEUES / topic)
    with shop.open() as again:
        assert values(again, address) == OLD


# ---- topics that were created again ----


def two_lives(shop: Workshop, first: int, second: int) -> list[bytes]:
    """Store `first` values in each of two queues of t, delete t, create it again, and store `second` values in queue 0.

    Return the new values. The caller removes the note of the deletion.
    """
    store = shop.open_with_topic(partitions=2)
    store.create_topic("stay", 1)
    for n in range(first):
        for address in (T0, T1, STAY):
            put_value(store, b"old-%d" % n, address)
    store.delete_topic("t")
    store.create_topic("t", 2)
    new = [b"new-%d" % n for n in range(second)]
    for value in new:
        put_value(store, value)
        put_value(store, value, STAY)
    store.close()
    return new


@pytest.mark.parametrize(("first", "second"), [(9, 5), (5, 9), (1, 1), (30, 2), (2, 30)])
@pytest.mark.parametrize("clean", [True, False])
@whose
def test_records_of_an_earlier_life_stay_away(
    shop: Workshop, first: int, second: int, clean: bool, ours: bool
) -> None:
    new = two_lives(shop, first, second)
    shop.fs.remove(ROOT / names.DELETED_FILE)
    if not ours:
        forget_us(shop.fs)
    if not clean:
        put_file(shop.fs, ROOT / names.ABORT, b"1 logserver" if ours else b"1")
    with shop.open(read_only=True) as view:
        assert (values(view), values(view, T1)) == (new, [])
    for _ in range(2):
        store = shop.open()
        assert (values(store), values(store, T1)) == (new, [])
        check_lookups(store)
        shop = shop.after_kill()


@read_only_or_not
def test_a_lost_queue_is_no_earlier_life(shop: Workshop, read_only: bool) -> None:
    """All records of the lost queue are before the other records of its topic."""
    with shop.open_with_topic(partitions=2) as store:
        for value in OLD:
            put_value(store, value, T1)
        for value in NEW:
            put_value(store, value)
    shop.fs.remove_tree(QUEUES / "t" / "1")
    with shop.open(read_only=read_only) as store:
        assert (values(store), values(store, T1)) == (NEW, OLD)
    assert deleted(shop) == {}


def test_a_unit_that_does_not_fit_tells_of_no_life(shop: Workshop) -> None:
    """The entry points after its record, which is then before the first record that any entry points to."""
    with filled(shop) as store:
        last = put_value(store, b"last")
    unit = UNIT.pack(place_of(last), 999, 0)
    shop.overwrite(QUEUES / "t" / "0" / names.file_name(0), 0, unit)
    shop.fs.remove_tree(QUEUES / "t" / "1")
    with shop.open() as store:
        assert values(store, T1) == OLD
    assert deleted(shop) == {}
