"""Checks that a wheel has exactly the expected files, and that the installed package runs compiled.

    check_wheel.py WHEEL    run by the Python that the wheel is installed in, from anywhere

A wheel for every platform (`…-py3-none-any.whl`) has no compiled modules, and must run without.

Exit status 1 with a line for each fault. The expected files are the sources next to this script.
"""

from __future__ import annotations

import ast
import importlib
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import entry_points, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTION = "duolog"
PACKAGES = ("logserver", "storage", "api")
LIBRARY = "logserver__mypyc"


def compiled_modules() -> list[str]:
    """Return COMPILED of setup.py as a list of paths."""
    for node in ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILED":
            listed: list[str] = ast.literal_eval(node.value)
            return listed
    return []


def expected_files() -> set[str]:
    """Return all source files of the packages, and the pages of docs/ in one of them. The source of a compiled module
    is in the wheel as well as its library.
    """
    pages = {
        f"logserver/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "docs").rglob("*.md")
    }
    return pages | {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in (".so", ".pyc")
    }


def contents_faults(wheel: Path) -> Iterator[str]:
    """Yield the files that are missing in the wheel, and the files that must not be in it."""
    # auditwheel adds entries for folders.
    names = {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")}
    info = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    native = {name for name in names if name.endswith((".so", ".pyd"))}
    sources = names - info - native
    yield from (f"missing in the wheel: {name}" for name in sorted(expected_files() - sources))
    yield from (
        f"should not be in the wheel: {name}" for name in sorted(sources - expected_files())
    )
    stems = {name.partition(".")[0] for name in native}
    wanted = set()
    if not is_pure(wheel):
        wanted = {path.removesuffix(".py") for path in compiled_modules()} | {LIBRARY}
    yield from (f"not compiled in the wheel: {stem}" for stem in sorted(wanted - stems))
    yield from (f"compiled, but not listed in setup.py: {stem}" for stem in sorted(stems - wanted))
    if not wheel.name.startswith(f"{DISTRIBUTION}-"):
        yield f"{wheel.name} is not named {DISTRIBUTION}"
    if not any(name.endswith("/LICENSE") for name in info):
        yield "the licence is missing in the wheel"


def is_pure(wheel: Path) -> bool:
    """Return whether the wheel is for every platform, not compiled."""
    return wheel.name.endswith("-none-any.whl")


def installed_faults(*, compiled: bool) -> Iterator[str]:
    """Yield the faults of the installed package: origin, compiled modules, version, entry points."""
    for package in PACKAGES:
        found = Path(str(importlib.import_module(package).__file__)).resolve()
        if ROOT / package in found.parents:
            yield f"{package} comes from the sources, not from the wheel"
    for path in compiled_modules():
        name = path.removesuffix(".py").replace("/", ".")
        origin = str(importlib.import_module(name).__file__)
        if origin.endswith((".so", ".pyd")) != compiled:
            yield f"{name} runs from {origin}, {'not ' if compiled else ''}compiled"
    if version(DISTRIBUTION) != importlib.import_module("logserver").__version__:
        yield f"the version of the installed package is {version(DISTRIBUTION)}"
    if not [entry for entry in entry_points(group="console_scripts") if entry.name == "logserver"]:
        yield "the console script logserver is missing"
    if not [entry for entry in entry_points(group="pytest11") if entry.name == "logserver"]:
        yield "the entry point of the pytest plugin is missing"


def main() -> int:
    """Print every fault; return 0 if there is none, 1 for faults, 2 for wrong usage."""
    if len(sys.argv) != 2:
        print("usage: check_wheel.py WHEEL", file=sys.stderr)
        return 2
    wheel = Path(sys.argv[1])
    pure = is_pure(wheel)
    faults = [*contents_faults(wheel), *installed_faults(compiled=not pure)]
    for fault in faults:
        print(fault, file=sys.stderr)
    if any("not compiled" in fault for fault in faults):
        print("compiling needs: apt-get install gcc libc6-dev python3-dev", file=sys.stderr)
    if faults:
        return 1
    compiled = 0 if pure else len(compiled_modules())
    print(f"{wheel.name}: {len(expected_files())} files, {compiled} modules compiled")
    return 0


if __name__ == "__main__":
    sys.exit(main())
