"""`logserver kcat`: kcat's command line and its forms of output, against a running server."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

import logserver
from logserver import LogServer
from logserver.__main__ import group
from logserver.cli.online.kcat_output import envelope
from logserver.cli.online.kcat_properties import pairs_of, parse_properties
from logserver.client import FetchedRecord
from tests.cli.runner import Ended, command_line, fine, run
from tests.sources import ROOT
from tests.tour import steps, take_the_tour


def kcat(*arguments: object, data: bytes = b"") -> Ended:
    """Run `logserver kcat` with data on standard input."""
    result = CliRunner().invoke(group(), ["kcat", *map(str, arguments)], input=data)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout_bytes, result.stderr)


def sent(topic: str, data: bytes, *options: object) -> None:
    ended = kcat("-P", "-t", topic, *options, data=data)
    assert (ended.code, ended.out, ended.err) == (0, b"", "")


def printed(topic: str, *options: object) -> bytes:
    """Return the output of a quiet consumer that ends at the end of the topic."""
    ended = kcat("-C", "-t", topic, "-e", "-q", *options)
    assert (ended.code, ended.err) == (0, "")
    return ended.out


@pytest.fixture
def filled(server: LogServer, topic: str) -> str:
    """A topic with three records in partition 0."""
    sent(topic, b"a:1\nb:2\nc:3\n", "-K:")
    return topic


def test_there_and_back(filled: str) -> None:
    assert printed(filled) == b"1\n2\n3\n"
    assert printed(filled, "-K", "\\t") == b"a\t1\nb\t2\nc\t3\n"
    assert printed(filled, "-D", ",") == b"1,2,3,"
    assert printed(filled, "-D", "") == b"123"
    assert printed(filled, "-K", ":", "-O") == b"0:a:1\n1:b:2\n2:c:3\n"
    assert printed(filled, "-f", r"%t %p %o %k %s %S %K\n").splitlines()[0] == (
        f"{filled} 0 0 a 1 1 1".encode()
    )


def test_joined_flags(filled: str) -> None:
    assert kcat("-Ceqt", filled, "-c1").out == b"1\n"


@pytest.mark.parametrize(
    ("start", "values"),
    [
        ("beginning", b"1\n2\n3\n"),
        ("end", b""),
        ("1", b"2\n3\n"),
        ("-1", b"3\n"),
        ("s@0", b"1\n2\n3\n"),
        ("s@2200-01-01", b""),
        ("e@0", b""),
        ("e@2200-01-01", b"1\n2\n3\n"),
    ],
)
def test_where_to_begin_and_end(filled: str, start: str, values: bytes) -> None:
    assert printed(filled, "-o", start) == values


def test_an_end_time_ends_the_reading(server: LogServer, topic: str, tmp_path: Path) -> None:
    """Without -e too: each partition has a record at or after the time. The time of a message is the server's choice in
    RocketMQ's format only for its store time, so both backends keep these.
    """
    fine("topic", "create", topic, "--partitions", 2)
    for partition in range(2):
        path = tmp_path / f"{partition}"
        rows = [{"value": f"{partition}-{time}", "timestamp": time} for time in (1000, 2000, 3000)]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        fine("produce", "-t", topic, "-p", partition, "--json", path)
    ended = kcat("-C", "-t", topic, "-o", "s@0", "-o", "e@2500")
    assert sorted(ended.out.split()) == [b"0-1000", b"0-2000", b"1-1000", b"1-2000"]
    notices = [f"% Reached stop timestamp for topic {topic} [{n}] at offset 2" for n in range(2)]
    assert set(notices) <= set(ended.err.splitlines())
    one = kcat("-C", "-t", topic, "-p", 1, "-o", "e@1500", "-q")
    assert (one.out, one.err) == (b"1-1000\n", "")


def test_notices_of_the_end(filled: str) -> None:
    fine("topic", "create", f"{filled}-wide", "--partitions", 2)
    sent(f"{filled}-wide", b"x\n", "-p", 1)
    ended = kcat("-C", "-e", "-t", f"{filled}-wide")
    assert (ended.code, ended.out) == (0, b"x\n")
    assert ended.err.splitlines() == [
        f"% Reached end of topic {filled}-wide [0] at offset 0",
        f"% Reached end of topic {filled}-wide [1] at offset 1: exiting",
    ]


def test_a_count_ends_without_a_notice(filled: str) -> None:
    """As kcat does: the reading has not reached the end of the topic."""
    ended = kcat("-C", "-t", filled, "-p", 0, "-o", "beginning", "-c", 1)
    assert (ended.code, ended.out.count(b"\n"), ended.err) == (0, 1, "")


def test_envelopes(filled: str) -> None:
    sent(filled, b"x\n", "-H", "a=b", "-H", "c=d")
    first, *_, last = (json.loads(line) for line in printed(filled, "-J").splitlines())
    assert list(first)[:6] == ["topic", "partition", "offset", "tstype", "ts", "broker"]
    assert first.pop("ts") > 1_700_000_000_000
    assert {name: value for name, value in first.items() if name != "headers"} == {
        "topic": filled,
        "partition": 0,
        "offset": 0,
        "tstype": "create",
        "broker": 1,
        "key": "a",
        "payload": "1",
    }
    assert last["headers"][:4] == ["a", "b", "c", "d"]
    assert (last["key"], last["payload"]) == (None, "x")


def record(key: bytes | None, value: bytes | None, headers: Any = ()) -> FetchedRecord:
    return FetchedRecord(
        topic="t", partition=0, offset=0, timestamp_ms=5, key=key, value=value, header_rows=headers
    )


def test_envelopes_of_bytes() -> None:
    shown = json.loads(envelope(b"", ["t"])(record(None, b"v\xff")))
    assert (shown["key"], shown["payload"], shown["payload_b64"]) == (None, "v\ufffd", "dv8=")
    assert shown["tstype"] == "logappend"
    assert "headers" not in shown
    assert "key_b64" not in shown


def test_null_and_headers_without_a_value(server: LogServer, topic: str) -> None:
    if server.backend == "rocketmq":
        pytest.skip("a message keeps no null value")
    sent(topic, b"k:\n:v\n", "-K:", "-Z", "-H", "alone", "-H", "h=1")
    assert printed(topic, "-Z", "-K:") == b"k:NULL\nNULL:v\n"
    assert printed(topic, "-f", "%S %K %R %h;", "-c1") == b"-1 1 \xff\xff\xff\xff alone=,h=1;"


def test_files(server: LogServer, topic: str, tmp_path: Path) -> None:
    """A file is one record, with -l a record for each line."""
    path = tmp_path / "file"
    path.write_bytes(b"one\ntwo\n")
    sent(topic, b"", path)
    assert printed(topic, "-f", "%S %s;") == b"8 one\ntwo\n;"
    sent(topic, b"", "-l", path)
    assert printed(topic, "-o", 1, "-D", ";") == b"one;two;"


def test_a_count_a_key_and_a_tee(server: LogServer, topic: str) -> None:
    ended = kcat("-P", "-T", "-t", topic, "-c", 2, "-k", "all", data=b"1\n\n2\n3\n")
    assert (ended.code, ended.out) == (0, b"1\n2\n")
    assert printed(topic, "-f", "%k%s,") == b"all1,all2,"
    ended = kcat("-P", "-v", "-t", topic, "-z", "zstd", "-p", -1, data=b"3\n")
    assert ended.err == f"% stored 1 record in {topic}: partition 0, offset 2\n"


def test_the_mode_without_a_flag(server: LogServer, topic: str) -> None:
    ended = kcat("-t", topic, data=b"x\n")
    assert ended.code == 0
    assert "-P is chosen" in ended.err
    assert printed(topic) == b"x\n"
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            command_line("kcat", "-t", topic, "-e"),
            stdin=theirs,
            capture_output=True,
            check=True,
            timeout=60,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout == b"x\n"
    assert b"-C is chosen" in done.stderr


def test_the_listing(server: LogServer, filled: str) -> None:
    address = urlsplit(server.url).netloc
    ended = kcat("-L", "-b", server.url, "-t", filled)
    assert ended.out.decode().splitlines() == [
        f"Metadata for {filled} (from broker 1: {address}/1):",
        " 1 brokers:",
        f"  broker 1 at {address} (controller)",
        " 1 topics:",
        f'  topic "{filled}" with 1 partitions:',
        "    partition 0, leader 1, replicas: 1, isrs: 1",
    ]
    every = kcat("-L").out.decode()
    assert every.startswith("Metadata for all topics (from broker 1: ")
    assert f'  topic "{filled}" with 1 partitions:\n' in every
    document = json.loads(kcat("-L", "-J", "-t", filled).out)
    part = {"partition": 0, "leader": 1, "replicas": [{"id": 1}], "isrs": [{"id": 1}]}
    assert document == {
        "originating_broker": {"id": 1, "name": f"{address}/1"},
        "query": {"topic": filled},
        "controllerid": 1,
        "brokers": [{"id": 1, "name": address}],
        "topics": [{"topic": filled, "partitions": [part]}],
    }
    assert json.loads(kcat("-L", "-J").out)["query"] == {"topic": "*"}
    assert "does not exist" in kcat("-L", "-t", f"{filled}-not").err


def test_offsets_of_times(filled: str) -> None:
    times = ["-t", f"{filled}:0:0", "-t", f"{filled}:0:-1", "-t", f"{filled}:0:9999999999999"]
    assert kcat("-Q", *times).out.decode().splitlines() == [
        f"{filled} [0] offset 0",
        f"{filled} [0] offset 3",
        f"{filled} [0] offset -1",
    ]
    assert json.loads(kcat("-Q", "-J", "-t", f"{filled}:0:-2").out) == {
        filled: {"topic": filled, "0": {"partition": 0, "offset": 0}}
    }
    assert kcat("-Q", "-t", filled).code == 2


def test_groups(filled: str) -> None:
    """A new group begins at the end, as with kcat, unless -o or auto.offset.reset says otherwise."""
    name = f"group-of-{filled}"
    assert kcat("-G", name, "-e", filled).out == b""
    earliest = ("-X", "auto.offset.reset=earliest")
    assert kcat("-G", f"{name}-2", *earliest, "-c", 2, filled).out == b"1\n2\n"
    assert kcat("-G", f"{name}-2", "-e", filled).out == b"3\n"
    assert kcat("-G", f"{name}-3", "-o", "beginning", "-e", f"^{filled}$").out == b"1\n2\n3\n"
    assert kcat("-G", name).code == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-C", "-P", "-t", "t"], "-C and -P exclude each other"),
        (["-C"], "-t TOPIC is missing"),
        (["-C", "-t", "t", "file"], "files need -P"),
        (["-C", "-t", "t", "-o", "middle"], "is none of beginning"),
        (["-C", "-t", "t", "-o", "stored"], "needs a group"),
        (["-C", "-t", "t", "-s", "avro"], "printed as they are stored"),
        (["-C", "-t", "t", "-r", "http://r"], "no schema registry"),
        (["-C", "-t", "t", "-F", "file"], "give the options themselves"),
        (["-C", "-t", "t", "-f", "%x"], "the format has %x"),
        (["-M", "3"], "logserver serve --ephemeral"),
        (["-P", "-t", "t", "-D", ""], "must not be empty"),
        (["-P", "-t", "t", "-H", "=v"], "neither NAME=VALUE"),
        (["-L", "-X", "list"], "is not NAME=VALUE"),
        (["-L", "-X", "sasl.username=me"], "--token-file"),
        (["-L", "-X", "security.protocol=SASL_SSL"], "--token-file"),
        (["-P", "-t", "t", "-X", "transactional.id=x"], "no transactions"),
        (["-P", "-t", "t", "-X", "acks=7"], "acks is '7': it must be one of -1, all, 1, 0"),
        (["-L", "-X", "bootstrap.servers=a:b"], "neither a URL nor HOST:PORT"),
        (["-L", "-X", "bootstrap.servers=http://a,http://b"], "give one URL"),
        (["-G", "g", "^a", "b"], "not both"),
        (["-G", "g", "a", "-o", "e@5"], "exclude each other"),
    ],
)
def test_wrong_use(server: LogServer, options: list[str], said: str) -> None:
    ended = kcat(*options)
    assert (ended.code, ended.out) == (2, b"")
    assert said in " ".join(ended.err.split())
    assert "Traceback" not in ended.err


def test_properties() -> None:
    texts = [
        "topic.acks=-1",
        "compression.codec=zstd",
        "linger.ms=5",
        "isolation.level=read_committed",
    ]
    properties = parse_properties(pairs_of(texts))
    assert (properties.acks, properties.compression) == ("all", "zstd")
    assert properties.isolation is not None
    assert properties.isolation.value == "read_committed"
    assert properties.ignored == ["linger.ms"]


def test_a_property_without_effect_is_named(filled: str) -> None:
    ended = kcat("-C", "-t", filled, "-e", "-X", "linger.ms=5", "-d", "all", "-uE")
    assert (ended.code, ended.out) == (0, b"1\n2\n3\n")
    assert "% -X linger.ms has no effect here" in ended.err.splitlines()


def test_the_version() -> None:
    assert run("kcat", "-V").out.decode() == f"logserver kcat, version {logserver.__version__}\n"


def test_the_page(tmp_path: Path) -> None:
    """The commands of the page print what it shows."""
    page = ROOT / "docs" / "kcat.md"
    assert len(list(steps(page))) > 5
    take_the_tour(page, tmp_path)
