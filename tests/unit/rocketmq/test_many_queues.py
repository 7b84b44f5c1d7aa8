"""The work of the tools per queue does not grow with the number of other queues or of index files."""

from __future__ import annotations

from collections import Counter

import pytest

from storage.model import TopicPartition
from storage.rocketmq.index.key_index_file import KeyIndexFile
from storage.rocketmq.index.queues import Queue, QueueTable
from tests.unit.rocketmq.recovery.foreign_log import inspector
from tests.unit.rocketmq.workshop import Workshop, keyed


@pytest.mark.parametrize("queues", [20, 60, 120])
def test_a_verify_opens_each_queue_and_each_index_file_a_few_times(
    queues: int, shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop.open_with_topic(partitions=queues) as store:
        for number in range(queues):
            store.append(TopicPartition("t", number), [keyed(b"%d" % number)])
    index_files = len(shop.names("index"))
    assert index_files > queues // 10
    done: Counter[str] = Counter()
    add, read_header = QueueTable.add, KeyIndexFile._read_header

    def counted_add(table: QueueTable, topic: str, queue_id: int) -> Queue:
        done["queue"] += 1
        return add(table, topic, queue_id)

    def counted_header(file: KeyIndexFile) -> object:
        done["index file"] += 1
        return read_header(file)

    monkeypatch.setattr(QueueTable, "add", counted_add)
    monkeypatch.setattr(KeyIndexFile, "_read_header", counted_header)
    with inspector(shop) as tools:
        assert list(tools.verify()) == []
    assert queues <= done["queue"] <= 4 * queues
    assert index_files <= done["index file"] <= 4 * index_files
