"""The folders of a topic: created and deleted so that a crash leaves no part of a folder and no part of a topic.

Owns the files of a new partition and the two-step deletion; must not know the topic map. A folder is built under the
name of a deleted folder and then renamed. (A folder built outside the store could be in another file system, and a
rename between file systems is not possible.)

    create    build all as TOPIC-N.ID-delete, sync the root | rename all to TOPIC-N, sync the root
    add       build all as TOPIC-N.ADDED-delete, sync the root | rename to TOPIC-N in turn, sync the root after each
    delete    rename all to TOPIC-N.ID-delete, sync the root | remove the topic's settings | remove the folders

So after a crash in either step each folder has one of its two names. It is whole as long as another folder of its
topic is named TOPIC-N. The next start then renames it to TOPIC-N: the topic is created, or is not deleted. If no folder
is named TOPIC-N, the next start of this server or of the broker removes all these folders.

A folder that is added to a topic may be half built while others are named TOPIC-N. So its first name differs, and the
next start always removes it. Of the added partitions the first ones remain: without a gap in their numbers.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from storage.errors import (
    DataError,
    DiskFull,
    InvalidArgument,
    InvalidTopic,
    IoFailure,
    StorageError,
    TopicExists,
)
from storage.files import FileSystem, HandleCache, write_durably
from storage.findings import finding
from storage.kafka.format import checkpoints, names
from storage.kafka.format.names import segment_name
from storage.kafka.state.root import LogDirectory
from storage.kafka.state.settings import MAX_PARTITIONS
from storage.model import Finding, TopicInfo, TopicPartition

FIRST_EPOCH = 0
ADDED: Final = "addedaddedadded0"  # begins the id of a folder that is being added to its topic


def check_partition_count(count: int) -> None:
    """Raise InvalidArgument unless a topic may have this number of partitions."""
    if not 1 <= count <= MAX_PARTITIONS:
        raise InvalidArgument(
            f"partitions must be 1 to {MAX_PARTITIONS}, not {count}", field="partitions"
        )


def check_new_name(topic: str, others: Iterable[str]) -> None:
    """Raise InvalidTopic unless Kafka would allow this topic next to the others."""
    names.validate_new_topic(topic)
    key = names.collision_key(topic)
    for other in others:
        if names.collision_key(other) == key:
            raise InvalidTopic(
                f"topic name {topic!r} collides with {other!r}: metrics write '.' as '_'",
                topic=topic,
            )


def check_same_shape(
    info: TopicInfo, partitions: int | None, configs: Mapping[str, str] | None
) -> None:
    """Raise TopicExists unless an existing topic has this number of partitions and these configs; None: any."""
    count = len(info.partitions) + len(info.missing)
    if partitions is not None and partitions != count:
        raise TopicExists(
            f"topic {info.name!r} exists with {count} partitions, not {partitions}",
            topic=info.name,
        )
    if configs is not None and dict(configs) != info.configs:
        raise TopicExists(f"topic {info.name!r} exists with other configs", topic=info.name)


def create_folders(
    fs: FileSystem,
    root: Path,
    starts: Mapping[TopicPartition, int],
    topic_id: str,
    *,
    added: bool = False,
) -> None:
    """Create the folders of empty partitions of a topic, by their start offsets; durable on return.

    `added`: the topic exists already, and these are its next partitions, in order. On a StorageError the new folders
    are removed, and the error is raised again.
    """
    mark = ADDED if added else ""
    folders = {root / _deleted_name(p, mark): folder_of(root, p) for p in starts}
    try:
        for folder, start_offset in zip(folders, starts.values(), strict=True):
            _build(fs, folder, start_offset, topic_id)
        fs.sync_dir(root)
        for folder, target in folders.items():
            fs.rename(folder, target)
            if added:
                fs.sync_dir(root)
        fs.sync_dir(root)
    except StorageError:
        _take_back(fs, root, folders)
        raise


def _build(fs: FileSystem, folder: Path, start_offset: int, topic_id: str) -> None:
    """Write all files of an empty partition, durably, to a folder that is not served."""
    fs.make_dir(folder)
    for suffix in (names.LOG, names.INDEX, names.TIME_INDEX):
        fs.open(folder / segment_name(start_offset, suffix), write=True, create=True).close()
    epochs = checkpoints.encode_epochs([(FIRST_EPOCH, start_offset)])
    write_durably(fs, folder / names.LEADER_EPOCHS, epochs)
    metadata = checkpoints.encode_partition_metadata(topic_id)
    write_durably(fs, folder / names.PARTITION_METADATA, metadata)
    fs.sync_dir(folder)


def _take_back(fs: FileSystem, root: Path, folders: Mapping[Path, Path]) -> None:
    """Remove the folders that could not be created, the last one first.

    A crash meanwhile leaves no part of a new topic, and no gap in an old one.
    """
    for folder, target in reversed(list(folders.items())):
        if fs.exists(target):
            fs.rename(target, folder)
            fs.sync_dir(root)
    for folder in filter(fs.exists, folders):
        fs.remove_tree(folder)


class Retirable(Protocol):
    """An open partition that must know that its topic is being deleted."""

    partition: TopicPartition
    directory: Path

    def retire(self, retired: bool = True) -> None: ...


def set_aside(
    files: HandleCache,
    root: Path,
    partitions: Sequence[Retirable],
    unserved: Iterable[TopicPartition] = (),
) -> Sequence[Path]:
    """Rename the folders of a topic to `NAME.ID-delete`, and return the new paths; durable on return.

    `unserved`: partitions that have a folder and are not open. On a full disk all folders keep their names, and
    DiskFull is raised.
    """
    fs = files.fs
    folders = {partition.partition: partition.directory for partition in partitions}
    folders |= {p: folder_of(root, p) for p in unserved}
    renamed: dict[Path, Path] = {}
    try:
        for partition in partitions:
            partition.retire()
        for address, folder in folders.items():
            target = root / _deleted_name(address)
            fs.rename(folder, target)
            renamed[folder] = target
    except DiskFull:
        try:
            for folder, target in renamed.items():
                fs.rename(target, folder)
        finally:
            for partition in partitions:
                partition.retire(not fs.exists(partition.directory))
        raise
    fs.sync_dir(root)
    for folder in renamed:
        files.forget_tree(folder, sync=False)
    return list(renamed.values())


def _deleted_name(address: TopicPartition, mark: str = "") -> str:
    return names.deleted_dir_name(*address, unique_id=mark + secrets.token_hex(16)[len(mark) :])


def _is_added(folder: Path) -> bool:
    return folder.name.rpartition(".")[2].startswith(ADDED)


# ---- after a crash -------------------------------------------------------------------------------


def folder_of(root: Path, address: TopicPartition) -> Path:
    """Return the path of a served partition's folder."""
    return root / names.partition_dir_name(*address)


def interrupted_folders(directory: LogDirectory) -> Mapping[TopicPartition, Path]:
    """Return the partitions of topics that were being created or deleted when the server crashed, with their folders.

    These folders are still or already named TOPIC-N.ID-delete. The next writable start renames them to TOPIC-N. The
    topic's name is taken from a folder TOPIC-N with the same topic id, because the name of a renamed folder may have
    only the beginning of a long topic name. If a renamed folder has no readable id, its name counts: this server
    removes all folders of a topic before it creates another topic of the name.

    Empty after a clean stop, and unless only this server has written the store: a broker deletes a single partition
    when the partition moves to another broker.
    """
    renamed = [
        (r.partition, path)
        for r, path in directory.renamed_dirs()
        if r.state == "delete" and not _is_added(path)
    ]
    if not renamed or directory.is_clean():
        return {}
    facts = directory.store_file()
    if facts is None or not facts.created or facts.broker_led:
        return {}
    present = dict(directory.partition_dirs())
    topics = {_topic_id(directory.fs, path): address.topic for address, path in present.items()}
    topics.pop(None, None)
    names_there = {address.topic for address in present}
    found: dict[TopicPartition, Path] = {}
    for address, path in renamed:
        topic_id = _topic_id(directory.fs, path)
        topic = topics.get(topic_id)
        if topic_id is None and address.topic in names_there:
            topic = address.topic
        if topic is not None and (original := address._replace(topic=topic)) not in present:
            found[original] = path
    return found


def interrupted_finding(address: TopicPartition, path: Path) -> Finding:
    """Report a folder of `interrupted_folders`."""
    return finding(
        "renamed-folder",
        path,
        topic=address.topic,
        partition=address.partition,
        found="interrupted",
        message="the topic was being made or deleted when the server crashed, and other folders of it have their "
        "names: a writable start gives this folder its name again",
    )


def _topic_id(fs: FileSystem, folder: Path) -> str | None:
    """Return the topic id in a folder's partition.metadata; None if no id can be read."""
    path = folder / names.PARTITION_METADATA
    with suppress(DataError, IoFailure):
        if fs.is_dir(path):  # reported by blocked_paths, which must still see it as a folder
            return None
        data = fs.read_bytes(path)
        return checkpoints.decode_partition_metadata(data).topic_id
    return None


def rename_back(fs: FileSystem, root: Path, interrupted: Mapping[TopicPartition, Path]) -> None:
    """Rename the folders of `interrupted_folders` to TOPIC-N; durable on return."""
    for address, folder in interrupted.items():
        fs.rename(folder, folder_of(root, address))
    if interrupted:
        fs.sync_dir(root)
