"""Topics that a real broker compacts: tools show its logs, readers get the commit log, appends are refused."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage import (
    Prepared,
    RawMessage,
    Record,
    StoreOptions,
    SupportsDelay,
    SupportsHalfMessages,
    SupportsRawMessages,
    TopicPartition,
    open_store,
)
from storage.errors import NotOffered
from storage.prompt import SupportsPromptAppend
from storage.rocketmq.format.queue_entry import SPARSE_UNIT_SIZE
from tests.cli.runner import fine, run, settings_options

GOLDEN = Path(__file__).parent / "rocketmq_compacted"
STORE = GOLDEN / "store"
SIZES = {name: str(size) for name, size in json.loads((GOLDEN / "params.json").read_text()).items()}
OPTIONS = settings_options(SIZES)
LOG = STORE / "compaction" / "compactionLog" / "latest"
QUEUE = STORE / "compaction" / "compactionCq" / "latest"
FIRST, SECOND = f"{0:020}", f"{8280:020}"  # the files of one compaction
PLACE = TopicPartition("latest", 0)
Row = dict[str, Any]


def expected(queue: int | None = None) -> list[Row]:
    """Return what the real store gave its consumers."""
    rows = [json.loads(line) for line in (GOLDEN / "expected.jsonl").read_bytes().splitlines()]
    return [row for row in rows if queue in (None, row["queueId"])]


def seen(rows: list[Row]) -> list[Row]:
    """Return the fields that the real store's answers have, of rows of a dump."""
    names = ("topic", "queueId", "queueOffset", "keys", "physicalOffset")
    return [
        {**{name: row[name] for name in names}, "body": base64.b64decode(row["body"]).decode()}
        for row in rows
    ]


def dumped(path: Path, *more: str) -> list[Row]:
    rows: list[Row] = fine("dump", path, *more, *OPTIONS).rows
    return rows


# ---- intact ---------------------------------------------------------------------------------------


def test_a_store_shows_what_consumers_of_the_broker_get() -> None:
    assert seen(dumped(STORE, "--what", "compacted")) == expected()
    chosen = dumped(STORE, "--what", "compacted", "--topic", "latest", "--partition", "1")
    assert seen(chosen) == expected(1)
    assert seen(dumped(STORE / "compaction")) == expected()
    assert run("dump", STORE, "--what", "compacted", "--topic", "plain", *OPTIONS).rows == []


@pytest.mark.parametrize("queue", [0, 1])
def test_the_folder_of_a_queue(queue: int) -> None:
    folder = LOG / str(queue)
    assert seen(dumped(folder)) == expected(queue)
    summary = fine("inspect", folder).document
    offsets = [row["queueOffset"] for row in expected(queue)]
    assert (summary["topic"], summary["partition"], summary["records"]) == (
        "latest",
        queue,
        len(offsets),
    )
    assert (summary["earliest"], summary["latest"]) == (offsets[0], offsets[-1] + 1)
    assert run("verify", folder).rows == run("verify", QUEUE / str(queue)).rows == []
    found = fine("find", folder, "--key", "k3").rows
    assert seen(found) == [row for row in expected(queue) if row["keys"] == "k3"]


def test_files() -> None:
    """A log file is inspected like one of the commit log; a file of entries has sparse entries."""
    inside = [row for row in expected(0) if row["physicalOffset"] < int(SECOND)]
    assert seen(dumped(LOG / "0" / FIRST)) == inside
    entries = dumped(QUEUE / "0" / FIRST)
    for name in ("queueOffset", "physicalOffset"):
        assert [row[name] for row in entries] == [row[name] for row in inside]
    whole = dumped(QUEUE / "0")
    assert [row["queueOffset"] for row in whole] == [row["queueOffset"] for row in expected(0)]
    assert {row["batchSize"] for row in whole} == {1}
    assert fine("inspect", QUEUE / "0" / FIRST).document["records"] == len(inside)


def test_verify_names_the_queues() -> None:
    rows = run("verify", STORE, *OPTIONS).rows
    assert [(row["code"], row["partition"]) for row in rows] == [
        ("compaction-log", 0),
        ("compaction-log", 1),
    ]


# ---- damaged --------------------------------------------------------------------------------------


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, tuple[str, Callable[[Path, Path], object], int]] = {
    "a body": ("bad-compacted-record", lambda log, _: flip(log / FIRST, 95), 1),
    "the place of a record": (
        "bad-compacted-record",
        lambda _, queue: flip(queue / SECOND, SPARSE_UNIT_SIZE + 5),
        1,
    ),
    "an offset": ("bad-compacted-record", lambda _, queue: flip(queue / SECOND, 28 + 7), 1),
    "no log file": ("compaction-mismatch", lambda log, _: (log / FIRST).unlink(), 7),
    "no entries": ("compaction-mismatch", lambda _, queue: (queue / FIRST).unlink(), 7),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_is_named_and_costs_no_other_record(name: str, tmp_path: Path) -> None:
    code, inflict, lost = DAMAGES[name]
    store = tmp_path / "store"
    shutil.copytree(STORE, store)
    part = Path("compaction")
    inflict(store / part / "compactionLog/latest/0", store / part / "compactionCq/latest/0")
    found = {row["code"]: row for row in run("verify", store, *OPTIONS).rows}
    assert (found[code]["topic"], found[code]["partition"], found[code]["severity"]) == (
        "latest",
        0,
        "error",
    )
    shown = run("dump", store, "--what", "compacted", *OPTIONS).rows
    rest = [row for row in seen(shown) if row in expected()]
    assert rest == seen(shown)
    assert len(expected()) - len(rest) == lost


# ---- served ---------------------------------------------------------------------------------------


def test_readers_get_the_commit_log_and_appends_are_refused(tmp_path: Path) -> None:
    """Consumers of the broker would never see such a record: it is in the queue, so the broker does not copy it."""
    path = tmp_path / "store"
    shutil.copytree(STORE, path)
    with open_store("rocketmq", path, StoreOptions(settings=SIZES)) as store:
        assert store.bounds(PLACE).start == 0
        keys = [record.lookup_keys for record in store.read(PLACE, 0).records]
        assert len(keys) == store.bounds(PLACE).end == 42
        assert isinstance(store, SupportsPromptAppend)
        assert isinstance(store, SupportsRawMessages)
        assert isinstance(store, SupportsDelay)
        assert isinstance(store, SupportsHalfMessages)
        records = [Record(None, b"v", lookup_keys=("k1",))]
        message = RawMessage(b"v", b"", 0, 0, 0, bytes(8))
        for refused in (
            lambda: store.append(PLACE, records),
            lambda: store.append_promptly(PLACE, records),
            lambda: store.append_messages(PLACE, [message]),
            lambda: store.preview_topic("latest", records),
            lambda: store.delays.delayed(records[0], PLACE, 1),
            lambda: store.half_messages.prepared(records[0], PLACE, Prepared("id", "g", 1000)),
        ):
            with pytest.raises(NotOffered, match="compacted by a broker") as refusal:
                refused()
            assert refusal.value.facts()["feature"] == "cleanup.policy=COMPACTION"
        assert store.bounds(PLACE).end == 42
        assert store.append(TopicPartition("plain", 0), records).base_offset == 12
