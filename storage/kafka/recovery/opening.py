"""Opening a log directory: examine every partition, decide, and only then change anything.

Owns the order of a start and its report; must not serve. A writable start that is refused has
changed nothing.

    examine all (on a copy-on-write view) -> refuse? -> drop the marker -> rename the folders of
    interrupted topics, remove deleted ones -> rename segments -> keep a copy of the bytes to cut -> repair

If a partition's log would assign used offsets again, the partition is left as it is and not served. The others start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from storage.contract import Clock, StoreOptions
from storage.errors import DamagedStore
from storage.files import Fence, FileSystem, HandleCache, OverlayFileSystem
from storage.kafka.format import names
from storage.kafka.format.offset_records import OffsetValue
from storage.kafka.log.partition_plan import PartitionPlan
from storage.kafka.partition import Partition, PartitionEnvironment
from storage.kafka.recovery.evidence import MissingPartition, NamedOffset, RecoveryContext, collect
from storage.kafka.recovery.examine import examine
from storage.kafka.recovery.losses import (
    is_configured_compacted,
    losses_without_log,
    missing_loss,
    missing_segments,
)
from storage.kafka.recovery.misnamed import carry_out
from storage.kafka.recovery.repair import apply, clear_leftovers, keep_aside
from storage.kafka.state.epochs import OwnEpochs
from storage.kafka.state.group_offsets import OffsetsLog, id_bytes, is_of
from storage.kafka.state.root import LogDirectory, Offsets, StoreFile
from storage.kafka.state.settings import StoreSettings, TopicSettings
from storage.kafka.state.topics import (
    folder_of,
    interrupted_finding,
    interrupted_folders,
    rename_back,
)
from storage.model import Finding, Loss, RecoveryReport, TopicPartition
from storage.shared.group_offsets import OffsetTable
from storage.shared.loss_report import keep_losses, known_losses

SettingsOf = Callable[[str], TopicSettings]


class Opening(NamedTuple):
    """The parameters of opening a store."""

    options: StoreOptions
    settings: StoreSettings
    settings_of: SettingsOf
    clock: Clock
    read_only: bool


def own_epochs(directory: LogDirectory, facts: StoreFile) -> OwnEpochs:
    """Return the source of leader epochs for appends. Sets `facts.broker_led` if a real broker stopped this store."""
    facts.broker_led = facts.broker_led or directory.is_stopped_by_broker()
    if facts.broker_led or not facts.created:
        return OwnEpochs()
    return OwnEpochs(facts.highest_epoch, partial(directory.write_highest_epoch, facts))


class Recovered(NamedTuple):
    """The result of a start.

    `refused`: partitions with a folder that are not served. `missing`: partitions without a folder. `names_left`:
    topics that exist only as offsets in checkpoints.
    """

    partitions: Sequence[Partition]
    report: RecoveryReport
    refused: Mapping[TopicPartition, Finding]
    missing: Sequence[MissingPartition]
    names_left: Mapping[str, Mapping[int, NamedOffset]]
    accepts_loss: bool


def recover_partitions(
    directory: LogDirectory, shared: PartitionEnvironment, opening: Opening, facts: StoreFile
) -> Recovered:
    """Open every partition of the directory. The report leaves out the findings of `directory` itself.

    Raises DamagedStore if a writable start has to be refused.
    """
    started_ms = opening.clock()
    clean = directory.is_clean()
    start = _Start(directory, opening)
    examined = start.run()
    _refuse_damaged(directory.path, opening, examined)
    here = [plan.partition for plan in examined]
    missing = start.evidence.missing(here)
    recreated = [one for one in missing if one.last_number is None]
    _refuse_files(directory.fs, opening, recreated)
    plans = [plan for plan in examined if plan.refused is None]
    losses: Sequence[Loss] = [loss for plan in plans for loss in plan.losses]
    if not opening.read_only:
        if facts.broker_led and facts.created:
            directory.write_store_file(facts)  # before its proof, the marker, is removed
        directory.remove_marker()
    rename_back(directory.fs, directory.path, start.interrupted)
    if not opening.read_only:
        directory.remove_deleted_dirs()
    for plan in plans:
        clear_leftovers(shared.files.fs, plan.directory)
        carry_out(shared.files, plan.renames)
    if not opening.read_only:
        accepted = recreated if opening.options.accept_loss else ()
        losses = _keep_losses(shared.files.fs, directory.path, plans, accepted, started_ms)
    partitions = []
    with closing(opening.options.repair(partial(apply, shared.files), plans)) as repaired:
        for plan, segments in zip(plans, repaired, strict=True):
            partitions.append(Partition(shared, plan, segments))
            opening.options.progress("repairing partitions", len(partitions), len(plans))
    return Recovered(
        partitions,
        RecoveryReport(
            clean_shutdown=clean or not examined,
            elapsed_ms=opening.clock() - started_ms,
            partitions=len(plans),
            segments_scanned=sum(plan.segments_scanned for plan in plans),
            bytes_scanned=sum(plan.bytes_scanned for plan in plans),
            indexes_rebuilt=sum(s.indexes is not None for plan in plans for s in plan.segments),
            findings=[
                *(finding for plan in examined for finding in plan.findings),
                *(interrupted_finding(*one) for one in start.interrupted.items()),
                *(one.finding() for one in missing),
                *start.evidence.unread,
            ],
            losses=losses,
        ),
        {plan.partition: plan.refused for plan in examined if plan.refused is not None},
        missing,
        start.evidence.without_folder(here),
        opening.options.accept_loss and not opening.read_only,
    )


class Examination:
    """The partitions of a directory as recovery would leave them, on an overlay: each is examined at its first use, and
    opened in memory where its records are needed.

    `directory` reads the files at the root, `files` the partitions in `folders`. Not thread-safe.
    """

    def __init__(
        self,
        directory: LogDirectory,
        files: HandleCache,
        opening: Opening,
        *,
        folders: Mapping[TopicPartition, Path],
        checkpoints: Mapping[str, Offsets],
    ) -> None:
        self.folders = folders
        self.plans: dict[TopicPartition, PartitionPlan] = {}
        self.evidence = collect(directory, checkpoints)
        self.known_losses = known_losses(directory.fs, *directory.roots)
        self._directory = directory
        self._files = files
        self._cleaned = checkpoints[names.CLEANER_OFFSETS]
        self._settings_of = opening.settings_of
        self._partitions: dict[TopicPartition, Partition] = {}
        self._context = RecoveryContext(
            files=files,
            clock=opening.clock,
            clean_shutdown=directory.is_clean(),
            recovery_points=checkpoints[names.RECOVERY_POINTS],
            log_starts=checkpoints[names.LOG_STARTS],
            evidence=self.evidence,
            known_losses=self.known_losses,
            producer_expiration_ms=opening.settings.producer_id_expiration_ms,
            read_only=opening.read_only,
            accept_loss=opening.options.accept_loss,
        )
        self._shared = PartitionEnvironment(
            files=files,
            clock=opening.clock,
            fence=Fence(directory.path),
            read_only=True,
            producer_expiration_ms=opening.settings.producer_id_expiration_ms,
            epochs=OwnEpochs(),
        )

    def plan(self, address: TopicPartition) -> PartitionPlan:
        """Return the plan that recovery would carry out for a partition. Left-over files are cleared away before."""
        if address not in self.plans:
            folder = self.folders[address]
            clear_leftovers(self._files.fs, folder)
            settings = self._settings_of(address.topic)
            self.plans[address] = examine(self._context, address, folder, settings)
        return self.plans[address]

    def partition(self, address: TopicPartition) -> Partition:
        """Return a partition opened for reading, with the repairs of recovery applied in memory."""
        if address not in self._partitions:
            plan = self.plan(address)
            self._partitions[address] = Partition(self._shared, plan, apply(self._files, plan))
        return self._partitions[address]

    def missing_segments(self, plan: PartitionPlan, configs: Mapping[str, str]) -> list[Finding]:
        """Return findings for missing segments, but not where compaction explains the gap. `configs`: the topic's."""
        cleaned = is_configured_compacted(configs) or plan.partition in self._cleaned
        losses = self.known_losses.get(plan.partition, ())
        return list(missing_segments(self._files, plan, losses, cleaned=cleaned))

    def add_committed(self, homes: Iterable[TopicPartition]) -> None:
        """Add the offsets that groups committed, from these partitions of `__consumer_offsets`, to the evidence.

        Call it before other partitions are examined.

        After a clean stop the checkpoints are complete if they name every partition: then no record is read. Offsets of
        an earlier topic of the same name do not count, and none that need not have been in the log: see `_proves`.
        """
        others = [p for p in self.folders if p.topic != names.GROUP_OFFSETS_TOPIC]
        points = self._context.recovery_points
        if self._context.clean_shutdown and all(p in points for p in others):
            return
        topic_ids = {p: id_bytes(self._directory.topic_id(self.folders[p])) for p in others}
        is_own = self._directory.is_own()
        for home in homes:
            path = self.folders[home]
            for group, partition, value in OffsetsLog(self.partition(home)).look(_all_offsets):
                if is_of(value, topic_ids.get(partition)) and _proves(value, is_own=is_own):
                    self.evidence.add(partition, NamedOffset(value.offset, path, group))


def _proves(value: OffsetValue, *, is_own: bool) -> bool:
    """Return whether a log must have reached a committed offset.

    A client may commit any offset. This server marks an offset that was beyond the end. A broker does not: there an
    offset counts if it has the leader epoch of the record before it, which a client knows after it has read that
    record. `is_own`: no broker has written the store.
    """
    return not value.is_beyond_end and (is_own or value.leader_epoch >= 0)


def _all_offsets(
    table: OffsetTable[OffsetValue],
) -> list[tuple[str, TopicPartition, OffsetValue]]:
    return [(group, *item) for group in table.groups() for item in table.of_group(group).items()]


class _Start:
    """The examination of all partitions for a start, with the folders of interrupted topics renamed back."""

    def __init__(self, directory: LogDirectory, opening: Opening) -> None:
        checkpoints = directory.checkpoints()
        view = OverlayFileSystem(directory.fs)
        self._opening = opening
        self.interrupted = interrupted_folders(directory)
        rename_back(view, directory.path, self.interrupted)
        renamed = ((p, folder_of(directory.path, p)) for p in self.interrupted)
        self._configs = directory.topic_configs()
        self._files = HandleCache(view, opening.options.open_files)
        self._examination = Examination(
            directory,
            self._files,
            opening,
            folders=dict(sorted([*directory.partition_dirs(), *renamed])),
            checkpoints=checkpoints,
        )
        self.evidence = self._examination.evidence

    def run(self) -> Sequence[PartitionPlan]:
        """Examine all partitions and return their plans. `__consumer_offsets` comes first, since its records name
        offsets of the other partitions.
        """
        examination = self._examination
        folders = examination.folders
        homes = [p for p in folders if p.topic == names.GROUP_OFFSETS_TOPIC]
        try:
            for partition in homes:
                self._examine(partition)
            if len(homes) < len(folders):
                examination.add_committed(homes)
            for partition in folders:
                if partition not in homes:
                    self._examine(partition)
        finally:
            self._files.close(sync=False)
        return [examination.plans[partition] for partition in folders]

    def _examine(self, partition: TopicPartition) -> None:
        plan = self._examination.plan(partition)
        if not plan.splits:  # else the split fills the gap
            settings, topic = self._opening.settings, partition.topic
            configs = {
                **settings.topic_defaults,
                **settings.broker_configs(topic),
                **self._configs.get(topic, {}),
            }
            gaps = self._examination.missing_segments(plan, configs)
            plan.findings += gaps
            if not self._opening.read_only:  # the start removes the indexes that name these losses
                plan.losses += losses_without_log(plan, gaps)
        done, total = len(self._examination.plans), len(self._examination.folders)
        self._opening.options.progress("examining partitions", done, total)


def _refuse_damaged(path: Path, opening: Opening, plans: Sequence[PartitionPlan]) -> None:
    refusals = [plan.refusal for plan in plans if plan.refusal is not None]
    if not refusals or opening.read_only:
        return
    first = refusals[0]
    raise DamagedStore(
        f"{first.path}: position {first.position}: {first.message}. Nothing but the lock file has been "
        "changed. Serve the rest with --read-only, copy it with `logserver salvage`, or cut there with --accept-loss",
        path=first.path,
        position=first.position,
        findings=refusals,
    )


def _refuse_files(fs: FileSystem, opening: Opening, missing: Sequence[MissingPartition]) -> None:
    """Raise DamagedStore if a file has the name of a partition folder that has to be created."""
    if opening.read_only or not opening.options.accept_loss:
        return
    for one in missing:
        if fs.exists(one.path):
            raise DamagedStore(
                f"{one.path}: this is no folder, and the folder of partition {one.address.partition} of topic "
                f"{one.address.topic!r} is missing. Nothing but the lock file has been changed. Move the file away, "
                "and start again",
                path=str(one.path),
                position=0,
                findings=[one.finding()],
            )


def _keep_losses(
    fs: FileSystem,
    path: Path,
    plans: Sequence[PartitionPlan],
    missing: Sequence[MissingPartition],
    now_ms: int,
) -> list[Loss]:
    """Copy the bytes that will be cut to a folder next to the store, with a report of all losses (JSON, ranges per
    partition). Return the losses.
    """
    damaged = [plan for plan in plans if plan.losses]
    kept: list[Loss] = []

    def copy(kept_dir: Path) -> Sequence[Loss]:
        for plan in damaged:
            keep_aside(fs, plan, kept_dir)
        kept.extend(loss for plan in damaged for loss in plan.losses)
        kept.extend(
            missing_loss(one.address, one.path, 0, None if one.named is None else one.next_offset)
            for one in missing
        )
        return kept

    if damaged or missing:
        keep_losses(fs, path, now_ms, copy)
    return kept
