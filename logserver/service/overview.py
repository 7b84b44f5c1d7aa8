"""The overview of a server for people: its store, health and disk, and a page of its topics and groups.

Owns the choice of topics and groups that one page shows, so that a store of 10,000 topics costs no more than one of 50.
Must not know HTTP or how a page looks. The store is asked in threads.
"""

from __future__ import annotations

import shutil
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from logserver.errors import UnknownGroup
from logserver.groups.overview import GroupOverview
from logserver.service.service import Health, LogService
from storage import LogStore, OffsetBounds, StoreStats, TopicInfo, TopicPartition
from storage.errors import NotOffered, UnknownPartition, UnknownTopic

PAGE_TOPICS: Final = 50
PAGE_PARTITIONS: Final = 2000  # read for one page, unless its first topic alone has more
PAGE_GROUPS: Final = 25
_OWN: Final = "."  # cursors of the two kinds of topics: topics of users come first
_INTERNAL: Final = "~"


class DiskSpace(NamedTuple):
    """The size of the file system that holds the store, and the part that is free."""

    total_bytes: int
    free_bytes: int


class PartitionRange(NamedTuple):
    """The offsets of one partition, and the size of its log; None if the partitions share one log."""

    number: int
    bounds: OffsetBounds
    size_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOverview:
    """One topic with all its partitions that are served."""

    info: TopicInfo
    partitions: Sequence[PartitionRange]

    @property
    def offsets(self) -> int:
        """The number of offsets from the first to the next, in all partitions."""
        return sum(bounds.end - bounds.start for _, bounds, _ in self.partitions)

    @property
    def used(self) -> Sequence[PartitionRange]:
        """The partitions that hold a record, or have held one."""
        return [partition for partition in self.partitions if partition.bounds.end > 0]

    @property
    def size_bytes(self) -> int | None:
        """The size of all logs; None if the topics share one log."""
        sizes = [size for _, _, size in self.partitions if size is not None]
        return sum(sizes) if len(sizes) == len(self.partitions) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsPage:
    """Some topics, users' topics first, each kind by name. `before`, `after`: the number of topics that are left out
    on each side; `next_cursor`: where the next page begins, None on the last page.
    """

    topics: Sequence[TopicOverview]
    before: int
    after: int
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One look at a server. `groups` None: the backend keeps no groups."""

    health: Health
    stats: StoreStats
    disk: DiskSpace | None
    topics: TopicsPage
    groups: Sequence[GroupOverview] | None
    groups_left_out: int


async def look(service: LogService, cursor: str = "") -> Overview:
    """Return the overview, with the page of topics that begins after `cursor`. Raises NotReady."""
    access = service.topics.access
    infos = list(service.topics.values())
    topics = await access.run(topics_page, access.store, infos, cursor)
    groups, groups_left_out = await _groups_page(service)
    return Overview(
        health=await service.health(),
        stats=await service.stats(),
        disk=await access.run(disk_space, service.settings.data),
        topics=topics,
        groups=groups,
        groups_left_out=groups_left_out,
    )


async def _groups_page(service: LogService) -> tuple[Sequence[GroupOverview] | None, int]:
    """Return the first groups and the number of groups that are left out; None if the backend keeps no groups."""
    try:
        names = await service.groups.names()
    except NotOffered:
        return None, 0
    groups: list[GroupOverview] = []
    for name in names[:PAGE_GROUPS]:
        with suppress(UnknownGroup):  # it has ended in the meantime
            groups.append(await service.groups.overview(name))
    return groups, max(len(names) - PAGE_GROUPS, 0)


def disk_space(path: Path) -> DiskSpace | None:
    """Return the space of the file system that holds a directory; None if it cannot be read."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None
    return DiskSpace(usage.total, usage.free)


def topics_page(store: LogStore, infos: Sequence[TopicInfo], cursor: str) -> TopicsPage:
    """Return the page of topics after `cursor`, which is empty or from another page. Blocks.

    A topic that is deleted in the meantime is left out.
    """
    ordered = sorted(infos, key=_position)
    begin = bisect_right(ordered, cursor, key=_position) if cursor else 0
    topics: list[TopicOverview] = []
    read = 0
    end = begin
    for info in ordered[begin : begin + PAGE_TOPICS]:
        read += len(info.partitions)
        if topics and read > PAGE_PARTITIONS:
            break
        with suppress(UnknownTopic, UnknownPartition):
            topics.append(_topic(store, info))
        end += 1
    after = len(ordered) - end
    return TopicsPage(
        topics=topics,
        before=begin,
        after=after,
        next_cursor=_position(ordered[end - 1]) if after and end else None,
    )


def _position(info: TopicInfo) -> str:
    """Return the place of a topic in the order of all pages, which is also its cursor."""
    return (_INTERNAL if info.internal else _OWN) + info.name


def _topic(store: LogStore, info: TopicInfo) -> TopicOverview:
    addresses = [TopicPartition(info.name, number) for number in info.partitions]
    return TopicOverview(
        info=info,
        partitions=[
            PartitionRange(at.partition, store.bounds(at), store.log_bytes(at)) for at in addresses
        ],
    )
