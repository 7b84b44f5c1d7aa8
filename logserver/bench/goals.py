"""Performance goals: for each path a ratio to a yardstick, read from goals.toml.

Owns the goals, in one place for the reports and for the benchmarks in scripts/; must not measure. A goal is measured by
a row of a benchmark, or by `compare` itself.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

import msgspec

CODECS: Final = "bench_codecs"
ROCKETMQ: Final = "bench_rocketmq"
TRANSACTIONS: Final = "bench_transactions"
DELAY: Final = "bench_delay"
KAFKA_WIRE: Final = "bench_kafka_wire"
SPARK: Final = "bench_spark"
HTTP: Final = "load_test"
COMPARE: Final = "compare"


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """A goal: reach at least `floor` (plain Python) or `goal` (compiled) times the yardstick.

    `most`: both are upper limits instead. `why`: the known obstacle, reported if the goal is missed. `reference`:
    the yardstick's figure, if the yardstick is not measured in the same run.
    """

    source: str
    row: str
    path: str
    yardstick: str
    floor: float | None = None
    goal: float | None = None
    most: bool = False
    why: str = ""
    reference: float | None = None

    def target(self, *, compiled: bool) -> float | None:
        """Return the ratio that applies: `goal` if compiled, else `floor`."""
        return self.goal if compiled else self.floor

    def reached(self, ratio: float, *, compiled: bool) -> bool | None:
        """Return whether `ratio` reaches the goal; None if no ratio is required."""
        target = self.target(compiled=compiled)
        if target is None:
            return None
        return ratio <= target if self.most else ratio >= target


_DATA: Final[Mapping[str, Any]] = tomllib.loads(
    files(__package__).joinpath("goals.toml").read_text(encoding="utf-8")
)
COMMANDS: Final[Mapping[str, str]] = {
    name: source["command"] for name, source in _DATA["sources"].items()
}


def _goals() -> Iterator[Goal]:
    for name, source in _DATA["sources"].items():
        for row, values in source["goals"].items():
            given = {"source": name, "row": row, "path": row} | source | values
            given["why"] = _DATA["why"].get(given.get("why"), given.get("why", ""))
            yield msgspec.convert(given, Goal)


GOALS: Final[Sequence[Goal]] = tuple(_goals())


def goal_of(source: str, row: str) -> Goal | None:
    """Return the goal of a benchmark's row; None if it has no goal."""
    return next((goal for goal in GOALS if (goal.source, goal.row) == (source, row)), None)
