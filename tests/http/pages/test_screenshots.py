"""The screenshots of the documentation show the overview as it is. Owns the comparison; scripts/screenshots draws."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageStat

from tests.browser import chromium

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
SMALL = (50, 39)
LIMIT = 6.0  # of 255, mean difference of the small pictures: other times and fonts are below it


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of new screenshots."""
    with chromium():  # skip without a browser
        pass
    folder = tmp_path_factory.mktemp("drawn")
    subprocess.run([sys.executable, "-P", "scripts/screenshots", folder], cwd=ROOT, check=True)
    return folder


def difference(one: Path, other: Path) -> float:
    small = [Image.open(path).convert("L").resize(SMALL) for path in (one, other)]
    return ImageStat.Stat(ImageChops.difference(*small)).mean[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_screenshot_shows_the_page_as_it_is(drawn: Path, scheme: str) -> None:
    name = f"overview-{scheme}.png"
    shown = difference(drawn / name, ROOT / "docs" / "images" / name)
    assert shown < LIMIT, "the page has changed: run scripts/screenshots"


def test_the_two_schemes_differ_more_than_that(drawn: Path) -> None:
    assert difference(drawn / "overview-light.png", drawn / "overview-dark.png") > 10 * LIMIT
