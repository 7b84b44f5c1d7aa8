"""Produce, also of batches that belong to a transaction.

Owns the meaning of acks and timeout, and the answer of each partition; must not decode records: their bytes go to the
store as they came. From KafkaApis.handleProduceRequest: with acks=0 there is no answer, and an error ends the
connection.

From version 13 on topics are named by id: they are looked up before anything else.

Partitions of a transaction are added to it by the client beforehand, or from version 12 on by this request (KIP-890).
While batches are appended the request is a member of the transaction, which ends after them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from api.kafka.answer_errors import error_codes
from api.kafka.call import PRODUCE, Call, Ended
from api.kafka.handlers.transactions import explained, unwritable
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.produce import (
    ProduceRequest,
    ProduceResponse,
    ProduceResponseBatchIndexAndErrorMessage,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from api.kafka.refusals import coordinator_code_of, message_of, produce_code_of, refusal
from logserver.errors import TimedOut, TransactionEnded, UnknownTransaction
from logserver.service.requests import Acks, AppendOutcome
from logserver.transactions.service import Member
from storage import ProducerEpoch, StorageError, TopicPartition
from storage.errors import InvalidBatch, UnknownTopic, UnrepresentableRecord

ACKS: Final = {-1: Acks.ALL, 0: Acks.NONE, 1: Acks.WRITTEN}
UNTIMED_WAIT_MS: Final = 30_000
"""The wait of a request with a timeout of 0 or less. The real server then waits for its own append, without a limit."""
BATCH_SIZE_AT: Final = 8  # i64 base offset, i32 size of what follows
BATCH_HEAD_BYTES: Final = 12
MIN_BATCH_BYTES: Final = 61
MIN_MESSAGE_BYTES: Final = 14  # of magic 0, after its head
MAGIC_AT: Final = 16
MAGIC: Final = 2
CODEC_AT: Final = 22  # bits 0-2
CODEC_MASK: Final = 7
ZSTD: Final = 4  # the last codec
ZSTD_FROM: Final = 7
ADDS_PARTITIONS_FROM: Final = 12
BY_ID_FROM: Final = 13
ABORTABLE_FROM: Final = 11
_TRIED_AGAIN: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.INVALID_TXN_STATE})
Appending = asyncio.Future[list[AppendOutcome]]


class _Part:
    """A partition of a request: its append, or the error of its batches. `code`: the number of the error, if the error
    itself does not say it.
    """

    def __init__(
        self,
        at: TopicPartition,
        appending: Appending | None,
        error: StorageError | None = None,
        code: ErrorCode | None = None,
    ) -> None:
        self.at = at
        self.appending = appending
        self.error = error
        self.code = code


async def produce(call: Call, request: ProduceRequest) -> ProduceResponse | None:
    """Append the batches of each partition, and answer when they are as durable as `acks` says."""
    acks = ACKS.get(request.acks)
    if acks is None:
        refused: ProduceResponse = refusal(PRODUCE, request, ErrorCode.INVALID_REQUIRED_ACKS)
        call.errors = error_codes(refused)
        return refused
    if call.version >= BY_ID_FROM:
        for topic in request.topic_data:
            topic.name = call.topic_name(topic.topic_id)
    client, is_durable = call.client, acks is Acks.ALL
    async with client.produce_order:
        if is_durable is not client.are_durable:
            await _all_done(client.queued)
        parts = await _queued(call, request, acks)
        appending = [part.appending for part in parts if part.appending is not None]
        client.queued, client.are_durable = appending, is_durable
    if not all(append.done() for append in appending):
        timeout_ms = request.timeout_ms if request.timeout_ms > 0 else UNTIMED_WAIT_MS
        timeout_s = min(timeout_ms, call.service.settings.max_wait_ms) / 1000
        _, late = await asyncio.wait(appending, timeout=timeout_s)
        if late:
            call.request.release_when(asyncio.gather(*late, return_exceptions=True))
    if acks is Acks.NONE:
        for part in parts:
            error = _error(part, request.timeout_ms)
            if error is not None:
                raise Ended(f"Produce with acks=0 to {part.at}: {error}")
        return None
    return _response(call, request, parts)


async def _all_done(queued: Sequence[asyncio.Future[Any]]) -> None:
    """Wait until all of these appends are made or have failed."""
    if not all(append.done() for append in queued):
        await asyncio.wait(queued)


async def _queued(call: Call, request: ProduceRequest, acks: Acks) -> Sequence[_Part]:
    """Check and queue the batches of all partitions."""
    joined = await _joined(call, request)
    parts: list[_Part] = []
    try:
        for topic in request.topic_data:
            for partition in topic.partition_data:
                at = TopicPartition(topic.name, partition.index)
                parts.append(await _submitted(call, at, partition.records, acks, joined))
                await call.give_way()  # batches are appended on the event loop
    finally:
        if joined.member is not None:
            _leave_after(joined.member, [p.appending for p in parts if p.appending is not None])
    return parts


async def _submitted(
    call: Call, at: TopicPartition, records: bytes | None, acks: Acks, joined: _Joined
) -> _Part:
    """Check and queue the batches of one partition."""
    if not at.topic and call.version >= BY_ID_FROM:
        return _Part(at, None, UnknownTopic(""), ErrorCode.UNKNOWN_TOPIC_ID)
    if joined.error is not None and (joined.is_whole or at in joined.producers):
        return _Part(at, None, joined.error, joined.code)
    try:
        records = _checked(call, at, records)
        appending = await call.service.producer.submit_batches(
            at,
            records,
            acks,
            transaction=joined.producers.get(at),
            born_host=call.client.address if call.service.store.capabilities.messages else None,
        )
    except StorageError as error:
        return _Part(at, None, error)
    return _Part(at, appending)


def _checked(call: Call, at: TopicPartition, records: bytes | None) -> bytes:
    """Return the records of a partition that may be appended. A missing partition is refused before wrong records."""
    if not records:
        call.topics.partition(*at)
        raise InvalidBatch("a partition without a record batch", field="records", position=0)
    call.topics.check(at.topic)
    try:
        _check_single(records, call.version)
    except InvalidBatch:
        call.topics.partition(*at)
        raise
    return records


def _check_single(records: bytes, version: int) -> None:
    """Raise InvalidBatch unless there is one whole batch of magic 2, with base offset 0, and a codec of this version.

    From ProduceRequest.validateRecords, LogValidator.validateBatch and ByteBufferLogInputStream: magic 0 and 1, and
    bytes that are no whole batch, are INVALID_RECORD in all versions; another magic, and a size that no batch has, are
    CORRUPT_MESSAGE. Unlike there, bytes after the batch are the store's to reject, and a codec that Kafka does not have
    is UNSUPPORTED_COMPRESSION_TYPE, where the real server fails with UNKNOWN_SERVER_ERROR.
    """
    size = _batch_size(records, 0)
    if len(records) >= BATCH_HEAD_BYTES and size < MIN_MESSAGE_BYTES:
        raise InvalidBatch(f"a record batch of {size} bytes", field="length", position=0)
    whole = BATCH_HEAD_BYTES + size
    if len(records) <= MAGIC_AT:
        raise _invalid("the data ends inside the record batch")
    if records[MAGIC_AT] > MAGIC:
        problem = f"record batch: the magic is {records[MAGIC_AT]}"
        raise InvalidBatch(problem, field="magic", position=0)
    if whole > len(records):
        raise _invalid("the data ends inside the record batch")
    if records[MAGIC_AT] < MAGIC:
        raise _invalid(f"record batch: the magic is {records[MAGIC_AT]}, of before Kafka 0.11")
    codec = records[CODEC_AT] & CODEC_MASK
    if version < ZSTD_FROM and codec >= ZSTD:
        problem = f"record batch: codec {codec} is not one of version {version} of Produce"
        raise InvalidBatch(problem, field="codec", position=0)
    if any(records[:BATCH_SIZE_AT]):
        raise _invalid("record batch: its base offset is not 0")
    if MIN_BATCH_BYTES <= whole <= len(records) - MIN_BATCH_BYTES:
        size = BATCH_HEAD_BYTES + _batch_size(records, whole)
        if MIN_BATCH_BYTES <= size <= len(records) - whole:
            raise _invalid("a request holds one record batch of a partition, not more", whole)


def _invalid(problem: str, position: int = 0) -> InvalidBatch:
    return InvalidBatch(problem, field="records", position=position)


def _batch_size(records: bytes, position: int) -> int:
    size_at = position + BATCH_SIZE_AT
    return int.from_bytes(records[size_at : position + BATCH_HEAD_BYTES], "big", signed=True)


class _Joined:
    """The transaction of a request: the producer of the partitions whose batches belong to it, and the right to append
    to them or the error of all of them. `is_whole`: it is the error of the other partitions too.
    """

    def __init__(
        self,
        producers: Mapping[TopicPartition, ProducerEpoch],
        member: Member | None = None,
        error: StorageError | None = None,
        code: ErrorCode | None = None,
        *,
        is_whole: bool = False,
    ) -> None:
        self.producers = producers
        self.member = member
        self.error = error
        self.code = code
        self.is_whole = is_whole


async def _joined(call: Call, request: ProduceRequest) -> _Joined:
    """Join the transaction of a request's transactional batches, if it has any."""
    transaction_of = call.service.transactions.transaction_of
    producers = {
        TopicPartition(topic.name, partition.index): producer
        for topic in request.topic_data
        for partition in topic.partition_data
        if partition.records and (producer := transaction_of(partition.records)) is not None
    }
    if not producers:
        return _Joined(producers)
    if request.transactional_id is None:
        error: StorageError = InvalidBatch(
            "transactional batches without a transactional id", field="attributes", position=0
        )
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _Joined(producers, error=error, code=code, is_whole=True)
    known = {at: producer for at, producer in producers.items() if unwritable(call, at) is None}
    if not known:
        return _Joined({})
    try:
        return _Joined(known, await _member(call, request.transactional_id, known))
    except StorageError as error:
        return _Joined(known, error=error, code=_transaction_code(call, error))


async def _member(
    call: Call, name: str, producers: Mapping[TopicPartition, ProducerEpoch]
) -> Member:
    """Return the right to append to partitions of a transaction."""
    producer, *others = set(producers.values())
    if others:
        raise UnknownTransaction("the transactional batches are not all of one producer and epoch")
    transactions = call.service.transactions
    await transactions.check_owner(name, producer)
    try:
        if call.version >= ADDS_PARTITIONS_FROM:
            return await transactions.join(producer, list(producers))
        return await transactions.enter(producer, list(producers))
    except TransactionEnded as error:
        raise await explained(call, name, producer, error) from error


def _transaction_code(call: Call, error: StorageError) -> ErrorCode:
    """Return the number of an error of the transaction of a request. From ReplicaManager: what a client may try again
    is NOT_ENOUGH_REPLICAS, which every version retries.
    """
    if isinstance(error, TransactionEnded) and call.version < ADDS_PARTITIONS_FROM:
        is_known = call.version >= ABORTABLE_FROM
        return ErrorCode.TRANSACTION_ABORTABLE if is_known else ErrorCode.INVALID_TXN_STATE
    code = coordinator_code_of(error, knows_fenced=False)
    return ErrorCode.NOT_ENOUGH_REPLICAS if code in _TRIED_AGAIN else code


def _leave_after(member: Member, appending: Sequence[Appending]) -> None:
    """Leave the transaction once all appends have ended or failed."""
    if not appending:
        member.leave()
        return
    ended = asyncio.gather(*appending, return_exceptions=True)
    ended.add_done_callback(lambda _: member.leave())


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


def _response(call: Call, request: ProduceRequest, parts: Sequence[_Part]) -> ProduceResponse:
    topics: dict[tuple[str, bytes], ProduceResponseTopicProduceResponse] = {}
    asked = (topic for topic in request.topic_data for _ in topic.partition_data)
    for topic, part in zip(asked, parts, strict=True):
        key = topic.name, topic.topic_id
        if key not in topics:
            topics[key] = ProduceResponseTopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id
            )
        row = _row(call, part, _error(part, request.timeout_ms))
        if row.error_code:
            call.errors.append(row.error_code)
        topics[key].partition_responses.append(row)
    return ProduceResponse(responses=list(topics.values()))


def _row(
    call: Call, part: _Part, error: StorageError | None
) -> ProduceResponsePartitionProduceResponse:
    if error is not None or part.appending is None:
        return _error_row(part, error)
    (outcome,) = part.appending.result()
    return ProduceResponsePartitionProduceResponse(
        index=part.at.partition,
        base_offset=outcome.base_offset,
        log_append_time_ms=outcome.timestamp_ms,
        log_start_offset=_log_start(call, part.at),
    )


def _error_row(part: _Part, error: StorageError | None) -> ProduceResponsePartitionProduceResponse:
    code = part.code
    if code is None:
        code = ErrorCode.UNKNOWN_SERVER_ERROR if error is None else produce_code_of(error)
    message = None if error is None else message_of(error)
    row = ProduceResponsePartitionProduceResponse(
        index=part.at.partition, error_code=code, base_offset=-1, error_message=message
    )
    if isinstance(error, UnrepresentableRecord):
        row.record_errors = [
            ProduceResponseBatchIndexAndErrorMessage(
                batch_index=index, batch_index_error_message=message if number == 0 else None
            )
            for number, index in enumerate(_indexes(error))
        ]
    return row


def _indexes(error: UnrepresentableRecord) -> Sequence[int]:
    """Return the numbers of the records that cannot be stored: clients may send the others again."""
    facts = error.facts()
    indexes = facts.get("indexes", [facts.get("index")])
    return [i for i in indexes if isinstance(i, int)] if isinstance(indexes, list) else []


def _log_start(call: Call, partition: TopicPartition) -> int:
    """Return the first offset of a partition; -1 if it was deleted meanwhile."""
    try:
        return call.service.store.bounds(partition).start
    except StorageError:
        return -1
