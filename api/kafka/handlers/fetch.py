"""Fetch: batches of many partitions, as they are stored.

Owns the answer of each partition; sessions choose the partitions, the service reads and waits. From
KafkaApis.handleFetchRequest: an empty partition has empty records, never null, and an answer may be smaller than the
client allows, except for its first batch.

A client may name the epoch of the last record that it has. From Partition.readRecords: if the log has another history
before its offset, the answer says where they diverge and has no records. An epoch that the log does not know is
OFFSET_OUT_OF_RANGE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from api.kafka.call import Call
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponseEpochEndOffset,
    FetchResponseFetchableTopicResponse,
    FetchResponsePartitionData,
)
from api.kafka.refusals import code_of, end_of_epoch, epoch_code
from api.kafka.sessions import Asked, Context, RefusedSession
from logserver.errors import Busy
from logserver.service.fetch_many import FetchMany, PartitionFetch, PartitionPage
from storage import Isolation, OffsetBounds, StorageError, TopicPartition
from storage.errors import UnknownTopic

FIRST_BY_ID: Final = 13
READ_COMMITTED: Final = 1
OF_EPOCHS: Final = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)
BUSY_WAIT_S: Final = 0.1  # before an empty answer, if answers have no room: the client asks again

Row = FetchResponsePartitionData
Aborted = FetchResponseAbortedTransaction


async def fetch(call: Call, request: FetchRequest) -> FetchResponse:
    """Answer Fetch, waiting for records as the request says."""
    try:
        context = call.sessions.context(request, by_id=call.version >= FIRST_BY_ID)
    except RefusedSession as refused:
        call.errors.append(refused.code)
        return FetchResponse(error_code=refused.code)
    rows = await _rows(call, request, context)
    topics: dict[tuple[str, bytes], FetchResponseFetchableTopicResponse] = {}
    served = []
    for asked, row in zip(context.asked, rows, strict=True):
        if not context.has_news(asked, row):
            continue
        key = asked.topic, asked.topic_id
        topic = topics.setdefault(
            key, FetchResponseFetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id)
        )
        topic.partitions.append(row)
        if row.error_code:
            call.errors.append(row.error_code)
        if row.records:
            served.append(asked)
    context.note_served(served)
    return FetchResponse(session_id=context.session_id, responses=list(topics.values()))


async def _rows(call: Call, request: FetchRequest, context: Context) -> Sequence[Row]:
    """Return the row of each partition that the request asks for."""
    committed = request.isolation_level == READ_COMMITTED
    parts: list[PartitionFetch] = []
    rows: list[Row | None] = []
    checked = [_checked(call, asked) for asked in context.asked]
    diverging = await _all_diverging(call, context.asked, checked)
    for asked, (partition, code) in zip(context.asked, checked, strict=True):
        if partition is None:
            rows.append(_error_row(asked, code, aborted=None if code in OF_EPOCHS else []))
            continue
        rows.append(diverging.get(asked.key))
        if rows[-1] is not None:
            continue
        parts.append(
            PartitionFetch(
                partition, asked.wish.fetch_offset, max(asked.wish.partition_max_bytes, 0)
            )
        )
    settings = call.service.settings
    refused = len(parts) < len(rows)
    many = FetchMany(
        partitions=parts,
        max_bytes=min(max(request.max_bytes, 0), settings.max_body_bytes),
        min_bytes=request.min_bytes,
        timeout_ms=0 if refused else min(max(request.max_wait_ms, 0), settings.max_wait_ms),
        isolation=Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED,
    )
    try:
        pages = iter(await call.service.fetch_many(many, call.answer))
    except Busy:
        await asyncio.sleep(BUSY_WAIT_S)
        return [
            row or _unread_row(call, asked) for row, asked in zip(rows, context.asked, strict=True)
        ]
    filled = []
    for row, asked in zip(rows, context.asked, strict=True):
        filled.append(row or _row(call, asked, next(pages), committed=committed))
    return filled


def _checked(call: Call, asked: Asked) -> tuple[TopicPartition | None, ErrorCode]:
    """Return the address of a partition that can be read, or None and the number of the error."""
    try:
        partition = _partition(call, asked)
        code = epoch_code(call.service.batches, partition, asked.wish.current_leader_epoch)
    except UnknownTopic:
        by_name = bool(asked.topic)
        return None, (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if by_name else ErrorCode.UNKNOWN_TOPIC_ID
        )
    except StorageError as error:
        return None, code_of(error)
    return (partition if code is ErrorCode.NONE else None), code


async def _all_diverging(
    call: Call, asked: Sequence[Asked], checked: Sequence[tuple[TopicPartition | None, ErrorCode]]
) -> Mapping[tuple[str, bytes, int], Row]:
    """Return the rows of the partitions that cannot go on from the last record of the client, by partition."""
    named = [
        (one, partition)
        for one, (partition, _) in zip(asked, checked, strict=True)
        if partition is not None and one.wish.last_fetched_epoch >= 0
    ]
    if not named:
        return {}

    def found() -> Mapping[tuple[str, bytes, int], Row]:
        rows = ((one.key, _diverging(call, one, partition)) for one, partition in named)
        return {key: row for key, row in rows if row is not None}

    return await call.service.topics.access.run(found)


def _diverging(call: Call, asked: Asked, partition: TopicPartition) -> Row | None:
    """Return the row of a partition that cannot go on from the last record of the client. Blocking."""
    batches, wish = call.service.batches, asked.wish
    try:
        bounds = batches.bounds(partition)
        end = end_of_epoch(batches, partition, wish.last_fetched_epoch)
    except StorageError as error:
        return _error_row(asked, code_of(error))
    if end is None or wish.fetch_offset < bounds.start:
        return _error_row(asked, ErrorCode.OFFSET_OUT_OF_RANGE)
    if end.leader_epoch == wish.last_fetched_epoch and end.end_offset >= wish.fetch_offset:
        return None
    row = _empty_row(asked, bounds)
    row.diverging_epoch = FetchResponseEpochEndOffset(
        epoch=end.leader_epoch, end_offset=end.end_offset
    )
    return row


def _partition(call: Call, asked: Asked) -> TopicPartition:
    """Return the address of a partition. Raises UnknownTopic, UnknownPartition."""
    name = asked.topic or call.ids.name_of(asked.topic_id)
    if not name:
        raise UnknownTopic("")
    return call.topics.partition(name, asked.wish.partition)


def _row(call: Call, asked: Asked, page: PartitionPage, *, committed: bool) -> Row:
    if page.page is None:
        error = page.error
        return _error_row(
            asked, ErrorCode.UNKNOWN_SERVER_ERROR if error is None else code_of(error)
        )
    data, next_offset, bounds, aborted = page.page
    call.service.metrics.fetched(
        records=max(next_offset - asked.wish.fetch_offset, 0), size_bytes=len(data)
    )
    return Row(
        partition_index=asked.wish.partition,
        high_watermark=bounds.end,
        last_stable_offset=bounds.stable,
        log_start_offset=bounds.start,
        aborted_transactions=[
            Aborted(producer_id=producer_id, first_offset=first_offset)
            for producer_id, first_offset in aborted
        ]
        if committed
        else None,
        records=data,
    )


def _error_row(asked: Asked, code: ErrorCode, aborted: list[Aborted] | None = None) -> Row:
    """Return the row of an error; the real server has no offsets in it."""
    return Row(
        partition_index=asked.wish.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=aborted,
        records=b"",
    )


def _unread_row(call: Call, asked: Asked) -> Row:
    """Return the row of a partition that is not read, which is no error."""
    try:
        return _empty_row(asked, call.service.store.bounds(_partition(call, asked)))
    except StorageError as error:
        return _error_row(asked, code_of(error))


def _empty_row(asked: Asked, bounds: OffsetBounds) -> Row:
    """Return a row without records."""
    return Row(
        partition_index=asked.wish.partition,
        high_watermark=bounds.end,
        last_stable_offset=bounds.stable,
        log_start_offset=bounds.start,
        aborted_transactions=None,
        records=b"",
    )
