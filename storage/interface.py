"""The contract between the server and a backend: LogStore, and what some backends can do beside it.

Owns abstract shapes and their promises; must not hold a backend's logic. Everything here is
blocking and may be called from any thread at any time unless a method says otherwise. Every method
may raise `StoreClosed`, and every method that touches the disk `IoFailure`; only what else it
raises is named.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from storage.model import (
    AppendResult,
    BatchPage,
    Bound,
    Capabilities,
    CommittedOffset,
    ConversionNote,
    FileCount,
    Finding,
    FindQuery,
    FoundPage,
    GroupCommit,
    Isolation,
    LossReport,
    OffsetBounds,
    Page,
    ProducerSequence,
    RawMessage,
    RebuildReport,
    Record,
    RecoveryReport,
    RetentionReport,
    StoredRecord,
    StoreStats,
    TimedOffset,
    TopicInfo,
    TopicPartition,
)

Clock: TypeAlias = Callable[[], int]
"""Gives the time in milliseconds since the epoch."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called now and then during long work with the name of the work, how much is done, and how much there is. Both
are bytes, unless the name ends with another unit ("examining partitions"). Must return quickly.
"""

DEFAULT_MAX_RECORDS = 500
DEFAULT_MAX_BYTES = 1 << 20
DEFAULT_FOUND_BYTES = 16 << 20


OnForeseen: TypeAlias = Callable[[Sequence[ConversionNote]], None]
"""Gets what a conversion will leave out, as far as that is known before it begins."""

Counted: TypeAlias = Callable[[FileCount], None]
"""Gets each file that `verify` has read."""


def not_counted(count: FileCount) -> None:
    """The default `Counted`: does nothing."""


def no_progress(what: str, done: int, total: int) -> None:
    """The default `Progress`: says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How to open a store. `settings` holds the reference's own names (`segment.bytes`,
    `num.partitions`, ...).
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    accept_loss: bool = False
    open_files: int = 512
    progress: Progress = no_progress


class LogStore(ABC):
    """One opened store. Appends to one partition are ordered; reads never wait for appends."""

    capabilities: Capabilities
    recovery: RecoveryReport
    read_only: bool

    @abstractmethod
    def topics(self) -> Mapping[str, TopicInfo]:
        """All topics by name, in name order: a snapshot."""

    @abstractmethod
    def create_topic(
        self, topic: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> TopicInfo:
        """Create a topic; `partitions` None: the store's default. Durable on return (files and
        directory synced).

        One that exists in this shape is returned as it is. Raises TopicExists for one in another shape,
        InvalidTopic, InvalidArgument, InvalidConfig, StoreReadOnly, StoreFenced, DiskFull. On an error
        nothing is left.
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
        """The topic that `create_topic` would make with the store's defaults, or the existing one: to
        check records before a topic is made for them, or before an answer that does not wait for them.

        Raises InvalidTopic, and for `records` (or whole client batches) what appending them there would
        raise, but OutOfOrderSequence and FencedProducer.
        """

    @abstractmethod
    def alter_topic(self, topic: str, configs: Mapping[str, str | None]) -> TopicInfo:
        """Set (or with None reset) topic configs; durable on return. Raises UnknownTopic, InvalidConfig,
        StoreReadOnly, StoreFenced, DiskFull.
        """

    @abstractmethod
    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records; durable on return. Raises UnknownTopic, StoreReadOnly,
        StoreFenced, DiskFull.
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
        """Append records in order as one unit; on return they are handed to the operating system,
        NOT durable.

        `publish` True: visible at once, unless an unpublished append stands before them (then with
        that one's flush). `publish` False: visible when `flush` has made them durable.
        `compression` None: the topic's setting. `born_hosts`: who sent each record, one per record
        or none at all, as in RawMessage; only `capabilities.messages` keep them, and only there a
        record without a unique id is given one. Raises UnknownTopic, UnknownPartition,
        RecordTooLarge, UnrepresentableRecord, OutOfOrderSequence, FencedProducer, StoreReadOnly,
        StoreFenced, DiskFull. On an error nothing of the request is stored.
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
        """Records from `offset` on, up to the published (or stable) end.

        At least one record if there is one, even beyond `max_bytes`; an empty page at the end.
        Raises UnknownTopic, UnknownPartition, OffsetOutOfRange outside [start, end], Corrupt at a
        damaged batch (with `next_good_offset`).
        """

    @abstractmethod
    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        """First, stable and next offset as readers see them now. Raises UnknownTopic,
        UnknownPartition.
        """

    @abstractmethod
    def offset_for_time(
        self, partition: TopicPartition, timestamp_ms: int, *, bound: Bound = Bound.LOWER
    ) -> TimedOffset | None:
        """The first record at or after `timestamp_ms` by the backend's own rule; None when there is
        none. Raises UnknownTopic, UnknownPartition, Corrupt.
        """

    @abstractmethod
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
        """Records of a topic by key (record key or lookup key), unique id or tag, with time in
        [from_ms, to_ms] on the backend's `time_axis`; all that are given must hold.

        The order is that in which the store keeps the topic: partition after partition where each
        is a log of its own, by place in the log where one log holds them all; so within a partition
        always by offset. `backward` gives the same records in exactly the reverse order, the newest
        of a partition first. A call looks at no more than `max_scanned` records and gives at most
        `limit` of them, and no more than `max_bytes` by their weight but for the first; then it
        hands out a cursor, for a call with the same arguments: pages put together are the whole
        answer, each record once, and nothing is missed silently. `scan`: look at the records
        themselves even where an index could answer. Raises UnknownTopic, InvalidArgument (cursor,
        limit, max_scanned), NotOffered (unique_id, where records have none); and Corrupt at a damaged
        record, if the page is empty, with the fact `cursor` behind it (None: nothing is left).
        """

    @abstractmethod
    def record_id(self, partition: TopicPartition, locator: int) -> str:
        """The public id of a record whose locator came from AppendResult or StoredRecord."""

    @abstractmethod
    def find_by_id(self, record_id: str) -> tuple[TopicPartition, StoredRecord]:
        """The record with this id. Raises RecordNotFound (also for text that is no id), Corrupt."""

    @abstractmethod
    def flush(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """On return every append to these partitions (None: all) made before the call is durable
        and published.

        A failed sync fences the store and raises StoreFenced: it is never tried again and nothing
        is published. Raises UnknownTopic, UnknownPartition for one that went away meanwhile.
        """

    @abstractmethod
    def new_producer_id(self) -> int:
        """A producer id above every id seen or handed out, also over restarts and crashes. Raises
        StoreReadOnly, StoreFenced, DiskFull.
        """

    @abstractmethod
    def checkpoint(self) -> None:
        """Write down how far the logs are flushed, so that a start after a crash reads less; appends
        go on meanwhile. Raises StoreReadOnly, StoreFenced, DiskFull.
        """

    @abstractmethod
    def enforce_retention(self, now_ms: int) -> RetentionReport:
        """Delete what the topics' own retention settings say; does nothing where none is set. Who
        reads there meanwhile gets OffsetOutOfRange, a search goes on behind. Raises as `checkpoint`.
        """

    @abstractmethod
    def stats(self) -> StoreStats:
        """Sizes and counters, cheap enough for every scrape."""

    @abstractmethod
    def close(self) -> None:
        """Flush, trim, checkpoint, write the marker of a clean stop, unlock. A second call does
        nothing.

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
        """Every record with start <= offset < stop, page by page; `stop` None: the end when the
        scan began.
        """
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

    def __enter__(self) -> LogStore:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


@runtime_checkable
class SupportsClusterId(Protocol):
    """A store whose directory belongs to a cluster with a name (Kafka's meta.properties)."""

    @property
    def cluster_id(self) -> str | None:
        """The name; None where the directory does not tell it."""
        ...


@runtime_checkable
class SupportsBatchBytes(Protocol):
    """Record batches in and out untouched: for raw produce and fetch, conversion, and a wire front
    end.
    """

    def append_batches(
        self,
        partition: TopicPartition,
        data: bytes,
        *,
        keep_offsets: bool = False,
        publish: bool = True,
        client: bool = False,
        checked: bool = False,
    ) -> AppendResult:
        """Append whole batches: checked (header, CRC), given offsets and leader epoch, else as they
        are.

        `client`: they come from outside, so every record is checked too and a wrong largest
        timestamp put right, as the real server does; control and transactional batches are refused
        with NotOffered. Without it the caller answers for the records. `checked`: the data comes from
        `check_client_batches`, and its records are not looked at again. `keep_offsets`: offsets,
        epochs and times stay as they are (they must continue the log); for conversion and tests.
        Raises InvalidBatch and what `append` raises.
        """

    def check_client_batches(self, topic: str, data: bytes) -> bytes:
        """Return a client's whole batches as the log takes them, for `append_batches` with `client` and `checked`:
        every record is checked, and a wrong largest timestamp put right. Nothing is appended, and no lock is held.

        Each compressed batch is unpacked, to 256 MiB at most: call it in another thread than the one that appends for
        all, and one at a time where `are_compressed`. Raises InvalidBatch, NotOffered, RecordTooLarge, and
        UnrepresentableRecord for a timestamp that is too far from the clock.
        """

    def are_compressed(self, data: bytes) -> bool:
        """Return whether any of these batches is compressed. Bytes that are no batches are not."""

    def read_batches(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> BatchPage:
        """Whole batches from the one that holds `offset`, CRC checked; at least one. Raises what
        `read` raises.
        """


@runtime_checkable
class SupportsRawMessages(Protocol):
    """RocketMQ's messages in as they are: for conversion, and for tests that write a real store's
    files again.
    """

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
        """Append messages of one queue in one run, placed in the log as the real store places a
        batch: nothing of a message is changed, and nothing added.

        `store_timestamp_ms` and `store_host` None: the store's clock and option. Prepared and rolled
        back messages (by `sys_flag`) take no queue offset. `start_physical_offset`: where the log of
        a store that is still empty begins; refused with InvalidArgument anywhere else. Raises what
        `append` raises; InvalidArgument also for hosts that are no 8 or 20 bytes.
        """


@runtime_checkable
class SupportsGroupOffsets(Protocol):
    """Committed offsets of consumer groups, kept where the reference keeps them.

    May be called from any thread; commits are ordered. An offset is kept as given, whether the log
    reaches it or not: who commits must ask for no more than what was published.
    """

    offsets_topic: str | None
    """The topic that they are records of, which the first commit makes; None: they lie in a file."""

    def groups(self) -> Sequence[str]:
        """The groups that have committed offsets, in order."""

    def committed(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """The newest offsets of a group, by partition in order; none for an unknown group.

        What a backend does not keep (see its own docstring) has its default.
        """

    def commit_offsets(self, commits: Sequence[GroupCommit], *, durable: bool = True) -> None:
        """Commit offsets of any number of groups; of one partition given twice the later one counts.

        On return they are what `committed` gives. The records below them are synced before them, so
        that after no crash an offset lies behind its log's end. `durable`: they are synced on return
        too; else they are handed to the operating system at least. All or nothing: raises, before
        anything is stored, UnknownTopic, UnknownPartition, InvalidArgument (group, offset,
        leader_epoch, metadata, commit_timestamp_ms), StoreReadOnly, StoreFenced. With DiskFull some
        of the groups may have theirs.
        """

    def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> None:
        """Forget a group's offsets for these partitions (None: all); durable on return. Those that
        are not there are no error. Deleting a topic does the same for every group.

        Raises StoreReadOnly, StoreFenced, DiskFull.
        """


@runtime_checkable
class SupportsInspect(Protocol):
    """Looking at a PATH (a store, a partition directory or one file) offline: the door for commands
    and pipeline.

    Opened by `storage.open_inspector`. Changes no byte and no mtime (but `rebuild` with `write`)
    and takes no lock: it works beside a running server or a real broker, on what was there when it
    was opened, as recovery would leave it.
    """

    backend: str

    def summary(self) -> Mapping[str, object]:
        """What it is: backend, version, clean or not, topics with partitions, ranges, times, sizes,
        findings.
        """

    def dump(
        self,
        what: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[Sequence[Mapping[str, object]]]:
        """Rows, in runs of rows, of one kind (`dump_kinds`). Bytes stay bytes. Raises
        InvalidArgument for a kind.
        """

    def findings(self) -> Sequence[Finding]:
        """What opening and the calls so far met: damage that was passed over, what a start would cut."""

    def dump_kinds(self) -> Sequence[str]:
        """The names `dump` takes here, the default first."""

    def partitions(self) -> Sequence[TopicPartition]:
        """The partitions that PATH covers."""

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        """As LogStore.bounds."""

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> TimedOffset | None:
        """As LogStore.offset_for_time."""

    def find(self, query: FindQuery) -> Iterator[Mapping[str, object]]:
        """Matching records as rows of `dump("records")`, at most `query.limit`."""

    def verify(
        self, progress: Progress = no_progress, counted: Counted = not_counted
    ) -> Iterator[Finding]:
        """Read everything and report what is wrong, in file order; nothing wrong: no findings.

        `counted` gets every file that was read, so that a caller can say what was checked.
        """

    def rebuild(
        self, what: str, *, write: bool = False, progress: Progress = no_progress
    ) -> RebuildReport:
        """Make derived files of one kind (`rebuild_kinds`) anew from the log; `write` False only tells which would
        change. Raises InvalidArgument for a kind, and for a PATH that is no store; with `write` StoreLocked.
        """

    def rebuild_kinds(self) -> Sequence[str]:
        """The names `rebuild` takes here: all that is derived, in an order in which it can be made."""

    def salvage(self, target: Path, *, progress: Progress = no_progress) -> LossReport:
        """Copy what is good into a new store of the same kind at `target`, and tell what was left
        behind; the report is kept in the new store too.

        The new store is durable and cleanly stopped on return; on an error there is none. Raises
        InvalidArgument for a target that holds something or lies in PATH, and for a PATH that holds
        no records; DiskFull.
        """

    def close(self) -> None:
        """Let go of open files."""
