"""`logserver bench` as a user runs it: matching counts, latencies of a server with known stalls, every way it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar
from urllib.request import urlopen

import pytest
from hdrh.histogram import HdrHistogram

from logserver import LogServer
from logserver.bench import processes
from logserver.bench.http_load import HttpLoad
from logserver.bench.http_templates import OURS
from logserver.bench.load_loops import ConnectionLost
from logserver.bench.processes import Cores, Server, cpu_s_per_million
from logserver.bench.result import Result, load
from logserver.bench.targets import http_servers
from logserver.bench.targets.base import Bench
from logserver.bench.targets.http_servers import ForeignServer
from logserver.bench.topics import Topics
from logserver.bench.workload import parse_workload
from tests.bench.stub import stub

EVERYTHING = """
name = "everything"
topics = 2
messageSize = 1000
keyDistributor = "KEY_ROUND_ROBIN"
producersPerTopic = 2
producerRate = 2000
subscriptionsPerTopic = 2
consumerBacklogSizeGB = 0.001
warmupDurationMinutes = 0.002
testDurationMinutes = 0.005

[logserver]
recordsPerRequest = 10
lookups = 5
flush = "os"
kill = true
"""
T = TypeVar("T")
SHAPES = Path("logserver/bench/shapes")
STALL_S = 1.0
WAIT_S = 120.0
OURSELVES = ("-m", "logserver")
# An open loop never gives up: a short loop would if the machine stalls for a moment.
PATIENT = (
    "-c",
    "import runpy; from logserver.bench import load_loops; load_loops.LATE = 1000;"
    "runpy.run_module('logserver', run_name='__main__')",
)


def started(*arguments: object, python: Sequence[str] = OURSELVES) -> subprocess.Popen[str]:
    """Start `logserver bench` as a user does."""
    command = [sys.executable, "-P", *python, "bench", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def bench(
    folder: Path, workload: str, *arguments: object, python: Sequence[str] = OURSELVES
) -> tuple[int, str, Result]:
    """Run it to its end; return the exit code, standard error and the result document."""
    path, found = folder / "mine.toml", folder / "result.json"
    path.write_text(workload)
    options = ("--json", found, "--quick", "--dir", folder)
    process = started(path, *options, *arguments, python=python)
    _, errors = process.communicate(timeout=300)
    assert "Traceback" not in errors
    return process.returncode, errors, load(found)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["kafka", "rocketmq"])
def test_every_count_of_a_run_agrees(tmp_path: Path, backend: str) -> None:
    code, errors, result = bench(tmp_path, EVERYTHING, "--target", f"logserver-{backend}")
    assert (code, result.complete, result.incomplete_reason) == (0, True, None), errors
    assert result.generator is not None
    assert result.generator.ceiling_requests_per_s.minimum > 0
    (run,) = result.runs
    assert (run.errors, run.not_done) == ([], [])
    (repeat,) = run.repeats
    assert repeat.errors == []
    published, stored = repeat.published_records, repeat.stored_records
    assert published is not None
    assert stored is not None
    assert published > 0
    assert repeat.consumed_records == 2 * published
    assert repeat.catch_up_records is not None
    assert repeat.catch_up_records >= 1000
    assert stored == 1000 + published + 50  # the backlog, the measured records, five appends of ten
    assert repeat.end_to_end_latency is not None
    assert repeat.end_to_end_latency.count == 2 * published // 10
    for latency in (
        repeat.publish_latency,
        repeat.publish_service,
        repeat.key_lookup_latency,
        repeat.time_lookup_latency,
        repeat.append_latency,
        repeat.fetch_latency,
    ):
        assert latency is not None
        assert 0 < (latency.p50_us or 0) <= (latency.max_us or 0)
    assert repeat.recovery_s is not None
    assert repeat.start_s is not None
    assert repeat.disk_bytes is not None
    assert repeat.disk_bytes > stored * 1000
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]  # its data is removed


def test_a_few_records_are_told_without_nonsense(tmp_path: Path) -> None:
    """A single record in a second gives no meaningless rates.

    The record is read within milliseconds, but the rate is not hundreds a second. A tick of processor time is not
    scaled up to a million records.
    """
    workload = at_rate(1, 1).replace("[logserver]", "subscriptionsPerTopic = 1\n[logserver]")
    code, errors, result = bench(tmp_path, workload, "--target", "logserver-kafka")
    assert code == 0, errors
    repeat = result.runs[0].repeats[0]
    assert (repeat.published_records, repeat.consumed_records) == (1, 1)
    assert (repeat.published_records_per_s or 0) <= 1
    assert (repeat.consumed_records_per_s or 0) <= 1
    assert cpu_s_per_million(0.01, 1) is None
    assert cpu_s_per_million(1.0, 0) is None
    assert cpu_s_per_million(1.0, 500_000) == 2.0


@pytest.mark.slow
def test_servers_without_a_store_are_the_ceiling(tmp_path: Path) -> None:
    """They acknowledge all records, and the result says what they cannot do."""
    targets = ("--target", "no-store", "--target", "bare")
    code, errors, result = bench(tmp_path, EVERYTHING, *targets)
    assert (code, result.complete) == (0, True), errors
    assert [run.target.name for run in result.runs] == ["no-store", "bare"]
    for run in result.runs:
        (repeat,) = run.repeats
        assert (run.errors, repeat.errors) == ([], [])
        assert (repeat.published_records or 0) > 0
        assert (repeat.stored_records, repeat.disk_bytes) == (None, None)
        left_out = {part.field for part in run.not_done}
        assert left_out >= {"stored_records", "logserver.lookups", "logserver.kill"}


def test_a_ceiling_needs_a_checkout(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    code, errors, result = bench(tmp_path, EVERYTHING, "--target", "bare", "--peers", path)
    assert (code, result.complete) == (3, False)
    assert "load_test: --peers is tests/interop/peers of a checkout" in errors


def test_readers_are_not_limited_by_how_many_files_a_shell_allows(tmp_path: Path) -> None:
    """The run has 150 connections although the soft limit is 100 files."""
    workload = tmp_path / "mine.toml"
    workload.write_text(
        'name = "many"\npartitionsPerTopic = 150\nsubscriptionsPerTopic = 1\n'
        "testDurationMinutes = 0.005\n[logserver]\nrecordsPerRequest = 1\n"
    )
    limited = (
        "import resource, runpy, sys; hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1];"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard));"
        "runpy.run_module('logserver', run_name='__main__')"
    )
    options = ("--quick", "--dir", str(tmp_path), "--target", "logserver-kafka")
    command = [sys.executable, "-P", "-c", limited, "bench", str(workload), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr


def test_a_server_is_measured_by_its_description_and_left_as_it_was(
    tmp_path: Path, repo_root: Path
) -> None:
    description = tmp_path / "server.toml"
    with LogServer() as server:
        ours = (repo_root / SHAPES / f"{OURS}.toml").read_text()
        description.write_text(f'url = "{server.url}"\n{ours}')
        code, errors, result = bench(tmp_path, EVERYTHING, "--target", f"http:{description}")
        with urlopen(f"{server.url}/topics") as answer:
            assert answer.read() == b"[]"
    assert (code, result.complete) == (0, True), errors
    (run,) = result.runs
    assert {lack.field for lack in run.not_done} == {"logserver.kill", "logserver.flush"}
    assert "not done: logserver.kill: its process is not ours" in errors
    assert run.repeats[0].consumed_records == 2 * (run.repeats[0].published_records or 0)
    assert run.repeats[0].server_cpu_s is None


def at_rate(rate: int, seconds: float) -> str:
    """Return a workload of single records over one connection."""
    return (
        f'name = "rate"\nproducerRate = {rate}\nwarmupDurationMinutes = 0\n'
        f"testDurationMinutes = {seconds / 60}\n[logserver]\nrecordsPerRequest = 1\n"
    )


def against_stub(
    tmp_path: Path,
    think_s: Callable[[float], float],
    workload: str,
    python: Sequence[str] = OURSELVES,
) -> tuple[Result, str, list[int], list[int]]:
    """Run against a stub; return the document, standard error, and the times of arrival and answer of its requests."""
    with stub(think_s) as server:
        description = tmp_path / "stub.toml"
        description.write_text(server.description)
        target = f"http:{description}"
        code, errors, result = bench(tmp_path, workload, "--target", target, python=python)
    assert code == 0, errors
    return result, errors, server.came_ns, server.answered_ns


def stalls_once(after_s: float) -> float:
    """Return the delay of a server that stalls from 0.1 s to 1.1 s after the first request."""
    left_s = 0.1 + STALL_S - after_s
    return left_s if 0 < left_s <= STALL_S else 0.0


def test_a_stall_is_charged_to_every_request_that_was_due(tmp_path: Path) -> None:
    """200 of 250 requests are due during a stall, one by one over 0.4 s; the server sees only one of them waiting.

    The server's log gives a lower bound of each latency: the answer cannot have come later, nor the request have been
    due earlier. A late first request reduces each bound by its delay; the test allows for 300 ms.
    """
    rate, seconds = 500, 0.5
    result, _, came_ns, answered_ns = against_stub(
        tmp_path, stalls_once, at_rate(rate, seconds), PATIENT
    )
    repeat = result.runs[0].repeats[0]
    corrected, own = repeat.publish_latency, repeat.publish_service
    assert corrected is not None
    assert own is not None
    assert corrected.count == len(answered_ns) == rate * seconds
    least = HdrHistogram(1, 600 * 10**9, 3)
    for number, at_ns in enumerate(answered_ns):
        least.record_value(max(1, at_ns - came_ns[0] - int(number * 1e9 / rate)))
    for share, told_us in {
        50: corrected.p50_us,
        90: corrected.p90_us,
        99: corrected.p99_us,
        100: corrected.max_us,
    }.items():
        assert told_us is not None
        assert told_us >= least.get_value_at_percentile(share) / 1000 * 0.995
    assert least.get_value_at_percentile(90) >= STALL_S / 2 * 1e9  # so much is in the figures
    assert (own.p90_us or 0) <= (corrected.p90_us or 0)
    waited = sum(
        end - begin >= STALL_S / 2 * 1e9 for begin, end in zip(came_ns, answered_ns, strict=True)
    )
    assert waited < 50  # uncorrected, nearly all were fast


def test_a_rate_that_cannot_be_held_is_told(tmp_path: Path) -> None:
    result, errors, *_ = against_stub(tmp_path, lambda after_s: 0.05, at_rate(1000, 0.05))
    (run,) = result.runs
    (repeat,) = run.repeats
    assert repeat.rate_held is False
    assert repeat.unsent_requests
    assert repeat.published_records_per_s is not None
    assert repeat.published_records_per_s < 1000
    assert run.notes == ["the rate of 1000 records/s was not held in 1 of 1 repeats"]
    assert run.notes[0] in errors


def test_a_server_that_nobody_runs_ends_it(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]  # no server listens on it while it is bound
        description = tmp_path / "stub.toml"
        description.write_text(
            f'name = "gone"\nurl = "http://127.0.0.1:{port}"\n'
            '[produce]\npath = "/"\nbody = "{records}"\nrecord = "1"\n'
        )
        code, errors, result = bench(tmp_path, EVERYTHING, "--target", f"http:{description}")
    assert code == 3
    assert f"error: gone: http://127.0.0.1:{port}: " in errors
    assert "[server-unreachable]" in errors
    assert not result.complete
    assert (result.incomplete_reason or "").startswith("gone: ")


@pytest.mark.parametrize("wrong", [KeyboardInterrupt, ConnectionLost])
def test_what_ends_a_repeat_is_not_hidden_by_topics_that_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: type[BaseException]
) -> None:
    def fail(error: BaseException) -> Callable[[object], None]:
        def failing(self: object) -> None:
            raise error

        return failing

    description = tmp_path / "stub.toml"
    workload = parse_workload(at_rate(100, 0.05).encode(), "mine")
    with stub(lambda after_s: 0.0) as server, asyncio.Runner() as runner:
        description.write_text(server.description)
        target = ForeignServer(
            Bench(tmp_path, runner, Cores(), tmp_path, quick=True), str(description)
        )
        monkeypatch.setattr(Topics, "delete", fail(ConnectionRefusedError("gone")))
        repeat = target.repeat(workload, 0, lambda what: None)
        assert repeat.errors == ["its topics could not be deleted: gone"]
        monkeypatch.setattr(HttpLoad, "run", fail(wrong("first")))
        with pytest.raises(wrong, match="first"):
            target.repeat(workload, 1, lambda what: None)


def test_an_end_offset_that_is_none_is_told(tmp_path: Path) -> None:
    with stub(lambda after_s: 0.0) as server:
        description = tmp_path / "stub.toml"
        description.write_text(f'{server.description}\n[end_offset]\npath = "/"\n')
        code, errors, result = bench(
            tmp_path, at_rate(100, 0.05), "--target", f"http:{description}"
        )
    assert (code, result.complete) == (1, True), errors
    assert result.runs[0].errors[0].startswith("end_offset: b'{}' is not ")


@pytest.mark.slow
def test_what_was_taken_until_an_interrupt_is_kept(tmp_path: Path) -> None:
    """After Ctrl-C in the second workload the first is kept, the document is marked, and the child has ended."""
    short, long = tmp_path / "short.toml", tmp_path / "long.toml"
    short.write_text(at_rate(100, 0.05).replace('"rate"', '"short"'))
    long.write_text(at_rate(100, 600).replace('"rate"', '"long"'))
    found = tmp_path / "result.json"
    process = started(
        short, long, "--json", found, "--dir", tmp_path, "--target", "logserver-kafka"
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "short on logserver-kafka: done" in line:
            break
    children = until(lambda: servers_in(tmp_path))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert "not complete: interrupted" in errors
    assert "Traceback" not in errors
    assert children
    assert until(lambda: not servers_in(tmp_path))
    result = load(found)
    assert (result.complete, result.incomplete_reason) == (False, "interrupted")
    assert [(run.workload.name, len(run.repeats)) for run in result.runs] == [
        ("short", 3),
        ("long", 0),
    ]


def servers_in(folder: Path) -> list[str]:
    """Return the processes that serve a store below a folder."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208
        try:
            words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"serve" in words and any(str(folder).encode() in word for word in words):
            found.append(name)
    return found


def until(found: Callable[[], T]) -> T:
    """Call `found` until it returns something or the time is over; return its last result."""
    deadline_s = time.monotonic() + WAIT_S
    while not (there := found()) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return there


@pytest.mark.parametrize(
    ("arguments", "code", "reported"),
    [
        (["hot"], 2, "'hot' is neither a .toml file nor one of disk-per-keyed-record"),
        (["hot-topic", "--repeat", "2"], 2, "--repeat"),
        (
            ["hot-topic", "--quick", "--target", "moon"],
            2,
            "target: 'moon' is none of logserver-kafka",
        ),
        (["hot-topic", "hot-topic"], 2, "workload: 'hot-topic' is given twice"),
        (
            ["all", "--json", "no/where.json"],
            2,
            "json: no/where.json: the folder no does not exist",
        ),
        (["gone.toml"], 3, "gone.toml: No such file"),
    ],
)
def test_wrong_use_is_told(arguments: list[str], code: int, reported: str) -> None:
    process = started(*arguments)
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == code
    assert reported in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("more", "reported"), [("", []), ("openFiles = 77\n", ["--open-files", "77"])]
)
def test_how_many_files_our_server_may_have_open_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, reported: list[str]
) -> None:
    """Without the option the server's own default applies."""
    commands: list[Sequence[str]] = []

    def running(command: Sequence[str], cores: object) -> AbstractContextManager[Server]:
        commands.append(command)
        return processes.running(command, None)

    monkeypatch.setattr(http_servers, "running", running)
    text = f'name = "w"\nproducersPerTopic = 0\n[logserver]\nfillGB = 0.001\n{more}'
    with asyncio.Runner() as runner:
        bench = Bench(folder=tmp_path, runner=runner, cores=Cores(), peers=tmp_path, quick=False)
        server = http_servers.OurServer(bench, "kafka")
        repeat = server.repeat(parse_workload(text.encode(), "w.toml"), 1, lambda what: None)
    assert (repeat.stored_records, repeat.errors) == (10_000, [])
    ((_, *command),) = commands
    at = command.index("--max-scanned-records") + 2
    assert command[at:] == reported
