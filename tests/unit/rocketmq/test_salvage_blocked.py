"""A salvage of a store with files in the place of folders builds queues from the log, and reports lost positions."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from storage import StoreOptions
from storage.model import LossReport, TopicPartition
from storage.rocketmq.store import open_rocketmq
from tests.unit.rocketmq.recovery.foreign_log import inspector
from tests.unit.rocketmq.recovery.test_blocked_folders import PLACES, T1, VALUES, block, filled
from tests.unit.rocketmq.workshop import ROOT, SMALL, Workshop, put_value, values

NEW = Path("/w/new")
T2 = TopicPartition("t", 2)


def salvaged(shop: Workshop) -> LossReport:
    with inspector(shop) as tools:
        return tools.salvage(NEW)


def is_wrong(report: LossReport) -> bool:
    """Return whether the command exits with 1."""
    return bool(report.losses) or any(f.severity != "info" for f in report.findings)


@pytest.mark.parametrize("data", [b"", b"text", b"\0" * 100])
@pytest.mark.parametrize("place", PLACES)
def test_all_records_come_from_the_log(place: str, data: bytes, shop: Workshop) -> None:
    filled(shop)
    block(shop, place, data)
    report = salvaged(shop)
    assert not is_wrong(report)
    assert report.kept_records == len(VALUES)
    left = [f.path for f in report.findings if f.code == "left-behind"]
    assert left == [str(ROOT / place)]
    options = StoreOptions(settings=SMALL)
    with closing(open_rocketmq(NEW, options, fs=shop.fs, clock=shop.clock, read_only=False)) as new:
        assert values(new, T1) == VALUES
        assert put_value(new, b"more", T1).base_offset == len(VALUES)


def without_head(shop: Workshop) -> None:
    """Fill a store and remove the log's head: queue 1 keeps records in the log, queues 0 and 2 do not."""
    with closing(shop.open_with_topic(partitions=3)) as store:
        for queue in (TopicPartition("t", 0), T2):
            put_value(store, b"first", queue)
        for number in range(30):
            put_value(store, b"value-%02d" % number, T1)
    shop.fs.remove(shop.log_path(0))


@pytest.mark.parametrize(
    ("place", "named"),
    [
        ("consumequeue", [0, 2]),
        ("consumequeue/t", [0, 2]),
        ("consumequeue/t/0", [0]),
        ("consumequeue/t/2", [2]),
        ("consumequeue/t/1", []),
        ("index", []),
        ("consumequeue/notes", []),
    ],
)
def test_a_position_that_is_lost_is_named(place: str, named: list[int], shop: Workshop) -> None:
    without_head(shop)
    block(shop, place, b"x")
    report = salvaged(shop)
    reported = [f for f in report.findings if f.code == "unknown-file"]
    assert [(f.topic, f.partition, f.severity) for f in reported] == [
        ("t", n, "error") for n in named
    ]
    assert all("next offset is lost" in f.message for f in reported)
    assert is_wrong(report) == bool(named)


@pytest.mark.parametrize("place", ["consumequeue/%LMQ%a", "consumequeue/%LMQ%a/0"])
def test_a_light_message_queue_is_named(place: str, shop: Workshop) -> None:
    filled(shop)
    shop.fs.make_dir((ROOT / place).parent)
    block(shop, place, b"x")
    report = salvaged(shop)
    reported = [(f.topic, f.severity) for f in report.findings if f.code == "unknown-file"]
    assert reported == [("%LMQ%a", "error")]


@pytest.mark.parametrize("place", ["config", "commitlog"])
def test_what_nothing_makes_again_is_an_error(place: str, shop: Workshop) -> None:
    filled(shop)
    block(shop, place, b"x")
    report = salvaged(shop)
    reported = [(f.path, f.severity) for f in report.findings if f.code == "unknown-file"]
    assert reported == [(str(ROOT / place), "error")]
    assert is_wrong(report)
