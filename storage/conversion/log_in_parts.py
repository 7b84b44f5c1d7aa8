"""The steps of a conversion to RocketMQ in parts: survey, cut, write.

Owns the order of the steps and which range of the source each part reads; must not know the work of a part
(files_in_parts).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from storage.contract import Clock, OffsetRange, Split, Splitter, TaskRunner
from storage.conversion import files_in_parts as files
from storage.conversion.counters import Fates
from storage.conversion.request import Order
from storage.conversion.selection import Selection
from storage.files import FollowingFileSystem
from storage.kafka.columns.splits import open_splitter
from storage.model import Finding, Isolation, OffsetBounds, TopicPartition

WHAT: Final = "converting"
LOOKING: Final = "looking at times and sizes"
FAR: Final = 1 << 62  # bytes; so large that a range of a partition is one split


@dataclass(slots=True)
class Written:
    """The written records, by partition of the source; `ends` are next offsets in the target."""

    counts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    fates: Fates = field(default_factory=Fates)
    findings: list[Finding] = field(default_factory=list)


class LogInParts:
    """A conversion of the committed records of a Kafka store. `run` does the parts."""

    def __init__(
        self,
        order: Order,
        selection: Selection,
        made: Path,
        bounds: Mapping[TopicPartition, OffsetBounds],
        run: TaskRunner,
        *,
        file_bytes: int,
    ) -> None:
        self._order = order
        self._made = made.absolute()
        self._bounds = bounds
        self._run = run
        self._file_bytes = file_bytes
        self._ways = [
            files.Converted(
                number=number,
                address=address,
                name=selection.names[address.topic],
                encode=order.encode,
                file_bytes=file_bytes,
            )
            for number, address in enumerate(bounds)
        ]
        self._done = Written()
        self._tell = order.options.progress

    def write(self, position: int, *, clock: Clock) -> Written:
        """Write the log from `position` on. Raises UnrepresentableRecord for files that are too small."""
        order = self._order
        splitter = open_splitter(order.source, order.options, fs=FollowingFileSystem(), clock=clock)
        try:
            marks = files.in_order(self._surveyed(list(self._surveys(splitter))))
            cuts = [*files.cuts(marks, self._file_bytes), files.END]
            self._write_files(self._parts(splitter, marks, cuts, position), len(cuts) - 1)
        finally:
            splitter.close()
        return self._done

    def _plan(
        self, splitter: Splitter, address: TopicPartition, span: tuple[int, int], size_bytes: int
    ) -> Sequence[Split]:
        wanted = OffsetRange(address, *span)
        return splitter.plan([wanted], split_bytes=size_bytes, isolation=Isolation.READ_COMMITTED)

    # ---- survey --------------------------------------------------------------------------------

    def _surveys(self, splitter: Splitter) -> Iterator[files.SurveyPart]:
        least = files.LEAST_STEP_BYTES
        step_bytes = max(self._file_bytes // (files.STEPS * max(len(self._ways), 1)), least)
        for way in self._ways:
            start, stable, _ = self._bounds[way.address]
            for split in self._plan(
                splitter, way.address, (start, stable), self._order.split_bytes
            ):
                yield files.SurveyPart(way=way, split=split, step_bytes=step_bytes)

    def _surveyed(self, parts: Sequence[files.SurveyPart]) -> Iterator[files.Surveyed]:
        for number, found in enumerate(self._run(files.survey, parts), 1):
            self._done.fates.take(found.fates)
            self._done.findings += found.findings
            self._tell(LOOKING, number, len(parts))
            yield found

    # ---- write ---------------------------------------------------------------------------------

    def _parts(
        self,
        splitter: Splitter,
        marks: Mapping[int, Sequence[files.KeptRecord]],
        cuts: Sequence[files.OrderKey],
        position: int,
    ) -> Iterator[files.FilePart]:
        """Yield a part for each range; the splits of a range are planned when its part is requested."""
        for number, (begin, end) in enumerate(pairwise(cuts)):
            yield files.FilePart(
                number=number,
                begin=begin,
                end=end,
                streams=[
                    stream
                    for way in self._ways
                    for stream in self._stream(
                        splitter, way, marks.get(way.number, ()), (begin, end)
                    )
                ],
                made=self._made,
                position=position + number * self._file_bytes,
                file_bytes=self._file_bytes,
                last=number == len(cuts) - 2,
            )

    def _stream(
        self,
        splitter: Splitter,
        way: files.Converted,
        marks: Sequence[files.KeptRecord],
        stretch: tuple[files.OrderKey, files.OrderKey],
    ) -> Iterator[files.Stream]:
        """Yield a partition from its last mark before a range to its first mark after the range; nothing if no record
        of it can be inside.
        """
        begin, end = stretch
        first = max(bisect_right(marks, begin, key=_place) - 1, 0)
        last = bisect_left(marks, end, key=_place)
        if first >= last:
            return
        start, stable, _ = self._bounds[way.address]
        mark = marks[first]
        stop = marks[last].place.offset if last < len(marks) else stable
        yield files.Stream(
            way=way,
            splits=self._plan(splitter, way.address, (mark.place.offset, stop), FAR),
            latest_ms=mark.latest_ms,
            next_offset=start + mark.kept,
        )

    def _write_files(self, parts: Iterator[files.FilePart], total: int) -> None:
        results = []
        for done in self._run(files.write_file, parts):
            results.append(done)
            self._done.fates.take(done.fates)
            for address, count in done.counts.items():
                self._done.counts[address] = self._done.counts.get(address, 0) + count
            self._done.ends |= done.ends
            self._tell(WHAT, len(results), total)
        files.put_together(FollowingFileSystem(), self._made, results)


def _place(mark: files.KeptRecord) -> files.OrderKey:
    return mark.place
