"""Commands with `-b HOST:PORT`: over Kafka's protocol, the same output from this server, on stores of both formats, and
from a real broker.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from logserver import LogServer
from logserver.__main__ import group
from logserver.bench.targets.kafka import BESIDE
from logserver.bench.targets.tools import free_ports
from logserver.cli.online.kcat_output import Listing
from logserver.client.values import Broker, Cluster, PartitionReplicas
from tests.cli.runner import Ended, command_line, run
from tests.http.harness import ONE_PARTITION
from tests.http.test_security import ADMIN, token_file
from tests.interop import peers


@pytest.fixture(
    scope="module", params=["kafka", "rocketmq", pytest.param("real", marks=pytest.mark.java)]
)
def kind(request: pytest.FixtureRequest) -> str:
    """The format of this server's store, or `real`: a real broker."""
    return str(request.param)


@pytest.fixture(scope="module")
def address(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address for Kafka clients of a server whose topics have one partition by default."""
    if kind != "real":
        with LogServer(backend=kind, set=ONE_PARTITION.get(kind)) as server:
            assert server.kafka is not None
            yield server.kafka
        return
    work = tmp_path_factory.mktemp("broker")
    port = free_ports(BESIDE)
    (work / "log").mkdir()
    try:
        peers.start_broker(work, port=port, log_dir=work / "log")
        yield f"127.0.0.1:{port}"
    finally:
        peers.stop_broker(work, kill=True)


def ok(*arguments: object, data: str = "") -> Ended:
    """Run a command that must succeed."""
    result = CliRunner().invoke(group(), list(map(str, arguments)), input=data)
    ended = Ended(result.exit_code, result.stdout_bytes, result.stderr)
    assert ended.code == 0, ended.err
    return ended


OF_KAFKA = ("retention.ms=77777777", "retention.ms=88888888", "segment.ms", "5")
CONFIGS = {
    "kafka": OF_KAFKA,
    "real": OF_KAFKA,
    "rocketmq": ("perm=4", "perm=2", "order", "true"),
}
"""The config that a topic is created with, its next value, and the name and value of a config to set and reset."""


def test_topics(address: str, kind: str) -> None:
    at = ("-b", address)
    first, changed, name, value = CONFIGS[kind]
    ok("topic", "create", *at, "t", "--partitions", 2, "--config", first)
    again = ok("topic", "create", *at, "t", "--partitions", 2)
    assert "already exists" in again.err
    other = run("topic", "create", *at, "t", "--partitions", 3)
    assert (other.code, "exists" in other.err) == (2, True)
    assert {"topic": "t", "partitions": 2, "records": 0, "size_bytes": None} in ok(
        "topic", "list", *at
    ).rows
    ok("topic", "alter", *at, "t", "--config", changed, "--config", f"{name}={value}")
    ok("topic", "alter", *at, "t", "--reset", name)
    ok("topic", "add-partitions", *at, "t", 3)
    ok("produce", *at, "-t", "t", "-p", 2, data="a\nb\n")
    left = run("topic", "delete-records", *at, "t", "--partition", 2, "--before", 1)
    if kind == "rocketmq":  # the messages of all topics are in one log
        assert (left.code, "deletes none of a single topic" in left.err) == (2, True)
    else:
        assert left.rows == [{"partition": 2, "earliest": 1, "latest": 2}]
    shown = ok("topic", "show", *at, "t").document
    assert shown["configs"] == dict([changed.split("=")])
    assert [row["latest"] for row in shown["partitions"]] == [0, 0, 2]
    ok("topic", "delete", *at, "t")
    missing = run("topic", "show", *at, "t")
    assert (missing.code, "topic 't' does not exist" in missing.err) == (2, True)


def test_records_and_groups(address: str) -> None:
    at = ("-b", address)
    ok("topic", "create", *at, "r", "--partitions", 2)
    lines = "".join(f"k{n}:v{n}\n" for n in range(20))
    ok("produce", *at, "-t", "r", "-K", ":", "-z", "lz4", "-H", "a=b", data=lines)
    ok("produce", *at, "-t", "r", "--acks", "0", "-p", 0, data="last\n")
    consumed = ok("consume", *at, "-t", "r", "-e").rows
    assert sorted(row["value"] for row in consumed) == sorted(
        [*(f"v{n}" for n in range(20)), "last"]
    )
    assert consumed[0]["headers"] == [{"key": "a", "value": "b"}]
    assert ok("tail", *at, "-t", "r", "-p", 0, "-o", "-1", "-e", "-f", "%s\n").out == b"last\n"
    beyond = run("consume", *at, "-t", "r", "-p", 0, "-o", 999, "-e")
    assert (beyond.code, "has no offset 999" in beyond.err) == (2, True)
    as_member = ok("consume", *at, "-t", "r", "-G", "g", "-c", 21).rows
    assert len(as_member) == 21
    assert {"group": "g"} in ok("group", "list", *at).rows
    shown = ok("group", "show", *at, "g").document
    assert (shown["lag"], shown["members"]) == (0, [])
    ok("group", "reset", *at, "g", "--to", "beginning", "-t", "r", "-p", 0)
    count = ok("group", "show", *at, "g").document["partitions"][0]["latest"]
    assert ok("group", "show", *at, "g").document["lag"] == count
    rest = ok("consume", *at, "-t", "r", "-G", "g", "-p", 0, "-c", count).rows
    assert len(rest) == count
    ok("group", "delete", *at, "g")
    gone = run("group", "show", *at, "g")
    assert (gone.code, "group 'g' does not exist" in gone.err) == (2, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_member_leaves_its_group(address: str, number: signal.Signals) -> None:
    """The printed records are committed, and the next member need not wait for a session to time out."""
    topic, group = f"stop-{number}", f"stopped-{number}"
    ok("topic", "create", "-b", address, topic)
    ok("produce", "-b", address, "-t", topic, data="a\nb\n")
    words = ("consume", "-b", address, "-t", topic, "-G", group, "-f", "%s\n")
    with subprocess.Popen(
        command_line(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"a\n", b"b\n"]
        while ok("group", "show", "-b", address, group).document["lag"] != 0:
            time.sleep(0.05)
        assert len(ok("group", "show", "-b", address, group).document["members"]) == 1
        process.send_signal(number)
        errors = process.communicate(timeout=30)[1]
    ends = {signal.SIGINT: (130, b"interrupted\n"), signal.SIGTERM: (-signal.SIGTERM, b"")}
    assert (process.returncode, errors) == ends[number]
    shown = ok("group", "show", "-b", address, group).document
    assert (shown["members"], shown["lag"]) == ([], 0)


def test_kcat(address: str, kind: str) -> None:
    kcat = ("kcat", "-b", address, "-q")
    ok("topic", "create", "-b", address, "c")
    nulls = () if kind == "rocketmq" else ("-Z",)  # a message has a value
    ok(
        *kcat,
        "-P",
        "-t",
        "c",
        "-K:",
        *nulls,
        "-X",
        "linger.ms=1",
        "-X",
        "acks=-1",
        data="a:1\nb:\n",
    )
    last = b"b:NULL\n" if nulls else b"b:\n"
    assert ok(*kcat, "-C", "-t", "c", "-e", "-K:", "-Z").out == b"a:1\n" + last
    row = ok(*kcat, "-C", "-t", "c", "-p", 0, "-o", 1, "-e", "-J").document
    assert (row["offset"], row["key"], row["payload"]) == (1, "b", None if nulls else "")
    formatted = ok(*kcat, "-C", "-t", "c", "-c", 1, "-f", "%t %p %o %k %s\\n")
    assert formatted.out == b"c 0 0 a 1\n"
    assert 'topic "c" with 1 partitions' in ok(*kcat, "-L", "-t", "c").out.decode()
    assert ok(*kcat, "-Q", "-t", "c:0:-1").out == b"c [0] offset 2\n"
    assert ok("kcat", "-X", f"bootstrap.servers={address}", "-Q", "-t", "c:0:-2").out.endswith(
        b" 0\n"
    )
    noisy = ok("kcat", "-b", address, "-C", "-t", "c", "-e")
    assert "% Reached end of topic c [0] at offset 2: exiting" in noisy.err
    bad = run("kcat", "-b", address, "-L", "-X", "no.such=1")
    assert (bad.code, 'No such configuration property: "no.such"' in bad.err) == (2, True)


@pytest.mark.parametrize("form", [(), ("-J",)])
def test_the_listing_is_as_from_kcat(address: str, form: tuple[str, ...]) -> None:
    ok("topic", "create", "-b", address, "listed", "--partitions", 2)
    words = ("-b", address, "-L", "-t", "listed", *form)
    by_kcat = subprocess.run(("kcat", *words), capture_output=True, check=True, timeout=60).stdout
    assert by_named_broker(ok("kcat", *words).out) == by_named_broker(by_kcat)


def by_named_broker(listing: bytes) -> bytes:
    """Return a listing as the broker answers it by its id: to a fast client it answers on the bootstrap connection,
    which has no id yet.
    """
    bootstrap = rb'-1(: |,"name":")([0-9.:]+)/bootstrap'
    return re.sub(bootstrap, rb"1\1\2/1", listing).strip()


def test_a_listing_of_several_brokers() -> None:
    """The brokers are librdkafka's own, in this process."""
    lines = ok("kcat", "-b", "127.0.0.1:1", "-L", "-X", "test.mock.num.brokers=3").out.decode()
    assert " 3 brokers:\n  broker 1 at 127.0.0.1:" in lines


def test_the_replicas_of_a_listing() -> None:
    rows = [
        PartitionReplicas(0, 2, [2, 3], [2]),
        PartitionReplicas(1, -1, [1], [], "Broker: Leader not available"),
    ]
    brokers = [Broker(1, "a:1"), Broker(2, "b:1"), Broker(3, "c:1")]
    listing = Listing(None, Cluster((3, "c:1/3"), 2, brokers, {"t": rows}))
    assert listing.text().splitlines() == [
        "Metadata for all topics (from broker 3: c:1/3):",
        " 3 brokers:",
        "  broker 1 at a:1",
        "  broker 2 at b:1 (controller)",
        "  broker 3 at c:1",
        " 1 topics:",
        '  topic "t" with 2 partitions:',
        "    partition 0, leader 2, replicas: 2,3, isrs: 2",
        "    partition 1, leader -1, replicas: 1, isrs: , Broker: Leader not available",
    ]
    shown: Any = listing.document()
    assert (shown["controllerid"], len(shown["brokers"])) == (2, 3)
    assert [row.get("error") for row in shown["topics"][0]["partitions"]] == [
        None,
        "Broker: Leader not available",
    ]
    assert shown["topics"][0]["partitions"][0]["replicas"] == [{"id": 2}, {"id": 3}]


def test_only_http(address: str) -> None:
    for words in (("transaction", "list"), ("group", "retries", "g")):
        refused = run(*words, "-b", address)
        assert (refused.code, "needs the HTTP API" in refused.err) == (2, True)
    delayed = run("produce", "-b", address, "-t", "t", "--delay", 5)
    assert delayed.code in {0, 2}  # no input, no request


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("http://a:1,http://b:2", "is a list: give one URL"),
        ("ftp://a", "begins with http:// or https://"),
        ("a b:1", "neither a URL nor HOST:PORT"),
        ("a:1,,b:2", "neither a URL nor HOST:PORT"),
        ("a:b", "neither a URL nor HOST:PORT"),
        ("a:1,b:65536", "a port is at most 65535"),
        ("", "neither a URL nor HOST:PORT"),
    ],
)
def test_bad_addresses(place: str, problem: str) -> None:
    for words in (("topic", "list", "-b"), ("kcat", "-L", "-b")):
        ended = run(*words, place)
        assert (ended.code, ended.out) == (2, b"")
        assert problem in " ".join(ended.err.split())


def test_nobody_answers() -> None:
    ended = run("topic", "list", "-b", "127.0.0.1:1")
    assert ended.code == 3
    assert ended.err.startswith("error: no answer from 127.0.0.1:1")
    assert "http://127.0.0.1:1" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_record_that_a_rocketmq_store_does_not_take(tmp_path: Path) -> None:
    kafka: dict[str, Any] = {"listen_kafka": "127.0.0.1:0"}
    (tmp_path / "lines").write_text("a:\n")
    with LogServer(tmp_path / "store", backend="rocketmq", **kafka) as server:
        assert server.kafka is not None
        at = ("-b", server.kafka)
        refused = run("produce", *at, "-t", "t", "-K", ":", "-Z", tmp_path / "lines")
    assert (refused.code, "a RocketMQ store needs values" in refused.err) == (2, True)


def test_the_port_of_http() -> None:
    with LogServer(backend="memory") as server:
        ended = run("topic", "list", "-b", server.url.removeprefix("http://"))
        assert ended.code == 3
        assert "the port answers in HTTP; for the HTTP API of a server give http://" in ended.err


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    ended = run("topic", "list", "-b", "127.0.0.1:1")
    assert ended.code == 2
    assert "pip install 'duolog[kafka]'" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_tokens(tmp_path: Path) -> None:
    """The token of --token-file is the password of SASL; kcat takes any login of librdkafka."""
    tokens = token_file(tmp_path, f"{ADMIN} admin")
    options: dict[str, Any] = {"token_file": str(tokens), "listen_kafka": "127.0.0.1:0"}
    with LogServer(tmp_path / "store", **options) as server:
        assert server.kafka is not None
        at = ("-b", server.kafka)
        ok("produce", *at, "-t", "t", "--token-file", tokens, data="a\n")
        login = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=any"]
        given = [word for one in (*login, f"sasl.password={ADMIN}") for word in ("-X", one)]
        assert ok("kcat", *at, "-C", "-t", "t", "-e", "-q", *given).out == b"a\n"
        wrong = [word for one in (*login, "sasl.password=x") for word in ("-X", one)]
        refused = run("kcat", *at, "-L", *wrong)
        assert refused.code == 2
        assert "the token is unknown" in refused.err
