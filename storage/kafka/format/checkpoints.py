"""The small text files: offset checkpoints, leader epochs, partition.metadata and the
clean-shutdown marker.

Owns their text in both directions; must not touch a file (writers put them beside, sync and
rename). Every line ends in a newline except where noted; from Kafka's CheckpointFile,
LeaderEpochCheckpointFile, PartitionMetadataFile and CleanShutdownFileHandler.

    position  bytes  field         note
    0         2      version       `0` and a newline
    2         ...    count         decimal: how many lines follow
    ...       ...    line          root checkpoints: `topic partition offset`
                                   leader epochs: `epoch startOffset`, both rising

    partition.metadata    `version: 0`, newline, `topic_id: `, 22 characters, no newline: 43 bytes
    .kafka_cleanshutdown  `{"version":0,"brokerEpoch":N}`, no newline

A checkpoint of 0 bytes is legal and holds nothing. The order of lines means nothing but is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from storage.errors import Corrupt, DataError, InvalidArgument, Truncated, UnsupportedFormat
from storage.kafka.format.properties import parse_uuid_text
from storage.model import TopicPartition

OFFSETS_KIND: Final = "offset checkpoint"
EPOCHS_KIND: Final = "leader epoch checkpoint"
METADATA_KIND: Final = "partition.metadata"
SHUTDOWN_KIND: Final = "clean shutdown marker"
VERSION: Final = 0
PARTITION_METADATA_SIZE: Final = 43
METADATA_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
"""The reserved id of `__cluster_metadata`: Uuid.METADATA_TOPIC_ID, the number 1."""

_MAX_INT32 = (1 << 31) - 1
_MAX_INT64 = (1 << 63) - 1
_OFFSET_LINE = re.compile(rb"([!-~]+) ([0-9]{1,10}) ([0-9]{1,19})")
_EPOCH_LINE = re.compile(rb"([0-9]{1,10}) ([0-9]{1,19})")
_NUMBER = re.compile(rb"[0-9]{1,10}")
_METADATA = re.compile(rb"version: ([0-9]{1,10})\ntopic_id: ([A-Za-z0-9_-]{22})\n?")
_METADATA_HEAD = b"version: 0\ntopic_id: "
assert len(_METADATA_HEAD) + 22 == PARTITION_METADATA_SIZE


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """A root checkpoint, its lines in the mapping's order. Raises InvalidArgument for a name with a
    space and such.
    """
    lines: list[str] = []
    for (topic, partition), offset in offsets.items():
        line = f"{topic} {partition} {offset}"
        if _parse_offset_line(line.encode()) is None:
            raise InvalidArgument(f"{OFFSETS_KIND}: {line!r} is no legal line", field="offsets")
        lines.append(line)
    return _encode_lines(lines)


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """The offsets of a root checkpoint in the file's order; 0 bytes: none.

    Raises UnsupportedFormat for another version, Truncated for a file that ends early and Corrupt
    for a malformed line, a partition named twice or more lines than were counted.
    """
    offsets: dict[TopicPartition, int] = {}
    for number, line in _decode_lines(OFFSETS_KIND, data):
        entry = _parse_offset_line(line)
        if entry is None:
            raise _bad_line(OFFSETS_KIND, number, line, expected="topic partition offset")
        partition, offset = entry
        if partition in offsets:
            raise _bad_line(OFFSETS_KIND, number, line, expected="each partition once")
        offsets[partition] = offset
    return offsets


def encode_epochs(epochs: Sequence[tuple[int, int]]) -> bytes:
    """A leader-epoch-checkpoint of (epoch, start offset). Raises InvalidArgument unless both rise
    strictly from 0.
    """
    previous = (-1, -1)
    for entry in epochs:
        if not _follows(entry, previous):
            raise InvalidArgument(
                f"{EPOCHS_KIND}: {entry} may not follow {previous}", field="epochs"
            )
        previous = entry
    return _encode_lines([f"{epoch} {start}" for epoch, start in epochs])


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    """The (epoch, start offset) pairs, oldest first; 0 bytes: none. Raises as `decode_offsets`
    does.
    """
    epochs: list[tuple[int, int]] = []
    previous = (-1, -1)
    for number, line in _decode_lines(EPOCHS_KIND, data):
        match = _EPOCH_LINE.fullmatch(line)
        if match is None:
            raise _bad_line(EPOCHS_KIND, number, line, expected="epoch startOffset")
        entry = int(match[1]), int(match[2])
        if not _follows(entry, previous):
            raise _bad_line(EPOCHS_KIND, number, line, expected=f"both above {previous}")
        epochs.append(entry)
        previous = entry
    return epochs


def encode_partition_metadata(topic_id: str) -> bytes:
    """The 43 bytes of a partition.metadata. Raises InvalidArgument unless `topic_id` is a usable
    UUID text.
    """
    try:
        _check_topic_id(topic_id)
    except DataError as error:
        raise InvalidArgument(error.message, field="topic_id") from error
    return _METADATA_HEAD + topic_id.encode("ascii")


def decode_partition_metadata(data: bytes) -> str:
    """The topic id, as text. A final newline is accepted, since the broker's reader takes it too.

    Raises UnsupportedFormat for another version, Truncated for a file cut short and Corrupt for
    anything else.
    """
    match = _METADATA.fullmatch(data)
    if match is None:
        if len(data) < PARTITION_METADATA_SIZE and _is_cut_metadata(data):
            raise _truncated(METADATA_KIND, data, PARTITION_METADATA_SIZE - len(data))
        raise _corrupt(METADATA_KIND, "its text", expected="version and topic_id", found=data[:80])
    _check_version(METADATA_KIND, int(match[1]))
    topic_id = match[2].decode("ascii")
    _check_topic_id(topic_id)
    return topic_id


def _check_topic_id(topic_id: str) -> None:
    if topic_id != METADATA_TOPIC_ID:
        parse_uuid_text(topic_id, field="topic_id", kind=METADATA_KIND)


NO_BROKER_EPOCH: Final = -1


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """The marker of a clean stop. `broker_epoch` -1: unknown. Raises InvalidArgument outside 64
    bits.
    """
    if not -1 <= broker_epoch <= _MAX_INT64:
        raise InvalidArgument(
            f"broker epoch {broker_epoch} is outside [-1, 2^63)", field="broker_epoch"
        )
    return b'{"version":0,"brokerEpoch":%d}' % broker_epoch


def decode_clean_shutdown(data: bytes) -> int:
    """The broker epoch in the marker. That the file is THERE is what counts for the broker,
    whatever it holds.

    Raises UnsupportedFormat for another version, Truncated for a file cut short and Corrupt for
    anything else.
    """
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        if not data.rstrip().endswith(b"}"):
            raise _truncated(SHUTDOWN_KIND, data, 1) from error
        raise _corrupt(
            SHUTDOWN_KIND, "its text", expected="a JSON object", found=data[:80]
        ) from error
    if not isinstance(fields, dict):
        raise _corrupt(SHUTDOWN_KIND, "its text", expected="a JSON object", found=data[:80])
    _check_version(SHUTDOWN_KIND, fields.get("version"))
    epoch = fields.get("brokerEpoch")
    if type(epoch) is not int or not -1 <= epoch <= _MAX_INT64:
        raise _corrupt(SHUTDOWN_KIND, "brokerEpoch", expected="a 64-bit integer", found=epoch)
    return epoch


def _encode_lines(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in (VERSION, len(lines), *lines)).encode("ascii")


def _decode_lines(kind: str, data: bytes) -> Iterable[tuple[int, bytes]]:
    """(line number from 1, line) of the lines after the count, once version, count and final
    newline are right.

    Without the final newline a last number cut short would pass for a smaller one, so a missing one
    is Truncated.
    """
    if not data:
        return ()
    lines = data.split(b"\n")
    if not data.endswith(b"\n"):
        raise _truncated(kind, data, 1)
    _check_version(kind, _number(kind, 1, lines[0]))
    if len(lines) < 3:
        raise _truncated(kind, data, 2)
    count = _number(kind, 2, lines[1])
    body = lines[2:-1]
    if len(body) < count:
        raise _truncated(kind, data, 1)
    if len(body) > count:
        raise _corrupt(kind, "line count", expected=count, found=len(body))
    return enumerate(body, start=3)


def _parse_offset_line(line: bytes) -> tuple[TopicPartition, int] | None:
    match = _OFFSET_LINE.fullmatch(line)
    if match is None or int(match[2]) > _MAX_INT32 or int(match[3]) > _MAX_INT64:
        return None
    return TopicPartition(match[1].decode("ascii"), int(match[2])), int(match[3])


def _number(kind: str, number: int, line: bytes) -> int:
    if _NUMBER.fullmatch(line) is None or int(line) > _MAX_INT32:
        raise _bad_line(kind, number, line, expected="a number")
    return int(line)


def _check_version(kind: str, version: object) -> None:
    if version != VERSION or isinstance(version, bool):
        raise UnsupportedFormat(
            f"{kind}: version {version!r}, only {VERSION} is known",
            kind=kind,
            expected=VERSION,
            found=version,
        )


def _follows(entry: tuple[int, int], previous: tuple[int, int]) -> bool:
    epoch, start = entry
    return previous[0] < epoch <= _MAX_INT32 and previous[1] < start <= _MAX_INT64


def _is_cut_metadata(data: bytes) -> bool:
    """Whether more bytes could make a legal file of this."""
    head = len(_METADATA_HEAD)
    return data[:head] == _METADATA_HEAD[: len(data)] and b"\n" not in data[head:]


def _bad_line(kind: str, number: int, line: bytes, *, expected: str) -> Corrupt:
    return _corrupt(kind, f"line {number}", expected=expected, found=line[:80])


def _corrupt(kind: str, what: str, *, expected: object, found: object) -> Corrupt:
    shown = found.decode("utf-8", "backslashreplace") if isinstance(found, bytes) else found
    return Corrupt(
        f"{kind}: {what} is {shown!r}, expected {expected}",
        kind=kind,
        expected=expected,
        found=shown,
    )


def _truncated(kind: str, data: bytes, needed: int) -> Truncated:
    return Truncated(
        f"{kind}: ends at position {len(data)}, before its text does",
        kind=kind,
        position=len(data),
        needed=needed,
    )
