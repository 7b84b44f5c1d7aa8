"""OffsetCommit, OffsetFetch, OffsetDelete: the committed offsets of groups.

Owns the answer for each partition; must not know where offsets are stored. As on the real server an offset may be
committed beyond the end of its partition, and the error of one partition does not hold up the others. From version 10
on OffsetCommit and OffsetFetch name topics by id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from api.kafka.call import Call
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from api.kafka.refusals import code_of
from logserver.groups.classic.values import Caller, Refusal
from logserver.service.topics import NO_ID
from storage import CommittedOffset, StorageError, TopicPartition

NEW_GROUP_ERRORS_FROM: Final = 9
MANY_GROUPS_FROM: Final = 8
BY_ID_FROM: Final = 10
NO_OFFSET: Final = -1
NO_EPOCH: Final = -1


async def offset_commit(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commit offsets for a group: of its members, or of a client that is no member while there are none."""
    codes: dict[TopicPartition, ErrorCode] = {}
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for topic in request.topics:
        if call.version >= BY_ID_FROM:
            topic.name = call.topic_name(topic.topic_id)
        for row in topic.partitions:
            at = TopicPartition(topic.name, row.partition_index)
            if not topic.name and call.version >= BY_ID_FROM:
                codes[at] = ErrorCode.UNKNOWN_TOPIC_ID
                continue
            codes[at] = refuse_offset(call, at, row.committed_metadata)
            if codes[at] is ErrorCode.NONE:
                offsets[at] = offset_of(
                    row.committed_offset, row.committed_leader_epoch, row.committed_metadata
                )
    refused = await _committed(call, request, offsets)
    for at, code in codes.items():
        if at in offsets or (refused and code is ErrorCode.OFFSET_METADATA_TOO_LARGE):
            codes[at] = refused
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=row.partition_index,
                        error_code=codes[TopicPartition(topic.name, row.partition_index)],
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _committed(
    call: Call, request: OffsetCommitRequest, offsets: Mapping[TopicPartition, CommittedOffset]
) -> ErrorCode:
    """Commit the offsets that are good. Return the error of all of them."""
    caller = Caller(
        request.member_id, request.generation_id_or_member_epoch, request.group_instance_id
    )
    try:
        commits = call.service.groups.commits
        refusal = await commits.commit(request.group_id, caller, offsets, call.version)
    except StorageError as error:
        code = code_of(error)
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            raise
        return code
    if refusal is Refusal.GROUP_ID_NOT_FOUND and call.version < NEW_GROUP_ERRORS_FROM:
        refusal = Refusal.ILLEGAL_GENERATION
    return ErrorCode(refusal)


def refuse_offset(call: Call, at: TopicPartition, metadata: str | None) -> ErrorCode:
    """Return why the offset of one partition cannot be committed. Any number can be: kafkajs resets to -1 or -2."""
    try:
        call.topics.partition(*at)
    except StorageError as error:
        return code_of(error)
    metadata_bytes = len((metadata or "").encode())
    is_long = metadata_bytes > call.service.settings.max_group_metadata_bytes
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_long else ErrorCode.NONE


def offset_of(offset: int, leader_epoch: int, metadata: str | None) -> CommittedOffset:
    """Return the offset that a client commits."""
    return CommittedOffset(
        offset, leader_epoch=max(leader_epoch, NO_EPOCH), metadata=metadata or ""
    )


async def offset_fetch(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Return committed offsets: of one group, or from version 8 on of many. Null topics ask for all."""
    if call.version < MANY_GROUPS_FROM:
        topics: Sequence[_Asked] | None = None
        if request.topics is not None:
            topics = [
                _Asked(topic.name, NO_ID, topic.partition_indexes) for topic in request.topics
            ]
        found = await _fetched(call, request.group_id, topics, stable=request.require_stable)
        return _of_one_group(found)
    groups = []
    # A group has one row, however often it is asked for.
    for group in {group.group_id: group for group in request.groups}.values():
        topics, unknown = _asked(call, group)
        refusal = call.service.groups.commits.check_fetch(
            group.group_id, group.member_id, group.member_epoch
        )
        found = OffsetFetchResponseGroup(error_code=refusal)
        if not refusal:
            found = await _fetched(call, group.group_id, topics, stable=request.require_stable)
            found.topics += unknown
        groups.append(
            OffsetFetchResponseGroup(
                group_id=group.group_id, error_code=found.error_code, topics=found.topics
            )
        )
    return OffsetFetchResponse(groups=groups)


class _Asked(NamedTuple):
    """The partitions of a topic in a request or an answer."""

    name: str
    topic_id: bytes
    partitions: Sequence[int]


def _asked(
    call: Call, group: OffsetFetchRequestGroup
) -> tuple[Sequence[_Asked] | None, Sequence[OffsetFetchResponseTopics]]:
    """Return the partitions that a client asks for, by topic, and the answer for topic ids that do not exist."""
    if group.topics is None:
        return None, ()
    if call.version >= BY_ID_FROM:
        for topic in group.topics:
            topic.name = call.topic_name(topic.topic_id)
    unknown = [
        OffsetFetchResponseTopics(
            topic_id=topic.topic_id,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=number,
                    committed_offset=NO_OFFSET,
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                )
                for number in topic.partition_indexes
            ],
        )
        for topic in group.topics
        if call.version >= BY_ID_FROM and not topic.name
    ]
    known = [
        _Asked(topic.name, topic.topic_id, topic.partition_indexes)
        for topic in group.topics
        if call.version < BY_ID_FROM or topic.name
    ]
    return known, unknown


async def _fetched(
    call: Call,
    group: str,
    topics: Iterable[_Asked] | None,
    *,
    stable: bool,
) -> OffsetFetchResponseGroup:
    """Return the offsets of one group; NO_OFFSET for a partition without one.

    `stable`: a partition whose offset an open transaction may change gets UNSTABLE_OFFSET_COMMIT, and the client asks
    again.
    """
    if not group and not call.service.groups.commits.may_exist(group):
        return OffsetFetchResponseGroup(error_code=ErrorCode.INVALID_GROUP_ID)
    offsets = call.service.groups.offsets
    committed = await offsets.committed(group)
    unstable = await offsets.unstable(group) if stable else ()
    if topics is None:
        asked: dict[str, list[int]] = {}
        for at in sorted(committed):
            if not call.service.batches.serves(at.topic):
                continue
            if call.version >= BY_ID_FROM and at.topic not in call.topics:
                continue  # it has no id
            asked.setdefault(at.topic, []).append(at.partition)
        by_id = call.version >= BY_ID_FROM
        topics = [
            _Asked(name, call.ids.id_of(name) if by_id else NO_ID, numbers)
            for name, numbers in asked.items()
        ]
    return OffsetFetchResponseGroup(
        topics=[
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    _fetched_row(TopicPartition(topic.name, number), committed, unstable)
                    for number in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def _fetched_row(
    at: TopicPartition,
    committed: Mapping[TopicPartition, CommittedOffset],
    unstable: Collection[TopicPartition],
) -> OffsetFetchResponsePartitions:
    row = OffsetFetchResponsePartitions(partition_index=at.partition, committed_offset=NO_OFFSET)
    offset = committed.get(at)
    if at in unstable:
        row.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
    elif offset is not None:
        row.committed_offset = offset.offset
        row.committed_leader_epoch = offset.leader_epoch
        row.metadata = offset.metadata
    return row


def _of_one_group(found: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    """Return the response of the versions for one group."""
    return OffsetFetchResponse(
        error_code=found.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=row.partition_index,
                        committed_offset=row.committed_offset,
                        committed_leader_epoch=row.committed_leader_epoch,
                        metadata=row.metadata,
                        error_code=row.error_code,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in found.topics
        ],
    )


async def offset_delete(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete offsets of a group, in topics that none of its members reads."""
    groups = call.service.groups
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    subscribed = groups.commits.subscribed(request.group_id)
    if subscribed is None:
        return OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
    if not groups.modern.has(request.group_id) and await groups.view(request.group_id) is None:
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    deleted = []
    topics = []
    for topic in request.topics:
        rows = []
        for asked in topic.partitions:
            at = TopicPartition(topic.name, asked.partition_index)
            code = _refuse_delete(call, at, subscribed)
            if code is ErrorCode.NONE:
                deleted.append(at)
            rows.append(
                OffsetDeleteResponsePartition(partition_index=at.partition, error_code=code)
            )
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=rows))
    if deleted:
        await groups.offsets.delete(request.group_id, deleted)
    return OffsetDeleteResponse(topics=topics)


def _refuse_delete(call: Call, at: TopicPartition, subscribed: Collection[str]) -> ErrorCode:
    try:
        call.topics.partition(*at)
    except StorageError as error:
        return code_of(error)
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if at.topic in subscribed else ErrorCode.NONE
