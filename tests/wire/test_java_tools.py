"""Kafka's own command-line tools work against a server."""

from __future__ import annotations

import json
import re
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from logserver.access.scram import made
from tests.http.running import Running
from tests.http.test_security import ADMIN, new_certificate, token_file
from tests.wire.harness import BACKENDS, OPTIONS

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOOLS = "org.apache.kafka.tools"
COUNT = 200


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The format of the store."""
    return str(request.param)


@contextmanager
def serving(folder: Path, *options: str | Path) -> Iterator[str]:
    """Run a server on a new store in the folder; yield its address for Kafka clients."""
    running = Running("--data", folder / "store", "--listen-kafka", "127.0.0.1:0", *options)
    try:
        yield str(running.facts["kafka"])
    finally:
        running.process.kill()
        running.process.communicate()


@pytest.fixture
def address(tmp_path: Path, backend: str) -> Iterator[str]:
    """The address for Kafka clients of a running server."""
    with serving(tmp_path, *OPTIONS[backend]) as kafka:
        yield kafka


def ended(
    classpath: str, address: str, tool: str, *words: str, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end."""
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classpath)
    return subprocess.run(
        ["java", *options, tool, "--bootstrap-server", address, *words],
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def java(classpath: str, address: str, tool: str, *words: str, given: str = "") -> str:
    """Run a tool that must succeed; return its output."""
    found = ended(classpath, address, tool, *words, given=given)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


CONFIGS = {"kafka": ("retention.ms=77", "segment.ms=99999"), "rocketmq": ("perm=4", "order=true")}
"""Configs to set and to change. The tool that creates topics knows no names but Kafka's."""


def test_the_tools(classpath: str, address: str, backend: str) -> None:
    """Create, describe, produce, consume, look at offsets, change configs, list sizes, delete."""
    first, second = CONFIGS[backend]

    def tool(name: str, *words: str, given: str = "") -> str:
        return java(classpath, address, f"{TOOLS}.{name}", *words, given=given)

    created = tool(
        "TopicCommand",
        "--create",
        "--topic",
        "t",
        "--partitions",
        "2",
        *(("--config", first) if backend == "kafka" else ()),
    )
    assert "Created topic t." in created
    config = "kafka.admin.ConfigCommand"
    entity = ("--entity-type", "topics", "--entity-name", "t")
    if backend != "kafka":
        java(classpath, address, config, "--alter", *entity, "--add-config", first)
    described = tool("TopicCommand", "--describe", "--topic", "t")
    assert "PartitionCount: 2" in described
    assert first in described
    lines = "".join(f"k{number}:v{number}\n" for number in range(COUNT))
    properties = ("--property", "parse.key=true", "--property", "key.separator=:")
    tool("ConsoleProducer", "--topic", "t", *properties, given=lines)
    offsets = tool("GetOffsetShell", "--topic", "t")
    ends = [int(found) for found in re.findall(r"^t:\d:(\d+)$", offsets, re.MULTILINE)]
    assert sum(ends) == COUNT
    values: list[str] = []
    for number, end in enumerate(ends):
        values += tool(
            "consumer.ConsoleConsumer",
            *("--topic", "t", "--partition", str(number), "--offset", "earliest"),
            *("--max-messages", str(end)),
        ).split()
    assert sorted(values) == sorted(f"v{number}" for number in range(COUNT))
    java(classpath, address, config, "--alter", *entity, "--add-config", second)
    java(classpath, address, config, "--alter", *entity, "--delete-config", first.split("=")[0])
    configs = java(classpath, address, config, "--describe", *entity)
    assert second in configs
    assert first not in configs
    group = ("--entity-type", "groups", "--entity-name", "g")
    assert "consumer.session.timeout.ms=45000" in java(
        classpath, address, config, "--describe", *group, "--all"
    )
    sizes = tool("LogDirsCommand", "--describe")
    assert '"partition":"t-0"' in sizes
    assert "(id: 1 rack: null" in tool("BrokerApiVersionsCommand")
    tool("TopicCommand", "--delete", "--topic", "t")
    assert tool("TopicCommand", "--list").split() == []


def test_reassignments(classpath: str, address: str, tmp_path: Path) -> None:
    """A move to where a partition is ends at once. The tool then resets limits of the node, which has none."""
    plan = tmp_path / "plan.json"
    part = {"topic": "t", "partition": 0, "replicas": [1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [part]}))

    def tool(name: str, *words: str) -> str:
        return java(classpath, address, f"{TOOLS}.{name}", *words)

    tool("TopicCommand", "--create", "--topic", "t", "--partitions", "1")
    reassign = ("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(plan))
    assert "Successfully started" in tool(*reassign, "--execute")
    verified = tool(*reassign, "--verify")
    assert "Reassignment of partition t-0 is completed." in verified
    assert "Clearing broker-level throttles" in verified
    latency = ("--topic", "t", "--num-records", "10", "--producer-acks", "all")
    sizes = ("--record-key-size", "5", "--record-size", "20")
    assert "Avg latency" in tool("EndToEndLatency", *latency, *sizes)


@pytest.mark.parametrize("backend", ["kafka"])
def test_transactions(classpath: str, address: str) -> None:
    """The Java producer commits transactions; the tool lists and describes them, and finds none that hangs."""

    def tool(*words: str) -> list[list[str]]:
        output = java(classpath, address, f"{TOOLS}.TransactionsCommand", *words)
        return [line.split() for line in output.splitlines()]

    java(classpath, address, f"{TOOLS}.TopicCommand", "--create", "--topic", "txn")
    performance = (
        *("--topic", "txn", "--num-records", "300", "--record-size", "100", "--throughput", "300"),
        *("--transactional-id", "perf", "--transaction-duration-ms", "100"),
    )
    sent = java(classpath, address, f"{TOOLS}.ProducerPerformance", *performance)
    assert "300 records sent" in sent
    head, row = tool("list")
    assert head == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    assert row[:2] == ["perf", "1"]
    assert row[3] == "CompleteCommit"
    _, described = tool("describe", "--transactional-id", "perf")
    assert described[0] == "1"
    assert described[1] == "perf"
    assert int(described[3]) > 1  # the epoch: each transaction raises it
    _, active = tool("describe-producers", "--topic", "txn", "--partition", "0")
    assert active[0] == row[2]
    assert active[-1] == "None"  # no open transaction
    assert tool("find-hanging", "--broker-id", "1")[1:] == []
    values = java(
        classpath,
        address,
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--topic", "txn", "--partition", "0", "--offset", "earliest", "--max-messages", "300"),
        *("--isolation-level", "read_committed"),
    )
    assert len(values.split()) == 300


@pytest.mark.parametrize("backend", ["kafka"])
def test_a_hanging_transaction_is_aborted(classpath: str, address: str) -> None:
    """The tool ends a transaction by the offset at which it begins; readers of committed records go on."""

    def tool(*words: str) -> list[list[str]]:
        output = java(classpath, address, f"{TOOLS}.TransactionsCommand", *words)
        return [line.split() for line in output.splitlines()]

    java(classpath, address, f"{TOOLS}.TopicCommand", "--create", "--topic", "txn")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "transactional.id": "stays-open"}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("txn", b"open")
    producer.flush()
    where = ("--topic", "txn", "--partition", "0")
    _, active = tool("describe-producers", *where)
    assert active[-1] == "0"
    tool("abort", *where, "--start-offset", active[-1])
    _, active = tool("describe-producers", *where)
    assert active[-1] == "None"


@pytest.mark.parametrize("backend", ["rocketmq"])
def test_transactions_are_refused_over_messages(classpath: str, address: str) -> None:
    """The tool ends at once and names the request that the server does not offer."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(10)
    for words, refused in (
        (("list",), "The node does not support LIST_TRANSACTIONS"),
        (("describe", "--transactional-id", "x"), "FindCoordinator request .* failed"),
        (
            ("describe-producers", "--topic", "t", "--partition", "0"),
            "The node does not support DESCRIBE_PRODUCERS",
        ),
    ):
        found = ended(classpath, address, f"{TOOLS}.TransactionsCommand", *words)
        assert (found.returncode, found.stdout) == (1, "")
        assert re.search(refused, found.stderr), found.stderr


def test_perf_tools(classpath: str, address: str) -> None:
    """They send and read a few thousand records, without a key, in compressed batches; each is stored and read once."""
    count = 5000
    load = ("--topic", "perf", "--num-records", str(count))
    java(classpath, address, f"{TOOLS}.TopicCommand", "--create", "--topic", "perf")
    sent = java(
        classpath,
        address,
        f"{TOOLS}.ProducerPerformance",
        *(*load, "--record-size", "100", "--throughput", "-1"),
        *("--command-property", "acks=all", "compression.type=lz4"),
    )
    assert f"{count} records sent" in sent
    read = java(classpath, address, f"{TOOLS}.ConsumerPerformance", *load, "--hide-header")
    assert int(read.strip().rpartition("\n")[2].split(", ")[4]) == count
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "counts"})
    try:
        partition = confluent_kafka.TopicPartition("perf", 0)
        assert consumer.get_watermark_offsets(partition, 10) == (0, count)
    finally:
        consumer.close()


def test_verifiable_clients(classpath: str, address: str) -> None:
    """Kafka's system tests drive brokers with these two: every message is acknowledged, and consumed once, in order."""
    count = 500
    java(classpath, address, f"{TOOLS}.TopicCommand", "--create", "--topic", "v")
    words = ("--topic", "v", "--max-messages", str(count))

    def events(tool: str, *options: str) -> list[dict[str, Any]]:
        lines = java(classpath, address, f"{TOOLS}.{tool}", *words, *options).splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    (summary,) = [one for one in events("VerifiableProducer") if one["name"] == "tool_data"]
    assert (summary["sent"], summary["acked"]) == (count, count)
    consumed = events("VerifiableConsumer", "--group-id", "g", "--verbose")
    records = [one for one in consumed if one["name"] == "record_data"]
    assert [(one["offset"], int(one["value"])) for one in records] == [(n, n) for n in range(count)]
    commits = [one for one in consumed if one["name"] == "offsets_committed"]
    assert all(one["success"] for one in commits)
    assert commits[-1]["offsets"][0]["offset"] == count


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(classpath: str, tmp_path: Path, mechanism: str) -> None:
    """The Java client checks the server's signature too."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{made(mechanism, 'ann', 'secret').line()} admin\n")
    tokens.chmod(0o600)
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    config = tmp_path / "client.properties"
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required username="ann" password="secret";\n'
    )
    topic = (f"{TOOLS}.TopicCommand", "--command-config", str(config), "--create", "--topic")
    with serving(tmp_path, "--token-file", tokens) as kafka:
        assert "Created topic" in java(classpath, kafka, *topic, "t")


def jwt(**claims: object) -> str:
    """Return a token in the form that the Java client asks for: it looks at the claims, and no one at the signature."""
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join([*(urlsafe_b64encode(part).decode().rstrip("=") for part in parts), "c2lnbg"])


def test_oauthbearer(classpath: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Java client sends a token that it reads from a file; it must be one of the server's."""
    oauth = "org.apache.kafka.common.security.oauthbearer"
    at_s = int(time.time())
    good, bad = (jwt(sub=name, iat=at_s, exp=at_s + 3600) for name in ("ann", "bob"))
    given = tmp_path / "given"
    monkeypatch.setenv(
        "JDK_JAVA_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={given.as_uri()}"
    )
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.login.callback.handler.class={oauth}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={given.as_uri()}\n"
        f"sasl.jaas.config={oauth}.OAuthBearerLoginModule required;\n"
    )
    topic = (f"{TOOLS}.TopicCommand", "--command-config", str(config), "--create", "--topic")
    with serving(tmp_path, "--token-file", token_file(tmp_path, f"{good} admin")) as kafka:
        given.write_text(good)
        assert "Created topic" in java(classpath, kafka, *topic, "t")
        given.write_text(bad)
        refused = ended(classpath, kafka, *topic, "u")
        assert refused.returncode != 0
        assert "SaslAuthenticationException" in refused.stdout + refused.stderr


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_tls(classpath: str, tmp_path: Path, backend: str) -> None:
    """The console tools produce and consume over TLS, with a token as the password of PLAIN."""
    new_certificate(tmp_path)
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={tmp_path / 'cert.pem'}\n"
        f'sasl.jaas.config={PLAIN} required username="any" password="{ADMIN}";\n'
    )
    tls = ("--tls-cert", tmp_path / "cert.pem", "--tls-key", tmp_path / "key.pem")
    tokens = ("--token-file", token_file(tmp_path, f"{ADMIN} admin"))
    with serving(tmp_path, *OPTIONS[backend], *tls, *tokens) as kafka:
        common = ("--topic", "t", "--command-config", str(config))
        java(classpath, kafka, f"{TOOLS}.ConsoleProducer", *common, given="a\nb\n")
        group = ("--group", "g", "--from-beginning", "--max-messages", "2")
        consumed = java(classpath, kafka, f"{TOOLS}.consumer.ConsoleConsumer", *common, *group)
        assert consumed.split() == ["a", "b"]
