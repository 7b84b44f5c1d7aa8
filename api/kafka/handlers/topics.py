"""CreateTopics, CreatePartitions and DeleteTopics.

Owns the checks that only the protocol has (replicas, assignments), and the answer of each topic. From
ReplicationControlManager and ControllerApis: a topic that is named twice in one request is refused, in one row. From
QuorumController: a request whose timeout is 0 or less is too late when it arrives, so nothing is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from api.kafka.call import Call
from api.kafka.handlers.configs import described, would_have
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
    CreatePartitionsResponseTopicResult,
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsResponse,
    CreateTopicsResponseCreatableTopicConfigs,
    CreateTopicsResponseCreatableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicsResponseDeletableTopicResult,
)
from api.kafka.refusals import code_of, message_of, refusal
from logserver.service.topics import NO_ID, check_new_name
from storage import StorageError
from storage.errors import InvalidArgument, TopicExists

CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
CREATE_PARTITIONS: Final = 37
MAX_PARTITIONS: Final = 10_000  # of a request, as of the real server
ONE_OR_DEFAULT: Final = frozenset({1, -1})
TWICE: Final = "the topic is in the request more than once"


class Refused(Exception):  # an answer, not a fault
    """A topic that the request may not create, by a rule of the protocol."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


async def create_topics(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create topics, or only check them; durable on return."""
    if request.timeout_ms <= 0:
        late: CreateTopicsResponse = refusal(CREATE_TOPICS, request, ErrorCode.REQUEST_TIMED_OUT)
        return late
    if sum(len(t.assignments) or max(t.num_partitions, 1) for t in request.topics) > MAX_PARTITIONS:
        refused: CreateTopicsResponse = refusal(CREATE_TOPICS, request, ErrorCode.POLICY_VIOLATION)
        for row in refused.topics:
            row.error_message = f"more than {MAX_PARTITIONS} partitions in one request"
        return refused
    counts = Counter(topic.name for topic in request.topics)
    rows = []
    for name, count in counts.items():
        topic = next(topic for topic in request.topics if topic.name == name)
        rows.append(
            await _created(call, topic, check_only=request.validate_only)
            if count == 1
            else CreateTopicsResponseCreatableTopicResult(
                name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=TWICE
            )
        )
    return CreateTopicsResponse(topics=rows)


async def _created(
    call: Call, topic: CreateTopicsRequestCreatableTopic, *, check_only: bool
) -> CreateTopicsResponseCreatableTopicResult:
    """Create or check one topic, and return its row."""
    try:
        configs = {config.name: config.value or "" for config in topic.configs}
        call.topics.check(topic.name)
        if topic.name in call.topics:
            raise TopicExists(f"topic {topic.name!r} exists already", topic=topic.name)
        call.service.batches.check_configs(configs)
        partitions = _partitions(topic, call.node_id)
        if check_only:
            count = await _checked(call, topic.name, partitions, configs)
            row = _row(topic.name, NO_ID, count)
            row.configs = _configs(would_have(call.service.batches, configs))
            return row
        info, is_new = await call.service.topics.create(topic.name, partitions, configs)
        if not is_new:
            raise TopicExists(f"topic {topic.name!r} exists already", topic=topic.name)
    except Refused as refused:
        return CreateTopicsResponseCreatableTopicResult(
            name=topic.name, error_code=refused.code, error_message=str(refused)
        )
    except StorageError as error:
        count_is_wrong = (
            isinstance(error, InvalidArgument) and error.facts().get("field") == "partitions"
        )
        code = ErrorCode.INVALID_PARTITIONS if count_is_wrong else code_of(error)
        return CreateTopicsResponseCreatableTopicResult(
            name=topic.name, error_code=code, error_message=message_of(error)
        )
    row = _row(topic.name, call.ids.id_of(topic.name), len(info.partitions))
    row.configs = _configs(described(call.service.batches, topic.name))
    return row


def _configs(
    configs: Iterable[tuple[str, str, int]],
) -> list[CreateTopicsResponseCreatableTopicConfigs]:
    return [
        CreateTopicsResponseCreatableTopicConfigs(
            name=name, value=value, config_source=source, read_only=False
        )
        for name, value, source in configs
    ]


def _row(name: str, topic_id: bytes, partitions: int) -> CreateTopicsResponseCreatableTopicResult:
    return CreateTopicsResponseCreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=partitions,
        replication_factor=1,
    )


async def _checked(call: Call, name: str, partitions: int | None, configs: dict[str, str]) -> int:
    """Check a topic without creating it; return its number of partitions."""
    store = call.service.store
    call.service.topics.access.check_writable()
    check_new_name(name)
    call.service.batches.check_configs(configs)
    info = await call.service.topics.access.run(store.preview_topic, name)
    return len(info.partitions) if partitions is None else partitions


def _partitions(topic: CreateTopicsRequestCreatableTopic, node_id: int) -> int | None:
    """Return the number of partitions; None: the store's default. Raises Refused."""
    if topic.assignments:
        if topic.num_partitions != -1 or topic.replication_factor != -1:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "give an assignment, or a number of partitions and replicas, not both",
            )
        numbers = sorted(assignment.partition_index for assignment in topic.assignments)
        replicas = [assignment.broker_ids for assignment in topic.assignments]
        if numbers != list(range(len(numbers))) or any(ids != [node_id] for ids in replicas):
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partitions are numbered from 0, and each has one replica, on node {node_id}",
            )
        return len(numbers)
    if topic.replication_factor not in ONE_OR_DEFAULT:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {topic.replication_factor}: there is 1 node, so it is 1 or -1",
        )
    if topic.num_partitions == -1:
        return None
    if topic.num_partitions < 1:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS, f"{topic.num_partitions} partitions: at least 1"
        )
    return topic.num_partitions


async def create_partitions(
    call: Call, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Raise the numbers of partitions of topics, or only check them; durable on return."""
    if request.timeout_ms <= 0:
        late: CreatePartitionsResponse = refusal(
            CREATE_PARTITIONS, request, ErrorCode.REQUEST_TIMED_OUT
        )
        return late
    rows = []
    counts = Counter(topic.name for topic in request.topics)
    for topic in {topic.name: topic for topic in request.topics}.values():
        row = CreatePartitionsResponseTopicResult(name=topic.name)
        try:
            _check_more(call, topic, counts[topic.name])
            if not request.validate_only:
                await call.service.topics.add_partitions(topic.name, topic.count)
        except Refused as refused:
            row.error_code, row.error_message = refused.code, str(refused)
        except InvalidArgument as error:
            row.error_code, row.error_message = ErrorCode.INVALID_PARTITIONS, message_of(error)
        except StorageError as error:
            row.error_code, row.error_message = code_of(error), message_of(error)
        rows.append(row)
    return CreatePartitionsResponse(results=rows)


def _check_more(call: Call, topic: CreatePartitionsRequestTopic, times: int) -> None:
    """Check a new number of partitions of a topic that is so many times in the request.

    Raises Refused, UnknownTopic, StoreReadOnly.
    """
    if times > 1:
        raise Refused(ErrorCode.INVALID_REQUEST, TWICE)
    call.service.topics.access.check_writable()
    info = call.topics.info(topic.name)
    present = len(info.partitions) + len(info.missing)
    if topic.count <= present:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"{topic.count} partitions: topic {topic.name!r} has {present}, and their number only grows",
        )
    if topic.assignments is not None:
        nodes = [assignment.broker_ids for assignment in topic.assignments]
        if len(nodes) != topic.count - present or any(ids != [call.node_id] for ids in nodes):
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"each new partition has one replica, on node {call.node_id}",
            )


async def delete_topics(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete topics with their records, by name or by id; durable on return."""
    if request.timeout_ms <= 0:
        late: DeleteTopicsResponse = refusal(DELETE_TOPICS, request, ErrorCode.REQUEST_TIMED_OUT)
        return late
    asked: list[tuple[str | None, bytes]] = [(name, NO_ID) for name in request.topic_names]
    asked += [(topic.name, topic.topic_id) for topic in request.topics]
    named = {call.ids.id_of(name) for name, _ in asked if name is not None and name in call.topics}
    rows = []
    for (name, topic_id), count in Counter(asked).items():
        problem = None
        if (name is None) == (topic_id == NO_ID):
            problem = "give either the name of the topic or its id"
        elif count > 1 or (name is None and topic_id in named):
            problem = TWICE
        rows.append(
            await _deleted(call, name, topic_id)
            if problem is None
            else DeleteTopicsResponseDeletableTopicResult(
                name=name,
                topic_id=topic_id,
                error_code=ErrorCode.INVALID_REQUEST,
                error_message=problem,
            )
        )
    return DeleteTopicsResponse(responses=rows)


async def _deleted(
    call: Call, name: str | None, topic_id: bytes
) -> DeleteTopicsResponseDeletableTopicResult:
    row = DeleteTopicsResponseDeletableTopicResult(name=name, topic_id=topic_id)
    found = name if name is not None else call.ids.name_of(topic_id)
    if found is None:
        row.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        return row
    try:
        call.topics.check(found)
        row.topic_id = call.ids.id_of(found)
        await call.service.topics.delete(found)
    except StorageError as error:
        row.error_code = code_of(error)
        row.error_message = message_of(error)
    row.name = found
    return row
