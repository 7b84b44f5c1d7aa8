"""What groups need of the server that they are part of: values and callables, no logic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar

from logserver.config import Settings
from logserver.groups.coordinator import Topics
from logserver.waiters import Waiters
from storage import Clock, LogStore, TopicInfo

P = ParamSpec("P")
T = TypeVar("T")


class Run(Protocol):
    """Makes a blocking call in a thread."""

    async def __call__(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `call` gives or raises."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The open store and the ways to it. All but the store's own methods live on the event loop."""

    store: LogStore
    settings: Settings
    topics: Topics
    note_topic: Callable[[str, TopicInfo | None], None]  # a topic was made, or is gone
    run: Run
    waiters: Waiters
    clock: Clock
