"""The periodic work of a store as a list of services, and the schedule that steps them.

Owns when each service is stepped, and its status: the last run, the last error, the lag. Must not know what a service
does. A step is one blocking call, which a test can make with a time of its own: `Upkeep.step`. Nothing else runs
periodically on a store. The schedule steps one service at a time, in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from storage import Clock, StorageError

log = logging.getLogger(__name__)

UNEXPECTED: Final = "unexpected"  # instead of an error code, if a step fails by a bug


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One kind of periodic work.

    `step` does the work that is due at a time and returns; it blocks, and is called from one thread at a time.
    `lag_ms` returns for how long work has been due at a time; by default it is the time since the turn that was missed.
    """

    name: str
    interval_ms: int
    step: Callable[[int], object]
    lag_ms: Callable[[int], int] | None = None


class ServiceStatus(Struct, frozen=True, kw_only=True):
    """The state of a service. `last_run_ms`: the last step that succeeded, null before the first.

    `error`: the code of the error of the last step, null if it succeeded. `lag_ms`: for how long work has been due.
    """

    name: str
    interval_ms: int
    last_run_ms: int | None
    error: str | None
    lag_ms: int


class _Scheduled:
    """A service and its status. The thread that steps it writes; any thread may read."""

    def __init__(self, service: Service, now_ms: int) -> None:
        self.service = service
        self.turn_ms = now_ms + service.interval_ms
        self.error: str | None = None
        self._counted_from_ms = now_ms
        self._last_run_ms: int | None = None

    def step(self, now_ms: int) -> None:
        """Step the service. A step that fails is logged, and the service is stepped again at its next turn.

        A fenced store fails every step, so an error with the same code as the last one is not logged again.
        """
        self.turn_ms = now_ms + self.service.interval_ms
        try:
            self.service.step(now_ms)
        except StorageError as error:
            if self.error != error.code:
                log.error("upkeep: %s", error)  # noqa: TRY400  # no trace: the message is complete
            # Compare codes, because the message may name another file each time.
            self.error = error.code
        except Exception:  # a bug: the next step may still succeed
            log.exception("upkeep: the %s pass broke", self.service.name)
            self.error = UNEXPECTED
        else:
            self.error = None
            self._last_run_ms = self._counted_from_ms = now_ms

    def status(self, now_ms: int) -> ServiceStatus:
        service = self.service
        if service.lag_ms is None:
            lag_ms = now_ms - self._counted_from_ms - service.interval_ms
        else:
            lag_ms = service.lag_ms(now_ms)
        return ServiceStatus(
            name=service.name,
            interval_ms=service.interval_ms,
            last_run_ms=self._last_run_ms,
            error=self.error,
            lag_ms=max(lag_ms, 0),
        )


class Upkeep:
    """The services of one store, stepped in a thread of their own. `start` and `stop` belong on the event loop."""

    def __init__(self, services: Sequence[Service], clock: Clock) -> None:
        self._clock = clock
        now_ms = clock()
        self._scheduled = [_Scheduled(service, now_ms) for service in services]
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="upkeep")
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin the schedule."""
        self._tasks = [asyncio.create_task(self._repeat(each)) for each in self._scheduled]

    async def stop(self) -> None:
        """End the schedule, and wait for a step that is running."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self._thread.shutdown(wait=False)

    def step(self, now_ms: int) -> None:
        """Step each service whose interval has passed since its last step, in the order of the list.

        For callers that drive the clock: do not call it between `start` and `stop`. It blocks.
        """
        for scheduled in self._scheduled:
            if scheduled.turn_ms <= now_ms:
                scheduled.step(now_ms)

    def status(self) -> list[ServiceStatus]:
        """Return the status of each service. Any thread may call it."""
        now_ms = self._clock()
        return [scheduled.status(now_ms) for scheduled in self._scheduled]

    async def _repeat(self, scheduled: _Scheduled) -> None:
        while True:
            await asyncio.sleep(scheduled.service.interval_ms / 1000)
            running = asyncio.get_running_loop().run_in_executor(
                self._thread, lambda: scheduled.step(self._clock())
            )
            try:
                await asyncio.shield(running)
            except asyncio.CancelledError:
                # Nothing may run in the store once the schedule has ended.
                await asyncio.gather(running, return_exceptions=True)
                raise
