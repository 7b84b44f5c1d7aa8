"""Creation, change and deletion of topics on disk.

Owns the order of those steps; must not know records. A topic is created by its entry in topics.json alone. Its queues
get folders with their first records, as in the real store. Its records cannot be removed from the shared log, so a
deletion is a note that the records below a position are deleted. Once that note is durable, the rest (its queues, its
entry) is cleanup, which a start or the next deletion completes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from storage.errors import DiskFull, InvalidTopic, TopicExists
from storage.model import TopicInfo
from storage.rocketmq.format import names
from storage.rocketmq.format.suspect_fields import is_folder_name
from storage.rocketmq.state.live_data import batch_topic_refusal, compacted_topic_refusal
from storage.rocketmq.state.root import DeletedTopics, StoreDirectory
from storage.rocketmq.state.settings import check_queue_count, check_topic_config, check_topic_reset
from storage.rocketmq.state.topics_file import TopicTable


def check_new_topic(topic: str, queues: int, configs: Mapping[str, str]) -> None:
    """Raise InvalidTopic, InvalidArgument, InvalidConfig or NotOffered unless the topic can be created."""
    for name, value in configs.items():
        check_topic_config(name, value)
    check_queue_count(queues)
    names.validate_new_topic(topic)


def check_folder_name(topic: str) -> None:
    """Raise InvalidTopic for a name that is not valid for a folder."""
    if not is_folder_name(topic):
        raise InvalidTopic(f"topic {topic[:300]!r} cannot be the name of a folder", topic=topic)


def check_same_shape(
    info: TopicInfo, queues: int | None, configs: Mapping[str, str] | None
) -> None:
    """Raise TopicExists unless an existing topic has the requested shape; None: any shape.

    Raises InvalidConfig or NotOffered for configs that no topic can have.
    """
    if queues is not None and queues != len(info.partitions):
        raise TopicExists(
            f"topic {info.name!r} exists with {len(info.partitions)} partitions, not {queues}",
            topic=info.name,
        )
    if configs is None:
        return
    for name, value in configs.items():
        check_topic_config(name, value)
    wanted = TopicTable().created(info.name, len(info.partitions), configs, now_ms=0)
    if wanted.info(info.name).configs != info.configs:
        raise TopicExists(f"topic {info.name!r} exists with other configs", topic=info.name)


def check_changes(configs: Mapping[str, str | None]) -> None:
    """Raise InvalidConfig or NotOffered unless a topic's configs can be set like this; None: a reset."""
    for name, value in configs.items():
        if value is None:
            check_topic_reset(name)
        else:
            check_topic_config(name, value)


EVERYTHING: Final = 1 << 62
_NOTHING: Final[Mapping[str, int]] = {}


class DeletedRecords:
    """The records that count as deleted. `found`: topics without a note of their deletion, with the physical offset
    below which their records are deleted; `holds` and `begin` add them.
    """

    def __init__(
        self, noted: Mapping[str, int] = _NOTHING, living: frozenset[str] | None = None
    ) -> None:
        """Set the known ends. `noted`: by topic, the physical offset below which its records are deleted.

        `living`: the topics that have an entry or a folder; None if a missing topic is no proof of a deletion.
        """
        self._ends = dict(noted)
        self._living = living
        self.found: dict[str, int] = {}

    def holds(self, topic: str, physical_offset: int) -> bool:
        """Return whether a record of this topic at this offset is deleted. The broker's own topics cannot be, and a
        topic that can have no folder proves nothing by having none.
        """
        if physical_offset < self._ends.get(topic, 0):
            return True
        if self._living is None or topic in self._living:
            return False
        if names.is_system_topic(topic) or not is_folder_name(topic):
            return False
        self.begin(topic, EVERYTHING)
        return True

    def end_of(self, topic: str) -> int:
        """Return the physical offset below which the records of this topic are deleted."""
        return EVERYTHING if self.holds(topic, EVERYTHING - 1) else self._ends.get(topic, 0)

    def begin(self, topic: str, physical_offset: int) -> None:
        """Set the physical offset at which the current life of a topic begins."""
        self._ends[topic] = self.found[topic] = physical_offset


class TopicFiles:
    """The topics as recorded on disk, and the deleted topics. Not thread-safe: the store's lock guards it."""

    def __init__(
        self,
        directory: StoreDirectory,
        *,
        read_only: bool,
        forget_offsets: Callable[[Sequence[str]], None],
    ) -> None:
        """Read the topics. `forget_offsets`: removes the group offsets of deleted topics."""
        self._directory = directory
        self._forget_offsets = forget_offsets
        self._deleted = directory.deleted_topics()
        self._table = directory.topics(read_only=read_only)
        self.batch_topics = directory.batch_topics(self._table)
        self._compacted_topics = frozenset(self._table.compacted_topics)

    def check_not_compacted(self, topic: str) -> None:
        """Raise NotOffered for a topic that a broker compacts: it is read and not written."""
        if topic in self._compacted_topics:
            raise compacted_topic_refusal(topic)

    def check_offered(self, topic: str) -> None:
        """Raise NotOffered for a topic with batch queues, which `infos` does not list."""
        if topic in self.batch_topics:
            raise batch_topic_refusal(topic)

    def infos(self) -> Mapping[str, TopicInfo]:
        """Return every topic that has an entry, or a folder with queues.

        Topics with batch queues and topics with an unfinished deletion are left out.
        """
        folders = self._directory.queue_folders()
        topics = {*self._table.topics, *folders} - {*self._deleted.unfinished} - self.batch_topics
        return {topic: self.info(topic, folders.get(topic, ())) for topic in sorted(topics)}

    def info(self, topic: str, queue_ids: Iterable[int] = ()) -> TopicInfo:
        """Return one topic with the queues of its entry and `queue_ids`."""
        return self._table.info(topic, queue_ids)

    def create(
        self, topic: str, queues: int, configs: Mapping[str, str], *, now_ms: int
    ) -> TopicInfo:
        """Write a new (checked) topic; durable on return. On an error nothing has changed."""
        if topic in self._deleted.unfinished:
            self._finish(now_ms)
        self._write(self._table.created(topic, queues, configs, now_ms=now_ms))
        return self.info(topic)

    def alter(
        self, info: TopicInfo, configs: Mapping[str, str | None], *, now_ms: int
    ) -> TopicInfo:
        """Write other (checked) configs of a topic; durable on return. `info`: the topic before the change."""
        if configs:
            self._write(self._table.altered(info, configs, now_ms=now_ms))
        return self.info(info.name, info.partitions)

    def widen(self, info: TopicInfo, queues: int, *, now_ms: int) -> TopicInfo:
        """Write a larger number of queues of a topic; durable on return. `info`: the topic before the change."""
        self._write(self._table.widened(info, queues, now_ms=now_ms))
        return self.info(info.name, info.partitions)

    def _write(self, table: TopicTable) -> None:
        self._directory.write_topics(table)
        self._table = table
        self._compacted_topics = frozenset(table.compacted_topics)

    # ---- deletions ----

    @property
    def deleted(self) -> Mapping[str, int]:
        """The physical offset, by topic, below which its records are deleted."""
        return self._deleted.topics

    def deleted_records(self, *, clean: bool) -> DeletedRecords:
        """Return which records count as deleted. `clean`: the last stop was clean, so files show which topics exist."""
        living = self._directory.living_topics(self._table) if clean else None
        return DeletedRecords(self._deleted.topics, living)

    def take_in_deletions(self, found: Mapping[str, int], *, log_end: int, read_only: bool) -> None:
        """Note the topics that a start `found` deleted by others, up to the end of the log at most.

        Durable on return unless `read_only`. To be called before `abort` exists: after that the files prove no
        deletion.
        """
        ends = {topic: min(end, log_end) for topic, end in found.items()}
        self._note({**self._deleted.topics, **ends}, read_only=read_only)

    def end_deletions_at(self, log_end: int, *, read_only: bool) -> None:
        """Limit the notes of deletions to the end of the log, which may have been cut.

        Records written after it belong to no deleted topic. Durable on return unless `read_only`.
        """
        topics = {topic: min(end, log_end) for topic, end in self._deleted.topics.items()}
        self._note(topics, read_only=read_only)

    def _note(self, topics: dict[str, int], *, read_only: bool) -> None:
        if topics == self._deleted.topics:
            return
        if read_only:
            self._deleted = DeletedTopics(topics=topics, unfinished=self._deleted.unfinished)
        else:
            self._write_deleted(topics, unfinished=self._deleted.unfinished)

    def delete(self, topic: str, *, physical_offset: int, now_ms: int) -> None:
        """Delete a topic with its records, all of which are below `physical_offset`; durable on return.

        On an error before that nothing has changed. No file of its queues may be in use any more.
        """
        deleted = DeletedTopics(
            topics={**self._deleted.topics, topic: physical_offset},
            unfinished=sorted({*self._deleted.unfinished, topic}),
        )
        self._directory.write_deleted_topics(deleted)
        self._deleted = deleted
        self.finish_deletions(now_ms)

    def finish_deletions(self, now_ms: int) -> None:
        """Remove what remains of deleted topics, at a start and after each deletion.

        On a full disk the rest is removed the next time.
        """
        if not self._deleted.unfinished:
            return
        try:
            self._finish(now_ms)
        except DiskFull:
            self._table = self._table.without(self._deleted.unfinished, now_ms=now_ms)

    def _finish(self, now_ms: int) -> None:
        """Complete all deletions. A killed process may have left removals that are not on disk yet: sync them too."""
        unfinished = self._deleted.unfinished
        for topic in unfinished:
            self._remove_queues(topic)
        self._forget_offsets(unfinished)
        self._write(self._table.without(unfinished, now_ms=now_ms))
        self._directory.fs.sync_dir(self._directory.config)
        self._write_deleted(self._deleted.topics, unfinished=[])

    def _remove_queues(self, topic: str) -> None:
        fs = self._directory.fs
        for name in (names.CONSUME_QUEUE, names.QUEUE_EXTENSION):
            folder = self._directory.path / name
            if not fs.is_dir(folder):
                continue
            if topic in fs.list_dir(folder) and fs.is_dir(folder / topic):  # a name, not a path
                fs.remove_tree(folder / topic)
            fs.sync_dir(folder)

    def forget_deleted(self, min_physical_offset: int) -> None:
        """Drop the notes of deleted topics that have no record left in the log."""
        kept = {t: end for t, end in self._deleted.topics.items() if end > min_physical_offset}
        if len(kept) < len(self._deleted.topics):
            self._write_deleted(kept, unfinished=self._deleted.unfinished)

    def _write_deleted(self, topics: Mapping[str, int], *, unfinished: list[str]) -> None:
        deleted = DeletedTopics(topics=dict(topics), unfinished=unfinished)
        self._directory.write_deleted_topics(deleted)
        self._deleted = deleted
