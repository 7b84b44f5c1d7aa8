"""The consumer offsets of groups: the calls of a store, the checks of every backend, the table in memory.

Owns the interface to the part of a store that keeps its offsets, the checks that are independent of a backend's bytes,
and the table of newest offsets; must not know where a backend writes the offsets. The table is not thread-safe: its
owner guards it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

from storage.coding.varint import INT32_MAX, INT64_MAX, INT64_MIN
from storage.errors import InvalidArgument
from storage.model import CommittedOffset, GroupCommit, TopicPartition

MAX_GROUP_BYTES: Final = 255
MAX_METADATA_BYTES: Final = 4096
"""The limit for one offset; Kafka's offset.metadata.max.bytes."""


def check_commits(
    commits: Iterable[GroupCommit],
    *,
    check_partition: Callable[[TopicPartition], object],
    nameless: bool = False,
) -> None:
    """Raise InvalidArgument (field: group, offset, leader_epoch, metadata, commit_timestamp_ms) for values that cannot
    be stored.

    `check_partition` raises for a partition that does not exist. `nameless`: the group with an empty name, of clients
    without a group, may have offsets.
    """
    for group, offsets, _ in commits:
        if group or not nameless:
            check_group(group)
        for partition, committed in offsets.items():
            check_partition(partition)
            _check_offset(group, partition, committed)


def check_group(group: str) -> None:
    """Raise InvalidArgument (field: group) for a name that cannot be stored."""
    size_bytes = len(group.encode("utf-8", "surrogatepass"))
    if not 1 <= size_bytes <= MAX_GROUP_BYTES or not group.isprintable():
        raise InvalidArgument(
            f"group {group[:80]!r} is not 1 to {MAX_GROUP_BYTES} bytes of printable text",
            field="group",
        )


def _check_offset(group: str, partition: TopicPartition, committed: CommittedOffset) -> None:
    metadata_bytes = len(committed.metadata.encode("utf-8", "replace"))
    for field, found, low, high in (
        ("offset", committed.offset, INT64_MIN, INT64_MAX),
        ("leader_epoch", committed.leader_epoch, -1, INT32_MAX),
        ("metadata", metadata_bytes, 0, MAX_METADATA_BYTES),
        ("commit_timestamp_ms", committed.commit_timestamp_ms or 0, 0, INT64_MAX),
    ):
        if not low <= found <= high:
            unit = " bytes" if field == "metadata" else ""
            raise InvalidArgument(
                f"group {group!r}, {partition}: {field} is {found}{unit}, not {low} to {high}",
                field=field,
            )
    if not is_text(committed.metadata):
        raise InvalidArgument(
            f"group {group!r}, {partition}: metadata holds half a surrogate pair", field="metadata"
        )


def is_text(text: str) -> bool:
    """Return whether the text can be written as UTF-8: it contains no half of a surrogate pair."""
    return not any("\ud800" <= unit <= "\udfff" for unit in text)


def at_time(committed: CommittedOffset, now_ms: int) -> CommittedOffset:
    """Return the offset with `now_ms` as its commit time if it has none."""
    if committed.commit_timestamp_ms is not None:
        return committed
    return committed._replace(commit_timestamp_ms=now_ms)


_T = TypeVar("_T")


class OffsetTable(Generic[_T]):
    """The newest offset of every group and partition, as a backend keeps it. Methods return copies."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, _T]] = {}

    def copy(self) -> OffsetTable[_T]:
        """Return an independent table with the same offsets."""
        table = OffsetTable[_T]()
        table._groups = {group: dict(offsets) for group, offsets in self._groups.items()}
        return table

    def groups(self) -> Sequence[str]:
        """Return the groups that have offsets, in order."""
        return sorted(self._groups)

    def of_group(self, group: str) -> Mapping[TopicPartition, _T]:
        """Return a group's offsets by partition, in order; empty for an unknown group."""
        return dict(sorted(self._groups.get(group, {}).items()))

    def of_topic(self, topic: str) -> Sequence[tuple[str, TopicPartition, _T]]:
        """Return the offsets of every group for the partitions of one topic."""
        return [
            (group, partition, offset)
            for group, offsets in self._groups.items()
            for partition, offset in offsets.items()
            if partition.topic == topic
        ]

    def put(self, group: str, partition: TopicPartition, offset: _T) -> None:
        """Store a newer offset."""
        self._groups.setdefault(group, {})[partition] = offset

    def drop(self, group: str, *partitions: TopicPartition) -> None:
        """Remove these offsets of a group, and the group with its last offset."""
        offsets = self._groups.get(group, {})
        for partition in partitions:
            offsets.pop(partition, None)
        if not offsets:
            self._groups.pop(group, None)

    def drop_topics(self, topics: Iterable[str]) -> None:
        """Remove every group's offsets for these topics."""
        for topic in topics:
            for group, partition, _ in self.of_topic(topic):
                self.drop(group, partition)

    def held(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> Sequence[TopicPartition]:
        """Return the partitions, of the given ones (None: all), for which the group has an offset."""
        offsets = self._groups.get(group, {})
        return list(offsets) if partitions is None else [p for p in partitions if p in offsets]


class OffsetKeeper(Protocol):
    """The part of a store that keeps committed offsets. Thread-safe; see SupportsGroupOffsets."""

    def groups(self) -> Sequence[str]:
        """Return the groups that have offsets, in order."""

    def committed(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return a group's offsets by partition, in order."""

    def unstable(self, group: str) -> Collection[TopicPartition]:
        """Return the partitions with an offset of the group in an open transaction."""

    def commit(self, commits: Sequence[GroupCommit], *, durable: bool) -> None:
        """Check the commits and store them."""

    def delete(self, group: str, partitions: Iterable[TopicPartition] | None) -> None:
        """Remove a group's offsets for these partitions (None: all)."""


class KeepsGroupOffsets(ABC):
    """The calls of SupportsGroupOffsets for a store that has an OffsetKeeper."""

    offsets_topic: str | None = None
    _group_offsets: OffsetKeeper

    @abstractmethod
    def _check_open(self) -> None:
        """Raise StoreClosed if the store is closed."""

    @abstractmethod
    def _check_writable(self) -> None:
        """Raise StoreClosed, StoreReadOnly or StoreFenced if the store cannot be written."""

    def groups(self) -> Sequence[str]:
        """See SupportsGroupOffsets."""
        self._check_open()
        return self._group_offsets.groups()

    def committed(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """See SupportsGroupOffsets."""
        self._check_open()
        return self._group_offsets.committed(group)

    def unstable_offsets(self, group: str) -> Collection[TopicPartition]:
        """See SupportsGroupOffsets."""
        self._check_open()
        return self._group_offsets.unstable(group)

    def commit_offsets(self, commits: Sequence[GroupCommit], *, durable: bool = True) -> None:
        """See SupportsGroupOffsets."""
        self._check_writable()
        self._group_offsets.commit(commits, durable=durable)

    def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> None:
        """See SupportsGroupOffsets."""
        self._check_writable()
        self._group_offsets.delete(group, partitions)
