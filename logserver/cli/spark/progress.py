"""Progress of a job on standard error: the start of Spark, then its tasks; a bar on a terminal, else lines.

Owns that display and the thread that asks Spark; must not touch standard output. A failed question is no error: the job
itself will report the reason.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import click

if TYPE_CHECKING:
    from rich.progress import Progress as Display

ASK_EVERY_S: Final = 0.5
LINE_EVERY_S: Final = 5.0


class StageInfo(Protocol):
    """The numbers of a stage, under Spark's names."""

    @property
    def numTasks(self) -> int: ...

    @property
    def numCompletedTasks(self) -> int: ...


class StatusTracker(Protocol):
    """The questions that this module asks Spark."""

    def getActiveStageIds(self) -> list[int]: ...  # Spark's name
    def getStageInfo(self, stageId: int) -> StageInfo | None: ...  # Spark's name


class Tasks(NamedTuple):
    """Finished tasks and all tasks of the stages that have started so far."""

    done: int
    total: int


class SeenStages:
    """The tasks of all stages since the start: Spark reports only stages that run."""

    def __init__(self, tracker: StatusTracker) -> None:
        self._tracker = tracker
        self._ended = Tasks(0, 0)
        self._running: dict[int, Tasks] = {}

    def count(self) -> Tasks:
        """Ask Spark, and return the tasks so far. A stage that runs no more has ended."""
        active = {}
        for number in self._tracker.getActiveStageIds():
            info = self._tracker.getStageInfo(number)
            if info is not None:
                active[number] = Tasks(info.numCompletedTasks, info.numTasks)
        for number, tasks in self._running.items():
            if number not in active:
                total = self._ended.total + tasks.total
                self._ended = Tasks(total, total)
        self._running = active
        return Tasks(
            self._ended.done + sum(tasks.done for tasks in active.values()),
            self._ended.total + sum(tasks.total for tasks in active.values()),
        )


class JobProgress:
    """The display of one command, from `start` to `stop`; `stop` may be called again."""

    def __init__(self) -> None:
        self._began_s = self._shown_s = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="job progress", daemon=True)
        self._stages: SeenStages | None = None
        self._display: Display | None = None

    def start(self, text: str) -> None:
        """Show a text until the first task runs; at once, because it takes seconds."""
        if sys.stderr.isatty():
            self._display = _display(text)
        else:
            click.echo(f"progress: {text}", err=True)
        self._thread.start()

    def watch(self, tracker: StatusTracker) -> None:
        """Show Spark's tasks from now on."""
        self._stages = SeenStages(tracker)

    def stop(self) -> None:
        """Remove the bar; nothing is shown any more on return."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._display is not None:
            self._display.stop()
            self._display = None

    def _watch(self) -> None:
        while not self._ended.wait(ASK_EVERY_S):
            if self._stages is None:
                self._show("starting Spark", None)
                continue
            try:
                tasks = self._stages.count()
            except Exception:  # noqa: BLE001  # Java has ended, or is ending: the job reports it
                return
            self._show("tasks" if tasks.total else "preparing", tasks if tasks.total else None)

    def _show(self, text: str, tasks: Tasks | None) -> None:
        if self._display is not None:
            total, done = (None, 0) if tasks is None else (tasks.total, tasks.done)
            (bar,) = self._display.task_ids
            self._display.update(bar, description=text, completed=done, total=total)
        elif time.monotonic() - self._shown_s >= LINE_EVERY_S:
            self._shown_s = time.monotonic()
            counts = "" if tasks is None else f": {tasks.done} of {tasks.total}"
            click.echo(f"progress: {text}{counts}, {self._shown_s - self._began_s:.0f} s", err=True)


def _display(text: str) -> Display:
    """Return a started bar of standard error with the elapsed time."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    display = Progress(*columns, console=Console(stderr=True), transient=True)
    display.add_task(text, total=None)
    display.start()
    return display
