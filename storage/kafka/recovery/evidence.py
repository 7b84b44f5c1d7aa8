"""Evidence of the expected content of a log directory: its partitions, and an offset that each log reached.

Owns collecting the named partitions and offsets and comparing them with the folders that exist; must not decide how a
start handles a difference, and must not write. Every offset here is a lower bound of a log's end. A log that ends below
it has lost records, and would assign their offsets to other records.

    file                                       names
    recovery-point-, replication-offset-,
    log-start-offset-, cleaner-offset-         a partition, and an offset that its log reached
    checkpoint
    .logserver.topics.json                     a topic that exists, not its partitions
    .logserver.salvage.json                    partitions that a salvage kept, and their ends
    .logserver.staged.json                     partitions of an unfinished Spark append, and their ends
    .logserver.idempotency                     a partition, and the end of a request that was appended to it
    records of __consumer_offsets              a partition, and an offset up to which a group has read, unless it
                                               need not have been in the log (Examination.add_committed)
    TOPIC-N/leader-epoch-checkpoint            where the newest epoch begins
    TOPIC-N/OFFSET.snapshot                    the log reached OFFSET
    TOPIC-N/OFFSET.index, ... without a .log   the log reached OFFSET, and the entries of the file
    TOPIC-N/OFFSET.index, ... of a .log        the log reached the entries that point to or above its end
    TOPIC-N                                    partitions 0 to N - 1
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from storage.contract import Clock
from storage.display import counted
from storage.errors import DataError
from storage.files import FileSystem, HandleCache
from storage.findings import finding
from storage.kafka.format import names, txn_index
from storage.kafka.format.batch import HEADER_SIZE
from storage.kafka.format.names import parse_segment_name, partition_dir_name, segment_name
from storage.kafka.format.sparse_index import offset_index, time_index
from storage.kafka.index.indexes import ReadsFiles
from storage.kafka.log.log_file import SEGMENT_OFFSETS
from storage.kafka.log.partition_plan import PartitionPlan, SegmentPlan
from storage.kafka.state.root import OFFSET_CHECKPOINTS, LogDirectory, Offsets
from storage.model import Finding, Loss, TopicPartition
from storage.request_journal import JOURNAL_FILE, journal_offsets
from storage.shared.loss_report import SALVAGE_REPORT, salvage_report
from storage.shared.staged_append import NOTE, pending_ends

INDEX_SUFFIXES: Final = (names.INDEX, names.TIME_INDEX, names.TXN_INDEX)
_BROKER_STATE: Final = {names.TRANSACTION_STATE_TOPIC, names.SHARE_STATE_TOPIC}
_LAST_POSITION: Final = (1 << 31) - 1 - HEADER_SIZE  # of a batch: a log has at most 2^31 - 1 bytes
MOST_UNNAMED: Final = 100
"""Report a longer run of partitions without folder and without name as one finding: its end may be a wrong number."""
CHECKPOINTS: Final = (*OFFSET_CHECKPOINTS, names.CLEANER_OFFSETS)


class NamedOffset(NamedTuple):
    """An offset that a log reached, and the file that names the offset."""

    offset: int
    path: Path
    group: str | None = None  # the consumer group that committed it

    def __str__(self) -> str:
        if self.group is not None:
            return f"group {self.group!r} has read up to offset {self.offset}"
        return f"{self.path.name} names offset {self.offset}"


class MissingPartition(NamedTuple):
    """A partition without a folder, of an existing topic. `named` None: no file names an offset of the partition.

    With `last_number`: the range of partitions up to this number. The range is so long that its end is more likely a
    wrong number: the range is reported, and its folders are not recreated.
    """

    address: TopicPartition
    path: Path
    named: NamedOffset | None
    last_number: int | None = None

    @property
    def next_offset(self) -> int:
        """The offset at which a new log can begin without assigning a used offset again."""
        return 0 if self.named is None else self.named.offset

    def finding(self) -> Finding:
        """Return the finding of this partition, or of the range."""
        why = "other partitions of the topic exist" if self.named is None else str(self.named)
        message = f"the folder of the partition is missing: {why}"
        if self.last_number is not None:
            message = (
                f"the folders of partitions {self.address.partition} to {self.last_number} are missing: {why}. So "
                "many folders are not made: remove the name with the wrong number, or restore the folders"
            )
        return finding(
            "partition-without-folder",
            self.path,
            topic=self.address.topic,
            partition=self.address.partition,
            offset=None if self.named is None else self.named.offset,
            message=message,
        )


class Evidence:
    """The partitions and offsets that files name, except the files in the partitions' own folders."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._ends: dict[TopicPartition, NamedOffset] = {}
        self._committed: dict[TopicPartition, NamedOffset] = {}
        self._unflushed: dict[TopicPartition, NamedOffset] = {}
        self._topics: dict[str, Path] = {}
        self.unread: list[Finding] = []  # files that name offsets and are damaged

    def add(self, partition: TopicPartition, named: NamedOffset) -> None:
        """Add an offset that a partition's log reached. The highest offset of each partition counts."""
        ends = self._ends if named.group is None else self._committed
        if partition.topic != names.CLUSTER_METADATA_TOPIC and named.offset >= 0:
            known = ends.get(partition)
            if known is None or known.offset < named.offset:
                ends[partition] = named

    def add_topic(self, topic: str, path: Path) -> None:
        """Add an existing topic that a file names."""
        self._topics.setdefault(topic, path)

    def add_unflushed(self, partition: TopicPartition, named: NamedOffset) -> None:
        """Add an offset after records that were appended; a power loss may have lost the records before their flush."""
        self._unflushed[partition] = named

    def unflushed(self, partition: TopicPartition) -> NamedOffset | None:
        """Return the offset that `add_unflushed` added for a partition."""
        return self._unflushed.get(partition)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the offsets of partitions that are being deleted."""
        for partition in partitions:
            self._ends.pop(partition, None)
            self._committed.pop(partition, None)
            self._unflushed.pop(partition, None)

    def end(self, partition: TopicPartition, log_end: int = 0) -> NamedOffset | None:
        """Return the highest offset that a partition's log reached; None if no file names an offset.

        A committed offset counts only up to 2^31 above every other offset: clients may commit any number.
        """
        named = self._ends.get(partition)
        committed = self._committed.get(partition)
        reached = max(log_end, 0 if named is None else named.offset)
        if committed is not None and reached < committed.offset <= reached + SEGMENT_OFFSETS:
            return committed
        return named

    def missing(self, here: Collection[TopicPartition]) -> Sequence[MissingPartition]:
        """Return the partitions without a folder of topics that exist.

        A topic exists if a partition of it is in `here`, or if a file of this server names the topic. Its partitions
        are all numbers up to the highest one that has a folder or is named.
        """
        exist = {partition.topic for partition in here} | set(self._topics)
        exist.discard(names.CLUSTER_METADATA_TOPIC)
        numbers: dict[str, set[int]] = {topic: set() for topic in exist}
        for partition in (*here, *self._ends):
            if partition.topic in exist:
                numbers[partition.topic].add(partition.partition)
        present = set(here)
        return [
            missing
            for topic, known in sorted(numbers.items())
            for missing in self._missing_of(topic, sorted(known), present)
        ]

    def _missing_of(
        self, topic: str, known: Sequence[int], here: Collection[TopicPartition]
    ) -> Iterator[MissingPartition]:
        """Yield the missing partitions of a topic. `known`: the numbers that have a folder or are named, ascending."""
        following = 0
        for number in known:
            address = TopicPartition(topic, number)
            if number - following > MOST_UNNAMED:
                first = TopicPartition(topic, following)
                last = number - 1 if address in here else number
                named = None if address in here else self.end(address)
                yield MissingPartition(first, self._place(first), named, last)
            else:
                unnamed = (TopicPartition(topic, lower) for lower in range(following, number))
                for one in (*unnamed, address):
                    if one not in here:
                        yield MissingPartition(one, self._place(one), self.end(one))
            following = number + 1

    def _place(self, address: TopicPartition) -> Path:
        """Return the path for a missing partition's folder: next to the file that names it, else in the first root."""
        named = self._ends.get(address)
        root = self._root if named is None else named.path.parent
        return root / partition_dir_name(*address)

    def without_folder(
        self, here: Collection[TopicPartition]
    ) -> Mapping[str, Mapping[int, NamedOffset]]:
        """Return topics without folder and settings that files still name, with the named offsets by partition.

        Topics of a broker's own state are left out: a broker creates these topics when it needs them.
        """
        exist = {partition.topic for partition in here} | set(self._topics) | _BROKER_STATE
        left: dict[str, dict[int, NamedOffset]] = {}
        for partition, named in sorted(self._ends.items()):
            if partition.topic not in exist:
                left.setdefault(partition.topic, {})[partition.partition] = named
        return left

    def findings(self, here: Collection[TopicPartition]) -> Sequence[Finding]:
        """Return findings: damaged files that name offsets, missing partitions, and topics that only exist as names."""
        found = [*self.unread, *(missing.finding() for missing in self.missing(here))]
        found += [name_only(topic, offsets) for topic, offsets in self.without_folder(here).items()]
        named = {partition.topic for partition in (*here, *self._ends)}
        found += [
            finding(
                "partition-without-folder",
                path,
                severity="warning",
                topic=topic,
                message="the topic has no folder: its creation was interrupted, or its folders are lost",
            )
            for topic, path in sorted(self._topics.items())
            if topic not in named
        ]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryContext:
    """The input of an examination that is not in a partition's folder: facts from other files, and how it is opened."""

    files: HandleCache
    clock: Clock
    clean_shutdown: bool
    recovery_points: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]
    evidence: Evidence
    known_losses: Mapping[TopicPartition, Sequence[Loss]]
    producer_expiration_ms: int
    read_only: bool
    accept_loss: bool

    @property
    def fs(self) -> FileSystem:
        """The file system of the partition's folder."""
        return self.files.fs


def name_only(topic: str, offsets: Mapping[int, NamedOffset]) -> Finding:
    """Return the finding of a topic that files name and that has no folder and no settings."""
    named = max(offsets.values(), key=lambda one: one.offset)
    return finding(
        "topic-without-folder",
        named.path,
        topic=topic,
        offset=named.offset,
        message=f"no folder here and no settings: the file names {counted(len(offsets), 'partitions')} of this topic",
    )


def collect(directory: LogDirectory, checkpoints: Mapping[str, Offsets]) -> Evidence:
    """Read the partitions and offsets that the files at the root name. `checkpoints`: the content of CHECKPOINTS by
    file.
    """
    evidence = Evidence(directory.path)
    for name, offsets in checkpoints.items():
        for partition, offset in offsets.items():
            evidence.add(partition, NamedOffset(offset, directory.checkpoint_path(name, partition)))
    for topic, path in directory.configured_topics().items():
        evidence.add_topic(topic, path)
    unclean = directory.unclean_roots()
    for root in directory.roots:
        _collect_notes(evidence, directory.fs, root, clean=root not in unclean)
    evidence.drop(directory.deleted_partitions())
    return evidence


def _collect_notes(evidence: Evidence, fs: FileSystem, root: Path, *, clean: bool) -> None:
    """Add the offsets in a root's salvage report, note of an unfinished append, and journal of requests with a key."""
    report = salvage_report(fs, root)
    for kept in () if report is None else report.kept:
        address = TopicPartition(kept.topic, kept.partition)
        evidence.add(address, NamedOffset(kept.next_offset, root / SALVAGE_REPORT))
    for address, offset in pending_ends(fs, root).items():
        evidence.add(address, NamedOffset(offset, root / NOTE))
        evidence.add_topic(address.topic, root / NOTE)
    journal = journal_offsets(fs, root, clean=clean)
    evidence.unread += journal.findings
    add = evidence.add if clean else evidence.add_unflushed
    for address, offset in journal.ends.items():
        add(address, NamedOffset(offset, root / JOURNAL_FILE))


def end_in_folder(fs: FileSystem, plan: PartitionPlan, log_end: int) -> NamedOffset | None:
    """Return the highest offset that the files of a partition's own folder name, except its logs.

    The entries of an index without a log count only if its base offset is at or after `log_end`, the end of the other
    logs.
    """
    found = [
        NamedOffset(offset, plan.directory / segment_name(offset, names.SNAPSHOT))
        for offset in plan.snapshot_offsets
    ]
    if plan.stored_epochs:
        found.append(NamedOffset(plan.stored_epochs[-1][1], plan.directory / names.LEADER_EPOCHS))
    for path, base_offset in orphan_indexes(plan):
        end = _index_end(fs, path, base_offset) if base_offset >= log_end else base_offset
        found.append(NamedOffset(end, path))
    return max(found, key=lambda named: named.offset, default=None)


def end_by_index(indexes: ReadsFiles, segment: SegmentPlan, good_end: int) -> NamedOffset | None:
    """Return the highest offset that a segment's indexes name for records at or after position `good_end` of its log.

    A malformed file names no offset. An entry of the offset index counts if it points to `good_end` or later: an entry
    in which only the offset is wrong points to a batch that is still in the log. Entries of the other indexes have no
    position. They count only if no batch is left.
    """
    found: list[NamedOffset] = []
    if names.INDEX in segment.suffixes:
        path = segment.path.with_suffix(names.INDEX)
        with suppress(DataError):
            found += (
                NamedOffset(segment.base_offset + relative + 1, path)
                for relative, position in offset_index.decode_entries(indexes.read_bytes(path))
                if good_end <= position <= _LAST_POSITION
            )
    for suffix in (names.TIME_INDEX, names.TXN_INDEX) if not good_end else ():
        if suffix in segment.suffixes:
            path = segment.path.with_suffix(suffix)
            end = _index_end(indexes, path, segment.base_offset, whole=True)
            found.append(NamedOffset(end, path))
    return max(found, key=lambda named: named.offset, default=None)


def is_emptied(fs: FileSystem, plan: PartitionPlan) -> bool:
    """Return whether a folder without a log once had a log: a server writes the other files of a folder later."""
    present = set(fs.list_dir(plan.directory))
    others = {names.LEADER_EPOCHS, names.PARTITION_METADATA} & present
    return not plan.segments and bool(others or plan.removed or plan.snapshot_offsets)


def first_offset(plan: PartitionPlan) -> NamedOffset | None:
    """Return the offset at which the log began: by its leader epochs, which a deletion cuts before it removes files,
    else by the index files without a log; None without either.
    """
    if plan.stored_epochs:
        return NamedOffset(plan.stored_epochs[0][1], plan.directory / names.LEADER_EPOCHS)
    found = (NamedOffset(base_offset, path) for path, base_offset in orphan_indexes(plan))
    return min(found, key=lambda named: named.offset, default=None)


def orphan_indexes(plan: PartitionPlan) -> Iterable[tuple[Path, int]]:
    """Yield the index files without a log, and their base offsets."""
    for path in plan.removed:
        parsed = parse_segment_name(path.name)
        if parsed is not None and parsed[1] in INDEX_SUFFIXES:
            yield path, parsed[0]


def emptied_segments(files: ReadsFiles, plan: PartitionPlan) -> Iterator[tuple[Path, int]]:
    """Yield an index file, and the base offset, of each segment before the last that has an empty log and an index with
    entries. Compaction empties both.
    """
    for segment in plan.segments[:-1]:
        if segment.file_bytes:
            continue
        for suffix in sorted(segment.suffixes.intersection(INDEX_SUFFIXES)):
            path = segment.path.with_suffix(suffix)
            if _index_end(files, path, segment.base_offset) > segment.base_offset:
                yield path, segment.base_offset
                break


def _index_end(indexes: ReadsFiles, path: Path, base_offset: int, *, whole: bool = False) -> int:
    """Return the log end that an index proves: the offset after its last entry; without entries the base offset.

    With `whole` a time index that is malformed anywhere proves nothing beyond the base offset.
    """
    relative = -1
    with suppress(DataError):
        data = indexes.read_bytes(path)
        if path.suffix == names.INDEX:
            relative = max((entry[0] for entry in offset_index.leading_entries(data)), default=-1)
        elif path.suffix == names.TIME_INDEX:
            decode = time_index.decode_entries if whole else time_index.leading_entries
            relative = max((entry[1] for entry in decode(data)), default=-1)
        elif path.suffix == names.TXN_INDEX:
            ends = (entry.last_offset for entry in txn_index.decode_entries(data))
            relative = max(ends, default=base_offset - 1) - base_offset
    return base_offset + relative + 1
