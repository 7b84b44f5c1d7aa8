"""Rows of the request benchmark: processor time of a request next to bare aiohttp, and the calls of our functions.

Owns the servers in this process, the load generator in a second process, and the count of calls; must not time a turn
by itself: harness.py does. `scripts/bench_http` runs it. Calls are counted by a profile function in every thread of a
server of its own, so they do not depend on the machine: a test keeps them from growing.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, Self

import uvloop

import api
import logserver
import storage
from api.server import Server, keep_freed_memory
from logserver.bench.environment import versions
from logserver.bench.load_loops import Closed
from logserver.bench.wire import Address
from logserver.config import Settings
from logserver.opening import plan_store
from logserver.service.service import LogService
from scripts.bench.ceilings import LISTEN, running_bare
from scripts.bench.harness import Bench, Row, Turn, parser, run
from scripts.bench.http_work import FETCH, PRODUCE, RAW, RAW_FETCH, RAW_PRODUCE, Case, Target
from storage.kafka.format import batch

BENCH: Final = "bench_http"
OWN: Final = tuple(
    f"{Path(package.__file__ or '').parent}/" for package in (api, logserver, storage)
)
REQUESTS: Final = 4000  # of a timed turn: a second of processor time
RAW_REQUESTS: Final = 200
COUNTED: Final = 64  # requests whose calls are counted, after as many that fill the caches
LONGEST_S: Final = 120.0
BACKENDS: Final = ("kafka", "rocketmq")
CASES: Final = (
    Case(PRODUCE, 1, 1, "1"),
    Case(PRODUCE, 1, 16, "1"),
    Case(PRODUCE, 100, 16, "1"),
    Case(FETCH, 5, 1, None),
    Case(FETCH, 5, 16, None),
    Case(RAW_PRODUCE, 1, 4, "1"),
    Case(RAW_FETCH, 1, 4, None),
)


class Calls(NamedTuple):
    """Calls per request of a row: of our own functions by name, and of all Python functions."""

    own: dict[str, float]
    all: float

    def __str__(self) -> str:
        """List the calls by package: of the codecs in `storage` a compiled package has no calls."""
        layers: defaultdict[str, float] = defaultdict(float)
        for name, count in self.own.items():
            layers[name.partition("/")[0]] += count
        listed = ", ".join(f"{layer} {layers[layer]:.0f}" for layer in sorted(layers))
        return f"{listed}; {self.all:.0f} in all"


class Profile:
    """Counts calls in all threads that begin while it is on, and in the current one."""

    def __init__(self) -> None:
        self.is_counting = False
        self._counts: dict[tuple[int, CodeType], int] = {}  # no thread writes another's entry

    def _event(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and self.is_counting:
            key = threading.get_ident(), frame.f_code
            self._counts[key] = self._counts.get(key, 0) + 1

    @contextmanager
    def on(self) -> Iterator[None]:
        """Watch the threads; calls count only while `is_counting` is set."""
        threading.setprofile(self._event)
        sys.setprofile(self._event)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def calls(self, requests: int) -> Calls:
        """Return the calls per request."""
        own: Counter[str] = Counter()
        for (_, code), count in self._counts.items():
            if code.co_filename.startswith(OWN):
                place = next(folder for folder in OWN if code.co_filename.startswith(folder))
                file = code.co_filename.removeprefix(str(Path(place).parent) + "/")
                own[f"{file}:{code.co_qualname}"] += count
        named = {name: count / requests for name, count in own.most_common()}
        return Calls(named, sum(self._counts.values()) / requests)


class Load:
    """The load generator: a process of its own, which outlives the turns."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def turn(self, url: str, requests: Sequence[bytes], connections: int, count: int) -> Turn:
        """Send `count` requests in a closed loop, while the servers of this process run."""

        async def served() -> tuple[int, float]:
            loop = asyncio.get_running_loop()
            arguments = url, list(requests), connections, count
            begun_s = time.process_time()
            answered = await loop.run_in_executor(self._pool, generate, *arguments)
            return answered, time.process_time() - begun_s

        answered, seconds = self._runner.run(served())
        return Turn(answered, seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._pool.shutdown()


def generate(url: str, requests: Sequence[bytes], connections: int, count: int) -> int:
    """Send requests until `count` are answered; return the number of those with 2xx. Runs in the generator."""
    turn = Closed(requests, seconds=LONGEST_S, most=count)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(turn.run(Address.of(url), connections)).good


@asynccontextmanager
async def running_ours(folder: Path, backend: str) -> AsyncIterator[str]:
    """Run our server on a new store inside the block; yield its URL."""
    settings = Settings(data=folder / "data", listen=LISTEN, backend=backend)
    service = LogService(settings, plan_store(settings).open)
    server = Server(service)
    await server.listen()
    await service.start()
    try:
        yield server.url
    finally:
        await server.stop()


@contextmanager
def serving(runner: asyncio.Runner, folder: Path, backend: str | None) -> Iterator[str]:
    """Run our server, or the bare one for None, on the loop of `runner`; it serves while the loop runs."""
    server = running_bare() if backend is None else running_ours(folder, backend)
    url = runner.run(server.__aenter__())
    try:
        yield url
    finally:
        runner.run(server.__aexit__(None, None, None))


def requests_of(runner: asyncio.Runner, url: str, case: Case, *, counts: bool) -> list[bytes]:
    """Return the requests of a case; its topic is created, and filled for a fetch."""
    target = Target(Address.of(url), counts=counts)
    return runner.run(_in_thread(target, case))


async def _in_thread(target: Target, case: Case) -> list[bytes]:
    return (await asyncio.to_thread(target.work, case)).requests


def count_calls(load: Load, runner: asyncio.Runner, case: Case, backend: str) -> Calls:
    """Return the calls per request of a case, on a server of its own."""
    profile = Profile()
    with (
        tempfile.TemporaryDirectory() as folder,
        profile.on(),
        serving(runner, Path(folder), backend) as url,
    ):
        requests = requests_of(runner, url, case, counts=True)
        load.turn(url, requests, case.concurrency, COUNTED)
        profile.is_counting = True
        load.turn(url, requests, case.concurrency, COUNTED)
        profile.is_counting = False
    return profile.calls(COUNTED)


def all_rows(
    load: Load, runner: asyncio.Runner, only: str, *, quick: bool
) -> Iterator[tuple[Row, Calls]]:
    """Yield the rows with `only` in their names, and their calls per request. The servers of a row run until the next
    row is requested.
    """
    for backend in BACKENDS:
        for case in CASES:
            name = f"{backend} {case.name}"
            if only not in name or (case.operation in RAW and backend != "kafka"):
                continue
            count = COUNTED if quick else RAW_REQUESTS if case.operation in RAW else REQUESTS
            calls = count_calls(load, runner, case, backend)
            with (
                tempfile.TemporaryDirectory() as folder,
                serving(runner, Path(folder), backend) as url,
                serving(runner, Path(folder), None) as bare_url,
            ):
                ours = requests_of(runner, url, case, counts=True)
                bare = requests_of(runner, bare_url, case, counts=False)
                yield (
                    Row(
                        name=name,
                        unit="request",
                        ours=partial(load.turn, url, ours, case.concurrency, count),
                        peer=partial(load.turn, bare_url, bare, case.concurrency, count),
                        peer_name="bare aiohttp",
                        expected=count,
                        latency=True,
                    ),
                    calls,
                )


def main() -> int:
    """Measure every selected row and report."""
    options = parser("a request against bare aiohttp", "no effect: nothing here needs Java")
    options.add_argument("--calls", action="store_true", help="list the functions of each row")
    given = options.parse_args()
    compiled = not batch.__file__.endswith(".py")
    bench = Bench(name=BENCH, compiled=compiled, quick=given.quick, repeats=given.repeats)
    about = versions("aiohttp", "uvloop", "msgspec")

    def rows(load: Load, runner: asyncio.Runner) -> Iterator[Row]:
        for row, calls in all_rows(load, runner, given.only, quick=given.quick):
            about[f"calls of {row.name}"] = str(calls)
            if given.calls:
                bench.console.print(row.name)
                for name, count in calls.own.items():
                    bench.console.print(f"{count:8.2f} {name}", soft_wrap=True)
            yield row

    keep_freed_memory()  # as `logserver serve` does; for bare aiohttp too
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, Load(runner) as load:
        return run(bench, rows(load, runner), given, about)
