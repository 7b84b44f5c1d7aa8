"""Descriptions of the topic calls. Owns their texts and examples; must not handle a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from api.description.doc import Answer, Doc, Example, OneOf, plain
from api.description.parameters import TIMESTAMP
from api.handlers.topics import BoundsAnswer, ChangedTopic, NewTopic, Partition, TimedAnswer, Topic
from logserver.tokens import Scope

TAG: Final = "Topics"
_PARTITION: Final = {
    "partition": 0,
    "leader": 1,
    "replicas": [{"broker": 1, "leader": True, "in_sync": True}],
}
_TOPIC: Final = {"name": "orders", "configs": {}, "partitions": [_PARTITION]}
_JSON: Final = "application/json"

_WARNINGS: Final = {"X-Warnings": "The configs that are stored and have no effect here."}
LIST_TOPICS: Final = Doc(
    id="listTopics",
    tag=TAG,
    summary="All topics",
    answers=(Answer(200, "The names, in order.", plain(list[str])),),
    examples=(Example(answer=["orders"]),),
)
GET_TOPIC: Final = Doc(
    id="getTopic",
    tag=TAG,
    summary="One topic",
    answers=(Answer(200, "The topic with the configs that were set.", plain(Topic)),),
    errors=(40401,),
    examples=(Example(answer=_TOPIC),),
)
PUT_TOPIC: Final = Doc(
    id="createTopic",
    tag=TAG,
    summary="Create a topic",
    about="A request for an existing topic of the same shape changes nothing. The config keys are the store's own, "
    "Kafka's or RocketMQ's; values may be numbers or booleans.",
    scope=Scope.ADMIN,
    bodies=plain(NewTopic),
    body_required=False,
    answers=(
        Answer(201, "Created.", plain(Topic), _WARNINGS),
        Answer(200, "The topic exists already, in this shape.", plain(Topic), _WARNINGS),
    ),
    errors=(40901, 42203, 42205, 50302, 50701),
    examples=(
        Example(
            path={"topic": "invoices"},
            media_type=_JSON,
            body={"partitions": 1},
            status=201,
            answer={**_TOPIC, "name": "invoices"},
        ),
        Example(
            "with a config",
            path={"topic": "clicks"},
            media_type=_JSON,
            body={"partitions": 1, "configs": {"retention.ms": 60000}},
            status=201,
            answer={**_TOPIC, "name": "clicks", "configs": {"retention.ms": "60000"}},
            backends=("kafka",),
        ),
        Example("there already", media_type=_JSON, body={}, answer=_TOPIC),
    ),
)
PATCH_TOPIC: Final = Doc(
    id="alterTopic",
    tag=TAG,
    summary="Change a topic's configs",
    about="`null` resets a config; other configs stay unchanged.",
    scope=Scope.ADMIN,
    bodies=plain(ChangedTopic),
    answers=(Answer(200, "The topic after the change.", plain(Topic), _WARNINGS),),
    errors=(40401, 42205, 50701),
    examples=(
        Example(
            media_type=_JSON,
            body={"configs": {"retention.ms": "60000"}},
            answer={**_TOPIC, "configs": {"retention.ms": "60000"}},
            backends=("kafka",),
        ),
        Example(
            "of RocketMQ",
            media_type=_JSON,
            body={"configs": {"order": True}},
            answer={**_TOPIC, "configs": {"order": "true"}},
            backends=("rocketmq",),
        ),
    ),
)
DELETE_TOPIC: Final = Doc(
    id="deleteTopic",
    tag=TAG,
    summary="Delete a topic with its records",
    scope=Scope.ADMIN,
    answers=(Answer(204, "The topic and its records are deleted."),),
    errors=(40401, 42203, 50701),
    examples=(Example(status=204),),
)
LIST_PARTITIONS: Final = Doc(
    id="listPartitions",
    tag=TAG,
    summary="A topic's partitions",
    answers=(Answer(200, "The partitions, by number.", plain(Sequence[Partition])),),
    errors=(40401,),
    examples=(Example(answer=[_PARTITION]),),
)
GET_PARTITION: Final = Doc(
    id="getPartition",
    tag=TAG,
    summary="One partition",
    answers=(Answer(200, "The partition.", plain(Partition)),),
    errors=(40401, 40402, 50302),
    examples=(Example(answer=_PARTITION),),
)
GET_OFFSETS: Final = Doc(
    id="getOffsets",
    tag=TAG,
    summary="First and next offset, or the offset of a time",
    about="The end is the offset of the next record to be stored. With `timestamp` the answer is the first record at "
    "or after that time; the end and `null` if there is none.",
    query=(TIMESTAMP,),
    answers=(Answer(200, "The offsets.", plain(OneOf((BoundsAnswer, TimedAnswer)))),),
    errors=(40401, 40402, 50302, 50010),
    examples=(
        Example(answer={"beginning_offset": 0, "end_offset": 2}),
        Example(
            "of a time",
            query={"timestamp": "1760000000000"},
            answer={"offset": 0, "timestamp": 1760000000000},
        ),
    ),
)
