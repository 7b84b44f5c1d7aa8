"""Adds the compiled codec modules to the build; everything else stands in pyproject.toml.

Each module of COMPILED is plain typed Python, built by mypyc where a C compiler is found and run as it is where not:
there is one source. LOGSERVER_PURE=1 leaves compiling out.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from setuptools import setup

COMPILED = [
    "storage/coding/cursor.py",
    "storage/coding/varint.py",
    "storage/kafka/format/batch.py",
    "storage/kafka/format/record.py",
]

# Only these modules are judged here; the strict settings of pyproject.toml are for the project's own checks.
MYPY_OPTIONS = ["--config-file=", "--follow-imports=silent", "--ignore-missing-imports"]


def extensions() -> list[Any]:
    """The compiled modules: none where they are switched off or mypyc is missing, optional where it is there."""
    if os.environ.get("LOGSERVER_PURE") == "1":
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        return []
    present = [path for path in COMPILED if Path(path).is_file()]
    if not present:
        return []
    built: list[Any] = mypycify([*MYPY_OPTIONS, *present], group_name="logserver", opt_level="3")
    for extension in built:
        extension.optional = True
    return built


setup(ext_modules=extensions())
