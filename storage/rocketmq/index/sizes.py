"""The four file sizes of a store, which no file records: found before anything is opened.

Owns that question only; must not open a run or change anything. Each size comes from the first of these sources that
has it: the setting, the size stored at the last start, the existing files, the default. All files of a run have one
length, except an empty last file, which a crash leaves. The real store refuses a directory where that is not so. Each
file is named after the position of its first byte, which is a multiple of that length. The length of an index file fits
many pairs of slots and entries, since five slots take the space of one entry: the positions of the entries decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from storage.errors import DamagedStore, InvalidConfig, IoFailure
from storage.files import File, FileSystem
from storage.findings import finding
from storage.model import Finding
from storage.rocketmq.format import names
from storage.rocketmq.format.index_file import (
    DEFAULT_ENTRIES,
    DEFAULT_SLOTS,
    ENTRY_SIZE,
    FIRST_ENTRY,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexEntry,
    IndexHeader,
    decode_entry,
    decode_header,
    entry_position,
    file_size,
    slot_position,
)
from storage.rocketmq.format.names import parse_index_name
from storage.rocketmq.format.queue_entry import UNIT_SIZE
from storage.rocketmq.state.settings import INT32_MAX, Sizes, StoreSettings

DEFAULTS: Final = Sizes(
    commit_log_bytes=1 << 30,
    consume_queue_bytes=300_000 * UNIT_SIZE,
    index_slots=DEFAULT_SLOTS,
    index_entries=DEFAULT_ENTRIES,
)


class _RunFile(NamedTuple):
    path: Path
    base: int
    size_bytes: int


def resolve_sizes(
    fs: FileSystem,
    path: Path,
    settings: StoreSettings,
    stored: Sizes | None,
    *,
    findings: list[Finding] | None = None,
) -> Sizes:
    """Return the sizes of the store at `path`, which may be empty or missing. Raises:

    - InvalidConfig for a setting that contradicts the files, or if only a setting can decide;
    - DamagedStore for a file whose length differs from the others, or a log file whose name is no multiple of it.

    A queue file with such a name is no error: the queue is rebuilt. With `findings` (read-only) such files are added
    there instead.
    """
    odd: list[Finding] = []
    log = [_run_files(fs, folder) for folder in _log_folders(path, settings)]
    commit_log_bytes = _run_bytes(
        log,
        setting=("mappedFileSizeCommitLog", settings.commit_log_bytes),
        remembered=None if stored is None else stored.commit_log_bytes,
        default=DEFAULTS.commit_log_bytes,
        odd=odd,
    )
    odd += _wrong_names(log, commit_log_bytes, severity="error")
    queues = [_run_files(fs, folder) for folder in _queue_folders(fs, path / names.CONSUME_QUEUE)]
    consume_queue_bytes = _run_bytes(
        queues,
        setting=("mappedFileSizeConsumeQueue", settings.consume_queue_bytes),
        remembered=None if stored is None else stored.consume_queue_bytes,
        default=DEFAULTS.consume_queue_bytes,
        odd=odd,
        unit_bytes=UNIT_SIZE,
    )
    if odd and findings is None:
        raise DamagedStore(
            f"{odd[0].path}: {odd[0].message}. Nothing but the lock file has been "
            "changed; --read-only shows the rest, and `logserver salvage` copies it",
            path=odd[0].path,
            position=odd[0].position,
            findings=odd,
        )
    if findings is not None:
        findings += odd
        findings += _wrong_names(queues, consume_queue_bytes, severity="warning")
    slots, entries = _index_sizes(fs, path / names.INDEX, settings, stored)
    return Sizes(
        commit_log_bytes=commit_log_bytes,
        consume_queue_bytes=consume_queue_bytes,
        index_slots=slots,
        index_entries=entries,
    )


def _log_folders(path: Path, settings: StoreSettings) -> Sequence[Path]:
    return [Path(folder) for folder in settings.log_folders] or [path / names.COMMIT_LOG]


def _queue_folders(fs: FileSystem, path: Path) -> Iterator[Path]:
    """Yield every folder consumequeue/TOPIC/QUEUEID."""
    for topic in _sub_folders(fs, path):
        for folder in _sub_folders(fs, topic):
            if names.parse_queue_id(folder.name) is not None:
                yield folder


def _sub_folders(fs: FileSystem, path: Path) -> Sequence[Path]:
    if not fs.is_dir(path):
        return ()
    return [path / name for name in fs.list_dir(path) if fs.is_dir(path / name)]


def _run_files(fs: FileSystem, folder: Path) -> Sequence[_RunFile]:
    """Return the files of a run in order. Folders and an empty last file are left out."""
    if not fs.is_dir(folder):
        return ()
    found = [
        _RunFile(folder / name, base, fs.size(folder / name))
        for name in fs.list_dir(folder)
        if (base := names.parse_file_name(name)) is not None and not fs.is_dir(folder / name)
    ]
    return found[:-1] if found and found[-1].size_bytes == 0 else found


def _run_bytes(
    runs: Sequence[Sequence[_RunFile]],
    *,
    setting: tuple[str, int | None],
    remembered: int | None,
    default: int,
    odd: list[Finding],
    unit_bytes: int = 1,
) -> int:
    """Return the length that the files of these runs should have. Findings about other lengths are added to `odd`."""
    files = [file for run in runs for file in run]
    name, value = setting
    if value is not None and files and all(file.size_bytes != value for file in files):
        raise InvalidConfig(
            f"setting {name}={value} contradicts {files[0].path}, "
            f"which has {files[0].size_bytes} bytes",
            name=name,
            value=str(value),
        )
    expected = value or remembered or _likely_bytes(runs, unit_bytes) or default
    odd += [_wrong_length(file, expected) for file in files if file.size_bytes != expected]
    return expected


def _likely_bytes(runs: Sequence[Sequence[_RunFile]], unit_bytes: int) -> int | None:
    """Return the most frequent number among file lengths and distances from one file of a run to the next."""
    lengths = [file.size_bytes for run in runs for file in run]
    lengths += [after.base - before.base for run in runs for before, after in pairwise(run)]
    votes = Counter(size for size in lengths if size > 0 and size % unit_bytes == 0)
    return votes.most_common(1)[0][0] if votes else None


def _wrong_length(file: _RunFile, expected: int) -> Finding:
    return finding(
        "wrong-file-length",
        file.path,
        position=min(file.size_bytes, expected),
        expected=f"{expected} bytes",
        found=f"{file.size_bytes} bytes",
        message=f"the file has {file.size_bytes} bytes, but files of its kind have {expected}",
    )


def _wrong_names(
    runs: Sequence[Sequence[_RunFile]], file_bytes: int, *, severity: str
) -> list[Finding]:
    return [
        finding(
            "wrong-file-name",
            file.path,
            severity=severity,
            expected=f"a multiple of {file_bytes}",
            found=f"{file.base}",
            message=f"no file of {file_bytes} bytes can begin at {file.base}, as the name says",
        )
        for run in runs
        for file in run
        if file.base % file_bytes
    ]


def _index_sizes(
    fs: FileSystem, folder: Path, settings: StoreSettings, stored: Sizes | None
) -> tuple[int, int]:
    """Return slots and entries of index files. The index handles files that do not fit.

    Raises InvalidConfig if none fits a setting, or if the lengths alone do not determine both numbers.
    """
    slots, entries = settings.index_slots, settings.index_entries
    files = _index_files(fs, folder)
    if not files:
        known = stored or DEFAULTS
        return _mappable(slots or known.index_slots, entries or known.index_entries)
    if slots is None and entries is None:
        if stored is not None:
            return stored.index_slots, stored.index_entries
        return infer_sizes(fs, folder) or _default_or_ask(files)
    for _, size_bytes in files:
        fitting = _fitting(slots, entries, size_bytes)
        if fitting is not None:
            return fitting
    path, size_bytes = files[0]
    name, value = ("maxIndexNum", entries) if slots is None else ("maxHashSlotNum", slots)
    both = f"maxHashSlotNum={slots}, maxIndexNum={entries}"
    raise InvalidConfig(
        f"{both if slots and entries else f'{name}={value}'} contradicts {path}, "
        f"which has {size_bytes} bytes",
        name=name,
        value=str(value),
    )


def _default_or_ask(files: Sequence[tuple[Path, int]]) -> tuple[int, int]:
    """Return the default sizes if they fit a file. Raises InvalidConfig if not: only a setting can decide then."""
    default = DEFAULTS.index_slots, DEFAULTS.index_entries
    if any(size_bytes == file_size(*default) for _, size_bytes in files):
        return default
    path, size_bytes = files[0]
    raise InvalidConfig(
        f"{path}: {size_bytes} bytes do not tell how many slots and entries index files have: "
        "set maxHashSlotNum and maxIndexNum as they were when the store was written",
        name="maxIndexNum",
        value=None,
    )


def _index_files(fs: FileSystem, folder: Path) -> Sequence[tuple[Path, int]]:
    """Return the index files, without empty ones, which a crash leaves."""
    if not fs.is_dir(folder):
        return ()
    found = (
        folder / name for name in fs.list_dir(folder) if names.parse_index_name(name) is not None
    )
    sizes: list[tuple[Path, int]] = []
    for path in found:
        with suppress(IoFailure):  # not a regular file: the index leaves it out
            if not fs.is_dir(path):
                sizes.append((path, fs.size(path)))
    return [(path, size_bytes) for path, size_bytes in sizes if size_bytes]


def _fitting(slots: int | None, entries: int | None, size_bytes: int) -> tuple[int, int] | None:
    """Return both numbers of a file of this length, one of which may be unknown; None if they do not fit."""
    if slots is None:
        slots = (size_bytes - file_size(0, entries or 0)) // SLOT_SIZE
    elif entries is None:
        entries = (size_bytes - file_size(slots, 0)) // ENTRY_SIZE
    if entries is None or slots < 1 or entries < 2 or file_size(slots, entries) != size_bytes:
        return None
    return slots, entries


def _mappable(slots: int, entries: int) -> tuple[int, int]:
    """Return both numbers. Raises InvalidConfig if the real store cannot map a file of that length."""
    size_bytes = file_size(slots, entries)
    if size_bytes > INT32_MAX:
        raise InvalidConfig(
            f"maxHashSlotNum={slots}, maxIndexNum={entries} makes index files of {size_bytes} "
            f"bytes, the limit is {INT32_MAX}",
            name="maxIndexNum",
            value=str(entries),
        )
    return slots, entries


BLOCK_BYTES: Final = 1 << 20


class _Sample(NamedTuple):
    """One index file: its length and its header as stored."""

    path: Path
    size_bytes: int
    header: IndexHeader


def infer_sizes(fs: FileSystem, directory: Path) -> tuple[int, int] | None:
    """Return (slots, entries) of the index files in a folder; None if there are no entries to infer them
    from, or if the files do not agree on one pair.

    A file with a successor is full, so its count is the number of entries. Next, the default is tried, then
    the pair with which the last non-zero byte is in the last entry. A pair counts only if the first and last
    entry of every file are where it puts them. Reads few bytes, except for the last attempt, which searches
    for the end of the data. Raises IoFailure.
    """
    samples = _samples(fs, directory)
    lengths = {sample.size_bytes for sample in samples}
    written = [sample for sample in samples if sample.header.index_count > FIRST_ENTRY]
    if len(lengths) != 1 or not written:
        return None
    (length,) = lengths
    pairs = [_pair(length, sample.header.index_count) for sample in written[:-1]]
    if length == file_size(DEFAULT_SLOTS, DEFAULT_ENTRIES):
        pairs.append((DEFAULT_SLOTS, DEFAULT_ENTRIES))
    for pair in dict.fromkeys(pairs):
        if _all_fit(fs, written, pair):
            return pair
    with_end = _pair_by_end(fs, written[-1])
    return with_end if _all_fit(fs, written, with_end) else None


def _samples(fs: FileSystem, directory: Path) -> Sequence[_Sample]:
    """Return the index files, oldest first; files shorter than a header are skipped."""
    samples: list[_Sample] = []
    for name in fs.list_dir(directory) if fs.is_dir(directory) else ():
        if parse_index_name(name) is not None:
            with suppress(IoFailure):  # an unreadable file, or not a file
                samples += _sample(fs, directory / name)
    return samples


def _sample(fs: FileSystem, path: Path) -> Sequence[_Sample]:
    """Read a file that is long enough for a header; return no sample for a shorter file."""
    size_bytes = 0 if fs.is_dir(path) else fs.size(path)
    if size_bytes < HEADER_SIZE:
        return ()
    file = fs.open(path)
    try:
        return [_Sample(path, size_bytes, decode_header(file.pread(HEADER_SIZE, 0)))]
    finally:
        file.close()


def _pair(length: int, entries: int) -> tuple[int, int] | None:
    """Return the pair for a file of this length with this number of entries; None if there is none."""
    slots, odd = divmod(length - HEADER_SIZE - entries * ENTRY_SIZE, SLOT_SIZE)
    return (slots, entries) if slots > 0 and not odd else None


def _pair_by_end(fs: FileSystem, sample: _Sample) -> tuple[int, int] | None:
    """Return the pair with which the last non-zero byte is in the last entry.

    With n the number of entries, s of slots and p the position of the last entry (count - 1):
    length = 40 + 4 s + 20 n and p = 40 + 4 s + 20 (count - 1), so p and length agree modulo 20.
    """
    file = fs.open(sample.path)
    try:
        end = _content_end(file, sample.size_bytes)
    finally:
        file.close()
    position = end - 1 - (end - 1 - sample.size_bytes) % ENTRY_SIZE
    entries = (sample.size_bytes - position) // ENTRY_SIZE + sample.header.index_count - 1
    return _pair(sample.size_bytes, entries)


def _content_end(file: File, end: int) -> int:
    """Return the position after the last non-zero byte; 0 if there is none."""
    while end > 0:
        start = max(0, end - BLOCK_BYTES)
        content = file.pread(end - start, start).rstrip(b"\0")
        if content:
            return start + len(content)
        end = start
    return 0


def _all_fit(fs: FileSystem, samples: Sequence[_Sample], pair: tuple[int, int] | None) -> bool:
    return pair is not None and all(_fits(fs, sample, *pair) for sample in samples)


def _fits(fs: FileSystem, sample: _Sample, slots: int, entries: int) -> bool:
    """Return whether the first and last entry match the header, each in a chain of its slot, where the last
    entry is the newest.
    """
    header = sample.header
    last = header.index_count - 1
    if header.index_count > entries:
        return False
    file = fs.open(sample.path)
    try:
        oldest = _entry(file, slots, FIRST_ENTRY)
        newest = _entry(file, slots, last)
        newest_in_slot = file.pread(SLOT_SIZE, slot_position(newest.key_hash % slots))
        return (
            oldest.physical_offset == header.begin_physical_offset
            and oldest.previous == 0
            and newest.physical_offset == header.end_physical_offset
            and newest.key_hash >= 0
            and 0 <= newest.previous < last
            and int.from_bytes(newest_in_slot, "big", signed=True) == last
        )
    finally:
        file.close()


def _entry(file: File, slots: int, number: int) -> IndexEntry:
    return decode_entry(file.pread(ENTRY_SIZE, entry_position(slots, number)))
