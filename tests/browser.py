"""A headless Chromium for the tests that open a page. It must not know any page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = ("--no-sandbox", "--disable-dev-shm-usage")  # it runs as root, and in containers
PATIENCE_MS = 300_000  # a busy machine may be slow


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
