"""Rebuild of the index files of one segment: a part that any process may do.

Owns the wanted content, by the engine's own rules, and the comparison with the stored files; must not
replace a file of the store. Files that differ are written next to the store, and the caller puts them
in place. The transaction index depends on the transactions open before the segment; these are guessed
as in verify_log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from storage.files import FileSystem, HandleCache, write_durably
from storage.kafka.format import names, offset_index, time_index, txn_index
from storage.kafka.format.batch import BatchHeader
from storage.kafka.format.names import segment_name
from storage.kafka.format.txn_index import AbortedTransaction
from storage.kafka.index import indexes
from storage.kafka.state.producers import ProducerStates
from storage.kafka.tools.logs import Log, LogReader
from storage.kafka.tools.rebuild.opened_before import opened_before
from storage.model import Finding
from storage.shared.diagnostics import Meter, Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPart:
    """One segment to be rebuilt. `open_transactions` and `snapshot` as in SegmentPart.

    - `indexes`: the paths with the bytes of its index files, by suffix.
    - `compacted`: the log no longer shows which transactions were aborted.
    - `staged`: the folder for new files, created when it is needed; None: compare only.
    """

    fs: FileSystem
    log: Log
    indexes: Mapping[str, Path]
    snapshot: Path | None
    interval_bytes: int
    compacted: bool
    staged: Path | None
    open_transactions: Mapping[int, int] | None = None


@dataclass(slots=True, kw_only=True)
class SegmentBuilt:
    """The result for one segment. The other fields are as in SegmentResult.

    - `files`: the number of index files that exist or should exist.
    - `changed`: the files that differ, by suffix: the path of the new bytes. None if the file should not exist, or
      if files are only compared.
    - `entries`: the number of entries that each file should have, None for a file that should not exist.
    """

    files: int = 0
    changed: dict[str, Path | None] = field(default_factory=dict)
    entries: dict[str, int | None] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    transactional: bool = False
    opened: Mapping[int, int] = field(default_factory=dict)
    left_open: Mapping[int, int] = field(default_factory=dict)


def build_segment(part: RebuildPart, meter: Meter | None = None) -> SegmentBuilt:
    """Read the good batches of a segment's log, and compare. Memory: its indexes, twice."""
    result = SegmentBuilt(opened=opened_before(part.fs, part.open_transactions, part.snapshot))
    files, notes = HandleCache(part.fs, 2), Notes()
    reader = LogReader(files, notes)
    reader.meter = meter or Meter()
    try:
        wanted = _contents(part, reader, result)
    finally:
        files.close(sync=False)
    if part.compacted:
        del wanted[names.TXN_INDEX]
    for suffix, data in wanted.items():
        _compare(part, suffix, data, result)
    result.findings = notes.all()
    return result


def _contents(part: RebuildPart, reader: LogReader, result: SegmentBuilt) -> dict[str, bytes]:
    """Return the wanted bytes of the index files; a `.txnindex` without entries should not exist."""
    aborted: list[AbortedTransaction] = []
    producers = ProducerStates.with_open(result.opened)

    def batches() -> Iterator[tuple[int, BatchHeader]]:
        for batch in reader.batches(part.log):
            header = batch.header
            result.transactional |= header.is_control or header.is_transactional
            ended = producers.update(header, batch.data, batch.at)
            if ended is not None:
                aborted.append(ended)
            yield batch.position, header

    rebuilt = indexes.rebuild_indexes(
        batches(), base_offset=part.log.base_offset, interval_bytes=part.interval_bytes
    )
    result.left_open = producers.open_transactions
    result.entries = {
        names.INDEX: len(rebuilt.offsets),
        names.TIME_INDEX: len(rebuilt.times),
        names.TXN_INDEX: len(aborted) or None,
    }
    return {
        names.INDEX: b"".join(offset_index.encode_entry(*e) for e in rebuilt.offsets),
        names.TIME_INDEX: b"".join(time_index.encode_entry(*e) for e in rebuilt.times),
        names.TXN_INDEX: b"".join(map(txn_index.encode_entry, aborted)),
    }


def _compare(part: RebuildPart, suffix: str, data: bytes, result: SegmentBuilt) -> None:
    stored = part.fs.read_bytes(part.indexes[suffix]) if suffix in part.indexes else None
    absent = suffix == names.TXN_INDEX and not data
    result.files += not (absent and stored is None)
    if stored == (None if absent else data):
        return
    staged: Path | None = None
    if part.staged is not None and not absent:
        staged = part.staged / segment_name(part.log.base_offset, suffix)
        part.fs.make_dir(part.staged)
        write_durably(part.fs, staged, data)
    result.changed[suffix] = staged
