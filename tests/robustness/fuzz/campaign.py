"""Fuzzing of targets for a given time, each in its own process, with a report of the result.

Owns the child processes, their limits and the parsing of their output. The command line is `scripts/fuzz`:

    fuzz [TARGET...] [--minutes N]

Without a name every target is fuzzed, for N minutes each. Exit status 1 if a problem was found.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections import deque
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[3]
INPUT_TIMEOUT_S: Final = 20
START_TIMEOUT_S: Final = 120
RSS_LIMIT_MB: Final = 2000
MAX_INPUT_BYTES: Final = 8192
REPORTED_EVERY_S: Final = 10
ANY_SEED: Final = 0  # libFuzzer chooses a new seed each time
KEPT_LINES: Final = 60
_PROGRESS: Final = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+)")
MISSING: Final = (
    "atheris is not here (there are wheels of it for Linux on x86-64): nothing is fuzzed"
)


def is_possible() -> bool:
    """Return whether atheris is installed."""
    return find_spec("atheris") is not None


class Outcome(NamedTuple):
    """The result of fuzzing a target. `trouble`: the input and its details, empty if nothing broke."""

    target: str
    seconds: float
    executions: int
    coverage: int
    trouble: str = ""

    def __str__(self) -> str:
        ended = "BROKE" if self.trouble else "ok"
        figures = f"{self.executions:>9,} inputs  {self.coverage:>6,} branches"
        return f"{self.target:<20} {self.seconds:6.0f} s  {figures}  {ended}"


def fuzz(
    target: str, seconds: int, tell: Callable[[str], object] = len, *, seed: int = ANY_SEED
) -> Outcome:
    """Fuzz a target for at most this time; `tell` receives a progress line at intervals."""
    began = reported = monotonic()
    executions = coverage = 0
    last: deque[str] = deque(maxlen=KEPT_LINES)
    with tempfile.TemporaryDirectory() as folder:
        corpus, found = Path(folder, "corpus"), Path(folder, "found")
        corpus.mkdir()
        found.mkdir()
        with subprocess.Popen(
            _command(target, corpus, found, seconds, seed),
            cwd=ROOT,
            env={
                "PYTHONPATH": str(ROOT),
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONHASHSEED": "0",
                "TMPDIR": folder,
            },
            stdout=subprocess.PIPE,  # the traceback of a broken check
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as child:
            assert child.stdout is not None
            for line in child.stdout:
                last.append(line)
                progress = _PROGRESS.match(line)
                if progress is not None:
                    executions, coverage = int(progress[1]), int(progress[2])
                if monotonic() - reported > REPORTED_EVERY_S:
                    reported = monotonic()
                    tell(str(Outcome(target, reported - began, executions, coverage)))
        trouble = "" if child.returncode == 0 else _told(target, child.returncode, found, last)
    return Outcome(target, monotonic() - began, executions, coverage, trouble)


def _command(target: str, corpus: Path, found: Path, seconds: int, seed: int) -> list[str]:
    # libFuzzer checks the peak memory size, and a process starts with the peak of its parent.
    inherited_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return [
        *(sys.executable, "-P", "-m", "tests.robustness.fuzz.child", target, str(corpus)),
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        f"-timeout={INPUT_TIMEOUT_S}",
        f"-rss_limit_mb={inherited_mb + RSS_LIMIT_MB}",
        f"-max_len={MAX_INPUT_BYTES}",
        f"-artifact_prefix={found}/",
        "-print_final_stats=1",
    ]


def _told(target: str, status: int, found: Path, last: deque[str]) -> str:
    """Return the output of the process, then the input that broke the target, in two encodings."""
    inputs = [
        f"{path.name}\n    hex {path.read_bytes().hex()}\n    base64 {b64encode(path.read_bytes()).decode()}"
        for path in sorted(found.iterdir())
    ]
    return "\n".join([f"{target} ended with status {status}", "".join(last), *inputs])


def main() -> int:
    """Fuzz from the command line."""
    from tests.robustness.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(prog="fuzz", description="coverage-guided fuzzing")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--minutes", type=float, default=1.0)
    options = parser.parse_args()
    if not is_possible():
        sys.exit(MISSING)
    unknown = [name for name in options.targets if name not in TARGETS]
    if unknown:
        parser.error(f"no target {unknown[0]}: there are {', '.join(TARGETS)}")
    write = sys.stdout.write
    outcomes = []
    for name in options.targets or TARGETS:
        outcomes.append(fuzz(name, round(options.minutes * 60), lambda line: write(f"{line}\n")))
        write(f"{outcomes[-1].trouble}\n")
    write("".join(f"{outcome}\n" for outcome in outcomes))
    return int(any(outcome.trouble for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
