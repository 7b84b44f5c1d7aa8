"""Topics with batch queues, as a real broker leaves them: they get no queues, and reads and appends are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from storage import RawMessage, Record, TopicPartition
from storage.contract import SupportsParts, run_serially
from storage.errors import NotOffered, RecordNotFound
from storage.rocketmq.format.config_json import decode_config
from storage.rocketmq.format.names import file_name
from storage.rocketmq.store import RocketMQStore
from tests.unit.rocketmq.recovery.foreign_log import (
    Message,
    found_by_verify,
    inspector,
    write_log,
    write_topics,
)
from tests.unit.rocketmq.workshop import ROOT, Workshop, put_file, put_value, values

B0 = TopicPartition("b", 0)
BATCHED = {"readQueueNums": 1, "writeQueueNums": 1, "attributes": {"queue.type": "BatchCQ"}}
PLAIN = {"readQueueNums": 1, "writeQueueNums": 1, "attributes": {}}
BATCH_FILE = "batchconsumequeue/b/0/00000000000000000000"
REPORTED = [("batch-topic", "info", "b")]
VALUES = [b"v%02d" % n for n in range(6)]

Call = Callable[[RocketMQStore], object]


def from_a_broker(shop: Workshop, *, attribute: bool = True, folder: bool = True) -> None:
    """Write a store without queues: records of t, and between them batches of b with three messages each."""
    batches = [Message("b", 3 * n, b"b%02d" % n, INNER_NUM="3") for n in range(6)]
    plain = [Message("t", n, value) for n, value in enumerate(VALUES)]
    write_log(shop, [m for pair in zip(batches, plain, strict=True) for m in pair])
    write_topics(shop, {"t": PLAIN, "b": BATCHED if attribute else PLAIN})
    if folder:
        make_queue(shop, BATCH_FILE)


def make_queue(shop: Workshop, file: str) -> None:
    path = ROOT / file
    shop.fs.make_dir(path.parent)
    put_file(shop.fs, path, bytes(100))


@pytest.mark.parametrize(
    "stated", [{"folder": False}, {"attribute": False}], ids=["attribute", "folder"]
)
@pytest.mark.parametrize("stop", ["close", "kill"])
def test_no_start_makes_queues_of_them(
    shop: Workshop, stated: Mapping[str, bool], stop: str
) -> None:
    from_a_broker(shop, **stated)
    log = shop.log_bytes()
    for _ in range(2):
        store = shop.open()
        assert values(store) == VALUES
        assert list(store.topics()) == ["t"]
        assert [(f.code, f.severity, f.topic) for f in store.recovery.findings] == REPORTED
        if stop == "close":
            store.close()
        else:
            shop = shop.after_kill()
        assert shop.names("consumequeue") == ["t"]
    with shop.open() as again:
        put_value(again, b"more")
        assert values(again) == [*VALUES, b"more"]
    assert shop.names("consumequeue") == ["t"]
    assert shop.log_bytes()[:1000] == log[:1000]
    assert found_by_verify(shop) == REPORTED


def refused_calls() -> Mapping[str, Call]:
    message = RawMessage(body=b"x", properties=b"")
    return {
        "read": lambda store: store.read(B0, 0),
        "bounds": lambda store: store.bounds(B0),
        "find": lambda store: store.find("b", key="b00"),
        "append": lambda store: store.append(B0, [Record(None, b"x")]),
        "append raw": lambda store: store.append_messages(B0, [message]),
        "create": lambda store: store.create_topic("b", 1),
        "preview": lambda store: store.preview_topic("b"),
        "alter": lambda store: store.alter_topic("b", {"perm": "4"}),
        "delete": lambda store: store.delete_topic("b"),
    }


@pytest.mark.parametrize("call", refused_calls().values(), ids=refused_calls())
def test_whoever_asks_for_one_is_refused(shop: Workshop, call: Call) -> None:
    from_a_broker(shop)
    store = shop.open()
    with store:
        before = shop.files()
        with pytest.raises(NotOffered, match="topic 'b' has batch queues"):
            call(store)
        assert shop.files() == before


def test_a_record_of_one_is_not_found_by_its_id(shop: Workshop) -> None:
    from_a_broker(shop)
    with shop.open() as store, pytest.raises(RecordNotFound):
        store.find_by_id("7F00000100002A9F" + "0" * 16)


def test_a_change_of_topics_keeps_its_entry(shop: Workshop) -> None:
    from_a_broker(shop)
    with shop.open() as store:
        store.create_topic("new", 1)
    found = decode_config(shop.fs.read_bytes(ROOT / "config/topics.json"))
    assert found["topicConfigTable"]["b"] == BATCHED


def test_what_an_older_version_made_is_told_and_rebuild_takes_it_away(shop: Workshop) -> None:
    from_a_broker(shop)
    shop.open().close()
    make_queue(shop, "consumequeue/b/0/00000000000000000000")
    assert found_by_verify(shop) == [*REPORTED, ("wrong-queue-type", "error", "b")]
    with shop.open() as store:
        assert list(store.topics()) == ["t"]
    with inspector(shop) as tools:
        report = tools.rebuild("consumequeue", write=True)
    assert report.changed == [str(ROOT / "consumequeue/b")]
    assert shop.names("consumequeue") == ["t"]
    assert found_by_verify(shop) == REPORTED
    with shop.open() as store:
        assert values(store) == VALUES


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "in parts"])
def test_missing_queues_are_those_of_others(shop: Workshop, shared: bool) -> None:
    from_a_broker(shop)
    missing = [found for found in found_by_verify(shop) if found[0] == "missing-unit"]
    assert missing == [("missing-unit", "warning", "t")]
    with inspector(shop) as tools:
        if shared:
            assert isinstance(tools, SupportsParts)
            report = tools.rebuild_in_parts("consumequeue", run_serially)
        else:
            report = tools.rebuild("consumequeue")
    folder = ROOT / "consumequeue/t/0"
    assert report.changed == [str(folder / name) for name in (file_name(0), file_name(100))]


def test_salvage_misses_and_moves_nothing(shop: Workshop) -> None:
    """The offsets between the batches are not reported as missing."""
    from_a_broker(shop)
    target = ROOT.with_name("saved")
    with inspector(shop) as tools:
        report = tools.salvage(target)
    assert (report.losses, report.moved_bytes, report.kept_records) == ([], 0, 12)
    assert [f.topic for f in report.findings if f.code == "batch-topic"] == ["b"]
    assert list(shop.fs.list_dir(target / "consumequeue")) == ["t"]
