"""Reading a split of a RocketMQ store as columns: queue entries, then the pieces of the log they point to.

Owns the order of the steps, the reports of damage, and which columns there are; must not know the position
of a field in a record. Which records are good, and the errors for other records, are as in `queue`, the
reader of one queue; but an entry must also contain its record's size. If only offsets are requested and no
check is, as in a count, only the entries are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from storage import columns as names
from storage.columns import CHUNK_BYTES, Chunk, Damage, Named, Slices
from storage.errors import Corrupt, IoFailure
from storage.files import FileSystem, FollowingFileSystem, HandleCache, SkippingFileSystem
from storage.findings import finding
from storage.rocketmq.columns.properties import Properties
from storage.rocketmq.columns.queue_entries import SplitPlan, Units, in_log_order, load_units
from storage.rocketmq.columns.records import BORN_TIMESTAMP, FLAG, Addresses, Records, suspects
from storage.rocketmq.columns.slices import LogSlice, read_pieces
from storage.rocketmq.format import names as file_names
from storage.rocketmq.format.body import decompress
from storage.rocketmq.format.message import FIXED_SIZE_V4
from storage.rocketmq.format.properties import KEYS, SHARDING_KEY, TAGS, UNIQ_KEY
from storage.rocketmq.format.queue_entry import UNIT_SIZE, QueueEntry
from storage.rocketmq.log.commit_log import CommitLog
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.log.reading import HIDDEN_PROPERTIES, MAX_BODY_BYTES
from storage.rocketmq.queue import WRONG_PLACE, check_address, damaged, unit_error, unreadable
from storage.rocketmq.state.file_listing import unread_findings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.columns import Numbers

Column: TypeAlias = "Numbers | Slices | Named"
OPEN_FILES: Final = 64
UNITS_TOGETHER: Final = 100_000

_OF_UNITS: Final[Mapping[str, Callable[[Units], Column]]] = {
    names.OFFSET: lambda units: units.offsets,
    names.PHYSICAL_OFFSET: lambda units: units.positions,
    names.TIMESTAMP_TYPE: lambda units: np.zeros_like(units.offsets),
}
_OF_RECORDS: Final[Mapping[str, Callable[[Records], Column]]] = {
    names.TIMESTAMP: lambda records: records.number(BORN_TIMESTAMP, ">i8"),
    names.MESSAGE_ID: Records.message_ids,
    names.STORE_TIMESTAMP: Records.store_timestamps,
    names.SYS_FLAG: lambda records: records.sys_flags,
    names.FLAG: lambda records: records.number(FLAG),
    names.RECONSUME_TIMES: Records.reconsume_times,
    names.BORN_HOST: Records.born_hosts,
    names.STORE_HOST: Records.store_hosts,
    names.SUSPECT: suspects,
    names.RECORD: lambda records: Slices(records.data, records.starts, records.units.sizes),
}
_OF_PROPERTIES: Final[Mapping[str, Callable[[Properties], Column]]] = {
    names.PROPERTIES: Properties.named,
    names.HEADERS: lambda properties: properties.named(HIDDEN_PROPERTIES),
    names.KEY: lambda properties: properties.value(SHARDING_KEY),
    names.TAG: lambda properties: properties.value(TAGS),
    names.KEYS: lambda properties: properties.value(KEYS),
    names.UNIQUE_ID: lambda properties: properties.value(UNIQ_KEY),
}
_EVERY: Final = frozenset(
    (names.VALUE, *_OF_UNITS.keys(), *_OF_RECORDS.keys(), *_OF_PROPERTIES.keys())
)


def read_split(
    plan: SplitPlan, columns: Collection[str], *, check_crcs: bool, on_damage: Damage | None
) -> Iterator[Chunk]:
    """See storage.read_split."""
    disk: FileSystem = FollowingFileSystem()
    if on_damage is not None:
        disk = SkippingFileSystem(disk)
    files = HandleCache(disk, OPEN_FILES)
    try:
        yield from _Reader(plan, columns, files, check_crcs, on_damage).chunks()
        if on_damage is not None:
            for unread in unread_findings(disk):
                on_damage(unread)
    finally:
        files.close(sync=False)


class _Reader:
    """The state of one read of one split."""

    def __init__(
        self,
        plan: SplitPlan,
        columns: Collection[str],
        files: HandleCache,
        check_crcs: bool,
        on_damage: Damage | None,
    ) -> None:
        self._plan = plan
        self._columns = frozenset(columns)
        self._files = files
        self._check_crcs = check_crcs
        self._on_damage = on_damage
        self._partitions = plan.partitions
        self._addresses = Addresses(self._partitions)
        folders = [Path(folder) for folder in plan.log_folders]
        run = FileSequence(
            files, folders[0], plan.log_file_bytes, kind=file_names.COMMIT_LOG, folders=folders
        )
        run.take_as_there(plan.log_bases)
        self._log = CommitLog(run, end=plan.log_end)

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows of the split."""
        units = load_units(self._plan, self._files, self._on_damage)
        units = in_log_order(self._readable(self._fitting(units)))
        if not self._check_crcs and self._columns & _EVERY <= _OF_UNITS.keys():
            yield from self._of_units(units)
            return
        for piece in read_pieces(self._log.run, units):
            records = Records(piece, self._addresses, check_crcs=self._check_crcs)
            if not records.good.all():
                records = records.part(np.flatnonzero(self._good(piece, records.good)))
            if names.VALUE in self._columns and records.are_compressed.any():
                yield from self._unpacked(records)
            elif len(records.starts):
                yield self._chunk(records, records.body_slices())

    # ---- damage ----

    def _report(
        self, error: Corrupt, units: Units, row: int, *, code: str = "damaged-record"
    ) -> None:
        """Raise the error of an entry, or report it to `on_damage`."""
        partition = self._partitions[units.codes[row]]
        offset = int(units.offsets[row])
        if self._on_damage is None:
            raise damaged(error, partition, offset) from error
        self._on_damage(replace(unreadable(partition, offset, error), code=code))

    def _fitting(self, units: Units) -> Units:
        """Return the entries that point to a position in the log with room for a record of their size."""
        plan, log = self._plan, self._log
        positions, sizes = units.positions, units.sizes
        fitting = (positions >= plan.log_start) & (positions <= plan.log_end - sizes)
        fitting &= (sizes >= FIXED_SIZE_V4) & (sizes <= log.largest_record)
        fitting &= positions % plan.log_file_bytes <= plan.log_file_bytes - sizes
        for row in np.flatnonzero(fitting & (sizes > CHUNK_BYTES)).tolist():
            fitting[row] = self._is_size(int(positions[row]), int(sizes[row]))
        if fitting.all():
            return units
        for row in np.flatnonzero(~fitting).tolist():
            self._report(self._unit_error(units, row, WRONG_PLACE), units, row)
        return units.where(fitting)

    def _is_size(self, position: int, size: int) -> bool:
        """Return whether the record has this size: checked before so many bytes are read."""
        try:
            return self._log.size_at(position) == size
        except Corrupt:
            return False

    def _unit_error(self, units: Units, row: int, what: str) -> Corrupt:
        partition = self._partitions[units.codes[row]]
        offset = int(units.offsets[row])
        run = self._plan.queue_run(self._files, partition)
        run.take_as_there([offset * UNIT_SIZE // run.file_bytes * run.file_bytes])
        return unit_error(
            run, offset, what, QueueEntry(int(units.positions[row]), int(units.sizes[row]), 0)
        )

    def _readable(self, units: Units) -> Units:
        """Return the entries that point into existing files; report the first other entry of each missing file."""
        bases = units.positions // self._plan.log_file_bytes * self._plan.log_file_bytes
        readable = np.ones(len(bases), np.bool_)
        for base in np.unique(bases).tolist():
            rows = np.flatnonzero(bases == base)
            try:
                self._log.read(base, 1)
            except Corrupt as error:
                self._report(error, units, int(rows[0]))
                readable[rows] = False
            except IoFailure as error:
                if self._on_damage is None:
                    raise
                message = f"{len(rows)} records: {error.message}"
                self._on_damage(finding("missing-file", self._log.run.path(base), message=message))
                readable[rows] = False
        return units if readable.all() else units.where(readable)

    def _good(self, piece: LogSlice, good: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Check records that do not look good again in full, report the errors; return which records are good."""
        good = good.copy()
        for row in np.flatnonzero(~good).tolist():
            try:
                self._check(piece.units, row)
                good[row] = True
            except Corrupt as error:
                self._report(error, piece.units, row)
        return good

    def _check(self, units: Units, row: int) -> None:
        """Raise Corrupt if a record is not good."""
        position, size = int(units.positions[row]), int(units.sizes[row])
        data = self._log.read(position, size)
        message = self._log.checked(data, 0, position, check_crc=self._check_crcs)
        check_address(self._log, self._partitions[units.codes[row]], message, position)
        if message.size != size:
            what = f"the unit tells a record of {size} bytes, the record {message.size}"
            raise self._unit_error(units, row, what)

    # ---- columns ----

    def _of_units(self, units: Units) -> Iterator[Chunk]:
        """Yield chunks of entries alone, without their records."""
        for first in range(0, len(units.offsets), UNITS_TOGETHER):
            part = units.where(slice(first, first + UNITS_TOGETHER))
            yield self._with_places(part, {})

    def _unpacked(self, records: Records) -> Iterator[Chunk]:
        """Yield chunks of records, some of them compressed; several chunks if the bodies are large."""
        first, size_bytes = 0, 0
        bodies: list[bytes] = []
        good = np.ones(len(records.starts), np.bool_)
        stored = zip(records.stored_bodies(), records.sys_flags.tolist(), strict=True)
        for row, (body, sys_flag) in enumerate(stored):
            try:
                bodies.append(decompress(body, sys_flag, MAX_BODY_BYTES))
            except Corrupt as error:
                self._report_undecodable(error, records.units, row)
                good[row] = False
                continue
            size_bytes += len(bodies[-1])
            if size_bytes >= CHUNK_BYTES:
                yield self._with_bodies(records, slice(first, row + 1), good, bodies)
                first, size_bytes, bodies = row + 1, 0, []
        if bodies:
            yield self._with_bodies(records, slice(first, len(good)), good, bodies)

    def _report_undecodable(self, error: Corrupt, units: Units, row: int) -> None:
        damage = self._log.damage(int(units.positions[row]), error.message)
        self._report(damage, units, row, code="undecodable-body")

    def _with_bodies(
        self, records: Records, part: slice, good: NDArray[np.bool_], bodies: list[bytes]
    ) -> Chunk:
        lengths = np.fromiter(map(len, bodies), np.int64, len(bodies))
        values = Slices(b"".join(bodies), lengths.cumsum() - lengths, lengths)
        return self._chunk(records.part(np.flatnonzero(good[part]) + part.start), values)

    def _chunk(self, records: Records, values: Slices) -> Chunk:
        found: dict[str, Column] = {}
        if names.VALUE in self._columns:
            found[names.VALUE] = values
        for name in self._columns & _OF_RECORDS.keys():
            found[name] = _OF_RECORDS[name](records)
        wanted = self._columns & _OF_PROPERTIES.keys()
        if wanted:
            properties = records.properties()
            for name in wanted:
                found[name] = _OF_PROPERTIES[name](properties)
        return self._with_places(records.units, found)

    def _with_places(self, units: Units, found: dict[str, Column]) -> Chunk:
        """Return a chunk of these columns and the columns that come from the entries."""
        for name in self._columns & _OF_UNITS.keys():
            found[name] = _OF_UNITS[name](units)
        return Chunk(
            rows=len(units.offsets),
            partitions=self._partitions,
            codes=None if len(self._partitions) == 1 else units.codes,
            columns=found,
        )
