"""Messages that a group hands back: a delivery again, later, and dead letters in the end.

Owns which group may hand back, and the convention of stores without retries of their own (Kafka's format, memory):
topics GROUP.retry and GROUP.dlq, with one partition unless they exist, and these headers. Must not know HTTP. Where the
store has retries itself (`SupportsRetry`, RocketMQ's format), it does the work. Use it on the event loop only.

    __retry_topic         topic of the record that was handed back first
    __retry_message_id    its id: TOPIC:PARTITION:OFFSET
    __retry_times         how often the record was handed back
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from logserver.errors import InvalidGroup, UnknownGroup
from logserver.groups.config import check_group_name
from logserver.groups.overview import Groups
from logserver.service.memory_budget import MemoryBudget
from logserver.service.requests import AppendOutcome, Produce
from logserver.service.topics import TopicCatalog, check_open
from storage import (
    BY_LADDER,
    MAX_RETRIES,
    TO_DEAD_LETTERS,
    Record,
    RetrySettings,
    SentBack,
    StoredRecord,
    SupportsRetry,
    TopicPartition,
)
from storage.errors import InvalidArgument, NotOffered, RecordNotFound

RETRY_SUFFIX: Final = ".retry"
DEAD_LETTER_SUFFIX: Final = ".dlq"
ORIGINAL_TOPIC: Final = "__retry_topic"
ORIGINAL_ID: Final = "__retry_message_id"
TIMES: Final = "__retry_times"
PREFIX: Final = "__retry_"
MAX_DIGITS: Final = 6

Append: TypeAlias = Callable[[Produce], Awaitable[list[AppendOutcome]]]


class GroupRetries(NamedTuple):
    """The retries of a group: after how many a message is a dead letter, and the topics, which may not exist yet."""

    max_times: int
    retry_topic: str
    dead_letter_topic: str


class Retries:
    """The retries of all groups of one server. `append`: stores a produce request."""

    def __init__(
        self, topics: TopicCatalog, groups: Groups, budget: MemoryBudget, append: Append
    ) -> None:
        self._topics = topics
        self._access = topics.access
        self._groups = groups
        self._budget = budget
        self._append = append

    async def settings(self, group: str) -> GroupRetries:
        """Return the retries of a group. Raises InvalidGroup, UnknownGroup."""
        return self._described(group, await self._known(group))

    async def change(self, group: str, max_times: int) -> GroupRetries:
        """Set after how many retries a message is a dead letter; durable on return. A missing group gets settings.

        Raises InvalidGroup, InvalidArgument, NotOffered on Kafka's format, StoreReadOnly.
        """
        self._access.check_writable()
        self._check_name(group)
        store = self._access.store
        if not isinstance(store, SupportsRetry):
            raise NotOffered(
                f"the {store.capabilities.backend} backend keeps no settings of groups: every group has {MAX_RETRIES} "
                "retries; give max_times with each message instead",
                feature="retry-settings",
            )
        try:
            changed = await self._access.run(store.change_retries, group, max_times)
        except InvalidArgument as error:
            raise _named(error) from error
        return self._described(group, changed)

    async def send_back(
        self,
        group: str,
        message_id: str,
        *,
        level: int = BY_LADDER,
        max_times: int | None = None,
    ) -> SentBack:
        """Hand a message back: see `SupportsRetry.send_back`. Where topics are used, the delay must be BY_LADDER or
        TO_DEAD_LETTERS, the retry is at once, and the new record is as durable as the flush mode requires.

        Raises InvalidGroup, UnknownGroup, RecordNotFound, InvalidArgument, InvalidTopic, NotOffered, StoreReadOnly, ...
        """
        self._access.check_writable()
        await self._known(group)
        store = self._access.store
        if not isinstance(store, SupportsRetry):
            return await self._by_topics(group, message_id, level, max_times)
        call = partial(store.send_back, group, message_id, level=level, max_times=max_times)
        try:
            sent = await self._access.run(call)
        except InvalidArgument as error:
            raise _named(error) from error
        await self._topics.refresh([sent.partition, sent.stored_in])
        self._access.waiters.notify(sent.stored_in)
        return sent

    async def id_at(self, partition: TopicPartition, offset: int) -> str:
        """Return the id of the record at an offset. Raises RecordNotFound, OffsetOutOfRange, UnknownTopic, Corrupt."""
        store = self._access.store
        page = await self._access.run(partial(store.read, partition, offset, max_records=1))
        if not page.records or page.records[0].offset != offset:
            place = f"{partition.topic}:{partition.partition}:{offset}"
            raise RecordNotFound(f"no record is at {place}", id=place)
        locator = page.records[0].locator if store.capabilities.messages else offset
        return store.record_id(partition, locator)

    # -- internal

    async def _known(self, group: str) -> RetrySettings:
        """Return the settings of a group with settings, members or committed offsets. Raises InvalidGroup,
        UnknownGroup.
        """
        self._check_name(group)
        store = self._access.store
        found = RetrySettings()
        if isinstance(store, SupportsRetry):
            found = await self._access.run(store.retry_settings, group)
        await self._groups.loaded()
        if found.stored or self._groups.members(group):
            return found
        if not await self._groups.offsets.committed(group):
            raise UnknownGroup(group)
        return found

    def _check_name(self, group: str) -> None:
        check_group_name(group, rocketmq=self._access.store.capabilities.messages)

    def _described(self, group: str, settings: RetrySettings) -> GroupRetries:
        store = self._access.store
        if isinstance(store, SupportsRetry):
            names = store.retry_topic(group), store.dead_letter_topic(group)
        else:
            names = group + RETRY_SUFFIX, group + DEAD_LETTER_SUFFIX
        return GroupRetries(settings.max_times, *names)

    async def _by_topics(
        self, group: str, message_id: str, level: int, max_times: int | None
    ) -> SentBack:
        """Append the record to the group's topic of retries or of dead letters."""
        store = self._access.store
        if level not in (BY_LADDER, TO_DEAD_LETTERS):
            raise NotOffered(
                f"delay_level: delays are not offered by the {store.capabilities.backend} backend: a retry is at once",
                feature="delay",
            )
        found, record = await self._access.run(store.find_by_id, message_id)
        check_open(self._topics.info(found.topic))
        times = _times(record)
        is_dead = level == TO_DEAD_LETTERS or times >= (
            MAX_RETRIES if max_times is None else max_times
        )
        described = self._described(group, RetrySettings())
        topic = described.dead_letter_topic if is_dead else described.retry_topic
        if topic not in self._topics:
            await self._topics.create(topic, 1, None)
        again = _again(record, found.topic, message_id, times + 1)
        size_bytes = len(record.key or b"") + len(record.value or b"")
        with self._budget.reserve(size_bytes) as reservation:
            (outcome,) = await self._append(
                Produce(
                    topic=topic, records=[again], reservation=reservation, size_bytes=size_bytes
                )
            )
        if outcome.error is not None:
            raise outcome.error
        target = TopicPartition(topic, outcome.partition)
        record_id = store.record_id(target, outcome.base_offset)
        return SentBack(target, target, record_id, times + 1, is_dead=is_dead)


def _named(error: InvalidArgument) -> InvalidArgument | InvalidGroup:
    """Return the error of a group's name in the form of all errors of groups; any other error unchanged."""
    if error.facts().get("field") == "group":
        return InvalidGroup(error.message, field="group")
    return error


def _times(record: StoredRecord) -> int:
    """Return how often a record was handed back, by its headers; 0 for a value that this server did not write."""
    for name, value in reversed(record.headers):
        if name == TIMES:
            text = (value or b"").decode(errors="replace")
            is_number = text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
            return int(text) if is_number else 0
    return 0


def _again(record: StoredRecord, topic: str, message_id: str, times: int) -> Record:
    """Return the record of a retry or dead letter: key, value and headers of the record, and its origin."""
    known = {name: value for name, value in record.headers if name.startswith(PREFIX)}
    headers: Sequence[tuple[str, bytes | None]] = [
        *((name, value) for name, value in record.headers if name not in {ORIGINAL_TOPIC, ORIGINAL_ID, TIMES}),
        (ORIGINAL_TOPIC, known.get(ORIGINAL_TOPIC) or topic.encode()),
        (ORIGINAL_ID, known.get(ORIGINAL_ID) or message_id.encode()),
        (TIMES, str(times).encode()),
    ]  # fmt: skip
    return Record(record.key, record.value, headers)
