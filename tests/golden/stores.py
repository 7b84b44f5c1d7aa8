"""The golden stores of the real Kafka, and what it read from them: paths and expectations for the tests."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from storage import StoredRecord, TopicPartition

KAFKA = Path(__file__).parent / "kafka"
DAMAGED = "torn"


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

    def json(self, name: str) -> Any:
        """One of the JSON expectations."""
        return json.loads((self.expect / name).read_text())

    def lines(self, name: str) -> list[dict[str, Any]]:
        """One of the JSON-lines expectations; empty when the file is missing."""
        path = self.expect / name
        return [json.loads(line) for line in path.open()] if path.exists() else []

    def __str__(self) -> str:
        return f"{self.store}:{self.name}"


def healthy_stores() -> list[str]:
    """Names of the stores that were stopped cleanly and are undamaged."""
    return sorted(p.name for p in KAFKA.iterdir() if p.is_dir() and p.name != DAMAGED)


def damaged_variants() -> list[str]:
    """Names of the damaged copies."""
    return sorted(p.name for p in (KAFKA / DAMAGED).iterdir() if p.is_dir())


@cache
def partitions() -> list[GoldenPartition]:
    """Every partition of every healthy store that has expectations of its records."""
    return list(_partitions())


def _partitions() -> Iterator[GoldenPartition]:
    for store in healthy_stores():
        for expect in sorted((KAFKA / store / "expect").iterdir()):
            if (expect / "expected.jsonl").exists():
                yield GoldenPartition(store, expect.name)


def copy_store(source: Path, target: Path) -> Path:
    """A writable copy of a store's data directory."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    return target


def as_row(address: TopicPartition, record: StoredRecord) -> dict[str, Any]:
    """A record in the form of expected.jsonl."""
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
