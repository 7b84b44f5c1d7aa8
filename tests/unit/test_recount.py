"""A tool that makes a store counts what it made: a difference from its report is an error, and leaves no new store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from storage import StoreOptions, TopicPartition, convert_store, open_inspector
from storage.errors import MiscountedResult
from storage.files import RealFileSystem
from storage.kafka.tools.recount import count_records as kafka_count
from storage.recount import Contents, check_recount
from storage.rocketmq.tools.recount import count_records as rocketmq_count
from tests.golden import rocketmq_stores

T = TopicPartition("t", 0)


def test_what_agrees_passes() -> None:
    check_recount(Path("new"), {T: Contents(3, None)}, {T: Contents(3, 9)})
    check_recount(Path("new"), {T: Contents(0, 0)}, {})


@pytest.mark.parametrize(
    ("reported", "counted"),
    [
        (Contents(3, None), Contents(2, 9)),
        (Contents(2, None), Contents(3, 9)),
        (Contents(3, 4), Contents(3, 5)),
        (Contents(1, None), None),
    ],
)
def test_both_numbers_are_named(reported: Contents, counted: Contents | None) -> None:
    with pytest.raises(MiscountedResult) as raised:
        check_recount(Path("new"), {T: reported}, {} if counted is None else {T: counted})
    facts = raised.value.facts()
    assert (facts["topic"], facts["partition"], facts["path"]) == ("t", 0, "new")
    assert facts["reported"] != facts["counted"]
    assert f"{facts['reported']}" in raised.value.message
    assert f"{facts['counted']}" in raised.value.message


def one_less(count: Callable[..., Any]) -> Callable[..., Any]:
    """A count that misses a record of the first partition that has some."""

    def counted(*args: Any) -> dict[TopicPartition, Contents]:
        found = dict(count(*args))
        address = next(a for a, contents in found.items() if contents.records)
        found[address] = found[address]._replace(records=found[address].records - 1)
        return found

    return counted


@pytest.mark.parametrize("name", ["basic", "small", "broker"])
def test_a_salvage_of_rocketmq_that_keeps_less_than_it_says(name: str, tmp_path: Path) -> None:
    from storage.rocketmq.tools import salvage

    golden = rocketmq_stores.golden(name)
    inspector = open_inspector(golden.root, StoreOptions(settings=golden.settings))
    with (
        patch.object(salvage, "count_records", one_less(rocketmq_count)),
        pytest.raises(MiscountedResult),
    ):
        inspector.salvage(tmp_path / "new")
    inspector.close()
    assert not RealFileSystem().exists(tmp_path / "new")


@pytest.mark.parametrize("name", ["basic", "small", "broker"])
def test_a_conversion_that_writes_less_than_it_says(name: str, tmp_path: Path) -> None:
    from storage.conversion import kafka_logs

    golden = rocketmq_stores.golden(name)
    with (
        patch.object(kafka_logs, "count_records", one_less(kafka_count)),
        pytest.raises(MiscountedResult),
    ):
        convert_store(
            golden.root,
            tmp_path / "new",
            to="kafka",
            encode=True,
            options=StoreOptions(settings=golden.settings),
        )
    assert not RealFileSystem().exists(tmp_path / "new")
