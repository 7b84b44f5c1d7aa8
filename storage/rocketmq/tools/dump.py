"""What a RocketMQ store holds, as runs of rows: its records, its log, its queues, its index, small files.

Owns the order of the rows and what is left out; must not know the shape of a row.
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
from storage.notes import Notes
from storage.rocketmq.consume_queue import ConsumeQueue
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
from storage.rocketmq.key_index_table import file_order
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
from storage.rocketmq.tools.view import UNITS_AT_ONCE, View

RECORDS: Final = "records"
COMMIT_LOG: Final = "commitlog"
CONSUME_QUEUE: Final = "consumequeue"
INDEX_FILE: Final = "indexfile"
CHECKPOINTS: Final = "checkpoints"
OFFSETS: Final = "offsets"
KINDS: Final = (RECORDS, COMMIT_LOG, CONSUME_QUEUE, INDEX_FILE, CHECKPOINTS, OFFSETS)

RUN_BYTES: Final = 1 << 18
"""About so much of a log goes into one run of rows."""
RUN_ROWS: Final = 1000

Runs: TypeAlias = Iterator[list[Row]]
Place: TypeAlias = tuple[str | None, int | None]
"""A topic and a queue id, None where they are not known."""


def check_kind(what: str, kinds: Sequence[str]) -> None:
    """Raise InvalidArgument unless this kind of dump is offered here."""
    if what not in kinds:
        raise InvalidArgument(
            f"dump: {what!r} is not offered here, choose one of {', '.join(kinds)}", field="what"
        )


def rows_of(view: View, what: str, addresses: Sequence[TopicPartition]) -> Runs:
    """The rows of one kind of the store, of these queues where it is kept by queue."""
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
    """Where each group stands in these queues."""
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
    """Rows put together to runs; with each comes how many bytes it stands for."""
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
    """What readers of these queues see, queue by queue."""
    queues = map(view.store.queue, addresses)
    return in_runs(
        (queued_row(message, unit, offset, delays_ms=view.delays_ms), message.size)
        for queue in queues
        for offset, unit, message in view.messages(queue)
    )


def log_runs(walk: LogWalk, addresses: Sequence[TopicPartition] | None = None) -> Runs:
    """The log in order; of some queues alone without the paddings."""
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


def unit_runs(units: ConsumeQueue, first: int, stop: int, place: Place) -> Runs:
    """The units of offsets [first, stop), those of records that are gone too."""
    offset = first
    while offset < stop:
        found = units.read(offset, min(UNITS_AT_ONCE, stop - offset))
        yield [unit_row(*place, at, unit) for at, unit in enumerate(found, start=offset)]
        offset += len(found)


def index_runs(view: View) -> Runs:
    """One row for each index file, the oldest first."""
    index = view.store.index
    files = HandleCache(view.store.fs, 1)
    try:
        for file in () if index is None else index.index_files:
            yield [index_file_row(files, file.path, file.slots, file.entries)]
    finally:
        files.close(sync=False)


def index_file_row(files: HandleCache, path: Path, slots: int, entries: int) -> Row:
    """All of an index file of so many slots and room for so many entries."""
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
    """The checkpoint and the broker's config files."""
    for path in small_files(fs, root):
        yield [small_file_row(fs, path, notes, root=root)]


def small_files(fs: FileSystem, root: Path) -> Iterator[Path]:
    """The checkpoint, then config/*.json and what was there before (`.bak`)."""
    checkpoint, config = root / names.CHECKPOINT, root / names.CONFIG
    if fs.exists(checkpoint) and not fs.is_dir(checkpoint):
        yield checkpoint
    for name in fs.list_dir(config) if fs.is_dir(config) else ():
        if is_config_name(name) and not fs.is_dir(config / name):
            yield config / name


def is_config_name(name: str) -> bool:
    """Whether this is one of the broker's JSON files, or the backup of one."""
    return name.removesuffix(names.BACKUP).endswith(".json")


def small_file_row(fs: FileSystem, path: Path, notes: Notes, *, root: Path | None = None) -> Row:
    """A small file with what is in it; nothing, and a note, where it is damaged."""
    name = path.name if root is None else str(path.relative_to(root))
    try:
        data = fs.read_bytes(path)
        return file_row(name, [small_file_entry(data, path.name)] if data else [])
    except DataError as error:
        notes.add(bad_small_file(path, error))
        return file_row(name, [])


def bad_small_file(path: Path, error: DataError) -> Finding:
    """A small file that cannot be understood."""
    code = "bad-root-file" if path.name == names.CHECKPOINT else "bad-config-file"
    return finding(code, path, message=error.message)
