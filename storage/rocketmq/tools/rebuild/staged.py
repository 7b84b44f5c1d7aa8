"""A rebuild in parts: first the ranges of the log are staged, then queues or index files are built of the staged data.

Owns the parts and the merge of their results; must not know how a part is run, nor put files in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from storage.contract import Clock, TaskRunner
from storage.rocketmq.format import names
from storage.rocketmq.index.dispatcher import Last
from storage.rocketmq.tools.log_tasks import Reached, in_order
from storage.rocketmq.tools.rebuild.files import (
    BuiltFiles,
    IndexPart,
    QueuePart,
    Site,
    StagedStrings,
    build_index_file,
    build_queues,
    strings_a_file,
)
from storage.rocketmq.tools.rebuild.log_range import StagedEntries, StagedRange, stage_range
from storage.rocketmq.tools.snapshot import snapshot_of
from storage.rocketmq.tools.unrecovered import UnrecoveredStore
from storage.rocketmq.tools.verify.queues import Key
from storage.shared.diagnostics import Meter, Notes

UNITS_A_PART: Final = 1 << 20


def build_in_parts(
    site: Site,
    raw: UnrecoveredStore,
    run: TaskRunner,
    meter: Meter,
    *,
    for_queues: bool,
    staged_dir: Path,
    clock: Clock,
) -> BuiltFiles:
    """Build and compare all queues, or all index files, by parts that `run` executes; durable on return."""
    build = _PartsBuild(site, raw, run)
    build.stage(staged_dir, meter, index=not for_queues)
    if for_queues:
        build.queues()
    else:
        build.index(clock)
    return build.built


class _PartsBuild:
    """One build in parts."""

    def __init__(self, site: Site, raw: UnrecoveredStore, run: TaskRunner) -> None:
        self.built = BuiltFiles()
        self._site = site
        self._raw = raw
        self._run = run
        self._notes = Notes()
        self._runs: dict[Key, list[StagedEntries]] = {}
        self._strings: list[StagedStrings] = []
        self._strings_of_last = 0

    def stage(self, folder: Path, meter: Meter, *, index: bool) -> None:
        """Stage the queue entries or index strings of every log range."""
        log, reached = self._raw.run, Reached()
        work = partial(stage_range, snapshot_of(self._raw), folder, index=index)
        for result in in_order(log, self._run, work, reached):
            self._take(result)
            if result.last is not None:
                meter.reach(result.last.physical_offset - log.start)
        self.built.gaps, self.built.notes = reached.gaps, self._notes.all()

    def _take(self, result: StagedRange) -> None:
        built = self.built
        self._notes.add(*result.notes)
        built.left_out += result.left_out
        built.refused += result.refused
        for topic, begin in result.begun.items():
            self._raw.deleted.begin(topic, begin)
            built.begun.add(topic)
        for key, unit_run in result.runs.items():
            self._runs.setdefault(key, []).append(unit_run)
        self._strings.append(StagedStrings(result.path, built.strings, result.strings))
        built.strings += result.strings
        if result.last is not None:
            at, time_ms, self._strings_of_last = result.last
            built.last = Last(at, time_ms)

    def queues(self) -> None:
        """Build the queues of the staged entries."""
        built = self.built
        for part in self._run(partial(build_queues, self._site), self._queue_parts()):
            built.compared.update(part.compared)
            built.entries |= part.entries
            built.files += part.files
            built.refused += part.refused
            built.moved += part.moved
        for found in (built.refused, built.moved):
            found.sort(key=lambda dispatch: dispatch.physical_offset)

    def _queue_parts(self) -> Iterator[QueuePart]:
        """Yield parts of several queues, up to UNITS_A_PART entries together. A larger queue is a part of its own."""
        together: list[tuple[Key, list[StagedEntries]]] = []
        units = 0
        for key, unit_runs in sorted(self._runs.items()):
            count = sum(unit_run.units for unit_run in unit_runs)
            if together and units + count > UNITS_A_PART:
                yield QueuePart(together)
                together, units = [], 0
            together.append((key, unit_runs))
            units += count
        if together:
            yield QueuePart(together)

    def index(self, clock: Clock) -> None:
        """Build the index files of the staged strings."""
        parts = self._index_parts(clock)
        for old, same, end_ms in self._run(partial(build_index_file, self._site), parts):
            self.built.compared[old] = same
            self.built.files += 1
            self.built.index_end_ms = end_ms

    def _index_parts(self, clock: Clock) -> Iterator[IndexPart]:
        """Yield a part for every index file. The last record needs an index file even if it has no strings."""
        site, count = self._site, self.built.strings
        if self.built.last is None:
            return
        site.fs.make_dir(site.made)
        room = strings_a_file(site.sizes)
        last = count - 1 if self._strings_of_last else count
        name: str | None = None
        for number in range(last // room + 1):
            name = names.index_name(clock(), after=name)
            first, stop = number * room - 1, (number + 1) * room
            staged = [s for s in self._strings if s.before < stop and s.before + s.strings > first]
            yield IndexPart(number, name, site.old_index_file(number, name), staged)
