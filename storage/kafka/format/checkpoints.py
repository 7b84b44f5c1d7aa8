"""The small text files: offset checkpoints, leader epochs, partition.metadata and the
clean-shutdown marker.

Owns their text in both directions; must not touch a file (writers use a temporary file, sync and rename). In our files
every line ends in a newline except where noted. The reader accepts what Kafka's own readers accept, and rejects what
they reject (CheckpointFile, OffsetCheckpointFile, LeaderEpochCheckpointFile, LeaderEpochFileCache,
PartitionMetadataReadBuffer and CleanShutdownFileHandler of Kafka 4.3.1).

    position  bytes  field         note
    0         2      version       `0` and a newline
    2         ...    count         decimal: how many lines follow
    ...       ...    line          root checkpoints: `topic partition offset`
                                   leader epochs: `epoch startOffset`, both rising

    partition.metadata    `version: 0`, newline, `topic_id: `, 22 characters, no newline: 43 bytes
    .kafka_cleanshutdown  `{"version":0,"brokerEpoch":N}`, no newline

- A line ends in LF, CR LF or CR (BufferedReader.readLine). The last line may have no line end.
- White space separates fields. It is allowed after the last field, but not before the first field.
- A checkpoint of 0 bytes, or with a version only, is legal and has no entries. A broker creates files of 0 bytes. It
  always writes a count after the version: a file without a count was cut.
- If a partition has two lines, the last line counts. The order of lines has no meaning but is kept.
- Leader epochs that do not rise are legal: see `decode_epochs`.
- The keys of partition.metadata are not checked, and any version from 0 on is read.
- Only the presence of the marker counts; a broker before 3.7 wrote 0 bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from storage.coding.varint import INT32_MAX, INT64_MAX
from storage.errors import Corrupt, DataError, InvalidArgument, Truncated, UnsupportedFormat
from storage.kafka.format.properties import parse_uuid_text, read_uuid_text, uuid_text
from storage.model import TopicPartition

OFFSETS_KIND: Final = "offset checkpoint"
EPOCHS_KIND: Final = "leader epoch checkpoint"
METADATA_KIND: Final = "partition.metadata"
VERSION: Final = 0
PARTITION_METADATA_SIZE: Final = 43
NUMBERS: Final = "topic partition offset, the last two being numbers"
"""Expected of a line with three fields. A bad number does not stop the broker, other than a bad number of fields."""
METADATA_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
"""The reserved id of `__cluster_metadata`: Uuid.METADATA_TOPIC_ID, the number 1."""

_NEWLINE = re.compile(r"\r\n|\n|\r")
_SPACES = re.compile(r"[ \t\n\x0b\f\r]+")  # Java's \s
_AFTER_KEY = re.compile(r":[ \t\n\x0b\f\r]+")
_NUMBER = re.compile(r"[+-]?\d+")
_METADATA_HEAD = b"version: 0\ntopic_id: "
assert len(_METADATA_HEAD) + 22 == PARTITION_METADATA_SIZE


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Encode a root checkpoint, its lines in the mapping's order. Raises InvalidArgument for an entry that a reader
    would not read back, such as a topic name with a space.
    """
    lines: list[str] = []
    for (topic, partition), offset in offsets.items():
        line = f"{topic} {partition} {offset}"
        if _NEWLINE.search(line) or _parse_offset_line(line) != ((topic, partition), offset):
            raise InvalidArgument(f"{OFFSETS_KIND}: {line!r} is no legal line", field="offsets")
        lines.append(line)
    return _encode_lines(lines)


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Decode the offsets of a root checkpoint, in the file's order; 0 bytes: none.

    Raises UnsupportedFormat for another version, Truncated for a file that ends early and Corrupt
    for a malformed line or more lines than were counted.
    """
    offsets: dict[TopicPartition, int] = {}
    for number, line in _decode_lines(OFFSETS_KIND, data):
        entry = _parse_offset_line(line)
        if entry is None:
            expected = NUMBERS if len(_split(_SPACES, line)) == 3 else "topic partition offset"
            raise _bad_line(OFFSETS_KIND, number, line, expected=expected)
        offsets[entry[0]] = entry[1]
    return offsets


def readable_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Return the readable entries of a damaged root checkpoint. A last line without a line end is left out: its number
    may have been longer.
    """
    lines = _NEWLINE.split(data.decode("utf-8", "replace"))
    entries = map(_parse_offset_line, lines[:-1])
    return dict(entry for entry in entries if entry is not None)


def is_cut_after_version(data: bytes) -> bool:
    """Whether a checkpoint that `decode_offsets` accepts has a version and no count."""
    return len(_text_lines(OFFSETS_KIND, data)) == 1


def encode_epochs(epochs: Sequence[tuple[int, int]]) -> bytes:
    """Encode a leader-epoch-checkpoint of (epoch, start offset). Raises InvalidArgument unless both rise
    strictly, from 0 or more.
    """
    previous = (-1, -1)
    for entry in epochs:
        if not _follows(entry, previous):
            raise InvalidArgument(
                f"{EPOCHS_KIND}: {entry} may not follow {previous}", field="epochs"
            )
        previous = entry
    return _encode_lines([f"{epoch} {start}" for epoch, start in epochs])


def decode_epoch_lines(data: bytes) -> list[tuple[int, int]]:
    """Decode all (epoch, start offset) pairs in the file's order; 0 bytes: none. Raises as `decode_offsets` does."""
    return [_parse_epoch_line(number, line) for number, line in _decode_lines(EPOCHS_KIND, data)]


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    """Return the (epoch, start offset) pairs that the broker keeps, oldest first. Raises as `decode_offsets` does.

    The broker assigns the lines one after another (LeaderEpochFileCache). A line that does not rise above the pairs
    before it removes those with the same or a higher epoch or start offset. A line that repeats the last epoch, with
    the same or a higher start offset, changes nothing.
    """
    epochs: list[tuple[int, int]] = []
    for epoch, start in decode_epoch_lines(data):
        if epochs and epochs[-1][0] == epoch and epochs[-1][1] <= start:
            continue
        while epochs and (epochs[-1][0] >= epoch or epochs[-1][1] >= start):
            epochs.pop()
        epochs.append((epoch, start))
    return epochs


def encode_partition_metadata(topic_id: str) -> bytes:
    """Encode the 43 bytes of a partition.metadata. Raises InvalidArgument unless `topic_id` is a usable
    UUID text.
    """
    try:
        if topic_id != METADATA_TOPIC_ID:
            parse_uuid_text(topic_id, field="topic_id", kind=METADATA_KIND)
    except DataError as error:
        raise InvalidArgument(error.message, field="topic_id") from error
    return _METADATA_HEAD + topic_id.encode("ascii")


class PartitionMetadata(NamedTuple):
    """The content of a partition.metadata."""

    version: int
    topic_id: str


def decode_partition_metadata(data: bytes) -> PartitionMetadata:
    """Decode version and topic id. The id is returned as Kafka writes it. Data after the second line is ignored.

    Raises UnsupportedFormat for a version below 0, Truncated for a file cut short and Corrupt for
    anything else.
    """
    lines = _text_lines(METADATA_KIND, data)
    if len(lines) < 2:
        raise _truncated(METADATA_KIND, data, 1)
    version = _whole(_after_key(1, lines[0]), limit=INT32_MAX)
    if version is None:
        raise _bad_line(METADATA_KIND, 1, lines[0], expected="version: 0")
    if version < 0:
        raise _unknown_version(METADATA_KIND, version)
    raw = read_uuid_text(_after_key(2, lines[1]), field="topic_id", kind=METADATA_KIND)
    if not any(raw):
        raise _bad_line(METADATA_KIND, 2, lines[1], expected="an id other than zero")
    return PartitionMetadata(version, uuid_text(raw))


def _after_key(number: int, line: str) -> str:
    fields = _split(_AFTER_KEY, line)
    if len(fields) != 2:
        raise _bad_line(METADATA_KIND, number, line, expected="a key, a colon, a space, a value")
    return fields[1]


NO_BROKER_EPOCH: Final = -1


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """Encode the marker of a clean stop. `broker_epoch` -1: unknown. Raises InvalidArgument for a number outside
    [-1, 2^63).
    """
    if not -1 <= broker_epoch <= INT64_MAX:
        raise InvalidArgument(
            f"broker epoch {broker_epoch} is outside [-1, 2^63)", field="broker_epoch"
        )
    return b'{"version":0,"brokerEpoch":%d}' % broker_epoch


def decode_clean_shutdown(data: bytes) -> int | None:
    """Return the broker epoch in the marker, None if the broker would find none. For a clean stop only the existence
    of the file counts, not its content.
    """
    try:
        fields, _ = json.JSONDecoder().raw_decode(data.decode().lstrip(" \t\r\n"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    version = fields.get("version")
    if version is not None and _coerced(version, limit=INT32_MAX) is None:
        return None
    return _coerced(fields.get("brokerEpoch"), limit=INT64_MAX)


def _coerced(value: object, *, limit: int) -> int | None:
    """Convert a JSON value to a whole number as Jackson does; None if it cannot be converted."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return _whole(value.strip(), limit=limit)
    if isinstance(value, int | float) and -limit - 1 <= value <= limit:
        return int(value)
    return None


def _encode_lines(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in (VERSION, len(lines), *lines)).encode()


def _decode_lines(kind: str, data: bytes) -> Iterable[tuple[int, str]]:
    """Return (line number from 1, line) of the lines after the count. Checks version and count first."""
    lines = _text_lines(kind, data)
    if not lines:
        return ()
    version = _head_number(kind, 1, lines[0])
    if version != VERSION:
        raise _unknown_version(kind, version)
    if len(lines) == 1:
        return ()
    count = _head_number(kind, 2, lines[1])
    if count < 0:
        raise _bad_line(kind, 2, lines[1], expected="a number of lines")
    body = lines[2:]
    if len(body) < count:
        raise _truncated(kind, data, 1)
    if len(body) > count:
        raise _corrupt(kind, "line count", expected=count, found=len(body))
    return enumerate(body, start=3)


def _text_lines(kind: str, data: bytes) -> list[str]:
    """Return lines as BufferedReader.readLine does."""
    try:
        lines = _NEWLINE.split(data.decode())
    except UnicodeDecodeError as error:
        found = data[error.start : error.start + 8]
        raise _corrupt(kind, "its text", expected="UTF-8", found=found.hex()) from error
    if not lines[-1]:
        lines.pop()
    return lines


def _split(separator: re.Pattern[str], line: str) -> list[str]:
    """Split as Java's Pattern.split: drop empty fields at the end, keep an empty field at the start."""
    fields = separator.split(line)
    while len(fields) > 1 and not fields[-1]:
        fields.pop()
    return fields


def _parse_offset_line(line: str) -> tuple[TopicPartition, int] | None:
    fields = _split(_SPACES, line)
    if len(fields) != 3:
        return None
    partition = _whole(fields[1], limit=INT32_MAX)
    offset = _whole(fields[2], limit=INT64_MAX)
    if partition is None or offset is None:
        return None
    return TopicPartition(fields[0], partition), offset


def _parse_epoch_line(number: int, line: str) -> tuple[int, int]:
    fields = _split(_SPACES, line)
    if len(fields) == 2:
        epoch = _whole(fields[0], limit=INT32_MAX)
        start = _whole(fields[1], limit=INT64_MAX)
        if epoch is not None and start is not None and epoch >= 0 and start >= 0:
            return epoch, start
    raise _bad_line(EPOCHS_KIND, number, line, expected="epoch startOffset")


def _whole(text: str, *, limit: int) -> int | None:
    """Parse a number as Integer.parseInt or Long.parseLong does, in any script; None for text that they reject."""
    if len(text) > 40 or _NUMBER.fullmatch(text) is None:
        return None
    value = int(text)
    return value if -limit - 1 <= value <= limit else None


def _head_number(kind: str, number: int, line: str) -> int:
    value = _whole(line, limit=INT32_MAX)
    if value is None:
        raise _bad_line(kind, number, line, expected="a number")
    return value


def _unknown_version(kind: str, version: int) -> UnsupportedFormat:
    return UnsupportedFormat(
        f"{kind}: version {version}, only {VERSION} is known",
        kind=kind,
        expected=VERSION,
        found=version,
    )


def _follows(entry: tuple[int, int], previous: tuple[int, int]) -> bool:
    epoch, start = entry
    return previous[0] < epoch <= INT32_MAX and previous[1] < start <= INT64_MAX


def _bad_line(kind: str, number: int, line: str, *, expected: str) -> Corrupt:
    return _corrupt(kind, f"line {number}", expected=expected, found=line[:80])


def _corrupt(kind: str, what: str, *, expected: object, found: object) -> Corrupt:
    return Corrupt(
        f"{kind}: {what} is {found!r}, expected {expected}",
        kind=kind,
        expected=expected,
        found=found,
    )


def _truncated(kind: str, data: bytes, needed: int) -> Truncated:
    return Truncated(
        f"{kind}: ends at position {len(data)}, before its text does",
        kind=kind,
        position=len(data),
        needed=needed,
    )
