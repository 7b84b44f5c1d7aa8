"""Adds the compiled codec modules to the build; everything else stands in pyproject.toml.

Each module of COMPILED is plain typed Python, built by mypyc where a C compiler is found and run as it is where not:
there is one source. LOGSERVER_PURE=1 leaves compiling out.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext

COMPILED = [
    "storage/coding/cursor.py",
    "storage/coding/javahash.py",
    "storage/coding/murmur2.py",
    "storage/coding/varint.py",
    "storage/kafka/format/batch.py",
    "storage/kafka/format/batch_header.py",
    "storage/kafka/format/record.py",
    "storage/kafka/format/record_positions.py",
    "storage/rocketmq/dispatch.py",
    "storage/rocketmq/encoding.py",
    "storage/rocketmq/format/index_file.py",
    "storage/rocketmq/format/message.py",
    "storage/rocketmq/format/message_encoding.py",
    "storage/rocketmq/format/properties.py",
    "storage/rocketmq/format/queue_unit.py",
    "storage/rocketmq/format/suspect.py",
    "storage/rocketmq/format/walking.py",
    "storage/rocketmq/key_index_table.py",
]

# Only these modules are judged here; the strict settings of pyproject.toml are for the project's own checks.
MYPY_OPTIONS = ["--config-file=", "--follow-imports=silent", "--ignore-missing-imports"]


class AllOrNothing(build_ext):
    """Each compiled module loads the one library they share: where something could not be built, all is dropped."""

    def run(self) -> None:
        """Build, then look at what came out."""
        super().run()
        built = [Path(path) for path in self.get_outputs()]
        if not all(path.exists() for path in built):
            for path in built:
                path.unlink(missing_ok=True)


def extensions() -> list[Any]:
    """The compiled modules: none where they are switched off or mypyc is missing, optional where it is there."""
    if os.environ.get("LOGSERVER_PURE") == "1":
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        return []
    built: list[Any] = mypycify([*MYPY_OPTIONS, *COMPILED], group_name="logserver", opt_level="3")
    for extension in built:
        extension.optional = True
        # The modules call each other inside one library: no need to go through the table of exported names.
        extension.extra_compile_args += ["-fvisibility=hidden", "-fno-plt"]
    return built


setup(ext_modules=extensions(), cmdclass={"build_ext": AllOrNothing})
