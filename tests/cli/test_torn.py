"""Commands on damaged stores: good records are shown, missing records are reported with file and position."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from logserver import LogServer
from tests.cli.runner import Ended, run
from tests.golden import stores

TORN = stores.KAFKA / stores.DAMAGED
ACTIVE, MIDDLE = "00000000000000001113.log", "00000000000000000597.log"
HEALTHY = stores.GoldenPartition("epochs", "epoch-idem-0")

# The finding of `dump` on standard error (None: all records are shown), and all findings of `verify`.
TORN_TAIL = ("torn-tail", ACTIVE, 6804)
GARBAGE = ("torn-tail", ACTIVE, 6961)
ZEROS = ("zero-tail", ACTIVE, 6961)
DAMAGED_ACTIVE = ("damaged-batch", ACTIVE, 3384)
MISPLACED = ("misplaced-batch", ACTIVE, 3384)
DAMAGED_MIDDLE = ("damaged-batch", MIDDLE, 3096)
BAD_SNAPSHOT = ("bad-snapshot", "00000000000000001203.snapshot", None)
GAP = ("offset-gap", f"{681:020}.log", 0)
FOUND: dict[str, tuple[tuple[str, str, int | None] | None, set[str]]] = {
    "cut-7-bytes": (TORN_TAIL, {"torn-tail", "checkpoint-ahead"}),
    "cut-in-header": (TORN_TAIL, {"torn-tail", "checkpoint-ahead"}),
    "cut-mid-batch": (TORN_TAIL, {"torn-tail", "checkpoint-ahead"}),
    "cut-mid-batch-clean": (TORN_TAIL, {"torn-tail", "checkpoint-ahead"}),
    "cut-mid-batch-recovery-point-end": (TORN_TAIL, {"torn-tail", "checkpoint-ahead"}),
    "epochs-missing": (None, {"missing-leader-epochs"}),
    "flip-active": (DAMAGED_ACTIVE, {"damaged-batch"}),
    "flip-base-offset": (MISPLACED, {"misplaced-batch"}),
    "flip-leader-epoch": (None, {"leader-epoch-mismatch"}),
    "flip-length": (DAMAGED_ACTIVE, {"damaged-batch"}),
    "flip-magic": (TORN_TAIL, {"torn-tail", "checkpoint-ahead"}),
    "flip-middle-segment": (DAMAGED_MIDDLE, {"damaged-batch"}),
    "flip-middle-segment-clean": (DAMAGED_MIDDLE, {"damaged-batch"}),
    "flip-middle-segment-recovered-below": (DAMAGED_MIDDLE, {"damaged-batch"}),
    "garbage-tail": (GARBAGE, {"torn-tail"}),
    "index-missing-clean": (None, {"missing-index"}),
    "index-odd-size-clean": (None, {"bad-index"}),
    "index-zero-extended": (None, set()),  # as after any crash: reported as `info`
    "index-zero-extended-clean": (None, {"index-not-trimmed"}),
    "indexes-missing": (None, {"missing-index"}),
    "leftover-swap": (None, {"leftover-swap"}),
    "leftovers-deleted-cleaned": (None, {"leftover-swap"}),
    "middle-segment-missing-clean": (None, {"offset-gap"}),
    "snapshot-flip-clean": (BAD_SNAPSHOT, {"bad-snapshot"}),
    "snapshots-missing": (None, {"missing-snapshot"}),
    "timeindex-missing-clean": (None, {"missing-index"}),
    "zero-tail": (ZEROS, {"zero-tail"}),
    "zero-tail-clean": (ZEROS, {"zero-tail"}),
}
each_variant = pytest.mark.parametrize("variant", FOUND)


def root_of(variant: str) -> Path:
    """Return the damaged directory."""
    return TORN / variant / "data"


def broker_of(variant: str) -> Any:
    """Return the result of the real broker for the directory."""
    return json.loads((TORN / variant / "result.json").read_text())["broker"]


def stated(ended: Ended) -> list[str]:
    """Return the findings on standard error that are worse than info."""
    return [
        line for line in ended.err.splitlines() if not line.startswith(("info:", "incomplete:"))
    ]


def test_every_variant_is_here() -> None:
    assert sorted(FOUND) == stores.damaged_variants()


@each_variant
def test_dump_keeps_at_least_what_the_broker_keeps(variant: str) -> None:
    expected = {row["offset"]: row for row in HEALTHY.lines("expected.jsonl")}
    rows = run("dump", root_of(variant)).rows
    assert rows == [expected[row["offset"]] for row in rows]
    found = {row["offset"] for row in rows}
    readable = broker_of(variant)["readable"]
    assert found >= {offset for first, last in readable for offset in range(first, last + 1)}


@each_variant
@pytest.mark.parametrize("what", ["records", "batches"])
def test_dump_tells_what_it_leaves_out(variant: str, what: str) -> None:
    ended = run("dump", root_of(variant), "--what", what)
    place = GAP if variant == "middle-segment-missing-clean" else FOUND[variant][0]
    assert ended.code == (0 if place is None else 1)
    if place is None:
        assert stated(ended) == []
    else:
        code, file, position = place
        (line,) = stated(ended)
        assert f"/{file}" + (f" at {position}:" if position is not None else ":") in line
        assert f" [{code}]; " in line


@each_variant
def test_batches_that_are_shown_are_those_of_the_broker(variant: str) -> None:
    """Valid batches have the real broker's header; one variant changes the leader epoch."""
    expected = {
        batch["baseOffset"]: batch
        for batches in HEALTHY.json("batches.json").values()
        for batch in batches
    }
    rows = run("dump", root_of(variant), "--what", "batches").rows
    valid = [row for row in rows if row["valid"]]
    for row in valid:
        for name, value in expected[row["baseOffset"]].items():
            assert row[name] == value or name == "leaderEpoch"
    bad = [(row["file"], row["position"]) for row in rows if not row["valid"]]
    in_the_middle = FOUND[variant][0] in (DAMAGED_ACTIVE, DAMAGED_MIDDLE, MISPLACED)
    assert bad == ([FOUND[variant][0][1:]] if in_the_middle else [])  # type: ignore[index]


@each_variant
def test_verify(variant: str) -> None:
    ended = run("verify", root_of(variant))
    place, codes = FOUND[variant]
    wrong = [row for row in ended.rows if row["severity"] != "info"]
    assert {row["code"] for row in wrong} == codes
    assert ended.code == (1 if codes else 0)
    if place is not None:
        places = [(row["code"], Path(row["path"]).name, row["position"]) for row in wrong]
        assert places.count(place) == 1


@each_variant
def test_inspect(variant: str) -> None:
    ended = run("inspect", root_of(variant))
    place, _ = FOUND[variant]
    summary = ended.document
    codes = [f["code"] for f in summary["findings"] if f["severity"] != "info"]
    # A summary does not read the part before the last index entry of a cleanly stopped log.
    unread = variant.startswith("flip-middle-segment-")
    missing = variant.startswith("middle-segment-missing")
    assert codes == (["offset-gap"] if missing else [] if place is None or unread else [place[0]])
    assert ended.code == (1 if codes else 0)
    assert summary["cleanShutdown"] is variant.endswith("-clean")
    assert summary["recovery"]["refused"] is (codes in (["damaged-batch"], ["misplaced-batch"]))
    (topic,) = summary["topics"]
    assert topic["partitions"][0]["latest"] == (1202 if place == TORN_TAIL else 1203)


def test_inspect_tells_what_a_start_would_cut() -> None:
    (cut,) = run("inspect", root_of("cut-mid-batch-clean")).document["recovery"]["cut"]
    assert Path(cut["path"]).name == ACTIVE
    assert (cut["position"], cut["size_bytes"], cut["first_offset"]) == (6804, 104, 1202)


@each_variant
def test_files_alone(variant: str) -> None:
    """A file's own damage is also found without the store around it."""
    shown = set()
    for path in sorted((root_of(variant) / HEALTHY.name).glob("*.log")):
        ended = run("dump", path)
        shown |= {row["offset"] for row in ended.rows}
        place = FOUND[variant][0]
        bad_here = place is not None and place[1] == path.name
        assert ended.code == (1 if bad_here else 0)
        assert run("verify", path).code == ended.code
        if bad_here:
            (finding,) = run("verify", path).rows
            assert (finding["code"], finding["position"]) == (place[0], place[2])  # type: ignore[index]
    whole = {row["offset"] for row in run("dump", root_of(variant)).rows}
    assert shown == whole or variant == "leftover-swap"  # a log with another suffix exists there


@each_variant
def test_find_looks_behind_damage(variant: str) -> None:
    last = {row["offset"]: row for row in run("dump", root_of(variant)).rows}
    found = run("find", root_of(variant), "--from", "0", "--limit", "5000")
    assert [row["offset"] for row in found.rows] == sorted(last)
    place = FOUND[variant][0]
    assert found.code == (0 if place is None else 1)


@pytest.mark.parametrize("variant", ["flip-active", "flip-middle-segment", "flip-length"])
def test_a_server_s_records_are_found_behind_damage_too(variant: str) -> None:
    """`find` on a server finds records after the damage, and reports the damage with its file, as on files."""
    with LogServer(root_of(variant), read_only=True) as server:
        found = run("find", server.url, "--from", "0", "--limit", "5000")
        there = {row["offset"] for row in run("dump", root_of(variant)).rows}
        assert {row["offset"] for row in found.rows} == there
        assert (found.code, found.err.count("[server-refused]")) == (1, 1)
        assert "damaged" in found.err
