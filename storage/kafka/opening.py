"""Opening a log directory: examine every partition, decide, and only then change anything.

Owns the order of a start and its report; must not serve. A writable start that is refused has
changed nothing.

    examine all (on a copy-on-write view) -> refuse? -> drop the marker -> keep a copy of what is
    cut -> repair
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from storage.errors import DamagedStore
from storage.files import FileSystem, HandleCache, OverlayFileSystem
from storage.interface import Clock, StoreOptions
from storage.kafka.directory import LogDirectory, StoreFile
from storage.kafka.epochs import OwnEpochs
from storage.kafka.format import names
from storage.kafka.partition import Partition, Surroundings
from storage.kafka.plan import PartitionPlan
from storage.kafka.recovery import RecoveryContext, examine
from storage.kafka.repair import apply, clear_leftovers, keep_aside
from storage.kafka.settings import StoreSettings, TopicSettings
from storage.kept import keep_losses
from storage.model import Loss, RecoveryReport

SettingsOf = Callable[[str], TopicSettings]


class Opening(NamedTuple):
    """How a store is being opened."""

    options: StoreOptions
    settings: StoreSettings
    settings_of: SettingsOf
    clock: Clock
    read_only: bool


def own_epochs(directory: LogDirectory, facts: StoreFile) -> OwnEpochs:
    """What gives leader epochs to appends here; `facts` are told that a broker has stopped here."""
    facts.broker_led = facts.broker_led or directory.is_stopped_by_broker()
    if facts.broker_led or not facts.created:
        return OwnEpochs()
    return OwnEpochs(facts.highest_epoch, partial(directory.write_highest_epoch, facts))


def recover_partitions(
    directory: LogDirectory, shared: Surroundings, opening: Opening, facts: StoreFile
) -> tuple[Sequence[Partition], RecoveryReport]:
    """Open every partition of the directory; the report leaves out what `directory` itself found.

    Raises DamagedStore when a writable start has to be refused.
    """
    started_ms = opening.clock()
    clean = directory.is_clean()
    plans = _examine_all(directory, opening, clean=clean)
    _refuse_damaged(directory.path, opening, plans)
    if not opening.read_only:
        if facts.broker_led and facts.created:
            directory.write_store_file(facts)  # before the marker that tells it goes
        directory.remove_marker()
        directory.remove_deleted_dirs()
    for plan in plans:
        clear_leftovers(shared.fs, plan.directory)
    if not opening.read_only:
        _keep_losses(shared.fs, directory.path, plans, started_ms)
    partitions = []
    for done, plan in enumerate(plans):
        partitions.append(Partition(shared, plan, apply(shared.fs, shared.files, plan)))
        opening.options.progress("repairing partitions", done + 1, len(plans))
    report = RecoveryReport(
        clean_shutdown=clean or not plans,
        elapsed_ms=opening.clock() - started_ms,
        partitions=len(plans),
        segments_scanned=sum(plan.segments_scanned for plan in plans),
        bytes_scanned=sum(plan.bytes_scanned for plan in plans),
        indexes_rebuilt=sum(s.indexes is not None for plan in plans for s in plan.segments),
        findings=[finding for plan in plans for finding in plan.findings],
        losses=[loss for plan in plans for loss in plan.losses],
    )
    return partitions, report


def _examine_all(
    directory: LogDirectory, opening: Opening, *, clean: bool
) -> Sequence[PartitionPlan]:
    """A plan for each partition, made on a view in memory in which left-over files are cleared
    away.
    """
    view = OverlayFileSystem(directory.fs)
    files = HandleCache(view, opening.options.open_files)
    context = RecoveryContext(
        root=directory.path,
        fs=view,
        files=files,
        clock=opening.clock,
        clean_shutdown=clean,
        recovery_points=directory.offsets(names.RECOVERY_POINTS),
        log_starts=directory.offsets(names.LOG_STARTS),
        producer_expiration_ms=opening.settings.producer_id_expiration_ms,
        read_only=opening.read_only,
        accept_loss=opening.options.accept_loss,
    )
    found = directory.partition_dirs()
    plans = []
    try:
        for done, (partition, path) in enumerate(found):
            clear_leftovers(view, path)
            plans.append(examine(context, partition, path, opening.settings_of(partition.topic)))
            opening.options.progress("examining partitions", done + 1, len(found))
    finally:
        files.close(sync=False)
    return plans


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


def _keep_losses(fs: FileSystem, path: Path, plans: Sequence[PartitionPlan], now_ms: int) -> None:
    """Copy what will be cut beside the store, with a report of it (JSON, ranges per partition)."""
    damaged = [plan for plan in plans if plan.losses]

    def copy(kept_dir: Path) -> Sequence[Loss]:
        for plan in damaged:
            keep_aside(fs, plan, kept_dir)
        return [loss for plan in damaged for loss in plan.losses]

    if damaged:
        keep_losses(fs, path, now_ms, copy)
