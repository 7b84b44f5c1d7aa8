"""Benchmark targets: our server with either backend, the real brokers, servers without a store, and any HTTP
server.

Owns the target names. `base` has the interface; each other module is one kind, and kinds must not know each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from logserver.bench.targets.base import Bench, Target
from storage.errors import InvalidArgument

HTTP: Final = "http:"

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


def _ceiling(name: str) -> Maker:
    def make(bench: Bench) -> Target:
        from logserver.bench.targets.ceilings import Ceiling

        return Ceiling(bench, name)

    return make


def _rocketmq(bench: Bench) -> Target:
    from logserver.bench.targets.broker import RealBroker
    from logserver.bench.targets.rocketmq import RocketMQ

    return RealBroker(bench, RocketMQ(bench))


KINDS: Final[Mapping[str, Maker]] = {
    "logserver-kafka": _ours("kafka"),
    "logserver-rocketmq": _ours("rocketmq"),
    "kafka": _kafka,
    "rocketmq": _rocketmq,
    "no-store": _ceiling("no-store"),
    "bare": _ceiling("bare"),
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
