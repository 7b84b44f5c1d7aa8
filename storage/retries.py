"""Handing a message back to its group: the values, and the contract of a store that keeps retries and dead letters.

Owns these values and the contract; must not decide which group exists or who may hand back: that is the server
(`logserver/groups/retries.py`). A message that was handed back is a new record, under the names of RocketMQ:

    consumer -> send_back -> the group's retry topic, after a delay that grows with each time
                          -> the group's dead letter topic, after so many times as the group allows

    RETRY_TOPIC          property: the topic of the message that was handed back first
    ORIGIN_MESSAGE_ID    property: its id
    reconsume times      field: how often the message was handed back

From AbstractSendMessageProcessor.consumerSendMsgBack and SubscriptionGroupConfig of RocketMQ 5.5.0.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, runtime_checkable

from storage.model import TopicPartition

RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
MAX_RETRIES: Final = 16
"""How often a group's message is retried unless the group says otherwise (retryMaxTimes)."""

BY_LADDER: Final = 0
"""In place of a delay level: the third level at the first time, the fourth at the second, up to the last level."""
TO_DEAD_LETTERS: Final = -1
"""In place of a delay level: to the dead letters at once."""


class RetrySettings(NamedTuple):
    """The settings of a group's retries. `stored`: the group has settings of its own in the store.

    After `max_times` retries a message goes to the dead letters. `queues`: the number of queues of a new retry topic.
    """

    max_times: int = MAX_RETRIES
    queues: int = 1
    stored: bool = False


class SentBack(NamedTuple):
    """The new record of a message that was handed back.

    `partition` is where it is delivered: of the retry topic or, with `is_dead`, of the dead letter topic. It is
    delivered at `deliver_at_ms`, after the delay of `delay_level`; both None: at once. The new record is in
    `stored_in`, with the id `record_id`. `times`: how often the message was handed back.
    """

    partition: TopicPartition
    stored_in: TopicPartition
    record_id: str
    times: int
    is_dead: bool
    delay_level: int | None = None
    deliver_at_ms: int | None = None


@runtime_checkable
class SupportsRetry(Protocol):
    """A store with retries and dead letters of groups. Thread-safe."""

    def retry_topic(self, group: str) -> str:
        """Return the name of a group's retry topic, which may not exist yet."""

    def dead_letter_topic(self, group: str) -> str:
        """Return the name of a group's dead letter topic, which may not exist yet."""

    def retry_settings(self, group: str) -> RetrySettings:
        """Return the settings of a group's retries; the defaults for a group without settings."""

    def change_retries(self, group: str, max_times: int) -> RetrySettings:
        """Set after how many retries a message of a group is a dead letter; durable on return.

        Settings of the group that this program does not know stay. Raises InvalidArgument (group, max_times),
        StoreReadOnly, StoreFenced, DiskFull.
        """

    def send_back(
        self, group: str, record_id: str, *, level: int = BY_LADDER, max_times: int | None = None
    ) -> SentBack:
        """Append a message again, for another delivery to the group, or as a dead letter.

        - `level`: a delay level, BY_LADDER or TO_DEAD_LETTERS.
        - `max_times`: in place of the group's own setting, for this message.

        On return the new record is durable. The topic is created if it is missing, and so is the group's entry in the
        store's settings. The message itself stays; after an error, or a crash before the return, hand it back again.

        Raises RecordNotFound, InvalidArgument (group, delay_level), InvalidTopic for a message of a broker's own topic
        or a topic that cannot be written, UnrepresentableRecord if the properties have no room, NotOffered for a group
        whose settings allow no retry, StoreReadOnly, StoreFenced, DiskFull.
        """
