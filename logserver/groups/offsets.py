"""The path of committed offsets to the store and back.

Owns the queue of commits: the commits that arrive during a store call go into one next call, so one sync serves them
all. Must not know HTTP. Commits are stored in the order in which they were submitted, and a read shows all commits
that were submitted before it. Use it on the event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from logserver.errors import Busy, InvalidGroup
from logserver.service.topics import TopicCatalog
from storage import (
    CommittedOffset,
    GroupCommit,
    StorageError,
    SupportsGroupOffsets,
    SupportsHalfMessages,
    TopicPartition,
)
from storage.errors import CallerError, NotOffered

log = logging.getLogger(__name__)

Acknowledgement: TypeAlias = "asyncio.Future[None]"


class Offsets:
    """Commits and look-ups of all groups of one store."""

    def __init__(self, topics: TopicCatalog, live: Collection[str]) -> None:
        """Create the queue. `live`: the groups that have members, as they are at the moment."""
        self._topics = topics
        self._access = topics.access
        self._live = live
        store = topics.access.store
        self._own_group = (
            store.half_messages.group if isinstance(store, SupportsHalfMessages) else None
        )
        self._groups: set[str] = set()
        self._counted = False  # whether `_groups` holds all groups of the store
        self._counting: asyncio.Task[None] | None = None
        self._queue: list[tuple[GroupCommit, Acknowledgement]] = []
        self._last: Acknowledgement | None = None  # of the newest commit: when it is done, all are
        self._draining: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to count the existing groups."""
        if self._counting is None:
            self._counting = asyncio.create_task(self._count())

    async def stop(self) -> None:
        """Store the submitted commits."""
        await self.settled()
        if self._counting is not None:
            await asyncio.wait((self._counting,))

    async def _count(self) -> None:
        try:
            self._groups = {*await self.groups(), *self._live}
            self._counted = True
        except StorageError as error:
            log.warning("the groups could not be counted: %s", error)
        finally:
            self._counting = None

    def admit(self, group: str) -> None:
        """Admit a group, which may be new. Raises Busy if it would exceed `max_groups`, InvalidGroup for a broker's
        own.
        """
        self._check_open(group)
        limit = self._access.settings.max_groups
        if self._counted and group not in self._groups and len(self._groups) >= limit:
            self.start()  # count again: some groups may have ended, so a later attempt may succeed
            raise Busy(
                f"there are {len(self._groups)} groups, the limit is {limit} (max_groups): delete some"
            )
        self._groups.add(group)

    def _check_open(self, group: str) -> None:
        """Raise InvalidGroup for the group of a broker's own service."""
        if group == self._own_group:
            raise InvalidGroup(
                f"group {group!r} is a broker's own: its offsets are the progress of transactions",
                field="group",
            )

    def may_know(self, group: str) -> bool:
        """Return False if no client ever used a group of this name, or it was deleted. True as well while the groups
        are being counted.
        """
        return not self._counted or group in self._groups

    def submit(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Acknowledgement:
        """Commit these offsets. The future is done when they are as durable as the flush mode requires.

        It raises what `SupportsGroupOffsets.commit_offsets` raises; then none of these offsets is stored.
        """
        answer: Acknowledgement = asyncio.get_running_loop().create_future()
        # Mark an error as retrieved: the caller may not wait for it.
        answer.add_done_callback(asyncio.Future.exception)
        self._last = answer
        self._queue.append((GroupCommit(group, offsets), answer))
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        return answer

    async def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit and wait. Cancelling the caller does not stop the commit.

        Raises what `submit` raises, and Busy for one group too many or for metadata that is too long.
        """
        self.check(group, offsets)
        await asyncio.shield(self.submit(group, offsets))

    def check(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Admit the group. Raises Busy for one group too many or for metadata that is too long."""
        limit_bytes = self._access.settings.max_group_metadata_bytes
        for partition, committed in offsets.items():
            size_bytes = len(committed.metadata.encode("utf-8", "surrogatepass"))
            if size_bytes > limit_bytes:
                raise Busy(
                    f"{partition}: the metadata has {size_bytes} bytes, the limit is {limit_bytes} "
                    "(max_group_metadata_bytes)"
                )
        self.admit(group)

    async def committed(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the group's offsets, including commits submitted before."""
        await self.settled()
        return await self._access.run(self._store().committed, group)

    async def unstable(self, group: str) -> Collection[TopicPartition]:
        """Return the partitions for which an open transaction holds an offset of the group."""
        await self.settled()
        return await self._access.run(self._store().unstable_offsets, group)

    async def groups(self) -> Sequence[str]:
        """Return the groups that have offsets."""
        await self.settled()
        return await self._access.run(self._store().groups)

    async def delete(self, group: str, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Delete offsets (None: all offsets of the group); durable on return. Raises InvalidGroup, ..."""
        self._check_open(group)
        await self.settled()
        await self._access.run(self._store().delete_offsets, group, partitions)
        if partitions is None and group not in self._live:
            self._groups.discard(group)

    async def settled(self) -> None:
        """Wait until all commits submitted before have been stored or have failed."""
        if self._last is not None:
            await asyncio.wait((self._last,))

    async def _drain(self) -> None:
        while self._queue:
            taken, self._queue = self._queue, []
            await self._store_all(taken)
        self._draining = None

    async def _store_all(self, taken: Sequence[tuple[GroupCommit, Acknowledgement]]) -> None:
        """Store all commits in one call. The call is all or nothing: if it is rejected, store each commit by itself."""
        error = await self._attempt([commit for commit, _ in taken])
        alone = isinstance(error, CallerError) and len(taken) > 1
        for commit, answer in taken:
            if alone:
                error = await self._attempt([commit])
            if error is None:
                answer.set_result(None)
            else:
                answer.set_exception(error)

    async def _attempt(self, commits: Sequence[GroupCommit]) -> Exception | None:
        durable = (
            self._access.settings.flush != "os"
        )  # in mode async too: one sync serves all commits
        try:
            await self._access.run(self._store().commit_offsets, commits, durable=durable)
            await self._note_their_topic()
        except StorageError as error:
            return error
        except Exception as error:  # a bug: the callers that wait must get an error all the same
            log.exception("a commit of offsets broke")
            return error
        return None

    async def _note_their_topic(self) -> None:
        """Add the topic that the store created for offsets to the server's topics."""
        name = self._store().offsets_topic
        if name is not None and name not in self._topics:
            topics = await self._access.run(self._access.store.topics)
            self._topics.note(name, topics.get(name))

    def _store(self) -> SupportsGroupOffsets:
        store = self._access.store
        if not isinstance(store, SupportsGroupOffsets):
            raise NotOffered(
                f"backend {store.capabilities.backend} keeps no offsets of groups",
                feature="groups",
            )
        return store
