"""The state of a server and its open store: what every part of the service uses.

Owns the check that the store may be used or changed now. Must not know topics or requests: it stands below them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar

from logserver.config import Settings
from logserver.errors import NotReady
from logserver.service.fetch import Waiters
from storage import Clock, LogStore
from storage.errors import StoreReadOnly

P = ParamSpec("P")
T = TypeVar("T")


class RunInThread(Protocol):
    """Runs a blocking call in a thread."""

    async def __call__(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return or raise the result of `call`."""
        ...


class ServerState:
    """The state of a server: `name` is starting, ready, stopping or failed."""

    def __init__(self) -> None:
        self.name = "starting"
        # Written by the opening thread, read by the loop: one tuple, replaced as a whole.
        self.progress: tuple[str, int, int] | None = None

    @property
    def is_recovering(self) -> bool:
        """True while the opened store recovers and reports its progress."""
        return self.name == "starting" and self.progress is not None

    def check_ready(self) -> None:
        """Raise NotReady unless the store is open and the server is not stopping."""
        if self.name != "ready":
            raise self.not_ready()

    def not_ready(self) -> NotReady:
        """Return the error of a call in this state."""
        if self.progress is not None and self.is_recovering:
            what, done, total = self.progress
            return NotReady(
                f"the server is recovering: {what}, {done} of {total}; try again later",
                state="recovering",
                progress={"what": what, "done": done, "total": total},
            )
        return NotReady(f"the server is {self.name}: try again later", state=self.name)

    def note_progress(self, what: str, done: int, total: int) -> None:
        """Record the progress of recovery; the opening thread calls it.

        Raises NotReady if the server is stopping: this ends a recovery that no caller waits for.
        """
        if self.name == "stopping":
            raise NotReady("stopped while recovering", state="stopping")
        self.progress = (what, done, total)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAccess:
    """The open store and the access to it. Use all but the store's own methods on the event loop only."""

    store: LogStore
    state: ServerState
    settings: Settings
    run: RunInThread
    waiters: Waiters
    clock: Clock

    def check_writable(self) -> None:
        """Raise NotReady, or StoreReadOnly if the store must not be changed."""
        self.state.check_ready()
        if self.store.read_only:
            raise StoreReadOnly(
                f"{self.settings.data} is served read-only: to write, restart the server with --write "
                "and without --read-only",
                path=str(self.settings.data),
            )
