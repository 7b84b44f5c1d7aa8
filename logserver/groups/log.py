"""The parts of the server that groups use: values and callables. Owns their types; must not hold logic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar

from logserver.config import Settings
from logserver.groups.coordinator import Topics
from logserver.service.waiters import Waiters
from storage import Clock, LogStore, TopicInfo

P = ParamSpec("P")
T = TypeVar("T")


class RunInThread(Protocol):
    """Runs a blocking call in a thread."""

    async def __call__(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return or raise the result of `call`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The open store and the access to it. Use all but the store's own methods on the event loop only."""

    store: LogStore
    settings: Settings
    topics: Topics
    note_topic: Callable[[str, TopicInfo | None], None]  # a topic was created, or deleted (None)
    run: RunInThread
    waiters: Waiters
    clock: Clock
