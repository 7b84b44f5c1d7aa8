"""The options of a write: parsed and checked; errors name the option.

Owns names, defaults and precedence. Must not open a store or know Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from logserver.pipeline.read.options import Given, wrong
from storage.errors import InvalidArgument

BACKENDS: Final = {"kafka": "kafka", "rocketmq": "rocketmq"}
COMPRESSIONS: Final = {
    "kafka": ("none", "gzip", "snappy", "lz4", "zstd"),
    "rocketmq": ("none", "zlib", "lz4", "zstd"),
}
MAX_PARTITIONS: Final = 10_000  # of a topic, in both backends
NAMES: Final = (
    "path",
    "url",
    "token",
    "backend",
    "topic",
    "numPartitions",
    "compression",
    "queryId",
    "checkpointLocation",
    "queryName",
)
"""The last two are Spark's own."""
_FOR_A_DIRECTORY: Final = ("backend", "compression")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write. Either `path` or `url` is set."""

    path: str | None
    url: str | None
    token: str | None
    backend: str | None
    topic: str | None
    new_partitions: int | None
    compression: str | None
    query_id: str | None
    settings: Mapping[str, str]


def parse_write_options(options: Mapping[str, str], *, overwrite: bool) -> WriteOptions:
    """Check the options of one write. Raises InvalidArgument, which names the option."""
    if overwrite:
        raise InvalidArgument(
            'mode: "overwrite" (of a stream: outputMode "complete") is refused, since a log is '
            'appended to: use mode("append"), into a store that is there or under a new path',
            field="mode",
        )
    given = Given(options, NAMES)
    given.refuse_unknown()
    url = given.text("url")
    if url is not None:
        given.refuse((*_FOR_A_DIRECTORY, "path"), "is for a directory, not for a server (url)")
    elif given.text("token") is not None:
        raise wrong("token", "is for a server: give its url")
    backend = given.parsed("backend", _backend)
    return WriteOptions(
        path=None if url is not None else given.path(),
        url=url,
        token=given.text("token"),
        backend=backend,
        topic=given.text("topic") or None,
        new_partitions=given.parsed("numPartitions", _partitions),
        compression=given.text("compression"),
        query_id=given.parsed("queryId", _query_id),
        settings=given.settings(),
    )


def check_compression(compression: str | None, backend: str) -> None:
    """Raise InvalidArgument for a codec that this backend does not support."""
    if compression is not None and compression not in COMPRESSIONS[backend]:
        raise wrong("compression", f"{compression!r} is none of {', '.join(COMPRESSIONS[backend])}")


def _backend(name: str, text: str) -> str:
    if text.lower() not in BACKENDS:
        raise wrong(name, f"{text!r} is none of {', '.join(BACKENDS)}")
    return BACKENDS[text.lower()]


def _partitions(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= MAX_PARTITIONS:
        raise wrong(name, f"{text!r} is no whole number from 1 to {MAX_PARTITIONS}")
    return int(text)


def _query_id(name: str, text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", text):
        raise wrong(name, f"{text!r} is not 1 to 100 letters, digits, '.', '_' and '-'")
    return text
