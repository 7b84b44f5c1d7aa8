"""`topic`, `offsets URL` and `find URL` against a running server."""

from __future__ import annotations

from pathlib import Path

import pytest

from logserver import LogServer
from storage.display import size_text
from tests.cli.runner import Ended, fine, run


def refused(ended: Ended, code: int = 2) -> str:
    """Return the error line of a command that failed because of the server or its absence."""
    assert (ended.code, ended.out) == (code, b"")
    (line,) = ended.err.splitlines()
    assert line.startswith("error: ")
    return line


def produce(topic: str, tmp_path: Path, *lines: str, options: tuple[object, ...] = ()) -> None:
    path = tmp_path / "lines"
    path.write_text("".join(f"{line}\n" for line in lines))
    fine("produce", "-t", topic, *options, path)


def test_a_topic_from_making_to_deleting(server: LogServer, topic: str) -> None:
    assert fine("topic", "create", topic, "--partitions", 2).out == b""
    again = run("topic", "create", topic, "--partitions", 2)
    assert (again.code, again.err) == (0, f"topic {topic} already exists\n")
    assert "[server-refused]" in refused(run("topic", "create", topic, "--partitions", 3))
    size = 0 if server.backend == "kafka" else None
    row = {"topic": topic, "partitions": 2, "records": 0, "size_bytes": size}
    assert row in fine("topic", "list").rows
    assert fine("topic", "show", topic).document["partitions"] == [
        {"partition": number, "earliest": 0, "latest": 0} for number in range(2)
    ]
    fine("topic", "delete", topic)
    assert "does not exist" in refused(run("topic", "show", topic))
    assert "does not exist" in refused(run("topic", "delete", topic))


def test_partitions_and_deleted_records(server: LogServer, topic: str, tmp_path: Path) -> None:
    fine("topic", "create", topic, "--partitions", 1)
    fine("topic", "add-partitions", topic, 2)
    assert len(fine("topic", "show", topic).document["partitions"]) == 2
    assert "only grows" in refused(run("topic", "add-partitions", topic, 1))
    assert run("topic", "add-partitions", topic, 0).code == 2
    produce(topic, tmp_path, "a", "b", "c", options=("-p", 1))
    delete = ("topic", "delete-records", topic, "--partition", 1)
    if server.backend == "kafka":
        row = {"partition": 1, "earliest": 2, "latest": 3}
        assert fine(*delete, "--before", 2).rows == [row]
        assert "out of range" in refused(run(*delete, "--before", 4))
    else:
        assert "one log" in refused(run(*delete, "--before", 2))
    assert run(*delete, "--before", -1).code == 2
    assert run("topic", "delete-records", topic, "--before", 1).code == 2


def test_a_slip_in_a_topic_names_the_similar_ones(server: LogServer, topic: str) -> None:
    fine("topic", "create", topic)
    for command in (["topic", "show"], ["topic", "delete"], ["consume", "-e", "-t"]):
        line = refused(run(*command, f"{topic[:-1]}x{topic[-1]}"))
        assert f"does not exist; similar: {topic}" in line
        assert line.endswith("[server-refused]")
    assert "similar" not in refused(run("topic", "show", "other.thing.of.its.own"))


def test_the_list_counts_records_and_bytes(server: LogServer, topic: str, tmp_path: Path) -> None:
    """The topics of a RocketMQ store share one log: they have no size of their own."""
    fine("topic", "create", topic, "--partitions", 2)
    produce(topic, tmp_path, "a", "b", options=("-p", 0))
    produce(topic, tmp_path, "c" * 5000, options=("-p", 1))
    (row,) = [row for row in fine("topic", "list").rows if row["topic"] == topic]
    size = row.pop("size_bytes")
    assert row == {"topic": topic, "partitions": 2, "records": 3}
    table = fine("topic", "list", "--output", "table").out.decode().splitlines()
    assert table[0].split() == ["topic", "partitions", "records", "size"]
    (line,) = [line.split() for line in table if line.split()[0] == topic]
    assert line[1:3] == ["2", "3"]
    if server.backend == "kafka":
        assert 5000 < size < 6000
        assert line[3:] == size_text(size).split()
    else:
        assert size is None
        assert line[3:] == ["-"]


def test_a_store_without_files_lists_its_topics() -> None:
    with LogServer(backend="memory") as server:
        address = ("--server", server.url)
        assert fine("topic", "list", *address).rows == []
        fine("topic", "create", "t", *address)
        row = {"topic": "t", "partitions": 1, "records": 0, "size_bytes": None}
        assert fine("topic", "list", *address).rows == [row]


def test_configs(server: LogServer, topic: str) -> None:
    name, first, then = ("perm", "4", "2")
    if server.backend == "kafka":
        name, first, then = ("retention.ms", "60000", "70000")
    fine("topic", "create", topic, "--config", f"{name}={first}")
    assert fine("topic", "show", topic).document["configs"][name] == first
    fine("topic", "alter", topic, "--config", f"{name}={then}")
    shown = fine("topic", "show", topic, "--output", "table").out.decode()
    assert f"{name}={then}" in shown.splitlines()[0]
    fine("topic", "alter", topic, "--reset", name)
    assert fine("topic", "show", topic).document["configs"].get(name) != then
    assert "is not NAME=VALUE" in refused(run("topic", "alter", topic, "--config", "a"))


def test_offsets(server: LogServer, topic: str, tmp_path: Path) -> None:
    produce(topic, tmp_path, "a", "b")
    place = {"topic": topic, "partition": 0}
    assert fine("offsets", server.url, "--topic", topic).document == {
        **place,
        "earliest": 0,
        "latest": 2,
    }
    first = fine("offsets", server.url, "--topic", topic, "--partition", 0, "--time", -5).document
    assert (first["offset"], first["timestamp"] > 0) == (0, True)
    ended = fine("offsets", server.url, "--topic", topic, "--time", "2200-01-01").document
    assert ended == {**place, "offset": 2, "timestamp": None}
    assert {**place, "earliest": 0, "latest": 2} in fine("offsets", server.url).rows
    assert "no partition 7" in refused(
        run("offsets", server.url, "--topic", topic, "--partition", 7)
    )


def test_find(server: LogServer, topic: str, tmp_path: Path) -> None:
    produce(topic, tmp_path, "ann:1", "bob:2", "ann:3", options=("-K", ":", "-T", "blue"))
    rows = fine("find", server.url, "--topic", topic, "--key", "ann").rows
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (0, "ann", "1"),
        (2, "ann", "3"),
    ]
    by_id = fine("find", server.url, "--id", rows[1]["message_id"]).rows
    assert by_id == [rows[1]]
    limited = run("find", server.url, "--topic", topic, "--tag", "blue", "--limit", 2)
    # At a limit, a RocketMQ server returns the newest messages, as `find PATH` and the real store do.
    kept = ["2", "3"] if server.backend == "rocketmq" else ["1", "2"]
    assert [row["value"] for row in limited.rows] == kept
    assert limited.code == 0
    assert "--limit 2" in limited.err
    assert [
        row["value"] for row in fine("find", server.url, "--topic", topic, "--grep", "bo").rows
    ] == ["2"]
    assert run("find", server.url, "--topic", topic, "--grep", "3", "--limit", 1).rows == [rows[1]]
    assert fine("find", server.url, "--topic", topic, "--key", "carl").out == b""
    assert fine("find", server.url, "--topic", topic, "--to", 5).out == b""
    shown = fine("find", server.url, "--topic", topic, "--key", "bob", "--output", "table").out
    assert b"bob" in shown.splitlines()[1]


def test_find_in_all_topics(server: LogServer, topic: str, tmp_path: Path) -> None:
    for name in (topic, f"{topic}-too"):
        produce(name, tmp_path, f"{topic}:x", options=("-K", ":"))
    rows = fine("find", server.url, "--key", topic).rows
    assert [row["topic"] for row in rows] == [topic, f"{topic}-too"]


def test_find_by_an_id_that_is_none(server: LogServer) -> None:
    assert fine("find", server.url, "--id", "nothing").out == b""
    assert "nothing to look for" in refused(run("find", server.url))


def test_nobody_there() -> None:
    line = refused(run("topic", "list", "--server", "http://127.0.0.1:1"), 3)
    assert line.endswith("[server-unreachable]")
    assert "ssl" not in line


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://[::1",
        "http://127.0.0.1:99999",
        "http://here?a=b",
    ],
)
def test_an_address_that_is_none_is_wrong_use(url: str) -> None:
    assert "address" in refused(run("topic", "list", "--server", url))
    assert "address" in refused(run("offsets", url))


@pytest.mark.parametrize(
    ("address", "said"),
    [("ftp://here", "begins with http:// or https://"), ("", "neither a URL nor HOST:PORT")],
)
def test_an_address_of_no_kind_is_wrong_use(address: str, said: str) -> None:
    ended = run("topic", "list", "--server", address)
    assert (ended.code, ended.out) == (2, b"")
    assert said in " ".join(ended.err.split())


def test_a_topic_without_a_name_is_wrong_use(server: LogServer) -> None:
    for command in (["show"], ["create"], ["delete"]):
        assert "name is empty" in refused(run("topic", *command, ""))


def test_a_token_file(server: LogServer, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("secret\n")
    fine("topic", "list", "--token-file", path)
    assert "No such file" in refused(run("topic", "list", "--token-file", tmp_path / "none"), 3)
    path.write_bytes(b"secr\xe9t\n")
    assert "holds no token" in run("topic", "list", "--token-file", path).err


@pytest.mark.parametrize("option", ["--ca-file", "--cert-file"])
def test_a_file_of_certificates_that_is_none_is_named(
    server: LogServer, tmp_path: Path, option: str
) -> None:
    path = tmp_path / "certificates"
    assert str(path) in refused(run("topic", "list", option, path), 3)
    path.write_bytes(b"")
    assert str(path) in refused(run("topic", "list", option, path), 3)


@pytest.mark.parametrize("output", ["json", "ndjson", "table"])
def test_outputs(server: LogServer, topic: str, output: str) -> None:
    fine("topic", "create", topic)
    assert topic.encode() in fine("topic", "list", "--output", output).out
