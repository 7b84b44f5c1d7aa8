"""A log directory opened for inspection: the engine's own recovery, applied to an overlay in memory.

Owns which partitions are inspected and when each is opened: at its first use, so that one partition of
a large store costs no more than that partition. Must not write to the disk, and takes no lock. Not
thread-safe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from storage.contract import Clock, StoreOptions
from storage.errors import (
    InvalidArgument,
    IoFailure,
    UnknownPartition,
    UnknownTopic,
)
from storage.files import FileSystem, HandleCache, OverlayFileSystem, is_missing
from storage.findings import finding
from storage.kafka.format import names
from storage.kafka.format.names import segment_name
from storage.kafka.log.partition_plan import PartitionPlan, SegmentPlan
from storage.kafka.partition import Partition
from storage.kafka.recovery.evidence import CHECKPOINTS, INDEX_SUFFIXES, orphan_indexes
from storage.kafka.recovery.opening import Examination, Opening
from storage.kafka.state import blocked_paths
from storage.kafka.state.file_listing import unread_findings
from storage.kafka.state.log_dirs import log_directory, log_roots
from storage.kafka.state.settings import TopicSettings, parse_store_settings, topic_settings
from storage.kafka.state.topics import interrupted_finding, interrupted_folders
from storage.kafka.tools.logs import Log, LogReader
from storage.model import Finding, TopicPartition
from storage.shared.diagnostics import Meter, Notes
from storage.shared.loss_report import reported_ranges

_STATES: Final = {
    "delete": "the topic was deleted: a real broker removes this folder a minute after its start",
    "stray": "the partition was in no metadata of the cluster: a real broker does not serve this folder",
    "future": "a copy that was being moved here from another directory: it may be incomplete",
}
INDEX_INTERVAL: Final = "index.interval.bytes"


class View:
    """An in-memory view of a log directory, or of one partition of it, as recovery would leave it."""

    def __init__(
        self,
        root: Path,
        options: StoreOptions,
        *,
        fs: FileSystem,
        clock: Clock,
        only: tuple[TopicPartition, Path] | None = None,
    ) -> None:
        """`only`: open this partition alone, in this folder; checkpoints and clean-stop marker are the root's."""
        settings = parse_store_settings(options.settings)
        self._only = only
        self.root = root
        self.options = options
        self.base = fs
        self.clock = clock
        self.progress = options.progress
        self.fs = OverlayFileSystem(fs, clock=clock)
        self.files = HandleCache(self.fs, options.open_files)
        self.directory = log_directory(self.fs, log_roots(fs, root, settings.log_dirs))
        self.notes = Notes()
        self.notes.add(*blocked_paths.take_out(self.directory, only))
        self._interrupted: Mapping[TopicPartition, Path] = {}
        self.reader = LogReader(self.files, self.notes, self._is_replaced)
        self.clean = self.directory.is_clean()
        self.folders = self._all_folders() if only is None else dict([only])
        if only is not None:
            self._note_renamed(*only)
        self.gone: list[Finding] = []  # partitions that a running broker changed during the read
        self._defaults = settings.topic_defaults
        self._forget_root_files()
        self.stored_configs = self.directory.topic_configs()
        # Read before any log: if a server is running, later checkpoints would be ahead of the logs read here.
        self.checkpoints = {name: self._root_offsets(name) for name in CHECKPOINTS}
        opening = Opening(options, settings, self.settings_of, clock, read_only=True)
        self._examination = Examination(
            self.directory,
            self.files,
            opening,
            folders=self.folders,
            checkpoints=self.checkpoints,
        )
        self.evidence = self._examination.evidence
        self.evidence.drop(address for address in self.folders if self.state_of(address))
        self.known_losses = self._examination.known_losses
        self.plans = self._examination.plans
        self._watched: dict[TopicPartition, PartitionPlan] = {}
        self._is_whole = only is None
        self._has_committed = False

    def _all_folders(self) -> Mapping[TopicPartition, Path]:
        """Return the folders of the directory's partitions.

        A partition that has only a renamed folder is shown from that folder. If several folders hold one partition,
        renamed folders are only reported.
        """
        folders = dict(self.directory.partition_dirs())
        self._interrupted = interrupted_folders(self.directory)
        for address, path in self._interrupted.items():
            folders[address] = path
            self.notes.add(interrupted_finding(address, path))
        for renamed, path in self.directory.renamed_dirs():
            if path in self._interrupted.values():
                continue
            shown = folders.setdefault(renamed.partition, path)
            self._note_renamed(renamed.partition, path, instead=None if shown == path else shown)
        return dict(sorted(folders.items()))

    def _note_renamed(
        self, address: TopicPartition, path: Path, *, instead: Path | None = None
    ) -> None:
        renamed = names.parse_renamed_dir(path.name)
        if renamed is None:
            return
        message = _STATES[renamed.state]
        if instead is not None:
            shown = instead.name if instead.parent == path.parent else instead
            message += f". {shown} holds the same partition and is shown; name this folder to look at it alone"
        self.notes.add(
            finding(
                "renamed-folder",
                path,
                severity="warning" if renamed.state == "stray" else "info",
                topic=address.topic,
                partition=address.partition,
                found=renamed.state,
                message=message,
            )
        )

    def state_of(self, address: TopicPartition) -> str | None:
        """Return the state (delete, stray or future) of a partition that is shown from a folder renamed by a broker.

        Returns None for other partitions, and if the next start gives the folder its name back.
        """
        if address in self._interrupted:
            return None
        renamed = names.parse_renamed_dir(self.folders[address].name)
        return None if renamed is None else renamed.state

    def served(self) -> Sequence[TopicPartition]:
        """Return the partitions that a server serves. A folder that a broker renamed does not prove a topic exists."""
        return [address for address in self.folders if self.state_of(address) is None]

    def _root_offsets(self, name: str) -> dict[TopicPartition, int]:
        """Return a checkpoint of the root, without partitions shown from a renamed folder while the current one exists.

        Such a checkpoint entry belongs to the folder with the current name.
        """
        offsets = self.directory.offsets(name)
        for address, folder in self.folders.items():
            current = self.root / names.partition_dir_name(*address)
            if folder.name != current.name and self.fs.exists(current):
                offsets.pop(address, None)
        return offsets

    # ---- partitions ----------------------------------------------------------------------------

    def select(self, topic: str | None, partition: int | None) -> Sequence[TopicPartition]:
        """Return the partitions selected by a topic and a number, either of which may be None.

        Raises UnknownTopic, UnknownPartition, and InvalidArgument for a number that no topic has.
        """
        of_topic = [a for a in self.folders if topic is None or a.topic == topic]
        if topic is not None and not of_topic:
            raise UnknownTopic(topic, {a.topic for a in self.folders})
        chosen = [a for a in of_topic if partition is None or a.partition == partition]
        if partition is not None and not chosen:
            if topic is not None:
                raise UnknownPartition(topic, partition, len(of_topic))
            raise InvalidArgument(f"no topic has a partition {partition}", field="partition")
        return chosen

    def plan(self, address: TopicPartition) -> PartitionPlan:
        """Return the plan that recovery would carry out for a partition. Raises UnknownTopic, UnknownPartition.

        Its findings are noted, unless a running server replaced files while they were examined.
        """
        if address not in self.plans:
            self.select(*address)
            found = self._examination.plan(address).findings
            if not self.is_changed(address):
                self.notes.add(*found)
        return self.plans[address]

    def weigh_names(self) -> Sequence[Finding]:
        """Add the partitions and offsets named by committed offsets to the evidence. Report all that is missing.

        Runs before other partitions are examined. For a view of one partition, returns nothing.
        """
        if not self._is_whole:
            return ()
        if not self._has_committed:
            self._has_committed = True
            for home in self.folders:
                if home.topic == names.GROUP_OFFSETS_TOPIC:
                    self._add_committed(home)
        missing = self.evidence.findings(self.served())
        self.notes.add(*missing)
        return missing

    def _add_committed(self, home: TopicPartition) -> None:
        try:
            self.plan(home)
            self._examination.add_committed([home])
        except IoFailure as error:
            if not is_missing(error):  # a running server replaced its files: they prove nothing
                raise

    def reported_losses(self, address: TopicPartition) -> Sequence[range]:
        """Return the offsets that a salvage or an earlier start reported as lost, in ranges."""
        return reported_ranges(self.known_losses.get(address, ()))

    def missing(self, topic: str | None, partition: int | None) -> Iterator[Finding]:
        """Yield findings for selected partitions that have no folder though a file names records of them.

        A reader gets none of these records.
        """
        for missing in self.evidence.missing(self.served()) if self._is_whole else ():
            address = missing.address
            last = address.partition if missing.last_number is None else missing.last_number
            chosen = topic in (None, address.topic) and (
                partition is None or address.partition <= partition <= last
            )
            if chosen and missing.next_offset > 0:
                yield missing.finding()

    def note_missing(self, topic: str | None, partition: int | None) -> None:
        """Add the findings of `missing` to the notes."""
        self.notes.add(*self.missing(topic, partition))

    def note_missing_segments(self, address: TopicPartition) -> None:
        """Add findings for segments that are missing between others to the notes."""
        configs = self.configs_of(address.topic)
        self.notes.add(*self._examination.missing_segments(self.plan(address), configs))

    def partition(self, address: TopicPartition) -> Partition:
        """Return the opened partition, with the repairs of recovery applied in memory."""
        self.plan(address)
        return self._examination.partition(address)

    def _forget_root_files(self) -> None:
        """Let the small files of the root be read as they are now: a running server replaces them."""
        for path in self.root_paths():
            if path.name in names.ROOT_FILES or path.name.startswith(names.OURS):
                self.fs.forget(path)

    def again(self) -> View:
        """Return a view of the files as they are now."""
        return View(self.root, self.options, fs=self.base, clock=self.clock, only=self._only)

    def watch(self, plan: PartitionPlan) -> None:
        """Let `is_changed` compare the files with this list of a partition's segments, in place of recovery's plan."""
        self._watched[plan.partition] = plan

    def is_changed(self, address: TopicPartition) -> bool:
        """Return whether a running server has replaced or removed logs of a partition that was examined: its cleaner
        or retention was at work, or the topic was deleted. Appends change nothing.
        """
        plan = self._comparable(address)
        if plan is None:
            return False
        # An index without a log: a server that removes a segment renames its log first.
        if any(not self.base.exists(path) for path, _ in orphan_indexes(plan)):
            return True
        return any(self._has_other_file(plan, segment) for segment in plan.segments)

    def _comparable(self, address: TopicPartition) -> PartitionPlan | None:
        """Return the list of a partition's segments, unless recovery changes these files itself."""
        plan = self._watched.get(address) or self.plans.get(address)
        return None if plan is None or plan.splits or plan.renames else plan

    def grows(self, plan: PartitionPlan) -> bool:
        """Return whether a running server has appended to a partition since its segments were listed."""
        last = plan.segments[-1] if plan.segments else None
        place = None if last is None else self.fs.base_path(last.path)
        if last is None or place is None:
            return False
        return self.base.exists(place) and self.base.size(place) > last.listed_bytes

    def _is_replaced(self, log: Log) -> bool:
        address = TopicPartition(str(log.topic), log.partition or 0)
        plan = self._comparable(address)
        return plan is not None and any(
            self._has_other_file(plan, segment)
            for segment in plan.segments
            if segment.base_offset == log.base_offset
        )

    def _has_other_file(self, plan: PartitionPlan, segment: SegmentPlan) -> bool:
        """Return whether the name of a segment's log has another file now. The last log may have grown."""
        place = self.fs.base_path(segment.path)
        if place is None:
            return False
        try:
            size_bytes = self.base.size(place)
        except IoFailure as error:
            return is_missing(error)
        if segment is plan.segments[-1]:
            return size_bytes < segment.listed_bytes
        return size_bytes != segment.listed_bytes

    def note_changed(self, address: TopicPartition) -> None:
        """Report that a partition is left out, since a running server changes it faster than it can be read."""
        self._leave_out(address, "its files were replaced or removed again and again")

    def note_gone(self, address: TopicPartition, error: IoFailure) -> None:
        """Report that files of the partition disappeared while it was read; raise any other error again."""
        if not is_missing(error):
            raise error
        self._leave_out(address, error.message)

    def _leave_out(self, address: TopicPartition, reason: str) -> None:
        left_out = finding(
            "changed-meanwhile",
            self.folders[address],
            topic=address.topic,
            partition=address.partition,
            message=f"changed by a running broker while it was read, so left out: {reason}",
        )
        self.gone.append(left_out)
        self.notes.add(left_out)

    def logs(self, address: TopicPartition) -> Sequence[Log]:
        """Return the logs of an opened partition, ascending."""
        return [Log.of(segment, address) for segment in self.partition(address).segments()]

    def index_places(self, segment: SegmentPlan) -> Mapping[str, Path]:
        """Return the paths with the bytes of a segment's index files, by suffix."""
        places: dict[str, Path] = {}
        for suffix in INDEX_SUFFIXES:
            if suffix in segment.suffixes:
                path = segment.path.with_name(segment_name(segment.base_offset, suffix))
                stored_at = self._stored_at(path)
                if stored_at is not None:
                    places[suffix] = stored_at
        return places

    def _stored_at(self, path: Path) -> Path | None:
        """Return the path with a file's bytes on the disk; None if only the view has them.

        The view has no such file if recovery removed it there: the partition's committed offsets were read before.
        """
        if self.fs.exists(path):
            return self.fs.base_path(path)
        return path if self.base.exists(path) else None

    def snapshot_place(self, segment: SegmentPlan) -> Path | None:
        """Return the path of the producer snapshot at the segment's base offset, None if there is no such file."""
        path = segment.path.with_name(segment_name(segment.base_offset, names.SNAPSHOT))
        return path if self.base.exists(path) else None

    def start_meter(self, what: str, addresses: Sequence[TopicPartition]) -> None:
        """Start to report progress: the bytes read of these partitions' logs.

        Sizes come from the base file system. The view would remember them, and a log that grows before
        its partition is opened would be cut short.
        """
        total_bytes = sum(self._log_bytes(self.folders[address]) for address in addresses)
        self.reader.meter = Meter(self.progress, what, total_bytes)

    def _log_bytes(self, folder: Path) -> int:
        total_bytes = 0
        with suppress(IoFailure):  # the read of the partition reports the error
            for name in self.base.list_dir(folder):
                if name.endswith(names.LOG):
                    total_bytes += self.base.size(folder / name)
        return total_bytes

    def configs_of(self, topic: str) -> Mapping[str, str]:
        """Return the known configs: those stored for the topic override the defaults for all topics."""
        return {**self._defaults, **self.stored_configs.get(topic, {})}

    def settings_of(self, topic: str) -> TopicSettings:
        """Return the settings that apply to the topic's partitions."""
        return topic_settings(self.configs_of(topic))

    # ---- the directory -------------------------------------------------------------------------

    def root_paths(self) -> Sequence[Path]:
        """Return the path of every entry at the root, or at each root."""
        return [root / name for root in self.directory.roots for name in self.fs.list_dir(root)]

    def findings(self) -> Sequence[Finding]:
        """Return the findings of opening and reading so far."""
        self.notes.add(*self.directory.findings, *unread_findings(self.base))
        return self.notes.all()

    def close(self) -> None:
        """Close the open files."""
        self.files.close(sync=False)
