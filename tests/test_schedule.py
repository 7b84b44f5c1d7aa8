"""The order of a long run names modules that exist, and one process runs all modules that use Spark's session."""

from __future__ import annotations

from inspect import signature

from xdist.scheduler import LoadFileScheduling

from tests.conftest import LONG
from tests.schedule import LONGEST, ON_SPARK, ROOT, rank, unit

SESSION = "def spark()"


def test_the_longest_modules_have_long_tests() -> None:
    modules = [ROOT / name for name in LONGEST if name != ON_SPARK]
    assert len(modules) == len(LONGEST) - 1 == len({*modules})
    assert [path for path in modules if LONG.search(path.read_text()) is None] == []


def test_modules_with_the_session_are_one_unit() -> None:
    """These are all modules of the folder whose tests take the fixture `spark`."""
    folder = ROOT / "tests" / "pipeline"
    assert SESSION in (folder / "conftest.py").read_text()
    taking = {path for path in folder.rglob("test_*.py") if "spark: Spark" in path.read_text()}
    units = {path: unit(f"{path.relative_to(ROOT)}::test_one[a::b]") for path in taking}
    assert len(units) > 10
    assert set(units.values()) == {ON_SPARK}
    assert rank("tests/pipeline/test_golden.py::test_kafka[codecs]") == 0


def test_another_module_is_a_unit_of_its_own() -> None:
    assert unit("tests/test_tidy.py::test_one") == "tests/test_tidy.py"
    assert unit("tests/missing.py::TestIt::test_one") == "tests/missing.py"
    assert rank("tests/test_release.py::test_one") == LONGEST.index("tests/test_release.py")
    assert rank("tests/test_tidy.py::test_modules_are_short") == len(LONGEST)


def test_the_scheduler_asks_for_units() -> None:
    """Its method is private: a new version of pytest-xdist may have another."""
    assert list(signature(LoadFileScheduling._split_scope).parameters) == ["self", "nodeid"]
