"""Kafka clients log in by token, and by SCRAM with the lines that `logserver token scram` prints; with TLS too."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.errors
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from logserver.access.scram import made
from tests.http.running import Running
from tests.http.test_security import ADMIN, new_certificate, token_file
from tests.wire.harness import BACKENDS, OPTIONS
from tests.wire.test_clients import run

PASSWORD = "correct horse, battery=staple"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ALL_MECHANISMS = ("PLAIN", "OAUTHBEARER", *MECHANISMS)
WRONG = "wrong-0123456789ABC"
SOON_S = 5.0
"""A client that the server refuses must say so in this time."""


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
    yield str(running.facts["kafka"])
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


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of a server on 127.0.0.1, which is its own CA; `key.pem` is next to it."""
    folder = tmp_path_factory.mktemp("tls")
    new_certificate(folder, "other.pem", "other-key.pem")
    return new_certificate(folder)


def with_tls(path: Path, backend: str, certificate: Path, *words: str | Path) -> Iterator[str]:
    """Run a server with TLS; yield its address for Kafka clients."""
    tls = ("--tls-cert", certificate, "--tls-key", certificate.with_name("key.pem"))
    listen = ("--listen-kafka", "127.0.0.1:0")
    running = Running("--data", path / "store", *listen, *tls, *OPTIONS[backend], *words)
    yield str(running.facts["kafka"])
    running.process.kill()
    running.process.communicate()


@pytest.fixture(scope="module", params=BACKENDS)
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, certificate: Path
) -> Iterator[str]:
    """The address of a server with TLS, a token, and the user `ann`."""
    path = tmp_path_factory.mktemp("guarded")
    users = [f"{made(name, 'ann', PASSWORD).line()} admin" for name in MECHANISMS]
    tokens = token_file(path, f"{ADMIN} admin", *users)
    yield from with_tls(path, request.param, certificate, "--token-file", tokens)


@pytest.fixture(scope="module", params=BACKENDS)
def encrypted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, certificate: Path
) -> Iterator[str]:
    """The address of a server with TLS, where clients need no login."""
    yield from with_tls(tmp_path_factory.mktemp("encrypted"), request.param, certificate)


def login(mechanism: str, secret: str | None = None) -> Mapping[str, Any]:
    """Return the settings of librdkafka for a login; `secret`: another token or password than the right one."""
    settings = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        token = secret or ADMIN
        return {**settings, "oauth_cb": lambda _: (token, time.time() + 300)}
    secret = secret or (ADMIN if mechanism == "PLAIN" else PASSWORD)
    return {**settings, "sasl.username": "ann", "sasl.password": secret}


def there_and_back(config: Mapping[str, Any], topic: str) -> None:
    """Produce records and consume them with a group."""
    sent = [b"%d" % number for number in range(10)]
    producer = Producer(dict(config))
    for value in sent:
        producer.produce(topic, value)
    assert producer.flush(10) == 0
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, **group})
    consumer.subscribe([topic])
    found = [message.value() for message in consumer.consume(len(sent), 20)]
    assert found == sent
    (committed,) = consumer.commit(asynchronous=False)
    assert (committed.offset, committed.error) == (len(sent), None)
    consumer.close()


@pytest.mark.parametrize("mechanism", ALL_MECHANISMS)
def test_librdkafka_with_tls(guarded: str, certificate: Path, mechanism: str) -> None:
    server = {"bootstrap.servers": guarded, "ssl.ca.location": str(certificate)}
    there_and_back({**server, **login(mechanism)}, mechanism)


def test_librdkafka_with_tls_and_no_login(encrypted: str, certificate: Path) -> None:
    tls = {"security.protocol": "SSL", "ssl.ca.location": str(certificate)}
    there_and_back({"bootstrap.servers": encrypted, **tls}, "t")


def reported_soon(config: Mapping[str, Any], words: str) -> bool:
    """Return whether a client reports an error with these words."""
    errors: list[str] = []
    client = Producer({**config, "error_cb": lambda e: errors.append(e.str()), "log_level": 0})
    until_s = time.monotonic() + SOON_S
    while not any(words in error for error in errors) and time.monotonic() < until_s:
        client.poll(0.05)
    assert not any(WRONG in error for error in errors)
    return any(words in error for error in errors)


@pytest.mark.parametrize("mechanism", ALL_MECHANISMS)
def test_a_wrong_secret_is_reported_soon(guarded: str, certificate: Path, mechanism: str) -> None:
    server = {"bootstrap.servers": guarded, "ssl.ca.location": str(certificate)}
    is_token = mechanism not in MECHANISMS
    words = "the token is unknown" if is_token else "the user is unknown, or the password is wrong"
    assert reported_soon({**server, **login(mechanism, WRONG)}, words)


def test_a_wrong_ca_is_reported_soon(encrypted: str, certificate: Path) -> None:
    other = str(certificate.with_name("other.pem"))
    tls = {"security.protocol": "SSL", "ssl.ca.location": other}
    assert reported_soon({"bootstrap.servers": encrypted, **tls}, "certificate verify failed")


# In a process of its own: transports of TLS end after the client is closed, and may outlive the event loop of a test.
AIOKAFKA_WITH_TLS = """
import asyncio, ssl, sys
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError

address, ca, secret, soon_s = sys.argv[1:]

class Token(AbstractTokenProvider):
    async def token(self):
        return secret

async def main():
    options = {"bootstrap_servers": address}
    if ca:
        context = ssl.create_default_context(cafile=ca)
        options |= {"security_protocol": "SSL", "ssl_context": context}
    if secret:
        options |= {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
        options |= {"sasl_oauth_token_provider": Token()}
    producer = AIOKafkaProducer(**options)
    try:
        await asyncio.wait_for(producer.start(), float(soon_s))
    except KafkaConnectionError:
        print("refused")
        return await producer.stop()
    await producer.send_and_wait("aio", b"a")
    await producer.stop()
    consumer = AIOKafkaConsumer("aio", group_id="aio", auto_offset_reset="earliest", **options)
    await consumer.start()
    print((await consumer.getone()).value.decode())
    await consumer.stop()

asyncio.run(main())
"""


def aiokafka_with_tls(address: str, ca: Path | str, secret: str) -> str:
    """Return what the script prints. It fails if it is not refused or connected soon."""
    words = ("-P", "-c", AIOKAFKA_WITH_TLS, address, str(ca), secret, str(SOON_S))
    return run(sys.executable, *words)


def test_tls_at_one_end_only_ends_soon(encrypted: str, address: str, certificate: Path) -> None:
    assert aiokafka_with_tls(encrypted, "", "") == "refused\n"
    assert aiokafka_with_tls(address, certificate, "") == "refused\n"


def test_aiokafka_with_tls(guarded: str, certificate: Path) -> None:
    assert aiokafka_with_tls(guarded, certificate, ADMIN) == "a\n"
    assert aiokafka_with_tls(guarded, certificate, WRONG) == "refused\n"


KAFKA_PYTHON_WITH_TLS = """
import sys
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

address, ca, mechanism, secret = sys.argv[1:]

class Token(AbstractTokenProvider):
    def token(self):
        return secret

options = {"bootstrap_servers": address, "ssl_cafile": ca, "security_protocol": "SASL_SSL"}
options |= {"sasl_mechanism": mechanism}
if mechanism == "OAUTHBEARER":
    options |= {"sasl_oauth_token_provider": Token()}
else:
    options |= {"sasl_plain_username": "ann", "sasl_plain_password": secret}
topic = f"python-{mechanism}"
KafkaProducer(**options).send(topic, b"a").get(20)
consumer = KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **options)
print(next(consumer).value.decode())
consumer.close()
"""


@pytest.mark.parametrize("mechanism", ALL_MECHANISMS)
def test_kafka_python_with_tls(guarded: str, certificate: Path, mechanism: str) -> None:
    secret = PASSWORD if mechanism in MECHANISMS else ADMIN
    words = ("-P", "-c", KAFKA_PYTHON_WITH_TLS, guarded, str(certificate), mechanism, secret)
    assert run(sys.executable, *words) == "a\n"
