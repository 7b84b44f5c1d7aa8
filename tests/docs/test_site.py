"""The static site of the docs: zensical builds it without a warning, its pages are whole, and every link is good.

The builder is scripts/docs_site. The structure of each page is compared with that of another reader of Markdown, whose
rules are GitHub's. Nothing here needs a network.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

from tests.browser import PATIENCE_MS, chromium
from tests.sources import ROOT

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"
COUNTED = ("h1", "h2", "h3", "h4", "li", "ol", "pre", "table", "ul")
LOADED = {"img": "src", "link": "href", "script": "src", "source": "src", "iframe": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "out"
    command = [sys.executable, "-P", "scripts/docs_site", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class Html(HTMLParser):
    """What the tests need of a page: its links, its anchors, the files it loads, the elements of its text."""

    def __init__(self, text: str, *, everything: bool = False) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.loaded: list[str] = []
        self.elements: Counter[str] = Counter()
        self._counts = everything
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        values = {name: value or "" for name, value in attrs}
        self._counts = self._counts or tag == "article"
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADED and LOADED[tag] in values and values.get("rel") != "canonical":
            self.loaded.append(values[LOADED[tag]])
        if self._counts and tag in COUNTED:
            self.elements[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        """Note the end of the page's text."""
        if tag == "article":
            self._counts = False


def test_a_page_has_the_lists_and_tables_of_its_source(site: Path) -> None:
    pages = {
        page: site / page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md")
    }
    pages |= {
        ROOT / name: site / name.lower().replace(".md", ".html")
        for name in ("README.md", "CHANGELOG.md")
    }
    reader = MarkdownIt("commonmark").enable("table")
    differing = {}
    for page, built in pages.items():
        if page.name == "README.md" and page.parent != ROOT:
            built = built.with_name("index.html")
        wanted = Html(reader.render(page.read_text("utf-8")), everything=True).elements
        found = Html(built.read_text("utf-8")).elements
        if wanted != found:
            differing[page.relative_to(ROOT).as_posix()] = (wanted - found, found - wanted)
    assert differing == {}
    assert len(pages) > 40


def test_the_notebook_is_a_page_with_its_outputs(site: Path) -> None:
    notebook = json.loads((DOCS / "pipeline.ipynb").read_text("utf-8"))
    outputs = [out.get("data", {}) for cell in notebook["cells"] for out in cell.get("outputs", ())]
    page = Html((site / "notebook.html").read_text("utf-8"))
    pictures = [path for path in page.loaded if "notebook-" in path]
    assert len(pictures) == sum("image/png" in data for data in outputs) > 2
    assert page.elements["table"] == sum("text/html" in data for data in outputs) > 2
    assert "notebook.html" in Html((site / "pipeline.html").read_text("utf-8")).links


def test_links_lead_somewhere(site: Path) -> None:
    pages = {path.resolve(): Html(path.read_text("utf-8")) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link in (*page.links, *page.loaded):
            url = urlsplit(link)
            if url.scheme or url.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(url.fragment)
            known = pages[target].ids if target in pages else set()
            if not target.exists() or (anchor and anchor not in known):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []
    assert sum(len(page.links) for page in pages.values()) > 1_000


def test_it_loads_nothing_from_other_hosts(site: Path) -> None:
    loaded = [
        link for path in site.rglob("*.html") for link in Html(path.read_text("utf-8")).loaded
    ]
    assert [link for link in loaded if re.match(r"(?:\w+:)?//", link)] == []
    assert loaded != []


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """The site on a port of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


class Quiet(SimpleHTTPRequestHandler):
    """A file server without a log."""

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


def test_it_opens_in_a_browser(address: str) -> None:
    """The home leads to the tutorial; the search finds a page; no script fails; nothing else is requested."""
    requests: list[str] = []
    failures: list[str] = []
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE_MS)
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.goto(address)
        assert page.locator("article h1").inner_text().strip("¶\n ") == "Documentation"
        page.locator("article a", has_text="Tutorial").click()
        page.wait_for_url("**/tutorial.html")
        assert "kill -9" in page.locator("article").inner_text()
        page.set_viewport_size({"width": 360, "height": 800})
        width = page.evaluate("document.documentElement.scrollWidth")
        page.close()
    assert failures == []
    assert width <= 360
    assert [url for url in requests if not url.startswith((address, "data:", "blob:"))] == []
