"""Names in a RocketMQ store: files of a sequence, index files by the clock, and valid names of new topics."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import InvalidArgument, InvalidTopic
from storage.rocketmq.format.names import (
    SYSTEM_TOPICS,
    file_name,
    index_name,
    is_closed_topic,
    is_system_topic,
    parse_file_name,
    parse_index_name,
    parse_queue_id,
    validate_new_topic,
)

MS = 1_795_224_729_211  # 2026-11-21 01:32:09.211 UTC


@pytest.fixture(params=["UTC", "America/St_Johns", "Asia/Kathmandu"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The local time zone of the process."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("position", "name"),
    [
        (0, "00000000000000000000"),
        (1 << 30, "00000000001073741824"),
        (2**63 - 1, "09223372036854775807"),
    ],
)
def test_files_of_a_run(position: int, name: str) -> None:
    assert file_name(position) == name
    assert parse_file_name(name) == position


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0",
        "0000000000000000000",
        "000000000000000000000",
        "0000000000000000000x",
        "00000000000000000000.tmp",
        "-0000000000000000001",
        "09223372036854775808",
        "00000000000000000000\n",
        "0000000000000000000٣",
    ],
)
def test_other_names_are_no_files_of_a_run(name: str) -> None:
    assert parse_file_name(name) is None


@pytest.mark.parametrize("position", [-1, 2**63])
def test_positions_outside(position: int) -> None:
    with pytest.raises(InvalidArgument):
        file_name(position)


@pytest.mark.parametrize(
    ("name", "queue_id"),
    [("0", 0), ("17", 17), ("2147483647", 2**31 - 1)],
)
def test_queue_folders(name: str, queue_id: int) -> None:
    assert parse_queue_id(name) == queue_id


@pytest.mark.parametrize("name", ["", "-1", "01", "x", "2147483648", "99999999999", "0 ", "٣"])
def test_other_names_are_no_queue_folders(name: str) -> None:
    assert parse_queue_id(name) is None


def test_index_files_are_named_by_local_time(zone: str) -> None:
    names = {
        "UTC": "20261121013209211",
        "America/St_Johns": "20261120220209211",
        "Asia/Kathmandu": "20261121071709211",
    }
    assert index_name(MS) == names[zone]
    assert parse_index_name(index_name(MS)) == int(names[zone])


def test_a_name_sorts_behind_the_one_before() -> None:
    first = index_name(MS)
    assert index_name(MS, after=first) == f"{int(first) + 1:017d}"
    assert index_name(MS - 3_600_000, after=first) == f"{int(first) + 1:017d}"
    assert index_name(MS + 1000, after=first) == index_name(MS + 1000)


@given(st.integers(0, 4_000_000_000_000), st.integers(0, 4_000_000_000_000))
def test_names_rise_whatever_the_clock_does(first_ms: int, second_ms: int) -> None:
    first = index_name(first_ms)
    second = index_name(second_ms, after=first)
    assert len(first) == len(second) == 17
    assert first < second


@pytest.mark.parametrize("time_ms", [10**17, -(10**17), 2**63])
def test_times_without_a_calendar(time_ms: int) -> None:
    with pytest.raises(InvalidArgument):
        index_name(time_ms)


@pytest.mark.parametrize(
    "name", ["", "2026112101320921", "202611210132092111", "2026112101320921x"]
)
def test_other_names_are_no_index_files(name: str) -> None:
    assert parse_index_name(name) is None


@pytest.mark.parametrize(
    "name",
    ["a", "order-events_1", "%order%x|1", "x" * 127, "%RETRY%" + "g" * 248, "%DLQ%" + "g" * 250],
)
def test_topics_that_may_be_made(name: str) -> None:
    validate_new_topic(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "is empty"),
        ("x" * 128, "has 128 characters, the limit is 127"),
        ("%RETRY%" + "g" * 249, "has 256 characters, the limit is 255"),
        ("a.b", "holds a character"),
        ("a b", "holds a character"),
        ("a/b", "holds a character"),
        ("..", "holds a character"),
        ("größe", "holds a character"),
        ("a\n", "holds a character"),
        ("TBW102", "kept for the broker"),
        ("SCHEDULE_TOPIC_XXXX", "kept for the broker"),
        ("rmq_sys_anything", "kept for the broker"),
    ],
)
def test_topics_that_may_not(name: str, problem: str) -> None:
    with pytest.raises(InvalidTopic, match=problem) as refused:
        validate_new_topic(name)
    assert refused.value.facts()["topic"] == name


def test_a_long_name_is_told_in_part() -> None:
    with pytest.raises(InvalidTopic) as refused:
        validate_new_topic("x" * 10_000)
    assert len(str(refused.value)) < 200


def test_system_topics() -> None:
    assert all(map(is_system_topic, SYSTEM_TOPICS))
    assert is_system_topic("rmq_sys_wheel_timer")
    assert not is_system_topic("RMQ_SYS_")
    assert {topic for topic in SYSTEM_TOPICS if not is_closed_topic(topic)} == {
        *("TBW102", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC")
    }
    assert is_closed_topic("rmq_sys_wheel_timer")
    assert not is_system_topic("%RETRY%group")
