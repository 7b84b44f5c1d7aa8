"""The archive of the classes that Spark's Java virtual machines load: it halves the processor time of their starts.

Owns the archive, one file of some hundred megabytes in the folder of the peers, made by the first process that needs
it; must not know the tests. A virtual machine ignores an archive that does not fit its Java or its jars.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pyspark

SHORT_LIVED: Final = "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options for cases where the compilation of the best code would take longer than it saves."""
QUIET: Final = "-Xlog:disable"  # of an archive that does not fit: the launcher reads the output
JARS: Final = Path(pyspark.__file__).parent / "jars"
MAKES_IT_S: Final = 900.0


def java_options() -> str:
    """Return the options of a short-lived virtual machine of Spark, with the archive; make the archive if need be."""
    return f"{SHORT_LIVED} {QUIET} -XX:SharedArchiveFile={archive()}"


@cache
def archive() -> Path:
    """Return the archive; make it if it does not exist. Without it a virtual machine only starts more slowly."""
    folder = Path(os.environ.get("PEERS_CACHE") or Path.home() / ".cache" / "peers") / "spark"
    folder.mkdir(parents=True, exist_ok=True)
    found = folder / f"classes-{_what_it_fits()}.jsa"
    with (folder / ".classes.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            for old in folder.glob("classes-*.jsa"):
                old.unlink()
            _make(found)
    return found


def _what_it_fits() -> str:
    """Return a name for this Java and these jars, whose times a virtual machine compares too."""
    java = Path(shutil.which("java") or "java").resolve()
    home = os.environ.get("JAVA_HOME", "")
    jars = sorted((jar.name, jar.stat().st_mtime_ns) for jar in JARS.iterdir())
    facts = repr((str(java), java.stat().st_mtime_ns, home, str(JARS), jars))
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


def _make(wanted: Path) -> None:
    """Run queries that load the classes of most tests, and keep what the virtual machine writes at its end."""
    with tempfile.TemporaryDirectory(dir=wanted.parent) as folder:
        made = Path(folder) / "classes.jsa"
        options = f"{SHORT_LIVED} {QUIET} -XX:ArchiveClassesAtExit={made}"
        command = [sys.executable, "-m", "tests.pipeline.jobs.classes_job", folder, options]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        subprocess.run(
            command, env=environment, capture_output=True, check=True, timeout=MAKES_IT_S
        )
        made.rename(wanted)
