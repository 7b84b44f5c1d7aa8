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
from typing import NamedTuple

from storage.errors import DiskFull, InvalidArgument, InvalidTopic, StorageError, TopicExists
from storage.files import FileSystem, HandleCache
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
    count = len(info.partitions) + len(info.missing)
    if partitions is not None and partitions != count:
        raise TopicExists(
            f"topic {info.name!r} exists with {count} partitions, not {partitions}",
            topic=info.name,
        )
    if configs is not None and dict(configs) != info.configs:
        raise TopicExists(f"topic {info.name!r} exists with other configs", topic=info.name)


class NewPartitions(NamedTuple):
    """Partitions to be made: the offset that each begins at, and their topic's id and settings."""

    topic: str
    starts: Mapping[int, int]
    topic_id: str
    settings: TopicSettings


def create_partitions(shared: Surroundings, root: Path, new: NewPartitions) -> Sequence[Partition]:
    """Make new partitions of a topic and open them; durable on return.

    On an error what was made is taken away again and the error goes on.
    """
    made: list[Partition] = []
    try:
        for number in new.starts:
            address = TopicPartition(new.topic, number)
            made.append(_create(shared, root, address, new))
        shared.fs.sync_dir(root)
    except StorageError:
        for partition in made:
            shared.fs.remove_tree(partition.directory)
            shared.files.forget_tree(partition.directory, sync=False)
        raise
    return made


def _create(
    shared: Surroundings, root: Path, address: TopicPartition, new: NewPartitions
) -> Partition:
    fs = shared.fs
    name = names.partition_dir_name(address.topic, address.partition)
    building = root / _deleted_name(address)
    start_offset = new.starts[address.partition]
    epochs = LeaderEpochs([(FIRST_EPOCH, start_offset)])
    plan = PartitionPlan(
        partition=address,
        directory=root / name,
        settings=new.settings,
        epochs=epochs,
        stored_epochs=epochs.entries,
        start_offset=start_offset,
        next_offset=start_offset,
    )
    try:
        _build(fs, building, new, plan)
        fs.rename(building, plan.directory)
    except StorageError:
        if fs.exists(building):
            fs.remove_tree(building)
        raise
    segment = Segment(shared.files, plan.directory, start_offset, new.settings, size_bytes=0)
    return Partition(shared, plan, [segment], created_now=True)


def _build(fs: FileSystem, building: Path, new: NewPartitions, plan: PartitionPlan) -> None:
    """All files of an empty partition, durably, in a folder that nobody looks at yet."""
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


def delete_partitions(
    shared: Surroundings,
    root: Path,
    partitions: Sequence[Partition],
    unserved: Sequence[TopicPartition] = (),
) -> None:
    """Rename the folders to `NAME.ID-delete` (durably), then remove their content. `unserved`: partitions that have a
    folder and are not open.

    On a full disk all keep their names and the error goes on.
    """
    folders = {partition.partition: partition.directory for partition in partitions}
    folders |= {p: root / names.partition_dir_name(*p) for p in unserved}
    renamed: list[tuple[Path, Path]] = []
    try:
        for partition in partitions:
            partition.retire()
        for address, folder in folders.items():
            target = root / _deleted_name(address)
            shared.fs.rename(folder, target)
            renamed.append((folder, target))
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
