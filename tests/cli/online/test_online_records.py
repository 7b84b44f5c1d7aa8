"""`produce`, `consume` and `tail` against a running server: records survive the round trip, and how commands end."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from logserver import LogServer
from logserver.__main__ import group
from logserver.cli.online.consume_output import as_line, by_format, unescaped
from logserver.cli.online.produce import Sent
from logserver.client import FetchedRecord, Placed
from storage.errors import InvalidArgument
from tests.cli.runner import command_line, fine, run


def produce(topic: str, data: bytes, *options: object) -> None:
    """Produce data given on standard input."""
    arguments = ["produce", "-t", topic, *map(str, options)]
    ended = CliRunner().invoke(group(), arguments, input=data)
    assert (ended.exit_code, ended.output) == (0, "")


def consume(topic: str, *options: object) -> list[dict[str, Any]]:
    """Return the records of a topic up to its end."""
    return fine("consume", "-t", topic, "-e", *options).rows


def values(topic: str, *options: object) -> list[str]:
    return [row["value"] for row in consume(topic, *options)]


def test_lines_become_records(server: LogServer, topic: str) -> None:
    produce(topic, "one\n\nzwei é\nlast without an end".encode())
    rows = consume(topic)
    assert [row["value"] for row in rows] == ["one", "zwei é", "last without an end"]
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert {(row["topic"], row["partition"], row["key"]) for row in rows} == {(topic, 0, None)}


def test_files_and_delimiters(server: LogServer, topic: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"%s1\0%s2\n\0" % (name.encode(), name.encode()))
    fine("produce", "-t", topic, "-D", "\\x00", tmp_path / "a", tmp_path / "b")
    assert values(topic) == ["a1", "a2\n", "b1", "b2\n"]


def test_keys_headers_and_tag(server: LogServer, topic: str) -> None:
    produce(topic, b"ann\t1:2\nbob\n", "-K", "\\t", "-H", "a=b", "-H", "c=d=e", "-T", "blue")
    first, second = consume(topic)
    assert (first["key"], first["value"], first["tag"]) == ("ann", "1:2", "blue")
    assert (second["key"], second["value"]) == (None, "bob")
    assert {"key": "a", "value": "b"} in first["headers"]
    assert {"key": "c", "value": "d=e"} in first["headers"]
    produce(topic, b"x\n", "-k", "all")
    assert consume(topic, "-o", "-1")[0]["key"] == "all"


def test_null_and_bytes(server: LogServer, topic: str) -> None:
    if server.backend == "rocketmq":
        pytest.skip("a message keeps no null value")
    produce(topic, b"k:\n\xff:\xfe\n", "-K", ":", "-Z")
    first, second = consume(topic)
    assert (first["key"], first["value"]) == ("k", None)
    assert (second["value"], second["value_b64"], second["key_b64"]) == (None, "/g==", "/w==")
    shown = fine("consume", "-t", topic, "-e", "-Z", "-f", "%k=%s %S,").out
    assert shown == b"k=NULL -1,\xff=\xfe 1,"


def test_what_consume_prints_produce_takes(server: LogServer, topic: str) -> None:
    produce(topic, b"ann:1\nbob:2\n", "-K", ":", "-H", "a=b", "-T", "blue")
    produce(f"{topic}-copy", fine("consume", "-t", topic, "-e").out, "--json")
    kept = ("key", "value", "headers", "timestamp", "tag")
    copied = [{name: row[name] for name in kept} for row in consume(f"{topic}-copy")]
    assert copied == [{name: row[name] for name in kept} for row in consume(topic)]


def test_records_as_json(server: LogServer, topic: str) -> None:
    produce(
        topic, b'{"value": {"n": 1}, "key": "k", "keys": ["l"]}\n{"value_b64": "aGk="}\n', "--json"
    )
    first, second = consume(topic)
    assert (first["key"], first["value"], second["value"]) == ("k", '{"n":1}', "hi")
    assert "l" in first["keys"]


@pytest.mark.parametrize(
    ("line", "what"),
    [(b"nonsense", "it is no JSON"), (b"[]", "it must be an object"), (b"{}", "it has no value")],
)
def test_a_line_that_is_no_record_is_named(
    server: LogServer, topic: str, line: bytes, what: str, tmp_path: Path
) -> None:
    path = tmp_path / "records"
    path.write_bytes(b'{"value": 1}\n\n' + line + b"\n")
    ended = run("produce", "-t", topic, "--json", path)
    assert ended.code == 2
    assert f"{path}: line 3 is not a record: " in ended.err
    assert what in ended.err


def test_a_partition(server: LogServer, topic: str) -> None:
    fine("topic", "create", topic, "--partitions", 3)
    produce(topic, b"in two\n", "-p", 2)
    produce(topic, b"in one\n", "-p", 1)
    assert values(topic) == ["in one", "in two"]
    assert values(topic, "-p", 2) == ["in two"]
    assert run("consume", "-t", topic, "-e", "-p", 9).code == 2


def test_many(server: LogServer, topic: str) -> None:
    lines = [f"line {n}" for n in range(3456)]
    codec = "zlib" if server.backend == "rocketmq" else "lz4"
    produce(topic, "\n".join(lines).encode(), "-z", codec, "--acks", "1")
    assert values(topic) == lines


def test_where_to_begin_and_to_end(server: LogServer, topic: str) -> None:
    produce(topic, b"a\nb\nc\nd\n")
    assert values(topic, "-o", "beginning", "-c", 2) == ["a", "b"]
    assert values(topic, "-o", "end") == []
    assert values(topic, "-o", 2) == ["c", "d"]
    assert values(topic, "-o", -3, "-c", 1) == ["b"]
    assert values(topic, "-o", "@0") == ["a", "b", "c", "d"]
    assert values(topic, "-o", "@2200-01-01T00:00:00") == []
    assert [row["value"] for row in fine("tail", "-t", topic, "-e").rows] == ["a", "b", "c", "d"]
    assert run("consume", "-t", topic, "-e", "-o", 9).code == 2
    assert fine("consume", "-t", topic, "-c", 4).out.count(b"\n") == 4


def test_by_tag(server: LogServer, topic: str) -> None:
    produce(topic, b"a\n", "-T", "red")
    produce(topic, b"b\n", "-T", "blue")
    assert values(topic, "-T", "blue") == ["b"]


def test_some_are_refused(server: LogServer, topic: str) -> None:
    ended = run("produce", "-t", topic, "-H", "nonsense", "nofile")
    assert ended.code == 2
    ended = run("produce", "-t", topic, "nofile")
    assert (ended.code, "No such file" in ended.err) == (3, True)


# ---- as processes ---------------------------------------------------------------------------------


def test_it_waits_for_more_until_interrupted(server: LogServer, topic: str) -> None:
    fine("topic", "create", topic)
    with subprocess.Popen(
        command_line("tail", "-t", topic), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for number in range(3):
            produce(topic, b"%d\n" % number)
            assert json.loads(process.stdout.readline())["value"] == str(number)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 128 + signal.SIGINT
        assert process.stderr.read() == b"interrupted\n"


def test_a_reader_that_leaves_is_no_error(server: LogServer, topic: str) -> None:
    """`consume` ends at once when its reader leaves, not at the next record."""
    produce(topic, b"one\n")
    with subprocess.Popen(
        command_line("consume", "-t", topic), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 0
        assert process.stderr.read() == b""


def test_lines_that_are_typed_go_at_once(server: LogServer, topic: str) -> None:
    fine("topic", "create", topic)
    with (
        subprocess.Popen(command_line("produce", "-t", topic), stdin=subprocess.PIPE) as typing,
        subprocess.Popen(
            command_line("tail", "-t", topic, "-c", 2), stdout=subprocess.PIPE
        ) as seen,
    ):
        assert typing.stdin is not None
        assert seen.stdout is not None
        for line in (b"one", b"two"):
            typing.stdin.write(line + b"\n")
            typing.stdin.flush()
            assert json.loads(seen.stdout.readline())["value"] == line.decode()
        typing.stdin.close()
        assert (typing.wait(30), seen.wait(30)) == (0, 0)


def test_control_c_ends_the_wait_for_a_line(server: LogServer, topic: str) -> None:
    fine("topic", "create", topic)
    with (
        subprocess.Popen(command_line("produce", "-t", topic), stdin=subprocess.PIPE) as typing,
        subprocess.Popen(
            command_line("tail", "-t", topic, "-c", 1), stdout=subprocess.PIPE
        ) as seen,
    ):
        assert typing.stdin is not None
        typing.stdin.write(b"one\n")
        typing.stdin.flush()
        assert seen.wait(30) == 0  # the line was sent; the command waits for the next
        typing.send_signal(signal.SIGINT)
        assert typing.wait(30) == 128 + signal.SIGINT


def test_a_line_without_an_end_is_refused(
    server: LogServer, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logserver.cli.online.produce.MAX_LINE_BYTES", 1 << 20)
    endless = tmp_path / "endless"
    endless.write_bytes(b"x" * (2 << 20))
    ended = run("produce", "-t", topic, endless)
    assert (ended.code, "longer than 1048576 bytes: -D" in ended.err) == (2, True)


def test_json_without_a_value_is_no_record(server: LogServer, topic: str) -> None:
    """JSON without a value is rejected, because other JSON than records would be stored as deletions."""
    arguments = ["produce", "-t", topic, "--json"]
    ended = CliRunner().invoke(group(), arguments, input=b'{"apples": 3}\n')
    assert (ended.exit_code, "it has no value" in ended.stderr) == (2, True)


def test_words_that_are_no_text(server: LogServer, topic: str) -> None:
    """A shell passes any bytes: arguments that are bytes in the request are accepted, others are a usage error."""
    word = os.fsdecode(b"k\xff")
    produce(topic, b"one\xfe\xfdtwo\n", "-K", os.fsdecode(b"\xfe\xfd"))
    shown = fine("consume", "-t", topic, "-e", "-f", os.fsdecode(b"%k\xff%s"))
    assert shown.out == b"one\xfftwo"
    if server.backend == "kafka":  # properties of a RocketMQ message are text
        produce(topic, b"three\n", "-k", word, "-H", f"h={word}")
        row = consume(topic)[1]
        assert (row["key"], row["key_b64"]) == (None, "a/8=")
        assert row["headers"] == [{"key": "h", "value": None, "value_b64": "a/8="}]
    for arguments in (
        ("consume", "-t", word, "-e"),
        ("topic", "create", word),
        ("group", "show", word),
        ("find", server.url, "--key", word),
        ("find", server.url, "--grep", word),
    ):
        ended = run(*arguments)
        assert (ended.code, "are not UTF-8 [invalid-argument]" in ended.err) == (2, True)


def test_on_a_terminal(server: LogServer, topic: str) -> None:
    produce(topic, b"k:v\n", "-K", ":")
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            command_line("consume", "-t", topic, "-e"), stdout=theirs, check=True, timeout=60
        )
        shown = os.read(ours, 4096).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert shown.startswith(f"{topic}:0:0  20")
    assert shown.endswith("  k  v\r\n")


def on_a_terminal(*arguments: object, data: bytes) -> str:
    """Return the output of a command with data on standard input, and a terminal as standard output."""
    ours, theirs = pty.openpty()
    try:
        subprocess.run(command_line(*arguments), input=data, stdout=theirs, check=False, timeout=60)
        os.write(theirs, b".")  # the read does not wait if the command printed nothing
        return os.read(ours, 4096).decode().removesuffix(".")
    finally:
        os.close(ours)
        os.close(theirs)


def test_produce_prints_a_summary_on_a_terminal(server: LogServer, topic: str) -> None:
    """In a pipe it prints nothing: `produce` of this module checks that."""
    fine("topic", "create", topic, "--partitions", 6)
    shown = on_a_terminal("produce", "-t", topic, "-p", 2, data=b"a\n\nb\n")
    assert shown == f"stored 2 records in {topic}: partition 2, offsets 0 to 1\r\n"
    shown = on_a_terminal("produce", "-t", topic, "-p", 2, data=b"c\n")
    assert shown == f"stored 1 record in {topic}: partition 2, offset 2\r\n"
    assert on_a_terminal("produce", "-t", topic, data=b"") == f"stored 0 records in {topic}\r\n"
    shown = on_a_terminal("produce", "-t", topic, "--acks", 0, data=b"d\n")
    assert shown.startswith(f"sent 1 record to {topic}; with --acks 0 ")
    shown = on_a_terminal("produce", "-t", topic, "--json", data=b'{"value": 1}\n' * 1000 + b"[]\n")
    assert shown.startswith(f"stored 1000 records in {topic}")  # before the error


def test_a_summary_of_many_partitions() -> None:
    sent = Sent("t", is_placed=True)
    sent.add(4, [Placed(n % 2, 5 + n) for n in range(4)])
    assert (
        str(sent)
        == "stored 4 records in t: partition 0, offsets 5 to 7; partition 1, offsets 6 to 8"
    )
    sent.add(5, [Placed(n, 9) for n in range(5)])
    assert str(sent) == "stored 9 records in t, in 5 partitions"


# ---- shapes ---------------------------------------------------------------------------------------

RECORD = FetchedRecord(
    topic="t", partition=3, offset=17, timestamp_ms=1_700_000_000_123, key=b"k\n", value=b"v\xff"
)


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("%t %p %o %T", b"t 3 17 1700000000123"),
        (r"%k=%s\n\t\r\x41\\", b"k\n=v\xff\n\t\rA\\"),
        ("%K %S %R", b"2 2 \0\0\0\x02"),
        ("100%% [%h]", b"100% []"),
        ("", b""),
    ],
)
def test_formats(template: str, shown: bytes) -> None:
    assert by_format(template)(RECORD) == shown


@pytest.mark.parametrize("template", ["%y", "%", "a%\n"])
def test_formats_that_are_none(template: str) -> None:
    with pytest.raises(InvalidArgument):
        by_format(template)


def test_a_line_is_a_line() -> None:
    assert as_line(RECORD) == b"t:3:17  2023-11-14 22:13:20.123  k\\n  v\\xff\n"
    timeless = FetchedRecord(
        topic="t", partition=0, offset=0, timestamp_ms=-1, key=None, value=None
    )
    assert as_line(timeless) == b"t:0:0  -  -  -\n"


def test_escapes() -> None:
    assert unescaped(r"a\x0a\,é%") == b"a\n,\xc3\xa9%"
