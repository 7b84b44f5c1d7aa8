"""Values that cross the storage border: records, pages, bounds, topics, reports.

Owns shapes only; must not do IO, know a backend's bytes or know HTTP. Times are integer milliseconds since the epoch,
offsets are logical, positions and sizes are bytes. A type with one object per record is a msgspec Struct (created in C,
5x cheaper than a NamedTuple), or a NamedTuple. The first fields of such a NamedTuple have the codec's order. Reports
are frozen dataclasses.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import msgspec

from storage.errors import InvalidArgument, NotOffered

Header: TypeAlias = tuple[str, bytes | None]

NAMED_BYTES = 32  # overhead of a header or property, in addition to its own bytes (possibly none)


class TopicPartition(NamedTuple):
    """The address of one ordered log: topic and partition (RocketMQ: queue id)."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Isolation(enum.Enum):
    """The isolation level of a reader: which records of transactions it may see."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Bound(enum.Enum):
    """The choice of a lookup by time among several records with the same time."""

    LOWER = "lower"
    UPPER = "upper"


class Record(NamedTuple):
    """A record to be appended. `timestamp_ms` None: the store's clock. The first four fields have the codec's order.

    `properties`: a message's properties apart from its headers, UNIQ_KEY and WAIT; a backend without
    `capabilities.messages` rejects them.
    """

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    timestamp_ms: int | None = None
    tag: str | None = None
    lookup_keys: Sequence[str] = ()
    properties: Mapping[str, str] | None = None


class RawMessage(NamedTuple):
    """A RocketMQ message to be stored unchanged. The store itself assigns only queue, offsets, store time and store
    host.

    `properties` are the stored bytes. Hosts have 4 (IPv4) or 16 (IPv6) bytes of address and 4 bytes of port.
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

    - `timestamp_type` is "CreateTime" or "LogAppendTime".
    - `store_timestamp_ms` is None if the backend stores only one time.
    - `properties` are all properties of a message, in stored order; None if the backend has no properties.
    - `suspect`: invalid parts of the record that no checksum covers; they cannot be the bytes that were written.
    - `retries`: how often a group handed the message back; 0 if the backend does not count it.
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
    retries: int = 0


def weight_bytes(record: StoredRecord) -> int:
    """Return the approximate memory of a record: key, value, headers and properties, with an overhead for each of
    these.
    """
    named = [*record.headers, *(record.properties or {}).items()]
    return (
        len(record.key or b"")
        + len(record.value or b"")
        + sum(len(name) + len(value or "") + NAMED_BYTES for name, value in named)
    )


class OffsetBounds(NamedTuple):
    """The bounds `start` <= `stable` <= `end`: first offset, end of what read_committed sees, next offset (published
    end).
    """

    start: int
    stable: int
    end: int


class TimedOffset(NamedTuple):
    """The result of a lookup by time; `leader_epoch` is None if the backend has no leader epochs."""

    offset: int
    timestamp_ms: int
    leader_epoch: int | None = None


class EpochEnd(NamedTuple):
    """The end of a leader epoch: the offset after the last record that it or an older epoch wrote."""

    leader_epoch: int
    end_offset: int


class ProducerSequence(NamedTuple):
    """An idempotent producer's mark on one append: id, epoch and the first record's sequence number.

    `transactional`: the records belong to the producer's transaction (see SupportsTransactions). Its sequence may be -1
    then: the append continues the producer's sequence in the partition.
    """

    producer_id: int
    epoch: int
    sequence: int
    transactional: bool = False


class ProducerEpoch(NamedTuple):
    """A producer, as the owner of a transaction: its id and epoch."""

    producer_id: int
    epoch: int


class CommittedOffset(NamedTuple):
    """The progress of a consumer group in one partition: `offset` is the next record to consume.

    `leader_epoch` belongs to the last consumed record, -1 if unknown. `metadata` is the consumer's own text.
    `commit_timestamp_ms` None: unknown; in a commit, the store's clock.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int | None = None


class GroupCommit(NamedTuple):
    """The offsets that one group commits at once; its offsets of other partitions stay unchanged.

    With a `transaction` they count when it is committed.
    """

    group: str
    offsets: Mapping[TopicPartition, CommittedOffset]
    transaction: ProducerEpoch | None = None


class AppendResult(NamedTuple):
    """The result of an append. `timestamp_ms` is the append time under LogAppendTime, else -1.

    `duplicate`: the same sequence was stored before; the offsets are the earlier ones and nothing was written.
    """

    base_offset: int
    last_offset: int
    timestamp_ms: int
    locators: Sequence[int]
    duplicate: bool = False


class Page(NamedTuple):
    """The result of a read: records in offset order, the offset of the next read, and the bounds at that moment.

    `next_offset` moves past skipped records (control, aborted, removed by compaction), even if `records` is empty.
    """

    records: Sequence[StoredRecord]
    next_offset: int
    bounds: OffsetBounds


class AbortedTransaction(NamedTuple):
    """An aborted transaction: the producer, and the offset of its first record in the partition."""

    producer_id: int
    first_offset: int


class BatchPage(NamedTuple):
    """Whole record batches as stored (they may begin before the requested offset), and the offset of the next read.

    `aborted`, for a reader of committed records: the aborted transactions with records in the batches. It must leave
    out their records, from the first offset up to the marker of the abort.
    """

    data: bytes
    next_offset: int
    bounds: OffsetBounds
    aborted: Sequence[AbortedTransaction] = ()


class ConfigSource(enum.Enum):
    """The place that gives a config its value."""

    TOPIC = "topic"
    STORE = "store"
    DEFAULT = "default"


class TopicConfig(NamedTuple):
    """A config of a topic: its value, the value without a config of its own, and where the value comes from.

    `kind`: bool, int, long, double, list or string. `server_name`: the broker's property that sets it for all topics;
    None without one.
    """

    name: str
    value: str
    inherited: str
    source: ConfigSource
    kind: str
    server_name: str | None = None


class FoundPage(NamedTuple):
    """One page of `find`: `scanned` is the number of inspected records; `complete` False: continue with `cursor`."""

    records: Sequence[tuple[int, StoredRecord]]  # (partition, record)
    scanned: int
    indexed: bool
    complete: bool
    cursor: str | None
    time_axis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The abilities of a backend, for callers that must choose; `time_axis` is "timestamp" or "store_timestamp".

    - `messages`: records are RocketMQ messages, with properties, a unique id, a born host, and an id of their own that
      an append returns (SupportsRawMessages).
    - `inert_configs`: topic configs that are stored for the real server and have no effect here, with their defaults.
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
    """A topic: its partition numbers in ascending order, and the configs that differ from the store's defaults.

    `closed`: the real server lets no client write to it. `missing`: partitions that should exist and are not served,
    with the reason.
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
    """A problem (or a fact worth knowing) found on disk. `code` is stable and documented in docs/findings.md.

    `severity`: "info" (no loss), "warning" (repaired or repairable without loss), "error" (data unreadable or lost).
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
    """The amount that `verify` read of one file: its records (of a derived file: entries, if they are counted) and
    bytes. `is_log`: the file contains records; otherwise it is derived from a log, or it is a small file.
    """

    path: str
    topic: str | None
    partition: int | None
    records: int
    size_bytes: int
    is_log: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Bytes removed from a log, or from a queue whose entries point after the log end. Offsets [first_offset,
    next_offset) are lost; `next_offset` is None if unknown.
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
    """The report of opening a store: what was found, cut and rebuilt."""

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
    """The amount of data that one pass of retention removed."""

    segments_deleted: int = 0
    bytes_deleted: int = 0


class DelayLevel(NamedTuple):
    """A delay level of a store: its number, from 1 on, and for how long its messages wait."""

    level: int
    delay_ms: int


class Delivery(NamedTuple):
    """The result of one delivery of delayed messages: the partitions with new records, and the number of messages that
    no longer wait. `more`: it ended at its limit, and more may be due. `refused`: why a level waits although its next
    message is due: only another program can write to the topic.
    """

    partitions: Sequence[TopicPartition]
    messages: int
    more: bool
    refused: NotOffered | None = None


class DelayedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A message that waits for its time.

    - `locator`: of the waiting message; its delivery is another record.
    - `topic` and `partition`: where it will be delivered; None if the message does not say so.
    - `level`: None for a message of RocketMQ's timer. `offset`: in the queue of its level, or of the timer.
    """

    locator: int
    topic: str | None
    partition: int | None
    level: int | None
    deliver_at_ms: int
    timestamp_ms: int
    store_timestamp_ms: int
    offset: int
    unique_id: str | None
    tag: str | None
    lookup_keys: Sequence[str]


class DelayedPage(NamedTuple):
    """One page of messages that wait. `cursor`: for the next page, None on the last page."""

    records: Sequence[DelayedRecord]
    cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """What one step of compaction did. `partition` None: no partition was due.

    The bytes and records are counted over the whole cleaning of the partition so far. `finished`: it has ended.
    `cleaned_up_to`: the offset up to which the partition is clean now. `uncleanable`: why the partition is left alone.
    """

    partition: TopicPartition | None = None
    finished: bool = False
    bytes_read: int = 0
    bytes_written: int = 0
    records_dropped: int = 0
    keyless_dropped: int = 0
    cleaned_up_to: int | None = None
    uncleanable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionStatus:
    """The state of compaction: the partitions of compacted topics, and what was done since the store was opened.

    `dirty_bytes`: the size of the segments that a cleaning would read for new keys. `max_dirty_ratio`: the highest
    ratio of these to all bytes that can be cleaned, of any partition. `uncleanable`: topic, partition and reason.
    """

    partitions: int
    dirty_bytes: int
    max_dirty_ratio: float
    uncleanable: Sequence[Mapping[str, object]]
    cleanings: int
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """Sizes and counters at one moment; `details` contains a backend's own figures under stable names.

    `suspect_records`: the number of reads of a record with a suspect part, see StoredRecord. `deleted_segments` and
    `deleted_bytes`: the segments, or files of the log, that this run has deleted. `compaction`: None if the backend has
    none.
    """

    topics: int
    partitions: int
    segments: int
    size_bytes: int
    open_files: int
    fenced: str | None
    suspect_records: int = 0
    deleted_segments: int = 0
    deleted_bytes: int = 0
    details: Mapping[str, object] = field(default_factory=dict)
    compaction: CompactionStatus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file of a store. `path`: relative to the store's directory. `kind`: the kind of file by its name, in the
    backend's own terms.

    `topic` and `partition`: set if the file belongs to one partition only. `base_offset`: the first offset of a
    segment, or of a file of a queue. `physical_offset`: the first physical offset of a file of the commit log.
    `size_bytes` is the length of the file, not the used part of it.
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
    """The result of `rebuild`, or its preview (`written` False). `changed` names the files whose bytes differ."""

    what: str
    written: bool
    files: int
    changed: Sequence[str] = ()
    findings: Sequence[Finding] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRange:
    """The range that a salvage kept of a partition: its log from `first_offset` to `next_offset`, with gaps where
    losses are reported.
    """

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LossReport:
    """The data of a log that was left out: cut by a start, or not copied by a salvage. The report of a salvage also
    says what it kept, and in which store (`target`).

    For a salvage `log_bytes` = `kept_bytes` + `blank_bytes` (free space, paddings) + `lost_bytes`. Losses of several
    queues may name one position; `lost_bytes` counts each position once. `moved_bytes`: the increase of all physical
    offsets in the new store; RocketMQ's message ids contain physical offsets.
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
    """The outcome for `records` records of one partition, with one reason; `offsets` are the first of these records, in
    the source. `field` is the field of the record, empty if the note is about the whole record.
    """

    topic: str
    partition: int | None
    field: str
    reason: str
    records: int
    offsets: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedTopic:
    """A topic in the new store, with the number of its records there."""

    topic: str
    name: str
    partitions: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionReport:
    """The result of a conversion.

    - `left_out`: records that readers of the source see and readers of `target` do not.
    - `hidden`: records that no reader of committed records sees (aborted, not ended), and markers.
    - `encoded`: records that were converted to a form that has to be decoded.
    - `moved`: records whose offset has changed.
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


DEFAULT_FOUND_BYTES: Final = 16 << 20

_SOUGHT: Final = {
    "key": "key",
    "record_id": "id",
    "unique_id": "unique id",
    "tag": "tag",
    "grep": "grep",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FindQuery:
    """A search. All given conditions must hold: key (a record's key or one of its lookup keys), record_id, unique_id,
    tag, grep (text in the value or the key; in a message also in the lookup keys), and the time, both ends included.

    A key that is not UTF-8 text has its bytes in the form of "surrogateescape".

    A tool takes one of these conditions and returns at most `limit` records; `raw`: the results of the index itself.
    A store takes a topic, and returns pages by `cursor`, `backward`, `scan`, `max_scanned` and `max_bytes`: see
    LogStore.find.
    """

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
    cursor: str | None = None
    backward: bool = False
    scan: bool = False
    max_scanned: int = 1_000_000
    max_bytes: int = DEFAULT_FOUND_BYTES

    def has_text(self, *places: bytes | None) -> bool:
        """Return whether one of these parts of a record contains `grep`; also if there is no `grep`."""
        if self.grep is None:
            return True
        text = self.grep.encode()
        return any(place is not None and text in place for place in places) or not text

    def check(self) -> None:
        """Raise InvalidArgument for a query that no tool takes: two criteria, no criterion at all, a time range in
        reverse, or a limit below 1.
        """
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
