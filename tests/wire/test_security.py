"""Login with tokens, scopes, TLS: a client that has not logged in sees nothing."""

from __future__ import annotations

import asyncio
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.kafka.apis import SERVED
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.cluster import ApiVersionsRequest
from api.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from api.kafka.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from api.kafka.protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
)
from api.kafka.protocol.messages.transaction_admin import ListTransactionsRequest
from logserver.access.scram import made
from logserver.config import Address, load_settings
from logserver.errors import CannotListen, SettingsError
from logserver.opening import plan_store
from tests.http.harness import opener, serving, settings
from tests.http.running import not_started
from tests.http.test_security import (
    ADMIN,
    PRODUCER,
    READER,
    bearer,
    new_certificate,
    presented,
    token_file,
)
from tests.wire.harness import (
    FREE,
    Broker,
    Connection,
    batch,
    broker,
    fetch,
    frame,
    produce,
    values,
)
from tests.wire.transaction_requests import (
    ID,
    add,
    add_offsets,
    begun,
    commit_offsets,
    end,
    init,
    producers,
)


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Broker]:
    """A server with a token for each scope, and a topic."""
    tokens = token_file(tmp_path, f"{READER} read", f"{PRODUCER} produce", f"{ADMIN} admin")
    async with broker(tmp_path / "store", token_file=tokens) as kafka:
        await kafka.api.call("PUT", "/topics/t", json={"partitions": 1}, headers=bearer(ADMIN))
        yield kafka


async def login(connection: Connection, token: str, mechanism: str = "PLAIN") -> Any:
    """Log in; return the answer to the last step."""
    handshake = await connection.call(SaslHandshakeRequest(mechanism=mechanism), 1)
    assert handshake.mechanisms[:2] == ["PLAIN", "OAUTHBEARER"]
    assert handshake.error_code == 0
    data = f"\0anyone\0{token}" if mechanism == "PLAIN" else f"n,,\1auth=Bearer {token}\1\1"
    return await connection.call(SaslAuthenticateRequest(auth_bytes=data.encode()), 2)


async def test_nothing_before_the_login(guarded: Broker) -> None:
    async with guarded.connect() as connection:
        offered = await connection.call(ApiVersionsRequest(), 2)
        assert {row.api_key for row in offered.api_keys} == set(SERVED)
        connection.writer.write(frame(MetadataRequest(topics=None), 12))
        assert await connection.is_ended()
    async with guarded.connect() as connection:
        connection.writer.write((600 << 10).to_bytes(4, "big"))  # no large frame either
        assert await connection.is_ended()


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
async def test_login(guarded: Broker, mechanism: str) -> None:
    async with guarded.connect() as connection:
        assert (await login(connection, ADMIN, mechanism)).error_code == 0
        assert len((await connection.call(MetadataRequest(topics=None), 12)).topics) == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
async def test_a_wrong_token_ends_the_connection(
    guarded: Broker, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with guarded.connect() as connection:
        refused = await login(connection, "wrong-0123456789ABC", mechanism)
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await connection.is_ended()
    assert "wrong-0123456789ABC" not in caplog.text + str(refused.error_message)


@pytest.mark.parametrize(
    "data", [b"", b"\0\0", b"a\0b\0" + ADMIN.encode(), b"\0u\0", b"no separators", b"\0u\0x\0y"]
)
async def test_bad_logins(guarded: Broker, data: bytes) -> None:
    async with guarded.connect() as connection:
        await connection.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        refused = await connection.call(SaslAuthenticateRequest(auth_bytes=data), 2)
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await connection.is_ended()


async def test_a_failed_login_is_answered_late(
    guarded: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the real broker, guessing is slow; others are served meanwhile."""
    monkeypatch.setattr("api.kafka.handlers.security.FAILED_S", 60)
    async with guarded.connect() as guessing, guarded.connect() as other:
        guess = asyncio.create_task(login(guessing, "wrong-0123456789ABC"))
        assert (await login(other, ADMIN)).error_code == 0
        await asyncio.sleep(0.05)
        assert not guess.done()
        guessing.writer.transport.abort()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await guess
        await guarded.until_connected(1)


async def test_steps_out_of_order(guarded: Broker) -> None:
    async with guarded.connect() as connection:
        unknown = await connection.call(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert unknown.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        early = await connection.call(SaslAuthenticateRequest(auth_bytes=b"\0u\0p"), 2)
        assert early.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await connection.is_ended()


async def test_scram_is_offered_with_users_only(guarded: Broker) -> None:
    async with guarded.connect() as connection:
        unknown = await connection.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        assert unknown.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert unknown.mechanisms == ["PLAIN", "OAUTHBEARER"]


FIRST = b"n,,n=ann,r=x"


async def scram(connection: Connection, data: bytes = FIRST) -> Any:
    """Take the first step of a login by SCRAM."""
    handshake = await connection.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
    assert handshake.error_code == 0
    return await connection.call(SaslAuthenticateRequest(auth_bytes=data), 2)


async def test_steps_of_scram(tmp_path: Path) -> None:
    """Nothing is allowed between the two steps; a failed step ends the connection."""
    line = made("SCRAM-SHA-512", "ann", "secret", iterations=4096).line()
    tokens = token_file(tmp_path, f"{line} read", f"{ADMIN} admin")
    async with broker(tmp_path / "store", token_file=tokens) as kafka:
        async with kafka.connect() as connection:
            assert (await scram(connection)).auth_bytes.startswith(b"r=x")
            connection.writer.write(frame(MetadataRequest(topics=None), 12))
            assert await connection.is_ended()
        async with kafka.connect() as connection:
            bad = await scram(connection, b"n,,n=ann")
            assert bad.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await connection.is_ended()
        async with kafka.connect() as connection:
            challenge = (await scram(connection)).auth_bytes
            nonce = challenge.split(b",")[0]
            last = b"c=biws," + nonce + b",p=" + b64encode(bytes(64))
            wrong = await connection.call(SaslAuthenticateRequest(auth_bytes=last), 2)
            assert wrong.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await connection.is_ended()
        async with kafka.connect() as connection:  # another handshake begins again
            await scram(connection)
            assert (await login(connection, ADMIN)).error_code == 0


async def test_login_without_headers(tmp_path: Path) -> None:
    """After a handshake of version 0 the steps are plain bytes; a failed one ends the connection."""
    verifier = made("SCRAM-SHA-512", "ann", "secret", iterations=4096)
    tokens = token_file(tmp_path, f"{verifier.line()} read", f"{ADMIN} admin")

    async def step(connection: Connection, data: bytes) -> bytes:
        connection.writer.write(len(data).to_bytes(4, "big") + data)
        return await connection.read()

    async with broker(tmp_path / "store", token_file=tokens) as kafka:
        async with kafka.connect() as connection:
            await connection.call(SaslHandshakeRequest(mechanism="PLAIN"), 0)
            assert await step(connection, f"\0any\0{ADMIN}".encode()) == b""
            assert (await connection.call(MetadataRequest(topics=None), 12)).topics == []
        async with kafka.connect() as connection:
            await connection.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 0)
            assert (await step(connection, FIRST)).startswith(b"r=x")
            with pytest.raises(asyncio.IncompleteReadError):
                await step(connection, b"c=biws,r=x,p=AAAA")


async def test_scopes(guarded: Broker) -> None:
    data = batch(b"a")
    create = CreateTopicsRequest(topics=[CreateTopicsRequestCreatableTopic(name="u")], timeout_ms=1)
    for token, may_read, may_produce in ((READER, True, False), (PRODUCER, False, True)):
        async with guarded.connect() as connection:
            await login(connection, token)
            (row,) = (
                (await connection.call(produce("t", (0, data)), 9)).responses[0].partition_responses
            )
            assert row.error_code == (0 if may_produce else ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            (row,) = (await connection.call(fetch("t", (0, 0)), 12)).responses[0].partitions
            assert row.error_code == (0 if may_read else ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            bits = 1 << 8 | (1 << 3 | 1 << 10 if may_read else 1 << 4)  # describe; read, or write
            allowed = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
            allowed.include_topic_authorized_operations = True
            (row,) = (await connection.call(allowed, 8)).topics
            assert row.topic_authorized_operations == bits
            (row,) = (await connection.call(create)).topics
            assert row.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            new = f"new-{may_produce}"
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=new)])
            (row,) = (await connection.call(asked, 8)).topics
            assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (new in guarded.service.topics) == may_produce
    text = (await guarded.service.render_metrics()).decode()
    refused = 'api="CreateTopics",error="CLUSTER_AUTHORIZATION_FAILED"'
    assert f"logserver_kafka_errors_total{{{refused}}} 2.0" in text
    async with guarded.connect() as connection:
        await login(connection, READER)
        connection.writer.write(frame(produce("t", (0, data), acks=0), 9))
        assert await connection.is_ended()


async def test_scopes_of_transactions(guarded: Broker) -> None:
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    async with guarded.connect() as connection:
        await login(connection, PRODUCER)
        owner = await begun(connection)
        listed = await connection.call(ListTransactionsRequest(), 2)
        assert (listed.error_code, listed.transaction_states) == (refused, [])
        (row,) = (await connection.call(producers("t", 0), 0)).topics[0].partitions
        assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    async with guarded.connect() as connection:
        await login(connection, READER)
        assert (await connection.call(init(), 5)).error_code == refused
        plain = await connection.call(init(None), 5)
        assert plain.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        added = await connection.call(add(owner, {"t": [0]}), 3)
        (row,) = added.results_by_topic_v3_and_below[0].results_by_partition
        assert row.partition_error_code == refused
        assert (await connection.call(add_offsets(owner), 4)).error_code == refused
        (row,) = (await connection.call(commit_offsets(owner), 5)).topics[0].partitions
        assert row.error_code == refused
        assert (await connection.call(end(owner, commit=True), 5)).error_code == refused
        listed = await connection.call(ListTransactionsRequest(), 2)
        assert [row.transactional_id for row in listed.transaction_states] == [ID]


async def test_a_login_takes_no_longer_than_a_handshake(tmp_path: Path) -> None:
    tokens = token_file(tmp_path, f"{ADMIN} admin")
    async with (
        broker(tmp_path / "store", token_file=tokens, handshake_timeout_ms=200) as kafka,
        kafka.connect() as connection,
    ):
        await connection.call(ApiVersionsRequest(), 2)
        assert await asyncio.wait_for(connection.is_ended(), 10)


async def test_new_tokens_end_the_connections(guarded: Broker, tmp_path: Path) -> None:
    """Tokens that are the same when they are read again disconnect no client."""
    async with guarded.connect() as connection:
        await login(connection, ADMIN)
        guarded.api.server.reload_tokens()
        assert (await connection.call(MetadataRequest(topics=[]), 12)).topics == []
        token_file(tmp_path, f"{ADMIN} admin", f"{READER} admin")
        guarded.api.server.reload_tokens()
        assert await asyncio.wait_for(connection.is_ended(), 10)


async def test_no_login_without_tokens(kafka: Broker, connection: Connection) -> None:
    """A client that is set up for a login gets a final error, as from the real broker, and does not try again."""
    for version in (0, 1):
        answer = await connection.call(SaslHandshakeRequest(mechanism="PLAIN"), version)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert (await connection.call(MetadataRequest(topics=None), 12)).error_code == 0
    login = await connection.call(SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), 2)
    assert login.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await connection.is_ended()


async def test_tls(tmp_path: Path) -> None:
    """The certificate is that of HTTPS; a client without TLS gets nothing."""
    new_certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    long = [bytes([number]) * 100_000 for number in range(10)]
    async with broker(
        tmp_path / "store",
        tls_cert=tmp_path / "cert.pem",
        tls_key=tmp_path / "key.pem",
        handshake_timeout_ms=500,
    ) as kafka:
        async with kafka.connect(ssl=trusting) as connection:
            assert (await connection.call(MetadataRequest(topics=None), 12)).topics == []
            new = CreateTopicsRequestCreatableTopic(
                name="t", num_partitions=1, replication_factor=1
            )
            await connection.call(CreateTopicsRequest(topics=[new], timeout_ms=1000), 5)
            await connection.call(produce("t", *[(0, batch(value)) for value in long]), 9)
            rows = (await connection.call(fetch("t", (0, 0), max_bytes=1 << 20), 12)).responses
            assert values(rows[0].partitions[0].records) == long
            first = await presented(kafka.address)
            new_certificate(tmp_path)
            kafka.api.server.reload_certificate()
            assert await presented(kafka.address) != first
            assert (await connection.call(MetadataRequest(topics=[]), 12)).topics == []
        async with kafka.connect() as plain:
            plain.writer.write(frame(MetadataRequest(topics=None), 12))
            await asyncio.wait_for(plain.reader.read(), 10)  # at most an alert, then the end
        await kafka.until_connected(0)
        counted = kafka.service.metrics.render().decode()
        assert 'logserver_tls_handshakes_failed_total{port="kafka"} 1.0' in counted


async def test_a_stop_does_not_wait_for_the_goodbye_of_a_tls_client(tmp_path: Path) -> None:
    new_certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    tls: dict[str, Any] = {"tls_cert": tmp_path / "cert.pem", "tls_key": tmp_path / "key.pem"}
    running = broker(tmp_path / "store", shutdown_grace_ms=30_000, **tls)
    async with AsyncExitStack() as stack:
        kafka = await stack.enter_async_context(running)
        host, _, port = kafka.address.rpartition(":")
        plain = socket.create_connection((host, int(port)))
        wrap = partial(trusting.wrap_socket, plain, server_hostname=host)
        silent = await asyncio.to_thread(wrap)
        await kafka.until_connected(1)
        async with asyncio.timeout(10):
            await stack.aclose()
        silent.close()


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"listen_kafka": "0.0.0.0:9092"}, "without any access control"),
        ({"advertise_kafka": "x:1"}, "needs listen_kafka"),
        ({"listen_kafka": "127.0.0.1:0", "advertise_kafka": "x:0"}, "needs a port"),
        ({"listen_kafka": "127.0.0.1:0", "advertise_kafka": "0.0.0.0:1"}, "can connect to"),
        ({"listen_kafka": "127.0.0.1:0", "advertise_kafka": "[::]:1"}, "can connect to"),
        ({"listen_kafka": "9092"}, "HOST:PORT"),
    ],
)
def test_settings(flags: dict[str, object], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        load_settings(flags, environ={})


def test_an_open_port_with_consent() -> None:
    chosen = load_settings({"listen_kafka": "0.0.0.0:9092", "insecure": True}, environ={})
    assert chosen.listen_kafka == Address("0.0.0.0", 9092)


def test_a_format_that_is_not_for_kafka_clients(tmp_path: Path) -> None:
    """The start is refused before anything exists."""
    chosen = settings(tmp_path / "store", listen_kafka=FREE, backend="memory", ephemeral=True)
    with pytest.raises(SettingsError, match="a memory store is not offered to Kafka clients"):
        plan_store(chosen)
    assert list(tmp_path.iterdir()) == []


async def test_a_port_in_use(kafka: Broker, tmp_path: Path) -> None:
    """The message names the option of this port, not that of HTTP, and no store was made."""
    address = Address("127.0.0.1", int(kafka.address.rpartition(":")[2]))
    chosen = settings(tmp_path / "other", listen_kafka=address)
    with pytest.raises(CannotListen, match=r"another port: --listen-kafka 127\.0\.0\.1:N"):
        async with serving(chosen, opener("kafka", chosen)):
            pass


def test_a_port_in_use_leaves_no_store(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        new = ("--data", tmp_path / "new", "--listen", "127.0.0.1:0", "--listen-kafka", address)
        code, errors = not_started(*new)
        assert (code, f"cannot listen on {address}" in errors) == (3, True)
    assert not (tmp_path / "new").exists()


def free_address() -> Address:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return Address("127.0.0.1", free.getsockname()[1])


async def test_no_client_is_accepted_before_the_store_is_open(tmp_path: Path) -> None:
    address = free_address()
    chosen = settings(tmp_path / "s", listen_kafka=address)
    async with serving(chosen, opener("kafka", chosen)) as api:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
        await api.server.listen_kafka()
        async with Broker(api).connect():
            pass


async def test_an_http_port_in_use_frees_the_port_for_kafka(kafka: Broker, tmp_path: Path) -> None:
    address = free_address()
    http = Address("127.0.0.1", int(kafka.api.url.rpartition(":")[2]))
    chosen = replace(settings(tmp_path / "other", listen_kafka=address), listen=http)
    with pytest.raises(CannotListen, match="--port N"):
        async with serving(chosen, opener("kafka", chosen)):
            pass
    with socket.socket() as freed:
        freed.bind(address)


def test_a_start_is_refused(tmp_path: Path) -> None:
    code, errors = not_started(
        "--listen",
        "127.0.0.1:0",
        "--ephemeral",
        "--backend",
        "memory",
        "--listen-kafka",
        "127.0.0.1:0",
    )
    assert code == 2
    assert "a memory store is not offered to Kafka clients" in errors
