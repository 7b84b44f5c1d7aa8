"""Runs of queue entries, and how they continue the entries that a queue has.

Owns the rule which entries a queue takes (ConsumeQueue.putMessagePositionInfo of RocketMQ), for entries as the pass
over the log makes them; must not do IO, nor read records. A run is entries of adjacent queue offsets, so in a sound log
all entries of a queue are one run that continues the queue, and are taken as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from storage.coding.varint import INT64_MAX
from storage.rocketmq.format.queue_entry import FILLER, UNIT, UNIT_SIZE
from storage.rocketmq.index.dispatch_request import Dispatch
from storage.rocketmq.index.record_pass import EntryRun, QueueRuns

LARGEST_GAP: Final = 1_000_000
"""Between queue offsets. A record with a larger jump is damaged."""
LARGEST_OFFSET: Final = INT64_MAX // UNIT_SIZE - 1
"""The largest queue offset whose entry has a position in a file."""
LOOK_AHEAD: Final = 64
"""Runs that are compared with the first run of a queue."""

_unpack_unit: Final = UNIT.unpack_from
_pack_unit: Final = UNIT.pack


class Fitted(NamedTuple):
    """The entries that a queue takes, the physical offset at which the record of the last one ends, the records with
    an impossible offset, and the first record that got another offset than its own.
    """

    parts: Sequence[bytes]
    last_end: int
    refused: Sequence[Dispatch]
    moved: Dispatch | None


def fit(
    entries: QueueRuns,
    following: int,
    *,
    last_end: int,
    bad_places: Sequence[tuple[int, int]] = (),
    with_fillers: bool,
) -> Fitted:
    """Return what a queue with next offset `following` takes of these entries.

    Records that have an entry already are skipped: they end at or before `last_end`. A later record whose offset is
    taken gets no entry: of those the first is refused. If records of the queue are missing before a record, its entry

    - keeps its offset, and the gap gets entries that point to the bad places of the log, (physical offset, bytes),
      if there are any between the two records;
    - keeps its offset after fillers, if `with_fillers`;
    - goes to the end of the queue otherwise, as in RocketMQ.
    """
    fitting = _Fitting(entries, following, last_end)
    for offset, units in entries.runs:
        at = min(max(fitting.following - offset, 0) * UNIT_SIZE, len(units))
        if at:
            fitting.pass_over(units[:at], offset)
        while at < len(units):
            offset_at = offset + at // UNIT_SIZE
            position, size, _ = _unpack_unit(units, at)
            if position + size <= fitting.last_end:
                at += UNIT_SIZE
                continue
            if offset_at == fitting.following:
                fitting.take(units[at:])
                break
            fitting.take_after_gap(units[at : at + UNIT_SIZE], offset_at, bad_places, with_fillers)
            at += UNIT_SIZE
    return Fitted(fitting.parts, fitting.last_end, fitting.refused, fitting.moved)


class _Fitting:
    """The state of one `fit`."""

    def __init__(self, entries: QueueRuns, following: int, last_end: int) -> None:
        self.parts: list[bytes] = []
        self.following = following
        self.last_end = last_end
        self.refused: list[Dispatch] = []
        self.moved: Dispatch | None = None
        self._entries = entries
        self._has_refused = False  # a record whose offset is taken

    def take(self, units: bytes) -> None:
        """Take entries that continue the queue."""
        position, size, _ = _unpack_unit(units, len(units) - UNIT_SIZE)
        self.parts.append(units)
        self.following += len(units) // UNIT_SIZE
        self.last_end = position + size

    def pass_over(self, units: bytes, offset: int) -> None:
        """Skip entries whose offsets the queue has; refuse the first record that has no entry there."""
        position, size, _ = _unpack_unit(units, len(units) - UNIT_SIZE)
        if self._has_refused or position + size <= self.last_end:
            return
        self._has_refused = True
        for at in range(0, len(units), UNIT_SIZE):
            position, size, _ = _unpack_unit(units, at)
            if position + size > self.last_end:
                unit = units[at : at + UNIT_SIZE]
                self.refused.append(self._dispatch(unit, offset + at // UNIT_SIZE))
                return

    def take_after_gap(
        self,
        unit: bytes,
        offset: int,
        bad_places: Sequence[tuple[int, int]],
        with_fillers: bool,
    ) -> None:
        """Take an entry whose offset is above the queue's next one, or refuse it."""
        position, _, _ = _unpack_unit(unit)
        if offset - self.following > LARGEST_GAP:
            self.refused.append(self._dispatch(unit, offset))
            return
        between = [place for place in bad_places if self.last_end <= place[0] < position]
        if between or with_fillers:
            self.parts += _left_out(between, offset - self.following)
            self.following = offset
        elif self.moved is None:
            self.moved = self._dispatch(unit, offset)
        self.take(unit)

    def _dispatch(self, unit: bytes, offset: int) -> Dispatch:
        return _dispatch_of(self._entries, unit, offset)


def _dispatch_of(entries: QueueRuns, unit: bytes, offset: int) -> Dispatch:
    position, size, code = _unpack_unit(unit)
    return Dispatch(entries.topic, entries.queue_id, offset, position, size, code, 0, 0, ())


def _left_out(bad_places: Sequence[tuple[int, int]], count: int) -> list[bytes]:
    """Return entries for `count` missing records: they point to these bad places in order, or are fillers."""
    if not bad_places:
        return [FILLER * count]
    units = [_pack_unit(place, size, 0) for place, size in bad_places[:count]]
    return units + units[-1:] * (count - len(units))


def without_false_begin(entries: QueueRuns) -> tuple[QueueRuns, Sequence[Dispatch]]:
    """Return the entries from the run on with which a queue can begin, and the records before it.

    The real store begins a queue at the offset of its first record, and then skips all records below it. A queue offset
    is under no CRC, so a damaged one would cost the queue its other records. The queue does not begin with an offset

    - that is negative, or above `LARGEST_OFFSET`;
    - above which fewer of the next records are than below it;
    - above which as many are as below it, if the next record's offset is the number of records before it.
    """
    runs = entries.runs
    false: list[Dispatch] = []
    first = 0
    while first < len(runs) and _is_false_begin(runs, first):
        offset, units = runs[first]
        false += [
            _dispatch_of(entries, units[at : at + UNIT_SIZE], offset + at // UNIT_SIZE)
            for at in range(0, len(units), UNIT_SIZE)
        ]
        first += 1
    return (entries._replace(runs=runs[first:]) if first else entries), false


def _is_false_begin(runs: Sequence[EntryRun], first: int) -> bool:
    begin, units = runs[first]
    if not 0 <= begin <= LARGEST_OFFSET:
        return True
    if first + 1 == len(runs):
        return False
    below, above = 0, len(units) // UNIT_SIZE
    before = sum(len(run.units) for run in runs[: first + 1]) // UNIT_SIZE
    for offset, others in runs[first + 1 : first + 1 + LOOK_AHEAD]:
        count = len(others) // UNIT_SIZE
        if 0 <= offset < begin:
            below += count
        else:
            above += count
    return below > above or (below == above and runs[first + 1].queue_offset == before)


def first_place(entries: QueueRuns) -> tuple[int, int]:
    """Return (queue offset, physical offset) of the first entry."""
    offset, units = entries.runs[0]
    return offset, _unpack_unit(units)[0]


def joined(batches: Iterable[Sequence[QueueRuns]]) -> Sequence[QueueRuns]:
    """Return the entries of several batches, in their order, as one batch."""
    by_queue: dict[tuple[str, int], list[EntryRun]] = {}
    for batch in batches:
        for topic, queue_id, runs in batch:
            by_queue.setdefault((topic, queue_id), []).extend(runs)
    return [QueueRuns(*key, runs) for key, runs in by_queue.items()]


def runs_of(dispatches: Iterable[Dispatch]) -> Sequence[QueueRuns]:
    """Return the entries of records that are dispatched one by one: each is a run of its own."""
    return joined(
        [QueueRuns(d.topic, d.queue_id, [EntryRun(d.queue_offset, _pack_unit(*d[3:6]))])]
        for d in dispatches
    )
