"""Committed offsets of consumer groups as rows, from the records of `__consumer_offsets`.

Owns the shape of these rows and which offsets are shown; must not know which record of a key counts.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final

from storage.kafka.format import names
from storage.kafka.state.group_offsets import OffsetsLog, id_bytes, is_of
from storage.kafka.tools.rows import Row
from storage.kafka.tools.view import View
from storage.model import TopicPartition

OFFSETS: Final = "offsets"


def offset_runs(view: View, wanted: Container[TopicPartition] | None) -> Iterator[list[Row]]:
    """Yield the offsets of every group, one run for each partition of the topic; `wanted`: for these partitions."""
    for address in view.folders:
        if address.topic != names.GROUP_OFFSETS_TOPIC:
            continue
        log = OffsetsLog(view.partition(address))
        run = [
            row
            for group in log.look(lambda table: table.groups())
            for row in _rows(view, log, group)
            if wanted is None or TopicPartition(row["topic"], row["partition"]) in wanted
        ]
        if run:
            yield run


def _rows(view: View, log: OffsetsLog, group: str) -> Iterator[Row]:
    offsets = log.look(lambda table: table.of_group(group))
    for partition, value in offsets.items():
        if is_of(value, _topic_id(view, partition)):
            yield {
                "group": group,
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": value.offset,
                "leaderEpoch": None if value.leader_epoch < 0 else value.leader_epoch,
                "metadata": value.metadata,
                "commitTimestamp": value.commit_timestamp_ms,
            }


def _topic_id(view: View, partition: TopicPartition) -> bytes | None:
    folder = view.folders.get(partition)
    return id_bytes(None if folder is None else view.directory.topic_id(folder))
