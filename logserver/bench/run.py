"""A benchmark run: workloads in order; for each, the targets take turns, repeat by repeat, into one document.

Owns the order, and what happens on a failure or an interrupt: results measured until then stay in the document, which
says that it is incomplete. Must not know how a target runs a repeat.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

import uvloop

from logserver.bench.ceiling import measure
from logserver.bench.environment import environment, with_peers
from logserver.bench.load_loops import ConnectionLost
from logserver.bench.processes import HOME, Cores, ServerFailed
from logserver.bench.result import Result, Run, errors_of, held
from logserver.bench.targets import make_target
from logserver.bench.targets.base import Bench, Target
from logserver.bench.workload import Workload
from logserver.opening import raise_file_limit
from storage import StorageError, wall_clock_ms

PEERS: Final = HOME / "tests" / "interop" / "peers"  # exists in a checkout only
FAILURES: Final = (StorageError, OSError, ServerFailed, ConnectionLost, TimeoutError)
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
GENERATOR_S, QUICK_GENERATOR_S = 0.5, 0.1
QUICK_REPEATS: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a run. `quick`: one short repeat each; it checks counts, and its figures mean little."""

    workloads: Sequence[Workload]
    targets: Sequence[str]
    repeats: int
    quick: bool
    pinned: bool
    folder: Path | None
    peers: Path
    command: Sequence[str] = ()


class Watching(Protocol):
    """The receiver of progress reports."""

    def at(self, step: int, steps: int, what: str) -> None:
        """Receive progress: called before each repeat and during it."""

    def done(self, run: Run) -> None:
        """Receive a finished run: all repeats of a workload on a target."""


def take(options: Options, watching: Watching, result: Result) -> None:
    """Run all workloads and store their figures in `result`. Raises KeyboardInterrupt, and the error of a target that
    cannot be reached. On any error `result.complete` stays false and `incomplete_reason` says why.
    """
    try:
        with _bench(options) as bench, _targets(options, bench) as targets:
            result.environment = with_peers(
                result.environment,
                {target.facts.kind: target.facts.version for target in targets.values()},
            )
            _generator(options, bench, watching, result)
            _Course(options, targets, watching, result).take()
    except KeyboardInterrupt:
        result.incomplete_reason = "interrupted"
        raise
    except Exception as error:  # any error is recorded in the result, then raised again
        result.incomplete_reason = error_line(error)
        raise
    result.complete = True


def new_result(options: Options) -> Result:
    """Create an empty result document with the environment of this run."""
    began = datetime.fromtimestamp(wall_clock_ms() // 1000, UTC).isoformat()
    made = environment(_cores(options), Path(options.folder or tempfile.gettempdir()))
    return Result(began=began, command=list(options.command), quick=options.quick, environment=made)


def _cores(options: Options) -> Cores:
    return Cores.apart() if options.pinned else Cores()


def problems(result: Result) -> list[str]:
    """Return every error in a document with the run it belongs to; empty if all counts agree."""
    found = []
    for run in result.runs:
        name = f"{run.workload.name} on {run.target.name}"
        found += [f"{name}: {error}" for error in errors_of(run)]
    return found


def error_line(error: BaseException) -> str:
    """Format an error as one line."""
    if isinstance(error, StorageError):
        return " ".join(error.message.split())
    return " ".join(f"{type(error).__name__}: {error}".split())


@contextmanager
def _bench(options: Options) -> Iterator[Bench]:
    """Yield the shared state of a run: a data folder and an event loop. This process is pinned to the generator's cores
    until the block ends.
    """
    cores = _cores(options)
    raise_file_limit()  # each reader opens its own connection
    with (
        tempfile.TemporaryDirectory(prefix="logserver-bench-", dir=options.folder) as folder,
        cores.pinned_generator(),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        yield Bench(Path(folder), runner, cores, options.peers, options.quick)


@contextmanager
def _targets(options: Options, bench: Bench) -> Iterator[Mapping[str, Target]]:
    with ExitStack() as closing:
        targets = {}
        closing.enter_context(_closed_in_peace())
        for name in options.targets:
            target = make_target(name, bench)
            closing.callback(target.close)
            targets[target.facts.name] = target
        closing.callback(_ignore_signals)
        yield targets


@contextmanager
def _closed_in_peace() -> Iterator[None]:
    """Restore the signal handlers of now when the block ends, even if the block set signals to be ignored: targets are
    closed while signals are ignored, so another Ctrl-C leaves no broker running.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _generator(options: Options, bench: Bench, watching: Watching, result: Result) -> None:
    watching.at(0, _steps(options), "the load generator itself")
    seconds = QUICK_GENERATOR_S if options.quick else GENERATOR_S
    result.generator = measure(
        bench.runner, bench.cores, seconds=seconds, repeats=_repeats(options)
    )


def _repeats(options: Options) -> int:
    return QUICK_REPEATS if options.quick else options.repeats


def _steps(options: Options) -> int:
    return len(options.workloads) * len(options.targets) * _repeats(options)


class _Course:
    """The workloads of a run, in order."""

    def __init__(
        self, options: Options, targets: Mapping[str, Target], watching: Watching, result: Result
    ) -> None:
        self._options = options
        self._targets = targets
        self._watching = watching
        self._result = result
        self._step = 0

    def take(self) -> None:
        """Run all workloads. A target that fails in a workload is left out of the rest of that workload."""
        for given in self._options.workloads:
            self._workload(given.quick() if self._options.quick else given)

    def _workload(self, workload: Workload) -> None:
        runs = {name: self._run(workload, target) for name, target in self._targets.items()}
        self._result.runs += runs.values()
        for number in range(_repeats(self._options)):
            for name, run in runs.items():
                self._step += 1
                if not run.errors and not run.notes:
                    self._repeat(workload, number, self._targets[name], run)
        for run in runs.values():
            self._conclude(run)
            self._watching.done(run)

    def _run(self, workload: Workload, target: Target) -> Run:
        run = Run(workload=workload.facts, target=target.facts)
        if workload.own.only_ours and target.facts.kind != "logserver":
            run.notes.append("left out: onlyOurs")
        else:
            run.not_done = target.not_done(workload)
        return run

    def _repeat(self, workload: Workload, number: int, target: Target, run: Run) -> None:
        name = f"{workload.name} on {target.facts.name}, {number + 1} of {_repeats(self._options)}"

        def tell(what: str) -> None:
            self._watching.at(self._step, _steps(self._options), f"{name}: {what}")

        tell("starting")
        try:
            run.repeats.append(target.repeat(workload, number, tell))
        except FAILURES as error:
            run.errors.append(error_line(error))

    def _conclude(self, run: Run) -> None:
        if held(run) is False:
            offered = run.workload.fields["producerRate"]
            lost = sum(repeat.rate_held is False for repeat in run.repeats)
            run.notes.append(
                f"the rate of {offered} records/s was not held in {lost} of {len(run.repeats)} repeats"
            )
