"""The first hour of a new user: README and tutorial from a fresh clone and from a wheel, in an empty HOME.

Every command prints what its page shows. The times are in the summary of the run: how long the first server took to be
ready, the whole page, and its slowest other command.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sources import ROOT
from tests.test_release import script
from tests.tour import Tools, needs_clients, take_the_tour

PAGES = (ROOT / "README.md", ROOT / "docs" / "tutorial.md")
LEFT_OUT = (".git", ".venv", "__pycache__", "*.so", "build", "dist", "data")

pytestmark = [pytest.mark.slow, needs_clients]


def _a_clone(folder: Path) -> Tools:
    """Return the tools of a copy of this clone, which has no .venv: the first start of a server makes it."""
    clone = folder / "clone"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(*LEFT_OUT, "tests"))
    (clone / "tests").symlink_to(ROOT / "tests")
    return Tools.of_clone(clone)


def _a_wheel(folder: Path) -> Tools:
    """Return the tools of an environment with a wheel. Its other packages come from this one, without a network."""
    release = script("release")["Release"](folder, folder / "out", {})
    release.archive()
    wheel = release.files / release.pure_wheel()
    home = folder / "environment"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", wheel], check=True)
    (site,) = home.glob("lib/python3*/site-packages")
    lenders = [path for path in sys.path if path.endswith("site-packages")]
    (site / "borrowed.pth").write_text("\n".join(lenders))
    return Tools.of_command(str(home / "bin" / "logserver"))


@pytest.mark.parametrize("tools_of", [_a_clone, _a_wheel])
def test_every_command_of_the_first_hour(
    tools_of: Callable[[Path], Tools], tmp_path: Path, figures: Callable[[str], None]
) -> None:
    (tmp_path / "tools").mkdir()
    tools = tools_of(tmp_path / "tools")
    home = tmp_path / "home"
    home.mkdir()
    empty = {name: "" for name in os.environ if name.startswith("XDG_")}
    for page in PAGES:
        folder = tmp_path / page.stem
        folder.mkdir()
        times_s = take_the_tour(page, folder, tools, {**empty, "HOME": str(home)})
        (started, ready_s), *others = times_s.items()
        assert started.startswith("1: scripts/server")
        slowest, slowest_s = max(others, key=lambda each: each[1])
        figures(
            f"first hour{tools_of.__name__.replace('_', ' ')}, {page.name}: ready after {ready_s:.1f} s, "
            f"{len(times_s)} commands in {sum(times_s.values()):.1f} s; slowest after it {slowest_s:.1f} s ({slowest})"
        )
    made = {path.name for path in home.rglob("*")}
    assert [name for name in made if "logserver" in name or "duolog" in name] == []
