"""Salvage: a new log directory of all intact data in a damaged one.

Owns the order of the steps and the report; salvage_log copies logs, salvage_files the files next to
them. Must not change the source: it is read through a view with its changes in memory.

    good batches -> .log files      epochs, topic ids, configs, identity -> small files
    then the engine's own recovery: indexes, aborted transactions, producer snapshots, checkpoints
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from storage.errors import InvalidArgument
from storage.findings import finding
from storage.kafka.format import names
from storage.kafka.format.names import parse_partition_dir, partition_dir_name
from storage.kafka.log.log_file import MISPLACED, OLD_FORMAT, SEGMENT_OFFSETS, StoredBatch
from storage.kafka.log.partition_plan import PartitionPlan
from storage.kafka.recovery.evidence import (
    MissingPartition,
    emptied_segments,
    end_by_index,
    end_in_folder,
    first_offset,
    is_emptied,
    orphan_indexes,
)
from storage.kafka.recovery.misnamed import alone_finding, begin_alone, list_segments
from storage.kafka.recovery.overlaps import pass_repeats
from storage.kafka.recovery.repair import clear_leftovers
from storage.kafka.state.root import detect
from storage.kafka.state.settings import LOG_DIRS
from storage.kafka.store import KafkaStore, open_kafka
from storage.kafka.tools.live import steady
from storage.kafka.tools.logs import Log
from storage.kafka.tools.salvage.files import SmallFiles
from storage.kafka.tools.salvage.log import CopiedPartition, PartitionSource, copy_partition
from storage.kafka.tools.view import View
from storage.model import Finding, KeptRange, LossReport, OffsetBounds, TopicPartition
from storage.shared.atomic_store import new_store
from storage.shared.loss_report import SALVAGE_REPORT, lost_bytes, write_report
from storage.shared.recount import Contents, check_recount

WHAT: Final = "salvaging"
UNNAMED: Final = TopicPartition("salvaged", 0)
_LOSS_CODES: Final = frozenset({"damaged-batch", MISPLACED, OLD_FORMAT, "torn-tail", "zero-tail"})


def salvage(view: View, target: Path, *, whole: bool, only: Path | None = None) -> LossReport:
    """See SupportsInspect.salvage. `view` must be a fresh one; `only`: salvage this `.log` of its partition alone."""
    if not view.folders and not whole:
        raise InvalidArgument(f"{view.root} holds no partition", field="path")
    outer = [folder.parent for folder in view.folders.values()]
    around = [folder for folder in outer if detect(view.base, folder) is not None]
    sources = view.directory.roots if whole else [*view.folders.values(), *around]
    now_ms = view.clock()
    with new_store(view.base, target, sources=sources, now_ms=now_ms) as new_root:
        found = _Salvage(view, new_root, whole=whole, only=only).run()
        report = replace(found, target=str(target))
        write_report(view.base, new_root / SALVAGE_REPORT, report)
    return report


class _Salvage:
    """One pass over the partitions of a view."""

    def __init__(self, view: View, new_root: Path, *, whole: bool, only: Path | None) -> None:
        self._view = view
        self._new_root = new_root
        self._only = only
        self._files = SmallFiles(view, new_root, whole=whole)
        self._copied: list[CopiedPartition] = []
        self._log_starts: dict[TopicPartition, int] = {}
        self._found_in: list[TopicPartition] = []  # partitions of folders that were copied

    def run(self) -> LossReport:
        """Create the new store, stopped cleanly. Return the report without its target."""
        view = self._view
        view.start_meter(WHAT, list(view.folders))
        view.weigh_names()
        for address in view.folders:
            self._copied += self._partition(address)
        for missing in view.evidence.missing(view.served()) if self._files.whole else ():
            if missing.last_number is None:
                self._copied.append(self._missing(missing))
        ends = {copied.address: copied.next_offset for copied in self._copied}
        self._files.write_root(self._log_starts, {address.topic for address in self._found_in})
        self._files.write_cleaner_offsets(ends)
        view.base.sync_dir(self._new_root)
        return self._report(self._finish())

    def _partition(self, address: TopicPartition) -> Sequence[CopiedPartition]:
        """Copy a partition; none if a running server deleted it, or changes it faster than it can be copied."""
        copied = steady(self._view, address, partial(self._copy, address))
        if copied is None:
            self._emptied(_legal(address))
            return ()
        self._found_in.append(address)
        return (copied,)

    def _emptied(self, address: TopicPartition) -> Path:
        """Return the path for the folder of a partition, without what an earlier look left there."""
        target = self._new_root / partition_dir_name(*address)
        if self._view.base.exists(target):
            self._view.base.remove_tree(target)
        return target

    def _copy(self, found: TopicPartition, view: View) -> CopiedPartition:
        """Copy a partition as a view finds its files now."""
        fs = view.base
        address = _legal(found)
        target = self._emptied(address)
        fs.make_dir(target)
        source = self._source(view, address, view.folders[found])
        view.reader.meter = self._view.reader.meter
        copied = copy_partition(fs, view.reader, source, target)
        epochs = [entry for entry in source.epochs if entry[1] <= copied.next_offset]
        self._files.write_partition(address, target, epochs)
        fs.sync_dir(target)
        self._log_starts.pop(address, None)
        if source.start_offset > copied.kept_end and copied.records:
            copied.findings.append(_ignored_start(source, copied))
        elif source.logs and source.start_offset > source.logs[0].base_offset:
            self._log_starts[address] = source.start_offset
        return copied

    def _missing(self, missing: MissingPartition) -> CopiedPartition:
        """Create an empty partition for one that has no folder. Its log starts above the offsets that files name."""
        fs = self._view.base
        target = self._new_root / partition_dir_name(*missing.address)
        fs.make_dir(target)
        source = PartitionSource(
            address=missing.address,
            folder=missing.path,
            logs=(),
            start_offset=0,
            known_end=missing.next_offset,
            is_emptied=True,
        )
        copied = copy_partition(fs, self._view.reader, source, target)
        self._files.write_partition(missing.address, target, ())
        fs.sync_dir(target)
        return copied

    def _source(self, view: View, address: TopicPartition, folder: Path) -> PartitionSource:
        epochs = self._files.epochs(folder)
        compacted = address in view.checkpoints[names.CLEANER_OFFSETS]
        if self._only is not None:
            log = self._alone(address)
            return PartitionSource(
                address=address,
                folder=folder,
                logs=[log],
                start_offset=log.base_offset,
                epochs=epochs,
                compacted=compacted,
            )
        plan = self._listed(view, address, folder)
        plan.stored_epochs = epochs
        logs = self._logs(plan)
        first, last = (logs[0].base_offset, logs[-1].base_offset) if logs else (0, 0)
        named = (view.evidence.end(address, last), end_in_folder(view.fs, plan, last))
        ends = [one.offset for one in named if one is not None]
        began = first_offset(plan)
        return PartitionSource(
            address=address,
            folder=folder,
            logs=logs,
            start_offset=max(view.checkpoints[names.LOG_STARTS].get(address, 0), first),
            began_at=None if began is None else began.offset,
            known_end=max((end for end in ends if end <= last + SEGMENT_OFFSETS), default=0),
            end_by_index=partial(_end_by_index, view, plan),
            grows=partial(view.grows, plan),
            is_emptied=is_emptied(view.fs, plan),
            epochs=epochs,
            compacted=compacted,
            without_log={
                base_offset
                for found in (orphan_indexes(plan), emptied_segments(view.fs, plan))
                for _, base_offset in found
            },
        )

    @staticmethod
    def _listed(view: View, address: TopicPartition, folder: Path) -> PartitionPlan:
        clear_leftovers(view.fs, folder)
        plan = PartitionPlan(
            partition=address, directory=folder, settings=view.settings_of(address.topic)
        )
        list_segments(view.files, plan)
        pass_repeats(view.fs, view.files, plan)
        view.watch(plan)
        if not view.is_changed(address):
            view.notes.add(*plan.findings)
        return plan

    @staticmethod
    def _logs(plan: PartitionPlan) -> Sequence[Log]:
        return [Log.of(segment, plan.partition, whole=True) for segment in plan.segments]

    def _alone(self, address: TopicPartition) -> Log:
        """Return the log for a single file. If its name gives no base offset, its first good batch does."""
        path = self._only
        assert path is not None
        topic, partition = address
        log = Log(
            path=path,
            base_offset=0,
            size_bytes=self._view.fs.size(path),
            topic=topic,
            partition=partition,
        )
        parsed = names.parse_segment_name(path.name)
        if parsed is not None:
            with self._view.files.borrow(path) as file:
                begin = begin_alone(file, parsed[0])
            if begin < parsed[0]:
                self._view.notes.add(alone_finding(path, address, begin))
            return replace(log, base_offset=begin)
        first = next((i for i in self._view.reader.items(log) if isinstance(i, StoredBatch)), None)
        return log if first is None else replace(log, base_offset=first.header.base_offset)

    # ---- the engine's part ---------------------------------------------------------------------

    def _finish(self) -> dict[TopicPartition, OffsetBounds]:
        """Open the new store, so that recovery creates all files derived from the logs. Stop it and return the bounds.

        The number of records is counted and compared with the number copied.
        """
        view = self._view
        settings = {n: v for n, v in view.options.settings.items() if n != LOG_DIRS}
        options = replace(view.options, settings=settings)
        store = open_kafka(self._new_root, options, fs=view.base, clock=view.clock, read_only=False)
        with store:
            bounds = {copied.address: store.bounds(copied.address) for copied in self._copied}
            counted = count_records(store, bounds)
        reported = {c.address: Contents(c.records, None) for c in self._copied}
        check_recount(self._new_root, reported, counted)
        return bounds

    def _report(self, bounds: dict[TopicPartition, OffsetBounds]) -> LossReport:
        copied = self._copied
        losses = [loss for partition in copied for loss in partition.losses]
        kept_bytes = sum(partition.kept_bytes for partition in copied)
        blank_bytes = sum(partition.blank_bytes for partition in copied)
        return LossReport(
            store=str(self._only or self._place()),
            losses=losses,
            lost_bytes=lost_bytes(losses),
            findings=[*self._found(), *_open_transactions(copied, bounds)],
            kept=[
                KeptRange(
                    topic=partition.address.topic,
                    partition=partition.address.partition,
                    first_offset=bounds[partition.address].start,
                    next_offset=bounds[partition.address].end,
                    records=partition.records,
                    size_bytes=partition.kept_bytes,
                )
                for partition in copied
            ],
            kept_records=sum(partition.records for partition in copied),
            log_bytes=kept_bytes + blank_bytes + lost_bytes(losses),
            kept_bytes=kept_bytes,
            blank_bytes=blank_bytes,
        )

    def _place(self) -> Path:
        """Return the path that was salvaged: the directory, or the folder of its one partition."""
        view = self._view
        folders = list(view.folders.values())
        return view.root if self._files.whole else folders[0]

    def _found(self) -> Sequence[Finding]:
        """Return the findings that are no losses of the log."""
        view = self._view
        met = [f for f in view.findings() if f.code not in _LOSS_CODES]
        return [*met, *self._files.findings, *(f for c in self._copied for f in c.findings)]


def _ignored_start(source: PartitionSource, copied: CopiedPartition) -> Finding:
    return finding(
        "log-start-beyond-end",
        source.folder,
        topic=source.address.topic,
        partition=source.address.partition,
        offset=source.start_offset,
        expected=f"at most {copied.kept_end}",
        found=str(source.start_offset),
        message=f"the log ends at offset {copied.kept_end}, below its log start: the log start is ignored in the new "
        "store, so that its records can be read",
    )


def _end_by_index(view: View, plan: PartitionPlan, good_end: int) -> int:
    named = end_by_index(view.fs, plan.segments[-1], good_end) if plan.segments else None
    return 0 if named is None else named.offset


def _legal(address: TopicPartition) -> TopicPartition:
    """Return the address if a folder can have its name, else UNNAMED."""
    name = partition_dir_name(*address)
    return address if parse_partition_dir(name) == address else UNNAMED


def _open_transactions(
    copied: Sequence[CopiedPartition], bounds: dict[TopicPartition, OffsetBounds]
) -> Sequence[Finding]:
    """Return a finding for each partition with losses and an open transaction. Its end may be among the losses."""
    return [
        finding(
            "open-transaction",
            partition.losses[0].path,
            topic=partition.address.topic,
            partition=partition.address.partition,
            offset=bounds[partition.address].stable,
            message="a transaction begins here and has no end in the log, perhaps because its end is "
            "lost: read_committed stops before it",
        )
        for partition in copied
        if partition.losses and bounds[partition.address].stable < bounds[partition.address].end
    ]


def count_records(
    store: KafkaStore, addresses: Iterable[TopicPartition]
) -> Mapping[TopicPartition, Contents]:
    """Return the contents of each partition: control records are not counted, records before the log start are.

    Records are counted by the headers of their batches. The CRCs are checked during the count.
    """
    return {address: _count(store, address) for address in addresses}


def _count(store: KafkaStore, address: TopicPartition) -> Contents:
    partition = store.partition(address)
    end = partition.bounds().end
    records = sum(
        max(batch.header.count, 0)
        for segment in partition.segments()
        for batch in segment.batches(segment.base_offset, stop_offset=end)
        if not batch.header.is_control
    )
    return Contents(records, end)
