"""RocketMQ's names, defaults and limits of settings and topic configs; features that are off unless they are set."""

from __future__ import annotations

import pytest

from storage.errors import InvalidArgument, InvalidConfig, NotOffered
from storage.rocketmq.state.settings import (
    HOUR_MS,
    MAX_QUEUES,
    attributes_text,
    check_queue_count,
    check_topic_config,
    check_topic_reset,
    parse_attributes,
    parse_store_settings,
)


def test_the_defaults_are_rocketmqs_but_for_deletion() -> None:
    found = parse_store_settings({})
    assert (found.commit_log_bytes, found.consume_queue_bytes) == (None, None)
    assert (found.index_slots, found.index_entries) == (None, None)
    assert (found.max_message_bytes, found.default_topic_queues) == (4 << 20, 8)
    assert found.store_host == bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
    assert (found.index_tags, found.index_enabled) == (True, True)
    assert (found.append_crc, found.enable_lmq) == (None, None)
    assert (found.file_reserved_ms, found.disk_max_used_percent) == (None, None)
    assert found.delete_hours == frozenset()
    assert found.delays_ms is None


def test_every_setting_is_taken() -> None:
    found = parse_store_settings(
        {
            "mappedFileSizeCommitLog": "32768",
            "mappedFileSizeConsumeQueue": "1000",
            "maxHashSlotNum": "100",
            "maxIndexNum": "300",
            "maxMessageSize": "70000",
            "defaultTopicQueueNums": "3",
            "storeHost": "[2001:db8::7]:9",
            "indexTags": "false",
            "messageIndexEnable": "false",
            "enabledAppendPropCRC": "true",
            "enableLmq": "false",
            "fileReservedTime": "72",
            "diskMaxUsedSpaceRatio": "75",
            "deleteWhen": "04;23",
            "messageDelayLevel": "0s 100s 2m 3h 1d",
        }
    )
    assert (found.commit_log_bytes, found.consume_queue_bytes) == (32768, 1000)
    assert (found.index_slots, found.index_entries) == (100, 300)
    assert (found.max_message_bytes, found.default_topic_queues) == (70000, 3)
    assert found.store_host == bytes.fromhex("20010db800000000000000000000000700000009")
    assert (found.index_tags, found.index_enabled) == (False, False)
    assert (found.append_crc, found.enable_lmq) == (True, False)
    assert (found.file_reserved_ms, found.disk_max_used_percent) == (72 * HOUR_MS, 75)
    assert found.delete_hours == {4, 23}
    assert found.delays_ms == (0, 100_000, 120_000, 3 * HOUR_MS, 24 * HOUR_MS)


@pytest.mark.parametrize(
    ("given", "taken"), [("1", 20), ("20", 20), ("21", 40), ("6000000", 6000000)]
)
def test_a_queue_file_holds_whole_units(given: str, taken: int) -> None:
    found = parse_store_settings({"mappedFileSizeConsumeQueue": given})
    assert found.consume_queue_bytes == taken


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [
        ("mappedFileSizeCommitLog", 256, 2**31 - 1),
        ("mappedFileSizeConsumeQueue", 1, 2147483640),
        ("maxHashSlotNum", 1, 536870911),
        ("maxIndexNum", 2, 107374182),
        ("maxMessageSize", 1, 2**31 - 1 - 65536),
        ("defaultTopicQueueNums", 1, MAX_QUEUES),
        ("fileReservedTime", 1, 1_000_000),
        ("diskMaxUsedSpaceRatio", 10, 95),
    ],
)
def test_limits_of_numbers(name: str, lowest: int, highest: int) -> None:
    parse_store_settings({name: str(lowest)})
    parse_store_settings({name: str(highest)})
    for value in (str(lowest - 1), str(highest + 1), "", "1.5", "x", " 7", "٣", "9" * 30):
        with pytest.raises(InvalidConfig) as refused:
            parse_store_settings({name: value})
        assert refused.value.facts() == {"name": name, "value": value}
        assert f"from {lowest} to {highest}" in refused.value.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("storeHost", "127.0.0.1"),
        ("storeHost", "127.0.0.1:"),
        ("storeHost", "127.0.0.1:65536"),
        ("storeHost", "broker-a:10911"),
        ("storeHost", "::1:10911"),
        ("storeHost", "[127.0.0.1:10911"),
        ("storeHost", "1.2.3.256:1"),
        ("indexTags", "yes"),
        ("messageIndexEnable", "True"),
        ("storePathRootDir", "/data"),
        ("segment.bytes", "1000000"),
        ("deleteWhen", "04"),
        ("messageDelayLevel", ""),
        ("messageDelayLevel", "1s  5s"),
        ("messageDelayLevel", "1s 5s "),
        ("messageDelayLevel", "1s,5s"),
        ("messageDelayLevel", "1S"),
        ("messageDelayLevel", "1w"),
        ("messageDelayLevel", "-1s"),
        ("messageDelayLevel", "s"),
        ("messageDelayLevel", "5"),
        ("messageDelayLevel", "٣s"),
    ],
)
def test_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_store_settings({name: value})
    assert refused.value.facts() == {"name": name, "value": value}


@pytest.mark.parametrize("hours", ["", "24", "4,5", "04;", "-1", "noon", "004"])
def test_hours_of_the_day(hours: str) -> None:
    with pytest.raises(InvalidConfig, match="00 to 23"):
        parse_store_settings({"deleteWhen": hours, "fileReservedTime": "1"})


@pytest.mark.parametrize(
    ("name", "legal", "illegal"),
    [
        ("perm", ["0", "6", "7"], ["8", "-1", "rw", ""]),
        ("order", ["true", "false"], ["1", "True"]),
        ("topicFilterType", ["SINGLE_TAG", "MULTI_TAG"], ["single_tag", ""]),
        ("topicSysFlag", ["0", "3"], ["-1", str(2**31)]),
        ("readQueueNums", ["1", "10000"], ["0", "10001"]),
        ("writeQueueNums", ["1", "10000"], ["0", "x"]),
        (
            "attributes",
            ["", "message.type=FIFO", "message.type=DELAY,reserve.time=-1"],
            ["message.type", "message.type=LIFO", "colour=red", ",", "message.type=FIFO,"],
        ),
        ("retention.ms", [], ["1"]),
    ],
)
def test_topic_configs(name: str, legal: list[str], illegal: list[str]) -> None:
    for value in legal:
        check_topic_config(name, value)
        check_topic_reset(name)
    for value in illegal:
        with pytest.raises(InvalidConfig) as refused:
            check_topic_config(name, value)
        assert refused.value.facts() == {"name": name, "value": value}


def test_only_what_there_is_can_be_reset() -> None:
    with pytest.raises(InvalidConfig):
        check_topic_reset("retention.ms")


@pytest.mark.parametrize("value", ["queue.type=BatchCQ", "cleanup.policy=COMPACTION"])
def test_kinds_of_topics_that_are_not_offered(value: str) -> None:
    with pytest.raises(NotOffered):
        check_topic_config("attributes", value)


def test_attributes_both_ways() -> None:
    text = "message.type=FIFO,queue.type=SimpleCQ"
    assert parse_attributes(text) == {"message.type": "FIFO", "queue.type": "SimpleCQ"}
    assert attributes_text(parse_attributes(text)) == text
    assert (parse_attributes(""), attributes_text({})) == ({}, "")


def test_queue_counts() -> None:
    check_queue_count(1)
    check_queue_count(MAX_QUEUES)
    for count in (0, -1, MAX_QUEUES + 1):
        with pytest.raises(InvalidArgument) as refused:
            check_queue_count(count)
        assert refused.value.facts() == {"field": "partitions"}
