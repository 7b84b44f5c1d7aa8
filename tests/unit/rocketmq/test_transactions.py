"""Half messages on a driven clock: the broker's own records, commit and rollback, checks, restarts, and damage."""

from __future__ import annotations

from contextlib import suppress

import pytest

from storage import (
    HalfEnd,
    HalfOutcome,
    HalfTransaction,
    Prepared,
    RawMessage,
    Record,
    TopicPartition,
)
from storage.errors import (
    DiskFull,
    InvalidArgument,
    InvalidTopic,
    NotOffered,
    RecordTooLarge,
    StoreReadOnly,
    UnknownPartition,
    UnknownTopic,
)
from storage.files import OverlayFileSystem
from storage.rocketmq import half_queues, queue, transactions
from storage.rocketmq.format import half_message
from storage.rocketmq.format.message import TRANSACTION_COMMIT, Message
from storage.rocketmq.format.properties import decode_properties, encode_properties
from storage.rocketmq.half_queues import GROUP
from storage.rocketmq.store import RocketMQStore
from storage.rocketmq.transactions import HALF, MAX_TIME
from tests.golden import rocketmq_stores as stores
from tests.robustness.crash.faulty import FaultyFileSystem, at_change, disk_full, no_fault
from tests.unit.rocketmq.workshop import LOG_BYTES, T0, Workshop, values

OP = TopicPartition("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)
T1 = TopicPartition("t", 1)
CHECK_MS = 30_000
TIMEOUT_MS = 60_000
HOUR_MS = 3_600_000


def put(
    store: RocketMQStore,
    transaction: str,
    *values: str,
    at: TopicPartition = T0,
    timeout_ms: int = TIMEOUT_MS,
) -> None:
    """Append half messages of a transaction, as the server does."""
    prepared = Prepared(transaction, "billing", timeout_ms)
    for value in values:
        record = Record(b"key", value.encode(), [("h", b"1")], tag="red")
        target, half = store.half_messages.prepared(record, at, prepared)
        store.append(target, [half])


def end(store: RocketMQStore, transaction: str, *, commit: bool = True) -> HalfOutcome | None:
    (ended,) = store.half_messages.end([HalfEnd(transaction, commit)])
    if ended.error is not None:
        raise ended.error
    return ended.outcome


def message(store: RocketMQStore, of: TopicPartition, offset: int) -> Message:
    record = store.read(of, offset, max_records=1).records[0]
    return store.message_by_id(store.record_id(of, record.locator)).message


def client_half(name: str = "U1", **more: str) -> RawMessage:
    """Return the half message that a broker makes of a RocketMQ client's message."""
    properties = {
        **({"UNIQ_KEY": name, "__transactionId__": name} if name else {}),
        **{"TRAN_MSG": "true", "PGROUP": "shop", "REAL_TOPIC": "t", "REAL_QID": "1"},
        **more,
    }
    return RawMessage(name.encode(), encode_properties(properties), 3, 0, 1_700_000_000_000)


def ids(store: RocketMQStore) -> list[str]:
    return [one.id for one in store.half_messages.transactions()]


def opened(shop: Workshop) -> RocketMQStore:
    return shop.open_with_topic(partitions=2)


def progress(store: RocketMQStore) -> list[int]:
    return [committed.offset for committed in store.committed(GROUP).values()]


# ---- the broker's own records ----


def test_commits_are_the_broker_s() -> None:
    """What the real broker made of its half messages is what we make of them, byte by byte but for the order."""
    golden = stores.golden("broker")
    rows = {row["queueOffset"]: row for row in golden.expected() if row["topic"] == HALF.topic}
    committed = [row for row in golden.expected() if row["topic"] == "order-tx-topic"]
    assert len(committed) == 4
    by_place = {row["physicalOffset"]: offset for offset, row in rows.items()}
    for row in committed:
        theirs = golden.message(row["physicalOffset"])
        place = theirs.prepared_transaction_offset
        half = golden.message(place)
        fields = half_message.half_fields(half, 0, by_place[place])
        target, raw = half_message.committed(half, fields, place, 18)
        assert target == (theirs.topic, theirs.queue_id)
        assert raw.properties == theirs.properties
        assert raw == RawMessage(
            theirs.body,
            theirs.properties,
            theirs.flag,
            theirs.sys_flag,
            theirs.born_timestamp_ms,
            theirs.born_host,
            theirs.reconsume_times,
            place,
        )


def test_checks_and_op_records_are_the_broker_s() -> None:
    golden = stores.golden("broker")
    rows = {row["queueOffset"]: row for row in golden.expected() if row["topic"] == HALF.topic}
    for first, second in ((2, 12), (12, 16), (11, 15), (15, 19)):
        half = golden.message(rows[first]["physicalOffset"])
        theirs = golden.message(rows[second]["physicalOffset"])
        raw = half_message.checked(half, half_message.half_fields(half, 0, first), first)
        assert decode_properties(raw.properties) == decode_properties(theirs.properties)
        assert (raw.body, raw.sys_flag, raw.born_host) == (
            theirs.body,
            theirs.sys_flag,
            theirs.born_host,
        )
    (row,) = [row for row in golden.expected() if row["topic"] == OP.topic]
    theirs = golden.message(row["physicalOffset"])
    assert half_message.op_fields(theirs) == ([0, 1, 4, 3, 6, 7, 10, 9], [])
    (ours,) = half_message.op_messages([("", "c", [0, 1])], 5, b"\0" * 8)
    assert (
        decode_properties(ours.properties).items() >= decode_properties(theirs.properties).items()
    )
    assert ours.body == b"0,1,"


def test_the_transactions_of_the_broker_are_open() -> None:
    """Its four unknown ones are listed, each once, in spite of two checks; the ended ones are not."""
    golden = stores.golden("broker")
    newest = {
        row["properties"]["UNIQ_KEY"]: row
        for row in golden.expected()
        if row["topic"] == HALF.topic and row["queueOffset"] in (2, 5, 8, 11, 16, 17, 18, 19)
    }
    now_ms = max(row["bornTimestamp"] for row in newest.values()) + 1000
    store = stores.open_golden(golden, fs=stores.overlay(), clock=lambda: now_ms)
    assert isinstance(store, RocketMQStore)
    found = store.half_messages.transactions()
    assert [one.id for one in found] == list(newest)
    assert {(one.group, one.messages, one.checks, one.is_ours) for one in found} == {
        ("order-tx", 1, 2, False)
    }
    assert all(one.is_unknown(now_ms) for one in found)
    first, second, *_ = found
    target = first.partitions[0]
    before = store.bounds(target).end
    assert end(store, first.id) is HalfOutcome.COMMITTED
    assert end(store, second.id, commit=False) is HalfOutcome.ROLLED_BACK
    row = newest[first.id]
    ended = message(store, target, before)
    assert ended.prepared_transaction_offset == row["physicalOffset"]
    assert ended.sys_flag == TRANSACTION_COMMIT
    assert message(store, OP, 1).body == b"%d," % row["queueOffset"]
    store.half_messages.check(now_ms + CHECK_MS)
    assert progress(store) == [20, 3]  # the other two were written again: 20 and 21
    assert [one.checks for one in store.half_messages.transactions()] == [3, 3]
    store.close()


# ---- commit and rollback ----


def test_messages_are_seen_from_the_commit_on_and_not_before() -> None:
    store = opened(Workshop())
    put(store, "x", "a", "b")
    put(store, "x", "c", at=T1)
    assert values(store) == values(store, T1) == []
    (one,) = store.half_messages.transactions()
    assert one[:5] == ("x", "billing", True, [T0, T1], 3)
    assert end(store, "x") is HalfOutcome.COMMITTED
    assert (values(store), values(store, T1)) == ([b"a", b"b"], [b"c"])
    record = store.read(T0, 0).records[0]
    assert (record.key, record.tag, record.headers) == (b"key", "red", [("h", b"1")])
    assert ids(store) == []
    assert message(store, OP, 0).body == b"0,1,2,"


def test_a_rolled_back_message_is_never_seen() -> None:
    shop = Workshop()
    store = opened(shop)
    put(store, "x", "a")
    assert end(store, "x", commit=False) is HalfOutcome.ROLLED_BACK
    shop.clock.now_ms += 20 * HOUR_MS
    store.half_messages.check(shop.clock.now_ms)
    assert values(store) == []
    assert progress(store) == [1, 1]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("restart", [True, False])
def test_a_repeat_changes_nothing(commit: bool, restart: bool) -> None:
    shop = Workshop()
    store = opened(shop)
    put(store, "x", "a")
    outcome = end(store, "x", commit=commit)
    if restart:
        shop = shop.after_kill()
        store = shop.open()
    for wish in (commit, not commit, commit):
        assert end(store, "x", commit=wish) is outcome
    assert store.half_messages.find("x") is outcome
    assert values(store) == ([b"a"] if commit else [])
    assert store.bounds(OP).end == 1


def test_an_unknown_transaction() -> None:
    store = opened(Workshop())
    assert end(store, "x") is None
    assert store.half_messages.find("x") is None
    put(store, "y", "a")
    assert end(store, "x") is None


def test_many_are_ended_by_one_op_record() -> None:
    store = opened(Workshop())
    for number in range(5):
        put(store, f"x{number}", f"{number}")
    ended = store.half_messages.end([HalfEnd(f"x{n}", n % 2 == 0) for n in range(5)])
    assert [one.outcome for one in ended] == [
        HalfOutcome.ROLLED_BACK if n % 2 else HalfOutcome.COMMITTED for n in range(5)
    ]
    assert values(store) == [b"0", b"2", b"4"]
    assert store.bounds(OP).end == 1


def test_op_records_have_the_broker_s_size() -> None:
    rows = [(f"{n:064}", "c", range(n * 10, n * 10 + 10)) for n in range(1000)]
    found = half_message.op_messages(rows, 0, b"\0" * 8)
    assert all(len(one.body) <= half_message.OP_BODY_BYTES for one in found)
    offsets = [offset for one in found for offset in map(int, one.body.decode().split(",")[:-1])]
    assert offsets == list(range(10_000))
    for one in found:
        named = decode_properties(one.properties)["__LOGSERVER_TXN"].split(" ")
        mine = {int(offset) // 10 for offset in one.body.decode().split(",")[:-1]}
        assert named == [f"c:{n:064}" for n in sorted(mine)]


def test_open_transactions_survive_a_kill() -> None:
    shop = Workshop()
    store = opened(shop)
    put(store, "x", "a", "b")
    put(store, "y", "c")
    end(store, "y")
    before = store.half_messages.transactions()
    shop = shop.after_kill()
    store = shop.open()
    assert store.half_messages.transactions() == before
    put(store, "x", "d")
    end(store, "x")
    assert values(store) == [b"c", b"a", b"b", b"d"]


def test_two_messages_with_one_unique_id_are_two() -> None:
    store = opened(Workshop())
    one = Prepared("x", "g", TIMEOUT_MS)
    record = Record(None, b"a", properties={"UNIQ_KEY": "U"})
    target, half = store.half_messages.prepared(record, T0, one)
    store.append(target, [half])
    store.append(target, [store.half_messages.prepared(record, T0, one)[1]])
    end(store, "x")
    assert values(store) == [b"a", b"a"]


def test_a_message_of_a_client_with_a_delay_level_waits_for_it() -> None:
    shop = Workshop()
    store = opened(shop)
    store.append_messages(HALF, [client_half(DELAY="99")])
    assert end(store, "U1") is HalfOutcome.COMMITTED
    assert values(store, T1) == []
    (waiting,) = store.delays.waiting(10).records
    assert (waiting.topic, waiting.partition, waiting.level) == ("t", 1, 18)
    store.delays.deliver(shop.clock.now_ms + 2 * HOUR_MS)
    assert values(store, T1) == [b"U1"]


def test_a_message_that_names_no_queue_can_be_rolled_back_only() -> None:
    store = opened(Workshop())
    store.append_messages(HALF, [client_half(REAL_QID="x")])
    (one,) = store.half_messages.transactions()
    assert one.partitions == []
    with pytest.raises(InvalidTopic):
        end(store, "U1")
    assert end(store, "U1", commit=False) is HalfOutcome.ROLLED_BACK


@pytest.mark.parametrize("name", ["", "no id", "x" * 65, "a/b"])
def test_a_message_without_a_good_unique_id_has_one_of_its_place(name: str) -> None:
    shop = Workshop()
    store = opened(shop)
    store.append_messages(HALF, [client_half(name)])
    for _ in range(2):  # a check writes it again, under the same id
        assert ids(store) == ["half-0-0"]
        shop.clock.now_ms += CHECK_MS
        store.half_messages.check(shop.clock.now_ms)
    store = shop.after_kill().open()
    assert ids(store) == ["half-0-0"]
    assert end(store, ids(store)[0]) is HalfOutcome.COMMITTED
    assert values(store, T1) == [name.encode()]


def test_a_group_that_no_message_can_name() -> None:
    store = opened(Workshop())
    store.half_messages.check_group("billing-1")
    for group in ("", "a b", "ä", "x" * 300):
        with pytest.raises(InvalidArgument):
            store.half_messages.check_group(group)


# ---- checks ----


def test_a_message_is_checked_after_its_time_fifteen_times() -> None:
    shop = Workshop()
    store = opened(shop)
    put(store, "x", "a", "b")
    store.half_messages.check(shop.clock.now_ms + TIMEOUT_MS)
    assert [one.checks for one in store.half_messages.transactions()] == [0]
    shop.clock.now_ms += TIMEOUT_MS + 1
    for times in range(1, 16):
        (one,) = store.half_messages.transactions()
        assert one.is_unknown(shop.clock.now_ms)
        checked = store.half_messages.check(shop.clock.now_ms)
        assert (checked.checked, checked.ended) == (2, [])
        (one,) = store.half_messages.transactions()
        assert (one.checks, one.messages) == (times, 2)
        assert progress(store)[0] == 2 * times
        shop.clock.now_ms += CHECK_MS
        if times == 7:
            store.close()
            store = shop.open()
    checked = store.half_messages.check(shop.clock.now_ms)
    assert (checked.checked, checked.ended) == (0, ["x"])
    assert values(store, MAX_TIME) == [b"a", b"b"]
    assert (
        decode_properties(message(store, MAX_TIME, 0).properties)["TRANSACTION_CHECK_TIMES"] == "15"
    )
    assert end(store, "x") is HalfOutcome.DISCARDED
    assert ids(store) == []
    assert values(store) == []
    assert progress(store) == [32, 1]
    assert store.topics()[MAX_TIME.topic].partitions == range(1)


def test_a_late_commit_delivers_once() -> None:
    """After checks, a kill and more checks: every half message of a message counts as one."""
    shop = Workshop()
    store = opened(shop)
    put(store, "x", "a", "b")
    for _ in range(3):
        shop.clock.now_ms += TIMEOUT_MS + 1
        store.half_messages.check(shop.clock.now_ms)
        shop = shop.after_kill()
        store = shop.open()
    assert end(store, "x") is HalfOutcome.COMMITTED
    assert values(store) == [b"a", b"b"]
    store.half_messages.check(shop.clock.now_ms)
    assert progress(store) == [8, 1]


def test_a_message_without_room_for_its_checks_stops_no_other() -> None:
    shop = Workshop()
    store = opened(shop)
    put(store, "x", "a", timeout_ms=1)
    for size_bytes in range(1000, 0, -10):  # the largest that a file of the log holds
        record = Record(None, b"a", [("h", b"1" * size_bytes)])
        target, half = store.half_messages.prepared(record, T0, Prepared("y", "billing", 1))
        with suppress(RecordTooLarge):
            store.append(target, [half])
            break
    put(store, "z", "a", timeout_ms=1)
    shop.clock.now_ms += CHECK_MS
    assert store.half_messages.check(shop.clock.now_ms).checked == 2
    assert [one.checks for one in store.half_messages.transactions()] == [1, 0, 1]
    assert store.half_messages.check(shop.clock.now_ms + 73 * HOUR_MS).ended == ["x", "y", "z"]


def test_all_messages_of_a_transaction_are_discarded_together() -> None:
    shop = Workshop()
    store = opened(shop)
    put(store, "x", "a", timeout_ms=1)
    for _ in range(15):
        shop.clock.now_ms += CHECK_MS
        store.half_messages.check(shop.clock.now_ms)
    put(store, "x", "b")
    shop.clock.now_ms += CHECK_MS
    store.half_messages.check(shop.clock.now_ms)
    assert values(store, MAX_TIME) == [b"a", b"b"]
    assert ids(store) == []


def test_a_message_older_than_the_log_s_time_is_discarded() -> None:
    shop = Workshop()
    store = opened(shop)
    put(store, "x", "a", timeout_ms=200 * HOUR_MS)
    store.half_messages.check(shop.clock.now_ms + 72 * HOUR_MS)
    assert ids(store) == ["x"]
    assert store.half_messages.check(shop.clock.now_ms + 72 * HOUR_MS + 1).ended == ["x"]


def test_the_settings_are_the_broker_s() -> None:
    shop = Workshop()
    store = shop.open_with_topic(
        {"transactionTimeOut": "1000", "transactionCheckMax": "1", "fileReservedTime": "1"},
        partitions=2,
    )
    store.append_messages(
        HALF, [client_half(), client_half("U2", CHECK_IMMUNITY_TIME_IN_SECONDS="9")]
    )
    born_ms = 1_700_000_000_000
    assert store.half_messages.check(born_ms + 1000).checked == 0
    assert store.half_messages.check(born_ms + 1001).checked == 1
    checked = store.half_messages.check(born_ms + 9001)
    assert (checked.checked, checked.ended) == (1, ["U1"])
    store.append_messages(HALF, [client_half("U3", CHECK_IMMUNITY_TIME_IN_SECONDS="9999")])
    assert store.half_messages.check(born_ms + HOUR_MS + 1).ended == ["U2", "U3"]


def test_a_time_of_the_future_is_checked_at_once() -> None:
    store = opened(Workshop())
    store.append_messages(HALF, [client_half()])
    assert store.half_messages.check(1_700_000_000_000 - 1).checked == 1


def test_a_message_that_a_client_sent_twice_is_one() -> None:
    store = opened(Workshop())
    store.append_messages(HALF, [client_half(), client_half()])
    assert end(store, "U1") is HalfOutcome.COMMITTED
    assert values(store, T1) == [b"U1"]
    assert message(store, OP, 0).body == b"0,1,"


def test_a_copy_is_ended_with_the_message_that_it_names() -> None:
    """The broker writes a message again before its own time-out, and its producer ends the first half message."""
    store = opened(Workshop())
    store.append_messages(HALF, [client_half(""), client_half("", TRAN_PREPARED_QUEUE_OFFSET="0")])
    op = encode_properties({"WAIT": "true", "TAGS": "d"})
    store.append_messages(OP, [RawMessage(b"0,", op)])
    assert ids(store) == []


@pytest.mark.parametrize("body", [b"", b"x,-1,,", b"\xff", b"99999999999999999999999,"])
def test_a_bad_op_record_ends_nothing(body: bytes) -> None:
    store = opened(Workshop())
    store.append_messages(HALF, [client_half()])
    for tag in ("d", "other"):
        op = encode_properties({"TAGS": tag, "__LOGSERVER_TXN": "z:U1 c c: :x"})
        store.append_messages(
            OP, [RawMessage(body, op), RawMessage(b"0,", encode_properties({"TAGS": "x"}))]
        )
    assert ids(store) == ["U1"]
    assert end(store, "U1") is HalfOutcome.COMMITTED


# ---- interrupted and damaged ----


def test_a_commit_that_was_interrupted_is_completed_and_delivers_once() -> None:
    """The broker, or a crash, leaves a delivered message without its op record."""
    shop = Workshop()
    store = opened(shop)
    store.append_messages(HALF, [client_half()])
    half = message(store, HALF, 0)
    fields = half_message.half_fields(half, 0, 0)
    target, raw = half_message.committed(half, fields, 0, 18)
    store.append_messages(target, [raw])
    store.close()
    for late in (False, True):
        again = shop.after_kill()
        store = again.open()
        if late:
            assert store.half_messages.check(again.clock.now_ms).ended == ["U1"]
        assert end(store, "U1", commit=False) is HalfOutcome.COMMITTED
        assert values(store, T1) == [b"U1"]
        store.half_messages.check(again.clock.now_ms)
        assert progress(store) == [1, 1]


@pytest.mark.parametrize("is_due", [False, True])
def test_an_interrupted_commit_of_a_delayed_message_delivers_once(is_due: bool) -> None:
    shop = Workshop()
    store = opened(shop)
    store.append_messages(HALF, [client_half(DELAY="2")])
    half = message(store, HALF, 0)
    target, raw = half_message.committed(half, half_message.half_fields(half, 0, 0), 0, 18)
    store.append_messages(target, [raw])
    if is_due:
        store.delays.deliver(shop.clock.now_ms + HOUR_MS)
        assert values(store, T1) == [b"U1"]
    store.close()
    again = shop.after_kill()
    store = again.open()
    assert end(store, "U1", commit=False) is HalfOutcome.COMMITTED
    store.delays.deliver(shop.clock.now_ms + HOUR_MS)
    assert values(store, T1) == [b"U1"]


def test_a_check_looks_for_some_messages_and_lets_requests_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions, "LOOKED_UP", 4)
    monkeypatch.setattr(transactions, "LOOKED_UP_AT_ONCE", 2)
    shop = Workshop()
    store = opened(shop)
    for name in "abcde":
        put(store, name, name, timeout_ms=1)
    store.close()
    shop.clock.now_ms += CHECK_MS
    store = shop.open()
    pauses: list[int] = []

    def pause(_: float) -> None:
        pauses.append(len(ids(store)))  # waits forever if the check holds the lock

    monkeypatch.setattr(transactions, "sleep", pause)
    assert [store.half_messages.check(shop.clock.now_ms).checked for _ in range(2)] == [4, 5]
    assert pauses == [5, 5, 5]
    assert end(store, "e") is HalfOutcome.COMMITTED


@pytest.mark.parametrize("limit", ["CHECKED_AT_ONCE", "CHECK_STEP_BYTES"])
def test_a_check_writes_in_steps_and_lets_requests_in_between(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """A transaction that a request ends meanwhile is not written again; the progress follows the last step."""
    monkeypatch.setattr(transactions, limit, 1)
    shop = Workshop()
    store = opened(shop)
    for name in "abc":
        put(store, name, name + "1", name + "2", timeout_ms=1)
    put(store, "d", "d")
    put(store, "e", "e", timeout_ms=1)
    shop.clock.now_ms += CHECK_MS
    pauses: list[int] = []

    def pause(_: float) -> None:
        pauses.append(sum(one.checks for one in store.half_messages.transactions()))
        assert progress(store) == []
        if pauses[-1] == 1 and "b" in ids(store):
            assert end(store, "b") is HalfOutcome.COMMITTED

    monkeypatch.setattr(transactions, "sleep", pause)
    checked = store.half_messages.check(shop.clock.now_ms)
    monkeypatch.setattr(transactions, "sleep", lambda _: None)
    assert (checked.checked, checked.ended) == (5, [])
    assert checked.waiting == {"a", "c", "d", "e"}
    assert pauses[0] <= 1
    assert len(set(pauses)) >= 3
    assert [(one.id, one.checks) for one in store.half_messages.transactions()] == [
        ("a", 1),
        ("c", 1),
        ("d", 0),
        ("e", 1),
    ]
    assert progress(store)[0] == 6
    assert values(store) == [b"b1", b"b2"]
    for name in "acde":
        assert end(store, name, commit=False) is HalfOutcome.ROLLED_BACK


def test_a_check_discards_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages of one transaction go together."""
    monkeypatch.setattr(transactions, "CHECKED_AT_ONCE", 1)
    shop = Workshop()
    store = opened(shop)
    for name in "abc":
        put(store, name, name + "1", name + "2")
    seen: list[int] = []

    def pause(_: float) -> None:
        if MAX_TIME.topic in store.topics():
            seen.append(store.bounds(MAX_TIME).end)

    monkeypatch.setattr(transactions, "sleep", pause)
    checked = store.half_messages.check(shop.clock.now_ms + 73 * HOUR_MS)
    assert (checked.checked, checked.ended, seen) == (0, ["a", "b", "c"], [2, 4])
    assert values(store, MAX_TIME) == [b"a1", b"a2", b"b1", b"b2", b"c1", b"c2"]
    assert progress(store) == [6, 3]


def test_the_first_reading_lets_requests_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Workshop()
    store = opened(shop)
    for name in "abcdefg":
        put(store, name, name)
    for name in "bd":
        assert end(store, name) is HalfOutcome.COMMITTED
    store.close()
    monkeypatch.setattr(half_queues, "STEP_MESSAGES", 2)
    store = shop.open()
    seen: list[list[str]] = []

    def pause(_: float) -> None:
        monkeypatch.setattr(transactions, "sleep", seen.append)
        seen.append(ids(store))  # waits forever if the reader holds the lock

    monkeypatch.setattr(transactions, "sleep", pause)
    assert ids(store) == seen[-1] == list("acefg")
    assert len(seen) == 3  # of the four steps with half messages, the last needs no pause after it


def test_a_step_reads_few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_queues, "READ_IN_A_STEP_BYTES", 1)
    monkeypatch.setattr(queue, "NEAR_BYTES", -1)  # each message is read alone
    shop = Workshop()
    store = opened(shop)
    for name in "abc":
        put(store, name, name)
    store.close()
    store = shop.open()
    pauses: list[float] = []
    monkeypatch.setattr(transactions, "sleep", pauses.append)
    assert ids(store) == ["a", "b", "c"]
    assert len(pauses) == 2


def test_a_commit_to_a_deleted_topic_delivers_nothing_and_creates_nothing() -> None:
    store = opened(Workshop())
    store.create_topic("u", 2)
    for at in (T0, TopicPartition("u", 1)):
        put(store, "x", "a", at=at)
        put(store, "y", "b", at=at)
    store.delete_topic("u")
    with pytest.raises(UnknownTopic):
        end(store, "x")
    store.create_topic("u", 1)
    with pytest.raises(UnknownPartition):
        end(store, "x")
    assert values(store) == []
    assert ids(store) == ["x", "y"]
    assert end(store, "x", commit=False) is HalfOutcome.ROLLED_BACK
    store.delete_topic("u")
    store.create_topic("u", 2)
    assert end(store, "y") is HalfOutcome.COMMITTED
    assert values(store) == values(store, TopicPartition("u", 1)) == [b"b"]


def test_a_commit_to_a_topic_that_a_broker_compacts_delivers_nothing() -> None:
    """It delivered the messages for other topics, and failed then: consumers saw a part of an open transaction."""
    shop = Workshop()
    store = opened(shop)
    store.create_topic("c", 1)
    put(store, "x", "a")
    put(store, "x", "b", at=TopicPartition("c", 0))
    store.close()
    shop.set_attribute("c", "cleanup.policy=COMPACTION")
    store = shop.open()
    with pytest.raises(NotOffered):
        end(store, "x")
    assert values(store) == []
    assert ids(store) == ["x"]
    assert end(store, "x", commit=False) is HalfOutcome.ROLLED_BACK
    store.flush()
    assert values(store) == []


def test_a_lower_limit_for_messages_leaves_no_transaction_open() -> None:
    shop = Workshop()
    shop.open_with_topic({"maxMessageSize": "300"}).close()
    store = shop.open({"maxMessageSize": "300"})
    for name in ("x", "y"):
        put(store, name, name * 300)
    store.close()
    store = shop.open({"maxMessageSize": "100", "transactionCheckMax": "1"})
    assert end(store, "x") is HalfOutcome.COMMITTED
    assert values(store) == [b"x" * 300]
    for _ in range(2):
        shop.clock.now_ms += TIMEOUT_MS + 1
        store.half_messages.check(shop.clock.now_ms)
    assert store.half_messages.find("y") is HalfOutcome.DISCARDED
    assert values(store, MAX_TIME) == [b"y" * 300]


def test_a_full_disk_in_a_commit_and_a_repeat() -> None:
    base = OverlayFileSystem()
    shop = Workshop(base)
    store = opened(shop)
    put(store, "x", "a" * 300, "b" * 300)
    put(store, "x", "c" * 300, at=T1)
    store.close()
    failures = 0
    for change in range(1, 30):
        faulty = FaultyFileSystem(OverlayFileSystem(base))
        again = Workshop(faulty, shop.clock)
        store = again.open()
        assert ids(store) == ["x"]
        faulty.fault = at_change(faulty, change, disk_full)
        try:
            end(store, "x")
        except DiskFull:
            failures += 1
        faulty.fault = no_fault
        assert end(store, "x") is HalfOutcome.COMMITTED, change
        assert [len(value or b"") for value in values(store)] == [300, 300], change
        assert [len(value or b"") for value in values(store, T1)] == [300], change
        store.close()
    assert failures > 0


def test_a_missing_log_file_takes_along_no_other_half_message() -> None:
    shop = Workshop()
    with opened(shop) as store:
        store.append_messages(HALF, [client_half(name) for name in ("U1", "U2", "U3")])
        while store.log.end < 2 * LOG_BYTES + 600:
            store.append(T0, [Record(None, b"between")])
        for name in ("U4", "U5"):
            store.append_messages(HALF, [client_half(name)])
    shop.fs.remove(shop.log_path(2 * LOG_BYTES))
    with shop.open() as store:
        assert ids(store) == ["U1", "U2", "U3", "U5"]


def test_a_damaged_half_message_is_passed_over() -> None:
    shop = Workshop()
    store = opened(shop)
    store.append_messages(HALF, [client_half("U1"), client_half("U2")])
    result = store.append_messages(HALF, [client_half("U3")])
    place = result.locators[0] % (1 << 64)
    store.close()
    path = shop.log_path(place - place % 1024)
    shop.overwrite(path, place % 1024 + 88, b"???")
    store = shop.open(accept_loss=True)
    assert ids(store)[:2] == ["U1", "U2"]
    assert end(store, "U2") is HalfOutcome.COMMITTED


def test_a_read_only_store_lists_and_ends_nothing() -> None:
    shop = Workshop()
    store = opened(shop)
    put(store, "x", "a")
    store.close()
    with shop.open(read_only=True) as store:
        (one,) = store.half_messages.transactions()
        assert isinstance(one, HalfTransaction)
        with pytest.raises(StoreReadOnly):
            end(store, "x")


def deleted_by_retention(shop: Workshop, *later: str) -> RocketMQStore:
    """Return a store that has deleted the half message "a" of transaction x, and not the `later` ones."""
    store = shop.open_with_topic({"fileReservedTime": "1"}, partitions=2)
    put(store, "x", "a")
    shop.clock.now_ms += 100 * HOUR_MS
    for number in range(20):
        store.append(T1, [Record(None, b"%d" % number * 100)])
    shop.clock.now_ms += 100 * HOUR_MS
    for number in range(20):
        store.append(T1, [Record(None, b"%d" % number * 100)])
    put(store, "x", *later)
    assert ids(store) == ["x"]
    assert store.enforce_retention(shop.clock.now_ms).segments_deleted
    assert ids(store) == []
    return store


@pytest.mark.parametrize("commit", [False, True])
def test_a_transaction_whose_half_messages_retention_deletes_is_discarded(commit: bool) -> None:
    shop = Workshop()
    store = deleted_by_retention(shop)
    assert end(store, "x", commit=commit) is HalfOutcome.DISCARDED
    store.half_messages.check(shop.clock.now_ms)


@pytest.mark.parametrize("is_checked", [False, True])
def test_no_part_of_a_transaction_is_committed_after_retention(is_checked: bool) -> None:
    shop = Workshop()
    store = deleted_by_retention(shop, "b", "c")
    if is_checked:
        assert store.half_messages.check(shop.clock.now_ms).ended == ["x"]
    assert store.half_messages.find("x") is HalfOutcome.DISCARDED
    put(store, "x", "d")
    assert end(store, "x") is HalfOutcome.DISCARDED
    store.half_messages.check(shop.clock.now_ms)
    assert values(store) == []
    assert values(store, MAX_TIME) == [b"b", b"c", b"d"]
    store.close()
    again = shop.open()
    assert end(again, "x") is HalfOutcome.DISCARDED
    assert ids(again) == []
