"""Content of config/subscriptionGroup.json: the settings of consumer groups.

Owns that content as a value; must not touch a file. Unknown members, fields and groups are kept as they are. Source:
SubscriptionGroupManager and SubscriptionGroupConfig of RocketMQ 5.5.0.

    dataVersion               counter, stateVersion, timestamp    incremented at each change
    forbiddenTable            group -> topic -> bits              not changed
    subscriptionGroupTable    group -> its settings               here only retryMaxTimes and retryQueueNums are used

A group without an entry gets one with the default settings when it first hands a message back, as in the broker
(findSubscriptionGroupConfig with autoCreateSubscriptionGroup).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from storage.retries import MAX_RETRIES, RetrySettings
from storage.rocketmq.format.config_json import decode_loosely, decode_object, encode_config
from storage.rocketmq.format.config_shapes import shape_of
from storage.rocketmq.format.names import SUBSCRIPTION_GROUPS
from storage.rocketmq.state.config_file import VERSION, next_version

TABLE: Final = "subscriptionGroupTable"
FORBIDDEN: Final = "forbiddenTable"
MAX_TIMES: Final = "retryMaxTimes"
QUEUES: Final = "retryQueueNums"
NAME: Final = "groupName"
_DEFAULTS: Final[Mapping[str, Any]] = {
    "attributes": {},
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    NAME: "",
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    MAX_TIMES: MAX_RETRIES,
    QUEUES: 1,
    "whichBrokerWhenConsumeSlowly": 1,
}


class SubscriptionGroups:
    """The content of the file. It never changes: `changed` returns a new value."""

    def __init__(self, content: Mapping[int | str, Any] | None = None) -> None:
        self._content = content or {}

    @classmethod
    def decode(cls, data: bytes) -> SubscriptionGroups:
        """Decode a file as the broker reads it. Raises Corrupt."""
        return cls(decode_object(data, shape_of(SUBSCRIPTION_GROUPS), kind=SUBSCRIPTION_GROUPS))

    @classmethod
    def decode_loosely(cls, data: bytes) -> SubscriptionGroups:
        """Decode a file that the broker cannot read. Raises Corrupt."""
        return cls(decode_loosely(data, TABLE, kind=SUBSCRIPTION_GROUPS))

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        return encode_config(self._content)

    def _entry(self, group: str) -> Mapping[str, Any] | None:
        entry = (self._content.get(TABLE) or {}).get(group)
        return entry if isinstance(entry, Mapping) else None

    def settings(self, group: str) -> RetrySettings:
        """Return a group's settings; a field that is missing or is no number has the default of the broker's class."""
        entry = self._entry(group)
        if entry is None:
            return RetrySettings()
        default = RetrySettings()
        return RetrySettings(
            _number(entry.get(MAX_TIMES), default.max_times),
            _number(entry.get(QUEUES), default.queues),
            stored=True,
        )

    def changed(
        self, group: str, *, max_times: int | None = None, now_ms: int
    ) -> SubscriptionGroups:
        """Return a copy in which the group has an entry. `max_times` None: the stored number stays."""
        entry = {**(self._entry(group) or {**_DEFAULTS, NAME: group})}
        if max_times is not None:
            entry[MAX_TIMES] = max_times
        content = {VERSION: None, FORBIDDEN: {}, **self._content}
        content[VERSION] = next_version(self._content.get(VERSION), now_ms)
        content[TABLE] = {**(self._content.get(TABLE) or {}), group: entry}
        return SubscriptionGroups(content)


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
