"""Make and delete the folders of a topic, so that a crash leaves no part of a folder and no part of a topic.

Owns the files of a new partition, the two-step deletion, and finding what a crash interrupted; must not know the topic
map. A folder is built under the name of a deleted one and then renamed. (Built outside the store it could be in another
file system, from which nothing can be renamed.)

    create    build all as TOPIC-N.ID-delete, sync the root | rename all to TOPIC-N, sync the root
    delete    rename all to TOPIC-N.ID-delete, sync the root | remove them

So after a crash in either step each folder has one of its two names, and is whole as long as another folder of its
topic is TOPIC-N. The next start renames it to TOPIC-N then: the topic was made, or is not deleted. Where no folder is
TOPIC-N, the next start, of this server or of the broker, removes them all.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from storage.errors import (
    DataError,
    DiskFull,
    InvalidArgument,
    InvalidTopic,
    IoFailure,
    StorageError,
    TopicExists,
)
from storage.files import FileSystem, HandleCache
from storage.findings import finding
from storage.kafka.directory import LogDirectory
from storage.kafka.epochs import LeaderEpochs
from storage.kafka.format import checkpoints, names
from storage.kafka.partition import Partition, Surroundings
from storage.kafka.plan import PartitionPlan
from storage.kafka.segment import Segment
from storage.kafka.settings import MAX_PARTITIONS, TopicSettings
from storage.model import Finding, TopicInfo, TopicPartition

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
        for folder in (*building, *(plan.directory for plan in plans)):
            if fs.exists(folder):
                fs.remove_tree(folder)
        raise
    return [_open_new(shared, plan) for plan in plans]


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


def _open_new(shared: Surroundings, plan: PartitionPlan) -> Partition:
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
        for directory, target in renamed:
            shared.fs.rename(target, directory)
        for partition in partitions:
            partition.retire(False)
        raise
    shared.fs.sync_dir(root)
    for directory, target in renamed:
        shared.files.forget_tree(directory, sync=False)
        shared.fs.remove_tree(target)


def interrupted_folders(directory: LogDirectory) -> Mapping[TopicPartition, Path]:
    """Find the partitions whose topic was being made or deleted when the server crashed, and their folders, which are
    still or already called TOPIC-N.ID-delete. The next writable start renames them to TOPIC-N.

    Their topic is the one of a folder TOPIC-N with the same topic id. (The name of a renamed folder may have only the
    beginning of a long topic.) Only in a store of this server alone: a broker deletes a partition by itself when it
    moves to another broker.
    """
    renamed = [(r.partition, path) for r, path in directory.renamed_dirs() if r.state == "delete"]
    if not renamed or directory.is_clean():
        return {}
    facts = directory.store_file()
    if facts is None or not facts.created or facts.broker_led:
        return {}
    present = dict(directory.partition_dirs())
    topics = {_topic_id(directory.fs, path): address.topic for address, path in present.items()}
    topics.pop(None, None)
    found: dict[TopicPartition, Path] = {}
    for address, path in renamed:
        topic = topics.get(_topic_id(directory.fs, path))
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
        message="the topic was being made or deleted when the server crashed, and other folders of it have their names: "
        "a writable start gives this folder its name again",
    )


def _topic_id(fs: FileSystem, folder: Path) -> str | None:
    """The id in a folder's partition.metadata; None where there is none that can be read."""
    with suppress(DataError, IoFailure):
        data = fs.read_bytes(folder / names.PARTITION_METADATA)
        return checkpoints.decode_partition_metadata(data).topic_id
    return None


def rename_back(fs: FileSystem, root: Path, interrupted: Mapping[TopicPartition, Path]) -> None:
    """Rename the folders of `interrupted_folders` to TOPIC-N; durable on return."""
    for address, folder in interrupted.items():
        fs.rename(folder, folder_of(root, address))
    if interrupted:
        fs.sync_dir(root)


def folder_of(root: Path, address: TopicPartition) -> Path:
    """Return the folder of a partition that is served."""
    return root / names.partition_dir_name(*address)


def _deleted_name(address: TopicPartition) -> str:
    return names.deleted_dir_name(*address, unique_id=secrets.token_hex(16))
