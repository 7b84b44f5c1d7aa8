"""The server options of each backend: small files, so that a test of a few seconds rolls often.

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
    """The options that start a server on a backend.

    `whole_batches`: after a crash a request is stored whole or not at all.
    """

    name: str
    options: tuple[str, ...]
    whole_batches: bool

    def is_clean(self, data: Path) -> bool:
        """Return whether a stopped store has the mark of a clean stop."""
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
