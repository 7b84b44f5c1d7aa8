"""`load_test http`: its options, its servers, and the output of the report.

Owns the servers under load: own stores or a running server, and the ceilings. Must not know how a turn is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import uvloop
from rich.console import Console

from logserver.bench.ceiling import measure
from logserver.bench.environment import machine, versions
from logserver.bench.load_loops import ConnectionLost
from logserver.bench.processes import Cores, Server, ServerFailed, running, store_server
from logserver.bench.targets.http_servers import CEILINGS, serve_command
from logserver.bench.wire import Address, call
from scripts.bench.http_report import CLOSED, OPEN, Report
from scripts.bench.http_run import QUICK, Amounts, Loaded, Run, cases
from scripts.bench.http_work import OPERATIONS, LoadRefused, Target
from storage import is_compiled

T = TypeVar("T")

SCRIPTS: Final = Path(__file__).resolve().parents[1]
BACKENDS: Final = ("kafka", "rocketmq")
TABLE_WIDTH: Final = 240  # without a terminal
STANDARD_OUTPUT: Final = Path("-")
FAILURES: Final = (LoadRefused, ConnectionLost, ServerFailed, OSError)


def add_options(options: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    add = options.add_argument
    add("--backend", choices=(*BACKENDS, "both"), default="both")
    add("--flush", choices=("sync", "async", "os"), default="sync")
    add("--url", type=_url, help="a running server, instead of own ones")
    add("--pid", type=int, help="its process, for its processor time")
    add("--no-ceiling", action="store_true", help="without the servers that store nothing")
    add(
        "--operations",
        type=_list(_operation),
        default=OPERATIONS,
        metavar="NAME,...",
        help=", ".join(OPERATIONS),
    )
    add("--records", type=_list(_count), metavar="N,...", help="a request; 1,100,1000")
    add("--concurrency", type=_list(_count), metavar="N,...", help="connections; 1,16,64")
    add("--acks", type=_list(_acks), metavar="ACKS,...", help="1,all")
    add("--loop", choices=(CLOSED, OPEN, "both"), default="both")
    add("--rate", type=_positive, help="requests/s of an open loop; half of what the slowest does")
    add("--rounds", type=_count, help="turns of each server in a row; 5")
    add("--seconds", type=_positive, help="of a turn; 1")
    add("--only", default="", metavar="TEXT", help="rows with TEXT in their name")
    add("--no-pin", action="store_true", help="any core for anybody")
    add(
        "--quick",
        action="store_true",
        help="seconds in all: counts are checked, figures say little",
    )
    add("--dir", type=Path, help="where stores are made; the temporary folder")
    add("--json", type=Path, metavar="FILE", help="the report as JSON; - is standard output")
    add("--markdown", action="store_true", help="the table as Markdown")
    add("--plot", type=_picture, metavar="FILE", help="a picture: .svg or .png")


def _list(kind: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """Return a parser of values separated by commas."""
    return lambda text: tuple(kind(part) for part in text.split(","))


def _url(text: str) -> str:
    try:
        Address.of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 1")
    return int(text)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def _one_of(text: str, known: Sequence[str]) -> str:
    if text not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(known)}")
    return text


def _operation(text: str) -> str:
    return _one_of(text, OPERATIONS)


def _acks(text: str) -> str:
    return _one_of(text, ("1", "all"))


def _picture(text: str) -> Path:
    _one_of(Path(text).suffix, (".svg", ".png"))
    return Path(text)


def main(given: argparse.Namespace) -> int:
    """Run the load test and report. Returns 0; 1 for a wrong count or a failed server; 130 after an interrupt."""
    amounts = _amounts(given)
    cores = Cores() if given.no_pin else Cores.apart()
    console = Console(stderr=True, highlight=False)
    report = Report(_about(cores), _settings(given, amounts))
    status = 0
    try:
        with _servers(given, cores) as servers, _runner(cores) as runner:
            generator = measure(runner, cores, seconds=amounts.seconds, repeats=amounts.rounds)
            report.generator_requests_per_s = generator.ceiling_requests_per_s
            run = Run(servers, amounts, runner, report)
            _take_all(run, given, amounts, console)
    except FAILURES as error:
        console.print(f"load_test: {type(error).__name__}: {error}", markup=False)
        status = 1
    except KeyboardInterrupt:
        status = 130
    _write(report, given)
    return status or (0 if report.ok else 1)


def _take_all(run: Run, given: argparse.Namespace, amounts: Amounts, console: Console) -> None:
    loops = (CLOSED, OPEN) if given.loop == "both" else (given.loop,)
    wanted = cases(amounts, given.operations, given.only)
    with console.status("") as status:
        for number, case in enumerate(wanted, 1):
            for name in run.take(case, loops, given.rate):
                status.update(f"{number} of {len(wanted)}: {name}")
            console.print(f"  {number} of {len(wanted)}: {case.name}: done")


@contextmanager
def _servers(given: argparse.Namespace, cores: Cores) -> Iterator[Mapping[str, Loaded]]:
    """Yield the servers under load by name; when the block ends their topics are deleted."""
    servers: dict[str, Loaded] = {}
    with ExitStack() as closing:
        prefix = f"load-{secrets.token_hex(3)}"

        def add(name: str, server: Server, *, counts: bool, raw: bool) -> None:
            target = Target(Address.of(server.url), counts=counts, prefix=prefix)
            closing.callback(target.close)
            servers[name] = Loaded(server, target, raw)

        if given.url is not None:
            backend = call(Address.of(given.url), "GET", "/store").json()["backend"]
            add(backend, Server(given.url, given.pid), counts=True, raw=backend == "kafka")
        else:
            folder = Path(closing.enter_context(tempfile.TemporaryDirectory(dir=given.dir)))
            for backend in BACKENDS if given.backend == "both" else (given.backend,):
                command = store_server(backend, folder / backend, given.flush)
                server = closing.enter_context(running(command, cores.servers))
                add(backend, server, counts=True, raw=backend == "kafka")
        for kind in () if given.no_ceiling else CEILINGS:
            server = closing.enter_context(running(serve_command(SCRIPTS, kind), cores.servers))
            add(kind, server, counts=False, raw=True)
        yield servers


@contextmanager
def _runner(cores: Cores) -> Iterator[asyncio.Runner]:
    """Yield the generator's event loop, pinned to its core."""
    with cores.pinned_generator(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner


def _amounts(given: argparse.Namespace) -> Amounts:
    names = ("records", "concurrency", "acks", "rounds", "seconds")
    asked = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    return replace(QUICK if given.quick else Amounts(), **asked)


def _about(cores: Cores) -> dict[str, str]:
    about = machine() | {"package": "compiled" if is_compiled() else "plain Python"}
    about["pinned"] = "no" if cores.generator is None else "generator and servers apart"
    return about | versions("aiohttp", "uvloop", "msgspec", "hdrhistogram")


def _settings(given: argparse.Namespace, amounts: Amounts) -> dict[str, Any]:
    return {
        "backend": given.backend,
        "flush": given.flush,
        "url": given.url,
        "rate": given.rate,
        "rounds": amounts.rounds,
        "seconds": amounts.seconds,
    }


def _write(report: Report, given: argparse.Namespace) -> None:
    """Write each requested form of the report; the table too, unless standard output is used for JSON or Markdown."""
    if given.json == STANDARD_OUTPUT:
        print(report.to_json())
    elif given.json is not None:
        given.json.write_text(report.to_json() + "\n", encoding="utf-8")
    if given.markdown:
        print(report.markdown())
    elif given.json != STANDARD_OUTPUT:
        console = Console(highlight=False)
        report.print(
            console if console.is_terminal else Console(highlight=False, width=TABLE_WIDTH)
        )
    if given.plot is not None:
        from scripts.bench.http_plot import draw  # importing the drawing library takes a second

        draw(report, given.plot)
