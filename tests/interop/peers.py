"""The real Kafka as the judge: runs the scripts of tests/interop/peers/kafka (and spark) and gives their answers.

Owns the calls and their errors; knows no format. Every call works on a copy of its directory, so the directory
stays as it is; only start_broker works on the directory itself, in a process of its own. All other calls of a process
are answered by one JVM. The first call of a machine fetches and compiles the peer, which takes a minute.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop.judge import Judge

KAFKA = Path(__file__).resolve().parent / "peers" / "kafka"
SPARK = KAFKA.parent / "spark"
TIMEOUT_S = 600.0
"""Fetching the jars included; a broker takes 5 to 10 s. Only a hang takes so long."""
CHECK_S = 60.0
"""More for each folder whose indexes are checked."""
JUDGE = Judge(KAFKA / "judge")


class PeerError(AssertionError):
    """The real Kafka refused, or could not be run. The message holds the command, its status and its last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAnswer:
    """What the real Kafka read. Records and times by (topic, partition), in the peer's order."""

    records: dict[tuple[str, int], list[dict[str, Any]]] = field(default_factory=dict)
    times: dict[tuple[str, int], list[tuple[int, dict[str, Any] | None]]] = field(
        default_factory=dict
    )
    summaries: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    groups: list[dict[str, Any]] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    warnings: str = ""


def run_kafka_opens(directory: Path, *options: str, check: bool = True) -> KafkaAnswer:
    """Let the real Kafka open a copy of a log directory and read all of it; `options` go to kafka-opens.

    Raises PeerError unless everything could be read; with `check` False only when the broker did not start.
    """
    done = _ask("kafka-opens", directory, *options)
    if done.returncode not in ({0} if check else {0, 1}):
        raise _failure(done)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    answer = KafkaAnswer(lines=lines, warnings=done.stderr)
    for line in lines:
        _sort_in(answer, line)
    return answer


def _sort_in(answer: KafkaAnswer, line: dict[str, Any]) -> None:
    if "group" in line:
        answer.groups.append(line)
        return
    partition = (line["topic"], line["partition"])
    if "earliest" in line:
        answer.summaries[partition] = line
        answer.records.setdefault(partition, [])
    elif "time" in line:
        answer.times.setdefault(partition, []).append((line["time"], line["found"]))
    elif "offset" in line:
        answer.records.setdefault(partition, []).append(line)


def run_read_small_files(files: Iterable[Path]) -> dict[Path, dict[str, Any]]:
    """What Kafka's own readers make of these files (give copies): "read", or "error" and "message"."""
    done = _ask("read-small-files", *files)
    if done.returncode != 0:
        raise _failure(done)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return {Path(answer["file"]): answer for answer in answers}


def run_read_messages(file: Path) -> list[dict[str, Any]]:
    """What Kafka's own classes read of the messages in a file of lines `NAME VERSION HEX`, in its order."""
    done = _ask("read-messages", file)
    if done.returncode != 0:
        raise _failure(done)
    return [json.loads(line) for line in done.stdout.splitlines()]


def index_check(directories: Iterable[Path]) -> None:
    """Let the real Kafka check every index of these partition directories; PeerError has the reason."""
    folders = list(directories)
    assert all(list(folder.glob("*.log")) for folder in folders), "not all are partition folders"
    if not folders:
        raise PeerError("no partition folders")
    done = _ask("index-check", *folders, timeout_s=TIMEOUT_S + CHECK_S * len(folders))
    if done.returncode != 0 or done.stdout.strip() != "ok":
        raise _failure(done)


def dump_log(files: Iterable[Path], *options: str) -> str:
    """What Kafka's own dump tool prints for these files (.log, .index, .timeindex, .snapshot, .txnindex); `options`:
    how records of internal topics are decoded.
    """
    asked = ("--deep-iteration", "--print-data-log", *options)
    done = _ask("dump-log", *asked, "--files", ",".join(map(str, files)))
    if done.returncode != 0:
        raise _failure(done)
    return done.stdout


def start_broker(work: Path, *, port: int, log_dir: Path, properties: Sequence[str] = ()) -> None:
    """Start a real broker on `log_dir` itself, no copy; it takes `port` and `port` + 1. End it by stop_broker."""
    environment = {"BROKER_PROPS": "\n".join(properties)}
    done = _run("broker", "start", work, str(port), log_dir, environment=environment)
    if done.returncode != 0:
        raise _failure(done)


def adopt(work: Path, *, port: int, log_dir: Path) -> None:
    """Before the first start in `work`: the partition folders in `log_dir`, written by anyone, are the broker's."""
    done = _run("broker", "adopt", work, str(port), log_dir)
    if done.returncode != 0:
        raise _failure(done)


def stop_broker(work: Path, *, kill: bool = False) -> None:
    """End the broker that was started in `work`, cleanly or (`kill`) at once; no error when it has ended before."""
    done = _run("broker", "kill" if kill else "stop", work)
    if done.returncode != 0:
        raise _failure(done)


def broker_tool(tool: str, address: str, *options: str) -> str:
    """What one of Kafka's own tools tells of a running broker: produce, consume, topics, offsets or groups."""
    done = _ask(tool, "--bootstrap-server", address, *options)
    if done.returncode != 0:
        raise _failure(done)
    return done.stdout


def connector_jars() -> list[Path]:
    """The jars of Spark's own Kafka connector, fetched where they are missing."""
    done = _run("setup", folder=SPARK)
    if done.returncode != 0:
        raise _failure(done)
    return [Path(line) for line in done.stdout.splitlines()]


def _ask(
    script: str, *arguments: str | Path, timeout_s: float = TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    return JUDGE.ask(script, *arguments, timeout_s=timeout_s)


def _run(
    script: str,
    *arguments: str | Path,
    environment: dict[str, str] | None = None,
    folder: Path = KAFKA,
) -> subprocess.CompletedProcess[str]:
    command = [str(folder / script), *map(str, arguments)]
    with subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
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
            if process.returncode is None:  # pytest's own limit may have been the first
                os.killpg(process.pid, signal.SIGTERM)  # the script then ends its broker
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _failure(done: subprocess.CompletedProcess[str]) -> PeerError:
    said = (done.stdout[-4000:] + "\n" + done.stderr[-4000:]).strip()
    return PeerError(f"{' '.join(done.args)}: exit status {done.returncode}\n{said}")
