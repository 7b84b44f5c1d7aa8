"""scripts/server in a clone: plain Python at once, a compiled build for the next start, and never a stale one.

The clone's environment borrows the packages of the environment that runs the tests: nothing is downloaded.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.request import urlopen

import pytest

from scripts import compiled_wheel

ROOT = Path(__file__).parent.parent.parent
SCRIPTS = ("server", "common.sh", "compiled_wheel.py")
LOCK = "requirements.lock"
FAILS_S = 120  # at the lowest priority, on cores that other tests use
COMPILED_MODULE = "storage/coding/varint.py"
T = TypeVar("T")
PLAIN, COMPILED = False, True

pytestmark = pytest.mark.slow


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """A clone with an environment in which the lock file is installed already. One module is compiled: all of them take
    minutes.
    """
    clone = tmp_path.resolve() / "clone"
    for path in compiled_wheel.sources(ROOT):
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, clone / path)
    setup = (clone / "setup.py").read_text()
    few = re.sub(
        r"^COMPILED = \[.*?^\]", f'COMPILED = ["{COMPILED_MODULE}"]', setup, flags=re.M | re.S
    )
    (clone / "setup.py").write_text(few)
    (clone / "scripts").mkdir()
    for name in SCRIPTS:
        shutil.copy(ROOT / "scripts" / name, clone / "scripts")
    shutil.copy(ROOT / LOCK, clone)
    venv = clone / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text("\n".join(site.getsitepackages()))
    (venv / ".stamp-home").write_text(f"{clone}\n")
    digest = hashlib.sha256((clone / LOCK).read_bytes()).hexdigest()
    (venv / f".stamp-{LOCK}").write_text(f"{digest}\n")
    yield clone
    for lock in (tmp_path / "cache").glob(f"logserver/*/{compiled_wheel.LOCK}"):
        with lock.open("a") as held, suppress(ProcessLookupError):
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # the build goes on
                os.killpg(int(lock.read_text()), signal.SIGKILL)


class Start:
    """One run of scripts/server: whether it ran compiled, and its lines of progress."""

    def __init__(self, *, compiled: bool, lines: str) -> None:
        self.compiled = compiled
        self.lines = lines


@contextmanager
def running(clone: Path, **environment: str) -> Iterator[Start]:
    """Run scripts/server until the end of the block; `lines` are what it had written when it served."""
    errors = clone.parent / "errors"
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            ["scripts/server", "--ephemeral", "--listen", "127.0.0.1:0"],
            cwd=clone,
            env=environment_of(clone, **environment),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        lines = errors.read_text()
        assert line, lines
        with urlopen(f"{json.loads(line)['url']}/readyz") as answer:
            assert answer.status == 200
        yield Start(compiled=is_compiled(clone), lines=lines)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0


def environment_of(clone: Path, **environment: str) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("LOGSERVER_")}
    own = {"HOME": str(clone.parent), "XDG_CACHE_HOME": str(clone.parent / "cache")}
    return {**inherited, **own, **environment}


def start(clone: Path, **environment: str) -> Start:
    with running(clone, **environment) as started:
        return started


def is_compiled(clone: Path) -> bool:
    ask = "import storage.coding.varint as module; print(module.__file__)"
    ended = subprocess.run(
        [clone / ".venv/bin/python", "-I", "-c", ask],  # not the sources, which PYTHONPATH may name
        cwd=clone.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return not ended.stdout.strip().endswith(".py")


def built_wheel(clone: Path) -> Path:
    """Return the wheel. If the build in the background is not done, which other tests may delay, do its work here."""
    folder = end_build(clone)
    for wheel in folder.glob("*.whl"):
        return wheel
    make = (
        "import compiled_wheel, pathlib, sys; compiled_wheel.make(*map(pathlib.Path, sys.argv[1:]))"
    )
    command: list[str | Path] = [clone / ".venv/bin/python", "-c", make, clone, folder]
    environment = {**environment_of(clone), "PYTHONPATH": str(clone / "scripts")}
    subprocess.run(command, env=environment, check=True)
    assert not (folder / compiled_wheel.FAILED).exists(), (
        folder / compiled_wheel.FAILED
    ).read_text()
    (wheel,) = folder.glob("*.whl")
    return wheel


def within(seconds: float, ask: Callable[[], T]) -> T:
    """Return the first answer that is not empty."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return answer


def end_build(clone: Path) -> Path:
    """End the build in the background if it goes on; return its folder."""
    (lock,) = (clone.parent / "cache" / "logserver").glob(f"*/{compiled_wheel.LOCK}")
    builder = int(within(FAILS_S, lock.read_text))
    with suppress(ProcessLookupError):
        assert os.getpriority(os.PRIO_PGRP, builder) == 19
        os.killpg(builder, signal.SIGKILL)
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # until all its processes have ended
    return lock.parent


needs_compiler = pytest.mark.skipif(
    compiled_wheel.no_compiler() is not None, reason="there is no C compiler"
)


@needs_compiler
def test_the_first_start_is_plain_and_the_next_one_compiled(clone: Path) -> None:
    with running(clone) as first:
        assert first.compiled is PLAIN
        assert re.search(r"^\[ *\d+ s\] installing logserver as plain Python$", first.lines, re.M)
        assert "a compiled build for the next start is being made in the background" in first.lines
        assert re.search(r"^\[ *\d+ s\] starting$", first.lines, re.M)
        wheel = built_wheel(clone)
        assert is_compiled(clone) is PLAIN, "a running server keeps its files"
        another = start(clone)
        assert another.compiled is PLAIN
        assert "another command runs from .venv" in another.lines
    second = start(clone)
    assert second.compiled is COMPILED
    assert f"installing {wheel.name}" in second.lines
    third = start(clone)
    assert third.compiled is COMPILED
    assert re.fullmatch(r"\[ *\d+ s\] starting\n.*", third.lines, re.DOTALL)

    module = clone / COMPILED_MODULE
    module.write_text(module.read_text() + "# edited\n")
    edited = start(clone, LOGSERVER_BACKGROUND_BUILD="0")
    assert edited.compiled is PLAIN, "the wheel of the sources before is stale"
    assert "LOGSERVER_BACKGROUND_BUILD=0" in edited.lines


def test_without_a_compiler_it_serves_plain_python(clone: Path) -> None:
    started = start(clone, CC="no-such-compiler")
    assert started.compiled is PLAIN
    assert started.lines.count("no C compiler was found") == 1
    again = start(clone, CC="no-such-compiler")
    assert "installing" not in again.lines.replace("apt-get install", "")
    assert not (clone.parent / "cache").exists()


def test_pure_is_plain_and_builds_nothing(clone: Path) -> None:
    started = start(clone, LOGSERVER_PURE="1")
    assert started.compiled is PLAIN
    assert "build" not in started.lines
    assert not (clone.parent / "cache").exists()


def test_without_a_directory_the_settings_name_it(clone: Path) -> None:
    """The script does not put its default before LOGSERVER_DATA or a file of settings."""
    ended = subprocess.run(
        ["scripts/server", "--read-only"],
        cwd=clone,
        env=environment_of(clone, LOGSERVER_PURE="1", LOGSERVER_DATA="elsewhere"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert "and elsewhere holds none" in ended.stderr.splitlines()[-1]


def test_an_interrupted_installation_is_neither_used_nor_continued(clone: Path) -> None:
    """Ctrl-C while pip replaces the package. pip ends by itself, so bash has to be asked to end."""
    start(clone, LOGSERVER_PURE="1")
    module = clone / COMPILED_MODULE
    before = module.read_text()
    module.write_text(f"{before}# edited\n")
    interrupted = interrupt_pip(clone)
    assert interrupted.returncode == 128 + signal.SIGINT, interrupted.stderr
    assert interrupted.stderr.splitlines()[-1].endswith("installing logserver as plain Python")

    module.write_text(before)
    again = start(clone, LOGSERVER_PURE="1")
    assert "installing logserver as plain Python" in again.lines
    assert again.compiled is PLAIN, "what the interrupted installation left is gone"


def interrupt_pip(clone: Path) -> subprocess.CompletedProcess[str]:
    """Run scripts/server with a pip that does half of its work and is interrupted, as is the whole process group."""
    (packages,) = clone.glob(".venv/lib/python*/site-packages")
    left = Path(COMPILED_MODULE).with_suffix(f".{sysconfig.get_config_var('SOABI')}.so")
    hook = f"""
import os, pathlib, signal, sys
if "install" in sys.orig_argv:
    pathlib.Path({str(packages)!r}, {str(left)!r}).write_bytes(b"a compiled module of older sources")
    pathlib.Path({str(clone)!r}, ".venv/bin/logserver").unlink()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.killpg(0, signal.SIGINT)
    os._exit(1)
"""
    (packages / "halves.py").write_text(hook)
    (packages / "halves.pth").write_text("import halves\n")
    # A program that runs in the background has this signal off, and bash keeps that.
    group = (
        "import os, signal; signal.signal(signal.SIGINT, signal.SIG_DFL);"
        "os.execv('scripts/server', ['scripts/server'])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", group],
        cwd=clone,
        env=environment_of(clone, LOGSERVER_PURE="1"),
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    (packages / "halves.pth").unlink()
    return ended


@needs_compiler
def test_a_failed_build_is_reported_at_the_next_start(clone: Path) -> None:
    """The setup module is broken for a compiled build only."""
    setup = clone / "setup.py"
    setup.write_text(
        setup.read_text().replace(
            "    try:\n        from", "    raise SystemExit('broken')\n    try:\n        from", 1
        )
    )
    start(clone)
    cache = clone.parent / "cache" / "logserver"
    within(FAILS_S, lambda: list(cache.glob(f"*/{compiled_wheel.FAILED}")))
    again = start(clone)
    assert again.compiled is PLAIN
    assert "the compiled build failed, see" in again.lines
