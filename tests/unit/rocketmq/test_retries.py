"""Messages handed back to their group, on a driven clock: the fields of retries and dead letters, the ladder, the
settings of groups, and refusals.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from storage import (
    BY_LADDER,
    TO_DEAD_LETTERS,
    RawMessage,
    Record,
    RetrySettings,
    SentBack,
    TopicPartition,
)
from storage.errors import (
    InvalidArgument,
    InvalidTopic,
    NotOffered,
    RecordNotFound,
    StoreReadOnly,
    UnrepresentableRecord,
)
from storage.rocketmq.format.config_json import decode_config
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.properties import decode_properties, encode_properties
from storage.rocketmq.store import RocketMQStore
from tests.golden import rocketmq_stores as stores
from tests.unit.rocketmq.workshop import ROOT, T0, Workshop, put_file

RETRY = TopicPartition("%RETRY%g", 0)
DEAD = TopicPartition("%DLQ%g", 0)
GROUPS = ROOT / "config" / "subscriptionGroup.json"
BACKUP = ROOT / "config" / "subscriptionGroup.json.bak"
DELAYS_S = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Of the levels 3 to 18: the ladder of 16 retries."""
HOST = b"\x0a\1\2\3\0\0\x2a\x9f"


def put(store: RocketMQStore, value: bytes = b"m", to: TopicPartition = T0, **fields: Any) -> str:
    """Append a record; return its id."""
    result = store.append(to, [Record(None, value, **fields)])
    return store.record_id(to, result.locators[0])


def newest(store: RocketMQStore, of: TopicPartition) -> Message:
    """Return the newest message of a queue, as stored."""
    record = store.read(of, store.bounds(of).end - 1).records[0]
    return store.message_by_id(store.record_id(of, record.locator)).message


def id_of(store: RocketMQStore, of: TopicPartition) -> str:
    record = store.read(of, store.bounds(of).end - 1).records[0]
    return store.record_id(of, record.locator)


def content(shop: Workshop) -> Any:
    return decode_config(shop.fs.read_bytes(GROUPS))


def deliver(shop: Workshop, store: RocketMQStore, sent: SentBack) -> None:
    """Check that a retry is not delivered early, and deliver it."""
    assert sent.deliver_at_ms is not None
    shop.clock.now_ms = sent.deliver_at_ms - 1
    assert store.delays.deliver(shop.clock.now_ms).messages == 0
    shop.clock.now_ms = sent.deliver_at_ms
    assert store.delays.deliver(shop.clock.now_ms).messages == 1


def test_a_retry_waits_and_has_the_fields_of_the_broker() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    own = {"TAGS": "a", "KEYS": "k", "x": "y", "UNIQ_KEY": "U"}
    raw = RawMessage(b"body", encode_properties(own), 7, 0, 1234, b"\1\2\3\4\0\0\0\5", 0, 0)
    store.append_messages(T0, [raw], store_host=HOST)
    origin = id_of(store, T0)
    sent = store.send_back("g", origin)
    assert (sent.partition, sent.times, sent.is_dead, sent.delay_level) == (RETRY, 1, False, 3)
    assert sent.deliver_at_ms == shop.clock.now_ms + 10_000
    waiting = newest(store, TopicPartition("SCHEDULE_TOPIC_XXXX", 2))
    wanted = {
        **own, "RETRY_TOPIC": "t", "ORIGIN_MESSAGE_ID": origin, "WAIT": "false", "DELAY": "3",
        "REAL_TOPIC": "%RETRY%g", "REAL_QID": "0",
    }  # fmt: skip
    assert decode_properties(waiting.properties) == wanted
    assert sent.record_id == id_of(store, TopicPartition("SCHEDULE_TOPIC_XXXX", 2))
    assert store.bounds(RETRY).end == 0
    deliver(shop, store, sent)
    message = newest(store, RETRY)
    assert decode_properties(message.properties) == wanted
    assert (message.body, message.flag, message.reconsume_times) == (b"body", 7, 1)
    assert (message.born_timestamp_ms, message.born_host) == (1234, b"\1\2\3\4\0\0\0\5")
    (entry,) = store.queues.of_topic("%RETRY%g")[0].units.read(0, 1)
    assert entry.tags_code == store.queues.of_topic("t")[0].units.read(0, 1)[0].tags_code


def test_the_ladder_ends_in_the_dead_letters() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    origin = current = put(store, b"poison", tag="a")
    for times, delay_s in enumerate(DELAYS_S, 1):
        before_ms = shop.clock.now_ms
        sent = store.send_back("g", current)
        assert (sent.times, sent.delay_level, sent.is_dead) == (times, times + 2, False)
        assert sent.deliver_at_ms == before_ms + delay_s * 1000
        deliver(shop, store, sent)
        current = id_of(store, RETRY)
    assert store.bounds(RETRY).end == len(DELAYS_S)
    dead = store.send_back("g", current)
    assert (dead.partition, dead.times, dead.is_dead) == (DEAD, 17, True)
    assert (dead.delay_level, dead.deliver_at_ms) == (None, None)
    assert dead.record_id == id_of(store, DEAD)
    message = newest(store, DEAD)
    properties = decode_properties(message.properties)
    assert (message.body, message.reconsume_times) == (b"poison", 17)
    assert properties["RETRY_TOPIC"] == "t"
    assert properties["ORIGIN_MESSAGE_ID"] == origin
    assert properties["DELAY"] == "0"
    assert [len(store.topics()[name].partitions) for name in ("%RETRY%g", "%DLQ%g")] == [1, 1]
    store.close()
    with shop.open() as again:
        assert not again.recovery.losses
        assert newest(again, DEAD) == message


def test_a_message_above_a_lower_limit_can_be_handed_back() -> None:
    shop = Workshop()
    store = shop.open_with_topic({"maxMessageSize": "300"})
    message_id = put(store, b"m" * 300)
    store.close()
    store = shop.open({"maxMessageSize": "100"})
    deliver(shop, store, store.send_back("g", message_id))
    assert newest(store, TopicPartition("%RETRY%g", 0)).body == b"m" * 300


def test_levels_and_limits_of_one_call() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    first = put(store)
    assert store.send_back("g", first, level=1).delay_level == 1
    assert store.send_back("g", first, level=18).delay_level == 18
    assert store.send_back("g", first, level=TO_DEAD_LETTERS).is_dead
    assert store.send_back("g", first, max_times=0).is_dead
    assert store.send_back("g", first, level=BY_LADDER, max_times=1).delay_level == 3
    for level in (-2, 19):
        with pytest.raises(InvalidArgument, match=rf"delay_level is {level}: need 1 to 18"):
            store.send_back("g", first, level=level)


def test_the_ladder_ends_at_the_last_level_of_the_store() -> None:
    shop = Workshop()
    store = shop.open_with_topic({"messageDelayLevel": "1s 2s"})
    assert store.send_back("g", put(store)).delay_level == 2


def test_the_settings_of_a_group_are_those_of_the_file() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    assert store.retry_settings("g") == RetrySettings(16, 1, stored=False)
    assert not shop.fs.exists(GROUPS)
    store.send_back("g", put(store))
    entry = content(shop)["subscriptionGroupTable"]["g"]
    assert (entry["groupName"], entry["retryMaxTimes"], entry["retryQueueNums"]) == ("g", 16, 1)
    assert content(shop)["dataVersion"]["counter"] == 1
    first = shop.fs.read_bytes(GROUPS)
    assert store.change_retries("g", 0) == RetrySettings(0, 1, stored=True)
    assert shop.fs.read_bytes(BACKUP) == first
    assert store.send_back("g", put(store)).is_dead
    store.close()
    with shop.open() as again:
        assert again.retry_settings("g").max_times == 0


def test_an_entry_of_the_broker_is_kept_and_obeyed() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    store.close()
    entry = {"groupName": "g", "retryMaxTimes": 1, "retryQueueNums": 3, "new": {"field": [1]}}
    table = {"g": entry, "other": {"retryMaxTimes": 5}}
    stored = {"later": 1, "forbiddenTable": {"g": {"t": 1}}, "subscriptionGroupTable": table}
    put_file(shop.fs, GROUPS, json.dumps(stored).encode())
    with shop.open() as store:
        first = put(store)
        sent = store.send_back("g", first)
        assert len(store.topics()["%RETRY%g"].partitions) == 3
        assert sent.partition.partition in range(3)
        deliver(shop, store, sent)
        assert store.send_back("g", id_of(store, sent.partition)).is_dead
        store.change_retries("g", 2)
        found = content(shop)
        assert found["subscriptionGroupTable"]["g"] == {**entry, "retryMaxTimes": 2}
        assert found["subscriptionGroupTable"]["other"] == table["other"]
        assert (found["later"], found["forbiddenTable"]) == (1, stored["forbiddenTable"])


def test_a_damaged_file_means_the_defaults_and_is_kept() -> None:
    shop = Workshop()
    shop.open_with_topic().close()
    put_file(shop.fs, GROUPS, b"{")
    with shop.open() as store:
        assert store.retry_settings("g") == RetrySettings()
        store.send_back("g", put(store))
        assert content(shop)["subscriptionGroupTable"].keys() == {"g"}
    assert shop.fs.read_bytes(ROOT / ".logserver.subscriptionGroup.damaged.json") == b"{"


def test_a_group_without_retry_queues_loses_no_message() -> None:
    shop = Workshop()
    shop.open_with_topic().close()
    put_file(shop.fs, GROUPS, b'{"subscriptionGroupTable":{"g":{"retryQueueNums":0}}}')
    with shop.open() as store, pytest.raises(NotOffered, match="retryQueueNums is 0"):
        store.send_back("g", put(store))


def test_refusals_store_nothing() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    first = put(store)
    target, record = store.delays.delayed(Record(None, b"later"), T0, 18)
    waiting = store.record_id(target, store.append(target, [record]).locators[0])
    end = store.log.end
    for group in ("", "a b", "g" * 249, "ü"):
        with pytest.raises(InvalidArgument, match="is not 1 to 248 of"):
            store.send_back(group, first)
        with pytest.raises(InvalidArgument):
            store.change_retries(group, 1)
    for unknown in ("", "x", "0" * 32, first[:-1] + "1"):
        with pytest.raises(RecordNotFound):
            store.send_back("g", unknown)
    with pytest.raises(InvalidTopic, match="a broker's own"):
        store.send_back("g", waiting)
    with pytest.raises(InvalidArgument, match="max_times is -2"):
        store.change_retries("g", -2)
    assert (store.log.end, shop.fs.exists(GROUPS)) == (end, False)
    assert store.topics().keys() == {"t", "SCHEDULE_TOPIC_XXXX"}


def test_a_retry_topic_that_cannot_be_written() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    store.create_topic("%RETRY%g", 1, {"perm": "4"})
    with pytest.raises(InvalidTopic, match="its perm is 4"):
        store.send_back("g", put(store))


def test_a_message_without_room_for_properties() -> None:
    shop = Workshop()
    store = shop.open_with_topic({"mappedFileSizeCommitLog": "65536"})
    full = RawMessage(b"m", encode_properties({"x": "y" * 32_700}))
    store.append_messages(T0, [full])
    with pytest.raises(UnrepresentableRecord, match="the limit is 32767"):
        store.send_back("g", id_of(store, T0))


def test_a_timer_message_becomes_one_of_a_level() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    timed = {
        "TIMER_DELIVER_MS": "5",
        "TIMER_DELAY_MS": "5",
        "TIMER_DELAY_SEC": "5",
        "TIMER_OUT_MS": "5",
    }
    store.append_messages(T0, [RawMessage(b"m", encode_properties(timed))])
    store.send_back("g", id_of(store, T0))
    found = decode_properties(newest(store, TopicPartition("SCHEDULE_TOPIC_XXXX", 2)).properties)
    assert {name for name in found if name.startswith("TIMER")} == {"TIMER_OUT_MS"}


def test_a_damaged_count_still_gives_a_level() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    for times, sent_times, is_dead in ((-5, 1, False), ((1 << 31) - 1, (1 << 31) - 1, True)):
        store.append_messages(T0, [RawMessage(b"m", b"", reconsume_times=times)])
        sent = store.send_back("g", id_of(store, T0))
        assert (sent.times, sent.is_dead) == (sent_times, is_dead)
        assert sent.delay_level == (None if is_dead else 3)


def test_a_read_only_store_refuses() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    first = put(store)
    store.change_retries("g", 3)
    store.close()
    with shop.open(read_only=True) as store:
        assert store.retry_settings("g").max_times == 3
        with pytest.raises(StoreReadOnly):
            store.send_back("g", first)
        with pytest.raises(StoreReadOnly):
            store.change_retries("g", 4)


def test_a_retry_is_the_broker_s_own() -> None:
    """Hand the messages back that the real broker's group handed back: the retries are the same as the broker's."""
    golden = stores.golden("broker")
    rows = [row for row in golden.expected() if row.get("topic") == "%RETRY%order-group"]
    store = stores.open_golden(golden, fs=stores.overlay())
    assert isinstance(store, RocketMQStore)
    target = TopicPartition("%RETRY%order-group", 0)
    first = store.bounds(target).end
    due_ms = 0
    for row in rows:
        sent = store.send_back("order-group", row["properties"]["ORIGIN_MESSAGE_ID"])
        assert (sent.partition, sent.delay_level, sent.times) == (target, 3, 1)
        due_ms = sent.deliver_at_ms or 0
    store.delays.deliver(due_ms)
    found = store.read(target, first).records
    assert len(found) == len(rows) > 10
    for row, record in zip(rows, found, strict=True):
        message = store.message_by_id(store.record_id(target, record.locator)).message
        theirs = golden.message(row["physicalOffset"])
        assert decode_properties(message.properties) == row["properties"]
        for name in (
            "body",
            "flag",
            "sys_flag",
            "born_timestamp_ms",
            "born_host",
            "reconsume_times",
        ):
            assert getattr(message, name) == getattr(theirs, name), name
    store.close()
