"""Access: tokens and their scopes, TLS and client certificates, limits for browsers, and names that try to leave the
data directory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import ssl
import stat
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest

import storage
from api.app import all_operations
from api.docs_page import target
from api.http.auth import tls_context
from api.operation import Example, Operation
from api.server import Server
from logserver.access.tokens import Scope, load_tokens
from logserver.config import Settings, load_settings
from logserver.errors import SettingsError
from logserver.service.service import LogService
from storage.errors import IoFailure
from tests.http.harness import JSON, Api, opener, records, serving, settings
from tests.http.running import LISTEN, Serve, not_started

READER, PRODUCER, ADMIN = "reader-0123456789", "producer-0123456789", "admin-0123456789ABC"
TOKENS = {Scope.READ: READER, Scope.PRODUCE: PRODUCER, Scope.ADMIN: ADMIN}


def token_file(folder: Path, *lines: str, mode: int = 0o600) -> Path:
    """Write a token file with these lines."""
    path = folder / "tokens"
    path.write_text("\n".join(lines), encoding="utf-8")
    path.chmod(mode)
    return path


def bearer(token: str) -> dict[str, str]:
    """Return the headers of a request with a token."""
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Api]:
    """A server with three tokens, one of them stored as a hash."""
    lines = (
        "# who may what",
        "",
        f"{READER} read",
        f"{PRODUCER} produce",
        f"sha256:{sha256(ADMIN.encode()).hexdigest()} admin",
    )
    chosen = settings(tmp_path / "store", token_file=token_file(tmp_path, *lines))
    async with serving(chosen, opener("memory", chosen)) as running:
        yield running


@pytest.mark.parametrize(
    "operation", [pytest.param(one, id=one.id) for one in all_operations(Settings())]
)
async def test_every_call_asks_for_its_scope(guarded: Api, operation: Operation) -> None:
    path = target(operation.pattern, Example())
    needed = operation.scope
    method = operation.method
    anonymous = await guarded.call(method, path)
    assert (anonymous.status == 401) is (needed is not None)
    for scope, token in TOKENS.items():
        answer = await guarded.call(method, path, headers=bearer(token))
        may = needed is None or scope in {needed, Scope.ADMIN}
        assert (answer.status in {401, 403}) is not may, (scope, answer.body)


async def test_without_a_token_the_answer_says_what_to_send(guarded: Api) -> None:
    answer = await guarded.get("/topics")
    assert answer.code == 401
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="logserver"'
    assert "Authorization: Bearer" in answer.json["message"]


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Bearer unknown-0123456789", f"Basic {READER}", f"Bearer {READER}x"],
)
async def test_another_token_is_401(guarded: Api, header: str) -> None:
    answer = await guarded.call("GET", "/topics", headers={"Authorization": header})
    assert answer.code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
    assert READER not in answer.body.decode()


async def test_too_little_is_403_and_names_the_scope(guarded: Api) -> None:
    answer = await guarded.call("PUT", "/topics/t", headers=bearer(READER), json={})
    assert answer.code == 403
    assert answer.json["scope"] == "admin"
    assert 'error="insufficient_scope"' in answer.headers["WWW-Authenticate"]
    assert (await guarded.call("PUT", "/topics/t", headers=bearer(ADMIN), json={})).status == 201


async def test_what_needs_no_token_takes_a_wrong_one(guarded: Api) -> None:
    for path in ("/livez", "/readyz", "/ready", "/health", "/healthz"):
        assert (await guarded.call("GET", path, headers=bearer("wrong"))).status == 200


async def test_the_scheme_is_not_case_sensitive(guarded: Api) -> None:
    headers = {"Authorization": f"bearer  {READER}"}
    assert (await guarded.call("GET", "/topics", headers=headers)).status == 200


async def test_tokens_are_read_again_when_asked(guarded: Api, tmp_path: Path) -> None:
    guard = guarded.server.app.guard
    token_file(tmp_path, f"{PRODUCER} read")
    guard.reload()
    assert (await guarded.call("GET", "/topics", headers=bearer(PRODUCER))).status == 200
    assert (await guarded.call("GET", "/topics", headers=bearer(READER))).status == 401
    token_file(tmp_path, "nonsense")
    with pytest.raises(SettingsError):
        guard.reload()
    assert (await guarded.call("GET", "/topics", headers=bearer(PRODUCER))).status == 200


async def test_no_token_is_logged(guarded: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for header in (f"Bearer {READER}", f"Basic {READER}", f"Bearer {READER} x"):
            await guarded.call("GET", "/topics", headers={"Authorization": header})
    assert READER not in caplog.text


async def test_the_document_tells_who_may_what(guarded: Api) -> None:
    reported = (await guarded.call("GET", "/openapi.json", headers=bearer(READER))).json
    assert reported["components"]["securitySchemes"] == {
        "bearer": {"type": "http", "scheme": "bearer"}
    }
    topic = reported["paths"]["/topics/{topic}"]
    assert topic["get"]["security"] == [{"bearer": ["read"]}]
    assert topic["post"]["security"] == [{"bearer": ["produce"]}]
    assert {"401", "403"} <= topic["get"]["responses"].keys()
    assert reported["paths"]["/livez"]["get"]["security"] == []


# -- the token file


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "holds no token"),
        ("# only a comment", "holds no token"),
        ("secret-0123456789", "line 1 is not a token and its scopes"),
        ("secret-0123456789 read write", "line 1 is not"),
        ("secret-0123456789 write", "line 1: scopes are admin, produce, read"),
        ("secret-0123456789 read,", "line 1: scopes are"),
        ("short read", "line 1: a token has 16"),
        ("sha256:abc read", "line 1: a token has 16"),
        ("secret-0123456789 read\nsecret-0123456789 admin", "holds a token twice"),
        ("sécret-0123456789 read", "is not ASCII"),
    ],
)
def test_a_bad_token_file_is_refused_without_telling_a_token(
    tmp_path: Path, line: str, problem: str
) -> None:
    with pytest.raises(SettingsError, match=problem) as caught:
        load_tokens(token_file(tmp_path, line))
    assert "0123456789" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620, 0o666])
def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(SettingsError, match="chmod 600"):
        load_tokens(token_file(tmp_path, f"{READER} read", mode=mode))


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o600, 0o640])
def test_a_token_file_of_owner_and_group_is_taken(tmp_path: Path, mode: int) -> None:
    tokens = load_tokens(token_file(tmp_path, f"{READER} read,produce", mode=mode))
    assert tokens.scopes_of(READER.encode()) == frozenset({Scope.READ, Scope.PRODUCE})
    assert tokens.scopes_of(b"") is None


def test_a_token_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load_tokens(tmp_path / "none")


def test_an_open_address_needs_tokens(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="token_file"):
        load_settings({"listen": "0.0.0.0:80"}, {})
    load_settings({"listen": "0.0.0.0:80", "token_file": str(tmp_path / "tokens")}, {})


# -- TLS


def openssl(folder: Path, *words: str) -> None:
    """Run openssl in a folder."""
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=60)


NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


def new_certificate(folder: Path, name: str = "cert.pem", key: str = "key.pem") -> Path:
    """Make a certificate for 127.0.0.1, which is its own CA, and its key; return the path of the certificate."""
    alt = ("-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1")
    openssl(folder, "req", "-x509", *NEW_KEY, *alt, "-keyout", key, "-out", name)
    return folder / name


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.pem, and server.pem and client.pem (certificate and key) signed by the CA."""
    folder = tmp_path_factory.mktemp("tls")
    usage = ("-addext", "keyUsage=critical,keyCertSign")  # Python 3.13 asks for it
    authority = ("-subj", "/CN=ca", *usage, "-keyout", "ca.key", "-out", "ca.pem")
    openssl(folder, "req", "-x509", *NEW_KEY, *authority)
    for name in ("server", "client"):
        alt = "subjectAltName=IP:127.0.0.1"
        request = ("req", "-x509", *NEW_KEY, "-subj", f"/CN={name}", "-addext", alt)
        signed = (
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        )
        openssl(folder, *request, *signed, "-keyout", f"{name}.key", "-out", f"{name}.crt")
        both = (folder / f"{name}.crt").read_bytes() + (folder / f"{name}.key").read_bytes()
        (folder / f"{name}.pem").write_bytes(both)
    return folder


def trusting(certificates: Path, client: str | None = None) -> ssl.SSLContext:
    """Return the TLS context of a client that trusts the CA, optionally with a client certificate."""
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    if client is not None:
        context.load_cert_chain(certificates / client)
    return context


async def test_https_is_spoken(tmp_path: Path, certificates: Path) -> None:
    chosen = settings(
        tmp_path / "store",
        tls_cert=certificates / "server.crt",
        tls_key=certificates / "server.key",
    )
    async with serving(chosen, opener("memory", chosen)) as api:
        assert api.url.startswith("https://127.0.0.1:")
        secure = trusting(certificates)
        answer = await api.call("POST", "/topics/t", json=records("aGk="), ssl=secure)
        assert answer.status == 200
        assert (await api.call("GET", "/topics", ssl=secure)).json == ["t"]
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await api.call("GET", "/topics")
        with pytest.raises(aiohttp.ClientError):
            async with api.session.get(api.url.replace("https", "http") + "/topics"):
                pass


async def test_a_client_needs_a_certificate(tmp_path: Path, certificates: Path) -> None:
    chosen = settings(
        tmp_path / "store",
        tls_cert=certificates / "server.pem",
        tls_client_ca=certificates / "ca.pem",
    )
    async with serving(chosen, opener("memory", chosen)) as api:
        known = trusting(certificates, "client.pem")
        assert (await api.call("GET", "/topics", ssl=known)).status == 200
        with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
            await api.call("GET", "/topics", ssl=trusting(certificates))


def distrust(host: str, port: int) -> None:
    """Connect as a client that does not trust the server's certificate."""
    with (
        socket.create_connection((host, port), timeout=10) as plain,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        ssl.create_default_context().wrap_socket(plain, server_hostname=host)


async def test_a_failed_handshake_is_logged_and_counted(
    tmp_path: Path, certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = settings(
        tmp_path / "store", tls_cert=certificates / "server.pem", handshake_timeout_ms=200
    )
    caplog.set_level("INFO", "api.connection")
    async with serving(chosen, opener("memory", chosen)) as api:
        host, port = api.url.removeprefix("https://").split(":")
        await asyncio.to_thread(distrust, host, int(port))
        _, gone = await asyncio.open_connection(host, int(port))
        gone.close()  # without a word: neither logged nor counted
        for sent in (b"GET / HTTP/1.1\r\n\r\n", b""):  # without TLS; nothing before the timeout
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            with suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 10)
            writer.transport.abort()
        await api.until_connected(0)
        metrics = await api.call("GET", "/metrics", ssl=trusting(certificates))
        assert 'logserver_tls_handshakes_failed_total{port="http"} 3.0' in metrics.body.decode()
    failures = [message for message in caplog.messages if "handshake" in message]
    assert all(f"the TLS handshake of client {host} failed: " in one for one in failures)
    unknown, plain, slow = (one.partition("failed: ")[2] for one in failures)
    assert unknown == "TLSV1_ALERT_UNKNOWN_CA"
    assert plain == "HTTP_REQUEST"
    assert "taking longer than 0.2 seconds" in slow


async def presented(address: str) -> str:
    """Return the certificate that a port presents to a new client, in PEM."""
    host, _, port = address.rpartition(":")
    return await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)), timeout=10)


async def test_a_new_certificate_is_for_new_connections(tmp_path: Path, certificates: Path) -> None:
    own = tmp_path / "own.pem"
    own.write_bytes((certificates / "server.pem").read_bytes())
    chosen = settings(tmp_path / "store", tls_cert=own)
    secure = trusting(certificates)
    async with serving(chosen, opener("memory", chosen)) as api:
        address = api.url.removeprefix("https://")
        assert (await api.call("GET", "/topics", ssl=secure)).status == 200  # and stays open
        first = await presented(address)
        own.write_bytes((certificates / "client.pem").read_bytes())
        assert await presented(address) == first
        api.server.reload_certificate()
        second = await presented(address)
        assert second.split() == (certificates / "client.crt").read_text().split()
        own.write_text("nonsense")
        with pytest.raises(SettingsError, match="holds no certificate"):
            api.server.reload_certificate()
        assert await presented(address) == second
        assert (await api.call("GET", "/topics", ssl=secure)).status == 200


def test_a_token_is_revoked_while_the_certificate_cannot_be_read(
    serve: Serve, tmp_path: Path, certificates: Path
) -> None:
    own = tmp_path / "own.pem"
    own.write_bytes((certificates / "server.pem").read_bytes())
    own.chmod(0o600)
    tokens = token_file(tmp_path, f"{READER} read", f"{ADMIN} admin")
    words = ("--data", tmp_path / "store", "--tls-cert", own, "--token-file", tokens)
    server = serve(*words)

    def status() -> int:
        request = urllib.request.Request(server.facts["url"] + "/topics", headers=bearer(READER))
        try:
            with urllib.request.urlopen(request, context=trusting(certificates)) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    assert status() == 200
    own.unlink()
    token_file(tmp_path, f"{ADMIN} admin")
    server.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 10
    while status() != 401:
        assert time.monotonic() < deadline, "the token is not revoked"


async def test_a_client_that_a_new_authority_does_not_know(
    tmp_path: Path, certificates: Path
) -> None:
    """The authority of clients is read again too, and the one before is not trusted any more."""
    authority = tmp_path / "ca.pem"
    authority.write_bytes((certificates / "ca.pem").read_bytes())
    server = certificates / "server.pem"
    chosen = settings(tmp_path / "store", tls_cert=server, tls_client_ca=authority)
    known = trusting(certificates, "client.pem")
    async with serving(chosen, opener("memory", chosen)) as api:
        headers = {"Connection": "close"}
        assert (await api.call("GET", "/topics", ssl=known, headers=headers)).status == 200
        authority.write_bytes((certificates / "server.crt").read_bytes())
        api.server.reload_certificate()
        with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
            await api.call("GET", "/topics", ssl=known, headers=headers)


def test_a_signal_reads_the_certificate_again(
    serve: Serve, tmp_path: Path, certificates: Path
) -> None:
    own = tmp_path / "own.pem"
    own.write_bytes((certificates / "server.pem").read_bytes())
    server = serve("--data", tmp_path / "store", "--tls-cert", own)
    host, port = server.facts["url"].removeprefix("https://").split(":")
    own.write_bytes((certificates / "client.pem").read_bytes())
    server.process.send_signal(signal.SIGHUP)
    wanted = (certificates / "client.crt").read_text().split()
    deadline = time.monotonic() + 10
    while ssl.get_server_certificate((host, int(port)), timeout=10).split() != wanted:
        assert time.monotonic() < deadline, "the certificate is not read again"


async def test_connections_in_the_handshake_are_counted_and_end(
    tmp_path: Path, certificates: Path
) -> None:
    """Silent clients in the TLS handshake count for the limit of connections, and are disconnected soon."""
    chosen = settings(
        tmp_path / "store",
        tls_cert=certificates / "server.pem",
        max_connections=4,
        handshake_timeout_ms=1000,
    )
    secure = trusting(certificates)
    async with serving(chosen, opener("memory", chosen)) as api:
        host, port = api.url.removeprefix("https://").split(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(4)]
        await api.until_connected(4)
        reader, writer = await asyncio.open_connection(host, int(port))
        with suppress(ConnectionError):
            assert await reader.read() == b""
        await api.until_connected(0)
        assert (await api.call("GET", "/topics", ssl=secure)).json == []
        for _, one in (*silent, (reader, writer)):
            one.transport.abort()


async def test_a_stop_ends_a_handshake(tmp_path: Path, certificates: Path) -> None:
    chosen = settings(tmp_path / "store", tls_cert=certificates / "server.pem")
    async with serving(chosen, opener("memory", chosen)) as api:
        host, port = api.url.removeprefix("https://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await api.until_connected(1)
    with suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.transport.abort()


def test_a_request_right_behind_the_handshake_is_answered(
    serve: Serve, tmp_path: Path, certificates: Path
) -> None:
    """A request that arrives with the last bytes of the handshake is answered. The server runs its own event loop."""
    server = serve("--data", tmp_path / "store", "--tls-cert", certificates / "server.pem")
    host, port = server.facts["url"].removeprefix("https://").split(":")
    for _ in range(50):
        with (
            socket.create_connection((host, int(port)), timeout=10) as plain,
            trusting(certificates).wrap_socket(plain, server_hostname=host) as secured,
        ):
            secured.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert secured.recv(4096).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"tls_cert": "missing.pem"}, "tls_cert: .*missing.pem cannot be read: No such file or di"),
        ({"tls_cert": "server.crt", "tls_key": "missing"}, "tls_key: .*missing cannot be read: No"),
        ({"tls_cert": "ca.key"}, "tls_cert: .*ca.key holds no certificate in PEM"),
        ({"tls_cert": "server.crt"}, "server.crt holds no private key: give tls_key"),
        ({"tls_cert": "server.crt", "tls_key": "ca.pem"}, "server.crt has no key in .*ca.pem"),
        (
            {"tls_cert": "server.crt", "tls_key": "client.key"},
            "server.crt does not belong to the private key in .*client.key",
        ),
        ({"tls_cert": "server.pem", "tls_client_ca": "server.key"}, "server.key holds no certifi"),
    ],
)
def test_what_is_no_certificate_is_refused(
    tmp_path: Path, certificates: Path, wrong: dict[str, str], problem: str
) -> None:
    paths = {name: certificates / file for name, file in wrong.items()}
    chosen = settings(tmp_path, **paths)
    with pytest.raises(SettingsError, match=f"setting tls_.*{problem.removeprefix('tls_')}"):
        Server(LogService(chosen, opener("memory", chosen)))


@pytest.mark.parametrize("name", ["tls_key", "tls_client_ca"])
def test_a_key_alone_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="needs tls_cert"):
        load_settings({name: "a.pem"}, {})


# -- browsers and names


async def test_another_origin_is_told_nothing(api: Api) -> None:
    origin = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    preflight = await api.call("OPTIONS", "/topics/t", headers=origin)
    assert preflight.code == 405
    answer = await api.call("GET", "/topics", headers=origin)
    for headers in (preflight.headers, answer.headers):
        assert [name for name in headers if name.lower().startswith("access-control")] == []


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
async def test_what_a_form_can_send_stores_nothing(api: Api, content_type: str) -> None:
    body = b'{"records":[{"value":"aGk="}]}'
    assert (await api.post("/topics/t", body, content_type=content_type)).code == 415
    assert (await api.get("/topics")).json == []


TRAVERSALS = [
    "..",
    ".",
    "../x",
    "/etc/passwd",
    "a/../../x",
    "..\\x",
    "\0",
    "a\0b",
    "~",
    "a b",
]


@pytest.mark.parametrize("name", TRAVERSALS)
async def test_a_name_leads_nowhere_else(api: Api, tmp_path: Path, name: str) -> None:
    outside = names_in(tmp_path)
    path = f"/topics/{quote(name, safe='')}"
    for answer in (
        await api.call("PUT", path, json={}),
        await api.post(path, records(1)),
        await api.call("DELETE", path),
        await api.get(f"{path}/partitions/0/records"),
    ):
        assert answer.status in {404, 405, 422}, answer.body
        assert answer.code
    assert names_in(tmp_path) == outside


def names_in(folder: Path) -> set[str]:
    """Return the names in a folder."""
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("backend", ["kafka", "rocketmq"])
async def test_a_new_data_directory_is_for_its_owner(tmp_path: Path, backend: str) -> None:
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener(backend, chosen)) as api:
        assert (await api.post("/topics/t", records("x"), content_type=JSON)).status == 200
    folders = [chosen.data, *(path for path in chosen.data.rglob("*") if path.is_dir())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A log file that is a link to a file elsewhere is neither read nor written."""
    path = tmp_path / "store"
    with storage.open_store("kafka", path) as store:
        store.create_topic("t", 1)
        store.append(storage.TopicPartition("t", 0), [storage.Record(None, b"x")])
    log_file = next(path.glob("t-0/*.log"))
    secret = tmp_path / "secret"
    log_file.rename(secret)
    log_file.symlink_to(secret)
    before = secret.read_bytes()
    with pytest.raises(storage.StorageError, match=log_file.name):
        storage.open_store("kafka", path)
    assert secret.read_bytes() == before


LINKED = {
    "kafka": ["t-0"],
    "rocketmq": [
        *("commitlog", "config", "consumequeue", "consumequeue/t", "consumequeue/t/0", "index")
    ],
}


@pytest.mark.parametrize(
    ("backend", "folder"), [(name, folder) for name in LINKED for folder in LINKED[name]]
)
def test_a_linked_folder_of_a_store_is_not_followed(
    tmp_path: Path, backend: str, folder: str
) -> None:
    """A linked folder is not followed, and nothing is created in its place. For read-only use see
    tests/damage/test_links.py, where links are followed.
    """
    path = tmp_path / "store"
    kept(path, backend)
    elsewhere = tmp_path / "elsewhere"
    (path / folder).rename(elsewhere)
    (path / folder).symlink_to(elsewhere)
    before = beginnings(elsewhere)
    with pytest.raises(IoFailure, match=f"{folder}: it is a symbolic link"):
        storage.open_store(backend, path)
    assert beginnings(elsewhere) == before


def beginnings(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Return length and first bytes of each file: a RocketMQ log file of 1 GiB has only some hundred bytes written."""
    found = {}
    for path in (path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            found[path] = path.stat().st_size, file.read(65_536)
    return found


@pytest.mark.parametrize("backend", ["kafka", "rocketmq"])
def test_the_data_directory_may_be_a_link(tmp_path: Path, backend: str) -> None:
    kept(tmp_path / "store", backend)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "store")
    detected = storage.detect(link)
    assert detected is not None
    assert detected.backend == backend
    for read_only in (False, True):
        with storage.open_store(backend, link, read_only=read_only) as store:
            assert [r.value for r in store.scan(storage.TopicPartition("t", 0))] == [b"x"]
    with closing(storage.open_inspector(link)) as inspector:
        assert list(inspector.verify()) == []


def kept(path: Path, backend: str) -> None:
    """Create a store with one record, and close it."""
    with storage.open_store(backend, path) as store:
        store.create_topic("t", 1)
        store.append(storage.TopicPartition("t", 0), [storage.Record(b"k", b"x")])


@pytest.mark.parametrize(
    "body",
    [
        b'{"records":[{"value":NaN}]}',
        b'{"records":[{"value":Infinity}]}',
        b'{"records":[{"value":1,"timestamp":9223372036854775808}]}',
        b'{"records":[{"value":1,"delay_level":9223372036854775808}]}',
        b'{"records":[{"value":1,"timestamp":1e400}]}',
        b'{"records":[{"value":1,"timestamp":1.5}]}',
        b'{"records":[{"value":1,"partition":2147483648}]}',
    ],
)
async def test_numbers_that_are_none_are_refused(api: Api, body: bytes) -> None:
    assert (await api.post("/topics/t", body)).status in {400, 422}
    assert (await api.get("/topics")).json == []


# -- files of another kind, and keys that other users can change


@pytest.mark.parametrize("setting", ["token-file", "tls-cert", "tls-key", "tls-client-ca"])
def test_a_fifo_ends_the_start(tmp_path: Path, certificates: Path, setting: str) -> None:
    """A FIFO as a file of secrets ends the start: its open would wait for a writer, and no signal would end that."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    options = {"tls-cert": certificates / "server.pem"} if setting.startswith("tls") else {}
    options[setting] = fifo
    words = [word for name, path in options.items() for word in (f"--{name}", str(path))]
    code, errors = not_started(*LISTEN, "--data", tmp_path / "s", *words)
    assert code == 2
    assert f"{fifo} is not a regular file" in errors


def test_a_folder_is_no_token_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="is not a regular file"):
        load_tokens(tmp_path)


def test_a_link_to_a_token_file_is_followed(tmp_path: Path) -> None:
    """A link to a token file is followed: containers mount secrets as links."""
    link = tmp_path / "link"
    link.symlink_to(token_file(tmp_path, f"{READER} read"))
    assert load_tokens(link).scopes_of(READER.encode()) == frozenset({Scope.READ})


@pytest.mark.parametrize("with_key_file", [True, False])
@pytest.mark.parametrize(
    ("mode", "refused", "warned"),
    [
        (0o600, False, False),
        (0o640, False, False),
        (0o644, False, True),
        (0o660, True, False),
        (0o602, True, False),
        (0o666, True, False),
    ],
)
def test_the_mode_of_a_tls_key(
    tmp_path: Path,
    certificates: Path,
    caplog: pytest.LogCaptureFixture,
    with_key_file: bool,
    mode: int,
    refused: bool,
    warned: bool,
) -> None:
    pem = tmp_path / "server.pem"
    pem.write_bytes((certificates / "server.pem").read_bytes())
    pem.chmod(mode)
    certificate = certificates / "server.pem" if with_key_file else pem
    chosen = settings(tmp_path / "s", tls_cert=certificate, tls_key=pem if with_key_file else None)
    if refused:
        with pytest.raises(SettingsError, match="others can change it: chmod 600"):
            tls_context(chosen)
    else:
        with caplog.at_level(logging.WARNING):
            assert tls_context(chosen) is not None
    assert ("can read" in caplog.text) is warned
