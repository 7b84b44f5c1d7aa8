"""Values that cross the storage border: records, pages, bounds, topics, reports.

Owns shapes only; must not do IO, know a backend's bytes or know HTTP. Times are integer
milliseconds since the epoch, offsets are logical, positions and sizes are bytes. What is made once
per record is a msgspec Struct (made in C, 5x cheaper than a NamedTuple) or a NamedTuple whose head
has the codec's order; reports are frozen dataclasses.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import msgspec

from storage.errors import InvalidArgument

Header: TypeAlias = tuple[str, bytes | None]

NAMED_BYTES = 32  # what a header or property takes beside its own bytes, which may be none


class TopicPartition(NamedTuple):
    """The address of one ordered log: topic and partition (RocketMQ: queue id)."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Isolation(enum.Enum):
    """What a reader may see of transactions."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Bound(enum.Enum):
    """Which of several records with the same time a lookup by time means."""

    LOWER = "lower"
    UPPER = "upper"


class Record(NamedTuple):
    """A record to be appended. `timestamp_ms` None: the store's clock. The first four stand in the
    codec's order.

    `properties`: what a message may carry beside its headers, UNIQ_KEY and WAIT; a backend without
    `capabilities.messages` refuses any.
    """

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    timestamp_ms: int | None = None
    tag: str | None = None
    lookup_keys: Sequence[str] = ()
    properties: Mapping[str, str] | None = None


class RawMessage(NamedTuple):
    """A RocketMQ message to be stored as it is: what the store itself does not give (queue, offsets,
    store time and host) stands here as it is on disk.

    `properties` are the stored bytes, hosts 4 (IPv4) or 16 (IPv6) bytes of address and 4 of port.
    """

    body: bytes
    properties: bytes
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class StoredRecord(msgspec.Struct, frozen=True, gc=False):
    """A record as it is stored. `locator` is opaque (see `LogStore.record_id`).

    `timestamp_type` is "CreateTime" or "LogAppendTime"; `store_timestamp_ms` is None where a
    backend keeps one time, `properties` (all of a message's, in stored order) where it has none.
    `suspect`: parts that no checksum covers and that cannot be what was written.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    timestamp_type: str = "CreateTime"
    tag: str | None = None
    lookup_keys: Sequence[str] = ()
    locator: int = -1
    store_timestamp_ms: int | None = None
    properties: Mapping[str, str] | None = None
    suspect: Sequence[str] = ()


def weight_bytes(record: StoredRecord) -> int:
    """About what a record takes in memory: key, value, headers and properties, many small ones too."""
    named = [*record.headers, *(record.properties or {}).items()]
    return (
        len(record.key or b"")
        + len(record.value or b"")
        + sum(len(name) + len(value or "") + NAMED_BYTES for name, value in named)
    )


class OffsetBounds(NamedTuple):
    """`start` <= `stable` <= `end`: first offset, end of what read_committed sees, next offset
    (published end).
    """

    start: int
    stable: int
    end: int


class TimedOffset(NamedTuple):
    """The answer of a lookup by time; `leader_epoch` is None where a backend has none."""

    offset: int
    timestamp_ms: int
    leader_epoch: int | None = None


class ProducerSequence(NamedTuple):
    """An idempotent producer's mark on one append: id, epoch and the first record's sequence."""

    producer_id: int
    epoch: int
    sequence: int


class CommittedOffset(NamedTuple):
    """How far a consumer group has come in one partition: `offset` is the next record that it wants.

    `leader_epoch` of the last record it had, -1 when it is not known; `metadata` is the consumer's
    own text. `commit_timestamp_ms` None: not known; in a commit, the store's clock.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int | None = None


class GroupCommit(NamedTuple):
    """The offsets that one group commits at once; those of its other partitions stay."""

    group: str
    offsets: Mapping[TopicPartition, CommittedOffset]


class AppendResult(NamedTuple):
    """Where an append went. `timestamp_ms` is the append time under LogAppendTime, else -1.

    `duplicate`: the same sequence was stored before; the offsets are those of then and nothing was
    written.
    """

    base_offset: int
    last_offset: int
    timestamp_ms: int
    locators: Sequence[int]
    duplicate: bool = False


class Page(NamedTuple):
    """One read: records in offset order, where to read on, and the bounds at that moment.

    `next_offset` moves past records that were skipped (control, aborted, compacted away) even if
    `records` is empty.
    """

    records: Sequence[StoredRecord]
    next_offset: int
    bounds: OffsetBounds


class BatchPage(NamedTuple):
    """Whole record batches as stored (they may begin before the asked offset), and where to read
    on.
    """

    data: bytes
    next_offset: int
    bounds: OffsetBounds


class FoundPage(NamedTuple):
    """One page of `find`: `scanned` records were looked at; `complete` False: go on with `cursor`."""

    records: Sequence[tuple[int, StoredRecord]]  # (partition, record)
    scanned: int
    indexed: bool
    complete: bool
    cursor: str | None
    time_axis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend can do, for callers that must choose; `time_axis` is "timestamp" or
    "store_timestamp".

    `messages`: records are RocketMQ's messages, with properties, a unique id, the host they were
    born at, and an id of their own that an append gives (SupportsRawMessages). `inert_configs`: topic configs that
    are kept for the real server and change nothing here, with its defaults.
    """

    backend: str
    indexed_keys: bool
    batch_bytes: bool
    truncate: bool
    time_axis: str
    leader_epochs: bool
    messages: bool = False
    inert_configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic: its partitions (their numbers, ascending) and the configs that differ from the
    store's defaults. `closed`: the real server lets no client write to it. `missing`: partitions that
    should exist and are not served, with the reason.
    """

    name: str
    partitions: Sequence[int]
    configs: Mapping[str, str] = field(default_factory=dict)
    topic_id: str | None = None
    internal: bool = False
    closed: bool = False
    missing: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing found wrong (or worth knowing) on disk. `code` is stable and documented in
    docs/findings.md.

    `severity`: "info" (nothing lost), "warning" (repaired or repairable without loss), "error"
    (data unreadable/lost).
    """

    code: str
    severity: str
    path: str
    position: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    expected: str | None = None
    found: str | None = None
    message: str = ""


class FileCount(NamedTuple):
    """What `verify` read of one file: its records (of a derived file: entries, where they are counted) and bytes.
    `is_log`: the file holds records; else it is derived from a log, or a small file.
    """

    path: str
    topic: str | None
    partition: int | None
    records: int
    size_bytes: int
    is_log: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Bytes taken out of a log, or out of a queue whose units led behind the log. Offsets
    [first_offset, next_offset) are gone; None where they cannot be known.
    """

    topic: str
    partition: int
    path: str
    position: int
    size_bytes: int
    first_offset: int
    next_offset: int | None
    reason: str
    kept_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What opening a store found, cut and rebuilt."""

    clean_shutdown: bool
    elapsed_ms: int = 0
    partitions: int = 0
    segments_scanned: int = 0
    bytes_scanned: int = 0
    indexes_rebuilt: int = 0
    findings: Sequence[Finding] = ()
    losses: Sequence[Loss] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionReport:
    """What one pass of retention removed."""

    segments_deleted: int = 0
    bytes_deleted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """Sizes and counters at one moment; `details` holds a backend's own figures under stable names.

    `suspect_records`: how often a record with a suspect part was read, see StoredRecord.
    """

    topics: int
    partitions: int
    segments: int
    size_bytes: int
    open_files: int
    fenced: str | None
    suspect_records: int = 0
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One file of a store. `path`: below the store's directory. `kind`: what its name says that it is,
    in the backend's own words.

    `topic` and `partition`: set if the file belongs to one partition only. `base_offset`: the offset that a
    segment, or a file of a queue, begins at; `physical_offset`: where a file of the one log does. `size_bytes`
    is its length, not how much of it is used.
    """

    path: str
    kind: str
    topic: str | None
    partition: int | None
    base_offset: int | None
    physical_offset: int | None
    size_bytes: int
    last_modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport:
    """What `rebuild` did, or would do (`written` False). `changed` names the files whose bytes
    differ.
    """

    what: str
    written: bool
    files: int
    changed: Sequence[str] = ()
    findings: Sequence[Finding] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRange:
    """What a salvage took of a partition: its log from `first_offset` to `next_offset`, with holes
    where losses are told.
    """

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LossReport:
    """What of a store's log was left behind: by a start that cut it off, or by a salvage, which tells
    also what it kept and in which store (`target`).

    Of a salvage `log_bytes` = `kept_bytes` + `blank_bytes` (free space, paddings) + `lost_bytes`. Losses
    of several queues may name one place; `lost_bytes` counts each place once. `moved_bytes`: so much
    larger are the physical offsets of the new store, which RocketMQ's message ids tell.
    """

    store: str
    losses: Sequence[Loss] = ()
    lost_bytes: int = 0
    findings: Sequence[Finding] = ()
    target: str | None = None
    kept: Sequence[KeptRange] = ()
    kept_records: int = 0
    log_bytes: int = 0
    kept_bytes: int = 0
    blank_bytes: int = 0
    moved_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionNote:
    """What happened to `records` records of one partition for one reason; `offsets` are the first of
    them, in the source. `field` is that of the record, empty where it is about the whole of it.
    """

    topic: str
    partition: int | None
    field: str
    reason: str
    records: int
    offsets: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedTopic:
    """A topic as it is in the new store: how many records of it are there."""

    topic: str
    name: str
    partitions: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionReport:
    """What a conversion made of a store.

    `left_out`: records that readers of the source see and readers of `target` do not. `hidden`: those
    that no reader of committed records sees (aborted, not ended), and markers. `encoded`: those that came
    along in a form that has to be decoded. `moved`: those at other offsets than before.
    """

    source: str
    target: str
    backend: str
    to: str
    records: int
    topics: Sequence[ConvertedTopic] = ()
    left_out: Sequence[ConversionNote] = ()
    encoded: Sequence[ConversionNote] = ()
    moved: Sequence[ConversionNote] = ()
    hidden: Sequence[ConversionNote] = ()
    findings: Sequence[Finding] = ()


_SOUGHT: Final = {
    "key": "key",
    "record_id": "id",
    "unique_id": "unique id",
    "tag": "tag",
    "grep": "grep",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FindQuery:
    """What `find` looks for: exactly one of key, record_id, unique_id, tag or grep, and bounds."""

    topic: str | None = None
    key: str | None = None
    record_id: str | None = None
    unique_id: str | None = None
    tag: str | None = None
    grep: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    limit: int = 32
    raw: bool = False

    def check(self) -> None:
        """Raise InvalidArgument for two criteria, none at all, times in reverse, or a limit below 1."""
        given = [word for name, word in _SOUGHT.items() if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidArgument(f"{' and '.join(given)} exclude each other", field=given[1])
        if not given and self.from_ms is None and self.to_ms is None:
            raise InvalidArgument(
                f"nothing to look for: give one of {', '.join(_SOUGHT.values())}, or a time",
                field="key",
            )
        if self.from_ms is not None and self.to_ms is not None and self.from_ms > self.to_ms:
            raise InvalidArgument(f"from {self.from_ms} is after to {self.to_ms}", field="from")
        if self.limit < 1:
            raise InvalidArgument(f"limit must be at least 1, not {self.limit}", field="limit")
