"""The files at the root of a log directory: checkpoints, marker, identity, and this server's own two plain
files alongside.

Owns reading and writing these files, each atomically; must not know segments. Facts for which the real broker has no
file are stored in `.logserver.store.json` (that this server owns the store, producer ids handed out) and
`.logserver.topics.json` (topic configs). They are plain files, which do not disturb the real broker: a folder of this
server's would keep it from starting.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Final

from storage.errors import CallerError, Corrupt, DataError, IoFailure, UnsupportedFormat
from storage.files import (
    STORE_FILE,
    UNFINISHED_STORE_FILE,
    FileLock,
    FileSystem,
    Recognized,
    atomic_write,
    foreign_store,
    holds_no_store,
    remove_if_present,
    stored_backend,
)
from storage.findings import finding
from storage.kafka.format import checkpoints, names, properties
from storage.kafka.state.settings import StoreSettings, check_topic_config
from storage.model import Finding, TopicPartition
from storage.shared.root_files import RootFiles, StoreFacts, json_text

BACKEND: Final = "kafka"
TOPICS_FILE: Final = ".logserver.topics.json"
CUT: Final = "it ends after its version: its entries are lost. A real broker goes on without them"
NO_IDENTITY: Final = (
    "Restore it, or move it away: a start writes another one or needs none. --read-only needs none"
)
OFFSET_CHECKPOINTS: Final = (names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.LOG_STARTS)
_MARKS: Final = (names.META_PROPERTIES, names.CLEAN_SHUTDOWN, *OFFSET_CHECKPOINTS)

Offsets = dict[TopicPartition, int]


def detect(fs: FileSystem, path: Path) -> bool | None:
    """Return whether this server owns the store (created it, or adopted it before); None: no Kafka log directory."""
    named = stored_backend(fs, path)
    return True if named == BACKEND else recognize(fs, path, named).adopted


def recognize(fs: FileSystem, path: Path, named: str | None) -> Recognized:
    """Return whether a directory is a store of this backend. `named`: the backend that its store file names."""
    entries = fs.list_dir(path)
    holds_files = _holds_files(fs, path, entries)
    if named == BACKEND:
        return Recognized(holds_files, True)
    if holds_files:  # the store file may be damaged and name no backend: the Kafka files decide
        return Recognized(holds_files, STORE_FILE in entries)
    begun = {names.LOCK, UNFINISHED_STORE_FILE} <= set(entries)
    return Recognized(holds_files, True if begun else None)


def _holds_files(fs: FileSystem, path: Path, entries: Sequence[str]) -> bool:
    """Return whether the directory has a file or folder that only a Kafka log directory has."""
    if any(mark in entries for mark in _MARKS):
        return True
    folders = (name for name in entries if names.parse_partition_dir(name) is not None)
    return any(_is_partition(fs, path / name) for name in folders)


def is_empty(fs: FileSystem, path: Path) -> bool:
    """Return whether the directory has no file of a store yet; leftovers of an interrupted first start do not count."""
    return holds_no_store(fs, path, lock=names.LOCK)


def refuse_other_format(fs: FileSystem, path: Path) -> None:
    """Raise UnsupportedFormat for a directory that is not empty and is no Kafka log directory."""
    if not is_empty(fs, path) and detect(fs, path) is None:
        raise foreign_store(fs, path, "Kafka log directory")


def take_lock(fs: FileSystem, path: Path) -> FileLock:
    """Lock the store at `path` against other processes, the real broker too. Raises StoreLocked."""
    return fs.lock(path / names.LOCK)


def _is_partition(fs: FileSystem, path: Path) -> bool:
    if not fs.is_dir(path):
        return False
    entries = fs.list_dir(path)
    return names.PARTITION_METADATA in entries or any(e.endswith(names.LOG) for e in entries)


class StoreFile(StoreFacts, kw_only=True):
    """The content of `.logserver.store.json`. `highest_epoch`: the highest leader epoch that this server assigned, see
    OwnEpochs. `broker_led`: a real broker has stopped in this directory since.
    """

    backend: str = BACKEND
    highest_epoch: int = 0
    broker_led: bool = False


class LogDirectory(RootFiles[StoreFile]):
    """The root of one store. RootFiles guards this server's own files; the store's lock guards all other files."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        super().__init__(fs, path, BACKEND, StoreFile)
        self.roots: Sequence[Path] = (path,)
        self._configured: dict[str, Path] = {}
        self.node_id: int | None = None
        """node.id, once the cluster id was read or written."""

    # ---- reading ----

    def partition_dirs(self) -> Sequence[tuple[TopicPartition, Path]]:
        """Return every partition folder, sorted. The metadata log is left out: it is never served, written or
        recovered.
        """
        found = []
        for name in self.fs.list_dir(self.path):
            partition = names.parse_partition_dir(name)
            if partition is None or partition.topic == names.CLUSTER_METADATA_TOPIC:
                continue
            if self.fs.is_dir(self.path / name):
                found.append((partition, self.path / name))
        return sorted(found)

    def renamed_dirs(self) -> Sequence[tuple[names.RenamedFolder, Path]]:
        """Return the partition folders that a broker renamed, sorted. They are listed, never served."""
        found = []
        for name in self.fs.list_dir(self.path):
            renamed = names.parse_renamed_dir(name)
            if renamed is not None and self.fs.is_dir(self.path / name):
                found.append((renamed, self.path / name))
        return sorted(found)

    def metadata_dirs(self) -> Sequence[Path]:
        """Return the folders of the cluster's metadata log. They are listed, never changed."""
        prefix = names.CLUSTER_METADATA_TOPIC + "-"
        return [self.path / name for name in self.fs.list_dir(self.path) if name.startswith(prefix)]

    def root_file(self, name: str) -> Path:
        """Return the path of a root file, which may not exist. With several roots, the first with the file counts."""
        paths = [root / name for root in self.roots]
        return next(filter(self.fs.exists, paths), paths[0])

    def unclean_roots(self) -> Sequence[Path]:
        """Return the roots without the clean-shutdown marker. Its content does not count: a broker before 3.7 wrote 0
        bytes (CleanShutdownFileHandler).
        """
        return [] if self.fs.exists(self.path / names.CLEAN_SHUTDOWN) else [self.path]

    def is_clean(self) -> bool:
        """Return whether the whole store was stopped cleanly."""
        return not self.unclean_roots()

    def is_stopped_by_broker(self) -> bool:
        """Return whether a real broker wrote the clean-shutdown marker: any marker that differs from this server's."""
        try:
            data = self.fs.read_bytes(self.path / names.CLEAN_SHUTDOWN)
        except IoFailure:
            return False
        return checkpoints.decode_clean_shutdown(data) != checkpoints.NO_BROKER_EPOCH

    def is_own(self) -> bool:
        """Return whether only this server has written the store, as far as its files show. A running broker keeps the
        log of the cluster's metadata, also after a kill.
        """
        facts = self.store_file()
        is_led = facts is None or not facts.created or facts.broker_led
        return not (is_led or self.is_stopped_by_broker() or self.metadata_dirs())

    def deleted_partitions(self) -> Sequence[TopicPartition]:
        """Return the partitions with a folder renamed for deletion and no other folder."""
        present = self.fs.list_dir(self.path)
        renamed = (names.parse_renamed_dir(name) for name in present)
        deleted = (found.partition for found in renamed if found and found.state == "delete")
        return [partition for partition in deleted if str(partition) not in present]

    def checkpoints(self) -> Mapping[str, Offsets]:
        """Return the offset checkpoints of the root by file name, including the cleaner's checkpoint."""
        return {name: self.offsets(name) for name in (*OFFSET_CHECKPOINTS, names.CLEANER_OFFSETS)}

    def offsets(self, name: str) -> Offsets:
        """Return the offsets of one of the root's checkpoints. A damaged checkpoint is reported.

        The readable lines of a damaged checkpoint count: without its log start a partition would serve deleted records
        again. A damaged recovery-point checkpoint counts as empty: a missing recovery point costs only a longer scan.
        """
        lines = self._lines(name)
        return {} if name == names.RECOVERY_POINTS and name in self._damaged else lines

    def checkpoint_path(self, name: str, partition: TopicPartition) -> Path:
        """Return the path of the file with the offset that `offsets` returned for a partition."""
        return self.path / name

    def _lines(self, name: str) -> Offsets:
        path = self.path / name
        if not self.fs.exists(path):
            return {}
        data = self._stored[name] = self.fs.read_bytes(path)
        try:
            lines = checkpoints.decode_offsets(data)
        except DataError as error:
            self._damaged.add(name)
            self._note(bad_root_file(path, error))
            return checkpoints.readable_offsets(data)
        self._damaged.discard(name)
        if not lines and checkpoints.is_cut_after_version(data):
            self._note(finding("bad-root-file", path, severity="warning", message=CUT))
        return lines

    def cluster_id(self) -> str | None:
        """Return cluster.id of meta.properties; None without that file. Raises Corrupt or UnsupportedFormat, both with
        the path of the file.
        """
        try:
            return self._stored_cluster_id()
        except Corrupt as error:
            path = str(self.path / names.META_PROPERTIES)
            message = f"{path}: {error.message}. {NO_IDENTITY}"
            raise Corrupt(message, **{**error.facts(), "path": path}) from error
        except UnsupportedFormat as error:
            path = str(self.path / names.META_PROPERTIES)
            raise UnsupportedFormat(f"{path}: {error.message}. {NO_IDENTITY}", path=path) from error

    def known_cluster_id(self) -> str | None:
        """Return cluster.id; None, and report a finding, if meta.properties cannot be read. For read-only stores."""
        try:
            return self._stored_cluster_id()
        except (Corrupt, UnsupportedFormat) as error:
            self._note(bad_root_file(self.path / names.META_PROPERTIES, error))
            return None

    def _stored_cluster_id(self) -> str | None:
        path = self.path / names.META_PROPERTIES
        if not self.fs.exists(path):
            return None
        found = properties.decode_properties(self.fs.read_bytes(path))
        identity = properties.parse_meta_properties(found)
        self.node_id = identity.node_id
        return identity.cluster_id

    def topic_id(self, directory: Path) -> str | None:
        """Return the topic id of a partition's folder, None without one. An unreadable file is reported."""
        path = directory / names.PARTITION_METADATA
        if not self.fs.exists(path):
            return None
        try:
            return checkpoints.decode_partition_metadata(self.fs.read_bytes(path)).topic_id
        except DataError as error:
            self._note(bad_partition_metadata(path, error))
            return None

    def topic_configs(self) -> dict[str, dict[str, str]]:
        """Return the configs by topic. An illegal config is left out and reported."""
        self._stored[TOPICS_FILE] = json_text({})  # a missing file means no configs
        stored = self._read_json(TOPICS_FILE, dict[str, dict[str, str]]) or {}
        self._configured = dict.fromkeys(stored, self.path / TOPICS_FILE)
        return {topic: self._legal(configs) for topic, configs in stored.items()}

    def configured_topics(self) -> dict[str, Path]:
        """Return the topics that `topic_configs` found, and the file of each topic."""
        return self._configured

    def _legal(self, configs: Mapping[str, str]) -> dict[str, str]:
        legal: dict[str, str] = {}
        for name, value in configs.items():
            try:
                check_topic_config(name, value)
            except CallerError as error:
                self._report(self.path / TOPICS_FILE, error.message)
            else:
                legal[name] = value
        return legal

    # ---- writing (each durable on return) ----

    def write_offsets(
        self, name: str, offsets: Mapping[TopicPartition, int | None], *, gone: Container[str]
    ) -> None:
        """Write an offset checkpoint, unless the file has these lines already. An offset of None means no line.

        Lines of partitions that are not in `offsets` are kept, because they prove that a folder is missing. Lines of
        the deleted topics in `gone` are dropped.
        """
        lines = {
            partition: offset
            for partition, offset in self._lines(name).items()
            if partition not in offsets and partition.topic not in gone
        }
        lines |= {p: offset for p, offset in offsets.items() if offset is not None}
        self._write(name, checkpoints.encode_offsets(lines))

    def forget(self, is_deleted: Callable[[TopicPartition], bool]) -> None:
        """Remove the lines of deleted partitions from all checkpoints that have such lines."""
        for name in (*OFFSET_CHECKPOINTS, names.CLEANER_OFFSETS):
            lines = self._lines(name)
            kept = {p: offset for p, offset in lines.items() if not is_deleted(p)}
            if len(kept) < len(lines):
                self._write(name, checkpoints.encode_offsets(kept))

    def write_identity(self, settings: StoreSettings) -> str:
        """Write meta.properties of a new directory and return the cluster id. Ids that the settings do not give are
        random.
        """
        cluster_id = settings.cluster_id or new_uuid()
        content = properties.new_meta_properties(
            cluster_id=cluster_id,
            node_id=settings.node_id,
            directory_id=settings.directory_id or new_uuid(),
        )
        path = self.path / names.META_PROPERTIES
        atomic_write(self.fs, path, properties.encode_properties(content))
        self.node_id = settings.node_id
        return cluster_id

    def write_highest_epoch(self, facts: StoreFile, epoch: int) -> None:
        """Set `facts.highest_epoch` to `epoch` and write the store file; durable on return."""
        with self._writing:
            facts.highest_epoch = epoch
            self.write_store_file(facts)

    def write_topic_configs(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Write the configs of all topics that have configs, unless the file has them already."""
        self._write_json(TOPICS_FILE, {t: dict(c) for t, c in sorted(configs.items()) if c})

    def remove_marker(self) -> None:
        """Remove the clean-shutdown marker, before the first change. All file names in the root are durable on return,
        including names left by a killed process, because later steps rely on them.
        """
        remove_if_present(self.fs, self.path / names.CLEAN_SHUTDOWN)
        self.fs.sync_dir(self.path)

    def write_marker(self) -> None:
        """Write the clean-shutdown marker. Call this only after everything else is durable."""
        data = checkpoints.encode_clean_shutdown(checkpoints.NO_BROKER_EPOCH)
        atomic_write(self.fs, self.path / names.CLEAN_SHUTDOWN, data)

    def remove_deleted_dirs(self) -> None:
        """Finish topic deletions that a stop interrupted. Topic configs and checkpoint lines are removed first, while
        the folders still name the topics.
        """
        deleted = set(self.deleted_partitions())
        if deleted:
            gone = {partition.topic for partition in deleted}
            gone -= {partition.topic for partition, _ in self.partition_dirs()}
            if gone & self._configured.keys():
                configs = self.topic_configs()
                self.write_topic_configs({t: c for t, c in configs.items() if t not in gone})
            self.forget(deleted.__contains__)
        for name in self.fs.list_dir(self.path):
            if names.is_deleted_dir(name) and self.fs.is_dir(self.path / name):
                self.fs.remove_tree(self.path / name)


def bad_root_file(path: Path, error: DataError) -> Finding:
    """Return a finding for an unreadable checkpoint or meta.properties. It is an error, because the real broker does
    not start with such a file. With a field that is no number the broker goes on without the file: a warning
    (LogManager.loadLogs).
    """
    resets = error.facts().get("expected") == checkpoints.NUMBERS
    said = "goes on without this file" if resets else "does not start with this file"
    return finding(
        "bad-root-file",
        path,
        severity="warning" if resets else "error",
        message=f"{error.message.removeprefix(f'{path}: ')}. A real broker {said}",
    )


def bad_partition_metadata(path: Path, error: DataError) -> Finding:
    """Return an error finding. This server serves the partition; the real broker takes the whole directory offline."""
    address = names.partition_of_dir(path.parent.name)
    topic, partition = address if address is not None else (None, None)
    return finding(
        "bad-partition-metadata", path, topic=topic, partition=partition, message=error.message
    )


def new_uuid() -> str:
    """Return a random id in Kafka's text form."""
    return properties.new_uuid_text(secrets.token_bytes(16))
