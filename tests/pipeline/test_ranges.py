"""The offset ranges of a read, and the errors for lost offsets."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from logserver.pipeline.processes import TASKS
from logserver.pipeline.read.options import parse_read_options
from logserver.pipeline.read.ranges import Chosen, open_chosen
from storage import (
    Isolation,
    OffsetBounds,
    OffsetRange,
    Record,
    StoreOptions,
    TopicPartition,
    open_store,
)
from storage.errors import CallerError, Corrupt, InvalidArgument, IoFailure, OffsetOutOfRange
from storage.findings import finding
from tests.pipeline.fakes import FakeSplitter

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
INTERNAL = TopicPartition("__consumer_offsets", 0)
BOUNDS = {
    A0: OffsetBounds(10, 15, 20),
    A1: OffsetBounds(0, 5, 5),
    B0: OffsetBounds(0, 0, 0),
    INTERNAL: OffsetBounds(0, 3, 3),
}


def chosen(*, streaming: bool = False, **options: Any) -> Chosen:
    given = {name: str(value) for name, value in options.items()}
    return Chosen(
        FakeSplitter(BOUNDS), parse_read_options({"path": "/x", **given}, streaming=streaming)
    )


def ranges(**options: Any) -> list[OffsetRange]:
    return list(chosen(**options).batch_ranges())


def test_all_that_is_not_internal() -> None:
    assert ranges() == [OffsetRange(A0, 10, 20), OffsetRange(A1, 0, 5)]


def test_choices() -> None:
    assert ranges(subscribe="__consumer_offsets") == [OffsetRange(INTERNAL, 0, 3)]
    assert ranges(assign='{"a":[1]}') == [OffsetRange(A1, 0, 5)]
    assert ranges(subscribePattern="__.*|b") == [OffsetRange(INTERNAL, 0, 3)]
    assert ranges(subscribePattern="_") == []


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        (
            {"subscribe": "a,x"},
            "option subscribe: the store has no x; it has __consumer_offsets, a",
        ),
        ({"assign": '{"a":[7]}'}, "option assign: the store has no a-7; it has .*a-0, a-1"),
        (
            {"subscribe": "a", "startingOffsets": '{"a":{"0":1}}'},
            "option startingOffsets: must name every partition: it names a-0, but the partitions are "
            "a-0, a-1",
        ),
        (
            {
                "assign": '{"a":[0]}',
                "startingOffsets": '{"a":{"0":15}}',
                "endingOffsets": '{"a":{"0":12}}',
            },
            "option startingOffsets: a-0 would begin at 15, after its end 12",
        ),
        (
            {"startingTimestamp": 6000},
            "option startingTimestamp: a-1 has no record at or after 6000",
        ),
    ],
)
def test_what_cannot_be_is_named(options: dict[str, Any], reported: str) -> None:
    with pytest.raises(InvalidArgument, match=reported):
        ranges(**options)


def test_times() -> None:
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    assert ranges(startingTimestamp=12_500, **late) == [OffsetRange(A0, 13, 20)]
    found = ranges(endingTimestamp=12_500)
    assert found == [OffsetRange(A0, 10, 13), OffsetRange(A1, 0, 5)]
    by_partition = '{"a":{"0":11000}}'
    found = ranges(assign='{"a":[0]}', startingOffsetsByTimestamp=by_partition)
    assert found == [OffsetRange(A0, 11, 20)]


def test_read_committed_ends_at_the_last_stable_offset() -> None:
    found = ranges(assign='{"a":[0]}', isolationLevel="read_committed")
    assert found == [OffsetRange(A0, 10, 15)]


@pytest.mark.parametrize(
    ("name", "offset", "left"),
    [
        ("startingOffsets", 3, [OffsetRange(A0, 10, 20)]),
        ("startingOffsets", 12, [OffsetRange(A0, 12, 20)]),
        ("endingOffsets", 33, [OffsetRange(A0, 10, 20)]),
        ("endingOffsets", 20, [OffsetRange(A0, 10, 20)]),
    ],
)
def test_gone_offsets(
    name: str, offset: int, left: list[OffsetRange], caplog: pytest.LogCaptureFixture
) -> None:
    options = {"assign": '{"a":[0]}', name: f'{{"a":{{"0":{offset}}}}}'}
    whole = 10 <= offset <= 20
    if not whole:
        with pytest.raises(OffsetOutOfRange, match=f"offset {offset} of a-0 is out of range"):
            ranges(**options)
    with caplog.at_level(logging.WARNING):
        assert ranges(**options, failOnDataLoss="false") == left
    assert bool(caplog.records) != whole


def test_a_plan_gets_what_was_asked_for() -> None:
    view = chosen(maxPartitionBytes=7, minPartitions=5, isolationLevel="read_committed")
    assert len(view.plan([OffsetRange(A0, 10, 20), OffsetRange(A1, 0, 5)])) == 2
    assert isinstance(view.splitter, FakeSplitter)
    assert view.splitter.planned == [
        ([OffsetRange(A0, 10, 20), OffsetRange(A1, 0, 5)], 7, 5, Isolation.READ_COMMITTED)
    ]
    assert view.plan([]) == []


MB = 1 << 20


@pytest.mark.parametrize("backend", ["kafka", "rocketmq"])
@pytest.mark.parametrize(
    ("sizes_mb", "tasks", "options", "splits"),
    [
        ([10, 10, 10], "2", {}, 2),
        ([6.4] * 5, "2", {}, 2),
        ([20, 5, 5], "2", {}, 2),
        ([10, 10, 10], "4", {}, 4),
        ([9, 9, 9], "200", {}, 4),  # 8 MiB each
        ([9, 9, 9], "", {}, 4),
        ([4, 1], "2", {}, 1),
        ([10, 1], "2", {}, 2),
        ([10, 1], "2", {"minPartitions": 3}, 3),
        ([10, 10, 10], "2", {"maxPartitionBytes": "9m"}, 4),
        ([140], "2", {}, 3),  # 64 MiB at most
    ],
)
def test_a_micro_batch_is_cut_into_what_runs_at_once(
    backend: str,
    sizes_mb: list[float],
    tasks: str,
    options: dict[str, Any],
    splits: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TASKS, tasks)
    fill(tmp_path / "store", backend, sizes_mb)
    given = {name: str(value) for name, value in options.items()}
    view = open_chosen(
        parse_read_options({"path": str(tmp_path / "store"), **given}, streaming=True)
    )
    bounds = [(partition, view.bounds(partition)) for partition in view.partitions()]
    planned = view.plan([OffsetRange(at, found.start, found.end) for at, found in bounds])
    view.splitter.close()
    share = sum(sizes_mb) / splits
    assert len(planned) == splits
    assert all(share * 0.8 < split.size_bytes / MB < share * 1.2 for split in planned)


def fill(path: Path, backend: str, sizes_mb: list[float]) -> None:
    """Create a store with these sizes in its partitions; a Kafka store has segments of 5 MB."""
    settings = {"log.segment.bytes": str(5 * MB)} if backend == "kafka" else {}
    with open_store(backend, path, StoreOptions(settings=settings)) as store:
        store.create_topic("t", len(sizes_mb))
        for number, size_mb in enumerate(sizes_mb):
            for _ in range(round(size_mb * 10)):
                store.append(TopicPartition("t", number), [Record(None, bytes(MB // 10))])


def test_a_micro_batch_is_planned_once_where_records_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TASKS, "2")
    view = chosen(streaming=True, maxRecordsPerPartition=4)
    assert len(view.plan([OffsetRange(A0, 10, 20)])) == 3
    assert isinstance(view.splitter, FakeSplitter)
    assert len(view.splitter.planned) == 3


def test_splits_of_so_many_records() -> None:
    view = chosen(maxRecordsPerPartition=4, minPartitions=8)
    splits = view.plan([OffsetRange(A0, 10, 20), OffsetRange(A1, 0, 4)])
    assert [split.plan for split in splits] == [
        OffsetRange(A0, 10, 14),
        OffsetRange(A0, 14, 18),
        OffsetRange(A0, 18, 20),
        OffsetRange(A1, 0, 4),
    ]
    assert isinstance(view.splitter, FakeSplitter)
    assert {least for _, _, least, _ in view.splitter.planned} == {2}


def test_a_partition_that_is_gone() -> None:
    view = chosen()
    assert "topic 'x' does not exist" in str(view.missing(TopicPartition("x", 0)))
    assert "topic 'a' has no partition 7: it has 2" in str(view.missing(TopicPartition("a", 7)))
    assert "a-0 was read until now, and the options do not choose it" in str(view.missing(A0))


A2 = TopicPartition("a", 2)
GONE = {
    "partition-without-folder": A2,
    "checkpoint-ahead": A1,
    "log-ends-below-named": A0,
    "partition-without-logs": B0,
}


@pytest.mark.parametrize("code", GONE)
@pytest.mark.parametrize("quiet", [{}, {"mode": "PERMISSIVE"}, {"failOnDataLoss": "false"}])
def test_a_partition_that_is_missing_is_an_error_or_a_warning(
    code: str, quiet: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    gone = GONE[code]
    others = sorted({A0, A1, B0} - {gone})
    lost_topic: dict[str, Any] = {"subscribe": gone.topic}
    rest: dict[str, Any] = {"assign": json.dumps({at.topic: [at.partition] for at in others[:1]})}
    for options, names_it in [(dict[str, Any](), True), (lost_topic, True), (rest, False)]:
        view = chosen(**options, **quiet)
        assert isinstance(view.splitter, FakeSplitter)
        view.splitter.gone.append(
            finding(code, f"/x/{gone}", topic=gone.topic, partition=gone.partition, message="lost")
        )
        if names_it and not quiet:
            with pytest.raises(Corrupt, match=f"/x/{gone}: topic '{gone.topic}' .*: lost.*mode=P"):
                view.batch_ranges()
        else:
            assert view.batch_ranges() == ranges(**options)
        assert bool(caplog.records) is (names_it and bool(quiet))
        caplog.clear()


@pytest.mark.parametrize(("end", "fails"), [(12, False), (19, False), (20, True), (-1, True)])
def test_what_is_read_below_a_lost_end_is_whole(end: int, fails: bool) -> None:
    view = chosen(assign='{"a":[0]}', endingOffsets=json.dumps({"a": {"0": end}}))
    assert isinstance(view.splitter, FakeSplitter)
    view.splitter.gone.append(finding("checkpoint-ahead", "/x", topic="a", partition=0))
    if fails:
        with pytest.raises(Corrupt):
            view.batch_ranges()
    else:
        assert view.batch_ranges() == [OffsetRange(A0, 10, end)]


@pytest.mark.parametrize("lost", ["a folder", "a last segment", "all logs"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_store_that_lacks_records(tmp_path: Path, lost: str, number: int) -> None:
    settings = {"internal.segment.bytes": "100"}
    with open_store("kafka", tmp_path, StoreOptions(settings=settings)) as store:
        store.create_topic("t", 3)
        for partition in range(3):
            for _ in range(3):
                store.append(TopicPartition("t", partition), [Record(None, b"v")])
    folder = tmp_path / f"t-{number}"
    logs = sorted(folder.glob("*.log"))
    for log in logs[-1:] if lost == "a last segment" else logs:
        for path in folder.glob(f"{log.stem}.*"):
            path.unlink()
    if lost == "a folder":
        shutil.rmtree(folder)
    for options in ({}, {"mode": "PERMISSIVE"}):
        view = open_chosen(parse_read_options({"path": str(tmp_path), **options}))
        if options:
            kept = {at.partition: end for at, _, end in view.batch_ranges()}
            left = {"a last segment": 2}.get(lost, 0)
            assert kept == {n: end for n in range(3) if (end := left if n == number else 3)}
        else:
            with pytest.raises(Corrupt, match=f"topic 't' partition {number}"):
                view.batch_ranges()
        view.splitter.close()


def test_settings_are_the_stores(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "00000000000000000000.log").touch()
    options = parse_read_options({"path": str(tmp_path), "set.nonsense": "1"})
    with pytest.raises(InvalidArgument, match=r"option set.nonsense: is no setting of the store"):
        open_chosen(options)


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(IoFailure, match="nowhere does not exist"):
        open_chosen(parse_read_options({"path": str(tmp_path / "nowhere")}))


def test_losses_are_callers_errors() -> None:
    with pytest.raises(CallerError):
        chosen().lose(chosen().missing(A0))
