"""The shares of store and connections in the number of files that a process may have open."""

from __future__ import annotations

import logging
import resource
import subprocess
import sys

import pytest

from logserver.config import Address, Settings
from logserver.opening import RESERVED, fit_to_file_limit


@pytest.mark.parametrize(
    ("limit", "files", "connections"),
    [
        (resource.RLIM_INFINITY, 512, 1000),
        (1 << 20, 512, 1000),
        (1544, 512, 1000),
        (1543, 512, 999),
        (1024, 496, 496),
        (256, 112, 112),
        (64, 16, 16),
        (20, 16, 16),
    ],
)
def test_the_shares_of_a_limit(limit: int, files: int, connections: int) -> None:
    fitted = fit_to_file_limit(Settings(), limit)
    assert (fitted.open_files, fitted.max_connections) == (files, connections)


def test_what_one_does_not_want_the_other_gets() -> None:
    few = fit_to_file_limit(Settings(open_files=16), 256)
    assert (few.open_files, few.max_connections) == (16, 256 - RESERVED - 16)
    fitted = fit_to_file_limit(Settings(max_connections=10), 256)
    assert (fitted.open_files, fitted.max_connections) == (256 - RESERVED - 10, 10)


def test_connections_count_for_each_port() -> None:
    served = Settings(listen_kafka=Address("127.0.0.1", 9092))
    fitted = fit_to_file_limit(served, 1544)
    assert (fitted.open_files, fitted.max_connections) == (512, 500)
    ample = fit_to_file_limit(served, RESERVED + 512 + 2 * 1000)
    assert (ample.open_files, ample.max_connections) == (512, 1000)


def test_what_is_lowered_is_told(caplog: pytest.LogCaptureFixture) -> None:
    fit_to_file_limit(Settings(max_connections=100), 1 << 20)
    assert caplog.records == []
    with caplog.at_level(logging.WARNING):
        fit_to_file_limit(Settings(max_connections=100), 256)
    (reported,) = caplog.messages
    assert (
        reported
        == "open_files lowered from 512 to 124: this process may have 256 files open (ulimit -n)"
    )


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    script = (
        "import resource\n"
        "from logserver.opening import raise_file_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))\n"
        "assert raise_file_limit() == 200\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (200, 200)\n"
        "assert raise_file_limit() == 200\n"
    )
    subprocess.run([sys.executable, "-P", "-c", script], check=True)
