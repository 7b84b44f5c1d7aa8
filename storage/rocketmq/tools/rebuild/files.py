"""Rebuilding in parts: build queues and index files from the staged data of the log ranges.

Owns these parts; must not define bytes: the engine's own builders write them. Every index file takes the same number
of strings, so a string's number determines its file:

    strings   | range 1        | range 2     | range 3             |
    files     | file 1     | file 2     | file 3     | file 4      |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from storage.files import File, FileSystem, HandleCache
from storage.rocketmq.format import names
from storage.rocketmq.format.index_file import FIRST_ENTRY, IndexHeader
from storage.rocketmq.index.dispatch import Dispatch
from storage.rocketmq.index.dispatcher import Builder
from storage.rocketmq.index.key_index import TAIL_BYTES
from storage.rocketmq.index.key_index_file import KeyIndexFile
from storage.rocketmq.index.key_index_table import KeyHasher, KeyIndexTable
from storage.rocketmq.index.queues import QueueTable
from storage.rocketmq.state.settings import Sizes
from storage.rocketmq.tools.rebuild.log_range import StagedEntries, staged_strings, staged_units
from storage.rocketmq.tools.verify.queues import Key

OPEN_FILES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The place of the build: the folder of the new files, the folder of the store's own files, and the file sizes.
    `with_fillers`: see Builder.
    """

    fs: FileSystem
    made: Path
    old: Path
    sizes: Sizes
    with_fillers: bool


class QueuePart(NamedTuple):
    """Queues, each with its entries in log order."""

    queues: Sequence[tuple[Key, Sequence[StagedEntries]]]


class QueuesBuilt(NamedTuple):
    """The result of building queues:

    - `compared`: for each file of the store, whether it stays as it is;
    - `filled`: the queues that have entries, and their number of entries;
    - `refused`: records with an impossible queue offset;
    - `moved`: by queue, the first record that got another queue offset.
    """

    compared: dict[Path, bool]
    filled: dict[Key, int]
    refused: list[Dispatch]
    moved: dict[Key, Dispatch]


def build_queues(site: Site, part: QueuePart) -> QueuesBuilt:
    """Build queues; durable on return. Memory: some entries at a time."""
    files = HandleCache(site.fs, OPEN_FILES)
    queues = QueueTable(files, site.made, site.sizes.consume_queue_bytes)
    builder = Builder(queues, None, {}, with_fillers=site.with_fillers)
    compared: dict[Path, bool] = {}
    try:
        for key, unit_runs in part.queues:
            for unit_run in unit_runs:
                for dispatches in staged_units(site.fs, key, unit_run):
                    builder.build_queues(dispatches)
        for queue in queues:
            queue.units.sync()
            topic, queue_id = queue.partition
            folder, run = site.old / topic / str(queue_id), queue.units.run
            for base in run.bases:
                old = folder / names.file_name(base)
                compared[old] = is_same(site.fs, run.path(base), site.fs, old)
    finally:
        files.close(sync=False)
    filled: dict[Key, int] = {
        q.partition: q.units.end - q.units.first_offset for q in queues if not q.units.is_empty
    }
    return QueuesBuilt(compared, filled, builder.refused, builder.moved)


class StagedStrings(NamedTuple):
    """The staged strings of a log range, and the number of strings before it."""

    path: Path
    before: int
    strings: int


class IndexPart(NamedTuple):
    """The index file with this number, to be built under `name` and compared with `old`."""

    number: int
    name: str
    old: Path
    staged: Sequence[StagedStrings]


def strings_a_file(sizes: Sizes) -> int:
    """Return the number of strings that an index file takes."""
    return sizes.index_entries - FIRST_ENTRY


def build_index_file(site: Site, part: IndexPart) -> tuple[Path, bool, int]:
    """Build one index file; durable on return. Return (the store's file, whether it stays as it is, the store time
    of the last record). Memory: the slots, some entries and a block of strings.
    """
    slots, entries = site.sizes.index_slots, site.sizes.index_entries
    files = HandleCache(site.fs, OPEN_FILES)
    first = part.number * strings_a_file(site.sizes)
    path = site.made / part.name
    try:
        before = _strings_from(site.fs, part.staged, first - 1) if first else iter(())
        inherited = _ended_at(next(before, None))
        file = KeyIndexFile.create(files, path, inherited, slots=slots, entries=entries)
        table = file.open_table(KeyHasher())
        _fill(file, table, _strings_from(site.fs, part.staged, first))
        file.write_back()
        file.sync()
        site.fs.sync_dir(site.made)
        same = is_same(site.fs, path, site.fs, part.old)
        return part.old, same, file.header.end_timestamp_ms
    finally:
        files.close(sync=False)


class IndexBatch(NamedTuple):
    """Records whose strings are to be put in the index. The first `strings` strings of the first record are skipped."""

    dispatches: list[Dispatch]
    strings: int


def _fill(file: KeyIndexFile, table: KeyIndexTable, batches: Iterator[IndexBatch]) -> None:
    for dispatches, strings in batches:
        table.put_run(dispatches, 0, strings)
        if table.is_full:
            return
        if len(table.tail[1]) > TAIL_BYTES:
            file.write_entries()


def _strings_from(
    fs: FileSystem, staged: Sequence[StagedStrings], first: int
) -> Iterator[IndexBatch]:
    """Yield records, beginning with the record that has string number `first` of the whole index."""
    for path, before, strings in staged:
        if before + strings <= first:
            continue
        for in_file, dispatches in staged_strings(fs, path, first - before):
            number = before + in_file
            done = 0
            while done < len(dispatches) and number + len(dispatches[done].keys) <= first:
                number += len(dispatches[done].keys)
                done += 1
            rest = dispatches if not done else list(islice(dispatches, done, None))
            yield IndexBatch(rest, max(first - number, 0))


def _ended_at(batch: IndexBatch | None) -> IndexHeader:
    """Return the header fields that a file inherits from the previous file. That file's last record is the first of
    `batch`.
    """
    if batch is None:
        return IndexHeader()
    last = batch.dispatches[0]
    return IndexHeader(
        end_timestamp_ms=last.store_timestamp_ms, end_physical_offset=last.physical_offset
    )


CHUNK_BYTES: Final = 1 << 20


def is_same(made_fs: FileSystem, made: Path, old_fs: FileSystem, old: Path) -> bool:
    """Return whether two files hold the same bytes. A missing `old` is never the same."""
    if not old_fs.exists(old):
        return False
    first, second = made_fs.open(made), old_fs.open(old)
    try:
        return first.size() == second.size() and _is_same_content(first, second)
    finally:
        first.close()
        second.close()


def _is_same_content(first: File, second: File) -> bool:
    position, end = 0, first.size()
    while True:
        position = min(first.next_data(position), second.next_data(position))
        if position >= end:
            return True
        if first.pread(CHUNK_BYTES, position) != second.pread(CHUNK_BYTES, position):
            return False
        position += CHUNK_BYTES
