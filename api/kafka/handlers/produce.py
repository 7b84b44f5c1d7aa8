"""Produce and InitProducerId.

Owns the meaning of acks and timeout, and the answer of each partition; must not decode records: their bytes go to the
store as they came. From KafkaApis.handleProduceRequest: with acks=0 there is no answer, and an error ends the
connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from api.kafka.call import PRODUCE, Call, Ended
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceResponseResponses,
    ProduceResponseResponsesPartitionResponses,
    ProduceResponseResponsesPartitionResponsesRecordErrors,
)
from api.kafka.refusals import produce_code_of, refusal
from logserver.errors import TimedOut
from logserver.service.requests import Acks, AppendOutcome
from storage import StorageError, TopicPartition
from storage.errors import InvalidBatch, UnrepresentableRecord

ACKS: Final = {-1: Acks.ALL, 0: Acks.NONE, 1: Acks.WRITTEN}
Appending = asyncio.Future[list[AppendOutcome]]


class _Part(NamedTuple):
    """A partition of a request: its append, or the error of its batches."""

    topic: str
    partition: int
    appending: Appending | None
    error: StorageError | None


async def produce(call: Call, request: ProduceRequest) -> ProduceResponse | None:
    """Append the batches of each partition, and answer when they are as durable as `acks` says."""
    acks = ACKS.get(request.acks)
    if acks is None:
        refused: ProduceResponse = refusal(PRODUCE, request, ErrorCode.INVALID_REQUIRED_ACKS)
        return refused
    async with call.client.produce_order:
        parts = [
            await _submitted(call, topic.name, partition.index, partition.records, acks)
            for topic in request.topic_data
            for partition in topic.partition_data
        ]
    appending = [part.appending for part in parts if part.appending is not None]
    if appending:
        timeout_s = min(max(request.timeout_ms, 0), call.service.settings.max_wait_ms) / 1000
        _, late = await asyncio.wait(appending, timeout=timeout_s or None)
        if late:
            call.request.release_when(asyncio.gather(*late, return_exceptions=True))
    if acks is Acks.NONE:
        for part in parts:
            error = _error(part, request.timeout_ms)
            if error is not None:
                raise Ended(f"Produce with acks=0 to {part.topic}-{part.partition}: {error}")
        return None
    return _response(call, parts, request.timeout_ms)


async def _submitted(
    call: Call, topic: str, number: int, records: bytes | None, acks: Acks
) -> _Part:
    """Check and queue the batches of one partition."""
    try:
        if not records:
            raise InvalidBatch("a partition without a record batch", field="records", position=0)
        partition = TopicPartition(topic, number)
        appending = await call.service.producer.submit_batches(partition, records, acks)
    except StorageError as error:
        return _Part(topic, number, None, error)
    return _Part(topic, number, appending, None)


def _error(part: _Part, timeout_ms: int) -> StorageError | None:
    """Return the error of a part. Raises any other exception, which is a bug."""
    if part.appending is None:
        return part.error
    if not part.appending.done():
        return TimedOut(
            f"the write was not confirmed within {timeout_ms} ms: it may still be stored",
            timeout_ms=timeout_ms,
        )
    error = part.appending.exception()
    if error is None or isinstance(error, StorageError):
        return error
    raise error


def _response(call: Call, parts: Sequence[_Part], timeout_ms: int) -> ProduceResponse:
    topics: dict[str, ProduceResponseResponses] = {}
    for part in parts:
        topic = topics.setdefault(part.topic, ProduceResponseResponses(name=part.topic))
        topic.partition_responses.append(_row(call, part, _error(part, timeout_ms)))
    return ProduceResponse(responses=list(topics.values()))


def _row(
    call: Call, part: _Part, error: StorageError | None
) -> ProduceResponseResponsesPartitionResponses:
    if error is not None or part.appending is None:
        return _error_row(part.partition, error)
    (outcome,) = part.appending.result()
    return ProduceResponseResponsesPartitionResponses(
        index=part.partition,
        base_offset=outcome.base_offset,
        log_append_time_ms=outcome.timestamp_ms,
        log_start_offset=_log_start(call, TopicPartition(part.topic, part.partition)),
    )


def _error_row(
    number: int, error: StorageError | None
) -> ProduceResponseResponsesPartitionResponses:
    code = ErrorCode.UNKNOWN_SERVER_ERROR if error is None else produce_code_of(error)
    message = None if error is None else error.message
    row = ProduceResponseResponsesPartitionResponses(
        index=number, error_code=code, base_offset=-1, error_message=message
    )
    index = None if error is None else error.facts().get("index")
    if isinstance(error, UnrepresentableRecord) and isinstance(index, int):
        row.record_errors.append(
            ProduceResponseResponsesPartitionResponsesRecordErrors(
                batch_index=index, batch_index_error_message=message
            )
        )
    return row


def _log_start(call: Call, partition: TopicPartition) -> int:
    """Return the first offset of a partition; -1 if it was deleted meanwhile."""
    try:
        return call.service.store.bounds(partition).start
    except StorageError:
        return -1


async def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Hand out a producer id for an idempotent producer. Transactions are not offered."""
    if request.transactional_id is not None:
        return InitProducerIdResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, producer_id=-1, producer_epoch=-1
        )
    return InitProducerIdResponse(producer_id=await call.service.producer.new_id())
