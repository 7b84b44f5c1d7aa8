"""A reader of every record of some topics that keeps its offsets itself: RocketMQ's broadcast mode.

Owns the file of offsets and where a partition begins; must not commit to the server. Each member of a group in this
mode reads all partitions. As the Java client's LocalFileOffsetStore does, it keeps how far it has read in a folder:

    offsets.json        {"offsets": [{"topic": "t", "partition": 0, "offset": 7}, ...]}, the next offset of each
    offsets.json.bak    the content before, which counts if offsets.json is missing or cannot be read

A partition that the file does not name begins at `offset_reset`. There are no retries: a record that cannot be
processed is the reader's own matter.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Final, Protocol, Self

import msgspec

from logserver.client.consumer import GroupConsumer
from logserver.client.transport import Transport
from logserver.client.values import (
    FetchedRecord,
    OffsetRange,
    PartitionOffset,
    PartitionOffsets,
    TopicDescription,
    names_of,
)
from logserver.errors import ClientError, ServerRefused
from storage import Isolation, TopicPartition

OFFSETS_FILE: Final = "offsets.json"
BACKUP: Final = ".bak"
TEMPORARY: Final = ".tmp"
LOOK_AGAIN_S = 10.0


class Calls(Protocol):
    """The calls of a client that this consumer makes itself."""

    transport: Transport

    async def topic(self, topic: str) -> TopicDescription:
        """Return a topic's partitions and configs."""

    async def offsets(self, topic: str, partition: int = 0) -> OffsetRange:
        """Return the first and the next offset of a partition."""


class BroadcastConsumer(GroupConsumer):
    """A consumer of all partitions of its topics. Use it as `async with`; one call at a time.

    Partitions that are added later are read from their first record; a poll looks for them every `LOOK_AGAIN_S`.

    `commit` stores in the folder how far all taken records go, and syncs it; nothing is committed on the server. Two
    consumers must not share a folder. A partition whose stored offset the log no longer has begins at `offset_reset`.
    """

    def __init__(
        self,
        calls: Calls,
        group: str,
        topics: Sequence[str],
        folder: Path,
        *,
        offset_reset: str = "earliest",
        isolation: Isolation | None = None,
    ) -> None:
        super().__init__(calls.transport, group, offset_reset=offset_reset, isolation=isolation)
        self._calls = calls
        self._topics = names_of(topics)
        self._file = folder / OFFSETS_FILE
        self._reset = offset_reset
        self._offsets: dict[TopicPartition, int] = {}
        self._look_again_s = 0.0

    async def __aenter__(self) -> Self:
        self._offsets = dict(await asyncio.to_thread(stored_offsets, self._file))
        found = [await self._calls.topic(topic) for topic in self._topics]
        self._partitions = [
            TopicPartition(topic, number)
            for topic, described in zip(self._topics, found, strict=True)
            for number in described.partitions
        ]
        self._look_again_s = time.monotonic() + LOOK_AGAIN_S
        await super().__aenter__()
        try:
            await self._begin()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def commit(self) -> None:
        """Store how far all taken records go; durable on return. Raises OSError."""
        taken, self._taken = self._taken, {}
        if taken:
            offsets = self._offsets | {place: offset + 1 for place, offset in taken.items()}
            try:
                await asyncio.to_thread(store_offsets, self._file, offsets)
            except BaseException:
                self._taken = taken | self._taken
                raise
            self._offsets = offsets

    async def _polled(self, timeout_ms: int, max_bytes: int | None) -> list[FetchedRecord]:
        if time.monotonic() >= self._look_again_s:
            await self._add_partitions()
        return await super()._polled(timeout_ms, max_bytes)

    async def _add_partitions(self) -> None:
        """Read the partitions that the topics got meanwhile too, from their first records."""
        added: list[TopicPartition] = []
        for topic in self._topics:
            try:
                described = await self._calls.topic(topic)
            except ServerRefused as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
                continue  # deleted meanwhile
            every = [TopicPartition(topic, number) for number in described.partitions]
            added += [place for place in every if place not in self._partitions]
        if added:
            partitions = [*self._partitions, *added]
            await self._assign(partitions)
            await self.seek_to_beginning(added)
            self._partitions = partitions
        self._look_again_s = time.monotonic() + LOOK_AGAIN_S

    async def _begin(self) -> None:
        """Move to the stored offsets. The server's own commits for this group do not count."""
        known: dict[TopicPartition, int] = {}
        for place in self._partitions:
            stored = self._offsets.get(place)
            bounds = await self._calls.offsets(*place)
            if stored is not None and bounds.beginning_offset <= stored <= bounds.end_offset:
                known[place] = stored
        fresh = [place for place in self._partitions if place not in known]
        if known:
            await self.seek(known)
        if fresh and self._reset == "latest":
            await self.seek_to_end(fresh)
        elif fresh:
            await self.seek_to_beginning(fresh)


def stored_offsets(path: Path) -> Mapping[TopicPartition, int]:
    """Return the stored offsets; none if neither the file nor the one before exists. Raises ClientError if no existing
    file can be read.
    """
    problem: Exception | None = None
    for tried in (path, path.with_name(path.name + BACKUP)):
        try:
            decoded = msgspec.json.decode(tried.read_bytes(), type=PartitionOffsets)
        except FileNotFoundError:
            continue
        except (OSError, msgspec.MsgspecError) as error:
            problem = problem or error
        else:
            return {TopicPartition(row.topic, row.partition): row.offset for row in decoded.offsets}
    if problem is not None:
        raise ClientError(f"{path}: the stored offsets cannot be read: {problem}")
    return {}


def store_offsets(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the stored offsets, and keep the content before as the backup, unless it is damaged; durable on return.

    Raises OSError.
    """
    rows = [PartitionOffset(*place, offset) for place, offset in sorted(offsets.items())]
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError, msgspec.MsgspecError):
        before = path.read_bytes()
        msgspec.json.decode(
            before, type=PartitionOffsets
        )  # a damaged file must not replace a good backup
        _replace(path.with_name(path.name + BACKUP), before)
    _replace(path, msgspec.json.encode(PartitionOffsets(rows)))
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + TEMPORARY)
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
