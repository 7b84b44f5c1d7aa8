"""What every suite shares: the packages under test, the golden stores, the rules of the `java` and `slow` marks.

The suites run on the sources beside this folder, uncompiled; with TESTS_AGAINST=wheel on the installed, compiled
package. Either way a mix of the two is refused, here and in child processes.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
import uvloop

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("logserver", "storage", "api")
JAVA_TOOLS = ("java", "javac", "mvn")
_SKIPPED_FOR_JAVA = pytest.StashKey[list[str]]()

hypothesis.settings.register_profile("quick", deadline=None, print_blob=True)
hypothesis.settings.register_profile("all", deadline=None, print_blob=True, max_examples=200)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--all-suites` is what `scripts/test --all` runs."""
    parser.addoption(
        "--all-suites", action="store_true", help="also run the tests marked slow or java"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Settle what is tested before anything is imported."""
    config.stash[_SKIPPED_FOR_JAVA] = []
    hypothesis.settings.load_profile("all" if config.getoption("--all-suites") else "quick")
    for name in [name for name in os.environ if name.startswith("LOGSERVER_")]:
        del os.environ[name]
    if os.environ.get("TESTS_AGAINST") == "wheel":
        _require_wheel()
    else:
        _require_sources()


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise pytest.UsageError(f"the package {name} is not to be found")
    return Path(spec.origin).resolve().parent


def _require_sources() -> None:
    stale = [str(path) for name in PACKAGES for path in (ROOT / name).rglob("*.so")]
    stale += [str(path) for path in ROOT.glob("logserver__mypyc*.so")]
    if stale:
        raise pytest.UsageError(f"compiled modules beside the sources: remove {' '.join(stale)}")
    for name in PACKAGES:
        if _package_folder(name) != ROOT / name:
            raise pytest.UsageError(f"{name} would come from {_package_folder(name)}, not {ROOT}")
    os.environ["PYTHONPATH"] = str(ROOT)  # for child processes


def _require_wheel() -> None:
    for name in PACKAGES:
        if ROOT / ".venv-wheel" not in _package_folder(name).parents:
            raise pytest.UsageError(f"{name} would come from {_package_folder(name)}, not a wheel")
    spec = importlib.util.find_spec("storage.coding.varint")
    if spec is None or not str(spec.origin).endswith(".so"):
        raise pytest.UsageError("the installed storage.coding.varint is not compiled")


def pytest_report_header(config: pytest.Config) -> str:
    """Say what is tested."""
    return f"packages: {_package_folder('storage').parent}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave slow and java tests out of the quick run, visibly (pytest counts them as deselected)."""
    if config.getoption("--all-suites"):
        return
    long = [item for item in items if item.get_closest_marker("slow") or _wants_java(item)]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in set(long)]


def _wants_java(item: pytest.Item) -> bool:
    return item.get_closest_marker("java") is not None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where Java or Maven is missing, `java` tests are skipped aloud, but fail in CI."""
    if not _wants_java(item):
        return
    missing = [tool for tool in JAVA_TOOLS if shutil.which(tool) is None]
    if not missing:
        return
    reason = f"needs {', '.join(missing)} (Debian: apt-get install default-jdk-headless maven)"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    item.config.stash[_SKIPPED_FOR_JAVA].append(item.nodeid)
    pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Skipping the other side's judgement is worth more than an `s` in a row of dots."""
    skipped = terminalreporter.config.stash[_SKIPPED_FOR_JAVA]
    if skipped:
        terminalreporter.section("the real Kafka took NO part", sep="!", yellow=True)
        terminalreporter.line(f"{len(skipped)} java tests were skipped: Java or Maven is missing")


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], object]]:
    """Asynchronous tests run on the loop that the server runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def golden_dir() -> Path:
    """The stores made by the real Kafka, read-only by agreement: `golden_dir / "codecs" / "data"`."""
    return ROOT / "tests" / "golden" / "kafka"


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The folder that holds the packages' sources, the docs and the scripts."""
    return ROOT
