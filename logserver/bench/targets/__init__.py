"""Benchmark targets: our server with either backend, the real brokers, servers without a store, any HTTP server.

Owns the target names. `base` has the interface; the other modules are kinds, which must not know each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from logserver.bench.http_templates import load_shape
from logserver.bench.targets.base import Bench, Target
from logserver.bench.targets.broker import RealBroker
from logserver.bench.targets.http_servers import CEILINGS, Ceiling, ForeignServer, OurServer
from logserver.bench.targets.kafka import Kafka
from logserver.bench.targets.rocketmq import RocketMQ
from storage.errors import InvalidArgument

HTTP: Final = "http:"
# The targets without a description; each maker gets the state of the run and the name.
KINDS: Final[Mapping[str, Callable[[Bench, str], Target]]] = {
    "logserver-kafka": lambda bench, _: OurServer(bench, "kafka"),
    "logserver-rocketmq": lambda bench, _: OurServer(bench, "rocketmq"),
    "kafka": lambda bench, _: RealBroker(bench, Kafka(bench)),
    "rocketmq": lambda bench, _: RealBroker(bench, RocketMQ(bench)),
    **dict.fromkeys(CEILINGS, Ceiling),
}


def name_of(target: str) -> str:
    """Return the name that a target has in the result. For a server's description: raises InvalidArgument, OSError."""
    return load_shape(target.removeprefix(HTTP)).name if target.startswith(HTTP) else target


def make_target(name: str, bench: Bench) -> Target:
    """Create a target by name. Raises InvalidArgument, OSError, ServerUnreachable, StrangeAnswer, ServerNotStarted,
    ServerFailed.
    """
    if name.startswith(HTTP):
        return ForeignServer(bench, name.removeprefix(HTTP))
    if name not in KINDS:
        known = ", ".join((*KINDS, f"{HTTP}FILE.toml"))
        raise InvalidArgument(f"target: {name!r} is none of {known}", field="target")
    return KINDS[name](bench, name)
