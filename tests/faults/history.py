"""What a workload did and was told: the notes it makes, and what follows from them for whatever comes after a crash.

Owns the record of requests, answers, reads, topics and deletions, at one moment of a workload; must not touch a store.
Every value names its request and its place in it (`value_of`), so that a record found anywhere tells where it is from.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from storage import ProducerSequence, Record, TopicPartition


class Sent(NamedTuple):
    """A request is on its way: its number, where to, what, whose, whether its answer waits for the disk, and by which
    key it is repeated.
    """

    request: int
    partition: TopicPartition
    records: Sequence[Record]
    producer: ProducerSequence | None
    durable: bool
    key: str | None = None


class Acked(NamedTuple):
    """Its answer came: the first record's offset."""

    request: int
    base_offset: int


class Flushed(NamedTuple):
    """Everything that was answered up to these requests is on disk, whatever their acks."""

    requests: frozenset[int]


class Served(NamedTuple):
    """A reader saw these values, from this offset on."""

    partition: TopicPartition
    offset: int
    values: Sequence[bytes]


class Recovered(NamedTuple):
    """A start found these values, on disk from then on, from this offset on."""

    partition: TopicPartition
    offset: int
    values: Sequence[bytes]


class TopicMade(NamedTuple):
    """The call that makes a topic returned."""

    name: str
    partitions: int


class TopicGoing(NamedTuple):
    """A topic is being deleted."""

    name: str


class TopicGone(NamedTuple):
    """The call that deletes a topic returned."""

    name: str


class HeadGoing(NamedTuple):
    """Records before these offsets may be deleted from here on."""

    starts: dict[TopicPartition, int]


class Committing(NamedTuple):
    """A group is committing an offset (None: is deleting it), and whether the answer waits for the disk."""

    number: int
    group: str
    partition: TopicPartition
    offset: int | None
    durable: bool


class Committed(NamedTuple):
    """The call that commits returned."""

    number: int


class Closed(NamedTuple):
    """The store was stopped, and the call returned; true until the next change."""


Note: TypeAlias = (
    Sent
    | Acked
    | Flushed
    | Served
    | Recovered
    | TopicMade
    | TopicGoing
    | TopicGone
    | HeadGoing
    | Committing
    | Committed
    | Closed
)


def value_of(request: int, index: int, size_bytes: int = 0) -> bytes:
    """The value of a request's record, filled up to a size."""
    return b"%d.%d " % (request, index) + b"x" * size_bytes


def origin_of(value: bytes | None) -> tuple[int, int]:
    """The request and the place in it that a value names; (-1, -1) when it names none."""
    request, dot, index = (value or b"").partition(b" ")[0].partition(b".")
    return (int(request), int(index)) if dot and (request + index).isdigit() else (-1, -1)


@dataclass
class History:
    """All that was noted up to a moment."""

    sent: dict[int, Sent] = field(default_factory=dict)
    acked: dict[int, int] = field(default_factory=dict)  # request -> base offset
    flushed: set[int] = field(default_factory=set)
    served: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    recovered: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    going: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    commits: dict[int, Committing] = field(default_factory=dict)  # in their order
    committed: set[int] = field(default_factory=set)
    closed: bool = False

    def note(self, note: Note) -> None:
        """One more thing is true."""
        match note:
            case Sent(request):
                self.sent[request] = note
            case Acked(request, base_offset):
                self.acked[request] = base_offset
            case Flushed(requests):
                self.flushed |= requests
            case Served(partition, offset, values):
                self.served.setdefault(partition, {}).update(enumerate(values, offset))
            case Recovered(partition, offset, values):
                self.recovered.setdefault(partition, {}).update(enumerate(values, offset))
            case Committing(number):
                self.commits[number] = note
            case Committed(number):
                self.committed.add(number)
            case Closed():
                self.closed = True
            case _:
                self._note_topics(note)

    def _note_topics(self, note: TopicMade | TopicGoing | TopicGone | HeadGoing) -> None:
        match note:
            case TopicMade(name, partitions):
                self.topics[name] = partitions
            case TopicGoing(name):
                self.going.add(name)
            case TopicGone(name):
                self.gone.add(name)
            case HeadGoing(starts):
                self.starts.update(starts)

    def copy(self) -> History:
        """The same, to be gone on with apart."""
        return History(
            dict(self.sent),
            dict(self.acked),
            set(self.flushed),
            {partition: dict(seen) for partition, seen in self.served.items()},
            {partition: dict(seen) for partition, seen in self.recovered.items()},
            dict(self.topics),
            set(self.going),
            set(self.gone),
            dict(self.starts),
            dict(self.commits),
            set(self.committed),
            self.closed,
        )

    def facts(self) -> Hashable:
        """All that a check asks of it, to be compared with another of the same workload."""
        return (
            tuple((sent.request, sent.partition) for sent in self.sent.values()),
            tuple(self.acked.items()),
            frozenset(self.flushed),
            tuple((partition, tuple(seen.items())) for partition, seen in self.served.items()),
            tuple((partition, tuple(seen.items())) for partition, seen in self.recovered.items()),
            tuple(self.topics.items()),
            frozenset(self.going),
            frozenset(self.gone),
            tuple(self.starts.items()),
            tuple(self.commits.values()),
            frozenset(self.committed),
            self.closed,
        )

    def is_durable(self, request: int) -> bool:
        """Whether an answer was given that promised the disk, or a flush came after it."""
        return request in self.acked and (self.sent[request].durable or request in self.flushed)

    def promised(self, partition: TopicPartition, *, killed: bool) -> dict[int, bytes | None]:
        """The values that must be there, by offset: after a kill all that was answered, after a power loss what was
        durable. Those before a deleted head are left out.
        """
        found: dict[int, bytes | None] = {}
        for request, base in self.acked.items():
            sent = self.sent[request]
            if sent.partition == partition and (killed or self.is_durable(request)):
                found.update((base + n, record.value) for n, record in enumerate(sent.records))
        for offset, value in self.served.get(partition, {}).items():
            sent = self.sent[origin_of(value)[0]]
            if killed or sent.durable:
                found[offset] = value
        found.update(self.recovered.get(partition, {}))
        start = self.starts.get(partition, 0)
        return {offset: value for offset, value in found.items() if offset >= start}

    def offsets_allowed(
        self, *, killed: bool
    ) -> dict[tuple[str, TopicPartition], list[Committing]]:
        """By group and partition the commits that may count: the last one that was answered for good, and any begun
        after it. Without such an answer there may be no offset, too. Those of deleted topics are left out.
        """
        found: dict[tuple[str, TopicPartition], list[Committing]] = {}
        for commit in self.commits.values():
            if commit.partition.topic in self.going:
                continue
            key = commit.group, commit.partition
            kept = commit.number in self.committed and (killed or commit.durable)
            none = commit._replace(number=0, offset=None)
            found[key] = [commit] if kept else [*found.get(key, [none]), commit]
        return found

    def forget_lost_commits(self) -> None:
        """After a power loss: answers to commits that did not wait for the disk are no answers any more."""
        self.committed = {n for n in self.committed if self.commits[n].durable}

    def forget_lost(self, partition: TopicPartition, end: int) -> None:
        """After a power loss: answers without a promise whose records are gone are no answers any more."""
        for request, base in list(self.acked.items()):
            sent = self.sent[request]
            if sent.partition == partition and base + len(sent.records) > end:
                del self.acked[request]
        seen = self.served.get(partition, {})
        for offset in [offset for offset in seen if offset >= end]:
            del seen[offset]
