"""The classes into which the broker reads its config files, as shapes for config_reader.

Owns the shape of each file: the typed members of ConsumerOffsetManager, LmqConsumerOffsetManager,
TopicConfigSerializeWrapper, DelayOffsetSerializeWrapper, SubscriptionGroupManager and DataVersion in 5.5.0. Must not
parse. A file that is not listed is read without a shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from storage.rocketmq.format import names
from storage.rocketmq.format.config_reader import ArrayOf, Bean, MapOf, Scalar, Shape

_VERSION: Final = Bean(
    {"counter": Scalar.NUMBER64, "stateVersion": Scalar.INT64, "timestamp": Scalar.INT64}
)
_ATTRIBUTES: Final = MapOf(Scalar.TEXT, Scalar.TEXT, allows_null=True, is_of_text=True)
_OFFSET_TABLE: Final = MapOf(Scalar.TEXT, MapOf(Scalar.NUMBER32, Scalar.NUMBER64))
_OFFSETS: Final[Mapping[str, Shape]] = {
    "dataVersion": _VERSION,
    "groupTopicMap": MapOf(Scalar.TEXT, ArrayOf(Scalar.TEXT), allows_null=True),
    "offsetTable": _OFFSET_TABLE,
    "pullOffsetTable": _OFFSET_TABLE,
}
_TOPIC: Final = Bean(
    {
        "attributes": _ATTRIBUTES,
        "order": Scalar.BOOL,
        "perm": Scalar.INT32,
        "readQueueNums": Scalar.INT32,
        "topicFilterType": Scalar.FILTER_TYPE,
        "topicName": Scalar.TEXT,
        "topicSysFlag": Scalar.INT32,
        "writeQueueNums": Scalar.INT32,
    }
)
_GROUP: Final = Bean(
    {
        "attributes": _ATTRIBUTES,
        "brokerId": Scalar.INT64,
        "consumeBroadcastEnable": Scalar.BOOL,
        "consumeEnable": Scalar.BOOL,
        "consumeFromMinEnable": Scalar.BOOL,
        "consumeMessageOrderly": Scalar.BOOL,
        "consumeTimeoutMinute": Scalar.INT32,
        "groupName": Scalar.TEXT,
        "groupSysFlag": Scalar.INT32,
        "notifyConsumerIdsChangedEnable": Scalar.BOOL,
        "retryMaxTimes": Scalar.INT32,
        "retryQueueNums": Scalar.INT32,
        "whichBrokerWhenConsumeSlowly": Scalar.INT64,
    }
)

TOPICS: Final = Bean({"dataVersion": _VERSION, "topicConfigTable": MapOf(Scalar.TEXT, _TOPIC)})
OFFSETS: Final = Bean(_OFFSETS)
LMQ_OFFSETS: Final = Bean({**_OFFSETS, "lmqOffsetTable": MapOf(Scalar.TEXT, Scalar.NUMBER64)})
_SHAPES: Final[Mapping[str, Shape]] = {
    names.TOPICS: TOPICS,
    names.OFFSETS: OFFSETS,
    names.LMQ_OFFSETS: LMQ_OFFSETS,
    names.DELAY_OFFSETS: Bean(
        {"dataVersion": _VERSION, "offsetTable": MapOf(Scalar.NUMBER32, Scalar.NUMBER64)}
    ),
    names.SUBSCRIPTION_GROUPS: Bean(
        {
            "dataVersion": _VERSION,
            "forbiddenTable": MapOf(Scalar.TEXT, MapOf(Scalar.TEXT, Scalar.NUMBER32)),
            "subscriptionGroupTable": MapOf(Scalar.TEXT, _GROUP),
        }
    ),
}


def shape_of(name: str) -> Shape:
    """Return the shape of the config file with this name, or of its `.bak`."""
    return _SHAPES.get(name.removesuffix(names.BACKUP), Scalar.ANY)
