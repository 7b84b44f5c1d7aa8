"""Messages that a group hands back: the record of a retry or a dead letter, and the settings of groups.

Owns the fields of these records and config/subscriptionGroup.json; must not deliver: the schedule does. Source:
AbstractSendMessageProcessor.consumerSendMsgBack and HookUtils.handleScheduleMessage of RocketMQ 5.5.0.

    retry          a record of SCHEDULE_TOPIC_XXXX for queue 0 of %RETRY%GROUP; the level is 3 + reconsumeTimes at most
    dead letter    a record of queue 0 of %DLQ%GROUP, as soon as reconsumeTimes has reached retryMaxTimes
    both           body, flags, tags, keys, born time and host of the message; reconsumeTimes + 1; RETRY_TOPIC and
                   ORIGIN_MESSAGE_ID of the message that was handed back first; WAIT=false; DELAY is the level, or 0

    step    find the message -> entry of the group -> topic -> append -> sync the log, show the record

So a crash loses no message that was answered as handed back, and an earlier one leaves at most an empty topic. The
broker answers with success, and drops the message, if a group has no retry queue; this is an error here.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from storage.coding.varint import INT32_MAX
from storage.contract import Clock
from storage.errors import InvalidArgument, InvalidTopic, NotOffered
from storage.files import Fence
from storage.model import AppendResult, DelayLevel, RawMessage, TopicInfo, TopicPartition
from storage.retries import (
    BY_LADDER,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    TO_DEAD_LETTERS,
    RetrySettings,
    SentBack,
)
from storage.rocketmq.format import names
from storage.rocketmq.format.message_id import offset_id
from storage.rocketmq.format.properties import (
    CRC32,
    DELAY,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    WAIT,
    decode_properties,
    encode_properties,
)
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.log.reading import locator_text
from storage.rocketmq.log.record_run import SEQUENCE_PROPERTY
from storage.rocketmq.lookup.find import LocatedMessage
from storage.rocketmq.state.groups_file import SubscriptionGroups
from storage.rocketmq.state.root import StoreDirectory

FIRST_LEVEL: Final = 3
PERM: Final = "perm"
PERM_WRITE: Final = 2
GROUP_LIMIT: Final = names.MAX_RETRY_TOPIC_LENGTH - len(names.RETRY_PREFIX)
_GROUP: Final = re.compile(rf"[%|A-Za-z0-9_-]{{1,{GROUP_LIMIT}}}")
_DROPPED: Final = (SEQUENCE_PROPERTY, CRC32)
"""Of the record that is handed back: the mark of its producer belongs to its queue, and the checksum to its bytes."""
_TIMERS: Final = (TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS)
"""A message with a delay level is not one for the timer (HookUtils.checkIfTimerMessage)."""


class Home(Protocol):
    """The methods of the store that retries need."""

    def message_by_id(self, record_id: str) -> LocatedMessage:
        """Return a message. Raises RecordNotFound."""

    def queues_of(self, topic: str) -> Sequence[Queue]:
        """Return the queues of a topic; none if it does not exist."""

    def preview_topic(self, topic: str) -> TopicInfo:
        """See LogStore.preview_topic."""

    def create_topic(self, topic: str, partitions: int | None = None) -> TopicInfo:
        """See LogStore.create_topic."""

    def append_messages(
        self,
        partition: TopicPartition,
        messages: Sequence[RawMessage],
        *,
        publish: bool = True,
        is_stored: bool = False,
    ) -> AppendResult:
        """See RocketMQStore.append_messages and SupportsRawMessages.append_messages."""

    def flush(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """See LogStore.flush."""


class Retries:
    """The retries of one store: see storage.retries.SupportsRetry. Thread-safe."""

    def __init__(
        self,
        home: Home,
        directory: StoreDirectory,
        fence: Fence,
        clock: Clock,
        levels: Sequence[DelayLevel],
    ) -> None:
        self._home = home
        self._directory = directory
        self._fence = fence
        self._clock = clock
        self._levels = levels
        self._lock = threading.Lock()  # for the groups, and for topics that are created
        self._groups: SubscriptionGroups | None = None  # read when it is first needed

    # ---- settings of groups ----

    def settings(self, group: str) -> RetrySettings:
        """See SupportsRetry.retry_settings."""
        with self._lock:
            return self._known().settings(group)

    def change(self, group: str, max_times: int) -> RetrySettings:
        """See SupportsRetry.change_retries."""
        check_group(group)
        if not -1 <= max_times <= INT32_MAX:
            raise InvalidArgument(
                f"max_times is {max_times}: need -1 to {INT32_MAX}", field="max_times"
            )
        with self._lock:
            self._write(self._known().changed(group, max_times=max_times, now_ms=self._clock()))
            return self._known().settings(group)

    def _known(self) -> SubscriptionGroups:
        if self._groups is None:
            self._groups = self._directory.subscription_groups()
        return self._groups

    def _write(self, groups: SubscriptionGroups) -> None:
        with self._fence.guarding():
            self._directory.write_subscription_groups(groups)
        self._groups = groups

    def _joined(self, group: str) -> RetrySettings:
        """Return the settings of a group, with an entry of its own from now on."""
        with self._lock:
            found = self._known().settings(group)
            if not found.stored:
                self._write(self._known().changed(group, now_ms=self._clock()))
            return found

    # ---- messages ----

    def send_back(
        self, group: str, record_id: str, *, level: int = BY_LADDER, max_times: int | None = None
    ) -> SentBack:
        """See SupportsRetry.send_back."""
        check_group(group)
        if not TO_DEAD_LETTERS <= level <= len(self._levels):
            raise InvalidArgument(
                f"delay_level is {level}: need 1 to {len(self._levels)}, or {BY_LADDER} for the group's ladder, or "
                f"{TO_DEAD_LETTERS} for the dead letters",
                field="delay_level",
            )
        found = self._home.message_by_id(record_id)
        if names.is_closed_topic(found.message.topic):
            raise InvalidTopic(
                f"message {record_id!r} is of topic {found.message.topic!r}, a broker's own: only messages that a "
                "consumer was given can be handed back",
                topic=found.message.topic,
            )
        settings = self._joined(group)
        if settings.queues <= 0:
            raise NotOffered(
                f"group {group!r} has no retry queue (retryQueueNums is {settings.queues}): set it to 1 or more in "
                f"{names.SUBSCRIPTION_GROUPS}",
                feature="retry",
            )
        limit = settings.max_times if max_times is None else max_times
        times = _times(found)
        if level == TO_DEAD_LETTERS or times >= limit:
            return self._to_dead_letters(group, found)
        level = level or min(FIRST_LEVEL + times, len(self._levels))
        # The broker takes a queue at random. Here the same message has the same queue.
        number = found.physical_offset % settings.queues
        target = TopicPartition(retry_topic(group), number)
        self._ensure(target.topic, settings.queues)
        return self._to_retry(target, found, level)

    def _to_dead_letters(self, group: str, found: LocatedMessage) -> SentBack:
        target = TopicPartition(dead_letter_topic(group), 0)
        self._ensure(target.topic, 1)
        result = self._append(target, found, {DELAY: "0"})
        times = _times(found) + 1
        return SentBack(target, target, locator_text(result.locators[0]), times, is_dead=True)

    def _to_retry(self, target: TopicPartition, found: LocatedMessage, level: int) -> SentBack:
        waiting = TopicPartition(names.SCHEDULE_TOPIC, level - 1)
        properties = {
            DELAY: str(level),
            REAL_TOPIC: target.topic,
            REAL_QUEUE_ID: str(target.partition),
        }
        result = self._append(waiting, found, properties)
        return SentBack(
            target,
            waiting,
            locator_text(result.locators[0]),
            _times(found) + 1,
            is_dead=False,
            delay_level=level,
            deliver_at_ms=result.timestamp_ms + self._levels[level - 1].delay_ms,
        )

    def _append(
        self, target: TopicPartition, found: LocatedMessage, properties: Mapping[str, str]
    ) -> AppendResult:
        """Append the new record of a message; durable and visible on return."""
        again = [_again(found, properties)]
        result = self._home.append_messages(target, again, publish=False, is_stored=True)
        self._home.flush([target])
        return result

    def _ensure(self, topic: str, queues: int) -> None:
        """Create a topic if it is missing, as createTopicInSendMessageBackMethod does. Raises InvalidTopic if it cannot
        be written.
        """
        with self._lock:
            if not self._home.queues_of(topic):
                self._home.create_topic(topic, queues)
        perm = self._home.preview_topic(topic).configs.get(PERM, "")
        if perm.isdecimal() and not int(perm) & PERM_WRITE:
            raise InvalidTopic(
                f"topic {topic!r} cannot be written: its perm is {perm}", topic=topic
            )


def retry_topic(group: str) -> str:
    """Return the name of a group's retry topic (MixAll.getRetryTopic)."""
    return names.RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the name of a group's dead letter topic (MixAll.getDLQTopic)."""
    return names.DEAD_LETTER_PREFIX + group


def check_group(group: str) -> None:
    """Raise InvalidArgument for a group whose retry topic could not exist."""
    if _GROUP.fullmatch(group) is None:
        raise InvalidArgument(
            f"group {group[:80]!r} is not 1 to {GROUP_LIMIT} of A-Z a-z 0-9 % | _ -", field="group"
        )


def _times(found: LocatedMessage) -> int:
    """Return how often a message was handed back. No checksum covers the field: a number that no broker counted to is
    limited, so that it gives a level and can be counted on.
    """
    return min(max(found.message.reconsume_times, 0), INT32_MAX - 1)


def _again(found: LocatedMessage, changed: Mapping[str, str]) -> RawMessage:
    """Return the record of a message that is handed back. Raises UnrepresentableRecord if its properties get too
    long.
    """
    message = found.message
    stored = decode_properties(message.properties)
    properties = {name: value for name, value in stored.items() if name not in _DROPPED}
    if REAL_TOPIC in changed:
        properties = {name: value for name, value in properties.items() if name not in _TIMERS}
    properties.setdefault(RETRY_TOPIC, message.topic)
    if not properties.get(ORIGIN_MESSAGE_ID, "").strip():
        properties[ORIGIN_MESSAGE_ID] = offset_id(message.store_host, found.physical_offset)
    properties |= {WAIT: "false", **changed}
    return RawMessage(
        message.body,
        encode_properties(properties),
        message.flag,
        message.sys_flag,
        message.born_timestamp_ms,
        message.born_host,
        _times(found) + 1,
    )
