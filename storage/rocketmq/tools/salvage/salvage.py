"""Salvage: a new store with all good records of a damaged store.

Owns the order of the steps, the files other than the log, and the report; must not change the source.
survey.py checks the log, log.py writes the new log.

    survey -> log with blanks -> config, queues without records -> the engine's own recovery: queues,
    index, checkpoint

Physical offsets stay the same, and with them message ids, with one exception: the log begins with its first possible
file, and a queue has a hole. Each missing offset becomes a filler. When the real store meets a filler, it skips all
records in the first possible log file. So all records are moved by one file length, and the first file is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from storage.contract import Clock, StoreOptions
from storage.errors import DataError, UnsupportedFormat
from storage.files import FileSystem, HandleCache, copy_range
from storage.findings import finding
from storage.model import Finding, KeptRange, Loss, LossReport, TopicPartition
from storage.rocketmq.format import names
from storage.rocketmq.format.config_json import decode_config
from storage.rocketmq.format.config_shapes import shape_of
from storage.rocketmq.index.light_queues import is_lmq
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.state import live_data
from storage.rocketmq.state.file_listing import unread_findings
from storage.rocketmq.state.root import DeletedTopics, StoreDirectory, StoreFile
from storage.rocketmq.state.settings import LOG_FOLDERS, Sizes
from storage.rocketmq.store import open_rocketmq
from storage.rocketmq.tools.dump import bad_small_file, is_config_name
from storage.rocketmq.tools.rebuild.recount import count_records
from storage.rocketmq.tools.salvage.blocked import blocked_findings
from storage.rocketmq.tools.salvage.check import SalvageCheck
from storage.rocketmq.tools.salvage.compacted import copy_compacted
from storage.rocketmq.tools.salvage.log import write_log
from storage.rocketmq.tools.salvage.survey import Survey, odd_files
from storage.rocketmq.tools.salvage.timers import copy_timers
from storage.rocketmq.tools.unrecovered import UnrecoveredFiles
from storage.shared.atomic_store import new_store
from storage.shared.diagnostics import Meter
from storage.shared.loss_report import SALVAGE_REPORT, lost_bytes, write_report
from storage.shared.recount import Contents, check_recount

WHAT: Final = "salvaging"
REFUSED_RECORD: Final = "impossible-queue-offset"


class Salvage:
    """One salvage of the log of `source`, with the other files of the store in `directory`, if there is a store."""

    def __init__(
        self,
        source: UnrecoveredFiles,
        sizes: Sizes,
        options: StoreOptions,
        *,
        path: Path,
        directory: StoreDirectory | None,
        clock: Clock,
    ) -> None:
        self._source = source
        self._sizes = sizes
        self._options = options
        self._path = path
        self._directory = directory
        self._clock = clock
        self._fs: FileSystem = source.run.files.fs
        self.findings: list[Finding] = []
        self._losses: list[Loss] = []

    def run(self, target: Path) -> LossReport:
        inside = [self._path if self._fs.is_dir(self._path, follow=True) else self._path.parent]
        if self._directory is not None:
            inside.append(self._directory.path)
            live_data.refuse_dledger(self._directory)
        now_ms = self._clock()
        with new_store(self._fs, target, sources=inside, now_ms=now_ms) as made:
            survey = self._survey()
            while survey.lives.begun:  # recreated topics, now known to `source`
                survey = self._survey()
            self._losses += survey.losses()
            moved_bytes = self._moved_bytes(survey)
            self.findings += survey.findings
            self.findings += survey.evidence_findings()
            self._write(made, survey, moved_bytes)
            kept = self._finish(made, survey, target)
            report = replace(
                self._report(survey, kept), target=str(target), moved_bytes=moved_bytes
            )
            write_report(self._fs, made / SALVAGE_REPORT, report)
        return report

    def _survey(self) -> Survey:
        source = self._source
        return Survey(source, Meter(self._options.progress, WHAT, source.end - source.start)).run()

    def _moved_bytes(self, survey: Survey) -> int:
        run = self._source.run
        in_first_file = self._source.start < run.file_bytes
        return run.file_bytes if in_first_file and survey.has_holes else 0

    # ---- the new store -------------------------------------------------------------------------

    def _write(self, made: Path, survey: Survey, moved_bytes: int) -> None:
        files = HandleCache(self._fs, self._options.open_files)
        try:
            file_bytes = self._source.run.file_bytes
            log = FileSequence(files, made / names.COMMIT_LOG, file_bytes, kind=names.COMMIT_LOG)
            self._fs.make_dir(log.directory)
            self.findings += write_log(survey, log, moved_bytes=moved_bytes)
        finally:
            files.close(sync=False)
        self._copy_quiet(made, survey)
        self._make_lmqs(made)
        target = StoreDirectory(self._fs, made)
        next_producer_id = 0
        if self._directory is not None:
            self._copy_config(self._directory, target)
            self._copy_deleted(self._directory, target, survey.end, moved_bytes)
            next_producer_id = self._next_producer_id(self._directory)
            self._copy_compacted(self._directory, target)
            is_copied = copy_timers(self._directory, target, survey, moved_bytes=moved_bytes)
            self._note_left_out(self._directory, with_timers=not is_copied)
            head_deleted = self._source.start > 0
            self.findings += blocked_findings(
                self._directory, survey.queues, head_deleted=head_deleted
            )
        facts = StoreFile(sizes=self._sizes, next_producer_id=next_producer_id)
        target.write_store_file(facts)

    def _copy_compacted(self, source: StoreDirectory, target: StoreDirectory) -> None:
        files = HandleCache(self._fs, self._options.open_files)
        try:
            self.findings += copy_compacted(source, target, files)
        finally:
            files.close(sync=False)

    def _copy_quiet(self, made: Path, survey: Survey) -> None:
        """Copy the files of queues without records: consumer offsets depend on the next offsets of these queues."""
        for queue in survey.quiet_queues():
            topic, queue_id = queue.partition
            folder = made / names.CONSUME_QUEUE / topic / str(queue_id)
            self._fs.make_dir(folder)
            run = queue.units.run
            for base in run.bases:
                copy_range(self._fs, run.path(base), folder / names.file_name(base), start=0)
            for synced in (folder, folder.parent, folder.parent.parent):
                self._fs.sync_dir(synced)
        for topic in {topic for topic, _ in survey.queues}:  # else it might count as deleted
            self._fs.make_dir(made / names.CONSUME_QUEUE / topic)

    def _make_lmqs(self, made: Path) -> None:
        """Create the folders of LMQ queues: the engine fills only existing LMQ queues."""
        for queue in self._source.queues:
            if is_lmq(queue.partition.topic):
                topic, queue_id = queue.partition
                folder = made / names.CONSUME_QUEUE / topic / str(queue_id)
                self._fs.make_dir(folder)
                for synced in (folder, folder.parent, folder.parent.parent):
                    self._fs.sync_dir(synced)

    def _copy_config(self, source: StoreDirectory, target: StoreDirectory) -> None:
        """Copy the broker's config files byte for byte; a damaged file is replaced by its `.bak`."""
        fs = self._fs
        if not fs.is_dir(source.config):
            return
        fs.make_dir(target.config)
        for name in fs.list_dir(source.config):
            path = source.config / name
            if fs.is_dir(path) or name.endswith(names.TEMPORARY) or live_data.is_timer_file(name):
                continue
            good = path if self._is_good(path) else path.with_name(name + names.BACKUP)
            if good == path or (fs.exists(good) and self._is_good(good)):
                copy_range(fs, good, target.config / name, start=0)
        fs.sync_dir(target.config)

    def _is_good(self, path: Path) -> bool:
        """Return whether a config file can be parsed; note a finding if not."""
        if not is_config_name(path.name):
            return True
        data = self._fs.read_bytes(path)
        try:
            decode_config(data, shape_of(path.name))
        except DataError as error:
            backup = path.with_name(path.name + names.BACKUP)
            if not data and not self._fs.exists(backup):
                return False  # an empty file is not damage, but a start would refuse it
            found = bad_small_file(path, error)
            if found not in self.findings:
                self.findings.append(found)
            return False
        return True

    def _copy_deleted(
        self, source: StoreDirectory, target: StoreDirectory, log_end: int, moved_bytes: int
    ) -> None:
        deleted = source.deleted_topics()
        ends = {**deleted.topics, **self._source.deleted.found}
        if ends or deleted.unfinished:
            topics = {topic: min(end, log_end) + moved_bytes for topic, end in ends.items()}
            content = DeletedTopics(topics=topics, unfinished=deleted.unfinished)
            target.write_deleted_topics(content)

    def _next_producer_id(self, source: StoreDirectory) -> int:
        try:
            stored = source.store_file()
        except UnsupportedFormat as error:
            self._note("bad-root-file", source.path, error.message)
            return 0
        return 0 if stored is None else stored.next_producer_id

    def _note_left_out(self, source: StoreDirectory, *, with_timers: bool) -> None:
        """Report files that are not derived from the log, or refer to it in a way that is not supported here."""
        self.findings += source.findings
        self.findings += live_data.database_findings(source)
        self.findings += live_data.batch_topic_findings(source, self._source.queues.batch_topics)
        self.findings += live_data.left_behind(source, with_timers=with_timers)

    def _note(self, code: str, path: Path, message: str) -> None:
        self.findings.append(finding(code, path, message=message))

    # ---- the engine's part, and the report -----------------------------------------------------

    def _finish(self, made: Path, survey: Survey, target: Path) -> list[KeptRange]:
        """Open the new store, so that queues and index are built, and stop it. It is in `made` now, and will be in
        `target`.
        """
        sizes = self._sizes
        settings = {
            **{name: v for name, v in self._options.settings.items() if name not in LOG_FOLDERS},
            "mappedFileSizeCommitLog": str(sizes.commit_log_bytes),
            "mappedFileSizeConsumeQueue": str(sizes.consume_queue_bytes),
            "maxHashSlotNum": str(sizes.index_slots),
            "maxIndexNum": str(sizes.index_entries),
        }
        # Groups keep their offsets. If records below a group's offset are lost, its queue continues above that offset.
        options = replace(self._options, settings=settings, accept_loss=True)
        store = open_rocketmq(made, options, fs=self._fs, clock=self._clock, read_only=False)
        with store:
            found = store.recovery.findings
            self.findings += [
                _moved(f, made, target) for f in found if f.code not in live_data.NO_LOSSES
            ]
            addresses = [
                TopicPartition(name, number)
                for name, info in store.topics().items()
                for number in info.partitions
            ]
            counted = count_records(store, addresses)
            check_recount(made, _reported(survey, found, counted), counted)
            check = SalvageCheck(survey, store).run(self._losses)
            self._losses += check.losses
            self.findings += [_moved(f, made, target) for f in check.findings]
            return [
                self._kept(survey, address, store.bounds(address), counted[address])
                for address in addresses
            ]

    def _kept(
        self,
        survey: Survey,
        address: TopicPartition,
        bounds: tuple[int, int, int],
        contents: Contents,
    ) -> KeptRange:
        found = survey.queues.get((address.topic, address.partition))
        first, _, end = bounds
        return KeptRange(
            topic=address.topic,
            partition=address.partition,
            first_offset=first,
            next_offset=end,
            records=0 if found is None else contents.records,
            size_bytes=0 if found is None else found.size_bytes,
        )

    def _report(self, survey: Survey, kept: list[KeptRange]) -> LossReport:
        source = self._source
        self.findings += unread_findings(source.run.files.fs)
        losses = [*self._losses, *odd_files(self.findings, source.run)]
        lost = lost_bytes(losses)
        behind = max(source.end - max(survey.end, source.start), 0) - survey.lost_tail_bytes
        blank_bytes = survey.blank_bytes + behind
        return LossReport(
            store=str(self._path),
            losses=losses,
            lost_bytes=lost,
            findings=self.findings,
            kept=kept,
            kept_records=survey.records - _unread(survey, kept),
            log_bytes=survey.kept_bytes + blank_bytes + lost,
            kept_bytes=survey.kept_bytes,
            blank_bytes=blank_bytes,
        )


def _moved(found: Finding, made: Path, target: Path) -> Finding:
    """Return a finding of the new store with its final path."""
    path = Path(found.path)
    if not path.is_relative_to(made):
        return found
    message = found.message.replace(str(made), str(target))  # it may name other files
    return replace(found, path=str(target / path.relative_to(made)), message=message)


def _unread(survey: Survey, kept: Iterable[KeptRange]) -> int:
    """Return the number of records in the new log that no reader of their queue gets."""
    records = {(found.topic, found.partition): found.records for found in kept}
    return sum(max(queue.records - records.get(key, 0), 0) for key, queue in survey.queues.items())


def _reported(
    survey: Survey, findings: Iterable[Finding], counted: Mapping[TopicPartition, Contents]
) -> Mapping[TopicPartition, Contents]:
    """Return the number of records that readers of each queue should get.

    If several records have the same offset, only one of them has an entry; each of them was reported. The start that
    built the queues decided which.
    """
    refused = Counter(
        (found.topic, found.partition) for found in findings if found.code == REFUSED_RECORD
    )
    reported = {}
    for key, queue in survey.queues.items():
        address = TopicPartition(*key)
        most = queue.records - refused[key]
        found = counted.get(address, Contents(0, 0)).records
        reported[address] = Contents(min(max(found, most - queue.repeated), most), None)
    return reported
