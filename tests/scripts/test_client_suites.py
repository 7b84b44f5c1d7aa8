"""The comparison of clients' test suites: what counts as a difference between the real broker and this server."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "client_suites"
GO = """\
=== RUN   TestGroup
    --- PASS: TestGroup/range (0.10s)
    --- SKIP: TestGroup/848 (0.00s)
--- PASS: TestGroup (0.10s)
--- FAIL: TestTxn (3.00s)
FAIL
"""


@pytest.fixture(scope="module")
def suites() -> Iterator[Any]:
    """The script as a module."""
    loader = SourceFileLoader("client_suites", str(SCRIPT))
    spec = importlib.util.spec_from_loader("client_suites", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["client_suites"] = module  # its dataclasses look it up
    loader.exec_module(module)
    yield module
    del sys.modules["client_suites"]


def test_results_of_go(suites: Any) -> None:
    assert dict(suites._go_results(GO)) == {
        "TestGroup/range": "passed",
        "TestGroup/848": "skipped",
        "TestGroup": "passed",
        "TestTxn": "failed",
    }


def test_a_difference_is_what_only_the_real_broker_passes(suites: Any) -> None:
    real = {"A": "passed", "B": "passed", "C": "failed", "TestShareGroup": "passed", "D": "passed"}
    here = {"A": "passed", "B": "failed", "C": "passed", "TestShareGroup": "skipped"}
    found = suites.compared("franz-go", real, here)
    assert (found.real, found.here) == (4, 2)
    assert found.different == ["B", "D"]
    assert list(found.known) == ["TestShareGroup"]
