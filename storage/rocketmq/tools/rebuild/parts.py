"""Rebuilding queues or index in parts: first the ranges of the log, then the queues or index files.

Owns the parts and the merge of their results; must not know how a part is run. Comparing, keeping old files
and putting new files in place are inherited from `Rebuild`. New files and staged data are stored in
`DIR.rebuild-TIME` next to the store until the end, also without `write`. The staged data is about 28 bytes a
record for queues, and the strings of the records for the index.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from storage.contract import Progress, TaskRunner
from storage.rocketmq.format import names
from storage.rocketmq.index.dispatch import Dispatch
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.tools.log_tasks import Reached, in_order
from storage.rocketmq.tools.rebuild.files import (
    IndexPart,
    QueuePart,
    Site,
    StagedStrings,
    build_index_file,
    build_queues,
    strings_a_file,
)
from storage.rocketmq.tools.rebuild.log_range import StagedEntries, StagedStretch, stage_stretch
from storage.rocketmq.tools.rebuild.store import INDEX, QUEUES, Rebuild
from storage.rocketmq.tools.snapshot import picture_of
from storage.rocketmq.tools.unrecovered import RawStore
from storage.rocketmq.tools.verify.queues import Key
from storage.rocketmq.tools.view import View
from storage.shared.diagnostics import Meter

UNITS_A_PART: Final = 1 << 20


class SharedRebuild(Rebuild):
    """A rebuild whose parts are executed by `run`."""

    def __init__(
        self,
        view: View,
        raw: RawStore,
        what: str,
        *,
        write: bool,
        progress: Progress,
        run: TaskRunner,
    ) -> None:
        super().__init__(view, raw, what, write=write, progress=progress, fs=view.base)
        self._run = run
        self._clock = view.clock
        self._staged_dir = self._made_dir / "stretches"
        self._runs: dict[Key, list[StagedEntries]] = {}
        self._strings: list[StagedStrings] = []
        self._count = 0  # strings of all log ranges
        self._strings_of_last = 0
        self._filled: dict[Key, int] = {}
        self._refused: list[Dispatch] = []

    def _build(self) -> None:
        self._fs.make_dir(self._staged_dir)
        self._stage()
        made = self._made_dir / self._name
        old = self._raw.root / self._name
        raw = self._raw
        with_fillers = raw.run.lacks_first
        site = Site(fs=self._fs, made=made, old=old, sizes=raw.sizes, with_fillers=with_fillers)
        if self._what == QUEUES:
            self._build_queues(site)
        else:
            self._build_index(site)

    def _stage(self) -> None:
        """Stage the queue entries or index strings of every log range."""
        log = self._raw.run
        meter = Meter(self._progress, f"rebuilding {self._what}", log.limit - log.start)
        picture, index = picture_of(self._raw), self._what == INDEX
        work = partial(stage_stretch, picture, self._staged_dir, index=index)
        reached = Reached()
        for result in in_order(log, self._run, work, reached):
            self._take(result)
            if result.last is not None:
                meter.reach(result.last.physical_offset - log.start)
        self._gaps = reached.gaps

    def _take(self, result: StagedStretch) -> None:
        self._notes.add(*result.notes)
        self._left_out += result.left_out
        self._refused += result.refused
        for topic, begin in result.begun.items():
            self._raw.deleted.begin(topic, begin)
            self._begun.add(topic)
        for key, unit_run in result.runs.items():
            if key[0] not in self._raw.queues.batch_topics:
                self._runs.setdefault(key, []).append(unit_run)
        self._strings.append(StagedStrings(result.path, self._count, result.strings))
        self._count += result.strings
        if result.last is not None:
            at, time_ms, self._strings_of_last = result.last
            self._last = Dispatch("", 0, 0, at, 0, 0, time_ms, 0, ())

    # ---- queues --------------------------------------------------------------------------------

    def _build_queues(self, site: Site) -> None:
        refused = self._refused
        moved: list[Dispatch] = []
        for built in self._run(partial(build_queues, site), self._queue_parts()):
            self._compared.update(built.compared)
            self._filled |= built.filled
            self._files_made += len(built.compared)
            refused += built.refused
            moved += built.moved.values()
        for found in (refused, moved):
            found.sort(key=lambda dispatch: dispatch.physical_offset)
        self._note_records(refused, moved)

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

    def _is_in_log(self, queue: Queue) -> bool:
        return queue.partition in self._filled

    def _queues_made(self) -> dict[Path, int]:
        folder = self._made_dir / self._name
        built = {folder / topic / str(n): units for (topic, n), units in self._filled.items()}
        return {**super()._queues_made(), **built}

    # ---- the index -----------------------------------------------------------------------------

    def _build_index(self, site: Site) -> None:
        self._strings_put = self._count
        for old, same, end_ms in self._run(
            partial(build_index_file, site), self._index_parts(site)
        ):
            self._compared[old] = same
            self._indexed += 1
            self._index_end_ms = end_ms

    def _index_parts(self, site: Site) -> Iterator[IndexPart]:
        """Yield a part for every index file. The last record needs an index file even if it has no strings."""
        if self._last is None:
            return
        self._fs.make_dir(site.made)
        room = strings_a_file(site.sizes)
        last = self._count - 1 if self._strings_of_last else self._count
        name: str | None = None
        for number in range(last // room + 1):
            name = names.index_name(self._clock(), after=name)
            known = number < len(self._old_index)
            first, stop = number * room - 1, (number + 1) * room
            yield IndexPart(
                number,
                name,
                self._old_index[number] if known else site.old / name,
                [s for s in self._strings if s.before < stop and s.before + s.strings > first],
            )
