"""Metadata: the topics, their partitions, and this node as the leader of all of them.

Owns the answer, and the creation of a topic that a client asks for. From KafkaApis.handleTopicMetadataRequest: a
request of version 0 without topics, or a later one with null, asks for all topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from api.kafka.call import Call
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBrokers,
    MetadataResponseTopics,
    MetadataResponseTopicsPartitions,
)
from api.kafka.refusals import code_of
from logserver.access.tokens import Scope
from logserver.service.topics import NO_ID
from storage import StorageError, TopicInfo
from storage.errors import UnknownTopic

FIRST_WITH_ALLOW: Final = 4
FIRST_BY_ID: Final = 12
NO_LEADER: Final = -1


async def metadata(call: Call, request: MetadataRequest) -> MetadataResponse:
    """Answer Metadata."""
    names = list(call.service.topics)
    rows: list[MetadataResponseTopics] = []
    if request.topics is not None and (request.topics or call.version > 0):
        names = []
        # A topic has one row, however often it is asked for.
        for asked in {(topic.name, topic.topic_id): topic for topic in request.topics}.values():
            name = asked.name
            if name is None or (not name and asked.topic_id != NO_ID):
                name = call.ids.name_of(asked.topic_id)
            if name is None:
                rows.append(_unknown_id(call.version, asked.topic_id))
                continue
            code = await _present(call, request, name)
            if code is ErrorCode.NONE:
                names.append(name)
            else:
                rows.append(MetadataResponseTopics(error_code=code, name=name, topic_id=NO_ID))
    rows += await _described(call, names)
    return MetadataResponse(
        brokers=[
            MetadataResponseBrokers(node_id=call.node_id, host=call.node.host, port=call.node.port)
        ],
        cluster_id=call.service.cluster_id,
        controller_id=call.node_id,
        topics=rows,
    )


def _unknown_id(version: int, topic_id: bytes) -> MetadataResponseTopics:
    """Return the row of a topic that is named by an id only. Versions 10 and 11 can ask so, but not answer."""
    if version < FIRST_BY_ID:
        return MetadataResponseTopics(
            error_code=ErrorCode.INVALID_REQUEST, name="", topic_id=topic_id
        )
    return MetadataResponseTopics(
        error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
    )


async def _present(call: Call, request: MetadataRequest, name: str) -> ErrorCode:
    """Check that a topic exists, or create it if client and server both want that."""
    service = call.service
    if name in service.topics:
        return ErrorCode.NONE
    wanted = call.version < FIRST_WITH_ALLOW or request.allow_auto_topic_creation
    may = service.settings.auto_create_topics and not service.store.read_only
    try:
        if wanted and may and call.allows(Scope.PRODUCE):
            await service.producer.create_topic(name)
            return ErrorCode.NONE
        if (
            not service.store.read_only
        ):  # a name that no topic can have is final, a missing topic is not
            await service.topics.access.run(service.store.preview_topic, name)
    except StorageError as error:
        return code_of(error)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _described(call: Call, names: Sequence[str]) -> list[MetadataResponseTopics]:
    """Return the rows of topics that existed just now."""
    topics = call.service.topics
    infos = [topics[name] for name in names if name in topics]
    epochs = await call.service.leader_epochs(infos)
    rows = []
    for info, info_epochs in zip(infos, epochs, strict=True):
        try:
            topic_id = call.ids.id_of(info.name)
        except UnknownTopic:  # deleted meanwhile
            continue
        rows.append(
            MetadataResponseTopics(
                name=info.name,
                topic_id=topic_id,
                is_internal=info.internal,
                partitions=_partitions(call.node_id, info, info_epochs),
            )
        )
    return rows


def _partitions(
    node_id: int, info: TopicInfo, epochs: Sequence[int]
) -> list[MetadataResponseTopicsPartitions]:
    """Return the rows of a topic's partitions; those that are not served have no leader."""
    rows = [
        MetadataResponseTopicsPartitions(
            partition_index=number,
            leader_id=node_id,
            leader_epoch=epoch,
            replica_nodes=[node_id],
            isr_nodes=[node_id],
        )
        for number, epoch in zip(info.partitions, epochs, strict=True)
    ]
    rows += [
        MetadataResponseTopicsPartitions(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=number,
            leader_id=NO_LEADER,
            replica_nodes=[node_id],
            offline_replicas=[node_id],
        )
        for number in info.missing
    ]
    return sorted(rows, key=lambda row: row.partition_index)
