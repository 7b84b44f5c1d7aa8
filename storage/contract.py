"""The contract between the server and a backend: LogStore, and the optional abilities of some backends.

Owns abstract shapes and their contracts, also of work in parts; must not contain a backend's logic. Records as columns
have a contract of their own, `storage/columns.py`. All calls block and may come from any thread at any time unless a
method says otherwise. Every method may raise `StoreClosed`, and every method that accesses the disk `IoFailure`;
docstrings name only the other errors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self, TypeAlias, TypeVar, cast, runtime_checkable

from storage.errors import InvalidArgument
from storage.model import (
    DEFAULT_FOUND_BYTES,
    AppendResult,
    BatchPage,
    Bound,
    Capabilities,
    CommittedOffset,
    CompactionReport,
    ConversionNote,
    DelayedPage,
    DelayLevel,
    Delivery,
    EpochEnd,
    FileCount,
    Finding,
    FindQuery,
    FoundPage,
    GroupCommit,
    Isolation,
    LossReport,
    OffsetBounds,
    Page,
    ProducerEpoch,
    ProducerSequence,
    RawMessage,
    RebuildReport,
    Record,
    RecoveryReport,
    RetentionReport,
    StoredRecord,
    StoreStats,
    TimedOffset,
    TopicConfig,
    TopicInfo,
    TopicPartition,
)
from storage.repairs import RepairRunner, repair_serially

P = TypeVar("P")
R = TypeVar("R")

Clock: TypeAlias = Callable[[], int]
"""A function that returns the time in milliseconds since the epoch."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""A function called from time to time during long work with: the name of the work, the amount done, the total amount.
Both amounts are bytes, unless the name ends with another unit ("examining partitions"). It must return quickly.
"""

DEFAULT_MAX_RECORDS = 500
DEFAULT_MAX_BYTES = 1 << 20


OnForeseen: TypeAlias = Callable[[Sequence[ConversionNote]], None]
"""A function that receives the notes on records that a conversion will leave out, as far as they are known in advance.
"""

Counted: TypeAlias = Callable[[FileCount], None]
"""A function that receives each file that `verify` has read."""


def not_counted(count: FileCount) -> None:
    """Do nothing: the default `Counted`."""


def no_progress(what: str, done: int, total: int) -> None:
    """Do nothing: the default `Progress`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """The options of opening a store. `settings` uses the names of the real servers (`segment.bytes`, `num.partitions`,
    ...).
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    accept_loss: bool = False
    open_files: int = 512
    progress: Progress = no_progress
    repair: RepairRunner = repair_serially


def check_not_fewer(info: TopicInfo, partitions: int) -> None:
    """Raise InvalidArgument if a topic has more partitions than this: no partition can be taken away."""
    present = len(info.partitions) + len(info.missing)
    if partitions < present:
        raise InvalidArgument(
            f"partitions cannot be {partitions}: topic {info.name!r} has {present}, and their number only grows",
            field="partitions",
        )


class LogStore(ABC):
    """An opened store. Appends to one partition are ordered; reads never wait for appends."""

    capabilities: Capabilities
    recovery: RecoveryReport
    read_only: bool

    @abstractmethod
    def topics(self) -> Mapping[str, TopicInfo]:
        """Return all topics by name, in name order: a snapshot."""

    @abstractmethod
    def create_topic(
        self, topic: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> TopicInfo:
        """Create a topic; `partitions` None: the store's default number. Durable on return (files and directory
        synced).

        An existing topic of the same shape is returned unchanged. Raises TopicExists for a topic of another shape,
        InvalidTopic, InvalidArgument, InvalidConfig, StoreReadOnly, StoreFenced, DiskFull. On an error nothing is left
        on disk.
        """

    @abstractmethod
    def preview_topic(
        self,
        topic: str,
        records: Sequence[Record] | bytes = (),
        *,
        compression: str | None = None,
        producer: ProducerSequence | None = None,
    ) -> TopicInfo:
        """Return the topic that `create_topic` would create with the store's defaults, or the existing topic.

        Used to check records before a topic is created for them, or before a reply that does not wait for the append.
        Raises InvalidTopic. For `records` (or whole client batches) it raises the errors of an append, except
        OutOfOrderSequence and FencedProducer.
        """

    @abstractmethod
    def alter_topic(self, topic: str, configs: Mapping[str, str | None]) -> TopicInfo:
        """Set topic configs, or reset them with None; durable on return. Raises UnknownTopic, InvalidConfig,
        StoreReadOnly, StoreFenced, DiskFull.
        """

    @abstractmethod
    def add_partitions(self, topic: str, partitions: int) -> TopicInfo:
        """Raise a topic's number of partitions to `partitions`; durable on return. With its present number nothing
        changes.

        The new partitions are empty, and the records of the others stay where they are. A crash meanwhile may leave
        some of the new partitions, the first ones. Raises UnknownTopic, InvalidTopic for a topic of the server's own,
        InvalidArgument for fewer partitions than there are, StoreReadOnly, StoreFenced, DiskFull.
        """

    @abstractmethod
    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records; durable on return. Raises UnknownTopic, StoreReadOnly, StoreFenced,
        DiskFull.
        """

    @abstractmethod
    def append(
        self,
        partition: TopicPartition,
        records: Sequence[Record],
        *,
        compression: str | None = None,
        producer: ProducerSequence | None = None,
        born_hosts: Sequence[bytes] = (),
        publish: bool = True,
    ) -> AppendResult:
        """Append records in order as one unit. On return they are written to the operating system, NOT durable.

        - `publish` True: visible at once. If an unpublished append precedes them, they become visible with its flush.
        - `publish` False: visible when `flush` has made them durable.
        - `compression` None: the topic's setting.
        - `born_hosts`: the sending host of each record, one per record or none at all, as in RawMessage. Only backends
          with `capabilities.messages` store them, and only there a record without a unique id is given one.

        Raises UnknownTopic, UnknownPartition, RecordTooLarge, UnrepresentableRecord, OutOfOrderSequence,
        FencedProducer, StoreReadOnly, StoreFenced, DiskFull. On an error no record of the request is stored.
        """

    @abstractmethod
    def read(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_records: int = DEFAULT_MAX_RECORDS,
        max_bytes: int = DEFAULT_MAX_BYTES,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Page:
        """Return records from `offset` on, up to the published (or stable) end.

        Returns at least one record if any exists, even beyond `max_bytes`; an empty page at the end. Raises
        UnknownTopic, UnknownPartition, OffsetOutOfRange outside [start, end], Corrupt at a damaged batch (with
        `next_good_offset`).
        """

    @abstractmethod
    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        """Return the first, stable and next offset as readers see them now. Raises UnknownTopic, UnknownPartition."""

    @abstractmethod
    def log_bytes(self, partition: TopicPartition) -> int | None:
        """Return the size of a partition's own log; None if the partitions share one log. Raises UnknownTopic,
        UnknownPartition.
        """

    @abstractmethod
    def offset_for_time(
        self, partition: TopicPartition, timestamp_ms: int, *, bound: Bound = Bound.LOWER
    ) -> TimedOffset | None:
        """Return the first record at or after `timestamp_ms` by the backend's own rule; None if no such record exists.
        Raises UnknownTopic, UnknownPartition, Corrupt.
        """

    @abstractmethod
    def newest_time(self, partition: TopicPartition) -> TimedOffset | None:
        """Return the first visible record with the largest time on the backend's `time_axis`; None if there is none.

        Where records are stored in the order of that axis (the store time), it is the last record. It may be a deleted
        record whose file remains, as in Kafka. Raises UnknownTopic, UnknownPartition, Corrupt.
        """

    def find(
        self,
        topic: str,
        *,
        key: str | bytes | None = None,
        unique_id: str | None = None,
        tag: str | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        limit: int = 32,
        cursor: str | None = None,
        backward: bool = False,
        scan: bool = False,
        max_scanned: int = 1_000_000,
        max_bytes: int = DEFAULT_FOUND_BYTES,
    ) -> FoundPage:
        """Return records of a topic by key (record key or lookup key), unique id or tag, with time in [from_ms, to_ms]
        on the backend's `time_axis`. A record must match all given criteria.

        The order is the order of storage. Where each partition is a log of its own, the order is partition by
        partition; where one log holds all partitions, it is the position in that log. So within a partition the order
        is always by offset. `backward` returns the same records in exactly the reverse order, the newest record of a
        partition first.

        A call inspects at most `max_scanned` records. It returns at most `limit` records, and at most `max_bytes` by
        their weight; the first record is exempt. At a limit it returns a cursor for a call with the same arguments. All
        pages together are the complete result: each record once, none missing. `scan`: inspect the records themselves
        even where an index could answer.

        Raises UnknownTopic, InvalidArgument (cursor, limit, max_scanned), NotOffered (unique_id, where records have
        none). Raises Corrupt at a damaged record if the page is empty. Its fact `cursor` continues after the damage
        (None: no record is left).
        """
        query = FindQuery(
            key=key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else key,
            unique_id=unique_id,
            tag=tag,
            from_ms=from_ms,
            to_ms=to_ms,
            limit=limit,
            cursor=cursor,
            backward=backward,
            scan=scan,
            max_scanned=max_scanned,
            max_bytes=max_bytes,
        )
        return self.find_page(topic, query)

    @abstractmethod
    def find_page(self, topic: str, query: FindQuery) -> FoundPage:
        """Return the page of a query, as `find` does."""

    @abstractmethod
    def record_id(self, partition: TopicPartition, locator: int) -> str:
        """Return the public id of a record whose locator came from AppendResult or StoredRecord."""

    @abstractmethod
    def find_by_id(self, record_id: str) -> tuple[TopicPartition, StoredRecord]:
        """Return the record with this id. Raises RecordNotFound (also for text that is not an id), Corrupt."""

    @abstractmethod
    def flush(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Make every earlier append to these partitions (None: all) durable and published on return.

        A failed sync fences the store and raises StoreFenced: it is never retried, and no record is published. Raises
        UnknownTopic, UnknownPartition for a partition that was deleted meanwhile.
        """

    @abstractmethod
    def new_producer_id(self) -> int:
        """Return a producer id above every id seen or assigned before, also across restarts and crashes. Raises
        StoreReadOnly, StoreFenced, DiskFull.
        """

    @abstractmethod
    def checkpoint(self) -> None:
        """Write how far the logs are flushed, so that a start after a crash reads less; appends continue meanwhile.
        Raises StoreReadOnly, StoreFenced, DiskFull.
        """

    @abstractmethod
    def enforce_retention(self, now_ms: int) -> RetentionReport:
        """Delete data by the topics' own retention settings; do nothing where none is set. A concurrent read of deleted
        offsets raises OffsetOutOfRange; a search continues after them. Raises as `checkpoint`.
        """

    @abstractmethod
    def stats(self) -> StoreStats:
        """Return sizes and counters; cheap enough for every scrape."""

    @abstractmethod
    def close(self) -> None:
        """Flush, trim, checkpoint, write the marker of a clean stop, unlock. A second call does nothing.

        A fenced store is unlocked without a marker, so that the next start recovers.
        """

    def scan(
        self,
        partition: TopicPartition,
        start: int | None = None,
        stop: int | None = None,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[StoredRecord]:
        """Yield every record with start <= offset < stop, page by page; `stop` None: the end when the scan begins."""
        bounds = self.bounds(partition)
        offset = bounds.start if start is None else start
        end = bounds.stable if isolation is Isolation.READ_COMMITTED else bounds.end
        stop = end if stop is None else min(stop, end)
        while offset < stop:
            page = self.read(partition, offset, max_records=10_000, isolation=isolation)
            for record in page.records:
                if record.offset >= stop:
                    return
                yield record
            if page.next_offset == offset:
                return
            offset = page.next_offset

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


@runtime_checkable
class SupportsClusterId(Protocol):
    """A store whose directory belongs to a node of a cluster with a name (Kafka's meta.properties)."""

    @property
    def cluster_id(self) -> str | None:
        """The name of the cluster; None if the directory does not contain it."""
        ...

    @property
    def node_id(self) -> int | None:
        """The number of the node in the cluster; None if the directory does not contain it."""
        ...


@runtime_checkable
class SupportsTopicConfigs(Protocol):
    """A store that knows every config of a topic, also the configs that were never set."""

    def describe_configs(self, topic: str) -> Sequence[TopicConfig]:
        """Return all configs of a topic in order of name. Raises UnknownTopic."""
        ...

    def default_configs(self) -> Sequence[TopicConfig]:
        """Return the configs of a topic without any of its own, in order of name."""
        ...

    def check_configs(self, configs: Mapping[str, str]) -> None:
        """Check configs as `create_topic` and `alter_topic` do, and change nothing. Raises InvalidConfig,
        NotOffered.
        """
        ...


@runtime_checkable
class SupportsDeleteRecords(Protocol):
    """A store whose partitions have a log each, so that the first records of one can be deleted alone."""

    def delete_records(self, partition: TopicPartition, before_offset: int) -> OffsetBounds:
        """Delete the records below `before_offset`, and return the bounds after it; durable on return.

        Their files are removed as far as they hold no other record. At or below the partition's start nothing changes.
        A concurrent read of deleted offsets raises OffsetOutOfRange.

        Raises OffsetOutOfRange for an offset that is negative or above the published end, UnknownTopic,
        UnknownPartition, NotOffered for a topic whose records are only compacted, StoreReadOnly, StoreFenced, DiskFull.
        """
        ...


@runtime_checkable
class SupportsRetentionSettings(Protocol):
    """A store whose settings of retention can be changed while it is open, under the real server's names."""

    def retention_settings(self) -> Mapping[str, str | None]:
        """Return all of these settings with their values in force; None: not set."""
        ...

    def change_retention(self, changes: Mapping[str, str | None]) -> None:
        """Set these settings (None: not set) until the store is closed; the next pass of retention uses them.

        Raises InvalidConfig, with nothing changed; StoreReadOnly.
        """
        ...


@runtime_checkable
class SupportsLeaderEpochs(Protocol):
    """A store that keeps which leader epoch wrote its records; see `capabilities.leader_epochs`."""

    def end_of_epoch(self, partition: TopicPartition, leader_epoch: int) -> EpochEnd | None:
        """Return the end offset of the newest leader epoch that is not above `leader_epoch`.

        It is the offset at which the next epoch begins, or for the newest epoch the published end. None for an epoch
        above the newest one. Raises UnknownTopic, UnknownPartition.
        """
        ...


@runtime_checkable
class SupportsBatchBytes(Protocol):
    """Record batches written and read unchanged: for raw produce and fetch, conversion, and a wire front end."""

    def append_batches(
        self,
        partition: TopicPartition,
        data: bytes,
        *,
        keep_offsets: bool = False,
        publish: bool = True,
        client: bool = False,
        checked: bool = False,
        transaction: ProducerEpoch | None = None,
    ) -> AppendResult:
        """Append whole batches. Header and CRC are checked, offsets and leader epoch are assigned; all other bytes are
        written unchanged. `data` itself does not change.

        - `client`: the batches come from outside. Every record is checked too, and a wrong largest timestamp is
          corrected, as the real server does. Control batches are rejected with NotOffered, and transactional batches
          too unless they belong to `transaction`. Without `client` the caller is responsible for the records.
        - `transaction`: all batches of a client must be transactional and of this producer and epoch.
        - `checked`: the data is the result of `check_client_batches`; CRC and records are not checked again.
        - `keep_offsets`: offsets, epochs and times stay unchanged (they must continue the log); for conversion and
          tests.

        Raises InvalidBatch and the errors of `append`.
        """

    def check_client_batches(
        self, topic: str, data: bytes, transaction: ProducerEpoch | None = None
    ) -> bytes:
        """Return a client's whole batches in the form that the log accepts, for `append_batches` with `client` and
        `checked`. Every record is checked, and a wrong largest timestamp is corrected. No record is appended, and no
        lock is held.

        Each compressed batch is decompressed, to 256 MiB at most. Call it in another thread than the shared append
        thread, and run one call at a time for data that `are_compressed`. Raises InvalidBatch, NotOffered,
        RecordTooLarge, and UnrepresentableRecord for a timestamp that is too far from the clock.
        """

    def are_compressed(self, data: bytes) -> bool:
        """Return whether any of these batches is compressed; False for bytes that are not batches."""

    def read_batches(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> BatchPage:
        """Return whole batches, from the batch that contains `offset` on: at least one, CRC checked. Raises the errors
        of `read`.

        With READ_COMMITTED the batches end at the stable end. They contain batches of aborted transactions, which the
        page names.
        """

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Return the leader epoch of the newest batch; of an empty log, the epoch that it began with (0 without one).
        Raises UnknownTopic, UnknownPartition.
        """


def batches_of(store: LogStore) -> SupportsBatchBytes | None:
    """Return the store if it has batches, else None; `isinstance` would take 50 us, which asks for each method."""
    return cast("SupportsBatchBytes", store) if store.capabilities.batch_bytes else None


@runtime_checkable
class SupportsRawMessages(Protocol):
    """RocketMQ messages written unchanged: for conversion, and for tests that write a real store's files again."""

    def append_messages(
        self,
        partition: TopicPartition,
        messages: Sequence[RawMessage],
        *,
        store_timestamp_ms: int | None = None,
        store_host: bytes | None = None,
        start_physical_offset: int | None = None,
        publish: bool = True,
    ) -> AppendResult:
        """Append messages of one queue in one run, placed in the log as the real store places a batch. No byte of a
        message is changed or added.

        - `store_timestamp_ms` and `store_host` None: the store's clock and option.
        - Prepared and rolled back messages (by `sys_flag`) take no queue offset.
        - `start_physical_offset`: the start of the log in a store that is still empty; otherwise rejected with
          InvalidArgument.

        Raises the errors of `append`; InvalidArgument also for hosts that are not 8 or 20 bytes long.
        """


class Delays(Protocol):
    """The delayed messages of a store. Thread-safe; a delivery runs in one thread at a time."""

    levels: Sequence[DelayLevel]
    """The delay levels, shortest number first: 1, 2, ..."""

    def delayed(
        self, record: Record, partition: TopicPartition, level: int
    ) -> tuple[TopicPartition, Record]:
        """Return where to append a record, and in which form, so that it is delivered to `partition` after the delay of
        a level. The delay counts from its append; the result of that append has the time.

        Raises InvalidArgument (field) for a level that the store does not have.
        """

    def deliver(self, now_ms: int, *, max_records: int = ...) -> Delivery:
        """Append the messages that are due at a time to their partitions, in the order of each level.

        On return the new records are visible and durable, and so is the progress. After a crash messages may be
        delivered again; none is lost, and none is delivered before its time. A message that cannot be read, or names no
        partition, is logged and passed over. Stops after `max_records`, at the end of a part. A level waits before a
        message for a topic that this store cannot write: see Delivery. Raises the errors of `append`.
        """

    def lag_ms(self, now_ms: int) -> int:
        """Return for how long the oldest message that was due at the last delivery has been due; does no IO."""

    def waiting(self, limit: int, cursor: str | None = None) -> DelayedPage:
        """Return one page of the messages that wait, by the time of their delivery. Raises InvalidArgument (cursor)."""

    def timers(self, limit: int, cursor: str | None = None) -> DelayedPage:
        """Return one page of the messages of RocketMQ's timer that wait, by arrival; a page may have fewer records than
        `limit`. The store never delivers them. Raises InvalidArgument (cursor).
        """


@runtime_checkable
class SupportsDelay(Protocol):
    """A store that keeps messages until their time."""

    @property
    def delays(self) -> Delays:
        """The delayed messages."""
        ...


@runtime_checkable
class SupportsCompaction(Protocol):
    """A store with topics of which it keeps the newest record of each key."""

    compaction_pause_ms: int
    """How long a caller waits after a call that found nothing to do."""

    def compact(self, now_ms: int, *, max_bytes: int | None = None) -> CompactionReport:
        """Clean the partition that needs it most, or go on with it; do nothing where no topic asks for compaction.

        - `max_bytes`: return after about so many bytes were read; the next call goes on. None: clean the whole
          partition. Call it again until the report names no partition.
        - Appends and reads continue meanwhile. Offsets do not change, and the end of the log stays.
        - What was cleaned is durable on return. A crash at any moment leaves each segment as it was or cleaned.
        - Damage is no error: the partition is left alone, and the report and `stats` name the reason.

        One thread at a time may call it. Raises StoreReadOnly, StoreFenced, StoreClosed, and DiskFull: nothing is lost
        then, and a later call begins again.
        """


@runtime_checkable
class SupportsGroupOffsets(Protocol):
    """Committed offsets of consumer groups, stored where the real server stores them.

    Thread-safe; commits are ordered. An offset is stored as given, even beyond the log end. So the caller must not
    commit an offset above the published end. A negative one means none; RocketMQ's format then keeps none.
    """

    offsets_topic: str | None
    """The topic whose records are the offsets; the first commit creates it. None: the offsets are stored in a file."""

    def groups(self) -> Sequence[str]:
        """Return the groups that have committed offsets, in order."""

    def committed(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the newest offsets of a group, by partition in order; empty for an unknown group.

        A field that a backend does not store (see its own docstring) has its default value.
        """

    def unstable_offsets(self, group: str) -> Collection[TopicPartition]:
        """Return the partitions for which an open transaction holds an offset of the group. `committed` has the
        offsets of before; the end of the transaction may change them.
        """

    def commit_offsets(self, commits: Sequence[GroupCommit], *, durable: bool = True) -> None:
        """Commit offsets of any number of groups; if a partition is given twice, the later offset counts.

        On return `committed` returns these offsets. The records below them are synced first. So after a crash no offset
        is beyond the end of its log. `durable`: the offsets are synced on return too; otherwise they are at least
        written to the operating system.

        Raises, before any offset is stored: UnknownTopic, UnknownPartition, InvalidArgument (group, offset,
        leader_epoch, metadata, commit_timestamp_ms), StoreReadOnly, StoreFenced. After DiskFull the offsets of some
        groups may be stored.
        """

    def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> None:
        """Delete a group's offsets for these partitions (None: all); durable on return. A missing offset is not an
        error. Deleting a topic deletes its offsets for every group.

        Raises StoreReadOnly, StoreFenced, DiskFull.
        """


@runtime_checkable
class SupportsInspect(Protocol):
    """An offline inspector of a PATH (a store, a partition directory or one file), for commands and the pipeline.

    Opened by `storage.open_inspector`. Changes no byte and no mtime (except `rebuild` with `write`) and takes no lock.
    It works alongside a running server or a real broker, on the data at the time of opening, in the state that recovery
    would produce.
    """

    backend: str

    def summary(self) -> Mapping[str, object]:
        """Return an overview: backend, version, clean or not, topics, partitions, ranges, times, sizes, findings."""

    def dump(
        self,
        what: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[Sequence[Mapping[str, object]]]:
        """Yield groups of rows of one kind (`dump_kinds`). Bytes stay bytes. Raises InvalidArgument for an unknown
        kind.
        """

    def findings(self) -> Sequence[Finding]:
        """Return the findings of opening and of all calls so far: damage that was skipped, and data that a start would
        cut.
        """

    def dump_kinds(self) -> Sequence[str]:
        """Return the kinds that `dump` accepts here, the default first."""

    def partitions(self) -> Sequence[TopicPartition]:
        """Return the partitions that PATH covers."""

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        """Return the bounds as LogStore.bounds does."""

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> TimedOffset | None:
        """Return the offset as LogStore.offset_for_time does."""

    def find(self, query: FindQuery) -> Iterator[Mapping[str, object]]:
        """Yield matching records as rows of `dump("records")`, at most `query.limit`."""

    def verify(
        self, progress: Progress = no_progress, counted: Counted = not_counted
    ) -> Iterator[Finding]:
        """Read all files and yield findings, in file order; no findings: no damage.

        `counted` receives every file that was read, so that a caller can report which files were checked.
        """

    def rebuild(
        self, what: str, *, write: bool = False, progress: Progress = no_progress
    ) -> RebuildReport:
        """Rebuild derived files of one kind (`rebuild_kinds`) from the log; `write` False only reports the files that
        would change. Raises InvalidArgument for an unknown kind, and for a PATH that is not a store; with `write`
        StoreLocked.
        """

    def rebuild_kinds(self) -> Sequence[str]:
        """Return the kinds that `rebuild` accepts here: all derived files, in an order in which they can be rebuilt."""

    def salvage(self, target: Path, *, progress: Progress = no_progress) -> LossReport:
        """Copy all good data into a new store of the same kind at `target`, and return a report of the losses. The new
        store contains the report too.

        The new store is durable and cleanly stopped on return; on an error no new store exists. Raises InvalidArgument
        for a target that is not empty or is inside PATH, and for a PATH without records; DiskFull.
        """

    def close(self) -> None:
        """Close open files."""


# ---- work in parts -------------------------------------------------------------------------------
#
# A store's work is divided into parts, which many workers may do side by side. A part is planned where the whole store
# is visible. It is done elsewhere, in another process or on another machine that sees the same path. So it is picklable
# and names files and positions. State that one part passes to the next is combined where the parts were planned:
#
#     planned   part 1    part 2    part 3          each with a guess of the state before it
#     done      result 1  result 2  result 3        side by side
#     folded    -> state -> state -> state          in order; a part whose guess was wrong is done again
#
# A command does the same parts one after another, each with the known state before it, so that no state is guessed. So
# every rule has one implementation.


class TaskRunner(Protocol):
    """A runner of parts, perhaps side by side; the results come in the order of the parts.

    `work`, the parts and the results are picklable. The parts come from an iterator. A runner that takes some parts,
    does them and yields their results before it takes more needs memory for only those parts. An error of `work` is
    raised.
    """

    def __call__(self, work: Callable[[P], R], parts: Iterable[P], /) -> Iterable[R]: ...


def run_serially(work: Callable[[P], R], parts: Iterable[P], /) -> Iterator[R]:
    """Do the parts here, each when the previous result was taken."""
    return map(work, parts)


@runtime_checkable
class SupportsParts(Protocol):
    """An inspector whose work on a whole store can be divided; see SupportsInspect for all other methods."""

    def audit(
        self, run: TaskRunner, *, progress: Progress = no_progress, counted: Counted = not_counted
    ) -> Iterator[Finding]:
        """Yield the same findings as `verify`; `run` does the parts. `counted` receives every file after its
        last part.
        """

    def rebuild_in_parts(
        self, what: str, run: TaskRunner, *, write: bool = False, progress: Progress = no_progress
    ) -> RebuildReport:
        """Rebuild the same files as `rebuild`; `run` does the parts.

        With `write` the parts write to a folder next to the store, which is removed at the end. All workers must reach
        this folder under the same path. Without `write` the disk is not touched.
        """
