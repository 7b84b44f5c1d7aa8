"""The conversion of a whole store: the order of the steps, and the report.

Owns the selection of topics, the order of the new log, and the offsets; must not change the source. The rule for a
record is in `rule`. Memory: the memory of the sources and writers, for Kafka -> RocketMQ of every partition at once.

    source -> rule -> logs in DIR.unfinished-TIME -> the engine's own recovery -> DIR
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from storage.contract import Clock, OffsetRange, OnForeseen, Progress, TaskRunner
from storage.conversion import kafka_logs, mapping, rocketmq_log
from storage.conversion.counters import Fates, Tally
from storage.conversion.earlier import REPORT, replaced
from storage.conversion.foresight import foreseen
from storage.conversion.records import QueuedMessage
from storage.conversion.request import Order
from storage.conversion.selection import Selection
from storage.conversion.sources import NOT_ENDED, KafkaSource, RocketMQSource, Source
from storage.conversion.topic_names import topic_name
from storage.errors import (
    Corrupt,
    InvalidArgument,
    InvalidTopic,
    UnknownTopic,
    UnrepresentableRecord,
)
from storage.files import FileSystem, write_durably
from storage.model import (
    ConversionReport,
    ConvertedTopic,
    TopicPartition,
)
from storage.shared.atomic_store import new_store
from storage.shared.recount import Contents, check_recount
from storage.shown import encode_json

WHAT: Final = "converting"
TOLD_EVERY: Final = 10_000
KAFKA: Final = "kafka"
ROCKETMQ: Final = "rocketmq"
MOVED: Final = "at another offset than before"


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


def select(source: Source, order: Order, fates: Fates) -> Selection:
    """Return the selected topics; topics whose names the target does not allow are counted in `fates`.

    Raises UnknownTopic.
    """
    found = source.topics()
    for topic in order.topics:
        if topic not in found:
            raise UnknownTopic(topic)
    selection = Selection()
    for topic in order.topics or [t for t in found if not source.is_internal(t)]:
        try:
            name = _new_name(topic, order, selection.names.values())
        except InvalidTopic as error:
            _leave_out(source, topic, found[topic], error.message, fates.left_out)
            continue
        if name != topic:
            for number in found[topic]:
                _tell_all(source, TopicPartition(topic, number), f"is {name!r}", fates.encoded)
        selection.topics[topic] = found[topic]
        selection.names[topic] = name
    return selection


def _new_name(topic: str, order: Order, others: Collection[str]) -> str:
    """Return the topic's name in the target. Raises InvalidTopic."""
    name = topic_name(topic, to=order.to, encode=order.encode)
    if name in others:
        raise InvalidTopic(f"topic name {topic!r}: another topic is {name!r} there", topic=topic)
    return name


def _leave_out(
    source: Source, topic: str, partitions: Sequence[int], why: str, tally: Tally
) -> None:
    for number in partitions:
        _tell_all(source, TopicPartition(topic, number), why, tally)


def _tell_all(source: Source, address: TopicPartition, why: str, tally: Tally) -> None:
    start, stable, _ = source.bounds(address)
    if stable > start:
        tally.add(address, start, "topic", why, records=stable - start)


def make_report(
    order: Order,
    selection: Selection,
    fates: Fates,
    counts: Mapping[TopicPartition, int],
    source: Source,
) -> ConversionReport:
    """Return the report; `counts` are the records of each source partition that are in the target."""
    topics = [
        ConvertedTopic(
            topic=topic,
            name=selection.names[topic],
            partitions=len(numbers),
            records=sum(counts.get(TopicPartition(topic, number), 0) for number in numbers),
        )
        for topic, numbers in selection.topics.items()
    ]
    return ConversionReport(
        source=str(order.source),
        target=str(order.target),
        backend=KAFKA if order.to == ROCKETMQ else ROCKETMQ,
        to=order.to,
        records=sum(counts.values()),
        topics=topics,
        left_out=fates.left_out.notes(),
        encoded=fates.encoded.notes(),
        moved=fates.moved.notes(),
        hidden=fates.hidden.notes(),
        findings=source.findings(),
    )


def write_report(fs: FileSystem, root: Path, report: ConversionReport) -> None:
    """Write the report to the new store; durable on return."""
    write_durably(fs, root / REPORT, msgspec.json.format(encode_json(report)))
    fs.sync_dir(root)


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

    def _count(self, address: TopicPartition, offset: int, placed: int) -> None:
        self._counts[address] += 1
        self._ends[self._selection.renamed(address)] = placed + 1
        if placed != offset:
            self._fates.moved.add(address, offset, "offset", MOVED)

    def _step(self) -> None:
        self._done += 1
        if self._done % TOLD_EVERY == 0:
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
        self._check(
            kafka_logs.complete(
                self._made, topics, self._order.target_options, fs=self._fs, clock=self._clock
            )
        )
        return self._counts

    def _write_partition(self, source: RocketMQSource, address: TopicPartition) -> None:
        target = self._selection.renamed(address)
        settings = kafka_logs.settings_for(target.topic, self._order.target_options.settings)
        writer = kafka_logs.SegmentWriter(self._fs, self._made, target, settings)
        next_offset = 0
        try:
            for queued in source.messages(address):
                self._step()
                try:
                    record = mapping.to_kafka(queued)
                except Corrupt as error:
                    self._fates.left_out.add(address, queued.offset, "body", error.message)
                    continue
                placed = max(record.offset, next_offset)
                next_offset = placed + 1
                writer.add(record._replace(offset=placed))
                self._count(address, record.offset, placed)
            writer.finish()
        finally:
            writer.abandon()

    def _write_segments(self, source: RocketMQSource, run: TaskRunner) -> None:
        """Write the partitions in parts of the source."""
        from storage.conversion import (
            segments_in_parts as parts,  # needs NumPy: for parts only
        )

        names = self._selection.names
        ranges = [OffsetRange(a, *source.bounds(a)[::2]) for a in self._counts]
        planned = parts.plan(self._order, ranges, made=self._made, names=names, clock=self._clock)
        done = []
        for result in run(parts.write_segments, planned):
            self._fates.take(result.fates)
            source.note(result.findings)
            done.append(result)
            self._tell(WHAT, len(done), len(planned))
        for address, pieces in parts.put_together(self._fs, self._made, names, done).items():
            self._counts[address] = sum(piece.records for piece in pieces)
            self._ends[self._selection.renamed(address)] = pieces[-1].end

    # ---- to RocketMQ ---------------------------------------------------------------------------

    def to_rocketmq(self, source: KafkaSource) -> Mapping[TopicPartition, int]:
        """Convert to one log, ordered by store time and then by partition; the order within a partition stays."""
        self._start_meter(source)
        options = self._order.target_options
        sizes = rocketmq_log.sizes_for(self._made, options, fs=self._fs)
        starts = [source.bounds(address).start for address in self._counts]
        position = first_position(starts, sizes.commit_log_bytes)
        if self._order.run is None:
            self._write_log(source, sizes.commit_log_bytes, position)
        else:
            self._write_files(source, self._order.run, sizes.commit_log_bytes, position)
        selection = self._selection
        topics = {
            selection.names[topic]: max(numbers) + 1 for topic, numbers in selection.topics.items()
        }
        self._check(
            rocketmq_log.complete(self._made, topics, options, fs=self._fs, clock=self._clock)
        )
        return self._counts

    def _write_log(self, source: KafkaSource, file_bytes: int, position: int) -> None:
        writer = rocketmq_log.LogWriter(self._fs, self._made, file_bytes, position=position)
        try:
            streams = [
                self._stream(source, number, address, file_bytes)
                for number, address in enumerate(self._counts)
            ]
            for _, _, address, queued in heapq.merge(*streams):
                writer.add(self._selection.renamed(address), queued)
            writer.finish(last=True)
        finally:
            writer.abandon()

    def _write_files(
        self, source: KafkaSource, run: TaskRunner, file_bytes: int, position: int
    ) -> None:
        """Write the log in parts: first of the source, then of the log."""
        from storage.conversion.log_in_parts import LogInParts  # needs NumPy: for parts only

        bounds = {address: source.bounds(address) for address in self._counts}
        for address, (_, stable, end) in bounds.items():
            if stable < end:
                self._fates.hidden.add(address, stable, "", NOT_ENDED, records=end - stable)
        work = LogInParts(
            self._order, self._selection, self._made, bounds, run, file_bytes=file_bytes
        )
        written = work.write(position, clock=self._clock)
        self._fates.take(written.fates)
        source.note(written.findings)
        self._counts.update(written.counts)
        for address, end in written.ends.items():
            self._ends[self._selection.renamed(address)] = end

    def _stream(
        self, source: KafkaSource, number: int, address: TopicPartition, file_bytes: int
    ) -> Iterator[tuple[int, int, TopicPartition, QueuedMessage]]:
        """Yield (time that orders the log, `number`, partition, message) of each record."""
        name = self._selection.renamed(address).topic
        latest_ms = 0
        next_offset = source.bounds(address).start
        for record in source.records(address, self._fates):
            self._step()
            try:
                queued, problems = mapping.to_rocketmq(
                    record, least_store_ms=latest_ms, encode=self._order.encode
                )
                rocketmq_log.check_size(name, queued, file_bytes)
            except UnrepresentableRecord as error:
                told = str(error.facts().get("field", ""))
                self._fates.left_out.add(address, record.offset, told, error.message)
                continue
            for problem in problems:
                self._fates.encoded.add(address, record.offset, problem.field, problem.problem)
            latest_ms = max(latest_ms, queued.store_timestamp_ms)
            self._count(address, record.offset, next_offset)
            yield latest_ms, number, address, queued._replace(offset=next_offset)
            next_offset += 1

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


def check_direction(backend: str, to: str) -> None:
    """Raise InvalidArgument unless a store of `backend` can be converted to `to`."""
    if to not in (KAFKA, ROCKETMQ):
        raise InvalidArgument(f"to {to!r}: choose kafka or rocketmq", field="to")
    if backend == to:
        raise InvalidArgument(
            f"the source is a {to} store already: copy the directory, or use `logserver salvage`",
            field="to",
        )
