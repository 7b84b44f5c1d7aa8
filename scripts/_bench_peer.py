"""The real RocketMQ store between our turns: one JVM that stays warm and does a turn when asked.

Owns that process and its answers (tests/interop/peers/rocketmq/turns); knows nothing of what is measured.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

from scripts._bench import Turn

TURNS = (
    Path(__file__).resolve().parent.parent / "tests" / "interop" / "peers" / "rocketmq" / "turns"
)


class Answer(NamedTuple):
    """What a turn did, and how long that took. `p99_s` where the time is a median."""

    units: int
    seconds: float
    p99_s: float = 0.0

    @property
    def turn(self) -> Turn:
        """As a benchmark takes it."""
        return Turn(self.units, self.seconds)


class Peer:
    """The real store. `with` ends it; the first one of a machine fetches and compiles it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [str(TURNS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.communicate()

    def ask(self, *words: object) -> Answer:
        """Let it do one turn; see the head of Turns.java. Exits when it has failed."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\t".join(map(str, words)) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"the real store failed at: {' '.join(map(str, words))}")
        answer = json.loads(line)
        return Answer(answer["units"], answer["seconds"], answer.get("p99", 0.0))
