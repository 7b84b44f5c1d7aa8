"""The real RocketMQ as a reference: runs scripts of tests/interop/peers/rocketmq and returns their answers as values.

Owns the calls and their errors; must not know the bytes of our stores. Scripts open a copy, so the directory stays
unchanged; only a broker works on the given directory itself. The first call on a machine fetches and compiles the
peer, which takes a minute. One JVM answers all calls of a process that open stores or talk to a broker, and runs
brokers; what holds a store, and a broker that is killed, have processes of their own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.interop.judge import Judge

ROCKETMQ = Path(__file__).resolve().parents[1] / "peers" / "rocketmq"
ENVIRONMENT = {"PEER_JOPTS": "-XX:TieredStopAtLevel=1"}
"""For JVMs that live for seconds: the second compiler would cost more than it gains."""
TIMEOUT_S = 600.0
"""Includes the download of the jars; a broker takes 5 to 10 s. Only a hang takes this long."""
JUDGE = Judge(ROCKETMQ / "judge", ENVIRONMENT)
IN_JUDGE: Final[set[Path]] = set()
"""The directories of the brokers that run in its JVM."""

Row = dict[str, Any]


class PeerError(AssertionError):
    """The real RocketMQ refused, or could not be run. The message holds the command, its status and its last output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketAnswer:
    """The answers of the real RocketMQ, each kind in its order; queues and messages by (topic, queue id)."""

    store: Row = field(default_factory=dict)
    queues: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    messages: dict[tuple[str, int], list[Row]] = field(default_factory=dict)
    log: list[Row] = field(default_factory=list)
    queries: list[Row] = field(default_factory=list)
    times: list[Row] = field(default_factory=list)
    index: list[Row] = field(default_factory=list)
    found: list[Row] = field(default_factory=list)
    sent: list[Row] = field(default_factory=list)
    committed: list[Row] = field(default_factory=list)
    consumed: list[Row] = field(default_factory=list)
    result: Row = field(default_factory=dict)
    odd: list[Row] = field(default_factory=list)


def run_rocketmq_opens(
    directory: Path, sizes: Mapping[str, str], *options: str | Path
) -> RocketAnswer:
    """Let the real store open a copy of a store directory; `options` are the options of rocketmq-opens.

    `sizes` are the lengths of its files under RocketMQ's names. Raises PeerError if the store is refused.
    """
    return _sorted(_lines("rocketmq-opens", directory, *_options(sizes), *options))


def run_rocketmq_opens_each(
    parent: Path, sizes: Mapping[str, str], *options: str | Path
) -> dict[str, RocketAnswer]:
    """Let the real store open a copy of every folder in `parent`, in one JVM; return the answers by folder name.

    `options`: options for sizes and settings. A refused store is reported by a row in `odd`.
    """
    rows: dict[str, list[Row]] = {}
    name = ""
    for line in _lines("rocketmq-opens", parent, *_options(sizes), *options, "--each"):
        if line["kind"] == "dir":
            name = line["name"]
            rows[name] = []
        else:
            rows[name].append(line)
    return {name: _sorted(lines) for name, lines in rows.items()}


def run_config_reads(parent: Path) -> Sequence[Row]:
    """Let the broker's managers load config/ of every folder in `parent`; they delete empty files."""
    return _lines("config-reads", parent)


def _options(sizes: Mapping[str, str]) -> Sequence[str]:
    """Return the options of rocketmq-opens for the lengths of files; other settings are ignored."""
    names = {
        "mappedFileSizeCommitLog": "--commitlog",
        "mappedFileSizeConsumeQueue": "--consumequeue",
        "maxHashSlotNum": "--slots",
        "maxIndexNum": "--indexnum",
    }
    return [
        part for name, option in names.items() if name in sizes for part in (option, sizes[name])
    ]


def _lines(script: str, *arguments: str | Path) -> Sequence[Row]:
    """Return the output rows of a script; raise PeerError if it fails."""
    done = JUDGE.ask(script, *arguments, timeout_s=TIMEOUT_S)
    if done.returncode != 0:
        raise _failure(done)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _sorted(lines: Sequence[Row]) -> RocketAnswer:
    found = RocketAnswer()
    lists = {
        "query": found.queries,
        "time": found.times,
        "index": found.index,
        "found": found.found,
        "sent": found.sent,
        "committed": found.committed,
        "consumed": found.consumed,
        "log": found.log,
        "blank": found.log,
        "appended": [],
    }
    for line in lines:
        kind = line["kind"]
        if kind == "message":
            found.messages.setdefault((line["topic"], line["queueId"]), []).append(line)
        elif kind == "queue":
            found.queues[line["topic"], line["queueId"]] = (line["min"], line["max"])
        elif kind in ("store", "result"):
            getattr(found, kind).update(line)
        else:
            lists.get(kind, found.odd).append(line)
    return found


def write_goldens(folder: Path, seeds: Mapping[str, int]) -> Mapping[str, str | None]:
    """Let the real store write `folder`/PROFILE/store from each profile and its seed, several at a time, and the
    expectation files next to it; return the errors by profile.
    """
    wanted = [f"{profile}:{seed}" for profile, seed in seeds.items()]
    rows = _lines("write-goldens", folder, *wanted)
    assert [row["profile"] for row in rows] == list(seeds)
    return {row["profile"]: row["error"] for row in rows}


def write_golden(folder: Path, *, profile: str, seed: int) -> None:
    """Let the real store write `folder`/store from a profile and a seed, and the expectation files next to it."""
    _lines("write-store", "--golden", folder, "--profile", profile, "--seed", str(seed))


def record_golden(folder: Path, params: Path) -> None:
    """Let the real store write the expectation files next to `folder`/store, which was written elsewhere."""
    _lines("write-store", "--record", folder, params)


def start_broker(
    work: Path, *, port: int, properties: Mapping[str, str], process: bool = False
) -> None:
    """Start a name server on `port` and a real broker on `work`/store itself; end them with stop_broker.

    The broker uses `port`, `port` + 8 and `port` + 10. With `process` it has a process of its own, which can be killed;
    else it runs in the JVM of the other calls, where it starts with a fifth of the work.
    """
    settings = [f"{name}={value}" for name, value in properties.items()]
    _checked("broker", "start" if process else "prepare", work, str(port), *settings)
    if not process:
        _lines("broker-start", work)
        IN_JUDGE.add(work)


def stop_broker(work: Path) -> None:
    """End the broker and the name server that were started in `work`; no error if they have already ended.

    The broker sleeps some 11 s while it stops. Its lock is then free: it releases it, or its process has ended.
    """
    if work in IN_JUDGE:
        _lines("broker-stop", work)
        IN_JUDGE.remove(work)
    else:
        _checked("broker", "stop", work)


def kill_broker(work: Path) -> None:
    """End both at once, as the machine's OOM killer does; no error if they have already ended.

    A broker without a process of its own ends with all that its JVM runs.
    """
    if work in IN_JUDGE:
        JUDGE.end()
        IN_JUDGE.clear()
    for name in ("broker", "namesrv"):
        file = work / f"{name}.pid"
        if file.exists():
            _kill(int(file.read_text()))
            file.unlink()


def _kill(pid: int) -> None:
    """Send SIGKILL and wait for the end: the process's locks are then free, even if no parent has read its status."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    _wait_for_the_end(pid, seconds=30)


def _wait_for_the_end(pid: int, *, seconds: int) -> None:
    deadline = time.monotonic() + seconds
    with suppress(FileNotFoundError, ProcessLookupError):
        while time.monotonic() < deadline:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
            if (
                state in "ZX" and threads <= 1
            ):  # the first thread may end before threads that hold files
                return
            time.sleep(0.05)


@contextmanager
def hold(directory: Path, params: Path) -> Iterator[int]:
    """Run the real store on `directory` itself for a while; yield its process id. Raises PeerError if it refuses."""
    command = [str(ROCKETMQ / "hold"), str(directory), str(params)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "open\n":
            out, err = process.communicate(timeout=TIMEOUT_S)
            raise _failure(subprocess.CompletedProcess(command, process.returncode, out, err))
        yield process.pid
        process.communicate(timeout=TIMEOUT_S)


def talk(port: int, *actions: Sequence[str]) -> RocketAnswer:
    """Let the real client run these actions in turn, and return its answers.

    Actions: ("pull", TOPIC...), ("query", TOPIC, KEY, BEGIN, END), ("send", TOPIC, COUNT), ("timed", TOPIC, COUNT,
    DELAY_MS), ("delayed", TOPIC, COUNT, LEVEL), ("committed", TOPIC, GROUP...), ("consume", TOPIC, GROUP, COUNT,
    FAIL), ("delete", TOPIC...), ("transact", TOPIC, GROUP, COUNT, END), ("answer", TOPIC, GROUP, COUNT, END).
    """
    arguments = [word for action in actions for word in ("--", *action)][1:]
    return _sorted(_lines("talk", f"127.0.0.1:{port}", *arguments))


def _checked(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    done = _run(script, *arguments)
    if done.returncode != 0:
        raise _failure(done)
    return done


def _run(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(ROCKETMQ / script), *map(str, arguments)]
    with subprocess.Popen(
        command,
        env={**ENVIRONMENT, **os.environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise PeerError(f"{' '.join(command)}: no end after {TIMEOUT_S:.0f} s") from error
        finally:
            if process.returncode is None:  # pytest's own timeout may have come first
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _failure(done: subprocess.CompletedProcess[str]) -> PeerError:
    said = (done.stdout[-4000:] + "\n" + done.stderr[-4000:]).strip()
    return PeerError(f"{' '.join(done.args)}: exit status {done.returncode}\n{said}")
