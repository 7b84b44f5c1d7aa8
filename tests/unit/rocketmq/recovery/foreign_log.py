"""Helpers that write a store as another program would: a log with messages at any offsets, and config/topics.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from storage import open_inspector
from storage.contract import StoreOptions, SupportsInspect
from storage.conversion.records import HOST, QueuedMessage
from storage.conversion.rocketmq_writer import LogWriter
from storage.model import RawMessage, TopicPartition
from storage.rocketmq.format.config_json import encode_config
from storage.rocketmq.format.properties import encode_properties
from tests.unit.rocketmq.workshop import LOG_BYTES, ROOT, SMALL, Workshop, put_file


class Message:
    """A message to store: its topic, queue, queue offset, value and properties."""

    def __init__(
        self, topic: str, offset: int, value: bytes, *, queue_id: int = 0, **properties: str
    ) -> None:
        self.address = TopicPartition(topic, queue_id)
        self.offset = offset
        self.value = value
        self.properties = properties


def write_log(shop: Workshop, messages: Sequence[Message]) -> None:
    """Write a store that consists of a commit log alone; store times are one second apart."""
    shop.fs.make_dir(ROOT)
    writer = LogWriter(shop.fs, ROOT, LOG_BYTES, position=0)
    for number, message in enumerate(messages):
        raw = RawMessage(
            body=message.value,
            properties=encode_properties({"KEYS": message.value.decode(), **message.properties}),
        )
        time_ms = shop.clock.now_ms + 1000 * number
        writer.add(message.address, QueuedMessage(raw, message.offset, time_ms, HOST))
    writer.finish(last=True)


def write_topics(shop: Workshop, topics: Mapping[str, Mapping[str, Any]]) -> None:
    """Write config/topics.json with these entries."""
    shop.fs.make_dir(ROOT / "config")
    content = encode_config({"topicConfigTable": {name: dict(of) for name, of in topics.items()}})
    put_file(shop.fs, ROOT / "config/topics.json", content)


@contextmanager
def inspector(
    shop: Workshop, settings: Mapping[str, str] | None = None
) -> Iterator[SupportsInspect]:
    """Yield an inspector of the store, and close it at the end."""
    options = StoreOptions(settings={**SMALL, **(settings or {})})
    with closing(open_inspector(ROOT, options, fs=shop.fs, clock=shop.clock)) as found:
        yield found


def found_by_verify(shop: Workshop) -> list[tuple[str, str, str | None]]:
    """Return the findings of verify as (code, severity, topic)."""
    with inspector(shop) as tools:
        return [(f.code, f.severity, f.topic) for f in tools.verify()]
