"""The page of a report in a real browser: it loads nothing, fits a phone, and shows its plots, light and dark.

Pictures are checked only for properties that hold on any machine: sizes, colours and ink, not pixels of letters.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page

from logserver.bench.report import render
from logserver.bench.report.contents import report
from tests.bench import results
from tests.browser import PATIENCE_MS, chromium

pytestmark = pytest.mark.slow

PHONE, DESK = 360, 1280
LEAST_LETTERS_PX = 9.0
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render.html(report([results.full()])), encoding="utf-8")
    return path


@pytest.fixture
def open_page(browser: Browser, page_file: Path) -> Iterator[Open]:
    """A function that opens the page in a window of a given width and notes every request."""
    pages: list[Page] = []

    def opened(width: int, scheme: str = "light", requests: list[str] | None = None) -> Page:
        page = browser.new_page(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        page.set_default_timeout(PATIENCE_MS)
        pages.append(page)
        if requests is not None:
            page.on("request", lambda request: requests.append(request.url))
        page.goto(page_file.as_uri())
        return page

    yield opened
    for page in pages:
        page.close()


def shown(part: Locator) -> Image.Image:
    return Image.open(io.BytesIO(part.screenshot())).convert("RGB")


def brightness(colour: tuple[int, ...]) -> float:
    return sum(colour) / len(colour)


def test_nothing_is_loaded_but_the_page(open_page: Open, page_file: Path) -> None:
    requests: list[str] = []
    page = open_page(DESK, requests=requests)
    page.wait_for_load_state("networkidle")
    assert requests == [page_file.as_uri()]
    assert page.locator("script, link, img, iframe, object").count() == 0


@pytest.mark.parametrize("width", [320, PHONE, 768, DESK])
def test_it_fits_its_window(open_page: Open, width: int) -> None:
    """Nothing makes the page wider than the window; wider content scrolls in its own box."""
    page = open_page(width)
    inner, outer = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert inner <= outer == width
    wide = "boxes => boxes.filter(b => b.scrollWidth > b.clientWidth).length"
    scrolling = page.locator(".scroll").evaluate_all(wide)
    assert scrolling > 0 or width > PHONE
    styles = "boxes => boxes.map(b => getComputedStyle(b).overflowX)"
    assert set(page.locator(".scroll").evaluate_all(styles)) == {"auto"}


def test_a_phone_shows_the_middle_value_without_scrolling(open_page: Open) -> None:
    """The value is visible next to the names of workload and target, which are useless alone."""
    page = open_page(320)
    for chapter in ("throughput", "cpu", "by-topics"):
        value = page.locator(f"#{chapter} tbody td.number").first.bounding_box()
        assert value is not None
        assert value["x"] + value["width"] <= 320


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_every_plot_is_to_be_seen(open_page: Open, width: int) -> None:
    """Each plot is within the window, large enough to read, with its marks inside it."""
    page = open_page(width)
    plots = page.locator("figure svg")
    document = report([results.full()])
    assert plots.count() == sum(len(chapter.plots) for chapter in document.chapters.values()) > 10
    for plot in plots.all():
        box = plot.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["width"] > 280
        assert box["height"] > 40
        inside = plot.evaluate(
            """svg => {
                const own = svg.getBoundingClientRect();
                const parts = [...svg.querySelectorAll('text, path, use')]
                    .filter(part => !part.closest('defs'));
                return parts.every(part => {
                    const box = part.getBoundingClientRect();
                    return box.left >= own.left - 1 && box.right <= own.right + 1
                        && box.top >= own.top - 1 && box.bottom <= own.bottom + 1;
                });
            }"""
        )
        assert inside, plot.get_attribute("aria-labelledby")
    letters = """texts => Math.min(...texts.map(text => {
        const scale = text.ownerSVGElement.getScreenCTM().a;
        return parseFloat(getComputedStyle(text).fontSize) * scale;
    }))"""
    assert page.locator("figure svg text").evaluate_all(letters) >= LEAST_LETTERS_PX


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(open_page: Open, scheme: str) -> None:
    """The background of page and plots follows the reader's scheme, and text and marks contrast with it."""
    page = open_page(DESK, scheme)
    plot = shown(page.locator("#throughput figure").first)
    colours = plot.getcolors(maxcolors=plot.width * plot.height)
    assert colours is not None
    _, ground = max(colours)
    assert isinstance(ground, tuple)
    assert (brightness(ground) > 200) == (scheme == "light")
    assert (brightness(ground) < 60) == (scheme == "dark")
    others = [colour for count, colour in colours if count > 100 and isinstance(colour, tuple)]
    coloured = [c for c in others if max(c) - min(c) > 40]
    assert len(coloured) >= len(results.TARGETS)  # a colour for each target
    page_ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert page_ground == f"rgb{ground!r}"


def test_the_marks_of_targets_differ_in_shape_and_colour(open_page: Open) -> None:
    page = open_page(DESK)
    marks = page.locator("#throughput .legend li svg").all()
    pictures = {mark.inner_html() for mark in marks}
    assert len(marks) == len(pictures) == len(results.TARGETS)


def test_it_can_be_read_by_ear_and_by_key(open_page: Open) -> None:
    page = open_page(DESK)
    described = """plots => plots.every(svg => svg.getAttribute('role') === 'img'
        && svg.getAttribute('aria-labelledby').split(' ')
            .every(id => document.getElementById(id).textContent.length > 3))"""
    assert page.locator("figure svg").evaluate_all(described)
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(part => part.id)")
    assert len(ids) == len(set(ids))
    headed = """tables => tables.every(t => t.caption && t.querySelectorAll('thead th[scope=col]').length
        === t.rows[1].cells.length && [...t.tBodies[0].rows].every(r => r.cells[0].scope === 'row'))"""
    assert page.locator("table").evaluate_all(headed)
    assert set(page.locator(".scroll").evaluate_all("boxes => boxes.map(b => b.tabIndex)")) == {0}
    targets = page.locator("nav a").evaluate_all(
        "links => links.map(a => !!document.getElementById(a.hash.slice(1)))"
    )
    assert len(targets) > 8
    assert all(targets)


def test_a_partial_report_says_so_at_its_head(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "partial.html"
    path.write_text(render.html(report([results.partial()])), encoding="utf-8")
    page = browser.new_page(viewport={"width": PHONE, "height": 800})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(path.as_uri())
    box = page.locator(".warning").first.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 800
    page.close()
