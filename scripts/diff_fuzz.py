"""Compares the compiled codec modules with the interpreted ones on the same mutated inputs.

    diff_fuzz.py --compiled PYTHON [--cases N] [--seed S]

PYTHON is the interpreter of the environment with the compiled package. The interpreted side is the sources next to this
script, run by the Python that runs this script. Exit status 1 if an answer differs, or if either side raises an
exception that is not a StorageError. The case is printed with its input and can be run again by its number.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).resolve().with_name("diff_fuzz_cases.py")
ROOT = CASES.parent.parent
sys.path.insert(0, str(ROOT))

from scripts.check_wheel import compiled_modules  # noqa: E402

SHOWN = 5


def start(python: str, seed: int, cases: range, *options: str) -> subprocess.Popen[str]:
    """Start one side. It prints a line about itself, then a line for each case."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if python == sys.executable:
        environment["PYTHONPATH"] = str(ROOT)
    modules = ",".join(path.removesuffix(".py").replace("/", ".") for path in compiled_modules())
    command = [python, "-P", str(CASES), modules]
    command += [str(seed), str(cases.start), str(cases.stop), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def answers(*sides: subprocess.Popen[str]) -> list[list[str]]:
    """Return the output lines of all sides. Exits if a side fails."""
    read: list[list[str]] = [[] for _ in sides]
    for lines, side in zip(read, sides, strict=True):
        lines += (side.communicate()[0] or "").splitlines()
        if side.returncode != 0:
            sys.exit(f"{side.args!r} ended with status {side.returncode}")
    return read


def check_modes(interpreted: str, compiled: str) -> None:
    """Exit unless one side is interpreted and the other compiled; otherwise the comparison proves nothing."""
    for line, suffix in ((interpreted, ".py"), (compiled, ".so")):
        wrong = [path for path in json.loads(line) if not path.endswith(suffix)]
        if wrong:
            sys.exit(f"not {suffix}: {', '.join(wrong)}")


def show(python: str, seed: int, case: int) -> str:
    """Return the input and the whole answer of one case on one side."""
    return "\n".join(answers(start(python, seed, range(case, case + 1), "--show"))[0][1:])


def main() -> int:
    """Run both sides over the same cases and compare; return 0 if nothing differs."""
    parser = argparse.ArgumentParser(description="compiled codecs against interpreted ones")
    parser.add_argument("--compiled", required=True, metavar="PYTHON")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    pythons = (sys.executable, options.compiled)
    sides = [start(python, options.seed, range(options.cases)) for python in pythons]
    (mode, *ours), (other_mode, *others) = answers(*sides)
    check_modes(mode, other_mode)
    pairs = list(zip(ours, others, strict=True))
    bad = [case for case, (one, other) in enumerate(pairs) if one != other or "FAULT" in one]
    for case in bad[:SHOWN]:
        print(f"case {case}, interpreted: {show(pythons[0], options.seed, case)}")
        print(f"case {case}, compiled:    {show(pythons[1], options.seed, case)}\n")
    refused = sum(line.endswith("refused") for line in ours)
    print(f"{len(pairs)} cases, {refused} of them refused by both sides: {len(bad)} differences")
    return 1 if bad or len(pairs) != options.cases else 0


if __name__ == "__main__":
    sys.exit(main())
