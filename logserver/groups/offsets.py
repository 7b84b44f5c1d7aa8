"""The way of committed offsets to the store and back.

Owns the queue of commits: what many requests commit meanwhile goes in one call, so one sync serves
them all. Commits are stored in the order in which they were submitted, and what is read shows all
that were submitted before. Lives on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from logserver.groups.log import Log
from storage import (
    CommittedOffset,
    GroupCommit,
    StorageError,
    SupportsGroupOffsets,
    TopicPartition,
)
from storage.errors import CallerError, NotOffered

log = logging.getLogger(__name__)

Answer: TypeAlias = "asyncio.Future[None]"


class Offsets:
    """Commits and lookups of all groups of one store."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._queue: list[tuple[GroupCommit, Answer]] = []
        self._last: Answer | None = None  # of the newest commit: when it is done, all are
        self._draining: asyncio.Task[None] | None = None

    def submit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> Answer:
        """Commit these; the future is done when they are as durable as the flush mode says.

        It raises what `SupportsGroupOffsets.commit_offsets` raises; then none of them is stored.
        """
        answer: Answer = asyncio.get_running_loop().create_future()
        answer.add_done_callback(asyncio.Future.exception)  # it may be that nobody asks
        self._last = answer
        self._queue.append((GroupCommit(group, offsets), answer))
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        return answer

    async def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """The same, waited for. Who stops waiting does not stop the commit."""
        await asyncio.shield(self.submit(group, offsets))

    async def committed(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """The group's offsets; what was submitted before is in them."""
        await self.settled()
        return await self._log.run(self._store().committed, group)

    async def groups(self) -> Sequence[str]:
        """The groups that have offsets."""
        await self.settled()
        return await self._log.run(self._store().groups)

    async def delete(self, group: str, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Forget offsets (None: all of the group); durable on return. Raises StoreReadOnly, ..."""
        await self.settled()
        await self._log.run(self._store().delete_offsets, group, partitions)

    async def settled(self) -> None:
        """Until everything that was submitted before has been stored or has failed."""
        if self._last is not None:
            await asyncio.wait((self._last,))

    async def _drain(self) -> None:
        while self._queue:
            taken, self._queue = self._queue, []
            await self._store_all(taken)
        self._draining = None

    async def _store_all(self, taken: Sequence[tuple[GroupCommit, Answer]]) -> None:
        """All in one call. It is all or nothing: where one of them is refused, each is told apart."""
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
        durable = self._log.settings.flush != "os"  # in mode async too: one sync serves them all
        try:
            await self._log.run(self._store().commit_offsets, commits, durable=durable)
            await self._note_their_topic()
        except StorageError as error:
            return error
        except Exception as error:  # a mistake of ours: those who wait must be told all the same
            log.exception("a commit of offsets broke")
            return error
        return None

    async def _note_their_topic(self) -> None:
        """The topic that the store made for offsets is a topic as any other."""
        name = self._store().offsets_topic
        if name is not None and name not in self._log.topics():
            topics = await self._log.run(self._log.store.topics)
            self._log.note_topic(name, topics.get(name))

    def _store(self) -> SupportsGroupOffsets:
        store = self._log.store
        if not isinstance(store, SupportsGroupOffsets):
            raise NotOffered(
                f"backend {store.capabilities.backend} keeps no offsets of groups",
                feature="groups",
            )
        return store
