"""The path of groups' members to the store and back, so that a restart forgets no member.

Owns the queue of changed groups: the changes that arrive during a store call go into one next call, so one sync serves
them all; and the newest write of each group, for the answers that wait for it. Must not know how a group works. Groups
are stored in the order of their changes; of several changes of one group in the queue the last one is stored. A store
without this ability, or that is read only, stores nothing. Use it on the event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from logserver.groups.offsets import Offsets
from logserver.service.access import StoreAccess
from storage import AnyStoredGroup, StorageError, SupportsGroupMembers

log = logging.getLogger(__name__)


class MembersLog:
    """The stored members of all groups of one store."""

    def __init__(self, access: StoreAccess) -> None:
        self._access = access
        store = access.store
        self._store = store if isinstance(store, SupportsGroupMembers) else None
        self._queue: dict[str, AnyStoredGroup] = {}
        self._next: asyncio.Future[bool] | None = None  # done when the queue of now is stored
        self._draining: asyncio.Task[None] | None = None

    async def load(self) -> Sequence[AnyStoredGroup]:
        """Return the groups of an earlier process. Without them, or if they cannot be read, members join again."""
        if self._store is None:
            return ()
        try:
            return await self._access.run(self._store.stored_groups)
        except StorageError as error:
            log.warning("the members of groups could not be read: %s", error)
            return ()

    def submit(self, group: AnyStoredGroup) -> asyncio.Future[bool] | None:
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


class Revised(Protocol):
    """A group whose `revision` rises with every change that a restart must not forget."""

    name: str

    @property
    def revision(self) -> int:
        """How often the group has changed."""


class Changes:
    """The newest stored change of each group of one kind, and the deletion of groups that have ended."""

    def __init__(
        self,
        members: MembersLog,
        offsets: Offsets,
        snapshot: Callable[[str], AnyStoredGroup | None],
    ) -> None:
        """Create it without changes. `snapshot` returns a group as it is now; None: it has ended."""
        self._members = members
        self._offsets = offsets
        self._snapshot = snapshot
        self._writes: dict[str, asyncio.Future[bool]] = {}
        self._forgetting: set[asyncio.Task[None]] = set()

    def store(self, name: str) -> None:
        """Store a group as it is now."""
        group = self._snapshot(name)
        write = None if group is None else self._members.submit(group)
        if write is not None:
            self._writes[name] = write

    @contextmanager
    def of(self, group: Revised) -> Iterator[None]:
        """Store the group after the block if the block changed it."""
        before = group.revision
        yield
        if group.revision != before:
            self.store(group.name)

    async def is_stored(self, name: str) -> bool:
        """Wait until the group's newest change is stored; a write that failed is tried once more."""
        for _ in range(2):
            write = self._writes.get(name)
            if write is None or await asyncio.shield(write):
                return True
            if self._snapshot(name) is None:
                return True  # it has ended: the client's next request says so
            if self._writes.get(name) is write:
                self.store(name)
        return False

    def wait(self, name: str, then: Callable[[], None]) -> bool:
        """Call `then` after the group's newest write, if it is under way. Return whether it is."""
        write = self._writes.get(name)
        if write is None or write.done():
            return False
        write.add_done_callback(lambda _: then())
        return True

    def drop(self, name: str) -> None:
        """Forget the writes of a group that has ended."""
        self._writes.pop(name, None)

    def forget(self, name: str) -> None:
        """Delete what the store has of a group that has ended, if it has no offsets either. Does not wait."""
        task = asyncio.create_task(self._forget(name))
        self._forgetting.add(task)
        task.add_done_callback(self._forgetting.discard)

    async def _forget(self, name: str) -> None:
        try:
            if not await self._offsets.committed(name) and self._snapshot(name) is None:
                await self._members.forget(name)
        except StorageError as error:
            log.warning("group %s could not be deleted: %s", name, error)
