"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn: the producer's part of transactions.

Owns what differs between the versions of these requests; must not know the states of a transaction, which the
coordinator owns. From KafkaApis and TransactionCoordinator. With transaction.version 2 (KIP-890) a client sends no
AddPartitionsToTxn nor AddOffsetsToTxn: Produce 12 and TxnOffsetCommit 5 add by themselves, and EndTxn 5 returns the
next epoch. Requests wait where the real coordinator answers CONCURRENT_TRANSACTIONS.

    request               PRODUCER_FENCED from version; before it INVALID_PRODUCER_EPOCH
    InitProducerId        4
    AddPartitionsToTxn    2
    AddOffsetsToTxn       2
    EndTxn                2
    TxnOffsetCommit       never, as in Produce
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from api.kafka.call import Call
from api.kafka.handlers.group_offsets import offset_of, refuse_offset
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.produce import InitProducerIdRequest, InitProducerIdResponse
from api.kafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from api.kafka.refusals import code_of, coordinator_code_of
from api.kafka.transaction_refusals import added, committed
from logserver.errors import TransactionEnded
from logserver.groups.classic.values import Caller, Refusal
from logserver.service.topics import check_open
from storage import CommittedOffset, ProducerEpoch, StorageError, TopicPartition
from storage.errors import FencedProducer, InvalidTopic, StoreReadOnly

NO_PRODUCER: Final = -1
OLD_TRANSACTIONS: Final = 0
"""The transaction.version of clients that add partitions by a request."""
ENDS_WITH_EPOCH_FROM: Final = 5
ADDS_OFFSETS_FROM: Final = 5
ABORTABLE_FROM: Final = 4
INIT_KNOWS_FENCED_FROM: Final = 4
KNOWS_FENCED_FROM: Final = 2


def _code(error: StorageError, *, knows_fenced: bool) -> ErrorCode:
    """Return the number of an error; raises the error if it has none."""
    code = coordinator_code_of(error, knows_fenced=knows_fenced)
    if code is ErrorCode.UNKNOWN_SERVER_ERROR:
        raise error
    return code


async def explained(
    call: Call, transactional_id: str, producer: ProducerEpoch, error: StorageError
) -> StorageError:
    """Return the error of a request that came too late as the protocol has it: the end of a transaction by its
    time-out, which raised the epoch, fences its producer.
    """
    if isinstance(error, TransactionEnded):
        state = await call.service.transactions.state(transactional_id)
        if state is not None and (state.producer_id, state.epoch) != producer:
            return FencedProducer(
                error.message,
                producer_id=producer.producer_id,
                epoch=producer.epoch,
                current_epoch=state.epoch,
            )
    return error


async def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Hand out a producer id for an idempotent producer, or the next epoch of a transactional id."""
    name = request.transactional_id
    has_id, has_epoch = request.producer_id != NO_PRODUCER, request.producer_epoch != NO_PRODUCER
    if has_id != has_epoch or name == "":
        return _no_producer(ErrorCode.INVALID_REQUEST)
    if name is None:
        try:
            return InitProducerIdResponse(producer_id=await call.service.producer.new_id())
        except StoreReadOnly:  # final: after another number a client would ask again and again
            return _no_producer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    known = ProducerEpoch(request.producer_id, request.producer_epoch) if has_id else None
    try:
        producer = await call.service.transactions.initialise(
            name, request.transaction_timeout_ms, known
        )
    except StorageError as error:
        return _no_producer(_code(error, knows_fenced=call.version >= INIT_KNOWS_FENCED_FROM))
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def _no_producer(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


async def add_partitions(
    call: Call, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add partitions to a transaction: all of them, or none if one does not exist."""
    name = request.v3_and_below_transactional_id
    producer = ProducerEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    partitions = [
        TopicPartition(topic.name, number)
        for topic in request.v3_and_below_topics
        for number in topic.partitions
    ]
    missing: dict[TopicPartition, ErrorCode] = {}
    for at in partitions:
        await call.give_way()
        if code := _refuse_partition(call, at):
            missing[at] = code
    if missing:
        return added(request, ErrorCode.OPERATION_NOT_ATTEMPTED, missing)
    if not name:
        return added(request, ErrorCode.INVALID_REQUEST)
    transactions = call.service.transactions
    try:
        await transactions.check_owner(name, producer)
        member = await transactions.join(producer, partitions, version=OLD_TRANSACTIONS)
    except StorageError as error:
        error = await explained(call, name, producer, error)
        return added(request, _join_code(error, knows_fenced=call.version >= KNOWS_FENCED_FROM))
    member.leave()
    return added(request, ErrorCode.NONE)


def _join_code(error: StorageError, *, knows_fenced: bool) -> ErrorCode:
    """Return the number of an error of a request that adds something to a transaction."""
    if isinstance(error, TransactionEnded):  # its end is not complete yet: a later attempt can help
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return _code(error, knows_fenced=knows_fenced)


def _refuse_partition(call: Call, at: TopicPartition) -> ErrorCode:
    error = unwritable(call, at)
    if isinstance(error, InvalidTopic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE if error is None else code_of(error)


def unwritable(call: Call, at: TopicPartition) -> StorageError | None:
    """Return why clients cannot write to a partition; None if they can. A topic of the server's own state is closed to
    them, also to the markers of their transactions.
    """
    topics = call.topics
    try:
        topics.partition(*at)
        check_open(topics.info(at.topic))
    except StorageError as error:
        return error
    return None


async def add_offsets(call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Add the offsets of a group to a transaction."""
    name = request.transactional_id
    producer = ProducerEpoch(request.producer_id, request.producer_epoch)
    transactions = call.service.transactions
    if not name:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        await transactions.check_owner(name, producer)
        member = await transactions.join_offsets(
            producer, request.group_id, version=OLD_TRANSACTIONS
        )
    except StorageError as error:
        error = await explained(call, name, producer, error)
        code = _join_code(error, knows_fenced=call.version >= KNOWS_FENCED_FROM)
        return AddOffsetsToTxnResponse(error_code=code)
    member.leave()
    return AddOffsetsToTxnResponse()


async def commit_offsets(call: Call, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Commit offsets of a group in a transaction: they count once it is committed."""
    codes: dict[TopicPartition, ErrorCode] = {}
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for topic in request.topics:
        for row in topic.partitions:
            await call.give_way()
            at = TopicPartition(topic.name, row.partition_index)
            code = refuse_offset(call, at, row.committed_metadata)
            if code is ErrorCode.NONE:
                offsets[at] = offset_of(
                    row.committed_offset, row.committed_leader_epoch, row.committed_metadata
                )
            else:
                codes[at] = code
    return committed(request, await _committed(call, request, offsets), codes)


async def _committed(
    call: Call, request: TxnOffsetCommitRequest, offsets: Mapping[TopicPartition, CommittedOffset]
) -> ErrorCode:
    """Commit the offsets that are good. Return the error of all of them."""
    if not offsets:
        return ErrorCode.NONE
    name, group = request.transactional_id, request.group_id
    producer = ProducerEpoch(request.producer_id, request.producer_epoch)
    transactions = call.service.transactions
    adds = call.version >= ADDS_OFFSETS_FROM
    try:
        await transactions.check_owner(name, producer)
        if adds:
            member = await transactions.join_offsets(producer, group)
        else:
            member = await transactions.enter_offsets(producer, group)
        refusal = _of_the_group(call, request, offsets)
        if refusal:
            member.leave()
            return ErrorCode(refusal)
        await transactions.store_offsets(member, group, offsets)
    except StorageError as error:
        error = await explained(call, name, producer, error)
        if adds:
            return _join_code(error, knows_fenced=False)
        if isinstance(error, TransactionEnded) and call.version >= ABORTABLE_FROM:
            return ErrorCode.TRANSACTION_ABORTABLE
        return _code(error, knows_fenced=False)
    return ErrorCode.NONE


def _of_the_group(
    call: Call, request: TxnOffsetCommitRequest, offsets: Collection[TopicPartition]
) -> Refusal:
    """Return why the client may not commit for the group. As on the broker its transaction is looked at before."""
    caller = Caller(request.member_id, request.generation_id, request.group_instance_id)
    refusal = call.service.groups.commits.check(
        request.group_id, caller, offsets, call.version, transactional=True
    )
    if refusal in (Refusal.GROUP_ID_NOT_FOUND, Refusal.STALE_MEMBER_EPOCH):
        return Refusal.ILLEGAL_GENERATION
    return refusal


async def end(call: Call, request: EndTxnRequest) -> EndTxnResponse:
    """End a transaction: it is decided, durable and seen by readers of committed records before the answer."""
    producer = ProducerEpoch(request.producer_id, request.producer_epoch)
    transactions = call.service.transactions
    if not request.transactional_id:
        return _not_ended(ErrorCode.INVALID_REQUEST)
    try:
        await transactions.check_owner(request.transactional_id, producer)
        following = await transactions.end(
            producer, commit=request.committed, bump=call.version >= ENDS_WITH_EPOCH_FROM
        )
    except StorageError as error:
        return _not_ended(_code(error, knows_fenced=call.version >= KNOWS_FENCED_FROM))
    return EndTxnResponse(producer_id=following.producer_id, producer_epoch=following.epoch)


def _not_ended(code: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(error_code=code, producer_id=-1, producer_epoch=-1)
