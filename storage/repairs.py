"""The runner of the repairs of a start: a parameter of opening a store.

Owns its contract, and the runner without threads; must not know a backend. A store starts no threads, but its caller
may: repairs mostly wait for syncs, and syncs that run at the same time share the commits of the file system.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Protocol, TypeVar

P = TypeVar("P")
R = TypeVar("R")


class RepairRunner(Protocol):
    """A runner of repairs, perhaps side by side; yields the results in the order of the parts.

    No part runs any more when the generator has ended, has raised the error of a part, or was closed: a store that
    fails to open then closes its files and releases its lock. A repair of one partition changes no file of another.
    """

    def __call__(
        self, work: Callable[[P], R], parts: Sequence[P], /
    ) -> Generator[R, None, None]: ...


def repair_serially(work: Callable[[P], R], parts: Sequence[P], /) -> Generator[R, None, None]:
    """Do each repair here, when the previous result was taken."""
    yield from map(work, parts)
