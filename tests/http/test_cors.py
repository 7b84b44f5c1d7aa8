"""Pages of other origins: preflights, the headers of answers, tokens, and a server that allows none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from logserver.config import load_settings
from logserver.errors import SettingsError
from tests.http.harness import Answer, Api, opener, records, serving, settings

SHOP = "https://shop.example"
OTHER = "https://other.example"
TOKEN = "reader-0123456789abcdef"
ALLOW = "Access-Control-Allow-Origin"


@asynccontextmanager
async def allowing(tmp_path: Path, *origins: str, **changed: Any) -> AsyncIterator[Api]:
    """Run a server that allows these origins."""
    chosen = settings(tmp_path / "store", cors_origins=origins, **changed)
    async with serving(chosen, opener("memory", chosen)) as api:
        yield api


async def preflight(
    api: Api,
    path: str = "/topics/t",
    *,
    origin: str = SHOP,
    method: str = "POST",
    headers: str = "",
) -> Answer:
    """Ask as a browser does before it sends a request of a page."""
    asked = {"Origin": origin, "Access-Control-Request-Method": method}
    if headers:
        asked["Access-Control-Request-Headers"] = headers
    return await api.call("OPTIONS", path, headers=asked)


def cors_headers(answer: Answer) -> dict[str, str]:
    """Return the headers that a browser looks for."""
    return {name: value for name, value in answer.headers.items() if name.startswith("Access-")}


async def test_without_the_setting_no_page_may_read(tmp_path: Path) -> None:
    async with allowing(tmp_path) as api:
        answer = await api.call("GET", "/topics", headers={"Origin": SHOP})
        assert (answer.status, cors_headers(answer)) == (200, {})
        assert "Vary" not in answer.headers
        asked = await preflight(api)
        assert (asked.code, cors_headers(asked)) == (405, {})


async def test_a_page_of_a_listed_origin_reads_and_produces(tmp_path: Path) -> None:
    async with allowing(tmp_path, SHOP) as api:
        asked = await preflight(api, headers="content-type, idempotency-key, x-header-source")
        assert asked.status == 204
        assert asked.headers[ALLOW] == SHOP
        methods = asked.headers["Access-Control-Allow-Methods"].split(", ")
        assert sorted(methods) == ["DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"]
        allowed = asked.headers["Access-Control-Allow-Headers"].lower().split(", ")
        assert {"authorization", "content-type", "idempotency-key", "x-header-source"} <= {*allowed}
        assert asked.headers["Access-Control-Max-Age"] == "600"
        assert asked.headers["Vary"].split(", ")[-1] == "Origin"
        assert "Access-Control-Allow-Credentials" not in asked.headers
        sent = {"Origin": SHOP, "Content-Type": "application/vnd.kafka.json.v2+json"}
        await api.call("POST", "/topics/t", headers=sent, json=records(1))
        path = "/topics/t/partitions/0/records"
        page = await api.call("GET", path, headers={"Origin": SHOP})
        assert (page.status, page.headers[ALLOW]) == (200, SHOP)
        exposed = page.headers["Access-Control-Expose-Headers"].split(", ")
        assert {"X-Next-Offset", "ETag", "X-Request-Id", "X-Warnings", "Retry-After"} <= {*exposed}
        closed = await api.call("GET", f"{path}?offset=0&max_records=1", headers={"Origin": SHOP})
        assert closed.headers["Vary"].split(", ")[-1] == "Origin"
        streamed = {"Origin": SHOP, "Accept": "text/event-stream"}
        stream = await api.call("GET", f"{path}?follow=false", headers=streamed)
        assert (stream.status, stream.headers[ALLOW]) == (200, SHOP)


async def test_a_page_can_read_errors(tmp_path: Path) -> None:
    async with allowing(tmp_path, SHOP) as api:
        for path in ("/topics/none", "/nothing", "/topics?no=1"):
            answer = await api.call("GET", path, headers={"Origin": SHOP})
            assert answer.status >= 400
            assert answer.headers[ALLOW] == SHOP
        assert (await preflight(api, "/nothing")).code == 404


async def test_a_page_of_another_origin_reads_nothing(tmp_path: Path) -> None:
    async with allowing(tmp_path, SHOP) as api:
        for origin in (OTHER, f"{SHOP}:444", f"{SHOP}.evil.example", "null", "http://shop.example"):
            answer = await api.call("GET", "/topics", headers={"Origin": origin})
            assert (answer.status, cors_headers(answer)) == (200, {})
            assert answer.headers["Vary"] == "Origin"
            asked = await preflight(api, origin=origin)
            assert (asked.code, cors_headers(asked)) == (403, {})
            assert "cors_origins" in asked.json["message"]
        assert (await api.call("GET", "/topics")).headers["Vary"] == "Origin"


async def test_every_origin_by_a_star(tmp_path: Path) -> None:
    async with allowing(tmp_path, "*") as api:
        answer = await api.call("GET", "/topics", headers={"Origin": "null"})
        assert answer.headers[ALLOW] == "*"
        assert "Vary" not in answer.headers
        assert (await preflight(api, origin=OTHER)).headers[ALLOW] == "*"


async def test_a_preflight_needs_no_token_and_the_request_does(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN} read\n")
    file.chmod(0o600)
    async with allowing(tmp_path, SHOP, token_file=file) as api:
        asked = await preflight(api, "/topics", method="GET", headers="authorization")
        assert asked.status == 204
        assert "Authorization" in asked.headers["Access-Control-Allow-Headers"].split(", ")
        refused = await api.call("GET", "/topics", headers={"Origin": SHOP})
        assert (refused.code, refused.headers[ALLOW]) == (401, SHOP)
        assert "WWW-Authenticate" in refused.headers["Access-Control-Expose-Headers"].split(", ")
        token = {"Origin": SHOP, "Authorization": f"Bearer {TOKEN}"}
        assert (await api.call("GET", "/topics", headers=token)).status == 200


async def test_credentials_of_the_browser_need_a_setting(tmp_path: Path) -> None:
    async with allowing(tmp_path, SHOP, cors_credentials=True) as api:
        for answer in (
            await preflight(api),
            await api.call("GET", "/topics", headers={"Origin": SHOP}),
        ):
            assert answer.headers["Access-Control-Allow-Credentials"] == "true"
        other = await api.call("GET", "/topics", headers={"Origin": OTHER})
        assert cors_headers(other) == {}


async def test_an_option_request_without_a_page_is_as_before(tmp_path: Path) -> None:
    async with allowing(tmp_path, SHOP) as api:
        answer = await api.call("OPTIONS", "/topics")
        assert (answer.code, answer.headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize(
    ("given", "origins"),
    [
        ("https://a.example", ("https://a.example",)),
        (
            " https://A.example:443 , http://b:80,http://b:8080 ",
            ("https://a.example", "http://b", "http://b:8080"),
        ),
        (["http://[::1]:3000", "http://[::1]:3000"], ("http://[::1]:3000",)),
        ("*", ("*",)),
        ("", ()),
    ],
)
def test_origins_are_read_as_browsers_write_them(given: object, origins: tuple[str, ...]) -> None:
    assert load_settings({"cors_origins": given}, {}).cors_origins == origins


@pytest.mark.parametrize(
    "given", ["a.example", "https://a.example/", "*,https://a", "null", "https://u@a", 5, [5]]
)
def test_a_wrong_origin_is_refused(given: object) -> None:
    with pytest.raises(SettingsError, match="cors_origins"):
        load_settings({"cors_origins": given}, {})


@pytest.mark.parametrize("origins", ["", "*"])
def test_credentials_need_origins_by_name(origins: str) -> None:
    with pytest.raises(SettingsError, match="cors_credentials"):
        load_settings({"cors_origins": origins, "cors_credentials": True}, {})
