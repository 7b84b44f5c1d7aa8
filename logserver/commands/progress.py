"""Progress on standard error: only on a terminal, and only once the work has taken a second.

Owns that display; must not touch standard output. Elsewhere it says nothing.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Display

PATIENCE_S = 1.0


class LateProgress:
    """A `storage.Progress` that appears late and leaves no trace; `with` takes it away at the end."""

    def __init__(self) -> None:
        self._silent = not sys.stderr.isatty()
        self._began_s = time.monotonic()
        self._display: Display | None = None
        self._tasks: dict[str, int] = {}

    def __enter__(self) -> LateProgress:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._display is not None:
            self._display.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        """See storage.Progress."""
        if self._silent or (not self._display and time.monotonic() - self._began_s < PATIENCE_S):
            return
        display = self._shown()
        if what not in self._tasks:
            self._tasks[what] = display.add_task(what, total=total)
        display.update(display.task_ids[self._tasks[what]], completed=done, total=total)

    def _shown(self) -> Display:
        if self._display is None:
            from rich.console import Console
            from rich.progress import Progress as Display

            self._display = Display(console=Console(stderr=True), transient=True)
            self._display.start()
        return self._display
