"""A headless Chromium for the tests that open a page, and checks that hold for every page.

It must not know any page.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = ("--no-sandbox", "--disable-dev-shm-usage")  # it runs as root, and in containers
PATIENCE_MS = 300_000  # a busy machine may be slow
LEAST_CONTRAST = 4.5  # of text, WCAG AA

# The contrast of each text with its background, as (text, ratio).
_CONTRASTS = """() => {
    const numbers = colour => colour.match(/[0-9.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b]
        .map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
    const ground = part => {
        for (let at = part; at; at = at.parentElement) {
            const colour = numbers(getComputedStyle(at).backgroundColor);
            if (colour.length === 3 || colour[3] === 1) return colour;
        }
        throw new Error('a page without a background');
    };
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = [];
    while (walk.nextNode()) {
        const part = walk.currentNode.parentElement, text = walk.currentNode.data.trim();
        if (!text || !part.checkVisibility()) continue;
        const [a, b] = [light(numbers(getComputedStyle(part).color)), light(ground(part))];
        found.push([text, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)]);
    }
    return found;
}"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield a running Chromium. Without one the tests are skipped with a reason, but fail in CI."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        reason = "needs a Chromium (Debian: apt-get install chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=path, args=OPTIONS, timeout=PATIENCE_MS
        )
        yield running
        running.close()


def check_width(page: Page, width: int) -> None:
    """Check that no content makes the page wider than its window."""
    inner, outer = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert inner <= outer == width


def check_contrast(page: Page) -> None:
    """Check that every text of the page contrasts with its background."""
    ratios = page.evaluate(_CONTRASTS)
    assert len(ratios) >= 3
    assert [(text, ratio) for text, ratio in ratios if ratio < LEAST_CONTRAST] == []


def check_structure(page: Page) -> None:
    """Check the page for readers that hear it: one main part, ordered headings, named parts, tables with headers."""
    assert page.locator("main").count() == page.locator("h1").count() == 1
    assert page.locator("html").get_attribute("lang") == "en"
    levels = page.locator("h1, h2, h3").evaluate_all("all => all.map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    headed = """tables => tables.every(table => {
        const heads = table.querySelectorAll(':scope > thead th[scope=col]').length;
        const rows = [...table.tBodies].flatMap(body => [...body.rows]).filter(row => row.cells.length > 1);
        return heads > 1 && rows.every(row => row.cells.length === heads && row.cells[0].scope === 'row');
    })"""
    assert page.locator("table").evaluate_all(headed)
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(part => part.id)")
    assert len(ids) == len(set(ids))
    named = "parts => parts.every(part => document.getElementById(part.getAttribute('aria-labelledby')))"
    assert page.locator("section").evaluate_all(named)
    inside = (
        "links => links.every(link => document.getElementById(link.getAttribute('href').slice(1)))"
    )
    assert page.locator("a[href^='#']").evaluate_all(inside)
