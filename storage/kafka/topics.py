"""Creating and deleting the folders of a topic, so that a crash leaves no part of a folder and no part of a topic.

Owns the files of a new partition and the two-step deletion; must not know the topic map. A folder is built under the
name of a deleted folder and then renamed. (A folder built outside the store could be in another file system, and a
rename between file systems is not possible.)

    create    build all as TOPIC-N.ID-delete, sync the root | rename all to TOPIC-N, sync the root
    delete    rename all to TOPIC-N.ID-delete, sync the root | remove the topic's settings | remove the folders

So after a crash in either step each folder has one of its two names. It is whole as long as another folder of its
topic is named TOPIC-N: see interrupted_topics.py.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from storage.errors import (
    DiskFull,
    InvalidArgument,
    InvalidTopic,
    StorageError,
    TopicExists,
)
from storage.files import FileSystem, HandleCache
from storage.kafka.format import checkpoints, names
from storage.kafka.log.plan import PartitionPlan
from storage.kafka.log.segment import Segment
from storage.kafka.partition import Partition, PartitionEnvironment
from storage.kafka.state.epochs import LeaderEpochs
from storage.kafka.state.interrupted_topics import folder_of
from storage.kafka.state.settings import MAX_PARTITIONS, TopicSettings
from storage.model import TopicInfo, TopicPartition

FIRST_EPOCH = 0


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


class NewPartitions(NamedTuple):
    """Partitions to be created: the start offset of each partition, and the id and settings of their topic."""

    topic: str
    starts: Mapping[int, int]
    topic_id: str
    settings: TopicSettings


def create_partitions(
    shared: PartitionEnvironment, root: Path, new: NewPartitions
) -> Sequence[Partition]:
    """Create new partitions of a topic and open them; durable on return.

    On a StorageError the new folders are removed, and the error is raised again.
    """
    fs = shared.fs
    plans = [_plan_of(root, number, new) for number in new.starts]
    building = [root / _deleted_name(plan.partition) for plan in plans]
    try:
        for folder, plan in zip(building, plans, strict=True):
            _build(fs, folder, new, plan)
        fs.sync_dir(root)
        for folder, plan in zip(building, plans, strict=True):
            fs.rename(folder, plan.directory)
        fs.sync_dir(root)
    except StorageError:
        _take_back(fs, root, building, plans)
        raise
    return [_open_new(shared, plan) for plan in plans]


def _take_back(
    fs: FileSystem, root: Path, building: Sequence[Path], plans: Sequence[PartitionPlan]
) -> None:
    """Remove the folders of a topic that could not be created. A crash meanwhile leaves no part of the topic."""
    for folder, plan in zip(building, plans, strict=True):
        if fs.exists(plan.directory):
            fs.rename(plan.directory, folder)
    fs.sync_dir(root)
    for folder in filter(fs.exists, building):
        fs.remove_tree(folder)


def _plan_of(root: Path, number: int, new: NewPartitions) -> PartitionPlan:
    start_offset = new.starts[number]
    epochs = LeaderEpochs([(FIRST_EPOCH, start_offset)])
    return PartitionPlan(
        partition=TopicPartition(new.topic, number),
        directory=folder_of(root, TopicPartition(new.topic, number)),
        settings=new.settings,
        epochs=epochs,
        stored_epochs=epochs.entries,
        start_offset=start_offset,
        next_offset=start_offset,
    )


def _open_new(shared: PartitionEnvironment, plan: PartitionPlan) -> Partition:
    segment = Segment(shared.files, plan.directory, plan.start_offset, plan.settings, size_bytes=0)
    return Partition(shared, plan, [segment], created_now=True)


def _build(fs: FileSystem, building: Path, new: NewPartitions, plan: PartitionPlan) -> None:
    """Write all files of an empty partition, durably, to a folder that is not served."""
    fs.make_dir(building)
    files = HandleCache(fs, 8)
    try:
        Segment.create(files, building, plan.start_offset, plan.settings)
        for name, data in (
            (names.LEADER_EPOCHS, checkpoints.encode_epochs(plan.epochs.entries)),
            (names.PARTITION_METADATA, checkpoints.encode_partition_metadata(new.topic_id)),
        ):
            with files.borrow(building / name, write=True, create=True) as file:
                file.pwrite(data, 0)
            files.datasync(building / name)
    finally:
        files.close(sync=False)
    fs.sync_dir(building)


def set_aside(
    shared: PartitionEnvironment,
    root: Path,
    partitions: Sequence[Partition],
    unserved: Sequence[TopicPartition] = (),
) -> Sequence[Path]:
    """Rename the folders of a topic to `NAME.ID-delete`, and return the new paths; durable on return.

    `unserved`: partitions that have a folder and are not open. On a full disk all folders keep their names, and
    DiskFull is raised.
    """
    folders = {partition.partition: partition.directory for partition in partitions}
    folders |= {p: folder_of(root, p) for p in unserved}
    renamed: list[tuple[Path, Path]] = []
    try:
        for partition in partitions:
            partition.retire()
        for address, folder in folders.items():
            target = root / _deleted_name(address)
            shared.fs.rename(folder, target)
            renamed.append((folder, target))
    except DiskFull:
        try:
            for directory, target in renamed:
                shared.fs.rename(target, directory)
        finally:
            for partition in partitions:
                partition.retire(not shared.fs.exists(partition.directory))
        raise
    shared.fs.sync_dir(root)
    for directory, _ in renamed:
        shared.files.forget_tree(directory, sync=False)
    return [target for _, target in renamed]


def _deleted_name(address: TopicPartition) -> str:
    return names.deleted_dir_name(*address, unique_id=secrets.token_hex(16))
