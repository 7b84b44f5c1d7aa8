"""Plan of one task: some entries of each of some queues of a RocketMQ store, and the records they point to.

Owns the plan of one split and the entries as columns; must not read the log. A run of entries is in the files of its
queue, except for the entries after the last valid one there. Those come with the plan, so that a reader needs no
recovery.

    offsets   first ........ first + stored | ........ end
    entries   in the queue's files          | `carried`, 20 bytes each
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage.columns import Damage
from storage.errors import Corrupt, IoFailure
from storage.files import HandleCache
from storage.findings import finding
from storage.model import Finding, TopicPartition
from storage.rocketmq.format import names
from storage.rocketmq.format.queue_entry import FILLER, FILLER_SIZE, UNIT_SIZE
from storage.rocketmq.log.file_sequence import FileSequence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.columns import Numbers

UNIT_DTYPE: Final = np.dtype([("position", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
assert UNIT_DTYPE.itemsize == UNIT_SIZE


@dataclass(frozen=True, slots=True)
class EntryRange:
    """The queue entries [first, end) of one queue, the last of which are `carried`."""

    partition: TopicPartition
    first: int
    end: int
    carried: bytes = b""

    @property
    def stored(self) -> int:
        """The number of entries to be read from the queue's files."""
        return self.end - self.first - len(self.carried) // UNIT_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """The plan of one task. The log has records in [log_start, log_end), in files that begin at `log_bases`."""

    root: str
    log_file_bytes: int
    queue_file_bytes: int
    log_start: int
    log_end: int
    log_bases: Sequence[int]
    log_folders: Sequence[str]
    runs: Sequence[EntryRange]

    @property
    def partitions(self) -> Sequence[TopicPartition]:
        """The queue of each run."""
        return [run.partition for run in self.runs]

    def queue_run(self, files: HandleCache, partition: TopicPartition) -> FileSequence:
        """Return the files of a queue, without a check that they exist."""
        folder = Path(self.root, names.CONSUME_QUEUE, partition.topic, str(partition.partition))
        return FileSequence(files, folder, self.queue_file_bytes, kind="consumequeue")


class Units(NamedTuple):
    """Queue entries as columns: physical offsets and sizes of their records, and queue offsets.

    `codes`: the places of their queues in the plan.
    """

    positions: Numbers
    sizes: Numbers
    offsets: Numbers
    codes: Numbers

    def where(self, rows: NDArray[np.bool_] | NDArray[np.intp] | slice) -> Units:
        """Return the entries of these rows."""
        return Units(*(column[rows] for column in self))


def load_units(plan: SplitPlan, files: HandleCache, on_damage: Damage | None) -> Units:
    """Return all entries of a split except fillers, by queue and offset.

    Raises IoFailure for a missing queue file and Corrupt for a file that ends too soon. `on_damage` gets the finding
    instead if it is given, and the entries are left out.
    """
    data = b"".join([part for run in plan.runs for part in _parts(plan, files, run, on_damage)])
    units = np.frombuffer(data, UNIT_DTYPE)
    counts = np.array([run.end - run.first for run in plan.runs], np.int64)
    starts = np.array([run.first for run in plan.runs], np.int64) - (counts.cumsum() - counts)
    codes = np.repeat(np.arange(len(counts)), counts)
    loaded = Units(
        units["position"].astype(np.int64),
        units["size"].astype(np.int64),
        np.arange(len(units)) + np.repeat(starts, counts),
        codes,
    )
    fillers = (loaded.sizes == FILLER_SIZE) & (loaded.positions == 0)
    return loaded.where(~fillers) if fillers.any() else loaded


def in_log_order(units: Units) -> Units:
    """Return the entries sorted by the positions of their records. Entries of one queue keep their order."""
    return units.where(np.argsort(_places(units), kind="stable"))


def _places(units: Units) -> Numbers:
    """Return the positions by which entries are sorted.

    If positions fall within a queue, which damage does, an entry counts as at the highest position before it.
    """
    positions = units.positions
    inside = units.codes[1:] == units.codes[:-1]
    if not (inside & (positions[1:] < positions[:-1])).any():
        return positions
    borders = np.flatnonzero(~inside) + 1
    return np.concatenate([np.maximum.accumulate(part) for part in np.split(positions, borders)])


def _parts(
    plan: SplitPlan, files: HandleCache, run: EntryRange, on_damage: Damage | None
) -> Iterator[bytes]:
    """Yield the bytes of a run's entries, with fillers for those that cannot be read."""
    queue = plan.queue_run(files, run.partition)
    offset, stop = run.first, run.first + run.stored
    in_file = plan.queue_file_bytes // UNIT_SIZE
    while offset < stop:
        count = min(stop - offset, in_file - offset % in_file)
        try:
            yield _units_in_file(queue, offset, count)
        except (Corrupt, IoFailure) as error:
            if on_damage is None:
                raise
            on_damage(unreadable_units(error, queue, run.partition, offset, count))
            yield FILLER * count
        offset += count
    yield run.carried


def _units_in_file(queue: FileSequence, offset: int, count: int) -> bytes:
    base = offset * UNIT_SIZE // queue.file_bytes * queue.file_bytes
    with queue.files.borrow(queue.path(base)) as file:
        data = file.pread(count * UNIT_SIZE, offset * UNIT_SIZE - base)
    if len(data) < count * UNIT_SIZE:
        position = offset * UNIT_SIZE - base + len(data)
        raise Corrupt(
            f"{queue.path(base)}: position {position}: the file ends before a unit that was there",
            kind=queue.kind,
            path=str(queue.path(base)),
            position=position,
        )
    return data


def unreadable_units(
    error: Corrupt | IoFailure,
    queue: FileSequence,
    partition: TopicPartition,
    offset: int,
    count: int,
) -> Finding:
    """Return the finding for entries that existed when the split was planned."""
    base = offset * UNIT_SIZE // queue.file_bytes * queue.file_bytes
    return finding(
        "missing-file" if isinstance(error, IoFailure) else "bad-unit",
        queue.path(base),
        position=offset * UNIT_SIZE - base,
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        message=f"{count} queue entries cannot be read: {error.message}",
    )
