"""Kafka clients log in by SCRAM, with the lines that `logserver token scram` prints."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import aiokafka
import aiokafka.errors
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.http.running import Running
from tests.wire.test_clients import run

PASSWORD = "correct horse, battery=staple"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with the user `ann`, who may do everything."""
    path = tmp_path_factory.mktemp("scram")
    command = (sys.executable, "-P", "-m", "logserver", "token", "scram", "ann")
    lines = run(*command, "--scopes", "admin", given=f"{PASSWORD}\n")
    assert [line.split(":")[0] for line in lines.splitlines()] == [m.lower() for m in MECHANISMS]
    assert PASSWORD not in lines
    tokens = path / "tokens"
    tokens.write_text(lines)
    tokens.chmod(0o600)
    words = ("--token-file", tokens, "--listen-kafka", "127.0.0.1:0")
    running = Running("--data", path / "store", *words)
    yield str(running.told["kafka"])
    running.process.kill()
    running.process.communicate()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(address: str, mechanism: str) -> None:
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "ann",
        "sasl.password": PASSWORD,
    }
    kcat = ["kcat", "-b", address, "-t", mechanism]
    kcat += [word for name, value in login.items() for word in ("-X", f"{name}={value}")]
    run(*kcat, "-P", given="a\n")
    assert run(*kcat, "-C", "-e", "-q") == "a\n"
    config = {"bootstrap.servers": address, **login}
    assert mechanism in AdminClient(config).list_topics(timeout=10).topics
    for changed in ({"sasl.password": "wrong"}, {"sasl.username": "bob"}):
        with pytest.raises(KafkaException):
            AdminClient({**config, **changed, "log_level": 0}).list_topics(timeout=2)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka(address: str, mechanism: str) -> None:
    options = {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "ann",
    }
    producer = aiokafka.AIOKafkaProducer(**options, sasl_plain_password=PASSWORD)
    await producer.start()
    await producer.send_and_wait("t", b"a")
    await producer.stop()
    refused = aiokafka.AIOKafkaProducer(**options, sasl_plain_password="wrong")
    with pytest.raises(aiokafka.errors.KafkaConnectionError):
        await refused.start()
    await refused.stop()


KAFKA_PYTHON = """
import sys
from kafka import KafkaProducer

address, mechanism, password = sys.argv[1:]
producer = KafkaProducer(
    bootstrap_servers=address, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism,
    sasl_plain_username="ann", sasl_plain_password=password,
)
print(producer.send("t", b"a").get(20).topic)
"""


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(address: str, mechanism: str) -> None:
    words = ("-P", "-c", KAFKA_PYTHON, address, mechanism, PASSWORD)
    assert run(sys.executable, *words) == "t\n"


def test_a_password_of_nothing(address: str) -> None:
    command = (sys.executable, "-P", "-m", "logserver", "token", "scram", "ann")
    ended = subprocess.run(command, input="\n", capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "a password has 1 to 1024 characters" in ended.stderr
