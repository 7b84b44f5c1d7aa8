"""The journal of requests with an Idempotency-Key, `.logserver.idempotency`: its entries, and the offsets they name.

Owns the encoding of the entries, and the next offset of each partition that they name; must not know the answer to a
repeated request (`logserver.idempotency.journal`), nor a backend. The steps of a group commit, which decide what an
entry proves, are in `logserver.idempotency.journal`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec

from storage.errors import IoFailure
from storage.files import FileSystem
from storage.findings import finding
from storage.model import Finding, TopicPartition
from storage.shared.journal import OLD, PREFIX, decode_entries

JOURNAL: Final = "idempotency"
JOURNAL_FILE: Final = PREFIX + JOURNAL


class Marked(NamedTuple):
    """A part of a request in the journal."""

    partition: int
    producer_id: int
    sequence: int
    records: int


class Started(msgspec.Struct, tag=1, array_like=True):
    """A journal entry: these parts are about to be appended. `time_ms`: when the key was first seen."""

    key: str
    digest: bytes
    time_ms: int
    topic: str
    parts: list[Marked]


class Completed(msgspec.Struct, tag=2, array_like=True):
    """A journal entry: parts of the key have been appended: (partition, base offset)."""

    key: str
    offsets: list[tuple[int, int]]


class Forgotten(msgspec.Struct, tag=3, array_like=True):
    """A journal entry: the topic was deleted, and all its keys with it."""

    topic: str


JournalEntry: TypeAlias = Started | Completed | Forgotten

encode_entry: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(Started | Completed | Forgotten).decode


def decoded_entries(lines: Iterable[bytes]) -> Iterator[JournalEntry]:
    """Yield the entries of a journal. An entry that cannot be decoded is skipped."""
    for line in lines:
        try:
            yield _DECODE(line)
        except msgspec.DecodeError:
            continue


class JournalOffsets(NamedTuple):
    """The offsets that a journal names (after the last record of each partition), and the findings on its files."""

    ends: Mapping[TopicPartition, int]
    findings: list[Finding]


def journal_offsets(fs: FileSystem, root: Path, *, clean: bool) -> JournalOffsets:
    """Read the offsets that the journal of the store at `root` names as used.

    Without a clean stop the entries after the last Begun do not count. A crash may have lost their group before its
    flush. In that case no response that waits for the disk named these offsets. Unreadable bytes are reported, and name
    no offset.
    """
    lines: list[bytes] = []
    findings: list[Finding] = []
    for path in (root / (JOURNAL_FILE + OLD), root / JOURNAL_FILE):
        try:
            if not fs.exists(path):
                continue
            data = fs.read_bytes(path)
        except IoFailure as error:
            findings.append(finding("damaged-journal", path, message=error.message))
            continue
        found, end = decode_entries(data)
        lines += found
        if end < len(data) and clean:
            message = f"{len(data) - end} bytes after the last whole entry are not read"
            findings.append(finding("damaged-journal", path, position=end, message=message))
    return JournalOffsets(_ends(list(decoded_entries(lines)), clean=clean), findings)


def _ends(entries: list[JournalEntry], *, clean: bool) -> Mapping[TopicPartition, int]:
    last_begun = max((at for at, e in enumerate(entries) if isinstance(e, Started)), default=-1)
    begun: dict[str, Started] = {}
    ends: dict[TopicPartition, int] = {}
    for at, entry in enumerate(entries):
        if isinstance(entry, Started):
            begun[entry.key] = entry
        elif isinstance(entry, Forgotten):
            begun = {key: one for key, one in begun.items() if one.topic != entry.topic}
            ends = {place: end for place, end in ends.items() if place.topic != entry.topic}
        elif entry.key in begun and (clean or at < last_begun):
            request = begun[entry.key]
            counts = {part.partition: part.records for part in request.parts}
            for number, base_offset in entry.offsets:
                place = TopicPartition(request.topic, number)
                ends[place] = max(ends.get(place, 0), base_offset + counts.get(number, 0))
    return ends
