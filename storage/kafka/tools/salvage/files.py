"""The small files of a salvage: files that can be decoded are copied, others are reported.

Owns the list of these files, at the root and in a partition's folder; must not read logs. Files that
the engine's recovery recreates (indexes, snapshots, recovery points, high watermarks) are not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from storage.errors import DataError, UnsupportedFormat
from storage.files import FileSystem, copy_range, unless_missing, write_durably
from storage.findings import finding
from storage.kafka.format import checkpoints, names, properties
from storage.kafka.format.names import parse_segment_name
from storage.kafka.state.root import TOPICS_FILE, LogDirectory, StoreFile, new_uuid
from storage.kafka.tools.view import View
from storage.model import Finding, TopicPartition

_T = TypeVar("_T")
_IN_FOLDERS: Final = frozenset({names.LEADER_EPOCHS, names.PARTITION_METADATA})


class SmallFiles:
    """The small files of one salvage, from `view` to the folder `new_root`; `whole`: of the whole store."""

    def __init__(self, view: View, new_root: Path, *, whole: bool) -> None:
        self.findings: list[Finding] = []
        self._view = view
        self._fs: FileSystem = view.base
        self._new_root = new_root
        self.whole = whole
        self._topic_ids: dict[str, str] = {}
        self._facts = self._stored_facts()  # now: a running server may replace the file later

    # ---- of a partition ------------------------------------------------------------------------

    def epochs(self, folder: Path) -> Sequence[tuple[int, int]]:
        """Return the leader epochs of the partition's checkpoint; none if it is missing or damaged."""
        found = self._understood(folder / names.LEADER_EPOCHS, checkpoints.decode_epochs)
        return found or ()

    def write_partition(
        self, address: TopicPartition, target: Path, epochs: Sequence[tuple[int, int]]
    ) -> None:
        """Write leader epochs and topic id; durable after the next sync of their folder."""
        topic_id = self._topic_id(address)
        metadata = checkpoints.encode_partition_metadata(topic_id)
        write_durably(self._fs, target / names.PARTITION_METADATA, metadata)
        data = checkpoints.encode_epochs(epochs)
        write_durably(self._fs, target / names.LEADER_EPOCHS, data)

    def _topic_id(self, address: TopicPartition) -> str:
        """Return the topic's id, from any of its partitions; a new id if none of them has one."""
        topic = address.topic
        if topic not in self._topic_ids:
            folders = [path for a, path in self._view.folders.items() if a.topic == topic]
            decode = checkpoints.decode_partition_metadata
            found = [self._understood(path / names.PARTITION_METADATA, decode) for path in folders]
            known = [metadata.topic_id for metadata in found if metadata is not None]
            self._topic_ids[topic] = known[0] if known else new_uuid()
        return self._topic_ids[topic]

    # ---- of the root ---------------------------------------------------------------------------

    def write_root(self, log_starts: Mapping[TopicPartition, int], topics: Collection[str]) -> None:
        """Write the files of the directory as a whole, with these topics; durable after its next sync."""
        directory, new_root = self._view.directory, self._new_root
        target = LogDirectory(self._fs, new_root)
        identity = directory.root_file(names.META_PROPERTIES)
        if self._understood(identity, _identity) is not None:
            self._copy(identity, new_root / names.META_PROPERTIES)
        configs = self._view.stored_configs
        if configs or self._fs.exists(directory.root_file(TOPICS_FILE)):
            target.write_topic_configs({t: c for t, c in configs.items() if t in topics})
        target.write_store_file(self._facts)
        write_durably(self._fs, new_root / names.LOG_STARTS, checkpoints.encode_offsets(log_starts))
        if self.whole:
            self._copy_metadata()
            self._note_others()

    def write_cleaner_offsets(self, ends: Mapping[TopicPartition, int]) -> None:
        """Write up to which offset each partition was compacted, at most its end in the new store."""
        stored = self._view.checkpoints[names.CLEANER_OFFSETS]
        kept = {a: min(offset, ends[a]) for a, offset in stored.items() if a in ends}
        if kept or self._fs.exists(self._view.directory.root_file(names.CLEANER_OFFSETS)):
            data = checkpoints.encode_offsets(kept)
            write_durably(self._fs, self._new_root / names.CLEANER_OFFSETS, data)

    def _stored_facts(self) -> StoreFile:
        """Return the facts of the server's own store file.

        Producer ids and epochs already given out stay used after the salvage. A broker-led directory stays broker-led.
        """
        try:
            stored = self._view.directory.store_file()
        except UnsupportedFormat as error:
            self._note(self._view.root, error.message)
            stored = None
        if stored is None:
            return StoreFile()
        return StoreFile(
            created=stored.created,
            next_producer_id=stored.next_producer_id,
            highest_epoch=stored.highest_epoch,
            broker_led=stored.broker_led or self._view.directory.is_stopped_by_broker(),
        )

    def _copy_metadata(self) -> None:
        """Copy the cluster's metadata log, if it is stored here, without a check.

        Without it a broker knows none of the topics.
        """
        directory = self._view.directory
        bootstrap = directory.root_file(names.BOOTSTRAP)
        if self._fs.exists(bootstrap):
            self._copy(bootstrap, self._new_root / names.BOOTSTRAP)
        for folder in directory.metadata_dirs():
            copy = self._new_root / folder.name
            if not self._fs.is_dir(folder):
                continue
            if self._fs.exists(copy):
                self._note_unknown(folder)
                continue
            self._fs.make_dir(copy)
            for file in self._fs.list_dir(folder):
                if not self._fs.is_dir(folder / file):
                    with unless_missing():  # a running broker removes old snapshots
                        self._copy(folder / file, copy / file)
            self._fs.sync_dir(copy)
            self._note(folder, "copied without a check", code="copied-unchecked")

    def _copy(self, source: Path, target: Path) -> None:
        copy_range(self._fs, source, target, start=0)

    def _note_others(self) -> None:
        """Report names that have no meaning in a log directory; these files are not copied."""
        known = {*self._view.directory.metadata_dirs(), *self._view.folders.values()}
        for path in self._view.root_paths():
            is_known = path.name in names.ROOT_FILES or path in known
            if not is_known and not path.name.startswith(names.OURS):
                self._note_root_name(path)
        for folder in self._view.folders.values():
            with unless_missing():  # a running server deleted the topic
                for name in self._fs.list_dir(folder):
                    if name not in _IN_FOLDERS and parse_segment_name(name) is None:
                        self._note_unknown(folder / name)

    # ---- reporting -----------------------------------------------------------------------------

    def _understood(self, path: Path, decode: Callable[[bytes], _T]) -> _T | None:
        """Return the decoded file. Return None if it does not exist, or if it cannot be decoded, which is noted."""
        if not self._fs.exists(path):
            return None
        try:
            return decode(self._fs.read_bytes(path))
        except DataError as error:
            self._note(path, f"not copied: {error.message}")
            return None

    def _note_root_name(self, path: Path) -> None:
        is_folder = self._fs.is_dir(path, follow=True)
        if is_folder and names.parse_partition_dir(path.name) in self._view.folders:
            return  # another directory holds the partition; the finding `duplicate-partition` reports it
        renamed = names.parse_renamed_dir(path.name)
        if renamed is None:
            self._note_unknown(path)
            return
        topic, partition = renamed.partition
        shown = self._view.folders[renamed.partition].name
        self.findings.append(
            finding(
                "renamed-folder",
                path,
                severity="warning",
                topic=topic,
                partition=partition,
                found=renamed.state,
                message=f"not taken along: {shown} holds the same partition. Salvage this folder alone",
            )
        )

    def _note_unknown(self, path: Path) -> None:
        self.findings.append(
            finding("unknown-file", path, message="no file of this kind of store: not copied")
        )

    def _note(self, path: Path, message: str, *, code: str = "bad-root-file") -> None:
        noted = finding(code, path, message=message)
        if noted not in self.findings:
            self.findings.append(noted)


def _identity(data: bytes) -> str:
    """Return the cluster id of meta.properties. Raises Corrupt, UnsupportedFormat."""
    return properties.parse_meta_properties(properties.decode_properties(data)).cluster_id
