"""The environment of a benchmark: the machine, the versions, and the cores of servers and generator.

Owns reading these from the system; must not start anything that is measured.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import msgspec

import logserver
from logserver.bench.processes import Cores
from logserver.bench.result import Environment, Kind
from storage import is_compiled

PACKAGES: Final = ("aiohttp", "uvloop", "msgspec", "crc32c", "hdrhistogram")
NONE: Final = "none"
JAVA_TIMEOUT_S: Final = 60.0
MOUNTS: Final = Path("/proc/self/mounts")


def machine() -> dict[str, str]:
    """Return the processor, core count, system and Python version of this machine."""
    return {
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of installed distributions; "none" for a distribution that is not installed."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = NONE
    return found


def environment(cores: Cores, folder: Path) -> Environment:
    """Return the environment block of a result, before the versions of real servers are known. `folder`: parent folder
    of the stores.
    """
    facts = machine()
    return Environment(
        cpu=facts["cpu"],
        cores=os.cpu_count() or 1,
        memory_bytes=_memory_bytes(),
        system=facts["system"],
        python=facts["python"],
        compiled=is_compiled(),
        packages={"logserver": logserver.__version__, **versions(*PACKAGES)},
        server_cores=_listed(cores.servers),
        generator_cores=_listed(cores.generator),
        file_system=_file_system(folder),
    )


def with_peers(made: Environment, found: Mapping[Kind, str | None]) -> Environment:
    """Return the environment with the versions of the real servers among the targets, and of the Java they run on."""
    kafka, rocketmq = found.get("kafka"), found.get("rocketmq")
    java = _java() if kafka or rocketmq else None
    return msgspec.structs.replace(made, kafka=kafka, rocketmq=rocketmq, java=java)


def _listed(cores: frozenset[int] | None) -> list[int] | None:
    return None if cores is None else sorted(cores)


def _file_system(folder: Path) -> str | None:
    """Return the type of the file system that holds a folder; None if the system does not report mounts.

    The longest mount point above the folder decides; of several mounts at one point, the last. The mount table writes a
    space in a name as \\040 (getmntent(3)).
    """
    if not MOUNTS.is_file():
        return None
    found = [line.split()[1:3] for line in MOUNTS.read_text(encoding="utf-8").splitlines()]
    mounts = [(Path(point.replace("\\040", " ")), kind) for point, kind in found]
    place = folder.resolve()
    above = [(len(point.parts), kind) for point, kind in mounts if place.is_relative_to(point)]
    above.sort(key=lambda mount: mount[0])  # the sort is stable: mounts at one point stay in order
    return above[-1][1] if above else None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _java() -> str | None:
    """Return the version from the first line of `java -version`; None if there is no Java."""
    if shutil.which("java") is None:
        return None
    done = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, check=False, timeout=JAVA_TIMEOUT_S
    )
    line, _, _ = done.stderr.partition("\n")
    return line.replace('"', "").removeprefix("openjdk version ").removeprefix("java version ")
