"""The pages in a real browser: they load nothing, fit a phone, contrast in light and dark, and run no script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page

from api.html import error_page
from api.http.errors import NOT_READY, ApiError
from tests.browser import (
    PATIENCE_MS,
    check_contrast,
    check_structure,
    check_width,
    chromium,
)
from tests.http.pages.test_overview import HOSTILE
from tests.http.running import Running

pytestmark = pytest.mark.slow

PHONE, DESK = 360, 1280
SCHEMES = ("light", "dark")
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a store with topics and groups, some with hostile names."""
    data = tmp_path_factory.mktemp("pages") / "demo"
    server = Running("--data", data, interpreter=True)
    try:
        server.call("PUT", "/topics/payments", {"partitions": 4})
        for topic, count in (("orders", 1200), ("payments", 40)):
            rows = [{"key": n, "value": n} for n in range(count)]
            assert server.call("POST", f"/topics/{topic}", {"records": rows})[0] == 200
        reset = {"topic": "payments", "to": "earliest"}
        for group in ("billing", *HOSTILE[:4]):
            path = f"/groups/{quote(group, safe='')}/offsets"
            assert server.call("PUT", path, reset)[0] == 200
        yield server.facts["url"]
    finally:
        server.stop()


@pytest.fixture(scope="module")
def damaged(golden_dir: Path) -> Iterator[str]:
    """The address of a damaged store."""
    data = golden_dir / "torn" / "flip-active" / "data"
    server = Running("--data", data, "--read-only", interpreter=True)
    yield server.facts["url"]
    server.stop()


@pytest.fixture(scope="module")
def starting(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the page that shows a start, which does not load itself again."""
    progress = {"what": "examining partitions", "done": 30, "total": 120}
    error = ApiError(NOT_READY, "...", facts={"state": "recovering", "progress": progress})
    path = tmp_path_factory.mktemp("pages") / "starting.html"
    body = error_page(error).body
    assert isinstance(body, bytes)
    path.write_bytes(body.replace(b'<meta http-equiv="refresh" content="2">', b""))
    return path.as_uri()


@pytest.fixture
def open_page(healthy: str, damaged: str, starting: str, browser: Browser) -> Iterator[Open]:
    """A function that opens a page. Nothing may be loaded besides it, and the browser may complain about nothing."""
    addresses = {
        "healthy": healthy,
        "damaged": damaged,
        "starting": starting,
        "docs": f"{healthy}/docs",
    }
    pages: list[Page] = []
    loaded: list[str] = []
    complaints: list[str] = []

    def opened(name: str, width: int = DESK, scheme: str = "light") -> Page:
        page = browser.new_page(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        page.set_default_timeout(PATIENCE_MS)
        page.on("request", lambda request: loaded.append(request.url.rstrip("/")))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        pages.append(page)
        page.goto(addresses[name])
        return page

    yield opened
    for page in pages:
        page.close()
    assert complaints == []
    assert set(loaded) <= set(addresses.values())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["healthy", "damaged", "starting"])
def test_it_fits_and_can_be_read(open_page: Open, name: str, scheme: str) -> None:
    page = open_page(name, DESK, scheme)
    page.locator("details").evaluate_all("all => all.forEach(part => part.open = true)")
    for width in (DESK, 768, PHONE, 320):
        page.set_viewport_size({"width": width, "height": 800})
        check_width(page, width)
    check_contrast(page)
    check_structure(page)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, ground.removeprefix("rgb(").removesuffix(")").split(","))) / 3
    assert (brightness > 200) == (scheme == "light")
    assert (brightness < 60) == (scheme == "dark")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_documentation_fits_and_can_be_read(open_page: Open, scheme: str) -> None:
    page = open_page("docs", DESK, scheme)
    for width in (DESK, 768, PHONE, 320):
        page.set_viewport_size({"width": width, "height": 800})
        check_width(page, width)
    check_contrast(page)
    name, meaning = page.locator("#produce tbody tr").first.locator("td").all()[::2]
    assert page.locator("#produce thead").first.is_hidden()
    above, below = name.bounding_box(), meaning.bounding_box()
    assert above is not None
    assert below is not None
    assert above["y"] + above["height"] <= below["y"]


def test_its_style_is_applied(open_page: Open) -> None:
    """The policy allows the style sheet of the page, else none of it would be in force."""
    page = open_page("healthy")
    assert page.locator("caption").first.evaluate("part => part.getBoundingClientRect().width") <= 1
    boxes = [part.bounding_box() for part in page.locator(".pair section").all()]
    store, health = [box for box in boxes if box is not None]
    assert store["y"] == health["y"]
    assert store["x"] + store["width"] < health["x"]


def test_a_phone_shows_one_below_the_other(open_page: Open) -> None:
    page = open_page("healthy", PHONE)
    boxes = [part.bounding_box() for part in page.locator(".pair section").all()]
    store, health = [box for box in boxes if box is not None]
    assert store["y"] + store["height"] <= health["y"]
    assert not page.locator("th.wide").first.is_visible()


def test_partitions_open_without_a_script(open_page: Open) -> None:
    page = open_page("healthy")
    details = page.locator("tbody", has_text="payments").locator("details").first
    assert not details.locator("table").is_visible()
    details.locator("summary").press("Enter")
    assert details.locator("table").is_visible()


def test_the_link_of_a_finding_leads_to_its_remedy(open_page: Open) -> None:
    page = open_page("damaged", PHONE)
    page.get_by_role("link", name="what to do about damaged-batch").click()
    remedy = page.locator(":target")
    assert remedy.is_visible()
    assert "salvage" in remedy.inner_text()


def test_hostile_names_are_only_text(open_page: Open) -> None:
    page = open_page("healthy")
    assert page.get_by_role("link", name=HOSTILE[0], exact=True).count() == 1
    assert page.locator("img, script, iframe, object, form, link").count() == 0


def test_parts_have_names_for_those_who_hear_the_page(open_page: Open) -> None:
    page = open_page("healthy")
    names = ["Store", "Health", "Findings of this start", "Topics", "Consumer groups"]
    for name in names:
        assert page.get_by_role("region", name=name, exact=True).count() == 1
    assert page.get_by_role("navigation", name="The API").count() == 1
    assert page.get_by_role("table", name="Topics with their partitions").count() == 1
    assert page.get_by_role("link", name="oldest records of orders-0, from offset 0").count() == 1
    starting = open_page("starting")
    assert starting.get_by_role("progressbar", name="Progress of the start").count() == 1
