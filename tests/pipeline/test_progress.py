"""The progress of a job: the start of Spark at once, then the tasks of all its stages."""

from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace

import pytest

from logserver.cli.spark import progress
from logserver.cli.spark.progress import JobProgress, SeenStages, StageInfo, Tasks


class Tracker:
    """Spark's tracker: the stages that run, with (completed, all) tasks; None: a stage that has just ended."""

    def __init__(self, *answers: dict[int, tuple[int, int] | None]) -> None:
        self._answers = list(answers)
        self.asked = threading.Event()

    def getActiveStageIds(self) -> list[int]:  # Spark's name
        """See StatusTracker."""
        if not self._answers:
            raise ConnectionError("Java has ended")
        self._now = self._answers.pop(0)
        if not self._answers:
            self.asked.set()
        return list(self._now)

    def getStageInfo(self, stageId: int) -> StageInfo | None:  # Spark's name
        """See StatusTracker."""
        counts = self._now[stageId]
        if counts is None:
            return None
        info: StageInfo = SimpleNamespace(numCompletedTasks=counts[0], numTasks=counts[1])
        return info


def test_tasks_of_ended_stages_stay_counted() -> None:
    seen = SeenStages(Tracker({}, {0: (3, 16)}, {1: (0, 4), 2: None}, {1: (2, 4)}, {}))
    counts = [seen.count() for _ in range(5)]
    assert counts == [Tasks(0, 0), Tasks(3, 16), Tasks(16, 20), Tasks(18, 20), Tasks(20, 20)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask and print without waiting."""
    monkeypatch.setattr(progress, "ASK_EVERY_S", 0.01)
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0)


def test_lines_where_standard_error_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    shown = JobProgress()
    shown.start("starting Spark")
    assert capsys.readouterr().err.startswith("progress: starting Spark\n")
    tracker = Tracker({}, {0: (3, 16)}, {0: (16, 16)})
    shown.watch(tracker)
    assert tracker.asked.wait(10)
    shown._thread.join(10)  # Java has ended: that is no error of the display
    shown.stop()
    shown.stop()
    lines = [line.rpartition(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines[-3:] == [
        "progress: preparing",
        "progress: tasks: 3 of 16",
        "progress: tasks: 16 of 16",
    ]


def test_a_bar_on_a_terminal_goes_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    shown = JobProgress()
    shown.start("starting Spark")
    stages: dict[int, tuple[int, int] | None] = {0: (3, 16)}
    tracker = Tracker(*[stages] * 30)
    shown.watch(tracker)
    assert tracker.asked.wait(10)
    time.sleep(0.2)  # the bar is drawn ten times a second
    shown.stop()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "starting Spark" in captured.err
    assert "3/16" in captured.err
    assert captured.err.rstrip().endswith("\x1b[2K")  # the line of the bar is erased


def test_a_display_that_was_never_started_stops() -> None:
    JobProgress().stop()
