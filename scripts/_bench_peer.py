"""The real RocketMQ store as a peer: one JVM that stays warm and runs a turn on request.

Owns that process and its responses (tests/interop/peers/rocketmq/turns); must not know the measured work.
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
    """The result of a turn: units done and seconds taken. `p99_s` is set if `seconds` is a median."""

    units: int
    seconds: float
    p99_s: float = 0.0

    @property
    def turn(self) -> Turn:
        """The result as a turn of a benchmark."""
        return Turn(self.units, self.seconds)


class Peer:
    """The real store. Leaving the `with` block ends it; its first start on a machine downloads and compiles it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [str(TURNS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.communicate()

    def ask(self, *words: object) -> Answer:
        """Run one turn; see the head of Turns.java for the commands. Raises SystemExit if the store fails."""
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
