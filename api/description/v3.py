"""Descriptions of the v3 API calls. Owns their texts and examples; must not handle a call."""

from __future__ import annotations

from typing import Final

from api.description.doc import Answer, Doc, Example, Lines, OneOf
from api.http.errors import JSON
from api.v3.records import (
    ProduceBatchRequest,
    ProduceBatchResponse,
    ProduceFailure,
    ProduceRequest,
    ProduceResponse,
)
from api.v3.resources import (
    ClusterData,
    CreateTopicRequest,
    Listed,
    PartitionData,
    TopicConfigData,
    TopicData,
)
from logserver.tokens import Scope

TAG: Final = "Kafka REST v3"
_TOPIC: Final = {"kind": "KafkaTopic", "topic_name": "orders", "partitions_count": 1}

LIST_CLUSTERS: Final = Doc(
    id="v3ListClusters",
    tag=TAG,
    summary="The cluster, as a list",
    answers=(Answer(200, "The one cluster that is served.", {JSON: Listed[ClusterData]}),),
    examples=(Example(answer={"kind": "KafkaClusterList"}),),
)
GET_CLUSTER: Final = Doc(
    id="v3GetCluster",
    tag=TAG,
    summary="The cluster",
    about="Of the related resources only `topics` is offered.",
    answers=(Answer(200, "The cluster.", {JSON: ClusterData}),),
    errors=(404,),
    examples=(Example(answer={"kind": "KafkaCluster"}),),
)
LIST_TOPICS: Final = Doc(
    id="v3ListTopics",
    tag=TAG,
    summary="All topics",
    answers=(Answer(200, "The topics, in order of their names.", {JSON: Listed[TopicData]}),),
    errors=(404,),
    examples=(Example(answer={"kind": "KafkaTopicList", "data": [_TOPIC]}),),
)
CREATE_TOPIC: Final = Doc(
    id="v3CreateTopic",
    tag=TAG,
    summary="Create a topic",
    about="Partitions have one replica. `replicas_assignments` and `validate_only` are not offered.",
    scope=Scope.ADMIN,
    bodies={JSON: CreateTopicRequest},
    answers=(Answer(201, "Created.", {JSON: TopicData}),),
    errors=(404, 40901, 42203, 42205, 42207, 50302, 50701),
    examples=(
        Example(
            media_type=JSON,
            body={"topic_name": "invoices", "partitions_count": 1},
            status=201,
            answer={**_TOPIC, "topic_name": "invoices"},
        ),
    ),
)
GET_TOPIC: Final = Doc(
    id="v3GetTopic",
    tag=TAG,
    summary="One topic",
    answers=(Answer(200, "The topic.", {JSON: TopicData}),),
    errors=(404, 40401),
    examples=(Example(answer=_TOPIC),),
)
DELETE_TOPIC: Final = Doc(
    id="v3DeleteTopic",
    tag=TAG,
    summary="Delete a topic with its records",
    scope=Scope.ADMIN,
    answers=(Answer(204, "The topic is deleted."),),
    errors=(404, 40401, 50701),
    examples=(Example(status=204),),
)
LIST_PARTITIONS: Final = Doc(
    id="v3ListPartitions",
    tag=TAG,
    summary="A topic's partitions",
    answers=(Answer(200, "The partitions.", {JSON: Listed[PartitionData]}),),
    errors=(404, 40401),
    examples=(Example(answer={"kind": "KafkaPartitionList"}),),
)
GET_PARTITION: Final = Doc(
    id="v3GetPartition",
    tag=TAG,
    summary="One partition",
    answers=(Answer(200, "The partition.", {JSON: PartitionData}),),
    errors=(404, 40401, 40402, 50302),
    examples=(Example(answer={"kind": "KafkaPartition", "partition_id": 0}),),
)
LIST_CONFIGS: Final = Doc(
    id="v3ListTopicConfigs",
    tag=TAG,
    summary="A topic's configs",
    about="The configs that were set; the store's defaults are not listed.",
    answers=(Answer(200, "The configs.", {JSON: Listed[TopicConfigData]}),),
    errors=(404, 40401),
    examples=(Example(answer={"kind": "KafkaTopicConfigList"}),),
)
GET_CONFIG: Final = Doc(
    id="v3GetTopicConfig",
    tag=TAG,
    summary="One config of a topic",
    answers=(Answer(200, "The config that was set.", {JSON: TopicConfigData}),),
    errors=(404, 40401),
    examples=(
        Example(
            answer={"kind": "KafkaTopicConfig", "name": "retention.ms", "value": "-1"},
            backends=("kafka",),
        ),
    ),
)
_RECORD: Final = {
    "key": {"type": "STRING", "data": "k1"},
    "value": {"type": "JSON", "data": {"total": 12}},
}
_ERRORS: Final = (404, 40401, 42203, 50302, 50701)
PRODUCE_RECORDS: Final = Doc(
    id="v3ProduceRecords",
    tag=TAG,
    summary="Produce records, as a stream",
    about="JSON objects one after the other, without a limit of time; the answer begins at once and has a report per "
    "record, in order, each ended by CR LF: `error_code` 200, or the error of that record. Read the reports while you "
    "send.",
    scope=Scope.PRODUCE,
    bodies={JSON: Lines(ProduceRequest)},
    answers=(
        Answer(
            200, "A report per record.", {JSON: Lines(OneOf((ProduceResponse, ProduceFailure)))}
        ),
    ),
    errors=_ERRORS,
    examples=(Example(media_type=JSON, body=_RECORD),),
)
PRODUCE_BATCH: Final = Doc(
    id="v3ProduceBatch",
    tag=TAG,
    summary="Produce records, as a batch",
    about="Each entry has an id of its own; its report has the same id.",
    scope=Scope.PRODUCE,
    bodies={JSON: ProduceBatchRequest},
    answers=(Answer(207, "The result of each entry.", {JSON: ProduceBatchResponse}),),
    errors=_ERRORS,
    examples=(
        Example(
            media_type=JSON,
            body={"entries": [{"id": "1", **_RECORD}, {"id": "2", "value": {"type": "AVRO"}}]},
            status=207,
            answer={
                "successes": [{"id": "1", "partition_id": 0, "offset": 2}],
                "failures": [{"id": "2", "error_code": 42207, "message": "..."}],
            },
        ),
    ),
)
