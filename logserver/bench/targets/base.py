"""The target interface of a benchmark, and the state that all targets of a run share.

Owns these two; must not know any target.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from logserver.bench.processes import Cores
from logserver.bench.result import NotDone, Repeat, TargetFacts
from logserver.bench.workload import Workload

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Bench:
    """The state that all targets of a run share: `folder` for their data, and `peers`, which is tests/interop/peers."""

    folder: Path
    runner: asyncio.Runner
    cores: Cores
    peers: Path
    quick: bool


class Target(Protocol):
    """A target that can be put under load."""

    @property
    def facts(self) -> TargetFacts:
        """The facts of this target for a result document."""

    def not_done(self, workload: Workload) -> list[NotDone]:
        """Return the fields of this workload that the target does not support."""

    def repeat(self, workload: Workload, number: int, tell: Tell) -> Repeat:
        """Run one repeat on new topics. Raises OSError, StorageError, ServerFailed, ConnectionLost or TimeoutError."""

    def close(self) -> None:
        """Stop the processes that were started, and remove their data."""
