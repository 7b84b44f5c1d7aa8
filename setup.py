"""Add the compiled codec modules and the pages of docs/ to the build; all other settings are in pyproject.toml.

Each module of COMPILED is plain typed Python with one source. With a C compiler mypyc builds it; without, Python runs
it unchanged. LOGSERVER_PURE=1 turns compiling off. MYPYC_OPT_LEVEL=0 lets the C compiler optimize nothing: for a build
that is only tried.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

COMPILED = [
    "api/kafka/call.py",
    "api/kafka/connection.py",
    "api/kafka/dispatch.py",
    "api/kafka/first_step.py",
    "api/kafka/handlers/fetch.py",
    "api/kafka/handlers/produce.py",
    "api/kafka/idle_poll.py",
    "api/kafka/protocol/messages/fetch.py",
    "api/kafka/protocol/messages/group_offsets.py",
    "api/kafka/protocol/messages/groups.py",
    "api/kafka/protocol/messages/offsets.py",
    "api/kafka/protocol/messages/produce.py",
    "api/kafka/protocol/primitives.py",
    "logserver/service/commit.py",
    "logserver/service/memory_budget.py",
    "logserver/service/produce.py",
    "storage/coding/cursor.py",
    "storage/coding/hashes.py",
    "storage/coding/varint.py",
    "storage/files/cached.py",
    "storage/files/fence.py",
    "storage/files/handles.py",
    "storage/kafka/compaction/offset_map.py",
    "storage/kafka/compaction/record_pass.py",
    "storage/kafka/format/batch.py",
    "storage/kafka/format/record.py",
    "storage/kafka/format/record_scan.py",
    "storage/kafka/index/indexes.py",
    "storage/kafka/log/encoding.py",
    "storage/kafka/log/log_file.py",
    "storage/kafka/partition.py",
    "storage/rocketmq/format/index_file.py",
    "storage/rocketmq/format/message.py",
    "storage/rocketmq/format/message_encoding.py",
    "storage/rocketmq/format/message_id.py",
    "storage/rocketmq/format/properties.py",
    "storage/rocketmq/format/queue_entry.py",
    "storage/rocketmq/format/scan.py",
    "storage/rocketmq/format/suspect_fields.py",
    "storage/rocketmq/index/dispatch_request.py",
    "storage/rocketmq/index/entry_match.py",
    "storage/rocketmq/index/key_index_table.py",
    "storage/rocketmq/index/queue_runs.py",
    "storage/rocketmq/index/record_pass.py",
    "storage/rocketmq/log/commit_log.py",
    "storage/rocketmq/log/due_messages.py",
    "storage/rocketmq/log/encoding.py",
    "storage/rocketmq/log/file_sequence.py",
    "storage/rocketmq/log/record_run.py",
    "storage/rocketmq/queue.py",
]

NEVER_BUILD = {"dist_info", "egg_info", "sdist"}  # commands for metadata or the sources

# mypy checks only these modules here; the strict settings of pyproject.toml are for the project's own checks.
MYPY_OPTIONS = ["--config-file=", "--follow-imports=silent", "--ignore-missing-imports"]


class AllOrNothing(build_ext):
    """The build step. All compiled modules load one shared library: if an output is missing, all outputs are
    deleted.
    """

    def run(self) -> None:
        """Build; then delete all outputs if any is missing."""
        super().run()
        built = [Path(path) for path in self.get_outputs()]
        if not all(path.exists() for path in built):
            for path in built:
                path.unlink(missing_ok=True)


class WithPages(build_py):
    """The step that copies the sources. The pages of docs/ go with them: `logserver help` shows them."""

    def run(self) -> None:
        """Copy the sources, then the pages; an editable install reads them where they are."""
        super().run()
        if self.editable_mode:
            return
        docs = Path("docs")
        for page in docs.rglob("*.md"):
            target = Path(self.build_lib, "logserver", "docs", page.relative_to(docs))
            self.mkpath(str(target.parent))
            self.copy_file(str(page), str(target))


def is_build() -> bool:
    """Return whether the command builds. Installers first ask for metadata: mypyc would take 10 s for nothing."""
    given = sys.argv[1:]
    builds = any(
        word.startswith(("build", "bdist", "develop", "editable", "install")) for word in given
    )
    return builds or NEVER_BUILD.isdisjoint(given)


def extensions() -> list[Any]:
    """Return the compiled modules, marked optional; none if LOGSERVER_PURE=1, if mypyc is missing, or for metadata."""
    if os.environ.get("LOGSERVER_PURE") == "1" or not is_build():
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        return []
    level = os.environ.get("MYPYC_OPT_LEVEL", "3")
    built: list[Any] = mypycify([*MYPY_OPTIONS, *COMPILED], group_name="logserver", opt_level=level)
    for extension in built:
        extension.optional = True
        # The modules call each other inside one library: calls need no table of exported names.
        extension.extra_compile_args += ["-fvisibility=hidden", "-fno-plt"]
    return built


setup(ext_modules=extensions(), cmdclass={"build_ext": AllOrNothing, "build_py": WithPages})
