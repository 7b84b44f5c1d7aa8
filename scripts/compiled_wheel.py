"""Finds and builds the compiled wheel of a clone, for scripts/common.sh; installs nothing.

    compiled_wheel.py sources ROOT     prints the paths of the files that a build reads
    compiled_wheel.py key ROOT         prints the digest of the sources, the locks and this interpreter
    compiled_wheel.py find ROOT        prints the path of a wheel of exactly these sources that fits this interpreter
    compiled_wheel.py build ROOT       builds that wheel in the background, or prints why not

Run by the Python of .venv, with the environment's own `packaging`. A wheel comes from `dist/` or from the cache folder,
`logserver` below $XDG_CACHE_HOME (default ~/.cache), with one folder per digest. A server never sees a wheel that is
being built: it gets its name when it is complete, and the next start installs it. `find`: status 1 if none fits.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, TextIO

from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

PACKAGES: Final = ("api", "logserver", "storage")
ROOT_FILES: Final = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")
DOCS: Final = "docs"
PAGES: Final = "logserver/docs"  # where setup.py puts the pages of docs/ in a wheel
TOOLS: Final = ("mypy", "setuptools", "wheel")
LIBRARY: Final = "logserver__mypyc"
KEPT: Final = 4  # wheels in the cache, the newest ones
HIGHEST_DESCRIPTOR: Final = 1024
FAILED: Final = "failed.log"
LOCK: Final = "lock"
OFF: Final = "LOGSERVER_BACKGROUND_BUILD"


def sources(root: Path) -> list[Path]:
    """Return the files that a build reads, relative to the root."""
    packages = (path for name in PACKAGES for path in (root / name).rglob("*"))
    wanted = [path for path in packages if path.is_file() and path.suffix not in (".so", ".pyc")]
    at_root = (*(root / DOCS).rglob("*.md"), *(root / name for name in ROOT_FILES))
    return sorted(path.relative_to(root) for path in (*wanted, *at_root))


def files_of_wheel(root: Path) -> dict[str, Path]:
    """Return the files that a wheel of `root` has, less compiled modules and metadata: name in the wheel -> file."""
    files = {path.as_posix(): root / path for path in sources(root) if str(path) not in ROOT_FILES}
    return {
        f"{PAGES}{name.removeprefix(DOCS)}" if name.startswith(f"{DOCS}/") else name: path
        for name, path in files.items()
    }


def key_of(root: Path) -> str:
    """Return the digest of all that a compiled wheel depends on. The place of the clone does not matter."""
    known = hashlib.sha256(interpreter().encode())
    for path in sources(root):
        content = hashlib.sha256((root / path).read_bytes()).digest()
        known.update(path.as_posix().encode() + b"\0" + content)
    return known.hexdigest()


def interpreter() -> str:
    """Return the interpreter, its platform, and the versions and the level of the build tools as text."""
    about = [sys.version, sysconfig.get_platform(), str(sysconfig.get_config_var("SOABI"))]
    about.append(f"optimization {os.environ.get('MYPYC_OPT_LEVEL', '3')}")
    for tool in TOOLS:
        with suppress(PackageNotFoundError):
            about.append(f"{tool} {version(tool)}")
    return "\n".join(about)


def cache_folder() -> Path | None:
    """Return the folder of the cache; None without a home."""
    home = Path(os.environ.get("HOME", ""))
    for base in (Path(os.environ.get("XDG_CACHE_HOME", "")), home / ".cache"):
        if base.is_absolute():
            return base / "logserver"
    return None


def find(root: Path) -> Path | None:
    """Return a compiled wheel whose files are the sources of `root`, for this interpreter; None if there is none.

    A wheel of the cache was built from the digest in its path. The files of each wheel are compared too.
    """
    cache = cache_folder()
    cached = [] if cache is None else sorted((cache / key_of(root)).glob("*.whl"))
    tags = set(sys_tags())
    for wheel in (*cached, *sorted((root / "dist").glob("*.whl"))):
        with suppress(OSError, InvalidWheelFilename, zipfile.BadZipFile, zlib.error, EOFError):
            if parse_wheel_filename(wheel.name)[3] & tags and holds_sources(wheel, root):
                return wheel
    return None


def holds_sources(wheel: Path, root: Path) -> bool:
    """Return whether a wheel is whole and compiled, and its files are exactly the packages of `root`."""
    with zipfile.ZipFile(wheel) as archive:
        if archive.testzip() is not None:
            return False
        # auditwheel adds entries for folders.
        names = {name for name in archive.namelist() if not name.endswith("/")}
        names = {name for name in names if ".dist-info/" not in name}
        native = {name for name in names if name.endswith((".so", ".pyd"))}
        if not any(name.startswith(LIBRARY) for name in native):
            return False
        wanted = files_of_wheel(root)
        return names - native == wanted.keys() and all(
            archive.read(name) == path.read_bytes() for name, path in wanted.items()
        )


def no_compiler() -> str | None:
    """Return why no C extension can be built here; None if it can."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if not command or shutil.which(command[0]) is None:
        return "no C compiler was found"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "the C headers of Python were not found"
    return None


def build(root: Path) -> str:
    """Start a build in the background, at low priority. Return one line about it for the user."""
    plain = "logserver runs as plain Python, which is slower"
    if os.environ.get(OFF) == "0":
        return f"{plain}: {OFF}=0 turns off the compiled build"
    missing = no_compiler()
    if missing is not None:
        return f"{plain}: {missing}. On Debian or Ubuntu: apt-get install gcc python3-dev"
    cache = cache_folder()
    if cache is None:
        return f"{plain}: HOME is not set, so there is no folder for a compiled build"
    folder = cache / key_of(root)
    failed = folder / FAILED
    if failed.exists():
        return f"{plain}: the compiled build failed, see {failed}. Remove that file to try again"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _in_background(root, folder, lock)
    except BlockingIOError:
        return f"{plain}; a compiled build for the next start is being made already"
    except OSError as error:
        return f"{plain}: no compiled build can be made in {folder}: {error.strerror}"
    return f"{plain}; a compiled build for the next start is being made in the background"


def _in_background(root: Path, folder: Path, lock: TextIO) -> None:
    """Build in a process that belongs to no terminal and to no parent. It inherits the lock, which ends with it."""
    sys.stdout.flush()
    if os.fork():
        return
    os.setsid()
    os.nice(19)  # the whole session, also the process that ends now
    with suppress(OSError):  # Linux shares the processor between sessions first
        Path("/proc/self/autogroup").write_text("19")
    if os.fork():
        os._exit(0)
    lock.truncate(0)
    lock.write(f"{os.getpgrp()}\n")  # to end the build, with all its processes
    lock.flush()
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    kept = lock.fileno()
    os.closerange(3, kept)  # also the lock of .venv, which scripts/common.sh holds
    os.closerange(kept + 1, HIGHEST_DESCRIPTOR)
    try:
        make(root, folder)
    except OSError as error:
        with suppress(OSError):
            (folder / FAILED).write_text(f"{error}\n")
    finally:
        os._exit(0)


def make(root: Path, folder: Path) -> None:
    """Build the wheel in `folder`, from a copy of the sources. A failure is written to FAILED there."""
    for left in filter(Path.is_dir, folder.iterdir()):  # of a build that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        copy, built = Path(temporary, "sources"), Path(temporary, "built")
        for path in sources(root):
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / path, copy / path)
        if key_of(copy) != folder.name:
            return  # edited since: the next start builds the new sources
        command = [sys.executable, "-I", "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
        ended = subprocess.run(
            [*command, "--wheel-dir", built, copy],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        wheels = list(built.glob("*.whl"))
        if ended.returncode or len(wheels) != 1 or not holds_sources(wheels[0], copy):
            found = "The wheel is not compiled, or it has other files than the packages."
            (folder / FAILED).write_text(f"{ended.stdout}{ended.stderr}{found}\n")
            return
        wheels[0].rename(folder / wheels[0].name)
    for old in _older(folder):
        shutil.rmtree(old, ignore_errors=True)


def _older(folder: Path) -> Iterator[Path]:
    """Yield the folders of the cache that are too many. A folder without a wheel may be in use."""
    built = [path.parent for path in folder.parent.glob("*/*.whl")]
    yield from sorted(built, key=lambda path: path.stat().st_mtime)[:-KEPT]


def main(task: str, place: str) -> int:
    """Do one task; the head of this file lists them."""
    root = Path(place)
    if task == "find":
        wheel = find(root)
        if wheel is not None:
            print(wheel)
        return int(wheel is None)
    if task == "sources":
        print(*sources(root), sep="\n")
    elif task == "key":
        print(key_of(root))
    else:
        print(build(root))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
