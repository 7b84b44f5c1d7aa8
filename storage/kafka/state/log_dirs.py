"""Several log directories of one broker (`log.dirs`), read as one store.

Owns which directories these are, which directory counts if two have facts about the same partition, and the findings
of directories that do not belong together; must not write: such a store is only read.

    partition folders     of all directories; if two hold the same partition, the first
    offset checkpoints    the line of the directory that holds the partition, else the highest offset of all
    clean stop            only if every directory has the marker
    other files           of the first directory that has the file
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from storage.errors import DataError, InvalidConfig, IoFailure
from storage.files import FileSystem, SkippingFileSystem
from storage.findings import finding
from storage.kafka.format import names, properties
from storage.kafka.format.properties import MetaProperties
from storage.kafka.state.root import LogDirectory, Offsets, StoreFile, refuse_other_format
from storage.kafka.state.settings import LOG_DIRS
from storage.model import TopicPartition


def log_roots(fs: FileSystem, path: Path, log_dirs: Sequence[str]) -> Sequence[Path]:
    """Return the directories of a store, `path` first, each once.

    Raises IoFailure for a directory that does not exist or cannot be listed, UnsupportedFormat for a directory that is
    no log directory.
    """
    disk = fs.base if isinstance(fs, SkippingFileSystem) else fs
    roots = {path.resolve(): path}
    for folder in map(Path, log_dirs):
        if folder.resolve() in roots:
            continue
        if not disk.exists(folder):
            raise _unusable(folder, "does not exist", errno=2)
        if not disk.is_dir(folder, follow=True):
            raise _unusable(folder, "is a file", errno=20)
        disk.list_dir(folder)
        refuse_other_format(fs, folder)
        roots[folder.resolve()] = folder
    return list(roots.values())


def _unusable(folder: Path, what: str, *, errno: int) -> IoFailure:
    message = f"{LOG_DIRS}: {folder} {what}"
    return IoFailure(message, path=str(folder), operation="open", errno=errno)


def log_directory(fs: FileSystem, roots: Sequence[Path]) -> LogDirectory:
    """Return a LogDirectory of one root, or a JoinedDirectory of several roots."""
    return LogDirectory(fs, roots[0]) if len(roots) == 1 else JoinedDirectory(fs, roots)


def refuse_several(roots: Sequence[Path]) -> None:
    """Raise InvalidConfig for a store in several directories. Called before a store is opened for writing."""
    if len(roots) > 1:
        folders = ", ".join(map(str, roots))
        raise InvalidConfig(
            f"{LOG_DIRS}: the store is in several directories ({folders}), and such a store is not written. Serve it "
            "with --read-only, write to each directory alone, or make one directory of all with `logserver salvage`",
            name=LOG_DIRS,
            value=folders,
        )


class JoinedDirectory(LogDirectory):
    """The roots of one store as one LogDirectory, for reading."""

    def __init__(self, fs: FileSystem, roots: Sequence[Path]) -> None:
        super().__init__(fs, roots[0])
        self.roots = roots
        self._members = [LogDirectory(fs, root) for root in roots]
        for member in self._members:
            member.findings = self.findings
        self._checkpoint_paths: dict[tuple[str, TopicPartition], Path] = {}

    def partition_dirs(self) -> Sequence[tuple[TopicPartition, Path]]:
        """See LogDirectory. A partition in a second directory is reported: a broker does not start then ("Duplicate log
        directories", LogManager.loadLog).
        """
        found: dict[TopicPartition, Path] = {}
        for member in self._members:
            for partition, folder in member.partition_dirs():
                first = found.setdefault(partition, folder)
                if first != folder:
                    self._note(
                        finding(
                            "duplicate-partition",
                            folder,
                            topic=partition.topic,
                            partition=partition.partition,
                            message=f"{first} holds the same partition and is read instead",
                        )
                    )
        return sorted(found.items())

    def renamed_dirs(self) -> Sequence[tuple[names.RenamedFolder, Path]]:
        return sorted(found for member in self._members for found in member.renamed_dirs())

    def metadata_dirs(self) -> Sequence[Path]:
        return [folder for member in self._members for folder in member.metadata_dirs()]

    def unclean_roots(self) -> Sequence[Path]:
        return [root for member in self._members for root in member.unclean_roots()]

    def is_stopped_by_broker(self) -> bool:
        """See LogDirectory: return whether a real broker wrote any of the markers."""
        return any(member.is_stopped_by_broker() for member in self._members)

    def deleted_partitions(self) -> Sequence[TopicPartition]:
        """See LogDirectory: return only partitions that no directory holds."""
        present = dict(self.partition_dirs())
        deleted = (one for member in self._members for one in member.deleted_partitions())
        return [partition for partition in deleted if partition not in present]

    def offsets(self, name: str) -> Offsets:
        """See LogDirectory: the line of the directory that holds the partition counts, else the highest offset."""
        homes = {partition: folder.parent for partition, folder in self.partition_dirs()}
        chosen: dict[TopicPartition, tuple[bool, int]] = {}
        for member in self._members:
            for partition, offset in member.offsets(name).items():
                line = (homes.get(partition) == member.path, offset)
                if partition not in chosen or chosen[partition] < line:
                    chosen[partition] = line
                    self._checkpoint_paths[name, partition] = member.path / name
        return {partition: offset for partition, (_, offset) in chosen.items()}

    def checkpoint_path(self, name: str, partition: TopicPartition) -> Path:
        return self._checkpoint_paths.get((name, partition), self.path / name)

    def known_cluster_id(self) -> str | None:
        """See LogDirectory. Directories of several brokers are reported."""
        found = [member.known_cluster_id() for member in self._members]
        self._compare_identities()
        self.node_id = next((m.node_id for m in self._members if m.node_id is not None), None)
        return next(filter(None, found), None)

    def _compare_identities(self) -> None:
        """Report directories with which a broker does not start (MetaPropertiesEnsemble.verify): two have different
        cluster ids or node ids, or the same directory id.
        """
        known = list(self._identities())
        for number, (path, here) in enumerate(known):
            for before, there in known[:number]:
                wrong = [
                    f"{name} is {mine} here and {other} in {before}"
                    for name, mine, other in (
                        ("cluster.id", here.cluster_id, there.cluster_id),
                        ("node.id", here.node_id, there.node_id),
                    )
                    if mine != other
                ]
                if here.directory_id is not None and here.directory_id == there.directory_id:
                    wrong.append(f"directory.id is that of {before} too")
                if wrong:
                    self._note(finding("mixed-log-dirs", path, message="; ".join(wrong)))
                    break

    def _identities(self) -> Iterator[tuple[Path, MetaProperties]]:
        for root in self.roots:
            path = root / names.META_PROPERTIES
            try:
                if self.fs.exists(path):
                    found = properties.decode_properties(self.fs.read_bytes(path))
                    yield path, properties.parse_meta_properties(found)
            except DataError:
                continue  # `known_cluster_id` reports the file

    def store_file(self) -> StoreFile | None:
        """See LogDirectory: the highest values count, so that no id or epoch of any directory is assigned again."""
        found = [stored for member in self._members if (stored := member.store_file()) is not None]
        if not found:
            return None
        return StoreFile(
            created=found[0].created,
            next_producer_id=max(stored.next_producer_id for stored in found),
            highest_epoch=max(stored.highest_epoch for stored in found),
            broker_led=any(stored.broker_led for stored in found),
        )

    def topic_configs(self) -> dict[str, dict[str, str]]:
        configs: dict[str, dict[str, str]] = {}
        for member in self._members:
            configs = {**member.topic_configs(), **configs}
        return configs

    def configured_topics(self) -> dict[str, Path]:
        topics: dict[str, Path] = {}
        for member in self._members:
            topics = {**member.configured_topics(), **topics}
        return topics
