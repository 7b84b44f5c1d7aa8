"""Real commands on files that the operating system refuses: the tools continue, report the file, and exit with 1.

Bad sectors and missing rights are simulated by `faults.c`, since the superuser may read everything; irregular files
are created for real. tests/damage/test_unreadable.py covers the same for the library, with ranges of a file.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.golden.rocketmq_stores import golden
from tests.golden.stores import KAFKA, copy_store
from tests.robustness.process.faults import Faults, Rule
from tests.robustness.process.forked import Forked

FINDINGS, IO_ERROR = 1, 3


class Ended(NamedTuple):
    """A command that has ended."""

    code: int
    rows: list[dict[str, Any]]
    err: str


class Stored(NamedTuple):
    """A copy of a golden store, a log file of it, and the options that it needs."""

    root: Path
    log: Path
    options: list[str]


def kafka(folder: Path) -> Stored:
    """Return a store of three partitions; the log of one is the target."""
    root = copy_store(KAFKA / "parts" / "data", folder / "store")
    return Stored(root, root / "keyed-1" / f"{0:020}.log", [])


def rocketmq(folder: Path) -> Stored:
    """Return a store with sixteen log files; one in the middle is the target."""
    store = golden("many")
    root = copy_store(store.root, folder / "store")
    options = [text for pair in store.settings.items() for text in ("--set", "=".join(pair))]
    return Stored(root, root / "commitlog" / f"{8192:020}", options)


@pytest.fixture(params=[kafka, rocketmq])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Stored:
    """Each format in turn."""
    make: Callable[[Path], Stored] = request.param
    return make(tmp_path)


def run(*args: object, environment: Mapping[str, str] | None = None) -> Ended:
    """Run the command; its rows are NDJSON."""
    process = Forked(list(map(str, args)), environment=environment)
    output, errors = process.communicate(timeout=120)
    assert "Traceback" not in errors
    assert process.returncode is not None
    return Ended(process.returncode, [json.loads(line) for line in output.splitlines()], errors)


RULES = [("read", errno.EIO), ("open", errno.EACCES)]


@pytest.mark.parametrize(("kind", "number"), RULES)
def test_the_tools_go_on(stored: Stored, faults: Faults, kind: str, number: int) -> None:
    whole = run("dump", stored.root, *stored.options)
    assert whole.code == 0
    faults.begin(Rule(kind, str(stored.log), number))
    with_fault = faults.environment

    verified = run("verify", stored.root, *stored.options, environment=with_fault)
    named = [row for row in verified.rows if row["path"] == str(stored.log)]
    assert {row["code"] for row in named} & {"unreadable-file", "unreadable-range"}
    assert verified.code == FINDINGS

    dumped = run("dump", stored.root, *stored.options, environment=with_fault)
    assert dumped.code == FINDINGS
    assert str(stored.log) in dumped.err
    assert 0 < len(dumped.rows) < len(whole.rows)
    assert all(row in whole.rows for row in dumped.rows)

    found = run(
        "find",
        stored.root,
        "--from",
        "0",
        "--limit",
        "100000",
        *stored.options,
        environment=with_fault,
    )
    assert found.code == FINDINGS
    assert str(stored.log) in found.err
    assert len(found.rows) == len(dumped.rows)

    target = stored.root.with_name("new")
    options = [*stored.options, "--output", "ndjson"]
    salvaged = run("salvage", stored.root, "--to", target, *options, environment=with_fault)
    (report,) = salvaged.rows
    assert salvaged.code == FINDINGS
    assert str(stored.log) in {loss["path"] for loss in report["losses"]}
    kept = run("dump", target, *stored.options)
    assert kept.code == 0
    assert len(kept.rows) == len(dumped.rows)


def test_a_file_alone_that_cannot_be_read_is_an_error(stored: Stored, faults: Faults) -> None:
    faults.begin(Rule("open", str(stored.log), errno.EACCES))
    ended = run("verify", stored.log, *stored.options, environment=faults.environment)
    assert ended.code == IO_ERROR
    assert str(stored.log) in ended.err


def as_folder(path: Path) -> None:
    """Put a folder in place of a file."""
    path.unlink()
    path.mkdir()


def as_fifo(path: Path) -> None:
    """Put a FIFO in place of a file: a careless open waits forever."""
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("make", [as_folder, as_fifo])
@pytest.mark.parametrize("name", ["log", "small"])
def test_what_is_no_regular_file(stored: Stored, make: Callable[[Path], None], name: str) -> None:
    small = {"keyed-1": "leader-epoch-checkpoint", "commitlog": "../checkpoint"}
    path = stored.log if name == "log" else stored.log.parent / small[stored.log.parent.name]
    make(path)
    for command in (["verify"], ["dump"], ["inspect"]):
        ended = run(*command, stored.root, *stored.options)
        assert ended.code == FINDINGS, ended.err
        assert path.name in ended.err + json.dumps(ended.rows)
    salvaged = run("salvage", stored.root, "--to", stored.root.with_name("new"), *stored.options)
    assert salvaged.code in (0, FINDINGS), salvaged.err
