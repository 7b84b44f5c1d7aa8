"""Parameters of several operations: all of a path, and those that more than one resource reads; values of configs.

Owns their names, kinds, defaults and texts; must not know operations. A resource's own parameters are constants of its
module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from api.http.negotiation import FORMATS
from api.http.parameters import MAX_INT32, Choice, Integer, Parameter, Text

MAX_PAGE_BYTES: Final = 64 << 20
MAX_LEVEL: Final = 255
ConfigValue: TypeAlias = str | int | float | bool

_PATH_PARAMETERS: Final[Mapping[Parameter[Any], str]] = {
    Parameter("topic", Text(1), "Name of the topic, percent-encoded."): "orders",
    Parameter("partition", Integer(0, MAX_INT32), "Number of the partition."): "0",
    Parameter(
        "message_id",
        Text(1),
        "Id of a record: `topic:partition:offset` (Kafka), or the offset id, 32 or 56 hex digits (RocketMQ).",
    ): "orders:0:0",
    Parameter("group", Text(1), "Name of the consumer group, percent-encoded."): "billing",
    Parameter("instance", Text(1), "Name of the consumer instance, percent-encoded."): "worker-1",
    Parameter(
        "cluster_id",
        Text(1),
        "The cluster: `cluster.id` of a Kafka store's `meta.properties`, else `logserver`.",
    ): "MkU3OEVBNTcwNTJENDM2Qg",
    Parameter("broker_id", Text(1), "The broker: always 1."): "1",
    Parameter(
        "consumer_id", Text(1), "Name of the consumer instance, percent-encoded."
    ): "worker-1",
    Parameter("name", Text(1), "Name of a config."): "retention.ms",
    Parameter(
        "transaction", Text(1), "Id of the transaction, from `POST /transactions`."
    ): "1125899906842624-0",
}
PATH: Final[Mapping[str, Parameter[Any]]] = {one.name: one for one in _PATH_PARAMETERS}
SAMPLES: Final[Mapping[str, str]] = {one.name: text for one, text in _PATH_PARAMETERS.items()}
"""The values of path parameters in examples."""

FORMAT: Final = Parameter(
    "format",
    Choice(FORMATS),
    "Form of keys and values in JSON: base64, JSON itself, or text. Takes precedence over the media types.",
)
TAG: Final = Parameter("tag", Text(), "Only records with this tag.")
CURSOR: Final = Parameter("cursor", Text(), "Where to continue: take it from `next`.")


def config_text(value: ConfigValue) -> str:
    """Convert a config value to text, as in the reference implementation."""
    return str(value).lower() if isinstance(value, bool) else str(value)
