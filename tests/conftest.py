"""Shared parts of all suites: the packages under test, the golden stores, the rules of the marks, and a check that no
module leaves files open.

The suites run on the uncompiled sources next to this folder; with TESTS_AGAINST=wheel they run on the installed,
compiled package. A mix of the two is refused, here and in child processes.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import uvloop

from tests import schedule

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("logserver", "storage", "api")
JAVA_TOOLS = ("java", "javac", "mvn")
SPARK_MODULES = ("numpy", "pyarrow", "pyspark")
OPEN_FILES = Path("/proc/self/fd")
SOAK_EXAMPLES = 20_000  # examples of a state machine
LEFT_OPEN = 4  # files that an event loop or a library opens once per process are no leak
LEFT_OPEN_BY_JAVA = 4  # more, in the module that starts Spark's Java: two pipes and four sockets, kept by the process
# Fewer collections than by default, which take a twentieth of a run.
COLLECTED_AFTER = (10_000, 20, 20)
MANY_CASES, SAMPLED = 4, 4  # of the sample: every fourth case of a test with four or more
FIGURE = "figure"  # a user property of a test, which processes of a parallel run also report
WANTED = {
    "java": "wanted java",
    "spark": "wanted spark",
}  # mark -> user property that records a skipped test
LONG_MARKS = ("slow", *WANTED)
LONG = re.compile(rf"\bmark\.({'|'.join(LONG_MARKS)})\b")

hypothesis.settings.register_profile("quick", deadline=None, print_blob=True, max_examples=40)
# Every run has the same examples, so a failure in CI also occurs here. The quick run and the soak search for new ones.
hypothesis.settings.register_profile(
    "all", deadline=None, print_blob=True, max_examples=40, derandomize=True, database=None
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options: `--all-suites` and `--only` of `scripts/test --all`, `--soak` and `--figures` of `scripts/soak`."""
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
        help="of random cases and of turns: 8 hex digits, by default the first of the commit, 0 without git",
    )
    parser.addoption(
        "--sample",
        action="store_true",
        help="a share of a test with many cases, as the commit says",
    )
    parser.addoption("--figures", type=Path, metavar="FILE", help="write the figures there too")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the code under test before anything is imported."""
    share = config.getoption("--soak")
    examples = max(1, round(SOAK_EXAMPLES * (share or 0)))
    hypothesis.settings.register_profile(
        "soak", deadline=None, print_blob=True, max_examples=examples
    )
    profile = "all" if config.getoption("--all-suites") else "quick"
    hypothesis.settings.load_profile(profile if share is None else "soak")
    for name in [name for name in os.environ if name.startswith("LOGSERVER_")]:
        del os.environ[name]
    # Tests run the scripts of the clone: no build may take time from tests that measure it.
    os.environ["LOGSERVER_BACKGROUND_BUILD"] = "0"
    gc.set_threshold(*COLLECTED_AFTER)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts background commands with SIGINT ignored, and every child process would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get("TESTS_AGAINST") == "wheel":
        _require_wheel()
    else:
        _require_sources()


def _seed_of_commit() -> int:
    """Return the first 8 hex digits of the commit, so that each commit is tested with other cases; 0 without git."""
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
        raise pytest.UsageError(f"compiled modules next to the sources: remove {' '.join(stale)}")
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
    """Report the packages under test, and the seed that reproduces the random cases."""
    return [
        f"packages: {_package_folder('storage').parent}",
        f"seed: {config.getoption('--seed'):08x}",
    ]


class ModuleOnSpark(pytest.Module):
    """A test module that is skipped, with a message, if it imports Spark or Arrow and they are not installed.

    In CI it fails instead if the run includes the long tests.
    """

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Return the module's tests."""
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


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out modules without a mark of the long tests when only those run: collecting takes half a minute."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    if config.getoption("--only") == "long" and is_test:
        return LONG.search(collection_path.read_text()) is None or None
    return None


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    """Collect modules with or without Spark."""
    return ModuleOnSpark.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect slow, java and spark tests in the quick run, and in CI the cases of `one_in` that are not this commit's
    turn, with `--sample` also of other tests with many cases; pytest reports them as deselected.

    Long modules go first (tests/schedule.py): short modules fill the gaps at the end of a parallel run.
    """
    sample = config.getoption("--sample")
    if sample or (config.getoption("--all-suites") and config.getoption("--soak") is None):
        _take_turns(config, items, MANY_CASES if sample else None)
    only = config.getoption("--only")
    if config.getoption("--all-suites") and only is None:
        long_modules = {item.path for item in items if _is_long(item)}
        items.sort(key=lambda item: (item.path not in long_modules, schedule.rank(item.nodeid)))
        return
    left_out = [item for item in items if _is_long(item) == (only != "long")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_long(item) == (only == "long")]
    if only == "long":
        items.sort(key=lambda item: schedule.rank(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out modules as tests/schedule.py says, unless another distribution is asked for."""
    return schedule.scheduler(config, log) if config.getoption("dist") == "loadfile" else None


def _take_turns(config: pytest.Config, items: list[pytest.Item], many: int | None) -> None:
    """Deselect cases of tests marked `one_in(n)`: the seed chooses every n-th case of a test.

    `many`: of other tests with so many cases also take every SAMPLED-th; each test begins at a case of its own.
    """
    tests = [item.nodeid.partition("[")[0] for item in items]
    cases, turns, left_out = Counter(tests), Counter[str](), []
    for test, item in zip(tests, items, strict=True):
        mark, first = item.get_closest_marker("one_in"), config.getoption("--seed")
        if mark is not None:
            every = mark.args[0]
        elif many is not None and cases[test] >= many:
            every, first = SAMPLED, first + zlib.crc32(test.encode())
        else:
            continue
        if (turns[test] + first) % every:
            left_out.append(item)
        turns[test] += 1
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        unwanted = set(left_out)
        items[:] = [item for item in items if item not in unwanted]


def pytest_collection_finish() -> None:
    """Exempt objects created by collection from garbage collection: 569,000 objects, else walked after each module."""
    gc.collect()
    gc.freeze()


def _is_long(item: pytest.Item) -> bool:
    return any(map(item.get_closest_marker, LONG_MARKS))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a marked test, with a message, if a tool of its mark is missing; fail it in CI."""
    for mark, wanted in WANTED.items():
        reason = _missing(mark) if item.get_closest_marker(mark) else None
        if reason is None:
            continue
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        item.user_properties.append((wanted, item.nodeid))
        pytest.skip(reason)


def _missing(mark: str) -> str | None:
    """Return a text that names the tools of a mark missing on this machine, or None."""
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
    """Print the figures that tests recorded, and a warning section if tests against Kafka or Spark were skipped."""
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
    """Return the values that tests recorded under a property name, sorted. Each of a test's reports repeats them."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    noted = {
        (report.nodeid, value)
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == what
    }
    return sorted(value for _, value in noted)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], object]]:
    """Run asynchronous tests on the event loop of the server."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="module", autouse=True)
def nothing_left_open() -> Iterator[None]:
    """A check that fails a module which leaves files open: a common limit is 1,024 open files for a user.

    Garbage is always collected here. An object that complains when it is collected, such as a socket left open, then
    fails this module, not a later test of another module. The remaining objects stay for the whole run and are exempt
    from later collections: without that the last modules took 2 s each, and a run took minutes. The price: an object
    that becomes garbage in a later module complains no more.
    """
    before, had_java = _open_files(), _has_java()
    yield
    gc.collect()
    gc.freeze()
    limit = LEFT_OPEN if had_java or not _has_java() else LEFT_OPEN + LEFT_OPEN_BY_JAVA
    if len(_open_files()) - len(before) > limit:
        left = [path for number, path in _open_files().items() if before.get(number) != path]
        if len(left) > limit:
            shown = "\n".join(left[:20])
            pytest.fail(f"the module leaves {len(left)} files open:\n{shown}", pytrace=False)


def _has_java() -> bool:
    """Return whether Spark's Java was started in this process."""
    module = sys.modules.get("pyspark.core.context")
    return module is not None and module.SparkContext._gateway is not None


def _open_files() -> dict[str, str]:
    """Return the open files of this process, by descriptor number."""
    found = {}
    for number in OPEN_FILES.iterdir():
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            found[number.name] = str(number.readlink())
    return found


@pytest.fixture
def quick_turns() -> Iterator[None]:
    """Threads take turns after 0.5 ms, not 5: more often in the middle of a work.

    A thread that returns from the disk waits for the turns of all others: with three busy readers a sync takes 15 ms.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """A function that records a line of the fault matrix, its subject first, for the summary of the run."""
    return lambda line: request.node.user_properties.append((FIGURE, line))


@pytest.fixture
def amount(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """The amount of work of a test: `amount(in_ci, in_soak)`."""
    share = request.config.getoption("--soak")
    return lambda in_ci, in_soak: in_ci if share is None else max(1, round(in_soak * share))


@pytest.fixture(scope="session")
def turn(request: pytest.FixtureRequest, seed: int) -> Callable[[int], slice]:
    """The share of a list of cases that is this commit's turn: `cases[turn(n)]` is every n-th case, all in the soak."""
    in_ci = request.config.getoption("--soak") is None
    return lambda n: slice(seed % n, None, n) if in_ci else slice(None)


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """The number that random cases are generated from; the header of the run shows it."""
    number: int = request.config.getoption("--seed")
    return number


@pytest.fixture(scope="session")
def disk_folder() -> Iterator[Path]:
    """The folder of all `on_disk`, removed at the end of the run."""
    where = os.environ.get("TESTS_ON_DISK")
    with tempfile.TemporaryDirectory(
        prefix="tests-", dir=where, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder).resolve()


@pytest.fixture
def on_disk(disk_folder: Path) -> Path:
    """A folder on the disk. `scripts/test` has the temporary files of the short tests in memory."""
    return Path(tempfile.mkdtemp(dir=disk_folder))


@pytest.fixture(scope="session")
def golden_dir() -> Path:
    """The stores made by the real Kafka, read-only by agreement: `golden_dir / "codecs" / "data"`."""
    return ROOT / "tests" / "golden" / "kafka"


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The folder that holds the packages' sources, the docs and the scripts."""
    return ROOT
