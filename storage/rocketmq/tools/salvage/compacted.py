"""The logs of topics that a broker compacts, in a salvaged store: copied as they are, without damaged records.

Owns which files of `compaction` a salvage copies; must not judge a record: CompactedQueue does. Their positions are
their own, so the new commit log changes nothing in them. From CompactionLog and SparseConsumeQueue of RocketMQ 5.5.0:

    compaction/compactionLog/TOPIC/QUEUE/*    copied byte for byte, with the file of entries of the same name
    compaction/compactionCq/TOPIC/QUEUE/*     copied byte for byte; if a record is damaged, its entry is taken out:
                                              for the broker, the entries say which records exist
    compaction/position-checkpoint, .bak      copied byte for byte

A file without its counterpart is not copied: the broker loads no log of a queue that has one. Folders that a crash of
the broker left in a queue (`compacting`, `replicating`) are not copied either, since the broker does not read them. If
a running broker replaces files of a queue meanwhile, the queue is copied again.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.files import FileSystem, HandleCache, copy_range, unless_missing, write_durably
from storage.findings import finding
from storage.model import Finding
from storage.rocketmq.format import names
from storage.rocketmq.format.queue_entry import SPARSE_UNIT
from storage.rocketmq.state.root import StoreDirectory
from storage.rocketmq.tools.compacted.queue import LOOKS, CompactedQueue, bases_in, queues_of
from storage.shared.diagnostics import Notes


def copy_compacted(
    source: StoreDirectory, target: StoreDirectory, files: HandleCache
) -> Sequence[Finding]:
    """Copy the logs of compacted topics; durable on return. Return a finding for each record and file that is not
    copied.
    """
    fs, notes = source.fs, Notes()
    compaction = target.path / names.COMPACTION
    for partition in queues_of(fs, source.path):
        queue = CompactedQueue(files, source.path / names.COMPACTION, partition)
        _copy_queue(fs, queue, CompactedQueue(files, compaction, partition), notes)
    for name in (names.COMPACTION_CHECKPOINT, names.COMPACTION_CHECKPOINT + names.BACKUP):
        path = source.path / names.COMPACTION / name
        if fs.exists(path) and not fs.is_dir(path):
            fs.make_dir(compaction)
            copy_range(fs, path, compaction / name, start=0)
    if fs.exists(compaction):
        fs.sync_dir(compaction)
    return notes.all()


def _copy_queue(
    fs: FileSystem, source: CompactedQueue, target: CompactedQueue, notes: Notes
) -> None:
    """Copy a queue from one list of its files; if they change all the time, nothing."""
    for _ in range(LOOKS):
        listed, found = source.listed(), Notes()
        with unless_missing():
            _copy_files(fs, source, target, found)
            if source.listed() == listed:
                notes.add(*found.all())
                return
        for folder in (target.log, target.queue):
            if fs.exists(folder):
                fs.remove_tree(folder)
    notes.add(
        finding(
            "changed-meanwhile",
            source.log,
            topic=source.partition.topic,
            partition=source.partition.partition,
            message="the compacted log was replaced by a running broker again and again, so it is left out",
        )
    )


def _copy_files(
    fs: FileSystem, source: CompactedQueue, target: CompactedQueue, notes: Notes
) -> None:
    notes.add(*source.mismatches())
    good = {entry.physical_offset for entry, _ in source.records(notes)}
    for base in sorted({*bases_in(fs, source.log)} & {*bases_in(fs, source.queue)}):
        name = names.file_name(base)
        for folder in (target.log, target.queue):
            fs.make_dir(folder)
        copy_range(fs, source.log / name, target.log / name, start=0)
        entries = [entry for _, _, entry in source.entries([base])]
        kept = [entry for entry in entries if entry.physical_offset in good]
        if kept == entries:
            copy_range(fs, source.queue / name, target.queue / name, start=0)
        else:
            data = b"".join(SPARSE_UNIT.pack(*entry) for entry in kept)
            size_bytes = fs.size(source.queue / name)
            write_durably(fs, target.queue / name, data.ljust(size_bytes, b"\0"))
    for folder in (target.log, target.queue):
        if fs.exists(folder):
            for synced in (folder, folder.parent, folder.parent.parent):
                fs.sync_dir(synced)
