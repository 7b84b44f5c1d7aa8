"""The process that fuzzes one target under atheris, which is guided by the branches that an input reaches.

    python -P -m tests.robustness.fuzz.child TARGET CORPUS_FOLDER [libFuzzer options]

Owns the instrumentation of our packages before any module imports them. It exits with status 0 when its time is over.
Otherwise it ends with a traceback, and writes the input to the path given by `-artifact_prefix`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import atheris

if TYPE_CHECKING:
    from tests.robustness.fuzz.target import Target


def main() -> None:
    """Write the seeds into the corpus folder, and fuzz."""
    name, folder, *options = sys.argv[1:]
    with atheris.instrument_imports(include=["storage", "api", "logserver"]):
        target: Target = import_module("tests.robustness.fuzz.targets").TARGETS[name]
    corpus = Path(folder)
    for number, seed in enumerate(target.corpus()):
        (corpus / f"seed-{number:04}").write_bytes(seed)
    atheris.Setup([sys.argv[0], folder, *options], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
