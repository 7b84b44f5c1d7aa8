"""Tokens and browsers: a token as the password opens the two pages, and nothing else."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from ssl import create_default_context
from unittest.mock import Mock

import pytest
from aiohttp.test_utils import make_mocked_request

from api.http.auth import Guard
from api.http.errors import ApiError
from logserver.access.tokens import Scope
from tests.http.harness import Api, opener, records, serving, settings
from tests.http.pages.test_overview import BROWSER, checked

READER, PRODUCER = "reader-0123456789", "producer-0123456789"
BASIC = 'Basic realm="logserver", charset="UTF-8"'


def basic(user: str, password: str) -> dict[str, str]:
    """Return the headers of a browser whose user has given a password."""
    text = b64encode(f"{user}:{password}".encode()).decode()
    return {"Accept": BROWSER, "Authorization": f"Basic {text}"}


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Api]:
    """A server with two tokens and a topic."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{READER} read\n{PRODUCER} produce\n")
    tokens.chmod(0o600)
    chosen = settings(tmp_path / "store", token_file=tokens)
    async with serving(chosen, opener("memory", chosen)) as running:
        await running.service.topics.create("orders", 1, None)
        yield running


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_a_browser_is_asked_for_a_password(guarded: Api, path: str) -> None:
    answer = await guarded.get(path, accept=BROWSER)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == BASIC
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "give a token as the password" in answer.body.decode()
    assert "orders" not in answer.body.decode()
    checked(answer)


@pytest.mark.parametrize("path", ["/", "/docs"])
@pytest.mark.parametrize("user", ["", "ann", "a b é"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_token_is_the_password(guarded: Api, path: str, user: str, method: str) -> None:
    assert (await guarded.call(method, path, headers=basic(user, READER))).status == 200
    bearer = {"Accept": BROWSER, "Authorization": f"Bearer {READER}"}
    assert (await guarded.call(method, path, headers=bearer)).status == 200


@pytest.mark.parametrize(
    "credentials",
    [
        *(b64encode(text).decode() for text in (b"x:wrong-0123456789", b"", READER.encode(), b":")),
        b64encode(f"{READER}:x".encode()).decode(),
        f"x:{READER}",
        READER,
        "%%%",
        "é",
    ],
)
async def test_a_wrong_password_asks_again(guarded: Api, credentials: str) -> None:
    headers = {"Accept": BROWSER, "Authorization": f"Basic {credentials}"}
    answer = await guarded.call("GET", "/", headers=headers)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == BASIC
    assert READER not in answer.body.decode()


async def test_a_token_without_reading_is_403(guarded: Api) -> None:
    answer = await guarded.call("GET", "/", headers=basic("x", PRODUCER))
    assert answer.status == 403
    assert "the token does not allow read" in answer.body.decode()


@pytest.mark.parametrize(
    ("method", "path", "accept"),
    [
        ("GET", "/", "application/json"),
        ("GET", "/", "*/*"),
        ("GET", "/docs", "*/*"),
        ("GET", "/topics", BROWSER),
        ("GET", "/topics/orders/partitions/0/records", BROWSER),
        ("GET", "/store", BROWSER),
        ("GET", "/openapi.json", BROWSER),
        ("GET", "/metrics", BROWSER),
        ("POST", "/topics/orders", BROWSER),
        ("DELETE", "/topics/orders", BROWSER),
    ],
)
async def test_nothing_else_takes_a_password(
    guarded: Api, method: str, path: str, accept: str
) -> None:
    headers = {**basic("x", READER), "Accept": accept}
    answer = await guarded.call(method, path, headers=headers)
    assert answer.code == 401
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="logserver"'


async def test_the_page_has_no_links_that_a_browser_cannot_follow(guarded: Api) -> None:
    bearer = {"Authorization": f"Bearer {PRODUCER}"}
    await guarded.call("POST", "/topics/orders", json=records("aGk="), headers=bearer)
    answer = await guarded.call("GET", "/", headers=basic("x", READER))
    links = [link for link in checked(answer).links if not link.startswith("#")]
    assert links == ["docs"]
    assert "Authorization: Bearer TOKEN" in answer.body.decode()
    assert ">orders</bdi>" in answer.body.decode()


async def test_no_password_is_logged(guarded: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for token in (READER, PRODUCER, f"{READER}x"):
            headers = basic("x", token)
            await guarded.call("GET", "/", headers=headers)
            assert headers["Authorization"].split()[1] not in caplog.text
    assert READER not in caplog.text


# -- over TLS, or from this machine


def refusal(guard: Guard, peer: str | None, headers: dict[str, str], *, tls: bool) -> str | None:
    """Return the challenge for a page's request from an address; None if it is allowed."""
    transport = Mock()
    transport.get_extra_info.return_value = peer and (peer, 40000)  # the peer's name
    secure = create_default_context() if tls else None
    request = make_mocked_request(
        "GET", "/", headers=headers, transport=transport, sslcontext=secure
    )
    try:
        guard.check(request, Scope.READ, is_page=True)
    except ApiError as error:
        return error.headers["WWW-Authenticate"] if error.error_code == 401 else str(error)
    return None


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"])
async def test_this_machine_may_send_a_password(guarded: Api, peer: str) -> None:
    guard = guarded.server.app.guard
    assert refusal(guard, peer, {}, tls=False) == BASIC
    assert refusal(guard, peer, basic("x", READER), tls=False) is None


@pytest.mark.parametrize("peer", ["192.0.2.1", "10.0.0.1", "2001:db8::1", "fe80::1%eth0", None])
async def test_another_machine_needs_tls(guarded: Api, peer: str | None) -> None:
    guard = guarded.server.app.guard
    for headers in ({}, basic("x", READER)):
        assert refusal(guard, peer, headers, tls=False) == 'Bearer realm="logserver"'
    bearer = {"Authorization": f"Bearer {READER}"}
    assert refusal(guard, peer, bearer, tls=False) is None
    assert refusal(guard, peer, {}, tls=True) == BASIC
    assert refusal(guard, peer, basic("x", READER), tls=True) is None
