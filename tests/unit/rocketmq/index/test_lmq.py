"""Light message queues, as a broker with enableLmq leaves them: their entries point to records of another topic."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from storage import RawMessage, StoreOptions, TopicPartition, open_splitter, open_store
from storage.contract import SupportsParts, run_serially
from storage.conversion.records import HOST
from storage.errors import Corrupt
from storage.rocketmq.format.message import MAGIC_V1, decode_message
from storage.rocketmq.format.message_encoding import Placement, encode_messages
from storage.rocketmq.format.names import file_name
from storage.rocketmq.format.properties import encode_properties
from storage.rocketmq.format.queue_entry import QueueEntry, decode_units, encode_unit
from storage.rocketmq.index.light_queues import lmq_offsets
from storage.rocketmq.store import RocketMQStore
from tests.unit.rocketmq.columns.split_yard import split_rows, stored_rows
from tests.unit.rocketmq.recovery.foreign_log import (
    Message,
    found_by_verify,
    inspector,
    write_log,
    write_topics,
)
from tests.unit.rocketmq.workshop import ROOT, SMALL, T0, UNIT, Workshop, on, put_file, values

T1 = TopicPartition("t", 1)
LMQ_A, LMQ_B = TopicPartition("%LMQ%a", 0), TopicPartition("%LMQ%b", 0)
TWO_QUEUES = {"readQueueNums": 2, "writeQueueNums": 2, "attributes": {}}
COUNT = 18
IN_A = [b"m%02d" % n for n in range(COUNT) if n % 3]
IN_B = [b"m%02d" % n for n in range(COUNT) if n % 3 == 2]


def messages() -> list[Message]:
    """Return messages of t, in its two queues in turn; a third is also in %LMQ%a, and a third in both LMQ queues."""
    found = []
    for n in range(COUNT):
        named, offsets = "", ""
        if n % 3 == 1:
            named, offsets = "%LMQ%a", f"{n // 3 * 2}"
        elif n % 3 == 2:
            named, offsets = "%LMQ%a,%LMQ%b", f"{n // 3 * 2 + 1},{n // 3}"
        properties = {"INNER_MULTI_DISPATCH": named, "INNER_MULTI_QUEUE_OFFSET": offsets}
        found.append(
            Message("t", n // 2, b"m%02d" % n, queue_id=n % 2, **(properties if named else {}))
        )
    return found


@pytest.fixture
def lmq_shop(shop: Workshop) -> Workshop:
    """A cleanly stopped store with all its queues; the fixture writes the entries of the LMQ queues itself."""
    write_log(shop, messages())
    write_topics(shop, {"t": TWO_QUEUES})
    with shop.open() as store:
        assert (values(store), len(values(store, T1))) == (
            [b"m%02d" % n for n in range(0, 18, 2)],
            9,
        )
    assert shop.names("consumequeue") == ["t"]
    of_t = {queue: units(shop, queue) for queue in (T0, T1)}
    in_order = [of_t[T0 if n % 2 == 0 else T1][n // 2] for n in range(COUNT)]
    put_units(shop, LMQ_A, [unit for n, unit in enumerate(in_order) if n % 3])
    put_units(shop, LMQ_B, [unit for n, unit in enumerate(in_order) if n % 3 == 2])
    return shop


def units(shop: Workshop, queue: TopicPartition) -> list[QueueEntry]:
    """Return the valid entries in a queue's files."""
    folder = ROOT / "consumequeue" / queue.topic / str(queue.partition)
    data = b"".join(shop.fs.read_bytes(folder / file_name(at)) for at in shop.queue_bases(queue))
    return [unit for unit in decode_units(data) if unit.is_valid]


def put_units(shop: Workshop, queue: TopicPartition, found: list[QueueEntry]) -> None:
    """Write a queue's files, with five entries each."""
    folder = ROOT / "consumequeue" / queue.topic / str(queue.partition)
    shop.fs.make_dir(folder)
    for first in range(0, len(found), 5):
        data = b"".join(encode_unit(*unit) for unit in found[first : first + 5])
        put_file(shop.fs, folder / file_name(first * UNIT), data.ljust(5 * UNIT, b"\0"))


def cut_units(shop: Workshop, queue: TopicPartition, end: int) -> None:
    """Remove the files of a queue, and write them again without the entries from `end` on."""
    found = units(shop, queue)[:end]
    shop.fs.remove_tree(ROOT / "consumequeue" / queue.topic / str(queue.partition))
    put_units(shop, queue, found)


def test_they_are_read_under_their_own_offsets(lmq_shop: Workshop) -> None:
    before = lmq_shop.files()
    with lmq_shop.open(read_only=True) as store:
        assert store.recovery.findings == []
        assert (values(store, LMQ_A), values(store, LMQ_B)) == (IN_A, IN_B)
        assert [record.offset for record in store.scan(LMQ_A)] == list(range(12))
        record = store.read(LMQ_B, 3).records[0]
        address, same = store.find_by_id(store.record_id(LMQ_B, record.locator))
        assert (address, same.offset, same.value) == (T1, 5, record.value)
    assert lmq_shop.files() == before
    assert found_by_verify(lmq_shop) == []


@pytest.mark.parametrize("backward", [False, True])
def test_find_looks_through_them(lmq_shop: Workshop, backward: bool) -> None:
    """The index holds the records of LMQ queues under the other topic."""
    with lmq_shop.open() as store:
        found = store.find("%LMQ%a", key="m05", backward=backward)
        assert [(at, record.offset) for at, record in found.records] == [(0, 3)]
        assert not found.indexed
        assert not store.find("%LMQ%b", key="m04").records
        assert store.find("t", key="m05").indexed


def test_a_unit_that_leads_elsewhere_is_damage_still(lmq_shop: Workshop) -> None:
    found = units(lmq_shop, LMQ_B)
    put_units(lmq_shop, LMQ_B, [units(lmq_shop, T0)[0], *found[1:]])
    with lmq_shop.open(read_only=True) as store:
        with pytest.raises(Corrupt, match="points to a record of another queue"):
            store.read(LMQ_B, 0)
        assert store.read(LMQ_B, 1).records[0].value == IN_B[1]
    assert [found[:2] for found in found_by_verify(lmq_shop)] == [("wrong-unit", "error")]


def test_they_hide_no_missing_unit_of_others(lmq_shop: Workshop) -> None:
    lmq_shop.fs.remove_tree(ROOT / "consumequeue/t/1")
    with lmq_shop.open() as store:
        assert store.bounds(T1).start == 0
        assert values(store, T1) == [b"m%02d" % n for n in range(1, COUNT, 2)]
    assert found_by_verify(lmq_shop) == []


@pytest.mark.parametrize("left", [0, 4, 7])
def test_what_one_lacks_is_made_after_a_crash(lmq_shop: Workshop, left: int) -> None:
    wanted = lmq_shop.files()
    cut_units(lmq_shop, LMQ_A, left)
    put_file(lmq_shop.fs, ROOT / "abort", b"7")
    with lmq_shop.open() as store:
        assert values(store, LMQ_A) == IN_A
        assert (values(store, LMQ_B), len(values(store)), len(values(store, T1))) == (IN_B, 9, 9)
    for name, data in lmq_shop.files().items():
        if name.startswith(("consumequeue", "commitlog")):
            assert data == wanted[name]


def test_one_that_was_taken_away_stays_away(lmq_shop: Workshop) -> None:
    lmq_shop.fs.remove_tree(ROOT / "consumequeue/%LMQ%b")
    put_file(lmq_shop.fs, ROOT / "abort", b"7")
    with lmq_shop.open() as store:
        assert list(store.topics()) == ["%LMQ%a", "t"]
    assert lmq_shop.names("consumequeue") == ["%LMQ%a", "t"]
    assert found_by_verify(lmq_shop) == []


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "in parts"])
def test_rebuild_makes_them_too(lmq_shop: Workshop, shared: bool) -> None:
    wanted = units(lmq_shop, LMQ_A)
    put_units(lmq_shop, LMQ_A, [*wanted[:3], wanted[5], *wanted[4:]])
    with inspector(lmq_shop) as tools:
        assert isinstance(tools, SupportsParts)
        if shared:
            report = tools.rebuild_in_parts("consumequeue", run_serially, write=True)
        else:
            report = tools.rebuild("consumequeue", write=True)
    assert report.changed == [str(ROOT / "consumequeue/%LMQ%a/0" / file_name(0))]
    assert (units(lmq_shop, LMQ_A), len(units(lmq_shop, LMQ_B))) == (wanted, 6)
    assert found_by_verify(lmq_shop) == []


@pytest.mark.parametrize("damaged", [False, True], ids=["whole", "damaged"])
def test_salvage_takes_them_along(lmq_shop: Workshop, damaged: bool) -> None:
    """With a damaged record all other records move; its offsets are missing in each of its queues."""
    if damaged:
        at = units(lmq_shop, T1)[2].physical_offset
        lmq_shop.overwrite(lmq_shop.log_path(at // 1024 * 1024), at % 1024 + 88, b"?")
    target = ROOT.with_name("saved")
    with inspector(lmq_shop) as tools:
        report = tools.salvage(target)
    lost = [(loss.topic, loss.partition, loss.first_offset) for loss in report.losses]
    assert (lost, report.moved_bytes) == (([("t", 1, 2)], 1024) if damaged else ([], 0))
    lmq_shop.fs.remove_tree(ROOT)
    lmq_shop.fs.rename(target, ROOT)
    saved = on(lmq_shop.fs, lmq_shop)
    gone = {b"m05"} if damaged else set()
    with saved.open() as store:
        assert values(store, LMQ_A) == [value for value in IN_A if value not in gone]
        assert values(store, LMQ_B) == [value for value in IN_B if value not in gone]


def test_splits_have_them_and_what_comes(lmq_shop: Workshop, tmp_path: Path) -> None:
    root = tmp_path / "store"
    for name, data in lmq_shop.files().items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    options = StoreOptions(settings=SMALL)
    with closing(open_splitter(root, options)) as splitter:
        with open_store("rocketmq", root, options) as store:
            assert isinstance(store, RocketMQStore)
            assert split_rows(splitter, min_splits=3) == stored_rows(store)
            store.append_messages(T1, [raw(b"new", "%LMQ%b,%LMQ%none", "6,0")])
        splitter.refresh()
        rows = split_rows(splitter)
        assert [row["value"] for row in rows[LMQ_B]] == [*IN_B, b"new"]
        assert set(rows) == {T0, T1, LMQ_A, LMQ_B}


def raw(body: bytes, topics: str, offsets: str) -> RawMessage:
    properties = {"INNER_MULTI_DISPATCH": topics, "INNER_MULTI_QUEUE_OFFSET": offsets}
    return RawMessage(body=body, properties=encode_properties(properties))


@pytest.mark.parametrize(
    ("topics", "offsets", "found"),
    [
        ("%LMQ%a", "7", {"%LMQ%a": 7}),
        ("%LMQ%a,plain,%LMQ%b", "7,8,9", {"%LMQ%a": 7, "%LMQ%b": 9}),
        ("%LMQ%a,%LMQ%b", "7", {}),
        ("%LMQ%a", "-7", {}),
        ("%LMQ%a", "seven", {}),
        ("%LMQ%a,%LMQ%b", "7,", {}),
        ("plain", "7", {}),
        ("%LMQ%a", str((1 << 63) - 1), {"%LMQ%a": (1 << 63) - 1}),
        ("%LMQ%a", str(1 << 63), {}),
        ("%LMQ%a,%LMQ%b", "9" * 5000 + ",3", {"%LMQ%b": 3}),
        ("%LMQ%a", "0" * 5000, {}),
    ],
)
def test_where_a_record_says_it_is(topics: str, offsets: str, found: Mapping[str, int]) -> None:
    message = decode_message(
        encode_messages(
            [raw(b"x", topics, offsets)],
            Placement(b"t", MAGIC_V1, 0, 0, 0, 0, HOST),
        )[0],
        0,
    )
    assert lmq_offsets(message) == found
