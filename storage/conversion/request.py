"""The request of a conversion: its arguments, the topics that it selects, and their names in the target.

Owns these shapes and the choice of the topics; must not convert a record.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from storage.columns import SPLIT_BYTES
from storage.contract import StoreOptions, TaskRunner
from storage.conversion.counters import Fates, Tally
from storage.conversion.sources import Source
from storage.conversion.topic_names import topic_name
from storage.errors import InvalidArgument, InvalidTopic, UnknownTopic
from storage.model import TopicPartition

KAFKA: Final = "kafka"
ROCKETMQ: Final = "rocketmq"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The arguments of a conversion.

    - `topics` empty: all topics except the server's own.
    - `replace`: a target that an earlier conversion of the same source made may be replaced.
    - `run`: does the work in parts of about `split_bytes`; None: the work is done here, record by record.
    """

    source: Path
    target: Path
    to: str
    encode: bool = False
    replace: bool = False
    topics: Sequence[str] = ()
    options: StoreOptions = field(default_factory=StoreOptions)
    target_options: StoreOptions = field(default_factory=StoreOptions)
    run: TaskRunner | None = None
    split_bytes: int = SPLIT_BYTES


@dataclass(slots=True)
class Selection:
    """The selected topics, by their names in the source; `names`: their names in the target."""

    topics: dict[str, Sequence[int]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def addresses(self) -> Sequence[TopicPartition]:
        """Return every selected partition, in order."""
        return [TopicPartition(t, n) for t, numbers in self.topics.items() for n in numbers]

    def renamed(self, address: TopicPartition) -> TopicPartition:
        """Return the partition in the target."""
        return TopicPartition(self.names[address.topic], address.partition)


def select(source: Source, order: Order, fates: Fates) -> Selection:
    """Return the selected topics; topics whose names the target does not allow are counted in `fates`.

    Raises UnknownTopic.
    """
    found = source.topics()
    for topic in order.topics:
        if topic not in found:
            raise UnknownTopic(topic, found)
    selection = Selection()
    for topic in order.topics or [t for t in found if not source.is_internal(t)]:
        try:
            name = _new_name(topic, order, selection.names.values())
        except InvalidTopic as error:
            _leave_out(source, topic, found[topic], error.message, fates.left_out)
            continue
        if name != topic:
            for number in found[topic]:
                _tell_all(source, TopicPartition(topic, number), f"is {name!r}", fates.encoded)
        selection.topics[topic] = found[topic]
        selection.names[topic] = name
    return selection


def _new_name(topic: str, order: Order, others: Collection[str]) -> str:
    """Return the topic's name in the target. Raises InvalidTopic."""
    name = topic_name(topic, to=order.to, encode=order.encode)
    if name in others:
        raise InvalidTopic(f"topic name {topic!r}: another topic is {name!r} there", topic=topic)
    return name


def _leave_out(
    source: Source, topic: str, partitions: Sequence[int], why: str, tally: Tally
) -> None:
    for number in partitions:
        _tell_all(source, TopicPartition(topic, number), why, tally)


def _tell_all(source: Source, address: TopicPartition, why: str, tally: Tally) -> None:
    start, stable, _ = source.bounds(address)
    if stable > start:
        tally.add(address, start, "topic", why, records=stable - start)


def check_direction(backend: str, to: str) -> None:
    """Raise InvalidArgument unless a store of `backend` can be converted to `to`."""
    if to not in (KAFKA, ROCKETMQ):
        raise InvalidArgument(f"to {to!r}: choose kafka or rocketmq", field="to")
    if backend == to:
        raise InvalidArgument(
            f"the source is a {to} store already: copy the directory, or use `logserver salvage`",
            field="to",
        )
