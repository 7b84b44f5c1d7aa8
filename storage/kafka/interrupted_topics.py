"""Find the topics that a crash left half made or half deleted, and make them whole again.

Owns recognizing their folders, which are called TOPIC-N.ID-delete; must not make or remove any. topic_files.py has the
order of the steps, by which such a folder is whole as long as another folder of its topic is called TOPIC-N. The next
start renames it to TOPIC-N then: the topic is made, or is not deleted. Where no folder is called TOPIC-N, the next
start, of this server or of the broker, removes them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from storage.errors import DataError, IoFailure
from storage.files import FileSystem
from storage.findings import finding
from storage.kafka.directory import LogDirectory
from storage.kafka.format import checkpoints, names
from storage.model import Finding, TopicPartition


def folder_of(root: Path, address: TopicPartition) -> Path:
    """Return the folder of a partition that is served."""
    return root / names.partition_dir_name(*address)


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
        message="the topic was being made or deleted when the server crashed, and other folders of it have their "
        "names: a writable start gives this folder its name again",
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
