"""What every suite shares: the packages under test, the golden stores, the rules of the marks, and that
no module leaves files open.

The suites run on the sources beside this folder, uncompiled; with TESTS_AGAINST=wheel on the installed, compiled
package. Either way a mix of the two is refused, here and in child processes.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import hypothesis
import pytest
import uvloop

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("logserver", "storage", "api")
JAVA_TOOLS = ("java", "javac", "mvn")
SPARK_MODULES = ("numpy", "pyarrow", "pyspark")
OPEN_FILES = Path("/proc/self/fd")
SOAK_EXAMPLES = 20_000  # of a state machine
LEFT_OPEN = 4  # what an event loop or a library keeps once for the process is no leak
FIGURE = (
    "figure"  # user properties of a test: they also come from the other processes of a parallel run
)
WANTED = {
    "java": "wanted java",
    "spark": "wanted spark",
}  # marks, and how a test says it was skipped

hypothesis.settings.register_profile("quick", deadline=None, print_blob=True, max_examples=40)
# The same examples in every run: what fails in CI fails here. New ones are looked for by the quick run and the soak.
hypothesis.settings.register_profile(
    "all", deadline=None, print_blob=True, max_examples=40, derandomize=True, database=None
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--all-suites` and `--only` are what `scripts/test --all` runs with, `--soak` and `--figures` what `scripts/soak`
    adds.
    """
    parser.addoption(
        "--all-suites", action="store_true", help="also run the tests marked slow, java or spark"
    )
    parser.addoption(
        "--only", choices=("short", "long"), help="of all suites these: long are the marked ones"
    )
    parser.addoption(
        "--soak", type=float, metavar="SHARE", help="do this share of a soak where a test has one"
    )
    parser.addoption(
        "--seed",
        type=lambda text: int(text, 16),
        default=_seed_of_commit(),
        metavar="HEX",
        help="of crash states and random damage: 8 hex digits, by default the first of the commit, 0 without git",
    )
    parser.addoption("--figures", type=Path, metavar="FILE", help="write the figures there too")


def pytest_configure(config: pytest.Config) -> None:
    """Settle what is tested before anything is imported."""
    share = config.getoption("--soak")
    examples = max(1, round(SOAK_EXAMPLES * (share or 0)))
    hypothesis.settings.register_profile(
        "soak", deadline=None, print_blob=True, max_examples=examples
    )
    profile = "all" if config.getoption("--all-suites") else "quick"
    hypothesis.settings.load_profile(profile if share is None else "soak")
    for name in [name for name in os.environ if name.startswith("LOGSERVER_")]:
        del os.environ[name]
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # What a shell starts in the background ignores it, and so would every child process.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get("TESTS_AGAINST") == "wheel":
        _require_wheel()
    else:
        _require_sources()


def _seed_of_commit() -> int:
    """Return the first 8 hex digits of the commit, so that each commit is tried with other cases; 0 without git."""
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    with suppress(OSError, ValueError):
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return int(ended.stdout.strip()[:8], 16)
    return 0


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


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is tested, and by what seed the same cases are had again."""
    return [
        f"packages: {_package_folder('storage').parent}",
        f"seed: {config.getoption('--seed'):08x}",
    ]


class ModuleOnSpark(pytest.Module):
    """A module of tests; one that imports Spark or Arrow is skipped aloud where they are missing, but not in CI where
    it is wanted.
    """

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """The module's tests."""
        try:
            return super().collect()
        except self.CollectError as error:
            missing = error.__cause__
            wanted = os.environ.get("CI") == "true" and self.config.getoption("--only") != "short"
            if wanted or not isinstance(missing, ModuleNotFoundError):
                raise
            if missing.name not in SPARK_MODULES:
                raise
            pytest.skip(str(_missing("spark")), allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    """Modules are collected with or without Spark."""
    return ModuleOnSpark.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave slow, java and spark tests out of the quick run, visibly (pytest counts them as deselected). In the long
    one the modules that have such tests go first: the short ones fill the gaps at the end of a parallel run.
    """
    only = config.getoption("--only")
    if config.getoption("--all-suites") and only is None:
        long_modules = {item.path for item in items if _is_long(item)}
        items.sort(key=lambda item: item.path not in long_modules)
        return
    left_out = [item for item in items if _is_long(item) == (only != "long")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_long(item) == (only == "long")]


def pytest_collection_finish() -> None:
    """Exempt what collection made from garbage collection: 569,000 objects, walked again after each module."""
    gc.collect()
    gc.freeze()


def _is_long(item: pytest.Item) -> bool:
    return any(map(item.get_closest_marker, ("slow", *WANTED)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where what a mark stands for is missing, its tests are skipped aloud, but fail in CI."""
    for mark, wanted in WANTED.items():
        reason = _missing(mark) if item.get_closest_marker(mark) else None
        if reason is None:
            continue
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        item.user_properties.append((wanted, item.nodeid))
        pytest.skip(reason)


def _missing(mark: str) -> str | None:
    """What the tests of a mark need and this machine does not have."""
    if mark == "spark":
        absent = [name for name in SPARK_MODULES if importlib.util.find_spec(name) is None]
        absent += [] if shutil.which("java") else ["java"]
        return (
            f"needs {', '.join(absent)} (requirements-spark.lock, and Java 17)" if absent else None
        )
    absent = [tool for tool in JAVA_TOOLS if shutil.which(tool) is None]
    if not absent:
        return None
    return f"needs {', '.join(absent)} (Debian: apt-get install default-jdk-headless maven)"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests counted; and skipping the other side's judgement is worth more than an `s` in a row of dots."""
    figures = _told(terminalreporter, FIGURE)
    if figures:
        terminalreporter.section("figures")
        for line in figures:
            terminalreporter.line(line)
    path = terminalreporter.config.getoption("--figures")
    if path is not None:
        path.write_text("".join(f"{line}\n" for line in figures))
    for mark, wanted in WANTED.items():
        skipped = _told(terminalreporter, wanted)
        if skipped:
            absent = "Spark" if mark == "spark" else "the real Kafka"
            terminalreporter.section(f"{absent} took NO part", sep="!", yellow=True)
            terminalreporter.line(f"{len(skipped)} {mark} tests were skipped: {_missing(mark)}")


def _told(terminalreporter: pytest.TerminalReporter, what: str) -> list[str]:
    """What tests noted under a name, in order; each test's reports repeat it."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    noted = {
        (report.nodeid, value)
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == what
    }
    return sorted(value for _, value in noted)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], object]]:
    """Asynchronous tests run on the loop that the server runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="module", autouse=True)
def nothing_left_open() -> Iterator[None]:
    """Fail the module that leaves files open behind it: many a user may open no more than 1,024 at a time.

    Garbage is collected here, always: what complains at its end (a socket that nobody closed) fails this module, and
    not a test of another one that runs when the collector happens to. What is left then stays for the run, and is
    exempt from later collections: without that the last modules took 2 s each, and a run minutes.
    """
    before = _open_files()
    yield
    gc.collect()
    gc.freeze()
    if len(_open_files()) - len(before) > LEFT_OPEN:
        left = [path for number, path in _open_files().items() if before.get(number) != path]
        if len(left) > LEFT_OPEN:
            shown = "\n".join(left[:20])
            pytest.fail(f"the module leaves {len(left)} files open:\n{shown}", pytrace=False)


def _open_files() -> dict[str, str]:
    """What this process has open, by the number of its descriptor."""
    found = {}
    for number in OPEN_FILES.iterdir():
        with suppress(FileNotFoundError):  # the listing's own
            found[number.name] = str(number.readlink())
    return found


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Tells a figure of the fault matrix, to be printed at the end of the run: a line, what it is about first."""
    return lambda line: request.node.user_properties.append((FIGURE, line))


@pytest.fixture
def amount(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """How much a test does: `amount(in_ci, in_soak)`."""
    share = request.config.getoption("--soak")
    return lambda in_ci, in_soak: in_ci if share is None else max(1, round(in_soak * share))


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """The number that random cases are made from; the run's header has it."""
    number: int = request.config.getoption("--seed")
    return number


@pytest.fixture(scope="session")
def golden_dir() -> Path:
    """The stores made by the real Kafka, read-only by agreement: `golden_dir / "codecs" / "data"`."""
    return ROOT / "tests" / "golden" / "kafka"


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The folder that holds the packages' sources, the docs and the scripts."""
    return ROOT
