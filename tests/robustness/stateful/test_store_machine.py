"""The state machine over the backends with data that outlives the process, each with tiny files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from unittest.mock import patch

import hypothesis
import pytest
from hypothesis import settings

from storage import LogStore, Record, TopicPartition
from storage.errors import StorageError
from storage.rocketmq.index.dispatcher import Dispatcher
from tests.robustness.stateful.machine import StoreMachine


class KafkaMachine(StoreMachine):
    """The machine for Kafka, which has the model's features."""

    backend = "kafka"
    store_settings: ClassVar = {
        "internal.segment.bytes": "1400",
        "segment.index.bytes": "120",
        "index.interval.bytes": "90",
    }
    whole_batches = True


# For each generated config the config of the model, which must have no effect there, and the config of RocketMQ.
STANDS_FOR = {
    "message.timestamp.type": ("retention.ms", "topicSysFlag"),
    "compression.type": ("retention.bytes", "perm"),
    "retention.ms": ("segment.ms", "readQueueNums"),
}
NUMBERS = {"CreateTime": "1", "LogAppendTime": "2", "gzip": "4", "lz4": "2", None: None}


class RocketMQMachine(StoreMachine):
    """The machine for RocketMQ, with text records, unique headers, and times of the append.

    Readers step the dispatcher, so that a run can be repeated, and a kill often finds records that were not dispatched.
    """

    backend = "rocketmq"
    store_settings: ClassVar = {
        "mappedFileSizeCommitLog": "2400",
        "mappedFileSizeConsumeQueue": "100",
        "maxHashSlotNum": "7",
        "maxIndexNum": "20",
    }
    whole_batches = False

    def __init__(self) -> None:
        self.no_thread = patch.object(Dispatcher, "start")
        self.no_thread.start()
        super().__init__()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.no_thread.stop()

    def fitting(self, records: Sequence[Record]) -> list[Record]:
        return [fitted(record) for record in records]

    def codec(self, name: str | None) -> str | None:
        return "lz4" if name == "gzip" else name

    def given(self, store: LogStore, configs: Mapping[str, Any]) -> dict[str, Any]:
        ours = store is self.store
        return {STANDS_FOR[name][ours]: NUMBERS[value] for name, value in configs.items()}

    def shown(self, store: LogStore, configs: Mapping[str, str]) -> dict[str, str]:
        back = {ours: models for models, ours in STANDS_FOR.values()}
        return {back.get(name, name): value for name, value in configs.items()}

    def id_of(self, store: LogStore, partition: TopicPartition, offset: int) -> str:
        if store is self.model:
            return super().id_of(store, partition, offset)
        try:
            page = store.read(partition, offset, max_records=1)
        except StorageError:
            return "7F00000100002A9F7000000000000000"
        return "".join(store.record_id(partition, record.locator) for record in page.records)


def fitted(record: Record) -> Record:
    """Return the record with values that RocketMQ cannot represent replaced."""
    return record._replace(
        key=record.key or None,
        value=(record.value or b"").replace(b"\xff", b"\0\1\2"),
        headers=list(
            {name: (value or b"-").hex().encode() for name, value in record.headers}.items()
        ),
        timestamp_ms=None,
        lookup_keys=[key for key in record.lookup_keys if key.encode() != record.key],
    )


# CI takes half of a run's examples, which the commit chooses; the quick run and the soak take all.
SHARE = 2 if settings.default is not None and settings.default.derandomize else 1
LIMITS = settings(
    stateful_step_count=40, deadline=None, max_examples=settings().max_examples // SHARE
)
TestKafkaMachine = KafkaMachine.TestCase
TestKafkaMachine.settings = LIMITS
TestRocketMQMachine = RocketMQMachine.TestCase
TestRocketMQMachine.settings = LIMITS


@pytest.fixture(scope="module", autouse=True)
def examples_of_the_commit(seed: int) -> None:
    """The examples of CI, which are the same in each run of a commit."""
    if SHARE > 1:
        for machine in (KafkaMachine, RocketMQMachine):
            hypothesis.seed(seed)(machine)
