"""The path of groups' members to the store and back, so that a restart forgets no member.

Owns the queue of changed groups: the changes that arrive during a store call go into one next call, so one sync serves
them all. Must not know how a group works. Groups are stored in the order of their changes; of several changes of one
group in the queue the last one is stored. A store without this ability, or that is read only, stores nothing. Use it on
the event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from logserver.service.access import StoreAccess
from storage import StorageError, StoredGroup, SupportsGroupMembers

log = logging.getLogger(__name__)


class MembersLog:
    """The stored members of all groups of one store."""

    def __init__(self, access: StoreAccess) -> None:
        self._access = access
        store = access.store
        self._store = store if isinstance(store, SupportsGroupMembers) else None
        self._queue: dict[str, StoredGroup] = {}
        self._next: asyncio.Future[bool] | None = None  # done when the queue of now is stored
        self._draining: asyncio.Task[None] | None = None

    async def load(self) -> Sequence[StoredGroup]:
        """Return the groups of an earlier process. Without them, or if they cannot be read, members join again."""
        if self._store is None:
            return ()
        try:
            return await self._access.run(self._store.stored_groups)
        except StorageError as error:
            log.warning("the members of groups could not be read: %s", error)
            return ()

    def submit(self, group: StoredGroup) -> asyncio.Future[bool] | None:
        """Store a group. The future is True when it is as durable as the flush mode requires, False after a failure;
        None: this store keeps no members.
        """
        if self._store is None or self._access.store.read_only:
            return None
        self._queue[group.name] = group
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        return self._next

    async def forget(self, name: str) -> None:
        """Delete a group; durable on return. Raises what `SupportsGroupMembers.forget_groups` raises."""
        await self.settled()
        if self._store is not None:
            await self._access.run(self._store.forget_groups, [name])

    async def settled(self) -> None:
        """Wait until all groups submitted before have been stored, or have failed."""
        while self._draining is not None:
            await asyncio.wait((self._draining,))

    async def _drain(self) -> None:
        assert self._store is not None
        durable = self._access.settings.flush != "os"
        while self._queue:
            taken, self._queue = list(self._queue.values()), {}
            answer, self._next = self._next, None
            assert answer is not None
            try:
                await self._access.run(self._store.write_groups, taken, durable=durable)
            except StorageError as error:
                log.warning("the members of %d groups could not be stored: %s", len(taken), error)
                answer.set_result(False)
            except Exception:  # a bug: the members that wait must get an answer all the same
                log.exception("storing the members of groups broke")
                answer.set_result(False)
            else:
                answer.set_result(True)
        self._draining = None
