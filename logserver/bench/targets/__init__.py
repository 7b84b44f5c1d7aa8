"""Benchmark targets: our server with either backend, the real brokers, and any HTTP server.

Owns the target interface and the target names. Each other module of this package is one kind; kinds must not know each
other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from logserver.bench.processes import Cores
from logserver.bench.result import NotDone, Repeat, TargetFacts
from logserver.bench.workload import Workload
from storage.errors import InvalidArgument

Tell = Callable[[str], None]
HTTP: Final = "http:"


@dataclass(frozen=True, slots=True)
class Bench:
    """The state that all targets of a run share: `folder` for their data, and `peers`, which is tests/interop/peers."""

    folder: Path
    runner: asyncio.Runner
    cores: Cores
    peers: Path
    quick: bool


class Target(Protocol):
    """A target that can be put under load."""

    @property
    def facts(self) -> TargetFacts:
        """The facts of this target for a result document."""

    def not_done(self, workload: Workload) -> list[NotDone]:
        """Return the fields of this workload that the target does not support."""

    def repeat(self, workload: Workload, number: int, tell: Tell) -> Repeat:
        """Run one repeat on new topics. Raises OSError, StorageError, ServerFailed, ConnectionLost or TimeoutError."""

    def close(self) -> None:
        """Stop the processes that were started, and remove their data."""


Maker = Callable[[Bench], Target]


def _ours(backend: str) -> Maker:
    def make(bench: Bench) -> Target:
        from logserver.bench.targets.ours import OurServer

        return OurServer(bench, backend)

    return make


def _kafka(bench: Bench) -> Target:
    from logserver.bench.targets.broker import RealBroker
    from logserver.bench.targets.kafka import Kafka

    return RealBroker(bench, Kafka(bench))


def _rocketmq(bench: Bench) -> Target:
    from logserver.bench.targets.broker import RealBroker
    from logserver.bench.targets.rocketmq import RocketMQ

    return RealBroker(bench, RocketMQ(bench))


KINDS: Final[Mapping[str, Maker]] = {
    "logserver-kafka": _ours("kafka"),
    "logserver-rocketmq": _ours("rocketmq"),
    "kafka": _kafka,
    "rocketmq": _rocketmq,
}
"""The targets that have a name; an HTTP server is `http:` and the path of its description."""


def name_of(target: str) -> str:
    """Return the name that a target has in the result. For a server's description: raises InvalidArgument, OSError."""
    if target.startswith(HTTP):
        from logserver.bench.http_templates import load_shape

        return load_shape(target.removeprefix(HTTP)).name
    return target


def make_target(name: str, bench: Bench) -> Target:
    """Create a target by name. Raises InvalidArgument, OSError, ServerUnreachable, StrangeAnswer, ServerNotStarted,
    ServerFailed.
    """
    if name.startswith(HTTP):
        from logserver.bench.targets.foreign import ForeignServer

        return ForeignServer(bench, name.removeprefix(HTTP))
    if name not in KINDS:
        known = ", ".join((*KINDS, f"{HTTP}FILE.toml"))
        raise InvalidArgument(f"target: {name!r} is none of {known}", field="target")
    return KINDS[name](bench)
