"""The contents of a RocketMQ store as runs of rows: records, log, queues, index, small files.

Owns the order and selection of the rows; must not know the shape of a row.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from storage.errors import DataError, InvalidArgument
from storage.files import FileSystem, HandleCache
from storage.findings import finding
from storage.model import Finding, TopicPartition
from storage.rocketmq.format import names
from storage.rocketmq.format.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexEntry,
    decode_entries,
    decode_header,
    entry_position,
)
from storage.rocketmq.index.consume_queue import ConsumeQueue
from storage.rocketmq.index.key_index_table import file_order
from storage.rocketmq.queue import UNITS_AT_ONCE
from storage.rocketmq.tools.log_walk import LogWalk, Padding
from storage.rocketmq.tools.rows import (
    Row,
    blank_row,
    file_row,
    index_row,
    log_row,
    queued_row,
    small_file_entry,
    unit_row,
)
from storage.rocketmq.tools.view import View
from storage.shared.diagnostics import Notes

RECORDS: Final = "records"
COMMIT_LOG: Final = "commitlog"
CONSUME_QUEUE: Final = "consumequeue"
INDEX_FILE: Final = "indexfile"
CHECKPOINTS: Final = "checkpoints"
OFFSETS: Final = "offsets"
COMPACTED: Final = "compacted"
KINDS: Final = (RECORDS, COMMIT_LOG, CONSUME_QUEUE, INDEX_FILE, CHECKPOINTS, OFFSETS, COMPACTED)

RUN_BYTES: Final = 1 << 18
"""Approximate number of log bytes in one run of rows."""
RUN_ROWS: Final = 1000

Runs: TypeAlias = Iterator[list[Row]]
PathQueue: TypeAlias = tuple[str | None, int | None]
"""A topic and a queue id; None if unknown."""


def check_kind(what: str, kinds: Sequence[str]) -> None:
    """Raise InvalidArgument unless this kind of dump is offered here."""
    if what not in kinds:
        raise InvalidArgument(
            f"dump: {what!r} is not offered here, choose one of {', '.join(kinds)}", field="what"
        )


def rows_of(view: View, what: str, addresses: Sequence[TopicPartition]) -> Runs:
    """Return the rows of one kind; kinds stored by queue are limited to these queues."""
    if what == RECORDS:
        return record_runs(view, addresses)
    if what == COMMIT_LOG:
        everything = len(addresses) == len(view.addresses) and view.is_whole
        return log_runs(view.walk("reading"), None if everything else addresses)
    if what == CONSUME_QUEUE:
        return (run for address in addresses for run in _queue_runs(view, address))
    if what == INDEX_FILE:
        return index_runs(view)
    if what == OFFSETS:
        return in_runs((row, 1) for row in _offset_rows(view, set(addresses)))
    return small_file_runs(view.store.fs, view.root, view.notes)


def _offset_rows(view: View, addresses: Container[TopicPartition]) -> Iterator[Row]:
    """Yield the committed offset of each group in these queues."""
    for group in view.store.groups():
        for queue, committed in view.store.committed(group).items():
            if queue in addresses:
                yield {
                    "group": group,
                    "topic": queue.topic,
                    "queueId": queue.partition,
                    "offset": committed.offset,
                }


def in_runs(rows: Iterable[tuple[Row, int]]) -> Runs:
    """Group rows into runs. Each row comes with the number of bytes it represents."""
    run: list[Row] = []
    size_bytes = 0
    for row, row_bytes in rows:
        run.append(row)
        size_bytes += row_bytes
        if size_bytes >= RUN_BYTES or len(run) >= RUN_ROWS:
            yield run
            run, size_bytes = [], 0
    if run:
        yield run


def record_runs(view: View, addresses: Sequence[TopicPartition]) -> Runs:
    """Yield the records that readers of these queues see, queue by queue. After all queues of a store, the view has
    findings for the records in no queue.
    """
    queues = map(view.store.queue, addresses)
    yield from in_runs(
        (queued_row(message, unit, offset, delays_ms=view.delays_ms), message.size)
        for queue in queues
        for offset, unit, message in view.messages(queue)
    )
    if view.is_whole and len(addresses) == len(view.addresses):
        view.note_unqueued()


def log_runs(walk: LogWalk, addresses: Sequence[TopicPartition] | None = None) -> Runs:
    """Return the log in order. With `addresses`, only the records of these queues, without paddings."""
    wanted = None if addresses is None else set(addresses)
    return in_runs(_log_rows(walk, wanted))


def _log_rows(walk: LogWalk, wanted: set[TopicPartition] | None) -> Iterator[tuple[Row, int]]:
    for item in walk.items():
        if isinstance(item, Padding):
            if wanted is None:
                yield blank_row(*item), 0
        elif wanted is None or (item.message.topic, item.message.queue_id) in wanted:
            yield log_row(item.message, item.physical_offset), 0


def _queue_runs(view: View, address: TopicPartition) -> Runs:
    units = view.store.queue(address).units
    return unit_runs(units, units.first_offset, units.end, address)


def unit_runs(units: ConsumeQueue, first: int, stop: int, place: PathQueue) -> Runs:
    """Yield the queue entries of offsets [first, stop), including entries of deleted records."""
    offset = first
    while offset < stop:
        found = units.read(offset, min(UNITS_AT_ONCE, stop - offset))
        yield [unit_row(*place, at, unit) for at, unit in enumerate(found, start=offset)]
        offset += len(found)


def index_runs(view: View) -> Runs:
    """Yield one row for each index file, the oldest first."""
    index = view.store.index
    files = HandleCache(view.store.fs, 1)
    try:
        for file in () if index is None else index.index_files:
            yield [index_file_row(files, file.path, file.slots, file.entries)]
    finally:
        files.close(sync=False)


def index_file_row(files: HandleCache, path: Path, slots: int, entries: int) -> Row:
    """Return the row of an index file with this number of slots and room for this number of entries."""
    with files.borrow(path) as file:
        header = decode_header(file.pread(HEADER_SIZE, 0))
        values = file_order(array("i", file.pread(slots * SLOT_SIZE, HEADER_SIZE)))
        count = max(min(header.index_count, entries), 0)
        data = file.pread(count * ENTRY_SIZE, entry_position(slots, 0))
        found: list[IndexEntry] = decode_entries(data[: len(data) - len(data) % ENTRY_SIZE])
        used = ((slot, value) for slot, value in enumerate(values) if value)
        return index_row(path.name, file.size(), header, used, found)


# ---- small files ---------------------------------------------------------------------------------


def small_file_runs(fs: FileSystem, root: Path, notes: Notes) -> Runs:
    """Yield the checkpoint and the broker's config files."""
    for path in small_files(fs, root):
        yield [small_file_row(fs, path, notes, root=root)]


def small_files(fs: FileSystem, root: Path) -> Iterator[Path]:
    """Yield the paths of the checkpoint, then of config/*.json and their backups (`.bak`)."""
    checkpoint, config = root / names.CHECKPOINT, root / names.CONFIG
    if fs.exists(checkpoint) and not fs.is_dir(checkpoint):
        yield checkpoint
    for name in fs.list_dir(config) if fs.is_dir(config) else ():
        if is_config_name(name) and not fs.is_dir(config / name):
            yield config / name


def is_config_name(name: str) -> bool:
    """Return whether this is the name of one of the broker's JSON files, or of its backup."""
    return name.removesuffix(names.BACKUP).endswith(".json")


def small_file_row(fs: FileSystem, path: Path, notes: Notes, *, root: Path | None = None) -> Row:
    """Return the row of a small file. If the file is damaged, the row has no entries and a finding is noted."""
    name = path.name if root is None else str(path.relative_to(root))
    try:
        data = fs.read_bytes(path)
        return file_row(name, [small_file_entry(data, path.name)] if data else [])
    except DataError as error:
        notes.add(bad_small_file(path, error))
        return file_row(name, [])


def bad_small_file(path: Path, error: DataError) -> Finding:
    """Return the finding for a small file that cannot be parsed."""
    code = "bad-root-file" if path.name == names.CHECKPOINT else "bad-config-file"
    return finding(code, path, message=error.message)
