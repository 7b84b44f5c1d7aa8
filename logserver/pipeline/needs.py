"""What Spark needs of this machine: Java, and the packages of the extra `spark`; checked before anything slow starts.

Owns the versions and the line that reports all problems at once. Must import only the standard library:
`scripts/pipeline` runs this module before a package is installed, so that a missing Java is reported before a download
of 500 MB.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

PACKAGES: Final[Mapping[str, str]] = {"numpy": "1.26", "pyarrow": "15", "pyspark": "4.2"}
"""Lowest version of each package that the data source needs; pyproject.toml has the same."""
OPTIONAL: Final[Mapping[str, str]] = {"pandas": "2.2"}
"""Lowest version of packages that only `toPandas` needs."""
EXTRA: Final = "pip install 'duolog[spark]'"
JAVA: Final = 17
_INSTALL_JAVA: Final = (
    f"install it (Debian, Ubuntu: apt-get install openjdk-{JAVA}-jre-headless) or set JAVA_HOME"
)
_JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_NUMBER: Final = re.compile(r"\d+")
_STARTS_IN_S: Final = 30


def problem() -> str | None:
    """Return one line with everything that is missing and what to do, or None if nothing is missing."""
    found = [text for text in (packages_problem(), java_problem(), python_problem()) if text]
    return f"the pipeline needs {'; and it needs '.join(found)}" if found else None


def packages_problem() -> str | None:
    """Return the packages that are missing or too old, or None."""
    absent = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    old = [
        f"{name} {least} or later, not {found}"
        for name, least in {**PACKAGES, **OPTIONAL}.items()
        if (found := _installed(name)) is not None and _parts(found) < _parts(least)
    ]
    return f"{', '.join(absent + old)}: {EXTRA}" if absent or old else None


def java_problem() -> str | None:
    """Return the problem of the Java that Spark would start, or None.

    Under spark-submit Java already runs.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return None
    java, place = java_command()
    if java is None:
        return f"Java {JAVA} or later: {place}; {_INSTALL_JAVA}"
    try:
        done = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_STARTS_IN_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"Java {JAVA} or later: {java} does not start ({error}); {_INSTALL_JAVA}"
    said = done.stderr or done.stdout
    found = _JAVA_VERSION.search(said)
    if found is None:
        first = said.strip().partition("\n")[0] or f"exit code {done.returncode}"
        return f"Java {JAVA} or later: {java} does not start ({first}); {_INSTALL_JAVA}"
    if int(found[1]) < JAVA:
        return f"Java {JAVA} or later: {place} is Java {found[1]}; {_INSTALL_JAVA}"
    return None


def java_command() -> tuple[str | None, str]:
    """Return the Java that Spark starts, or None, and a text that names it and why it was chosen.

    Spark uses JAVA_HOME if it is set, also if nothing is there; else the first `java` in PATH.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.exists():
            return None, f"JAVA_HOME is {home}, which has no bin/java"
        return str(java), f"{java} (from JAVA_HOME)"
    found = shutil.which("java")
    return found, found or "there is no java in PATH and JAVA_HOME is not set"


def python_problem() -> str | None:
    """Return the problem of PYSPARK_PYTHON, or None: Spark starts it on this machine too."""
    python = os.environ.get("PYSPARK_PYTHON")
    if not python or shutil.which(python) is not None:
        return None
    return f"a Python for its tasks: PYSPARK_PYTHON is {python}, which is no program here; unset it"


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:  # Spark's own copy of PySpark, in the path but not installed
        return None


def _parts(number: str) -> tuple[int, ...]:
    """Return the numbers of a version: 4.2.0.dev1 is (4, 2, 0)."""
    parts = []
    for part in number.split("."):
        digits = _NUMBER.match(part)
        if digits is None:
            break
        parts.append(int(digits[0]))
    return tuple(parts)


if __name__ == "__main__":  # of scripts/pipeline, which installs the packages itself
    absent = java_problem()
    if absent is not None:
        sys.exit(f"error: the pipeline needs {absent}")
