"""`group`, and `consume` as a member of a group, against a running server."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from logserver import LogServer
from logserver.client import BlockingClient
from tests.cli.runner import command_line, fine, run


@pytest.fixture
def filled(server: LogServer, topic: str, tmp_path: Path) -> str:
    """A topic with three records."""
    path = tmp_path / "lines"
    path.write_text("a\nb\nc\n")
    fine("produce", "-t", topic, path)
    return topic


def group_of(topic: str) -> str:
    """Return a group name that no other test uses."""
    return f"group-of-{topic}"


def consumed(topic: str, *options: object) -> list[str]:
    group = group_of(topic)
    return [row["value"] for row in fine("consume", "-t", topic, "-G", group, *options).rows]


def shown(topic: str) -> dict[str, Any]:
    document: dict[str, Any] = fine("group", "show", group_of(topic)).document
    return document


def test_what_was_printed_is_committed(filled: str) -> None:
    assert consumed(filled, "-c", 2) == ["a", "b"]
    assert shown(filled) == {
        "group": group_of(filled),
        "lag": 1,
        "members": [],
        "partitions": [
            {"topic": filled, "partition": 0, "committed": 2, "latest": 3, "lag": 1, "member": None}
        ],
    }
    assert consumed(filled, "-e") == ["c"]
    assert consumed(filled, "-e") == []


def test_where_a_new_group_begins(filled: str) -> None:
    assert consumed(filled, "-o", "end", "-e") == []
    assert consumed(filled, "-o", "stored", "-c", 1, "-p", 0) == ["a"]
    assert consumed(filled, "-o", "end", "-e", "-p", 0) == ["b", "c"]


def test_reset(filled: str) -> None:
    consumed(filled, "-e")
    group = group_of(filled)
    row = {"topic": filled, "partition": 0, "committed": 1}
    assert fine("group", "reset", group, "--to", 1).rows == [row]
    assert consumed(filled, "-e") == ["b", "c"]
    fine("group", "reset", group, "--to", "beginning", "-t", filled, "-p", 0)
    assert shown(filled)["lag"] == 3
    assert fine("group", "reset", group, "--to", "@2200-01-01").rows == [{**row, "committed": 3}]
    assert run("group", "reset", group, "--to", "middle").code == 2
    assert run("group", "reset", group, "--to", "end", "-p", 0).code == 2


def test_list_and_delete(filled: str) -> None:
    consumed(filled, "-e")
    group = group_of(filled)
    assert {"group": group} in fine("group", "list").rows
    table = fine("group", "show", group, "--output", "table").out.decode().splitlines()
    assert table[0] == f"{group}  lag 0, members 0"
    fine("group", "delete", group)
    ended = run("group", "show", group)
    assert (ended.code, "[server-refused]" in ended.err) == (2, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_member_leaves_its_group(filled: str, number: signal.Signals) -> None:
    group = group_of(filled)
    with subprocess.Popen(
        command_line("consume", "-t", filled, "-G", group), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert [json.loads(process.stdout.readline())["value"] for _ in range(3)] == ["a", "b", "c"]
        assert len(shown(filled)["members"]) == 1
        process.send_signal(number)
        code = process.wait(30)
    assert code == {signal.SIGINT: 130, signal.SIGTERM: -signal.SIGTERM}[number]
    assert shown(filled)["members"] == []


@pytest.mark.parametrize(
    "options", [["-o", "5"], ["-T", "tag"], ["-o", "@0"]], ids=["offset", "tag", "time"]
)
def test_what_a_group_cannot(filled: str, options: list[str]) -> None:
    assert run("consume", "-t", filled, "-G", "g", *options).code == 2


def test_a_group_is_not_reset_to_the_last_n(filled: str) -> None:
    ended = run("group", "reset", group_of(filled), "--to", "-1")
    assert (ended.code, "-N" in ended.err) == (2, False)
    assert "'-1' is none of beginning, end, N and @TIME" in ended.err
    assert b"-N" not in fine("group", "reset", "--help").out


def test_several_topics_need_a_group(filled: str) -> None:
    assert run("consume", "-t", filled, "-t", "other", "-e").code == 2


def test_tail_reads_for_no_group(filled: str) -> None:
    assert b"stored" not in fine("tail", "--help").out
    assert run("tail", "-t", filled, "-e", "-o", "stored").code == 2


def test_hand_back(filled: str, server: LogServer) -> None:
    """On Kafka's format a message has no id of its own, and its retry is at once."""
    consumed(filled, "-e")
    group = group_of(filled)
    with BlockingClient(server.url) as client:
        placed = client.produce(filled, "d")
    is_kafka = placed.message_id is None
    names = (f"{group}.retry", f"{group}.dlq") if is_kafka else (f"%RETRY%{group}", f"%DLQ%{group}")
    (row,) = fine("group", "retry", group, placed.message_id or f"{filled}:0:3").rows
    assert (row["topic"], row["partition"], row["times"], row["dead"]) == (names[0], 0, 1, False)
    assert row["delay_level"] == (None if is_kafka else 3)
    assert (row["deliver_at_ms"] is None) is is_kafka
    (row,) = fine("group", "retry", group, placed.message_id or row["message_id"], "--dead").rows
    assert (row["topic"], row["dead"]) == (names[1], True)
    shown = {"group": group, "retry_topic": names[0], "dead_letter_topic": names[1]}
    assert fine("group", "retries", group).rows == [{**shown, "max_times": 16}]
    ended = run("group", "retries", group, "--max-times", 2)
    assert ended.code == (2 if is_kafka else 0)
    assert run("group", "retry", group, "x", "--dead", "--delay-level", 1).code == 2
    assert run("group", "retry", group, "x").code == 2


def test_what_was_printed_is_acknowledged(filled: str) -> None:
    assert consumed(filled, "-c", 2, "--invisible", 60_000) == ["a", "b"]
    assert shown(filled)["lag"] == 1
    assert consumed(filled, "-e", "--invisible", 60_000) == ["c"]


def test_broadcast_keeps_the_offsets_in_a_folder(filled: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        assert consumed(filled, "-e", "--broadcast", folder) == ["a", "b", "c"]
        assert consumed(filled, "-e", "--broadcast", folder) == []
        assert (folder / "offsets.json").exists()
    assert run("group", "show", group_of(filled)).code == 2


@pytest.mark.parametrize(
    "options",
    [
        ("--invisible", 5),
        ("--broadcast", "x"),
        ("-G", "g", "--invisible", 5, "--broadcast", "x"),
        ("-G", "g", "--broadcast", "x", "-p", 0),
        ("-G", "g", "--invisible", 0),
        ("--isolation", "dirty"),
    ],
)
def test_options_that_do_not_fit(filled: str, options: tuple[object, ...]) -> None:
    assert run("consume", "-t", filled, "-e", *options).code == 2


@pytest.mark.parametrize("options", [(), ("-G", "isolated")])
def test_committed_records_only(filled: str, options: tuple[str, ...]) -> None:
    rows = fine("consume", "-t", filled, "-e", "--isolation", "read_committed", *options).rows
    assert [row["value"] for row in rows] == ["a", "b", "c"]
