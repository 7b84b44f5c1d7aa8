"""config/topics.json as a value: the real broker's content is understood, and kept except for changed entries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from storage.errors import Corrupt
from storage.rocketmq.format.config_json import decode_config, encode_config, lay_out_member
from storage.rocketmq.state import topics_file
from storage.rocketmq.state.topics_file import TopicTable

GOLDEN = Path(__file__).parents[2] / "golden/rocketmq/broker/store/config/topics.json"
NOW_MS = 1_800_000_000_000


def golden() -> TopicTable:
    """Return the table of the golden `broker` store."""
    return TopicTable.decode(GOLDEN.read_bytes())


def strict(table: TopicTable) -> Any:
    """Return a table as a strict JSON parser reads its bytes: topics.json has no number keys without quotes."""
    return json.loads(table.encode())


def table_of(**topics: object) -> TopicTable:
    """Return a table with these entries only."""
    return TopicTable.decode(json.dumps({"topicConfigTable": topics}).encode())


def test_the_brokers_file_is_understood_and_written_alike() -> None:
    table = golden()
    assert len(table.topics) == 18
    assert table.unreadable == []
    assert table.encode() == GOLDEN.read_bytes()
    assert "order-live" in table
    assert "order" not in table
    info = table.info("order-live")
    assert (info.partitions, info.configs, info.internal) == (range(3), {}, False)
    assert (table.info("TBW102").configs, table.info("TBW102").internal) == ({"perm": "7"}, True)
    assert table.info("rmq_sys_SYNC_BROKER_MEMBER_peer").configs == {"perm": "1"}


def test_a_new_topic_changes_nothing_else() -> None:
    before = strict(golden())
    after = strict(golden().created("new", 4, {"perm": "4", "order": "true"}, now_ms=NOW_MS))
    entry = after["topicConfigTable"].pop("new")
    assert list(entry) == list(before["topicConfigTable"]["order-live"])
    assert entry == {
        "attributes": {},
        "order": True,
        "perm": 4,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "new",
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }
    assert after.pop("dataVersion") == {"counter": 6, "stateVersion": 0, "timestamp": NOW_MS}
    del before["dataVersion"]
    assert after == before


def test_the_layout_is_the_brokers() -> None:
    """Only the lines of the version and of the new topic differ."""
    old = GOLDEN.read_text().splitlines()
    new = golden().created("new", 1, {}, now_ms=NOW_MS).encode().decode().splitlines()
    assert [line.strip() for line in new if line not in old] == [
        '"counter":6,',
        f'"timestamp":{NOW_MS}',
        '"new":{',
        '"topicName":"new",',
    ]
    assert not golden().encode().endswith(b"\n")


def test_a_table_is_never_changed() -> None:
    table = golden()
    table.created("new", 1, {}, now_ms=NOW_MS)
    table.altered(table.info("peer"), {"perm": "2"}, now_ms=NOW_MS)
    table.without(["peer"], now_ms=NOW_MS)
    assert table.encode() == GOLDEN.read_bytes()


def test_a_file_of_many_changes_is_laid_out_as_one_that_was_read() -> None:
    """The texts of entries are carried over from change to change."""
    table = TopicTable()
    for number in range(5):
        table = table.created(f"t{number}", number + 1, {}, now_ms=number)
        assert table.encode() == encode_config(decode_config(table.encode()))
    table = table.altered(table.info("t1"), {"perm": "4"}, now_ms=9)
    table = table.without(["t2"], now_ms=9).created("t2", 7, {}, now_ms=9)
    assert table.encode() == encode_config(decode_config(table.encode()))
    assert table.topics == ("t0", "t1", "t3", "t4", "t2")
    assert table.without(table.topics, now_ms=9).encode().endswith(b'"topicConfigTable":{}\n}')


def test_a_change_lays_out_what_is_new_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand topics, created one by one, must not take hours."""
    table = TopicTable()
    for number in range(100):
        table = table.created(f"t{number}", 1, {}, now_ms=0)
    table = TopicTable.decode(table.encode())
    table.encode()
    laid_out: list[object] = []

    def counted(key: object, value: object, depth: int) -> str:
        laid_out.append(key)
        return lay_out_member(key, value, depth)

    monkeypatch.setattr(topics_file, "lay_out_member", counted)
    table = table.created("new", 1, {}, now_ms=0)
    table.encode()
    table.altered(table.info("t7"), {"perm": "4"}, now_ms=0).encode()
    assert laid_out == ["new", "t7"]


def test_altering_keeps_what_is_not_known() -> None:
    table = table_of(t={"perm": 6, "readQueueNums": 2, "writeQueueNums": 2, "colour": [1, {}]})
    changed = table.altered(
        table.info("t"),
        {"perm": "2", "topicSysFlag": "1", "topicFilterType": "MULTI_TAG", "order": "true"},
        now_ms=NOW_MS,
    )
    assert strict(changed)["topicConfigTable"] == {
        "t": {
            "perm": 2,
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "colour": [1, {}],
            "topicSysFlag": 1,
            "topicFilterType": "MULTI_TAG",
            "order": True,
        }
    }
    info = changed.info("t")
    assert info.configs == {
        "perm": "2",
        "topicSysFlag": "1",
        "topicFilterType": "MULTI_TAG",
        "order": "true",
    }
    reset = changed.altered(info, dict.fromkeys(info.configs), now_ms=NOW_MS)
    assert reset.info("t").configs == {}
    assert strict(reset)["topicConfigTable"]["t"]["colour"] == [1, {}]


def test_queue_numbers() -> None:
    """The larger number gives the partitions; the other number appears as a config."""
    table = TopicTable().created("t", 4, {"readQueueNums": "8"}, now_ms=1)
    assert (table.info("t").partitions, table.info("t").configs) == (
        range(8),
        {"writeQueueNums": "4"},
    )
    more = table.altered(table.info("t"), {"writeQueueNums": "16"}, now_ms=2)
    assert (more.info("t").partitions, more.info("t").configs) == (
        range(16),
        {"readQueueNums": "8"},
    )
    even = more.altered(more.info("t"), {"readQueueNums": None}, now_ms=3)
    assert (even.info("t").partitions, even.info("t").configs) == (range(16), {})


def test_folders_add_queues() -> None:
    table = TopicTable().created("t", 2, {}, now_ms=1)
    assert table.info("t", [0, 1]).partitions == range(2)
    assert table.info("t", [7, 1, 2]).partitions == (0, 1, 2, 7)
    assert table.info("only-folders", [3]).partitions == (3,)
    known = table.altered(table.info("only-folders", [3]), {"perm": "4"}, now_ms=2)
    assert known.info("only-folders").partitions == range(4)
    assert known.info("only-folders").configs == {"perm": "4"}


def test_attributes() -> None:
    table = TopicTable().created("t", 1, {"attributes": "message.type=FIFO"}, now_ms=1)
    assert strict(table)["topicConfigTable"]["t"]["attributes"] == {"message.type": "FIFO"}
    assert table.info("t").configs == {"attributes": "message.type=FIFO"}
    assert table.altered(table.info("t"), {"attributes": None}, now_ms=2).info("t").configs == {}


def test_removing() -> None:
    table = golden()
    fewer = table.without(["peer", "unknown"], now_ms=NOW_MS)
    assert set(table.topics) - set(fewer.topics) == {"peer"}
    assert strict(fewer)["dataVersion"]["counter"] == 6
    assert fewer.without(["peer"], now_ms=NOW_MS) is fewer


def test_missing_fields_are_the_brokers_defaults() -> None:
    info = table_of(t={}).info("t")
    assert (info.partitions, info.configs) == (range(16), {})
    assert strict(TopicTable().created("t", 1, {}, now_ms=5))["dataVersion"] == {
        "counter": 1,
        "stateVersion": 0,
        "timestamp": 5,
    }


@pytest.mark.parametrize(
    "entry",
    [
        None,
        7,
        [],
        {"readQueueNums": {}},
        {"writeQueueNums": -1},
        {"readQueueNums": 1 << 31},
        {"attributes": [1]},
    ],
)
def test_an_entry_that_is_no_topic_is_kept_and_told(entry: object) -> None:
    topics = {"bad": entry, "good": {"readQueueNums": 1, "writeQueueNums": 1}}
    table = TopicTable.decode_loosely(json.dumps({"topicConfigTable": topics}).encode())
    assert (table.topics, table.unreadable) == (("good",), ["bad"])
    changed = table.created("new", 1, {}, now_ms=1)
    assert strict(changed)["topicConfigTable"]["bad"] == entry


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\0b", "a\ud800"])
def test_a_name_that_can_be_no_folder_is_no_topic(name: str) -> None:
    assert table_of(**{name: {}}).unreadable == [name]


def test_other_keys_are_kept() -> None:
    data = b'{"before":1,"topicConfigTable":{},"dataVersion":null,"after":{"0":1.50}}'
    changed = TopicTable.decode(data).created("t", 1, {}, now_ms=1).encode()
    again = TopicTable.decode(changed).without(["t"], now_ms=2).encode().decode()
    assert "".join(again.split()) == (
        '{"before":1,"topicConfigTable":{},'
        '"dataVersion":{"counter":2,"stateVersion":0,"timestamp":2},"after":{"0":1.50}}'
    )


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"topicConfigTable":[1]}', b"\xff", b"[null]"]
)
def test_damage(data: bytes) -> None:
    with pytest.raises(Corrupt):
        TopicTable.decode(data)
    with pytest.raises(Corrupt):
        TopicTable.decode_loosely(data)


@pytest.mark.parametrize("missing", ["readQueueNums", "writeQueueNums"])
def test_a_topic_that_does_not_tell_one_of_its_counts_is_described(missing: str) -> None:
    entry = {"readQueueNums": 20, "writeQueueNums": 20}
    del entry[missing]
    info = table_of(t=entry).info("t")
    assert (info.partitions, info.configs) == (range(20), {missing: "16"})
