"""The conversion of a whole store: the order of the steps, and the report.

Owns the steps, and a preview of the data that will be left out; must not change the source. The rule for a record is in
`mapping`. Memory: the memory of the sources and writers, for Kafka -> RocketMQ of every partition at once.

    source -> rule -> logs in DIR.unfinished-TIME -> the engine's own recovery -> DIR
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from storage.coding.varint import INT64_MAX
from storage.columns import OffsetRange
from storage.contract import Clock, OnForeseen, Progress, TaskRunner
from storage.conversion import kafka_writer, mapping, rocketmq_writer
from storage.conversion.counters import Fates
from storage.conversion.log_order import (
    QueuedRecord,
    TargetQueue,
    Written,
    target_queues,
    write_merged,
)
from storage.conversion.records import KafkaRecord
from storage.conversion.report import make_report, replaced, write_report
from storage.conversion.request import ROCKETMQ, Order, Selection, select
from storage.conversion.sources import NOT_ENDED, KafkaSource, RocketMQSource, Source
from storage.errors import UnrepresentableRecord
from storage.files import FileSystem
from storage.model import ConversionNote, ConversionReport, OffsetBounds, TopicPartition
from storage.shared.atomic_store import new_store
from storage.shared.recount import Contents, check_recount

WHAT: Final = "converting"
REPORTED_EVERY: Final = 10_000
SAMPLE_RECORDS: Final = 1000


def convert(
    order: Order, *, fs: FileSystem, clock: Clock, on_foreseen: OnForeseen | None = None
) -> ConversionReport:
    """See storage.convert_store."""
    source: KafkaSource | RocketMQSource
    if order.to == ROCKETMQ:
        source = KafkaSource(order.source, order.options, fs=fs, clock=clock)
    else:
        source = RocketMQSource(order.source, order.options, fs=fs, clock=clock)
    fates = Fates()
    try:
        selection = select(source, order, fates)
        source.note_missing(order.topics)
        if on_foreseen is not None:
            on_foreseen(foreseen(source, selection, fates, encode=order.encode))
        with (
            replaced(order, source, fs=fs, now_ms=clock()),
            new_store(fs, order.target, sources=source.roots, now_ms=clock()) as made,
        ):
            work = _Work(order, selection, fates, made, fs=fs, clock=clock)
            counts = (
                work.to_rocketmq(source)
                if isinstance(source, KafkaSource)
                else work.to_kafka(source)
            )
            report = make_report(order, selection, fates, counts, source)
            write_report(fs, made, report)
    finally:
        source.close()
    return report


def foreseen(
    source: KafkaSource | RocketMQSource, selection: Selection, fates: Fates, *, encode: bool
) -> Sequence[ConversionNote]:
    """Return notes on the topics that `fates` leaves out already, and on sampled record fields that a message cannot
    keep.

    The sample is the first records of each other partition of a Kafka source without `encode`. A Kafka record keeps all
    data of a message, and with `encode` a message keeps nearly all data of a record.
    """
    sampled = Fates()
    if isinstance(source, KafkaSource) and not encode:
        for address in selection.addresses():
            for record in islice(source.records(address, Fates()), SAMPLE_RECORDS):
                try:
                    mapping.to_rocketmq(record, least_store_ms=0, encode=False)
                except UnrepresentableRecord as error:
                    field = str(error.facts().get("field", ""))
                    sampled.left_out.add(address, record.offset, field, error.message)
    return [*fates.left_out.notes(), *sampled.left_out.notes()]


class _Work:
    """The work of one conversion: it fills the new store `made` with the selected topics, and counts the records of
    each partition.
    """

    def __init__(
        self,
        order: Order,
        selection: Selection,
        fates: Fates,
        made: Path,
        *,
        fs: FileSystem,
        clock: Clock,
    ) -> None:
        self._order = order
        self._selection = selection
        self._fates = fates
        self._made = made
        self._fs = fs
        self._clock = clock
        self._counts: dict[TopicPartition, int] = dict.fromkeys(selection.addresses(), 0)
        self._ends: dict[TopicPartition, int] = {}  # next offsets, in the target
        self._tell: Progress = order.options.progress
        self._done = self._total = 0

    def _step(self) -> None:
        self._done += 1
        if self._done % REPORTED_EVERY == 0:
            self._tell(WHAT, self._done, max(self._total, self._done))

    def _start_meter(self, source: Source) -> None:
        bounds = [source.bounds(address) for address in self._counts]
        self._total = sum(stable - start for start, stable, _ in bounds)

    # ---- to Kafka ------------------------------------------------------------------------------

    def to_kafka(self, source: RocketMQSource) -> Mapping[TopicPartition, int]:
        """Convert each queue to the partition of the same number.

        A record keeps its offset, or gets the next free offset if its own is already used.
        """
        self._start_meter(source)
        if self._order.run is None:
            for address in self._counts:
                self._write_partition(source, address)
        else:
            self._write_segments(source, self._order.run)
        selection = self._selection
        topics = {selection.names[topic]: numbers for topic, numbers in selection.topics.items()}
        cleaned = {
            target: min(until, self._ends[target])
            for address in self._counts
            if (until := source.compacted_until(address))
            if (target := selection.renamed(address)) in self._ends
        }
        counted = kafka_writer.complete(
            self._made,
            topics,
            self._order.target_options,
            cleaned=cleaned,
            fs=self._fs,
            clock=self._clock,
        )
        self._check(counted)
        return self._counts

    def _write_partition(self, source: RocketMQSource, address: TopicPartition) -> None:
        target = self._selection.renamed(address)
        settings = kafka_writer.settings_for(target.topic, self._order.target_options.settings)
        segments = kafka_writer.SegmentWriter(self._fs, self._made, target, settings)
        writer = kafka_writer.PartitionWriter(segments, address, may_move=True)
        try:
            for queued in source.messages(address):
                self._step()
                writer.add(queued, self._fates)
            segments.finish()
        finally:
            segments.abandon()
        if writer.records:
            self._take_pieces(address, [writer.piece()])

    def _take_pieces(
        self, address: TopicPartition, pieces: Sequence[kafka_writer.PieceOfPartition]
    ) -> None:
        self._counts[address] = sum(piece.records for piece in pieces)
        self._ends[self._selection.renamed(address)] = pieces[-1].end

    def _write_segments(self, source: RocketMQSource, run: TaskRunner) -> None:
        """Write the partitions in parts of the source."""
        from storage.conversion import kafka_tasks as parts

        names = self._selection.names
        in_log = {address: source.log_bounds(address) for address in self._counts}
        ranges = [OffsetRange(a, start, end) for a, (start, _, end) in in_log.items() if end]
        planned = parts.plan(self._order, ranges, made=self._made, names=names, clock=self._clock)
        made, settings = self._made, self._order.target_options.settings

        def compacted(but: Callable[[OffsetBounds], range]) -> parts.SegmentsDone:
            rows = (
                (address, message)
                for address in self._counts
                for message in source.compacted_messages(address, but=but(in_log[address]))
            )
            return parts.write_messages(self._fs, made, rows, names=names, settings=settings)

        done = [compacted(lambda log: range(log.start, INT64_MAX))]  # before the log's messages
        for result in run(parts.write_segments, planned):
            done.append(result)
            source.note(result.findings)
            self._tell(WHAT, len(done) - 1, len(planned))
        done.append(compacted(lambda log: range(log.end)))
        for each in done:
            self._fates.take(each.fates)
        for address, pieces in parts.put_together(self._fs, made, names, done).items():
            self._take_pieces(address, pieces)

    # ---- to RocketMQ ---------------------------------------------------------------------------

    def to_rocketmq(self, source: KafkaSource) -> Mapping[TopicPartition, int]:
        """Convert to one log, ordered by store time and then by partition; the order within a partition stays."""
        self._start_meter(source)
        options = self._order.target_options
        sizes = rocketmq_writer.sizes_for(self._made, options, fs=self._fs)
        starts = [source.bounds(address).start for address in self._counts]
        position = first_position(starts, sizes.commit_log_bytes)
        if self._order.run is None:
            written = self._write_log(source, sizes.commit_log_bytes, position)
        else:
            written = self._write_files(source, self._order.run, sizes.commit_log_bytes, position)
        self._fates.take(written.fates)
        source.note(written.findings)
        self._counts.update(written.counts)
        selection = self._selection
        self._ends |= {selection.renamed(a): end for a, end in written.ends.items()}
        topics = {
            selection.names[topic]: max(numbers) + 1 for topic, numbers in selection.topics.items()
        }
        self._check(
            rocketmq_writer.complete(self._made, topics, options, fs=self._fs, clock=self._clock)
        )
        return self._counts

    def _write_log(self, source: KafkaSource, file_bytes: int, position: int) -> Written:
        written = Written()
        writer = rocketmq_writer.LogWriter(self._fs, self._made, file_bytes, position=position)
        try:
            queues = [
                self._queued(source, queue, written.fates)
                for queue in target_queues(self._order, self._selection, file_bytes)
            ]
            write_merged(writer, queues, written)
            writer.finish(last=True)
        finally:
            writer.abandon()
        return written

    def _queued(
        self, source: KafkaSource, queue: TargetQueue, fates: Fates
    ) -> Iterator[QueuedRecord]:
        start = source.bounds(queue.source).start
        records = self._stepped(source.records(queue.source, fates))
        for place, queued in queue.messages(records, fates, next_offset=start):
            yield place, queue, queued

    def _stepped(self, records: Iterable[KafkaRecord]) -> Iterator[KafkaRecord]:
        for record in records:
            self._step()
            yield record

    def _write_files(
        self, source: KafkaSource, run: TaskRunner, file_bytes: int, position: int
    ) -> Written:
        """Write the log in parts: first of the source, then of the log."""
        from storage.conversion.rocketmq_tasks import LogInParts  # needs NumPy: for parts only

        bounds = {address: source.bounds(address) for address in self._counts}
        for address, (_, stable, end) in bounds.items():
            if stable < end:
                self._fates.hidden.add(address, stable, "", NOT_ENDED, records=end - stable)
        queues = target_queues(self._order, self._selection, file_bytes)
        work = LogInParts(self._order, queues, self._made, bounds, run, file_bytes=file_bytes)
        return work.write(position, clock=self._clock)

    # ---- both ----------------------------------------------------------------------------------

    def _check(self, counted: Mapping[TopicPartition, Contents]) -> None:
        """Compare the written records with the content of the new store."""
        reported = {}
        for address, records in self._counts.items():
            target = self._selection.renamed(address)
            reported[target] = Contents(records, self._ends.get(target))
        check_recount(self._made, reported, counted)


def first_position(starts: Iterable[int], file_bytes: int) -> int:
    """Return the start of the log. If a queue does not begin at 0, it has entries for the deleted records before it.
    For the real store these entries must point before the log start.
    """
    return file_bytes if any(starts) else 0
