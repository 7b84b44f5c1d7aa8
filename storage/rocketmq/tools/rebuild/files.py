"""The new files of a rebuild: their place, the result of the build, and the parts that build them from staged data.

Owns these parts, and the comparison of new with old files; must not define bytes: the engine's own builders write them.
Every index file takes the same number of strings, so a string's number determines its file:

    strings   | range 1        | range 2     | range 3             |
    files     | file 1     | file 2     | file 3     | file 4      |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from storage.files import File, FileSystem, HandleCache
from storage.model import Finding
from storage.rocketmq.format import names
from storage.rocketmq.format.index_file import FIRST_ENTRY, IndexHeader
from storage.rocketmq.format.queue_entry import UNIT_SIZE
from storage.rocketmq.index.consume_queue import ConsumeQueue
from storage.rocketmq.index.dispatch_request import Dispatch
from storage.rocketmq.index.dispatcher import Builder, BuildOptions, Last
from storage.rocketmq.index.key_index import TAIL_BYTES
from storage.rocketmq.index.key_index_file import KeyIndexFile
from storage.rocketmq.index.key_index_table import KeyIndexTable
from storage.rocketmq.index.queues import QueueTable
from storage.rocketmq.index.record_pass import STRING
from storage.rocketmq.state.settings import Sizes
from storage.rocketmq.tools.rebuild.log_range import StagedEntries, staged_entries, staged_strings
from storage.rocketmq.tools.verify.queues import Key, Range

OPEN_FILES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The place of a build: the folder `made` of the new files, the folder `old` of the store's own files, and the file
    sizes. `with_fillers`, `batch_topics`: see Builder, QueueTable. `write` False: compared files are removed.
    """

    fs: FileSystem
    made: Path
    old: Path
    old_fs: FileSystem
    old_index: Sequence[Path]  # the store's index files, oldest first
    sizes: Sizes
    with_fillers: bool
    batch_topics: frozenset[str]
    write: bool

    def queues(self, files: HandleCache) -> QueueTable:
        """Return a table of new queues, without any file."""
        queue_bytes = self.sizes.consume_queue_bytes
        return QueueTable(files, self.made, queue_bytes, batch_topics=self.batch_topics)

    def folder_of(self, key: Key) -> Path:
        """Return the folder of a new queue."""
        return self.made / key[0] / str(key[1])

    def old_index_file(self, number: int, name: str) -> Path:
        """Return the store's index file with this number; where it has none, the place of a new file `name`."""
        known = number < len(self.old_index)
        return self.old_index[number] if known else self.old / name


@dataclass(slots=True, kw_only=True)
class BuiltFiles:
    """The result of a build.

    - `compared`: for each file of the store, whether it stays as it is;
    - `entries`: the new queues, and their number of entries (0: no possible entry was left, so the queue goes);
    - `files`: the number of new queue files, or of new index files;
    - `strings`: the number of strings in the index; `index_end_ms`: the store time of the last record in it;
    - `refused`, `moved`: records that no queue can take, and records that got another queue offset than their own;
    - `last`: the last record of the log that was not deleted; `left_out`: the number of deleted records;
    - `begun`: topics found to be deleted and created again;
    - `gaps`: the bad places of the log.
    """

    compared: dict[Path, bool] = field(default_factory=dict)
    entries: dict[Key, int] = field(default_factory=dict)
    files: int = 0
    strings: int = 0
    index_end_ms: int = 0
    refused: list[Dispatch] = field(default_factory=list)
    moved: list[Dispatch] = field(default_factory=list)
    last: Last | None = None
    left_out: int = 0
    begun: set[str] = field(default_factory=set)
    gaps: Sequence[Range] = ()
    notes: Sequence[Finding] = ()


def compare_queue(
    site: Site, units: ConsumeQueue, key: Key, compared: dict[Path, bool], *, finished: bool
) -> int:
    """Compare the new files of a queue that are complete, all if `finished`; return their number.

    Without `write` they are removed after that.
    """
    run, written = units.run, units.end * UNIT_SIZE
    done = [base for base in run.bases if finished or base + run.file_bytes <= written]
    for base in done:
        old = site.old / key[0] / str(key[1]) / names.file_name(base)
        compared[old] = is_same(site.fs, run.path(base), site.old_fs, old)
    if done and not site.write:
        run.remove(done)
    return len(done)


class QueuePart(NamedTuple):
    """Queues, each with its entries in log order."""

    queues: Sequence[tuple[Key, Sequence[StagedEntries]]]


def build_queues(site: Site, part: QueuePart) -> BuiltFiles:
    """Build queues; durable on return. Memory: some entries at a time."""
    files = HandleCache(site.fs, OPEN_FILES)
    queues = site.queues(files)
    builder = Builder(queues, None, {}, BuildOptions(with_fillers=site.with_fillers))
    built = BuiltFiles(refused=builder.refused)
    try:
        for key, staged in part.queues:
            for one in staged:
                for entries in staged_entries(site.fs, key, one):
                    builder.build_queues([entries])
        finish_queues(site, builder, built)
    finally:
        files.close(sync=False)
    return built


def finish_queues(site: Site, builder: Builder, built: BuiltFiles) -> None:
    """Make the new queues durable and compare their last files; add the results to `built`."""
    for queue in builder.queues:
        units = queue.units
        units.sync()
        if not units.is_empty:
            built.entries[queue.partition] = units.end - units.first_offset
        built.files += compare_queue(site, units, queue.partition, built.compared, finished=True)
    built.moved += builder.moved.values()


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
        table = file.open_table()
        _fill(file, table, _strings_from(site.fs, part.staged, first))
        file.write_back()
        file.sync()
        site.fs.sync_dir(site.made)
        same = is_same(site.fs, path, site.old_fs, part.old)
        return part.old, same, file.header.end_timestamp_ms
    finally:
        files.close(sync=False)


def _fill(file: KeyIndexFile, table: KeyIndexTable, blocks: Iterator[bytes]) -> None:
    for strings in blocks:
        table.put_strings(strings, 0)
        if table.is_full:
            return
        if len(table.tail[1]) > TAIL_BYTES:
            file.write_entries()


def _strings_from(fs: FileSystem, staged: Sequence[StagedStrings], first: int) -> Iterator[bytes]:
    """Yield strings, beginning with string number `first` of the whole index."""
    for path, before, strings in staged:
        if before + strings > first:
            yield from staged_strings(fs, path, max(first - before, 0))


def _ended_at(strings: bytes | None) -> IndexHeader:
    """Return the header fields that a file inherits from the previous file, whose last string is the first of these."""
    if strings is None:
        return IndexHeader()
    _, physical_offset, time_ms = STRING.unpack_from(strings)
    return IndexHeader(end_timestamp_ms=time_ms, end_physical_offset=physical_offset)


CHUNK_BYTES: Final = 1 << 20


def is_same(new_fs: FileSystem, new: Path, old_fs: FileSystem, old: Path) -> bool:
    """Return whether two files hold the same bytes. A missing `old` is never the same."""
    if not old_fs.exists(old):
        return False
    first, second = new_fs.open(new), old_fs.open(old)
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
