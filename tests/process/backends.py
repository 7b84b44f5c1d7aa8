"""The backends as servers are started on them: small files, so that a test of seconds rolls often.

Owns the options; must not know a test.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROCKETMQ_SIZES = {
    "mappedFileSizeCommitLog": "16384",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}


class Backend(NamedTuple):
    """How a server is started on it. `whole_batches`: after a crash a request is there as a whole or not at all."""

    name: str
    options: tuple[str, ...]
    whole_batches: bool

    def is_clean(self, data: Path) -> bool:
        """Whether a stopped store has the mark of a clean stop."""
        if self.name == "kafka":
            return (data / ".kafka_cleanshutdown").exists()
        return not (data / "abort").exists()


BACKENDS = {
    "kafka": Backend(
        "kafka",
        (
            "--backend=kafka",
            "--set=internal.segment.bytes=30000",
            "--set=index.interval.bytes=500",
            "--set=segment.index.bytes=4000",
        ),
        whole_batches=True,
    ),
    "rocketmq": Backend(
        "rocketmq",
        (
            "--backend=rocketmq",
            *(f"--set={name}={value}" for name, value in ROCKETMQ_SIZES.items()),
        ),
        whole_batches=False,
    ),
}
