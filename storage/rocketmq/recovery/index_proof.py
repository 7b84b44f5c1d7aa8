"""Facts about the key index that a clean stop stores: the ranges of the log it covers, and the state of its files.

Owns the content of `.logserver.index.json` and the decision which of it still counts; must not compare records. Index
files have no trace of records that were never indexed: without this file a later process must read the whole log.

- The last record of the log is stored. If it is unchanged, so are all records before it: a log only grows, or is cut.
- Each file is stored with its header and a checksum for each block. A file with another header, or a missing file,
  covers nothing. Blocks are compared when they are read: see KeyIndexFile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from storage.errors import DataError, IoFailure
from storage.rocketmq.format.index_file import IndexHeader
from storage.rocketmq.index.index_coverage import IndexCoverage, Range, record_end, without
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.index.key_index_file import BlockSums, KeyIndexFile
from storage.rocketmq.log.commit_log import CommitLog
from storage.rocketmq.state.root import IndexProof, RememberedFile

HEAD_BYTES = 1 << 16  # of the last record: enough to identify it


class LostFile(NamedTuple):
    """A missing or unreadable index file, and the first record for which it may have had entries."""

    name: str
    begin: int


class Known(NamedTuple):
    """The facts that still count. `lost`: the first missing file; `end`: the end of the log range that was covered."""

    covered: Sequence[Range] = ()
    lost: LostFile | None = None
    end: int = 0
    key_holes: Sequence[Range] = ()


def known_of(proof: IndexProof | None, log: CommitLog, index: KeyIndex) -> Known:
    """Return the facts of a proof that hold for the log and index as they are now; trust the unchanged files."""
    if proof is None or not _is_last(proof, log):
        return Known()
    covered: Sequence[Range] = [(low, min(high, log.end)) for low, high in proof.covered]
    end = max((high for _, high in covered), default=0)
    there = {file.path.name: file for file in index.index_files}
    lost: LostFile | None = None
    for remembered in proof.files:
        file = there.get(remembered.name)
        if file is not None and _trust(file, remembered):
            continue
        if len(remembered.header) != len(IndexHeader()):
            return Known()
        begin, last = remembered.header[2:4]
        covered = without(covered, begin, record_end(log, last))
        has_grown = file is not None and _has_grown(file.header, remembered.header)
        if not has_grown and lost is None and last >= log.start:
            lost = LostFile(remembered.name, begin)
    return Known(covered, lost, end, proof.key_holes)


def _has_grown(header: IndexHeader, remembered: Sequence[int]) -> bool:
    """Return whether a file with this header may be the remembered file after a server added entries."""
    before = IndexHeader._make(remembered)
    return (
        header.begin_physical_offset == before.begin_physical_offset
        and header.begin_timestamp_ms == before.begin_timestamp_ms
        and header.index_count >= before.index_count
    )


def _is_last(proof: IndexProof, log: CommitLog) -> bool:
    """Return whether the last record of the proof is unchanged in the log."""
    try:
        return _sum_of(log, proof.last_record, proof.last_size) == proof.last_sum
    except (DataError, IoFailure):
        return False


def _sum_of(log: CommitLog, position: int, size_bytes: int) -> int:
    return crc32(log.read(position, min(size_bytes, HEAD_BYTES)))


def _trust(file: KeyIndexFile, remembered: RememberedFile) -> bool:
    """Trust an unchanged file. Return whether it is trusted; a file that this process wrote keeps its state."""
    if file.is_ours:
        return file.is_trusted and not (file.is_doubted or file.is_new)
    sums = BlockSums(remembered.size_bytes, remembered.sums)
    if list(file.header) != remembered.header or not sums.is_whole:
        return False
    file.is_trusted, file.sums = True, sums
    return True


def proof_of(coverage: IndexCoverage, last_record: int) -> IndexProof | None:
    """Return the facts at a clean stop, after all files are written; None if the last record cannot be read."""
    log = coverage.log
    last_size = record_end(log, last_record) - last_record
    covered = coverage.covered(log.end, for_keys=False)
    files: list[RememberedFile] = []
    for file in coverage.index.index_files:
        remembered = _remembered(file)
        if remembered is not None:
            files.append(remembered)
        else:
            header = file.header
            last = record_end(log, header.end_physical_offset)
            covered = without(covered, header.begin_physical_offset, last)
    try:
        last_sum = _sum_of(log, last_record, last_size)
    except (DataError, IoFailure):
        return None
    return IndexProof(
        covered=list(covered),
        key_holes=list(coverage.key_holes),
        files=files,
        last_record=last_record,
        last_size=last_size,
        last_sum=last_sum,
    )


def _remembered(file: KeyIndexFile) -> RememberedFile | None:
    """Return the facts about a file to store; None if it is not trusted or cannot be read."""
    if not file.is_trusted or file.is_doubted:
        return None
    try:
        sums = file.summed()
    except IoFailure:
        return None
    return RememberedFile(
        name=file.path.name,
        header=list(file.header),
        size_bytes=sums.size_bytes,
        sums=sums.encoded,
    )
