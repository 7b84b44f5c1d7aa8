"""What the files of a log directory say that it should contain: partitions, and how far each log reached.

Owns collecting the names and comparing them with the folders that exist; must not decide what a start does with a
difference, and must not write. Every offset here is a lower bound of a log's end: a log that ends below it has lost
records, and would give their offsets to others.

    file                                       names
    recovery-point-, replication-offset-,
    log-start-offset-, cleaner-offset-         a partition, and an offset that its log reached
    checkpoint
    .logserver.topics.json                     a topic that exists, not its partitions
    .logserver.salvage.json                    partitions that a salvage kept, and their ends
    .logserver.staged.json                     partitions of an unfinished Spark append, and their ends
    .logserver.idempotency                     a partition, and the end of a request that was appended to it
    records of __consumer_offsets              a partition, and an offset up to which a group has read
    TOPIC-N/leader-epoch-checkpoint            where the newest epoch begins
    TOPIC-N/OFFSET.snapshot                    the log reached OFFSET
    TOPIC-N/OFFSET.index, ... without a .log   the log reached OFFSET, and the entries of the file
    TOPIC-N/OFFSET.index, ... of a .log        the log reached the entries that point to or above its end
    TOPIC-N                                    partitions 0 to N - 1
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from storage.errors import DataError
from storage.files import FileSystem
from storage.findings import finding
from storage.kafka.directory import OFFSET_CHECKPOINTS, LogDirectory, Offsets
from storage.kafka.format import names, offset_index, time_index, txn_index
from storage.kafka.format.batch import HEADER_SIZE
from storage.kafka.format.names import parse_segment_name, partition_dir_name, segment_name
from storage.kafka.index_reading import ReadsFiles
from storage.kafka.log_file import SEGMENT_OFFSETS
from storage.kafka.plan import PartitionPlan, SegmentPlan
from storage.kept import SALVAGE_REPORT, salvage_report
from storage.model import Finding, TopicPartition
from storage.request_journal import JOURNAL_FILE, journal_offsets
from storage.staged_append import NOTE, pending_ends

INDEX_SUFFIXES: Final = (names.INDEX, names.TIME_INDEX, names.TXN_INDEX)
_BROKER_STATE: Final = {names.TRANSACTION_STATE_TOPIC, names.SHARE_STATE_TOPIC}
_LAST_POSITION: Final = (1 << 31) - 1 - HEADER_SIZE  # of a batch: a log has at most 2^31 - 1 bytes
MOST_UNNAMED: Final = 100
"""More consecutive partitions without a folder and without a name are one finding: their end may be a wrong number."""
CHECKPOINTS: Final = (*OFFSET_CHECKPOINTS, names.CLEANER_OFFSETS)


class NamedOffset(NamedTuple):
    """An offset that a log reached, and the file that says so."""

    offset: int
    path: Path
    group: str | None = None  # the consumer group that committed it

    def __str__(self) -> str:
        if self.group is not None:
            return f"group {self.group!r} has read up to offset {self.offset}"
        return f"{self.path.name} names offset {self.offset}"


class MissingPartition(NamedTuple):
    """A partition of an existing topic that has no folder; `named` None: no file names an offset of it.

    `last_number`: the range of partitions up to this number. It is so long that its end is more likely a wrong number:
    it is reported, and not made again.
    """

    address: TopicPartition
    path: Path
    named: NamedOffset | None
    last_number: int | None = None

    @property
    def next_offset(self) -> int:
        """Where a new log can go on without giving a used offset again."""
        return 0 if self.named is None else self.named.offset

    def finding(self) -> Finding:
        """The finding of this partition, or of the range."""
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
    """Everything that names partitions and offsets, except the files in the partitions' own folders."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._ends: dict[TopicPartition, NamedOffset] = {}
        self._committed: dict[TopicPartition, NamedOffset] = {}
        self._unflushed: dict[TopicPartition, NamedOffset] = {}
        self._topics: dict[str, Path] = {}
        self.unread: list[Finding] = []  # files that name offsets and are damaged

    def add(self, partition: TopicPartition, named: NamedOffset) -> None:
        """Take in an offset that a partition's log reached."""
        ends = self._ends if named.group is None else self._committed
        if partition.topic != names.CLUSTER_METADATA_TOPIC and named.offset >= 0:
            known = ends.get(partition)
            if known is None or known.offset < named.offset:
                ends[partition] = named

    def add_topic(self, topic: str, path: Path) -> None:
        """Take in that a file names a topic which exists."""
        self._topics.setdefault(topic, path)

    def add_unflushed(self, partition: TopicPartition, named: NamedOffset) -> None:
        """Take in an offset that was given, perhaps to records that a power loss took before their flush."""
        self._unflushed[partition] = named

    def unflushed(self, partition: TopicPartition) -> NamedOffset | None:
        """The offset that `add_unflushed` was given."""
        return self._unflushed.get(partition)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what was said of partitions which are being deleted."""
        for partition in partitions:
            self._ends.pop(partition, None)
            self._committed.pop(partition, None)
            self._unflushed.pop(partition, None)

    def end(self, partition: TopicPartition, log_end: int = 0) -> NamedOffset | None:
        """The highest offset that a partition's log reached, None where no file names one.

        A committed offset counts up to 2^31 above everything else: clients may commit any number.
        """
        named = self._ends.get(partition)
        committed = self._committed.get(partition)
        reached = max(log_end, 0 if named is None else named.offset)
        if committed is not None and reached < committed.offset <= reached + SEGMENT_OFFSETS:
            return committed
        return named

    def missing(self, here: Collection[TopicPartition]) -> Sequence[MissingPartition]:
        """Partitions without a folder of topics that exist: another partition is here, or a file of ours names the
        topic. Numbers below the highest one count too.
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
        """The missing partitions of one topic. `known`: the numbers that have a folder or are named, ascending."""
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
        """Where the folder of a missing partition should be: in the directory with the file that names it."""
        named = self._ends.get(address)
        root = self._root if named is None else named.path.parent
        return root / partition_dir_name(*address)

    def without_folder(
        self, here: Collection[TopicPartition]
    ) -> Mapping[str, Mapping[int, NamedOffset]]:
        """Topics of which nothing but the name is left in a checkpoint: the offsets by partition.

        State that a broker keeps for itself is left out: it creates those topics when it needs them.
        """
        exist = {partition.topic for partition in here} | set(self._topics) | _BROKER_STATE
        left: dict[str, dict[int, NamedOffset]] = {}
        for partition, named in sorted(self._ends.items()):
            if partition.topic not in exist:
                left.setdefault(partition.topic, {})[partition.partition] = named
        return left

    def findings(self, here: Collection[TopicPartition]) -> Sequence[Finding]:
        """What is missing in the directory as a whole, and names that mean nothing any more."""
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


def name_only(topic: str, offsets: Mapping[int, NamedOffset]) -> Finding:
    """The finding of a topic that exists as a name in checkpoints only."""
    named = max(offsets.values(), key=lambda one: one.offset)
    return finding(
        "topic-without-folder",
        named.path,
        topic=topic,
        offset=named.offset,
        message=f"{len(offsets)} partitions of a topic that has no folder here and no settings are named",
    )


def collect(directory: LogDirectory, checkpoints: Mapping[str, Offsets]) -> Evidence:
    """Read what the files at the root name. `checkpoints`: the content of CHECKPOINTS by file."""
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
    """Take in what a salvage, an unfinished append and requests with a key left at a root."""
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
    """The highest offset that the files of a partition's own folder name, its logs left out.

    The entries of an index without a log count where it lies at or above the end of the other logs.
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
    """The highest offset that the indexes of a segment name of records at or above the position `good_end` of its log.

    A garbled file names nothing. An entry of the offset index counts if it points there: an entry that has only a wrong
    offset points to a batch that is still in the log. Entries of the other indexes have no position. They count if no
    batch is left.
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
    """Whether a folder without any log once had one: a server writes the other files after it."""
    present = set(fs.list_dir(plan.directory))
    others = {names.LEADER_EPOCHS, names.PARTITION_METADATA} & present
    return not plan.segments and bool(others or plan.removed or plan.snapshot_offsets)


def first_offset(plan: PartitionPlan) -> NamedOffset | None:
    """Where the log began: by its leader epochs, which a deletion cuts first, else by index files without a log."""
    if plan.stored_epochs:
        return NamedOffset(plan.stored_epochs[0][1], plan.directory / names.LEADER_EPOCHS)
    found = (NamedOffset(base_offset, path) for path, base_offset in orphan_indexes(plan))
    return min(found, key=lambda named: named.offset, default=None)


def orphan_indexes(plan: PartitionPlan) -> Iterable[tuple[Path, int]]:
    """The index files without a log, and their base offsets."""
    for path in plan.removed:
        parsed = parse_segment_name(path.name)
        if parsed is not None and parsed[1] in INDEX_SUFFIXES:
            yield path, parsed[0]


def _index_end(indexes: ReadsFiles, path: Path, base_offset: int, *, whole: bool = False) -> int:
    """The end of a log that its index proves: the offset after the last entry, else the base offset. `whole`: a time
    index that is garbled anywhere proves nothing.
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
