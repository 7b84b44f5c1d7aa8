"""Delayed messages on a driven clock: where they wait, when and how they are delivered, progress, listing, damage."""

from __future__ import annotations

import logging
from struct import pack
from typing import Any
from unittest.mock import patch

import pytest

from storage import (
    Delivery,
    LogStore,
    ProducerSequence,
    RawMessage,
    Record,
    SupportsDelay,
    TopicPartition,
)
from storage.errors import (
    DiskFull,
    InvalidArgument,
    NotOffered,
    RecordTooLarge,
    UnrepresentableRecord,
)
from storage.rocketmq import queue as rocketmq_queue
from storage.rocketmq import schedule
from storage.rocketmq.format.config_json import decode_config
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.properties import (
    check_crc_property,
    decode_properties,
    encode_properties,
)
from storage.rocketmq.store import RocketMQStore
from tests.golden import rocketmq_stores as stores
from tests.unit.rocketmq.workshop import ROOT, T0, Workshop, put_file

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
PROGRESS = ROOT / "config" / "delayOffset.json"
BACKUP = ROOT / "config" / "delayOffset.json.bak"
T1 = TopicPartition("t", 1)
TIMER = TopicPartition("rmq_sys_wheel_timer", 0)


def delay(store: LogStore, value: bytes, level: int, to: TopicPartition = T0, **fields: Any) -> int:
    """Append a delayed record; return the time of its delivery."""
    assert isinstance(store, SupportsDelay)
    target, record = store.delays.delayed(Record(None, value, **fields), to, level)
    assert target == TopicPartition(SCHEDULE, level - 1)
    stamped_ms = store.append(target, [record]).timestamp_ms
    return stamped_ms + store.delays.levels[level - 1].delay_ms


def values(store: LogStore, of: TopicPartition = T0) -> list[bytes]:
    return [record.value or b"" for record in store.read(of, store.bounds(of).start).records]


def deliver(shop: Workshop, store: RocketMQStore) -> Delivery:
    return store.delays.deliver(shop.clock.now_ms)


def progress(shop: Workshop) -> dict[int, int]:
    found: dict[int, int] = decode_config(shop.fs.read_bytes(PROGRESS))["offsetTable"]
    return found


def put_raw(
    store: RocketMQStore, properties: dict[str, str], to: TopicPartition, body: bytes = b"raw"
) -> None:
    store.append_messages(to, [RawMessage(body, encode_properties(properties))])


def test_a_message_waits_for_its_time() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    due_ms = delay(store, b"later", 3)
    assert due_ms == shop.clock.now_ms + 10_000
    (stored,) = store.read(TopicPartition(SCHEDULE, 2), 0).records
    assert stored.properties is not None
    wanted = {"DELAY": "3", "REAL_TOPIC": "t", "REAL_QID": "0"}
    assert wanted.items() <= stored.properties.items()
    assert store.queues.units_of(SCHEDULE, 2) is not None
    shop.clock.now_ms = due_ms - 1
    assert deliver(shop, store) == Delivery((), 0, False)
    assert values(store) == []
    shop.clock.now_ms = due_ms
    assert deliver(shop, store) == Delivery((T0,), 1, False)
    assert values(store) == [b"later"]
    assert deliver(shop, store) == Delivery((), 0, False)
    assert progress(shop) == {3: 1}


def test_the_delivered_record_has_the_fields_of_the_waiting_one() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    properties = {"DELAY": "1", "REAL_TOPIC": "t", "REAL_QID": "0", "TAGS": "new", "a": "b"}
    raw = RawMessage(b"body", encode_properties(properties), 7, 0, 1234, b"\1\2\3\4\0\0\0\5", 3, 99)
    host = b"\x0a\0\0\1\0\0\x2a\x9f"
    level_1 = TopicPartition(SCHEDULE, 0)
    store.append_messages(level_1, [raw], store_host=host)
    shop.clock.now_ms += 1000
    deliver(shop, store)
    store.read(T0, 0)
    (entry,) = store.queues.of_topic("t")[0].units.read(0, 1)
    message = store.log.checked(
        store.log.read(entry.physical_offset, entry.size), 0, entry.physical_offset
    )
    assert message.body == b"body"
    assert decode_properties(message.properties) == properties
    assert (message.flag, message.born_timestamp_ms, message.reconsume_times) == (7, 1234, 3)
    assert (message.born_host, message.store_host) == (b"\1\2\3\4\0\0\0\5", host)
    assert message.prepared_transaction_offset == 0
    assert message.store_timestamp_ms == shop.clock.now_ms


def test_messages_of_a_level_leave_in_order_and_at_their_own_times() -> None:
    shop = Workshop()
    store = shop.open_with_topic(partitions=2)
    start_ms = shop.clock.now_ms
    for number in range(6):
        shop.clock.now_ms = start_ms + number
        delay(store, b"%d" % number, 1, (T0, T1)[number % 2])
        delay(store, b"late %d" % number, 2)
    for number in range(6):
        shop.clock.now_ms = start_ms + 1000 + number
        assert deliver(shop, store).messages == 1
    assert (values(store, T0), values(store, T1)) == ([b"0", b"2", b"4"], [b"1", b"3", b"5"])
    shop.clock.now_ms = start_ms + 3_600_000
    assert deliver(shop, store) == Delivery((T0,), 6, False)
    assert values(store, T0)[3:] == [b"late %d" % number for number in range(6)]


def test_a_delivery_with_a_limit_goes_on_in_the_next_one() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    for number in range(5):
        delay(store, b"%d" % number, 1 + number % 2)
    shop.clock.now_ms += 10_000
    first = store.delays.deliver(shop.clock.now_ms, max_records=2)
    assert (first.messages, first.more) == (3, True)
    assert (deliver(shop, store).messages, deliver(shop, store).messages) == (2, 0)
    assert sorted(values(store)) == [b"0", b"1", b"2", b"3", b"4"]


def test_more_messages_than_one_append_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocketmq_queue, "ENTRIES_READ", 3)
    monkeypatch.setattr(schedule, "DELIVERED_BYTES", 500)
    shop = Workshop()
    store = shop.open_with_topic()
    for number in range(10):
        delay(store, b"%d" % number * 100, 1)
    shop.clock.now_ms += 1000
    assert deliver(shop, store).messages == 10
    assert values(store) == [b"%d" % number * 100 for number in range(10)]


def test_progress_is_kept_as_the_broker_keeps_it() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    for level in (1, 3, 3):
        delay(store, b"v", level)
    shop.clock.now_ms += 1000
    deliver(shop, store)
    first = shop.fs.read_bytes(PROGRESS)
    assert first == (
        b'{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"stateVersion":0,\n\t\t"timestamp":%d\n\t},\n'
        b'\t"offsetTable":{\n\t\t1:1\n\t}\n}' % shop.clock.now_ms
    )
    shop.clock.now_ms += 10_000
    deliver(shop, store)
    assert progress(shop) == {1: 1, 3: 2}
    assert shop.fs.read_bytes(BACKUP) == first
    store.close()
    again = shop.open()
    assert deliver(shop, again).messages == 0
    assert shop.fs.read_bytes(BACKUP) == first


def test_unknown_content_of_the_progress_is_kept() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    for _ in range(3):
        delay(store, b"v", 2)
    store.close()
    stored = b'{"offsetTable":{"2":1,77:5,-1:3},"other":[1],"dataVersion":{"counter":9,"more":1}}'
    put_file(shop.fs, PROGRESS, stored)
    store = shop.open(accept_loss=True)
    shop.clock.now_ms += 5000
    assert deliver(shop, store).messages == 2
    content = decode_config(shop.fs.read_bytes(PROGRESS))
    assert content["offsetTable"] == {2: 3, 77: 5, -1: 3}
    assert content["other"] == [1]
    assert (content["dataVersion"]["counter"], content["dataVersion"]["more"]) == (10, 1)


def test_a_damaged_progress_is_read_from_its_backup() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    for _ in range(3):
        delay(store, b"v", 2)
    store.close()
    put_file(shop.fs, PROGRESS, b"{")
    put_file(shop.fs, BACKUP, b'{"offsetTable":{2:2}}')
    shop.clock.now_ms += 5000
    store = shop.open()
    assert "bad-config-file" in [finding.code for finding in store.recovery.findings]
    assert deliver(shop, store).messages == 1
    assert shop.fs.read_bytes(ROOT / ".logserver.delayOffset.damaged.json") == b"{"


@pytest.mark.parametrize(("stored", "left"), [(0, 3), (1, 2), (3, 0), (9, 0)])
def test_progress_outside_the_queue_is_corrected(stored: int, left: int) -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    for _ in range(3):
        delay(store, b"v", 2)
    store.close()
    put_file(shop.fs, PROGRESS, b'{"offsetTable":{2:%d}}' % stored)
    store = shop.open(accept_loss=True)
    delay(store, b"new", 2)
    shop.clock.now_ms += 5000
    assert deliver(shop, store).messages == left + 1
    assert values(store)[-1] == b"new"


def test_what_is_delivered_survives_a_kill_and_is_not_delivered_again() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    delay(store, b"a", 1)
    shop.clock.now_ms += 1000
    deliver(shop, store)
    delay(store, b"b", 1)
    killed = shop.after_kill()
    other = killed.open()
    killed.clock.now_ms += 999
    assert deliver(killed, other).messages == 0
    killed.clock.now_ms += 1
    assert deliver(killed, other).messages == 1
    assert values(other) == [b"a", b"b"]


def test_the_levels_of_a_setting_decide_and_a_shorter_setting_loses_nothing() -> None:
    shop = Workshop()
    store = shop.open_with_topic({"messageDelayLevel": "1s 2s 1h"})
    start_ms = shop.clock.now_ms
    assert [level.delay_ms for level in store.delays.levels] == [1000, 2000, 3_600_000]
    assert delay(store, b"an hour", 3) == start_ms + 3_600_000
    with pytest.raises(InvalidArgument, match="levels are 1 to 3"):
        delay(store, b"v", 4)
    with pytest.raises(InvalidArgument):
        delay(store, b"v", 0)
    store.close()
    store = shop.open({"messageDelayLevel": "1s"})
    shop.clock.now_ms = start_ms + 3_599_999
    assert deliver(shop, store).messages == 0
    shop.clock.now_ms += 1
    assert deliver(shop, store).messages == 1


def test_a_clock_that_is_set_back_makes_nothing_early() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    due_ms = delay(store, b"v", 1)
    shop.clock.now_ms = due_ms - 10_000_000
    assert deliver(shop, store).messages == 0
    assert store.delays.lag_ms(shop.clock.now_ms) == 0
    shop.clock.now_ms = due_ms
    assert deliver(shop, store).messages == 1


def test_lag_is_the_time_since_the_oldest_message_was_due() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    due_ms = delay(store, b"v", 1)
    delay(store, b"v", 2)
    deliver(shop, store)
    assert store.delays.lag_ms(due_ms - 1) == 0
    assert store.delays.lag_ms(due_ms + 500) == 500
    shop.clock.now_ms = due_ms
    deliver(shop, store)
    assert store.delays.lag_ms(due_ms + 500) == 0


BAD: dict[str, dict[str, str]] = {
    "no topic": {"REAL_QID": "0"},
    "no queue": {"REAL_TOPIC": "t"},
    "queue is no number": {"REAL_TOPIC": "t", "REAL_QID": "x"},
    "negative queue": {"REAL_TOPIC": "t", "REAL_QID": "-1"},
    "half message": {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
    "no folder has this name": {"REAL_TOPIC": "a/b", "REAL_QID": "0"},
    "a topic too long": {"REAL_TOPIC": "x" * 300, "REAL_QID": "0"},
}


@pytest.mark.parametrize("bad", list(BAD))
def test_a_message_that_names_no_queue_is_passed_over(
    bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    level_1 = TopicPartition(SCHEDULE, 0)
    delay(store, b"before", 1)
    put_raw(store, {"DELAY": "1", **BAD[bad]}, level_1)
    delay(store, b"after", 1)
    shop.clock.now_ms += 1000
    with caplog.at_level(logging.ERROR):
        assert deliver(shop, store).messages == 3
    assert values(store) == [b"before", b"after"]
    assert "not delivered" in caplog.text
    assert progress(shop) == {1: 3}
    assert len(store.read(level_1, 0).records) == 3


def test_a_damaged_message_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    for name in (b"before", b"damaged", b"after"):
        delay(store, name, 1)
    store.read(TopicPartition(SCHEDULE, 0), 0)
    data = shop.fs.read_bytes(shop.log_path())
    shop.overwrite(shop.log_path(), data.index(b"damaged"), b"DAMAGED")
    shop.clock.now_ms += 1000
    assert deliver(shop, store).messages == 3
    assert values(store) == [b"before", b"after"]
    assert "offset 1: not delivered" in caplog.text
    assert [one.offset for one in store.delays.waiting(5).records] == []


def test_a_missing_log_file_takes_along_no_other_delayed_message() -> None:
    shop = Workshop()
    sent = [b"message-%02d." % number for number in range(30)]
    with shop.open_with_topic() as store:
        for value in sent:
            delay(store, value, 1)
    missing = shop.log_path(shop.log_bases()[2])
    lost = {value for value in sent if value in shop.fs.read_bytes(missing)}
    assert lost
    shop.fs.remove(missing)
    shop.clock.now_ms += 1000
    with shop.open() as store:
        while deliver(shop, store).messages:
            pass
        assert values(store) == [value for value in sent if value not in lost]


def test_a_deleted_topic_comes_back_with_its_delayed_messages() -> None:
    """As in the broker, which delivers to any topic."""
    shop = Workshop()
    store = shop.open_with_topic()
    delay(store, b"v", 1)
    store.delete_topic("t")
    shop.clock.now_ms += 1000
    assert deliver(shop, store).messages == 1
    assert values(store) == [b"v"]
    store.close()
    assert values(shop.open()) == [b"v"]


@pytest.mark.parametrize("attribute", ["cleanup.policy=COMPACTION", "queue.type=BatchCQ"])
def test_messages_that_only_a_broker_can_deliver_hold_up_their_level_alone(attribute: str) -> None:
    """The messages before them leave once. They were appended again by every delivery, ten times a second."""
    shop = Workshop()
    store = shop.open_with_topic()
    other = TopicPartition("c", 0)
    store.create_topic("c", 1)
    for number in range(2):
        delay(store, b"%d" % number, 1)
    delay(store, b"held up", 1, other)
    delay(store, b"after", 1)
    delay(store, b"another level", 2)
    store.close()
    shop.set_attribute("c", attribute)
    store = shop.open()
    shop.clock.now_ms += 5000
    first = deliver(shop, store)
    assert (first.partitions, first.messages, first.more) == ((T0,), 3, False)
    assert first.refused is not None
    assert values(store) == [b"0", b"1", b"another level"]
    assert progress(shop) == {1: 2, 2: 1}
    log_end = store.log.end
    for _ in range(3):
        again = deliver(shop, store)
        assert (again.partitions, again.messages) == ((), 0)
        assert again.refused is not None
        assert "'c'" in again.refused.message
    assert store.log.end == log_end
    assert store.delays.lag_ms(shop.clock.now_ms) == 4000
    with pytest.raises(NotOffered):
        store.delays.delayed(Record(None, b"v"), other, 1)


def test_a_lower_limit_for_messages_loses_none_that_wait() -> None:
    shop = Workshop()
    store = shop.open_with_topic({"maxMessageSize": "500"})
    bodies = [b"%d" % number * length for number, length in enumerate((500, 300, 1, 400))]
    for body in bodies:
        delay(store, body, 1)
    store.close()
    store = shop.open({"maxMessageSize": "100"})
    with pytest.raises(RecordTooLarge):
        delay(store, bodies[0], 1)
    shop.clock.now_ms += 1000
    assert deliver(shop, store).messages == 4
    assert values(store) == bodies
    store.close()
    assert values(shop.open({"maxMessageSize": "100"})) == bodies


def test_while_a_delivery_fails_nothing_leaves_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A disk with room for the small messages and not for the large ones: the small ones leave twice at most."""
    shop = Workshop()
    store = shop.open_with_topic(partitions=2)
    for number in range(8):
        delay(store, b"%d" % number, 1, T1 if number in {3, 6} else T0)
    delay(store, b"another level", 2)
    shop.clock.now_ms += 5000
    append_run = store.append_run

    def full(partition: TopicPartition, run: Any, **options: Any) -> Any:
        if partition == T1 and free[0] == 0:
            raise DiskFull("the disk is full", path="/w")
        free[0] -= partition == T1
        return append_run(partition, run, **options)

    free = [0]  # large messages that the disk has room for
    with monkeypatch.context() as patched:
        patched.setattr(store, "append_run", full)
        for number in range(20):
            free[0] = int(number == 10)
            with pytest.raises(DiskFull):
                deliver(shop, store)
    store.flush()
    small = [b"0", b"1", b"2", b"4", b"5", b"7"]
    assert values(store) == [*small, *small[:5]]
    assert progress(shop) == {1: 6}
    assert store.delays.lag_ms(shop.clock.now_ms) == 4000
    while deliver(shop, store).more:
        pass
    assert values(store, T1) == [b"3", b"6"]
    assert values(store) == [*small, *small, b"another level"]
    assert progress(shop) == {1: 8, 2: 1}
    for number in range(3):
        delay(store, b"new %d" % number, 1, T0)
    shop.clock.now_ms += 1000
    with patch.object(store, "append_run", wraps=append_run) as appends:
        assert deliver(shop, store).messages == 3
    assert appends.call_count == 1


def test_the_mark_of_a_request_stays_with_the_waiting_message() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    target, record = store.delays.delayed(Record(None, b"v", tag="T"), T0, 1)
    producer = ProducerSequence(store.new_producer_id(), 0, 0)
    first = store.append(target, [record], producer=producer)
    again = store.append(target, [record], producer=producer)
    assert (again.duplicate, again.base_offset, again.timestamp_ms) == (True, 0, -1)
    assert again.locators == first.locators
    shop.clock.now_ms += 1000
    assert deliver(shop, store).messages == 1
    (stored,) = store.read(T0, 0).records
    assert stored.properties is not None
    assert "__LOGSERVER_SEQ" not in stored.properties
    assert stored.tag == "T"


def test_records_of_other_topics_cannot_set_the_properties_of_a_delay() -> None:
    store = Workshop().open_with_topic()
    with pytest.raises(UnrepresentableRecord):
        store.append(T0, [Record(None, b"v", properties={"DELAY": "1"})])


def test_a_closed_record_gets_its_own_crc() -> None:
    shop = Workshop()
    store = shop.open_with_topic({"enabledAppendPropCRC": "true"})
    delay(store, b"v", 1)
    shop.clock.now_ms += 1000
    deliver(shop, store)
    store.read(T0, 0)
    (entry,) = store.queues.of_topic("t")[0].units.read(0, 1)
    assert check_crc_property(store.log.read(entry.physical_offset, entry.size))


def test_the_list_is_by_time_in_pages() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    for number, level in enumerate((3, 1, 2, 1, 3)):
        shop.clock.now_ms += 1
        delay(store, b"%d" % number, level, tag=f"tag{number}")
    page, pages = store.delays.waiting(2), 1
    found = list(page.records)
    while page.cursor is not None:
        page, pages = store.delays.waiting(2, page.cursor), pages + 1
        found += page.records
    assert [one.tag for one in found] == ["tag1", "tag3", "tag2", "tag0", "tag4"]
    assert [one.deliver_at_ms for one in found] == sorted(one.deliver_at_ms for one in found)
    assert pages == 3
    first = store.delays.waiting(2)
    assert first.cursor is not None
    shop.clock.now_ms += 4990
    deliver(shop, store)
    rest = store.delays.waiting(9, first.cursor).records
    assert [one.tag for one in rest] == ["tag2", "tag0", "tag4"]
    for bad in ("", "x", "1", "1:2,", ":", "1:-2"):
        with pytest.raises(InvalidArgument):
            store.delays.waiting(1, bad)


# ---- RocketMQ 5's timer


def put_timed(store: RocketMQStore, due_ms: int, **more: str) -> None:
    properties = {"TIMER_OUT_MS": str(due_ms), "REAL_TOPIC": "t", "REAL_QID": "0", **more}
    put_raw(store, properties, TIMER)


def test_timed_messages_are_listed_warned_of_and_never_touched() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    put_timed(store, 100)
    put_timed(store, 300)
    put_timed(store, 400, TIMER_DEL_UNIQKEY="x")
    put_raw(store, {"a": "b"}, TIMER)
    put_timed(store, 200)
    assert [one.deliver_at_ms for one in store.delays.timers(9).records] == [100, 300, 200]
    store.close()
    put_file(shop.fs, ROOT / "config" / "timercheck", pack(">5q", 150, 0, 0, 0, 0))
    store = shop.open()
    page = store.delays.timers(1)
    assert [(one.deliver_at_ms, one.level, one.topic) for one in page.records] == [(300, None, "t")]
    assert [one.deliver_at_ms for one in store.delays.timers(9, page.cursor).records] == [200]
    (found,) = [one for one in store.recovery.findings if one.code == schedule.TIMERS_CODE]
    assert "2 of the newest 5" in found.message
    shop.clock.now_ms += 10_000_000
    assert deliver(shop, store).messages == 0
    store.close()
    put_file(shop.fs, ROOT / "config" / "timercheck", pack(">5q", 300, 0, 0, 0, 0))
    assert schedule.TIMERS_CODE not in [one.code for one in shop.open().recovery.findings]


def test_a_read_only_start_does_not_warn_of_timers() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    put_timed(store, 100)
    store.close()
    only = shop.open(read_only=True)
    assert schedule.TIMERS_CODE not in [one.code for one in only.recovery.findings]
    assert len(only.delays.timers(9).records) == 1


# ---- stores of the real broker


def messages(store: RocketMQStore, topic: str) -> list[Message]:
    """Return the records of a topic, queue by queue."""
    found = []
    for queue in store.queues.of_topic(topic):
        store.files.catch_up(queue, queue.bounds().end)
        for _, entry in queue.units.entries(queue.units.start, queue.bounds().end):
            at = entry.physical_offset
            found.append(store.log.checked(store.log.read(at, entry.size), 0, at))
    return found


def kept_fields(message: Message) -> tuple[object, ...]:
    """Return what a delivery decides about a record, apart from its places and its store time."""
    return (
        message.topic,
        message.queue_id,
        message.body,
        decode_properties(message.properties),
        message.flag,
        message.sys_flag,
        message.born_timestamp_ms,
        message.born_host,
        message.store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
    )


def test_deliveries_are_those_of_the_real_broker() -> None:
    """Without its progress every message of its log is delivered again: each new record is like the broker's."""
    golden = stores.golden("broker")
    fs = stores.overlay()
    path = golden.root / "config" / PROGRESS.name
    for file in (path, path.with_name(BACKUP.name)):
        put_file(fs, file, b'{"offsetTable":{}}')
    now_ms = 4_000_000_000_000
    store = stores.open_golden(golden, fs=fs, clock=lambda: now_ms)
    assert isinstance(store, RocketMQStore)
    waiting = store.delays.waiting(1000).records
    topics = {one.topic for one in waiting if one.topic is not None}
    before = {topic: messages(store, topic) for topic in topics}
    assert store.delays.deliver(now_ms).messages == len(waiting) > 10
    compared = 0
    for topic, old in before.items():
        by_id = {decode_properties(one.properties)["UNIQ_KEY"]: one for one in old}
        new = messages(store, topic)
        for one in new:
            if one.store_timestamp_ms != now_ms:
                continue
            broker_own = by_id.get(decode_properties(one.properties)["UNIQ_KEY"])
            if broker_own is not None:
                assert kept_fields(one) == kept_fields(broker_own)
                compared += 1
    store.close()
    assert compared > 10


@pytest.mark.parametrize("name", ["broker", "system"])
def test_a_store_of_the_real_server_goes_on_where_it_stopped(name: str) -> None:
    golden = stores.golden(name)
    fs = stores.overlay()
    now_ms = 4_000_000_000_000
    store = stores.open_golden(golden, fs=fs, clock=lambda: now_ms)
    assert isinstance(store, RocketMQStore)
    path = golden.root / "config" / PROGRESS.name
    done = decode_config(path.read_bytes())["offsetTable"] if path.exists() else {}
    scheduled = [
        row
        for row in golden.expected()
        if row["topic"] == SCHEDULE and row["queueOffset"] >= done.get(row["queueId"] + 1, 0)
    ]
    waiting = store.delays.waiting(1000).records
    assert sorted((one.level, one.offset) for one in waiting) == sorted(
        (row["queueId"] + 1, row["queueOffset"]) for row in scheduled
    )
    assert {(one.level, one.offset): one.deliver_at_ms for one in waiting} == {
        (row["queueId"] + 1, row["queueOffset"]): row["tagsCode"] for row in scheduled
    }
    assert store.delays.deliver(now_ms).messages == len(waiting)
    assert store.delays.waiting(10).records == []
    store.close()
