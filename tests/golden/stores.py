"""The golden stores of the real Kafka, and the results that it read from them: paths and expectations for the tests."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from storage import LogStore, StoredRecord, StoreOptions, TimedOffset, TopicPartition, open_store
from storage.contract import Clock
from storage.files import FileSystem
from storage.kafka.format.batch import BatchHeader, decode_header

KAFKA = Path(__file__).parent / "kafka"
DAMAGED = "torn"
HEALTHY = (
    "codecs",
    "compacted",
    "deleted",
    "edge",
    "epochs",
    "offsets",
    "parts",
    "segments",
    "times",
    "txn",
    "txnopen",
)
COMPACTED = "compacted"
COMMITTED = "expected.read_committed.jsonl"
MADE_AT_MS = (
    1_795_224_726_956  # the wall clock when the stores were made: record times are far before it
)
NOT_TAKEN = frozenset({"cleanup.policy"})  # we do not compact, but read compacted logs


class GoldenPartition(NamedTuple):
    """One partition of a golden store with its expectations."""

    store: str
    name: str

    @property
    def address(self) -> TopicPartition:
        topic, _, number = self.name.rpartition("-")
        return TopicPartition(topic, int(number))

    @property
    def root(self) -> Path:
        return KAFKA / self.store / "data"

    @property
    def data(self) -> Path:
        return self.root / self.name

    @property
    def expect(self) -> Path:
        return KAFKA / self.store / "expect" / self.name

    @property
    def configs(self) -> Mapping[str, str]:
        """The topic's settings that differ from the broker's defaults."""
        path = KAFKA / self.store / "expect" / "configs.json"
        topic: Mapping[str, str] = json.loads(path.read_text()).get(self.address.topic, {})
        return topic

    @property
    def settings(self) -> dict[str, str]:
        """The topic's settings, in the engine's form."""
        return {name: value for name, value in self.configs.items() if name not in NOT_TAKEN}

    @property
    def log_files(self) -> list[Path]:
        """The `.log` files, in offset order."""
        return sorted(self.data.glob("*.log"))

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """(leader epoch, start offset) pairs of leader-epoch-checkpoint."""
        lines = (self.data / "leader-epoch-checkpoint").read_text().split("\n")[2:]
        return [(int(epoch), int(start)) for epoch, start in map(str.split, filter(None, lines))]

    @property
    def restarts(self) -> set[int]:
        """Offsets of the first records that the broker wrote after a restart."""
        return {start for _, start in self.epochs[1:]}

    def batches(self) -> Iterator[tuple[bytes, BatchHeader]]:
        """Yield every batch of the log with its header, in order."""
        for path in self.log_files:
            data = path.read_bytes()
            at = 0
            while at < len(data):
                header = decode_header(data, at)
                yield data[at : at + header.size_bytes], header
                at += header.size_bytes

    def json(self, name: str) -> Any:
        """Return one of the JSON expectations."""
        return json.loads((self.expect / name).read_text())

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Return one of the JSON-lines expectations; empty if the file is missing."""
        path = self.expect / name
        return (
            [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
        )

    def __str__(self) -> str:
        return f"{self.store}:{self.name}"


def healthy_stores() -> list[str]:
    """Return the names of the stores that were stopped cleanly and are undamaged."""
    return list(HEALTHY)


def damaged_variants() -> list[str]:
    """Return the names of the damaged copies."""
    return sorted(p.name for p in (KAFKA / DAMAGED).iterdir() if p.is_dir())


@cache
def partitions() -> list[GoldenPartition]:
    """Return every partition of every healthy store that has expectations of its records."""
    return list(_partitions())


def _partitions() -> Iterator[GoldenPartition]:
    for store in healthy_stores():
        for expect in sorted((KAFKA / store / "expect").iterdir()):
            if (expect / "expected.jsonl").exists():
                yield GoldenPartition(store, expect.name)


def by_id(partition: GoldenPartition) -> str:
    """Return a partition as the id of a test."""
    return str(partition)


def open_golden(
    path: Path,
    settings: Mapping[str, str],
    *,
    fs: FileSystem | None = None,
    clock: Clock = lambda: MADE_AT_MS,
    read_only: bool = False,
    accept_loss: bool = False,
) -> LogStore:
    """Open a store of the real Kafka: in place if `read_only` or on an overlay, otherwise pass a copy."""
    options = StoreOptions(settings=settings, accept_loss=accept_loss)
    return open_store("kafka", path, options, fs=fs, clock=clock, read_only=read_only)


def copy_store(source: Path, target: Path) -> Path:
    """Make a writable copy of a store's data directory."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    return target


def as_row(address: TopicPartition, record: StoredRecord) -> dict[str, Any]:
    """Convert a record to the form of expected.jsonl."""
    return {
        "topic": address.topic,
        "partition": address.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestampType": record.timestamp_type,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def put(fs: FileSystem, path: Path, data: bytes) -> None:
    """Create a file with these bytes."""
    file = fs.open(path, create=True)
    file.truncate(0)
    file.pwrite(data, 0)
    file.close()


def differences(fs: FileSystem, made: Path, real: Path) -> dict[str, str]:
    """Return how the files in `made` differ from the real broker's: name -> missing, extra or differs."""
    ours = set(fs.list_dir(made))
    theirs = {path.name for path in real.iterdir()}
    found = dict.fromkeys(theirs - ours, "missing") | dict.fromkeys(ours - theirs, "extra")
    for name in ours & theirs:
        if fs.read_bytes(made / name) != (real / name).read_bytes():
            found[name] = "differs"
    return dict(sorted(found.items()))


def as_answer(found: TimedOffset | None) -> dict[str, Any] | None:
    """Convert a lookup by time to the form of times.json, which the peer's answers also have."""
    if found is None:
        return None
    return {
        "offset": found.offset,
        "timestamp": found.timestamp_ms,
        "leaderEpoch": found.leader_epoch,
    }
