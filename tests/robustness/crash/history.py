"""The operations of a workload and their answers as notes, and the guarantees that follow from them after a crash.

Owns the record of requests, answers, reads, topics and deletions, at one moment of a workload; must not touch a store.
Every value contains its request and its index in it (`value_of`), so the origin of any record can be identified.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from storage import (
    ProducerSequence,
    Record,
    StoredModernGroup,
    StoredModernMember,
    TopicPartition,
)


class Sent(NamedTuple):
    """A sent request, with its producer and its idempotency key if it has them.

    `durable`: its answer waits for the disk. `key`: repeats of the request use this key.
    """

    request: int
    partition: TopicPartition
    records: Sequence[Record]
    producer: ProducerSequence | None
    durable: bool
    key: str | None = None


class Acked(NamedTuple):
    """The answer to a request: the offset of its first record."""

    request: int
    base_offset: int


class Flushed(NamedTuple):
    """A flush: everything that was answered up to these requests is on disk, whatever their acks."""

    requests: frozenset[int]


class Served(NamedTuple):
    """A read: a reader received these values, from this offset on."""

    partition: TopicPartition
    offset: int
    values: Sequence[bytes]


class Recovered(NamedTuple):
    """The records found by a start, from this offset on; they are on disk from then on."""

    partition: TopicPartition
    offset: int
    values: Sequence[bytes]


class TopicMade(NamedTuple):
    """The return of the call that creates a topic."""

    name: str
    partitions: int


class TopicGrowing(NamedTuple):
    """The start of the call that gives a topic this many partitions; TopicMade follows."""

    name: str
    partitions: int


class TopicGoing(NamedTuple):
    """The start of the deletion of a topic."""

    name: str


class TopicGone(NamedTuple):
    """The return of the call that deletes a topic."""

    name: str


class HeadGoing(NamedTuple):
    """The permission to delete records before these offsets, from here on."""

    starts: dict[TopicPartition, int]


class HeadGone(NamedTuple):
    """The return of the call that deletes the records of a partition before this offset."""

    partition: TopicPartition
    start: int


class Committing(NamedTuple):
    """The start of an offset commit (None: a deletion) of a group, and whether its answer waits for the disk."""

    number: int
    group: str
    partition: TopicPartition
    offset: int | None
    durable: bool


class Committed(NamedTuple):
    """The return of the call that commits an offset."""

    number: int


class MembersGoing(NamedTuple):
    """The start of a write of a group's members: the generation, and whether its answer waits for the disk.

    None: the group is deleted.
    """

    number: int
    group: str
    generation: int | None
    durable: bool


class MembersGone(NamedTuple):
    """The return of the call that writes a group's members."""

    number: int


class Closed(NamedTuple):
    """The return of a clean stop of the store; valid until the next change."""


Note: TypeAlias = (
    Sent
    | Acked
    | Flushed
    | Served
    | Recovered
    | TopicMade
    | TopicGrowing
    | TopicGoing
    | TopicGone
    | HeadGoing
    | HeadGone
    | Committing
    | Committed
    | MembersGoing
    | MembersGone
    | Closed
)


def value_of(request: int, index: int, size_bytes: int = 0) -> bytes:
    """Return the value of a request's record, with `size_bytes` of padding."""
    return b"%d.%d " % (request, index) + b"x" * size_bytes


def origin_of(value: bytes | None) -> tuple[int, int]:
    """Return the request and the index that a value contains; (-1, -1) if the value contains none."""
    request, dot, index = (value or b"").partition(b" ")[0].partition(b".")
    return (int(request), int(index)) if dot and (request + index).isdigit() else (-1, -1)


@dataclass
class History:
    """All notes up to one moment."""

    sent: dict[int, Sent] = field(default_factory=dict)
    acked: dict[int, int] = field(default_factory=dict)  # request -> base offset
    flushed: set[int] = field(default_factory=set)
    served: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    recovered: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    growing: dict[str, int] = field(default_factory=dict)
    going: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    heads: dict[TopicPartition, int] = field(default_factory=dict)
    commits: dict[int, Committing] = field(default_factory=dict)  # in commit order
    committed: set[int] = field(default_factory=set)
    members: dict[int, MembersGoing] = field(default_factory=dict)  # in the order of the writes
    written: set[int] = field(default_factory=set)
    closed: bool = False

    def note(self, note: Note) -> None:
        """Add one note."""
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
            case MembersGoing() | MembersGone():
                self._note_members(note)
            case Closed():
                self.closed = True
            case _:
                self._note_topics(note)

    def _note_members(self, note: MembersGoing | MembersGone) -> None:
        if isinstance(note, MembersGoing):
            self.members[note.number] = note
        else:
            self.written.add(note.number)

    def _note_topics(
        self, note: TopicMade | TopicGrowing | TopicGoing | TopicGone | HeadGoing | HeadGone
    ) -> None:
        match note:
            case TopicMade(name, partitions):
                self.topics[name] = self.growing[name] = partitions
            case TopicGrowing(name, partitions):
                self.growing[name] = partitions
            case TopicGoing(name):
                self.going.add(name)
            case TopicGone(name):
                self.gone.add(name)
            case HeadGoing(starts):
                self.starts.update(starts)
            case HeadGone(partition, start):
                self.heads[partition] = start

    def copy(self) -> History:
        """Return a copy that can be continued separately."""
        return History(
            dict(self.sent),
            dict(self.acked),
            set(self.flushed),
            {partition: dict(seen) for partition, seen in self.served.items()},
            {partition: dict(seen) for partition, seen in self.recovered.items()},
            dict(self.topics),
            dict(self.growing),
            set(self.going),
            set(self.gone),
            dict(self.starts),
            dict(self.heads),
            dict(self.commits),
            set(self.committed),
            dict(self.members),
            set(self.written),
            self.closed,
        )

    def facts(self) -> Hashable:
        """Return everything that a check reads from the history, comparable within the same workload."""
        return (
            tuple((sent.request, sent.partition) for sent in self.sent.values()),
            tuple(self.acked.items()),
            frozenset(self.flushed),
            tuple((partition, tuple(seen.items())) for partition, seen in self.served.items()),
            tuple((partition, tuple(seen.items())) for partition, seen in self.recovered.items()),
            tuple(self.topics.items()),
            tuple(self.growing.items()),
            frozenset(self.going),
            frozenset(self.gone),
            tuple(self.starts.items()),
            tuple(self.heads.items()),
            tuple(self.commits.values()),
            frozenset(self.committed),
            tuple(self.members.values()),
            frozenset(self.written),
            self.closed,
        )

    def is_durable(self, request: int) -> bool:
        """Return whether the request was answered with a promise of durability, or a flush came after its answer."""
        return request in self.acked and (self.sent[request].durable or request in self.flushed)

    def promised(self, partition: TopicPartition, *, killed: bool) -> dict[int, bytes | None]:
        """Return the values that must exist, by offset.

        After a kill these are all answered values, after a power loss the durable ones. Values before a deleted head
        are left out.
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
        """Return, by group and partition, the commits that may be in effect.

        These are the last commit with a lasting answer and any commit begun after it. Without such an answer the group
        may also have no offset. Commits to deleted topics are left out.
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

    def members_allowed(self, *, killed: bool) -> dict[str, list[int | None]]:
        """Return, by group, the generations that may be stored (None: none); see `offsets_allowed`."""
        found: dict[str, list[int | None]] = {}
        for write in self.members.values():
            kept = write.number in self.written and (killed or write.durable)
            before = [] if kept else found.get(write.group, [None])
            found[write.group] = [*before, write.generation]
        return found

    def forget_lost_commits(self) -> None:
        """Drop, after a power loss, the answers to commits and writes of members that did not wait for the disk."""
        self.committed = {n for n in self.committed if self.commits[n].durable}
        self.written = {n for n in self.written if self.members[n].durable}

    def forget_lost(self, partition: TopicPartition, end: int) -> None:
        """Drop, after a power loss, the answers and reads of records that were lost and not promised as durable."""
        for request, base in list(self.acked.items()):
            sent = self.sent[request]
            if sent.partition == partition and base + len(sent.records) > end:
                del self.acked[request]
        seen = self.served.get(partition, {})
        for offset in [offset for offset in seen if offset >= end]:
            del seen[offset]


def modern_group(name: str, epoch: int) -> StoredModernGroup:
    """Return a group of the new protocol that names its epoch everywhere; every other one has a member less."""
    slot = bytes(16), epoch
    members = [
        StoredModernMember(
            f"m{n}", None, None, "c", "/h", epoch, None, ("t",), None, epoch, epoch, 1,
            {slot: epoch}, {}, frozenset({slot}),
        )
        for n in range(1 + epoch % 2)
    ]  # fmt: skip
    return StoredModernGroup(name, epoch, epoch, epoch, epoch, members, {})
