"""The files at the root of a log directory: checkpoints, marker, identity, and our own two plain
files beside them.

Owns reading and writing them, each atomically; must not know segments. What the reference has no
file for lies in `.logserver.store.json` (that we own the store, producer ids handed out) and
`.logserver.topics.json` (topic configs): a folder of ours would keep the real broker from starting,
plain files do not disturb it.
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
from storage.kafka.settings import StoreSettings, check_topic_config
from storage.model import Finding, TopicPartition
from storage.root_files import RootFiles, StoreFacts, json_text

BACKEND: Final = "kafka"
TOPICS_FILE: Final = ".logserver.topics.json"
CUT: Final = "it ends after its version: its entries are lost. A real broker goes on without them"
OFFSET_CHECKPOINTS: Final = (names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.LOG_STARTS)
_MARKS: Final = (names.META_PROPERTIES, names.CLEAN_SHUTDOWN, *OFFSET_CHECKPOINTS)

Offsets = dict[TopicPartition, int]


def detect(fs: FileSystem, path: Path) -> bool | None:
    """None: no Kafka log directory; else whether it is one of ours (made by us, or taken over
    before).
    """
    named = stored_backend(fs, path)
    return True if named == BACKEND else recognize(fs, path, named).adopted


def recognize(fs: FileSystem, path: Path, named: str | None) -> Recognized:
    """Whether a directory is a store of this backend. `named`: the backend that its store file names."""
    entries = fs.list_dir(path)
    holds_files = _holds_files(fs, path, entries)
    if named == BACKEND:
        return Recognized(holds_files, True)
    if holds_files:  # a damaged store file does not tell whose store this is
        return Recognized(holds_files, STORE_FILE in entries)
    begun = {names.LOCK, UNFINISHED_STORE_FILE} <= set(entries)
    return Recognized(holds_files, True if begun else None)


def _holds_files(fs: FileSystem, path: Path, entries: Sequence[str]) -> bool:
    """Whether a file or folder is there that only a Kafka log directory has."""
    if any(mark in entries for mark in _MARKS):
        return True
    folders = (name for name in entries if names.parse_partition_dir(name) is not None)
    return any(_is_partition(fs, path / name) for name in folders)


def is_empty(fs: FileSystem, path: Path) -> bool:
    """Whether nothing of a store is there yet; what an interrupted first start left does not count."""
    return holds_no_store(fs, path, lock=names.LOCK)


def refuse_other_format(fs: FileSystem, path: Path) -> None:
    """Raise UnsupportedFormat for a directory that holds something, but no Kafka log directory."""
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
    """The content of `.logserver.store.json`. `highest_epoch`: the highest leader epoch given here, see OwnEpochs;
    `broker_led`: a real broker has stopped here since.
    """

    backend: str = BACKEND
    highest_epoch: int = 0
    broker_led: bool = False


class LogDirectory(RootFiles[StoreFile]):
    """The root of one store. Its own files as RootFiles; the others are guarded by the store's lock."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        super().__init__(fs, path, BACKEND, StoreFile)
        self.roots: Sequence[Path] = (path,)
        self._configured: dict[str, Path] = {}

    # ---- reading ----

    def partition_dirs(self) -> Sequence[tuple[TopicPartition, Path]]:
        """Every partition folder, the metadata log's left out (it is never served, written or
        recovered).
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
        """Folders of partitions that a broker renamed: to be shown, never served."""
        found = []
        for name in self.fs.list_dir(self.path):
            renamed = names.parse_renamed_dir(name)
            if renamed is not None and self.fs.is_dir(self.path / name):
                found.append((renamed, self.path / name))
        return sorted(found)

    def metadata_dirs(self) -> Sequence[Path]:
        """Folders of the cluster's metadata log, to be listed and left alone."""
        prefix = names.CLUSTER_METADATA_TOPIC + "-"
        return [self.path / name for name in self.fs.list_dir(self.path) if name.startswith(prefix)]

    def root_file(self, name: str) -> Path:
        """A file of the root, whether it exists or not; of several roots that of the first which has it."""
        paths = [root / name for root in self.roots]
        return next(filter(self.fs.exists, paths), paths[0])

    def unclean_roots(self) -> Sequence[Path]:
        """The roots without the marker of a clean stop. Its content does not count: a broker before 3.7 wrote 0 bytes
        (CleanShutdownFileHandler).
        """
        return [] if self.fs.exists(self.path / names.CLEAN_SHUTDOWN) else [self.path]

    def is_clean(self) -> bool:
        """Whether the whole store was stopped cleanly."""
        return not self.unclean_roots()

    def is_stopped_by_broker(self) -> bool:
        """Whether the marker is a real broker's: every one but ours is."""
        try:
            data = self.fs.read_bytes(self.path / names.CLEAN_SHUTDOWN)
        except IoFailure:
            return False
        return checkpoints.decode_clean_shutdown(data) != checkpoints.NO_BROKER_EPOCH

    def deleted_partitions(self) -> Sequence[TopicPartition]:
        """Partitions whose folders are renamed for deletion and have no other folder."""
        present = self.fs.list_dir(self.path)
        renamed = (names.parse_renamed_dir(name) for name in present)
        deleted = (found.partition for found in renamed if found and found.state == "delete")
        return [partition for partition in deleted if str(partition) not in present]

    def checkpoints(self) -> Mapping[str, Offsets]:
        """The offset checkpoints of the root by file name, the cleaner's too."""
        return {name: self.offsets(name) for name in (*OFFSET_CHECKPOINTS, names.CLEANER_OFFSETS)}

    def offsets(self, name: str) -> Offsets:
        """One of the root's offset checkpoints. A damaged one is reported. Of it the lines that can be read count:
        without its log start a partition would show deleted records again. Recovery points are the exception:
        without one more is scanned.
        """
        lines = self._lines(name)
        return {} if name == names.RECOVERY_POINTS and name in self._damaged else lines

    def checkpoint_path(self, name: str, partition: TopicPartition) -> Path:
        """The file that said what `offsets` returned for a partition."""
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
        if checkpoints.is_cut_after_version(data):
            self._note(finding("bad-root-file", path, severity="warning", message=CUT))
        return lines

    def cluster_id(self) -> str | None:
        """cluster.id of meta.properties, None without that file. Raises Corrupt or
        UnsupportedFormat with the file.
        """
        try:
            return self._stored_cluster_id()
        except Corrupt as error:
            path = str(self.path / names.META_PROPERTIES)
            raise Corrupt(f"{path}: {error.message}", **{**error.facts(), "path": path}) from error
        except UnsupportedFormat as error:
            path = str(self.path / names.META_PROPERTIES)
            raise UnsupportedFormat(f"{path}: {error.message}", path=path) from error

    def known_cluster_id(self) -> str | None:
        """Return cluster.id; None, and a finding, where meta.properties cannot be read: for reading only."""
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
        return properties.parse_meta_properties(found).cluster_id

    def topic_id(self, directory: Path) -> str | None:
        """The topic id of a partition's folder; a file that cannot be read is reported."""
        path = directory / names.PARTITION_METADATA
        if not self.fs.exists(path):
            return None
        try:
            return checkpoints.decode_partition_metadata(self.fs.read_bytes(path)).topic_id
        except DataError as error:
            self._note(bad_partition_metadata(path, error))
            return None

    def topic_configs(self) -> dict[str, dict[str, str]]:
        """Configs by topic; one that is not legal is left out and reported."""
        self._stored[TOPICS_FILE] = json_text({})  # a missing file says as much
        stored = self._read_json(TOPICS_FILE, dict[str, dict[str, str]]) or {}
        self._configured = dict.fromkeys(stored, self.path / TOPICS_FILE)
        return {topic: self._legal(configs) for topic, configs in stored.items()}

    def configured_topics(self) -> dict[str, Path]:
        """The topics that `topic_configs` found, and the file of each."""
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
        """Write an offset checkpoint, unless it says so already; None: no line.

        Lines of other partitions are kept, unless their topic is `gone`: they tell that a folder is missing.
        """
        lines = {
            partition: offset
            for partition, offset in self._lines(name).items()
            if partition not in offsets and partition.topic not in gone
        }
        lines |= {p: offset for p, offset in offsets.items() if offset is not None}
        self._write(name, checkpoints.encode_offsets(lines))

    def forget(self, is_deleted: Callable[[TopicPartition], bool]) -> None:
        """Remove the lines of deleted partitions from the checkpoints that have some."""
        for name in (*OFFSET_CHECKPOINTS, names.CLEANER_OFFSETS):
            lines = self._lines(name)
            kept = {p: offset for p, offset in lines.items() if not is_deleted(p)}
            if len(kept) < len(lines):
                self._write(name, checkpoints.encode_offsets(kept))

    def write_identity(self, settings: StoreSettings) -> str:
        """meta.properties of a new directory, with random ids where the settings give none. The
        cluster's id.
        """
        cluster_id = settings.cluster_id or new_uuid()
        content = properties.new_meta_properties(
            cluster_id=cluster_id,
            node_id=settings.node_id,
            directory_id=settings.directory_id or new_uuid(),
        )
        path = self.path / names.META_PROPERTIES
        atomic_write(self.fs, path, properties.encode_properties(content))
        return cluster_id

    def write_highest_epoch(self, facts: StoreFile, epoch: int) -> None:
        """Our own facts with a higher leader epoch given, and change `facts` to it; durable on return."""
        with self._writing:
            facts.highest_epoch = epoch
            self.write_store_file(facts)

    def write_topic_configs(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Write the configs of all topics that have some, unless the file says so already."""
        self._write_json(TOPICS_FILE, {t: dict(c) for t, c in sorted(configs.items()) if c})

    def remove_marker(self) -> None:
        """Take the marker of a clean stop away before the first change. The names in the root are durable on
        return, also those that a killed process left there: what follows builds on them.
        """
        remove_if_present(self.fs, self.path / names.CLEAN_SHUTDOWN)
        self.fs.sync_dir(self.path)

    def write_marker(self) -> None:
        """The marker of a clean stop: only after everything else is durable."""
        data = checkpoints.encode_clean_shutdown(checkpoints.NO_BROKER_EPOCH)
        atomic_write(self.fs, self.path / names.CLEAN_SHUTDOWN, data)

    def remove_deleted_dirs(self) -> None:
        """Finish topic deletions that a stop interrupted: settings and checkpoints first, while the folders still name
        the topics.
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
    """An error where the real broker does not start: with a checkpoint or a meta.properties that it cannot read. Only
    a field that is no number lets it go on without the file (LogManager.loadLogs).
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
    """An error, though we serve the partition: the real broker takes all of its directory offline."""
    address = names.partition_of_dir(path.parent.name)
    topic, partition = address if address is not None else (None, None)
    return finding(
        "bad-partition-metadata", path, topic=topic, partition=partition, message=error.message
    )


def new_uuid() -> str:
    """A random id as Kafka writes one."""
    return properties.new_uuid_text(secrets.token_bytes(16))
