"""Verification of the files next to the logs: names, checkpoints, snapshots, epochs, topic ids.

Owns one check per kind of small file; must not read logs. Offsets are compared with the log end that
the recovery plan found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from storage.display import counted
from storage.errors import DataError
from storage.findings import finding
from storage.kafka.format import checkpoints, names, producer_snapshot
from storage.kafka.format.names import parse_segment_name, segment_name
from storage.kafka.log.partition_plan import PartitionPlan
from storage.kafka.recovery.evidence import INDEX_SUFFIXES
from storage.kafka.state.root import bad_partition_metadata
from storage.kafka.tools.rows import PARTITION_FILES
from storage.kafka.tools.view import View
from storage.model import FileCount, Finding, TopicPartition
from storage.shared.own_files import own_file_findings

# ---- the root ------------------------------------------------------------------------------------


def check_root(view: View, *, whole: bool) -> Iterator[Finding]:
    """Check clean-stop marker, identity and checkpoints, and with `whole` every name at the root."""
    for root in view.directory.unclean_roots():
        yield finding(
            "unclean-stop",
            root / names.CLEAN_SHUTDOWN,
            message="no marker of a clean stop: a server is running, or the next start recovers the store",
        )
    view.directory.known_cluster_id()
    view.directory.store_file()
    for name in (names.HIGH_WATERMARKS, names.CLEANER_OFFSETS):
        view.directory.offsets(name)
    yield from view.findings()
    yield from own_file_findings(view.fs, *view.directory.roots)
    if whole:
        yield from foreign_folders(view)
        yield from _root_names(view)


def _root_names(view: View) -> Iterator[Finding]:
    known = {*view.directory.metadata_dirs(), *view.folders.values()}
    for path in view.root_paths():
        if path.name in names.ROOT_FILES or path in known or path.name.startswith(names.OURS):
            continue
        if not view.fs.is_dir(path, follow=True):
            yield _odd_name(path)


def foreign_folders(view: View) -> Iterator[Finding]:
    """Yield findings for folders at the root that keep a real broker from starting."""
    for path in view.root_paths():
        if names.is_foreign_dir(path.name) and view.fs.is_dir(path, follow=True):
            yield finding("foreign-folder", path)


def _odd_name(path: Path, partition: TopicPartition | None = None) -> Finding:
    """Return the finding for a name that no server reads, or for a temporary file of an interrupted write."""
    if path.name.endswith(names.TEMPORARY):
        code, message = "leftover-file", "left by an interrupted write"
    else:
        code, message = (
            "unknown-file",
            "no file that a log directory has: it is not read and not changed",
        )
    topic, number = partition if partition is not None else (None, None)
    return finding(code, path, topic=topic, partition=number, message=message)


# ---- a partition's folder ------------------------------------------------------------------------


def derived_files(view: View, address: TopicPartition) -> Iterator[FileCount]:
    """Yield every file of the partition that is read, except logs: indexes, snapshots and small files."""
    folder = view.folders[address]
    for name in view.base.list_dir(folder):
        parsed = parse_segment_name(name)
        if name in PARTITION_FILES or (parsed is not None and not name.endswith(names.LOG)):
            path = folder / name
            yield FileCount(str(path), *address, 0, view.base.size(path), is_log=False)


def check_names(view: View, address: TopicPartition) -> Iterator[Finding]:
    """Report left-over, orphaned and unknown files. Reads the disk, where nothing has been cleared."""
    folder = view.folders[address]
    entries = view.base.list_dir(folder)
    known = {*PARTITION_FILES, *(n for n in entries if parse_segment_name(n) is not None)}
    for name in entries:
        if name.startswith(names.OURS):
            continue
        if name not in known:
            yield _odd_name(folder / name, address)
        elif name.endswith(INDEX_SUFFIXES) and _log_of(name) not in entries:
            message = "an index without a log: the next start removes it"
            yield _of_folder(address, folder / name, "orphan-index", message)
    yield from _leftovers(folder, address, entries)


def _log_of(name: str) -> str:
    return name.partition(".")[0] + names.LOG


def _leftovers(folder: Path, address: TopicPartition, entries: Sequence[str]) -> Iterator[Finding]:
    """Report left-over files: of a deletion, which is normal, and of a swap that was interrupted, which is not."""
    deleted = [name for name in entries if name.endswith(names.DELETED)]
    if deleted:
        message = f"{len(deleted)} deleted files: the next start removes them"
        yield _of_folder(address, folder / deleted[0], "leftover-file", message)
    swapped = [name for name in entries if name.endswith((names.SWAP, names.CLEANED))]
    if swapped:
        message = f"{len(swapped)} files of segments that compaction was replacing: the next start completes it"
        yield _of_folder(address, folder / swapped[0], "leftover-swap", message)


def check_snapshots(view: View, plan: PartitionPlan) -> Iterator[Finding]:
    """Check that every snapshot can be loaded, and that the next start can continue from one of them."""
    there = []
    for name in view.fs.list_dir(plan.directory):
        parsed = parse_segment_name(name)
        if parsed is None or parsed[1] != names.SNAPSHOT:
            continue
        there.append(parsed[0])
        path = plan.directory / name
        try:
            producer_snapshot.decode_snapshot(view.fs.read_bytes(path))
        except DataError as error:
            yield _of_folder(plan.partition, path, "bad-snapshot", error.message)
    bases = [segment.base_offset for segment in plan.segments[1:]]
    missing = [base for base in bases if base not in there]
    if missing:
        usable = max(there, default=-1) >= bases[-1]
        yield _of_folder(
            plan.partition,
            plan.directory / segment_name(missing[0], names.SNAPSHOT),
            "missing-snapshot",
            f"{len(missing)} of {len(bases)} are missing: the next start rebuilds the producer states from the log",
            severity="info" if usable else "warning",
        )


def check_small_files(
    view: View, plan: PartitionPlan, topic_ids: dict[str, str]
) -> Iterator[Finding]:
    """Check that leader epochs and topic id exist, and that all partitions of a topic have the same id."""
    address = plan.partition
    epochs = plan.directory / names.LEADER_EPOCHS
    if not view.fs.exists(epochs):
        message = "the next start rebuilds it from the batches, without epochs that wrote nothing"
        yield _of_folder(address, epochs, "missing-leader-epochs", message)
    else:
        yield from _check_epochs(view, address, epochs)
    path = plan.directory / names.PARTITION_METADATA
    if not view.fs.exists(path):
        message = "without this file a real broker takes the folder for a stray one and deletes it"
        yield _of_folder(address, path, "missing-partition-metadata", message)
        return
    try:
        topic_id = checkpoints.decode_partition_metadata(view.fs.read_bytes(path)).topic_id
    except DataError as error:
        yield bad_partition_metadata(path, error)
        return
    expected = topic_ids.setdefault(address.topic, topic_id)
    if topic_id != expected:
        message = f"the topic's id is {topic_id} here and {expected} in another partition"
        yield _of_folder(address, path, "topic-id-mismatch", message)


def _check_epochs(view: View, address: TopicPartition, path: Path) -> Iterator[Finding]:
    """Report epochs that do not rise: the broker starts, and drops some. Recovery reports a file it cannot read."""
    data = view.fs.read_bytes(path)
    try:
        lines, kept = checkpoints.decode_epoch_lines(data), checkpoints.decode_epochs(data)
    except DataError:
        return
    if lines != kept:
        message = f"{len(lines)} entries that do not all rise, of which a broker keeps {len(kept)}"
        yield finding(
            "conflicting-leader-epochs",
            path,
            topic=address.topic,
            partition=address.partition,
            expected=_pairs(kept),
            found=_pairs(lines),
            message=message,
        )


def _pairs(epochs: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{epoch} from {start}" for epoch, start in epochs[:20])


def check_against_root(view: View, plan: PartitionPlan) -> Iterator[Finding]:
    """Check that no checkpoint at the root exceeds the log end. Findings of recovery are not repeated."""
    reported = {finding.path for finding in plan.findings if finding.code == "checkpoint-ahead"}
    for name in (names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.CLEANER_OFFSETS):
        offset = view.checkpoints[name].get(plan.partition, 0)
        path = str(view.directory.checkpoint_path(name, plan.partition))
        if offset > plan.next_offset and path not in reported:
            yield plan.finding(
                "checkpoint-ahead",
                path,
                offset=offset,
                expected=f"at most {plan.next_offset}",
                found=str(offset),
                message=f"missing: {counted(offset - plan.next_offset, 'offsets')} that once existed",
            )


def _of_folder(
    address: TopicPartition, path: Path, code: str, message: str, *, severity: str | None = None
) -> Finding:
    return finding(
        code,
        path,
        severity=severity,
        topic=address.topic,
        partition=address.partition,
        message=message,
    )
