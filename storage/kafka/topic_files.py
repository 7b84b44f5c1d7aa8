"""A topic's folders: making them so that none is half there, and taking them away as the broker
does.

Owns the files of a new partition and the two-step deletion; must not know the topic map. A folder
is built under the name of a deleted one and then renamed, so a crash leaves whole folders only: the
next start, ours or the broker's, takes the others away. (Beside the store it might lie in another
file system, from which nothing can be renamed.)
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from storage.errors import DiskFull, InvalidArgument, InvalidTopic, StorageError, TopicExists
from storage.files import FileSystem, HandleCache
from storage.kafka.directory import new_uuid
from storage.kafka.epochs import LeaderEpochs
from storage.kafka.format import checkpoints, names
from storage.kafka.partition import Partition, Surroundings
from storage.kafka.plan import PartitionPlan
from storage.kafka.segment import Segment
from storage.kafka.settings import MAX_PARTITIONS, TopicSettings
from storage.model import TopicInfo, TopicPartition

FIRST_EPOCH = 0


def check_partition_count(count: int) -> None:
    """Raise InvalidArgument for a number of partitions that no topic is made with."""
    if not 1 <= count <= MAX_PARTITIONS:
        raise InvalidArgument(
            f"partitions must be 1 to {MAX_PARTITIONS}, not {count}", field="partitions"
        )


def check_new_name(topic: str, others: Iterable[str]) -> None:
    """Raise InvalidTopic unless Kafka would let this topic be created beside the others."""
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
    """Raise TopicExists unless a topic that is there has the wanted shape; None: any."""
    if partitions is not None and partitions != len(info.partitions):
        raise TopicExists(
            f"topic {info.name!r} exists with {len(info.partitions)} partitions, not {partitions}",
            topic=info.name,
        )
    if configs is not None and dict(configs) != info.configs:
        raise TopicExists(f"topic {info.name!r} exists with other configs", topic=info.name)


def create_partitions(
    shared: Surroundings, root: Path, topic: str, count: int, settings: TopicSettings
) -> tuple[str, Sequence[Partition]]:
    """Make `count` partitions of a new topic; durable on return. Gives the topic id and the opened
    partitions.

    On an error what was made is taken away again and the error goes on.
    """
    topic_id = new_uuid()
    made: list[Partition] = []
    try:
        for number in range(count):
            address = TopicPartition(topic, number)
            made.append(_create(shared, root, address, topic_id, settings))
        shared.fs.sync_dir(root)
    except StorageError:
        for partition in made:
            shared.fs.remove_tree(partition.directory)
            shared.files.forget_tree(partition.directory, sync=False)
        raise
    return topic_id, made


def _create(
    shared: Surroundings,
    root: Path,
    address: TopicPartition,
    topic_id: str,
    settings: TopicSettings,
) -> Partition:
    fs = shared.fs
    name = names.partition_dir_name(address.topic, address.partition)
    building = root / _deleted_name(address)
    epochs = LeaderEpochs([(FIRST_EPOCH, 0)])
    plan = PartitionPlan(
        partition=address,
        directory=root / name,
        settings=settings,
        epochs=epochs,
        stored_epochs=epochs.entries,
    )
    try:
        _build(fs, building, topic_id, settings, epochs)
        fs.rename(building, plan.directory)
    except StorageError:
        if fs.exists(building):
            fs.remove_tree(building)
        raise
    segment = Segment(shared.files, plan.directory, 0, settings, size_bytes=0)
    return Partition(shared, plan, [segment], created_now=True)


def _build(
    fs: FileSystem, building: Path, topic_id: str, settings: TopicSettings, epochs: LeaderEpochs
) -> None:
    """All files of an empty partition, durably, in a folder that nobody looks at yet."""
    fs.make_dir(building)
    files = HandleCache(fs, 8)
    try:
        Segment.create(files, building, 0, settings)
        for name, data in (
            (names.LEADER_EPOCHS, checkpoints.encode_epochs(epochs.entries)),
            (names.PARTITION_METADATA, checkpoints.encode_partition_metadata(topic_id)),
        ):
            with files.borrow(building / name, write=True, create=True) as file:
                file.pwrite(data, 0)
            files.datasync(building / name)
    finally:
        files.close(sync=False)
    fs.sync_dir(building)


def delete_partitions(shared: Surroundings, root: Path, partitions: Sequence[Partition]) -> None:
    """Rename the folders to `NAME.ID-delete` (durably: they are gone), then remove what is in them.

    On a full disk all keep their names and the error goes on.
    """
    renamed: list[tuple[Path, Path]] = []
    try:
        for partition in partitions:
            partition.retire()
            target = root / _deleted_name(partition.partition)
            shared.fs.rename(partition.directory, target)
            renamed.append((partition.directory, target))
    except DiskFull:
        for directory, target in renamed:
            shared.fs.rename(target, directory)
        for partition in partitions:
            partition.retire(False)
        raise
    shared.fs.sync_dir(root)
    for directory, target in renamed:
        shared.files.forget_tree(directory, sync=False)
        shared.fs.remove_tree(target)


def _deleted_name(address: TopicPartition) -> str:
    return names.deleted_dir_name(*address, unique_id=secrets.token_hex(16))
