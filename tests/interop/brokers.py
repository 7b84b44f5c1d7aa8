"""A real Kafka broker that a test or a benchmark keeps running, with its address and its directory.

Owns the start on a directory that another program wrote; must not contain the calls themselves (peers.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from logserver.bench.targets.kafka import BESIDE
from logserver.bench.targets.tools import free_ports
from tests.interop import peers

UNTOUCHED: Final = (  # serves an adopted directory unchanged
    "log.cleaner.enable=false",
    "log.retention.check.interval.ms=86400000",
)
STARTS: Final = "log-start-offset-checkpoint"


class Broker:
    """A real broker on `log`. The code that creates it must end it."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.log = work / "log"
        self.port = free_ports(BESIDE)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id, while the broker runs."""
        return int((self.work / "pid").read_text())

    def start(self, properties: Sequence[str] = ()) -> None:
        peers.start_broker(self.work, port=self.port, log_dir=self.log, properties=properties)

    def adopt(self) -> None:
        """Register, before the first start, the topics of the partition folders in `log` with the broker."""
        peers.adopt(self.work, port=self.port, log_dir=self.log)

    def end(self, *, kill: bool) -> None:
        peers.stop_broker(self.work, kill=kill)


@contextmanager
def serving(work: Path, stores: Iterable[Path]) -> Iterator[Broker]:
    """Run a broker that serves copies of these log directories merged into one; their topics must differ."""
    broker = Broker(work)
    broker.log.mkdir(parents=True)
    starts: list[str] = []
    for store in stores:
        for partition in _partitions(store):
            shutil.copytree(partition, broker.log / partition.name)
        if (store / STARTS).is_file():
            starts += (store / STARTS).read_text().splitlines()[2:]
    (broker.log / STARTS).write_text("\n".join(["0", f"{len(starts)}", *starts, ""]))
    (broker.log / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    try:
        broker.adopt()
        broker.start(UNTOUCHED)
        yield broker
    finally:
        broker.end(kill=True)


def _partitions(store: Path) -> list[Path]:
    return sorted(p for p in store.iterdir() if p.is_dir() and not p.name.startswith("__"))
