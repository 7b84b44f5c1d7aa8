"""The options of a read: the accepted ones, and the refused ones with the name in the error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logserver.pipeline.processes import TASKS
from logserver.pipeline.read.options import (
    EARLIEST,
    ENDS,
    LATEST,
    Limit,
    ReadOptions,
    parse_read_options,
)
from storage import Isolation, TopicPartition
from storage.errors import InvalidArgument

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def parsed(options: dict[str, str] | None = None, **how: Any) -> ReadOptions:
    return parse_read_options({"path": "/data", **(options or {})}, **how)


def test_defaults_of_a_batch() -> None:
    options = parsed(streaming=False)
    assert options.start == Limit(option="startingOffsets", every=EARLIEST)
    assert options.end == Limit(option="endingOffsets", every=LATEST)
    assert (options.topics, options.pattern, options.assigned) == (None, None, None)
    assert options.fail_on_data_loss
    assert options.check_crcs
    assert not options.push_filters
    assert not options.include_headers
    assert not options.permissive
    assert options.isolation is Isolation.READ_UNCOMMITTED
    assert (options.max_partition_bytes, options.shared_by) == (64 << 20, None)
    assert options.max_trigger_delay_ms == 900_000


@pytest.mark.parametrize(
    ("reported", "tasks", "size_mib"),
    [
        ("5", 5, 64),
        (None, None, 8),
        ("0", None, 8),
        ("-1", None, 8),
        ("many", None, 8),
        ("9" * 5000, None, 8),
    ],
)
def test_a_stream_begins_at_the_end_and_is_shared_by_what_runs_at_once(
    reported: str | None, tasks: int | None, size_mib: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TASKS, raising=False)
    if reported is not None:
        monkeypatch.setenv(TASKS, reported)
    options = parsed(streaming=True)
    assert options.start.every == LATEST
    assert (options.max_partition_bytes, options.shared_by) == (size_mib << 20, tasks)
    asked = parsed({"maxPartitionBytes": "9m"}, streaming=True)
    assert (asked.max_partition_bytes, asked.shared_by) == (9 << 20, None)


def test_names_and_words_have_no_case() -> None:
    options = parsed({"STARTINGOFFSETS": "Latest", "failondataloss": "FALSE", "Mode": "Permissive"})
    assert options.start.every == LATEST
    assert not options.fail_on_data_loss
    assert options.permissive


def test_offsets_by_partition() -> None:
    options = parsed({"startingOffsets": '{"t": {"0": 7, "1": -2}}'}, streaming=False)
    assert options.start == Limit(option="startingOffsets", each={T0: 7, T1: EARLIEST})


def test_precedence_is_that_of_the_kafka_source() -> None:
    given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t": {"0": 5}}'}
    assert parsed(given).start == Limit(
        option="startingOffsetsByTimestamp", by_time=True, each={T0: 5}
    )
    given["startingTimestamp"] = "9"
    assert parsed(given).start == Limit(option="startingTimestamp", by_time=True, every=9)


def test_sizes_times_and_settings() -> None:
    options = parsed(
        {
            "maxPartitionBytes": "2m",
            "maxTriggerDelay": "30s",
            "set.mappedfilesizecommitlog": "1024",
            "minPartitions": "4",
            "maxRecordsPerPartition": "10",
        }
    )
    assert options.max_partition_bytes == 2 << 20
    assert options.max_trigger_delay_ms == 30_000
    assert options.settings == {"mappedfilesizecommitlog": "1024"}
    assert (options.min_partitions, options.max_records_per_partition) == (4, 10)


def test_choices() -> None:
    assert parsed({"subscribe": " b, a ,a"}).topics == ["a", "b"]
    assert parsed({"assign": '{"t": [1, 0, 1]}'}).assigned == [T0, T1]
    pattern = parsed({"subscribePattern": "a.*"}).pattern
    assert pattern is not None
    assert pattern.fullmatch("abc")


@pytest.mark.parametrize("path", ["/a b", "a:b/c", "../data/"])
def test_paths(path: str) -> None:
    assert parsed({"path": path}).path == str(Path(path).absolute())


@pytest.mark.parametrize("uri", ["file:/a/b", "file:///a/b"])
def test_a_file_uri_is_a_path(uri: str) -> None:
    assert parsed({"path": uri}).path == "/a/b"


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ({"path": ""}, "option path: is missing"),
        ({"path": "s3://bucket/x"}, "option path: 's3://bucket/x' is no path"),
        (
            {"startingOffset": "earliest"},
            "startingoffset: is unknown: did you mean startingOffsets",
        ),
        ({"zzz": "1"}, "option zzz: is unknown; known: path, subscribe"),
        ({"kafka.bootstrap.servers": "x:1"}, "kafka.bootstrap.servers: is for a Kafka client"),
        ({"subscribe": "a", "assign": '{"t":[0]}'}, "option subscribe: only one of"),
        ({"subscribe": " , "}, "option subscribe: names no topic"),
        ({"subscribePattern": "("}, r"option subscribePattern: '\(' is no regular expression"),
        ({"subscribePattern": ""}, "option subscribePattern: is empty"),
        ({"assign": "t"}, "option assign: 't' is no JSON"),
        ({"assign": "{}"}, "option assign: names no partition"),
        ({"assign": '{"t": 1}'}, "option assign: topic 't' is not like"),
        ({"assign": '{"t": [true]}'}, "option assign: topic 't' is not like"),
        ({"assign": '{"t": [-1]}'}, "option assign: '-1' is no partition's number"),
        ({"assign": "[1]"}, "option assign: '\\[1\\]' is no JSON object"),
        ({"startingOffsets": "soon"}, "option startingOffsets: 'soon' is no JSON"),
        ({"startingOffsets": "latest"}, "option startingOffsets: latest, -1"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "option startingOffsets: latest, -1"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "option startingOffsets: -3 for t-0"),
        ({"startingOffsets": '{"t":{"0":1.5}}'}, "option startingOffsets: 1.5 for t-0"),
        ({"startingOffsets": '{"t":[0]}'}, "option startingOffsets: topic 't' is not like"),
        ({"startingOffsets": '{"t":{"x":0}}'}, "option startingOffsets: 'x' is no partition"),
        ({"endingOffsets": "earliest"}, "option endingOffsets: earliest, -2"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "option endingOffsets: earliest, -2"),
        ({"startingTimestamp": "noon"}, "option startingTimestamp: 'noon' is no whole number"),
        ({"endingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "endingOffsetsByTimestamp: -1 for t-0"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "Strategy: 'x' is none of error, latest"),
        ({"minPartitions": "0"}, "option minPartitions: '0' is no whole number above 0"),
        ({"maxOffsetsPerTrigger": "-5"}, "option maxOffsetsPerTrigger: '-5'"),
        ({"maxPartitionBytes": "0"}, "option maxPartitionBytes: '0' is no size"),
        ({"maxPartitionBytes": "3x"}, "option maxPartitionBytes: '3x' is no size"),
        ({"maxTriggerDelay": "3 weeks"}, "option maxTriggerDelay: '3 weeks' is no time"),
        ({"failOnDataLoss": "perhaps"}, "option failOnDataLoss: 'perhaps' is none of true, false"),
        ({"isolationLevel": "none"}, "isolationLevel: 'none' is none of read_uncommitted"),
        ({"mode": "DROPMALFORMED"}, "option mode: 'DROPMALFORMED' is none of failfast"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"},
            "option minOffsetsPerTrigger: 9 is more than maxOffsetsPerTrigger, 3",
        ),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], reported: str) -> None:
    with pytest.raises(InvalidArgument, match=reported):
        parsed(given, streaming=False)


@pytest.mark.parametrize("name", ENDS)
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"option {name}: has no meaning in a stream"):
        parsed({name: "1"}, streaming=True)
