"""When delayed records are due: by the delay levels in the settings, or else by the existing queue entries."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import pytest

from storage import TopicPartition
from storage.contract import SupportsParts, run_serially
from storage.model import Finding, FindQuery, RebuildReport
from storage.rocketmq.format.names import SCHEDULE_TOPIC, file_name
from storage.rocketmq.format.queue_entry import UNIT, UNIT_SIZE
from tests.unit.rocketmq.recovery.foreign_log import Message, inspector, write_log
from tests.unit.rocketmq.workshop import ROOT, Workshop

SECOND_MS, MINUTE_MS, HOUR_MS = 1000, 60_000, 3_600_000
THEIRS = {"messageDelayLevel": "2m 1s 100s 2h"}
OTHERS = {"messageDelayLevel": "7s 7s 7s 7s"}
WAITS_MS = [
    2 * MINUTE_MS,
    SECOND_MS,
    100 * SECOND_MS,
    2 * HOUR_MS,
]  # by level; some longer, some shorter than the default
USUAL_MS = [SECOND_MS, 5 * SECOND_MS, 10 * SECOND_MS, 30 * SECOND_MS]
LEVELS = range(4)


@pytest.fixture
def theirs(shop: Workshop) -> Workshop:
    """A store of a broker with its own delay levels: two records of each level, and as many of t."""
    messages = [
        Message(topic, n, b"v%d%d" % (level, n), queue_id=level, DELAY=f"{level + 1}")
        for n in range(2)
        for level in LEVELS
        for topic in (SCHEDULE_TOPIC, "t")
    ]
    write_log(shop, messages)
    shop.open(THEIRS).close()
    return shop


def queue_file(level: int) -> str:
    return str(ROOT / "consumequeue" / SCHEDULE_TOPIC / str(level) / file_name(0))


def waits_ms(shop: Workshop, settings: Mapping[str, str] | None = None) -> list[list[int]]:
    """Return how long each record of a level waits, in milliseconds, by level."""
    store = shop.open(settings, read_only=True)
    with store:
        return [
            [
                queue.units.unit(record.offset).tags_code - (record.store_timestamp_ms or 0)
                for record in store.scan(queue.partition)
            ]
            for queue in (store.queue(TopicPartition(SCHEDULE_TOPIC, n)) for n in LEVELS)
        ]


def wait_of(row: Mapping[str, Any]) -> int:
    return int(row["tagsCode"] - row["storeTimestamp"])


def twice(waits: list[int]) -> list[list[int]]:
    return [[wait, wait] for wait in waits]


def verify(shop: Workshop, settings: Mapping[str, str] | None = None) -> list[Finding]:
    with inspector(shop, settings) as tools:
        return list(tools.verify())


def rebuild(
    shop: Workshop, settings: Mapping[str, str] | None = None, *, shared: bool = False
) -> RebuildReport:
    with inspector(shop, settings) as tools:
        if shared:
            assert isinstance(tools, SupportsParts)
            return tools.rebuild_in_parts("consumequeue", run_serially, write=True)
        return tools.rebuild("consumequeue", write=True)


@pytest.mark.parametrize(("settings", "wait_ms"), [(None, SECOND_MS), (THEIRS, 2 * MINUTE_MS)])
def test_a_row_tells_the_time_where_the_unit_leads_to_an_extension(
    theirs: Workshop, settings: Mapping[str, str] | None, wait_ms: int
) -> None:
    """With enableConsumeQueueExt the entry holds an address instead of the time."""
    theirs.overwrite(ROOT / queue_file(0), UNIT.size - 8, struct.pack(">q", -(2**63) + 64))
    with inspector(theirs, settings) as tools:
        dumped = [row for rows in tools.dump("records", topic=SCHEDULE_TOPIC) for row in rows]
        found = list(tools.find(FindQuery(topic=SCHEDULE_TOPIC, key="v00")))
    assert [wait_of(row) for row in (dumped[0], found[0])] == [wait_ms, wait_ms]
    assert wait_of(dumped[1]) == 2 * MINUTE_MS


def test_a_start_makes_units_by_the_levels_that_are_given(theirs: Workshop) -> None:
    assert waits_ms(theirs) == twice(WAITS_MS)
    theirs.fs.remove_tree(ROOT / "consumequeue")
    assert waits_ms(theirs, THEIRS) == twice(WAITS_MS)
    assert waits_ms(theirs) == twice(USUAL_MS)


def test_a_start_keeps_units_whatever_levels_there_are(theirs: Workshop) -> None:
    """This holds after a crash too; only missing entries are created."""
    theirs.open(OTHERS).close()
    crashed = theirs.after_kill()
    crashed.overwrite(ROOT / queue_file(0), UNIT_SIZE, bytes(UNIT_SIZE))
    crashed.fs.remove(ROOT / "checkpoint")
    crashed.open(OTHERS)
    assert waits_ms(crashed.after_kill()) == [[2 * MINUTE_MS, 7000], *twice(WAITS_MS)[1:]]


def test_verify_hints_at_other_levels(theirs: Workshop) -> None:
    found = verify(theirs)
    assert [(f.code, f.severity, f.path) for f in found] == [
        ("other-delay-level", "info", queue_file(level)) for level in LEVELS
    ]
    assert "messageDelayLevel" in found[0].message
    assert verify(theirs, THEIRS) == []


def test_levels_that_are_given_are_the_measure(theirs: Workshop) -> None:
    assert {f.code for f in verify(theirs, OTHERS)} == {"wrong-tags-code"}


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "in parts"])
def test_rebuild_keeps_the_times_and_says_so_once(theirs: Workshop, shared: bool) -> None:
    theirs.overwrite(ROOT / "consumequeue/t/0" / file_name(0), 12, b"\x01")
    report = rebuild(theirs, shared=shared)
    assert report.changed == [str(ROOT / "consumequeue/t/0" / file_name(0))]
    hints = [f.path for f in report.findings if f.code == "other-delay-level"]
    assert hints == [str(ROOT / "consumequeue" / SCHEDULE_TOPIC)]
    assert waits_ms(theirs) == twice(WAITS_MS)


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "in parts"])
def test_rebuild_goes_by_the_levels_that_are_given(theirs: Workshop, shared: bool) -> None:
    assert rebuild(theirs, THEIRS, shared=shared).changed == []
    report = rebuild(theirs, OTHERS, shared=shared)
    assert report.changed == [queue_file(level) for level in LEVELS]
    assert waits_ms(theirs) == [[7000, 7000]] * len(LEVELS)


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "in parts"])
def test_a_time_before_the_record_was_stored_is_not_believed(
    theirs: Workshop, shared: bool
) -> None:
    theirs.overwrite(ROOT / queue_file(0), UNIT.size - 8, bytes(8))
    reported = [(f.code, f.path) for f in verify(theirs) if f.severity != "info"]
    assert reported == [("wrong-tags-code", queue_file(0))]
    assert rebuild(theirs, shared=shared).changed == [queue_file(0)]
    assert waits_ms(theirs)[0] == [SECOND_MS, 2 * MINUTE_MS]
