"""The periodic work of a store: flush of appends that were answered before a sync, checkpoint, retention.

Owns the schedule; each pass is one blocking call, which a test can make directly. Must not know what a pass does
inside. It deletes only what the topics' own retention settings allow. The passes run one at a time in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from logserver.service.access import StoreAccess
from logserver.service.commit import Writer
from storage import Journal, RetentionReport, StorageError, TopicPartition
from storage.errors import CallerError

log = logging.getLogger(__name__)


class Upkeep:
    """Periodic work on one store and its journal, in a thread of its own. `writer` names the unflushed partitions."""

    def __init__(self, access: StoreAccess, writer: Writer, journal: Journal | None = None) -> None:
        self._store = access.store
        self._settings = access.settings
        self._clock = access.clock
        self._writer = writer
        self._journal = journal
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="upkeep")
        self._tasks: list[asyncio.Task[None]] = []
        # The error code that was logged last, by pass; only for passes that fail.
        self._logged: dict[str, str] = {}

    def start(self) -> None:
        """Begin the schedule; a read-only store needs none."""
        if self._store.read_only:
            return
        settings = self._settings
        schedule = [
            ("checkpoint", self.checkpoint_pass, settings.checkpoint_interval_ms),
            ("retention", self.retention_pass, settings.retention_interval_ms),
        ]
        if settings.flush != "os":
            self._tasks.append(asyncio.create_task(self._flush_regularly()))
        self._tasks += [asyncio.create_task(self._repeat(*entry)) for entry in schedule]

    async def stop(self) -> None:
        """End the schedule, and wait for a pass that is running."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self._thread.shutdown(wait=False)

    def flush_pass(self, partitions: set[TopicPartition]) -> None:
        """Make the earlier appends to these partitions durable; a deleted partition is skipped."""
        for partition in sorted(partitions):
            with suppress(CallerError):
                self._store.flush([partition])

    def checkpoint_pass(self) -> None:
        """Record up to which offset the logs are synced."""
        self._store.checkpoint()

    def retention_pass(self) -> RetentionReport:
        """Delete the segments that the topics' own settings no longer retain."""
        report = self._store.enforce_retention(self._clock())
        if report.segments_deleted:
            log.info(
                "retention: %d segments, %d bytes deleted",
                report.segments_deleted,
                report.bytes_deleted,
            )
        return report

    async def _flush_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._settings.flush_interval_ms / 1000)
            partitions = self._writer.take_unflushed()
            if self._journal is not None:
                await self._run("journal", self._journal.flush)
            await self._run("flush", partial(self.flush_pass, partitions))

    async def _repeat(self, name: str, one_pass: Callable[[], object], interval_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await self._run(name, one_pass)

    async def _run(self, name: str, one_pass: Callable[[], object]) -> None:
        """Run a pass; a pass that fails is tried again at its next turn.

        A fenced store fails every pass, so an error with the same code as the last one is not logged again.
        """
        running = asyncio.get_running_loop().run_in_executor(self._thread, one_pass)
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            # Retrieve its error, but do not log it: the stop of a fenced store reports it.
            await asyncio.gather(running, return_exceptions=True)
            raise
        except StorageError as error:
            if self._logged.get(name) != error.code:
                log.error("upkeep: %s", error)  # noqa: TRY400  # no trace: the message is complete
            # Compare codes, because the message may name another file each time.
            self._logged[name] = error.code
        except Exception:  # a bug: the next pass may still succeed
            log.exception("upkeep: the %s pass broke", name)
        else:
            self._logged.pop(name, None)
