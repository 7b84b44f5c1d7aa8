"""Topics that a crash left half created or half deleted: find their folders, and restore the folders' names.

Owns recognizing their folders, which are named TOPIC-N.ID-delete; must not create or remove a folder. By the order of
the steps in topics.py such a folder is complete as long as another folder of its topic is named TOPIC-N. The next
start then renames it to TOPIC-N: the topic is created, or is not deleted. If no folder is named TOPIC-N, the next
start of this server or of the broker removes all these folders.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from storage.errors import DataError, IoFailure
from storage.files import FileSystem
from storage.findings import finding
from storage.kafka.format import checkpoints, names
from storage.kafka.state.root import LogDirectory
from storage.model import Finding, TopicPartition


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
    renamed = [(r.partition, path) for r, path in directory.renamed_dirs() if r.state == "delete"]
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
        if fs.is_dir(path):  # reported by blocked_files, which must still see it as a folder
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
