"""Metadata and DescribeTopicPartitions: the topics, their partitions, and this node as the leader of all of them.

Owns the answers, and the creation of a topic that a client asks for. From KafkaApis.handleTopicMetadataRequest: a
request of version 0 without topics, or a later one with null, asks for all topics. From
DescribeTopicPartitionsRequestHandler: topics come in the order of their names, from the cursor on, until as many
partitions as the client wants; the next cursor is the first partition that was left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from api.kafka.call import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, Call
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from api.kafka.refusals import code_of
from logserver.access.tokens import Scope
from logserver.service.topics import INTERNAL_TOPICS, NO_ID
from storage import StorageError, TopicInfo
from storage.errors import InvalidArgument, InvalidTopic, UnknownTopic

FIRST_WITH_ALLOW: Final = 4
FIRST_BY_ID: Final = 12
NO_LEADER: Final = -1
MAX_DESCRIBED: Final = 2000
"""Most partitions in one answer to DescribeTopicPartitions: max.request.partition.size.limit of the broker."""


async def metadata(call: Call, request: MetadataRequest) -> MetadataResponse:
    """Answer Metadata."""
    if call.version < FIRST_BY_ID and any(
        topic.name is None or topic.topic_id != NO_ID for topic in request.topics or ()
    ):
        return _refused(request)
    names = list(call.topics)
    rows: list[MetadataResponseTopic] = []
    if request.topics is not None and (request.topics or call.version > 0):
        names = []
        # A topic has one row, however often it is asked for.
        for asked in {(topic.name, topic.topic_id): topic for topic in request.topics}.values():
            name = asked.name
            if name is None or asked.topic_id != NO_ID:
                name = call.ids.name_of(asked.topic_id)
            if name is None:
                rows.append(
                    MetadataResponseTopic(
                        error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id
                    )
                )
                continue
            code = await _present(call, request, name)
            if code is ErrorCode.NONE:
                names.append(name)
            else:
                rows.append(MetadataResponseTopic(error_code=code, name=name, topic_id=NO_ID))
    rows += await _described(call, names)
    if request.include_topic_authorized_operations:
        for row in rows:
            row.topic_authorized_operations = call.operations(TOPIC_OPERATIONS)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=call.node_id, host=call.node.host, port=call.node.port)
        ],
        cluster_id=call.service.cluster_id,
        controller_id=call.node_id,
        topics=rows,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = call.operations(CLUSTER_OPERATIONS)
    return response


def _refused(request: MetadataRequest) -> MetadataResponse:
    """Refuse a whole request of version 10 or 11 that names a topic by id: these can ask so, but not answer."""
    code = ErrorCode.INVALID_REQUEST
    rows = [
        MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
        for topic in request.topics or ()
    ]
    return MetadataResponse(topics=rows)


async def _present(call: Call, request: MetadataRequest, name: str) -> ErrorCode:
    """Check that a topic exists, or create it if client and server both want that.

    A name that no topic can have is final for clients, a missing topic is not: a topic of the server's own will come.
    From DefaultAutoTopicCreationManager: the answer that creates a topic calls it unknown, and the client asks again.
    """
    service = call.service
    if name in call.topics:
        return ErrorCode.NONE
    wanted = call.version < FIRST_WITH_ALLOW or request.allow_auto_topic_creation
    may = service.settings.auto_create_topics and not service.store.read_only
    try:
        service.batches.check_name(name)
        if wanted and may and name not in INTERNAL_TOPICS and call.allows(Scope.PRODUCE):
            await service.producer.create_topic(name)
    except StorageError as error:
        return code_of(error)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _described(call: Call, names: Sequence[str]) -> list[MetadataResponseTopic]:
    """Return the rows of topics that existed just now."""
    topics = call.topics
    infos = [topics[name] for name in names if name in topics]
    epochs = await call.service.leader_epochs(infos)
    rows = []
    for info, info_epochs in zip(infos, epochs, strict=True):
        try:
            topic_id = call.ids.id_of(info.name)
        except UnknownTopic:  # deleted meanwhile
            continue
        rows.append(
            MetadataResponseTopic(
                name=info.name,
                topic_id=topic_id,
                is_internal=info.internal,
                partitions=_partitions(call.node_id, info, info_epochs),
            )
        )
    return rows


def _partitions(
    node_id: int, info: TopicInfo, epochs: Sequence[int]
) -> list[MetadataResponsePartition]:
    """Return the rows of a topic's partitions; those that are not served have no leader."""
    rows = [
        MetadataResponsePartition(
            partition_index=number,
            leader_id=node_id,
            leader_epoch=epoch,
            replica_nodes=[node_id],
            isr_nodes=[node_id],
        )
        for number, epoch in zip(info.partitions, epochs, strict=True)
    ]
    rows += [
        MetadataResponsePartition(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=number,
            leader_id=NO_LEADER,
            replica_nodes=[node_id],
            offline_replicas=[node_id],
        )
        for number in info.missing
    ]
    return sorted(rows, key=lambda row: row.partition_index)


async def describe_topic_partitions(
    call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Describe topics, or all of them, one page at a time."""
    cursor = request.cursor
    first = "" if cursor is None else cursor.topic_name
    asked = {topic.name for topic in request.topics} or set(call.topics)
    names = sorted(name for name in asked if name >= first)
    if cursor is not None:
        if cursor.partition_index < 0:
            raise InvalidArgument(
                f"the cursor is at partition {cursor.partition_index}, it must be 0 or more",
                field="cursor",
            )
        if request.topics and first not in asked:
            raise InvalidArgument(
                f"the cursor is at topic {first!r}, which is not asked for", field="cursor"
            )
    left = max(1, min(request.response_partition_limit, MAX_DESCRIBED))
    skips = {} if cursor is None else {first: cursor.partition_index}
    page = _page(call, names, skips, left)
    found = {row.name: row for row in await _described(call, page)}
    response = DescribeTopicPartitionsResponse()
    if len(page) < len(names):
        response.next_cursor = _cursor(names[len(page)], 0)
    for name in page:
        skipped = skips.get(name, 0)
        if not left:
            response.next_cursor = _cursor(name, 0)
            break
        row = found.get(name)
        if row is None:
            response.topics.append(_undescribed(call, name))
            continue
        partitions = row.partitions[skipped : skipped + left]
        response.topics.append(_description(row, partitions))
        left -= len(partitions)
        if skipped + len(partitions) < len(row.partitions):
            response.next_cursor = _cursor(name, skipped + len(partitions))
            break
    for topic in response.topics:
        topic.topic_authorized_operations = call.operations(TOPIC_OPERATIONS)
    return response


def _page(
    call: Call, names: Sequence[str], skips: Mapping[str, int], partitions: int
) -> Sequence[str]:
    """Return the first of these topics, until they have so many partitions after the skipped ones."""
    for at, name in enumerate(names):
        if partitions <= 0:
            return names[:at]
        info = call.topics.get(name)
        if info is not None:
            count = len(info.partitions) + len(info.missing)
            partitions -= max(0, count - skips.get(name, 0))
    return names


def _cursor(name: str, number: int) -> DescribeTopicPartitionsResponseCursor:
    return DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=number)


def _undescribed(call: Call, name: str) -> DescribeTopicPartitionsResponseTopic:
    """Return the row of a topic that does not exist, or cannot exist."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        call.service.batches.check_name(name)
    except InvalidTopic as error:
        code = code_of(error)
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)


def _description(
    row: MetadataResponseTopic, partitions: Sequence[MetadataResponsePartition]
) -> DescribeTopicPartitionsResponseTopic:
    """Return a topic with some of its partitions. No replica is ever waited for: nothing is known of eligible ones."""
    return DescribeTopicPartitionsResponseTopic(
        name=row.name,
        topic_id=row.topic_id,
        is_internal=row.is_internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=one.error_code,
                partition_index=one.partition_index,
                leader_id=one.leader_id,
                leader_epoch=one.leader_epoch,
                replica_nodes=one.replica_nodes,
                isr_nodes=one.isr_nodes,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=one.offline_replicas,
            )
            for one in partitions
        ],
    )
