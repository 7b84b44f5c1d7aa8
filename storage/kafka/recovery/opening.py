"""Opening a log directory: examine every partition, decide, and only then change anything.

Owns the order of a start and its report; must not serve. A writable start that is refused has
changed nothing.

    examine all (on a copy-on-write view) -> refuse? -> drop the marker -> rename the folders of
    interrupted topics, remove deleted ones -> rename segments -> keep a copy of the bytes to cut -> repair

If a partition's log would assign used offsets again, the partition is left as it is and not served. The others start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from storage.contract import Clock, StoreOptions
from storage.errors import DamagedStore
from storage.files import Fence, FileSystem, HandleCache, OverlayFileSystem
from storage.kafka.format import names
from storage.kafka.format.offset_records import OffsetValue
from storage.kafka.log.plan import PartitionPlan
from storage.kafka.partition import Partition, PartitionEnvironment
from storage.kafka.recovery.evidence import Evidence, MissingPartition, NamedOffset, collect
from storage.kafka.recovery.examine import RecoveryContext, examine
from storage.kafka.recovery.lost_offsets import MISSING
from storage.kafka.recovery.misnamed import carry_out
from storage.kafka.recovery.repair import apply, clear_leftovers, keep_aside
from storage.kafka.recovery.segment_gaps import (
    is_configured_compacted,
    losses_without_log,
    missing_segments,
)
from storage.kafka.state.epochs import OwnEpochs
from storage.kafka.state.group_offsets import OffsetsLog, id_bytes, is_of
from storage.kafka.state.interrupted_topics import (
    folder_of,
    interrupted_finding,
    interrupted_folders,
    rename_back,
)
from storage.kafka.state.root import LogDirectory, StoreFile
from storage.kafka.state.settings import StoreSettings, TopicSettings
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
    examination = _Examination(directory, opening, clean=clean)
    examined = examination.run()
    _refuse_damaged(directory.path, opening, examined)
    here = [plan.partition for plan in examined]
    missing = examination.evidence.missing(here)
    made_again = [one for one in missing if one.last_number is None]
    _refuse_files(directory.fs, opening, made_again)
    plans = [plan for plan in examined if plan.refused is None]
    losses: Sequence[Loss] = [loss for plan in plans for loss in plan.losses]
    if not opening.read_only:
        if facts.broker_led and facts.created:
            directory.write_store_file(facts)  # before its proof, the marker, is removed
        directory.remove_marker()
    rename_back(directory.fs, directory.path, examination.interrupted)
    if not opening.read_only:
        directory.remove_deleted_dirs()
    for plan in plans:
        clear_leftovers(shared.fs, plan.directory)
        carry_out(shared.fs, shared.files, plan.renames)
    if not opening.read_only:
        accepted = made_again if opening.options.accept_loss else ()
        losses = _keep_losses(shared.fs, directory.path, plans, accepted, started_ms)
    partitions = []
    for done, plan in enumerate(plans):
        partitions.append(Partition(shared, plan, apply(shared.fs, shared.files, plan)))
        opening.options.progress("repairing partitions", done + 1, len(plans))
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
                *(interrupted_finding(*one) for one in examination.interrupted.items()),
                *(one.finding() for one in missing),
                *examination.evidence.unread,
            ],
            losses=losses,
        ),
        {plan.partition: plan.refused for plan in examined if plan.refused is not None},
        missing,
        examination.evidence.without_folder(here),
        opening.options.accept_loss and not opening.read_only,
    )


class _Examination:
    """The examination of all partitions, on an overlay in which left-over files are cleared away."""

    def __init__(self, directory: LogDirectory, opening: Opening, *, clean: bool) -> None:
        checkpoints = directory.checkpoints()
        view = OverlayFileSystem(directory.fs)
        self._opening = opening
        self.interrupted = interrupted_folders(directory)
        rename_back(view, directory.path, self.interrupted)
        renamed = ((p, folder_of(directory.path, p)) for p in self.interrupted)
        self._found = sorted([*directory.partition_dirs(), *renamed])
        self._directory = directory
        self._configs = directory.topic_configs()
        self._cleaned = checkpoints[names.CLEANER_OFFSETS]
        self.evidence = collect(directory, checkpoints)
        self._context = RecoveryContext(
            root=directory.path,
            fs=view,
            files=HandleCache(view, opening.options.open_files),
            clock=opening.clock,
            clean_shutdown=clean,
            recovery_points=checkpoints[names.RECOVERY_POINTS],
            log_starts=checkpoints[names.LOG_STARTS],
            evidence=self.evidence,
            known_losses=known_losses(directory.fs, *directory.roots),
            producer_expiration_ms=opening.settings.producer_id_expiration_ms,
            read_only=opening.read_only,
            accept_loss=opening.options.accept_loss,
        )

    def run(self) -> Sequence[PartitionPlan]:
        """Examine all partitions and return their plans. `__consumer_offsets` comes first, since its records name
        offsets of the other partitions.
        """
        context = self._context
        folders = dict(self._found)
        homes = [p for p in folders if p.topic == names.GROUP_OFFSETS_TOPIC]
        others = [p for p in folders if p.topic != names.GROUP_OFFSETS_TOPIC]
        plans: dict[TopicPartition, PartitionPlan] = {}
        try:
            for partition in (*homes, *others):
                if partition not in homes and len(plans) == len(homes):
                    self._add_committed(list(plans.values()), others)
                clear_leftovers(context.fs, folders[partition])
                settings = self._opening.settings_of(partition.topic)
                plan = examine(context, partition, folders[partition], settings)
                gaps = self._gaps(plan)
                plan.findings += gaps
                if not context.read_only:  # the start removes the indexes that name these losses
                    plan.losses += losses_without_log(plan, gaps)
                plans[partition] = plan
                self._opening.options.progress("examining partitions", len(plans), len(folders))
        finally:
            context.files.close(sync=False)
        return [plans[partition] for partition in folders]

    def _gaps(self, plan: PartitionPlan) -> Sequence[Finding]:
        """Return findings for missing segments, but not where compaction explains the gap or a split is planned."""
        topic = plan.partition.topic
        settings = self._opening.settings
        configs = {
            **settings.topic_defaults,
            **settings.broker_configs(topic),
            **self._configs.get(topic, {}),
        }
        is_cleaned = plan.partition in self._cleaned or is_configured_compacted(configs)
        if plan.splits:
            return ()
        context = self._context
        losses = context.known_losses.get(plan.partition, ())
        return list(missing_segments(context.fs, context.files, plan, losses, cleaned=is_cleaned))

    def _add_committed(
        self, homes: Sequence[PartitionPlan], others: Sequence[TopicPartition]
    ) -> None:
        context = self._context
        if not needs_committed(context, others):
            return
        topic_ids = {p: self._directory.topic_id(f) for p, f in self._found if p in set(others)}
        for plan in homes:
            log = OffsetsLog(open_in_memory(context, plan))
            add_committed(self.evidence, log, plan.directory, topic_ids)


def needs_committed(context: RecoveryContext, partitions: Sequence[TopicPartition]) -> bool:
    """Return whether committed offsets can name more than the checkpoints do. After a clean stop the checkpoints are
    complete, if they name every partition.
    """
    return not context.clean_shutdown or any(p not in context.recovery_points for p in partitions)


def open_in_memory(context: RecoveryContext, plan: PartitionPlan) -> Partition:
    """Open an examined partition for reading, on the overlay of its examination."""
    shared = PartitionEnvironment(
        fs=context.fs,
        files=context.files,
        clock=context.clock,
        fence=Fence(context.root),
        read_only=True,
        producer_expiration_ms=context.producer_expiration_ms,
        epochs=OwnEpochs(),
    )
    return Partition(shared, plan, apply(context.fs, context.files, plan))


def add_committed(
    evidence: Evidence,
    log: OffsetsLog,
    path: Path,
    topic_ids: Mapping[TopicPartition, str | None],
) -> None:
    """Add the committed offsets of one partition of `__consumer_offsets` to the evidence.

    Offsets of an earlier topic of the same name do not count; `topic_ids` distinguishes such topics.
    """

    def take(table: OffsetTable[OffsetValue]) -> None:
        for group in table.groups():
            for partition, value in table.of_group(group).items():
                if is_of(value, id_bytes(topic_ids.get(partition))):
                    evidence.add(partition, NamedOffset(value.offset, path, group))

    log.look(take)


def _refuse_damaged(path: Path, opening: Opening, plans: Sequence[PartitionPlan]) -> None:
    refusals = [plan.refusal for plan in plans if plan.refusal is not None]
    if not refusals or opening.read_only:
        return
    first = refusals[0]
    raise DamagedStore(
        f"{first.path}: position {first.position}: {first.message}. Nothing but the lock file has been "
        "changed. Serve the rest with --read-only, or cut there with --accept-loss",
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


def _loss_of(missing: MissingPartition) -> Loss:
    named = missing.named
    return Loss(
        topic=missing.address.topic,
        partition=missing.address.partition,
        path=str(missing.path),
        position=0,
        size_bytes=0,
        first_offset=0,
        next_offset=None if named is None else named.offset,
        reason=MISSING,
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
        kept.extend(_loss_of(one) for one in missing)
        return kept

    if damaged or missing:
        keep_losses(fs, path, now_ms, copy)
    return kept
