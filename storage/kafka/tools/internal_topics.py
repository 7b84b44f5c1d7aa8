"""The content of Kafka's internal topics as rows: every record with its message type and fields, and the committed
offsets of consumer groups.

Owns the shape of these rows, which partitions have them and which offsets are shown; must not know bytes, or which
record of a key counts. Control records are included: in the metadata log and its snapshots they contain the leader, and
where a snapshot begins and ends.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from functools import partial
from typing import Final

from storage.errors import InvalidArgument
from storage.findings import finding
from storage.kafka.format import names
from storage.kafka.format.messages.records import (
    DECODED_TOPICS,
    RecordContent,
    decode_control,
    decode_record,
)
from storage.kafka.log.log_file import StoredBatch
from storage.kafka.state.group_offsets import OffsetsLog, id_bytes, is_of
from storage.kafka.tools.live import steady_runs
from storage.kafka.tools.logs import Log, LogReader, log_replaced
from storage.kafka.tools.rows import Row
from storage.kafka.tools.view import View
from storage.model import TopicPartition

DECODED: Final = "decoded"
OFFSETS: Final = "offsets"
RUN_ROWS: Final = 1000


def decoded_partitions(
    view: View, topic: str | None, partition: int | None
) -> Sequence[tuple[View, TopicPartition]]:
    """Return the selected partitions of internal topics, each with the view that reads it.

    The metadata log is not a partition of a store, so it has a view of its own. Raises UnknownTopic, UnknownPartition,
    and InvalidArgument for a topic that is not internal.
    """
    if topic is not None and topic not in DECODED_TOPICS:
        view.select(topic, partition)
        raise InvalidArgument(
            f"{DECODED}: records of {topic} are not decoded, only records of {', '.join(sorted(DECODED_TOPICS))}",
            field="topic",
        )
    found = []
    for folder in view.directory.metadata_dirs():
        address = names.parse_partition_dir(folder.name)
        if address is not None and address not in view.folders and view.fs.is_dir(folder):
            only = View(
                view.root, view.options, fs=view.base, clock=view.clock, only=(address, folder)
            )
            only.notes = view.notes
            only.reader.notes = view.notes
            found.append((only, address))
    found += [(view, address) for address in view.folders if address.topic in DECODED_TOPICS]
    chosen = [
        (of, address)
        for of, address in found
        if topic in {None, address.topic} and partition in {None, address.partition}
    ]
    if topic is not None and not chosen:
        view.select(topic, partition)
    return chosen


def partition_runs(view: View, address: TopicPartition) -> Iterator[list[Row]]:
    """Yield the decoded records of a partition, in runs. A running server may replace logs meanwhile."""
    yield from steady_runs(view, address, partial(_log_rows, address=address), "offset")


def _log_rows(view: View, start: int, *, address: TopicPartition) -> Iterator[list[Row]]:
    first, _, end = view.partition(address).bounds()
    for log in view.logs(address):
        yield from log_runs(view.reader, log, address.topic, start=max(first, start), end=end)


def log_runs(
    reader: LogReader, log: Log, topic: str, *, start: int, end: int
) -> Iterator[list[Row]]:
    """Yield the decoded records of one log file at offsets [start, end), in runs."""
    run: list[Row] = []
    for batch in reader.batches(log):
        if batch.header.base_offset >= end:
            break
        for offset, timestamp_ms, key, value, _ in reader.records(batch, log):
            if offset < start:
                continue
            control = batch.header.is_control
            content = decode_control(key, value) if control else decode_record(topic, key, value)
            _note(reader, log, batch, offset, content)
            run.append(
                {
                    "topic": log.topic,
                    "partition": log.partition,
                    "offset": offset,
                    "timestamp": timestamp_ms,
                    "control": control,
                    "type": content.type,
                    "version": content.version,
                    "key": content.key,
                    "value": content.value,
                }
            )
        if len(run) >= RUN_ROWS:
            yield run
            run = []
    if run:
        yield run


def _note(
    reader: LogReader, log: Log, batch: StoredBatch, offset: int, content: RecordContent
) -> None:
    if content.problem is not None:
        reader.notes.add(
            finding(
                "unknown-record",
                log.path,
                position=batch.position,
                topic=log.topic,
                partition=log.partition,
                offset=offset,
                message=f"shown as bytes: {content.problem.message}",
            )
        )


# ---- committed offsets ---------------------------------------------------------------------------


def offset_runs(view: View, wanted: Container[TopicPartition] | None) -> Iterator[list[Row]]:
    """Yield the offsets of every group, one run for each partition of the topic; `wanted`: for these partitions."""
    for address in view.folders:
        if address.topic == names.GROUP_OFFSETS_TOPIC:
            rows = partial(_offset_rows, address=address, wanted=wanted)
            yield from steady_runs(view, address, rows, "offset")


def _offset_rows(
    view: View, start: int, *, address: TopicPartition, wanted: Container[TopicPartition] | None
) -> Iterator[list[Row]]:
    """Yield one run. Until then nothing was returned, so `start` is 0."""
    log = OffsetsLog(view.partition(address))
    run = [
        row
        for group in log.look(lambda table: table.groups())
        for row in _rows(view, log, group)
        if wanted is None or TopicPartition(row["topic"], row["partition"]) in wanted
    ]
    if view.is_changed(address):  # damage is skipped there, and a replaced log may look damaged
        raise log_replaced(view.folders[address])
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
