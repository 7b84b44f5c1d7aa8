"""Transactions: begin, offsets of a group, commit, roll back, list.

Owns the shapes of these operations; must not know how a transaction is stored or ended (`logserver.transactions`).
Records are sent by the produce operations with `?transaction=ID`. Every offset here is the next offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType

from api.http.errors import JSON
from api.http.parameters import MAX_INT32, Choice, Parameter
from api.operation import Answer, Example, Resource, optional, required
from api.operations.consumers import (
    MAX_PARTITIONS,
    Name,
    PartitionName,
    PartitionOffset,
)
from api.request_context import RequestContext
from logserver.access.tokens import Scope
from logserver.transactions.half import UNKNOWN, HalfListed, HalfTransactions
from storage import CommittedOffset, TransactionStatus

TRANSACTIONS: Final = Resource("Transactions")

DEFAULT_TIMEOUT_MS: Final = 60_000  # transaction.timeout.ms of Kafka's producer
_LISTED: Final = [status for status in TransactionStatus if status is not TransactionStatus.DEAD]
_STATE: Final = Parameter(
    "state",
    Choice(
        {**{status.label: status.label for status in _LISTED}, UNKNOWN: UNKNOWN, "unknown": UNKNOWN}
    ),
    "Only transactions in this state. `unknown`: RocketMQ's format, whose producers must name the outcome.",
)


class NewTransaction(Struct, forbid_unknown_fields=True):
    """The body of POST /transactions. A `transactional_id` names a producer over its restarts: the transaction that an
    earlier one left open is rolled back. After `timeout_ms` the transaction is rolled back.
    """

    transactional_id: Name | None = None
    timeout_ms: Annotated[int, Meta(ge=1, le=MAX_INT32)] = DEFAULT_TIMEOUT_MS


class BegunTransaction(Struct):
    """A transaction. Records are sent with `?transaction=` and its `id`; whole record batches have `producer_id` and
    `epoch` in their headers. RocketMQ's format has neither.
    """

    id: str
    producer_id: int | None
    epoch: int | None


class TransactionEnd(Struct):
    """The state of a transaction that has ended: CompleteCommit or CompleteAbort."""

    id: str
    state: str


class TransactionOffsets(Struct, forbid_unknown_fields=True):
    """The body of POST /transactions/{id}/offsets: next offsets of a group."""

    group: Name
    offsets: Annotated[list[PartitionOffset], Meta(min_length=1, max_length=MAX_PARTITIONS)]


class ListedTransaction(Struct):
    """The newest transaction of a transactional id. `started_ms` is null if the id has had no transaction yet.

    RocketMQ's format: an open transaction. `messages`: how many wait; `checks`: how often its producers were asked;
    `message_id`: of its first half message.
    """

    id: str
    transactional_id: str
    producer_id: int | None
    epoch: int | None
    state: str
    timeout_ms: int
    started_ms: int | None
    updated_ms: int
    partitions: Sequence[PartitionName]
    messages: int | UnsetType = UNSET
    checks: int | UnsetType = UNSET
    message_id: str | UnsetType = UNSET


_ID: Final = "1125899906842624-0"
_BEGUN: Final = {"id": _ID, "producer_id": 1125899906842624, "epoch": 0}
_ENDED: Final = (40406, 40903, 40905, 42207, 50701)


@TRANSACTIONS.post(
    "/transactions",
    Answer(201, "The transaction has begun.", BegunTransaction),
    body=optional(NewTransaction),
    scope=Scope.PRODUCE,
    errors=(42201, 42207, 42901, 50701),
    examples=(
        Example(status=201, answer=_BEGUN, backends=("kafka",)),
        Example(
            "of a named producer",
            media_type=JSON,
            body={"transactional_id": "billing-1", "timeout_ms": 30000},
            status=201,
            answer=_BEGUN,
            backends=("kafka",),
        ),
    ),
)
async def begin_transaction(call: RequestContext, body: NewTransaction | None) -> web.Response:
    """Begin a transaction.

    Of records in any number of partitions and of offsets of groups: readers of committed records
    (`isolation=read_committed`) see all of them or none. On RocketMQ's format `transactional_id` is the group of the
    producers that are asked for the outcome after `timeout_ms`.
    """
    wanted = body or NewTransaction()
    transactions = call.service.http_transactions
    begun = await transactions.begin(wanted.transactional_id, wanted.timeout_ms)
    return call.json(BegunTransaction(begun.id, *(begun.producer or (None, None))), status=201)


@TRANSACTIONS.get(
    "/transactions",
    Answer(200, "The transactions, by transactional id.", list[ListedTransaction]),
    query=(_STATE,),
    errors=(42207,),
    examples=(
        Example(
            query={"state": "Ongoing"},
            answer=[
                {
                    "id": _ID,
                    "transactional_id": "billing-1",
                    "producer_id": 1125899906842624,
                    "epoch": 0,
                    "state": "Ongoing",
                    "timeout_ms": 30000,
                    "started_ms": 1760000000000,
                    "updated_ms": 1760000000000,
                    "partitions": [{"topic": "orders", "partition": 0}],
                }
            ],
            backends=("kafka",),
        ),
    ),
)
async def list_transactions(call: RequestContext) -> web.Response:
    """All transactional ids, each with its newest transaction.

    A transaction that was begun without a transactional id has one of the server's own. States have Kafka's names. On
    RocketMQ's format: the open transactions, RocketMQ clients' too; Unknown is a transaction whose producers must name
    the outcome.
    """
    state_label = call.params.get(_STATE)
    transactions = call.service.http_transactions
    if isinstance(transactions, HalfTransactions):
        return call.json([_half_row(row) for row in await transactions.listed(state_label)])
    listed = await transactions.states(
        [status for status in _LISTED if state_label in {None, status.label}]
    )
    return call.json(
        [
            ListedTransaction(
                id=transaction_id,
                transactional_id=state.transactional_id,
                producer_id=state.producer_id,
                epoch=state.epoch,
                state=state.status.label,
                timeout_ms=state.timeout_ms,
                started_ms=None if state.start_ms < 0 else state.start_ms,
                updated_ms=state.update_ms,
                partitions=[PartitionName(*partition) for partition in sorted(state.partitions)],
            )
            for transaction_id, state in listed
        ]
    )


def _half_row(row: HalfListed) -> ListedTransaction:
    found = row.found
    return ListedTransaction(
        id=row.id,
        transactional_id=row.transactional_id,
        producer_id=None,
        epoch=None,
        state=row.state,
        timeout_ms=row.timeout_ms,
        started_ms=row.started_ms,
        updated_ms=row.updated_ms,
        partitions=[PartitionName(*at) for at in found.partitions] if found else [],
        messages=found.messages if found else 0,
        checks=found.checks if found else 0,
        message_id=found.record_id if found else UNSET,
    )


@TRANSACTIONS.post(
    "/transactions/{transaction}/offsets",
    Answer(204, "The offsets are in the transaction."),
    body=required(
        TransactionOffsets,
        '{"group": "billing", "offsets": [{"topic": "orders", "partition": 0, "offset": 1}]}',
    ),
    scope=Scope.PRODUCE,
    errors=(40401, 40402, *_ENDED, 41601, 42203, 42901, 50302),
    examples=(
        Example(
            media_type=JSON,
            body={
                "group": "accounting",
                "offsets": [{"topic": "orders", "partition": 0, "offset": 1}],
            },
            status=204,
            backends=("kafka",),
        ),
    ),
)
async def add_offsets(call: RequestContext, body: TransactionOffsets) -> web.Response:
    """Commit offsets of a group in a transaction.

    They are next offsets, and count once the transaction is committed. Not offered on RocketMQ's format.
    """
    transactions = call.service.http_transactions
    if isinstance(transactions, HalfTransactions):
        raise transactions.no_offsets()
    producer = await transactions.resolve(call.transaction)
    offsets = {
        call.service.topics.partition(row.topic, row.partition): CommittedOffset(
            row.offset, metadata=row.metadata or ""
        )
        for row in body.offsets
    }
    await transactions.commit_offsets(producer, body.group, offsets)
    return web.Response(status=204)


@TRANSACTIONS.post(
    "/transactions/{transaction}/commit",
    Answer(200, "The transaction is committed.", TransactionEnd),
    scope=Scope.PRODUCE,
    errors=(40401, 40402, *_ENDED),
    examples=(Example(answer={"id": _ID, "state": "CompleteCommit"}, backends=("kafka",)),),
)
async def commit_transaction(call: RequestContext) -> web.Response:
    """Commit a transaction.

    On the answer its records and offsets are durable and visible. A repeat is answered as before.
    """
    return await _end(call, commit=True)


@TRANSACTIONS.post(
    "/transactions/{transaction}/rollback",
    Answer(200, "The transaction is rolled back.", TransactionEnd),
    scope=Scope.PRODUCE,
    errors=_ENDED,
    examples=(Example(answer={"id": _ID, "state": "CompleteAbort"}, backends=("kafka",)),),
)
async def rollback_transaction(call: RequestContext) -> web.Response:
    """Roll back a transaction.

    Readers of committed records never see its records; its offsets do not count. A repeat is answered as before.
    """
    return await _end(call, commit=False)


async def _end(call: RequestContext, *, commit: bool) -> web.Response:
    transactions = call.service.http_transactions
    status = await transactions.end_by_id(call.transaction, commit=commit)
    return call.json(TransactionEnd(call.transaction, status.label))
