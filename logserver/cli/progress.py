"""Progress on standard error, after the work has taken a while: a bar on a terminal, else a line every few seconds.

Owns that display; must not touch standard output.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from storage.display import progress_text

if TYPE_CHECKING:
    from rich.progress import Progress as Display

PATIENCE_S = 1.0
LINE_EVERY_S = 5.0


class LateProgress:
    """A `storage.Progress` that appears late. `with` removes the bar at the end."""

    def __init__(self) -> None:
        self._has_bar = sys.stderr.isatty()
        self._shown_s = time.monotonic()
        self._display: Display | None = None
        self._tasks: dict[str, int] = {}

    def __enter__(self) -> LateProgress:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the bar, for good if no call follows."""
        display, self._display = self._display, None
        if display is not None:
            display.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        """See storage.Progress."""
        waited_s = time.monotonic() - self._shown_s
        if not self._has_bar:
            if waited_s >= LINE_EVERY_S:
                with suppress(BrokenPipeError):  # the work goes on without a reader of its progress
                    click.echo(f"progress: {progress_text(what, done, total)}", err=True)
                self._shown_s = time.monotonic()
            return
        if not self._display and waited_s < PATIENCE_S:
            return
        display = self._bar()
        if what not in self._tasks:
            self._tasks[what] = display.add_task(what, total=total)
        display.update(display.task_ids[self._tasks[what]], completed=done, total=total)

    def _bar(self) -> Display:
        if self._display is None:
            from rich.console import Console
            from rich.progress import Progress as Display

            self._display = Display(console=Console(stderr=True), transient=True)
            self._display.start()
        return self._display
