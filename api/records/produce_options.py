"""The options of all produce calls: time of the answer, timeout, codec, producer sequence, idempotency key.

Owns these parameters and how they are read; must not know how records are sent.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import partial
from hashlib import blake2b
from typing import Final

from aiohttp import web
from msgspec import structs

from api.connection.response_headers import note
from api.http.errors import MALFORMED, NOT_OFFERED, ApiError
from api.http.parameters import MAX_INT16, MAX_INT32, Choice, Integer, Parameter, Params, Text
from api.records.decode import Produced, RecordRefused, delay_of
from api.records.encode import RecordNames
from api.request_context import RequestContext
from logserver.service.memory_budget import Reservation
from logserver.service.requests import Acks, Delay, Produce, ProduceOptions, RequestKey
from logserver.transactions.half import HalfTransactions
from storage import LogStore, ProducerSequence, TopicPartition

COMPRESSIONS: Final = frozenset({"none", "gzip", "snappy", "lz4", "zstd"})
MESSAGE_COMPRESSIONS: Final = frozenset({"none", "zlib", "lz4", "zstd"})
DIGEST_BYTES: Final = 16
_KEY: Final = re.compile(r"[\x20-\x7e]{1,255}")

ACKS: Final = Parameter(
    "acks",
    Choice({"all": Acks.ALL, "-1": Acks.ALL, "1": Acks.WRITTEN, "0": Acks.NONE}),
    "When the request is answered: when the store's flush mode is met (`all`), when the records are with the "
    "operating system (`1`), or when the body has been checked (`0`).",
    default="all",
)
ASYNC: Final = Parameter(
    "async",
    Choice({"true": True, "false": False}),
    "With `true` the answer is 204 without a body, as soon as the body has been checked: `acks=0` under the name of "
    "Strimzi's bridge. Not together with another `acks`, nor for a stream.",
)
TIMEOUT: Final = Parameter(
    "timeout",
    Integer(1, "max_wait_ms"),
    "How long to wait for the records to be stored, in milliseconds; they may still be stored later.",
)
COMPRESSION: Final = Parameter(
    "compression",
    Choice({name: name for name in ("none", "gzip", "snappy", "lz4", "zstd", "zlib")}),
    "Codec of this request's records; else the topic's. Kafka: all but `zlib`; RocketMQ: `none`, `zlib`, `lz4`, "
    "`zstd`.",
)
PRODUCER_ID: Final = Parameter(
    "producer_id", Integer(), "The producer; needs `producer_epoch` and `sequence` too."
)
PRODUCER_EPOCH: Final = Parameter(
    "producer_epoch", Integer(0, MAX_INT16), "The producer's epoch: a newer one fences the older."
)
SEQUENCE: Final = Parameter(
    "sequence",
    Integer(0, MAX_INT32),
    "Number of the first record in this producer's records of the partition. A repeat is stored once.",
)
DELAY_LEVEL: Final = Parameter(
    "delay_level",
    Integer(0, MAX_INT32),
    "RocketMQ: deliver the records after the delay of this level; 0: at once. A record's own delay counts first.",
)
DELIVER_AT: Final = Parameter(
    "deliver_at",
    Integer(),
    "RocketMQ: deliver the records at this time, in milliseconds; rounded up to a level. In place of `delay_level`.",
)
DELAY_MS: Final = Parameter(
    "delay_ms",
    Integer(),
    "RocketMQ: deliver the records after this time; rounded up to a level. In place of `delay_level`.",
)
DELAYS: Final = (DELAY_LEVEL, DELIVER_AT, DELAY_MS)
SEQUENCED: Final = (PRODUCER_ID, PRODUCER_EPOCH, SEQUENCE)
TRANSACTION: Final = Parameter(
    "transaction",
    Text(1),
    "The transaction that the records belong to, by the `id` of `POST /transactions`: readers of committed records see "
    "them once it is committed.",
)
IDEMPOTENCY_KEY: Final = Parameter(
    "Idempotency-Key",
    Text(1),
    "Your own name for this request, up to 255 characters: for a day a repeat is answered with the first offsets and "
    "stored once.",
)


def read_options(call: RequestContext) -> ProduceOptions:
    """Return the options in the query. Raises 40000, and 42207 for a codec of the other backend."""
    messages = call.service.store.capabilities.messages
    options = call.params.once(_message_options if messages else _batch_options)
    return structs.replace(options, born_host=call.peer) if messages else options


def _message_options(params: Params) -> ProduceOptions:
    return _options(params, MESSAGE_COMPRESSIONS)


def _batch_options(params: Params) -> ProduceOptions:
    return _options(params, COMPRESSIONS)


def _options(params: Params, codecs: Collection[str]) -> ProduceOptions:
    return ProduceOptions(
        acks=read_acks(params),
        timeout_ms=params.get(TIMEOUT),
        compression=_compression(params, codecs),
        producer=_sequence(params),
        delay=_delay(params),
    )


def _delay(params: Params) -> Delay | None:
    """Return the delay of all records of a request. Raises 40000 for more than one."""
    try:
        return delay_of(*(params.get(parameter) for parameter in DELAYS))
    except RecordRefused as error:
        raise ApiError(MALFORMED, f"query parameter {error.problem.lstrip('.')}") from None


def read_acks(params: Params) -> Acks:
    """Return the time of the answer. Raises 40000 for `async=true` together with another `acks`."""
    acks = params[ACKS]
    if not params.get(ASYNC):
        return acks
    if ACKS.name in params.query and acks is not Acks.NONE:
        raise ApiError(
            MALFORMED,
            f"{ACKS.name}={params.query[ACKS.name]} and {ASYNC.name}=true exclude each other: give one",
        )
    return Acks.NONE


async def in_transaction(options: ProduceOptions, call: RequestContext) -> ProduceOptions:
    """Return the options with the transaction that the query names, if it names one. Raises 40000 for options that do
    not go with it, 40406, 40903, 40905, and 42207 if the store has no transactions.
    """
    transaction_id = call.params.get(TRANSACTION)
    if transaction_id is None:
        return options
    call.params.refuse((PRODUCER_ID, PRODUCER_EPOCH), "a transaction has its own producer")
    refuse_key(call, "a transaction is stored once or not at all")
    if options.acks is Acks.NONE:
        raise ApiError(MALFORMED, "a request of a transaction needs an answer: acks=1 or acks=all")
    transactions = call.service.http_transactions
    if isinstance(transactions, HalfTransactions):
        call.params.refuse((SEQUENCE,), "half messages have no sequence")
        return structs.replace(options, prepared=await transactions.resolve(transaction_id))
    owner = await transactions.resolve(transaction_id)
    sequence = call.params.get(SEQUENCE)
    mark = None if sequence is None else ProducerSequence(*owner, sequence, transactional=True)
    return structs.replace(options, transaction=owner, producer=mark)


def with_key(
    options: ProduceOptions, call: RequestContext, content: bytes, form: str
) -> ProduceOptions:
    """Return the options with the request's idempotency key, if it has one. Raises 40000.

    The digest of the key covers the content, its form, the topic and the partition.
    """
    key = call.request.headers.get(IDEMPOTENCY_KEY.name)
    if key is None:
        return options
    if not _KEY.fullmatch(key):
        raise ApiError(
            MALFORMED,
            f"{IDEMPOTENCY_KEY.name} is {key[:80]!r}: it must be 1 to 255 characters of ASCII",
        )
    if options.producer is not None:
        raise ApiError(
            MALFORMED, f"{IDEMPOTENCY_KEY.name} and {PRODUCER_ID.name} exclude each other: give one"
        )
    delay = "" if options.delay is None else repr(tuple(options.delay))
    place = f"{call.topic}\0{call.partition_number}\0{form}\0{delay}".encode()
    digest = blake2b(place + content, digest_size=DIGEST_BYTES).digest()
    return structs.replace(options, key=RequestKey(key, digest))


def request_of(
    call: RequestContext,
    decoded: Produced,
    options: ProduceOptions,
    *,
    reservation: Reservation,
    size_bytes: int,
) -> Produce:
    """Return the service request with the valid records of a body."""
    return Produce(
        topic=call.topic,
        records=decoded.records,
        reservation=reservation,
        size_bytes=size_bytes,
        partition=call.partition_number,
        partitions=decoded.partitions,
        delays=_delays(decoded, options.delay),
        acks=options.acks,
        timeout_ms=options.timeout_ms,
        compression=options.compression,
        producer=options.producer,
        key=options.key,
        born_host=options.born_host,
        transaction=options.transaction,
        prepared=options.prepared,
    )


def _delays(decoded: Produced, common: Delay | None) -> Sequence[Delay | None] | None:
    """Return the delay of each record, its own or that of the request; None without any."""
    if common is None:
        return decoded.delays
    own = decoded.delays or (None,) * len(decoded.records)
    return [common if delay is None else delay for delay in own]


def born_host(call: RequestContext) -> bytes | None:
    """Return the client's address if the store keeps it, else None."""
    return call.peer if call.service.store.capabilities.messages else None


def refuse_key(call: RequestContext, reason: str) -> None:
    """Raise 40000 if a request has an idempotency key that this call does not accept."""
    if IDEMPOTENCY_KEY.name in call.request.headers:
        raise ApiError(MALFORMED, f"{IDEMPOTENCY_KEY.name} is not taken here: {reason}")


def record_ids(store: LogStore, topic: str) -> RecordNames | None:
    """Return the function that names the records of a topic in an answer; None if the store has no record ids."""
    if not store.capabilities.messages:
        return None
    return lambda number: partial(store.record_id, TopicPartition(topic, number))


def warn_of_times(response: web.Response, names: Sequence[str]) -> None:
    """Name in a header the records whose time is far ahead of the server's clock; the service logs them."""
    note(response, "timestamps are more than 1 hour ahead of the server's clock", names)


def _sequence(params: Params) -> ProducerSequence | None:
    """Return the producer's id, epoch and sequence number: a request has all three, or none. In a transaction the
    sequence number is alone: see `in_transaction`.
    """
    if params.get(TRANSACTION) is not None:
        return None
    values = [params.get(parameter) for parameter in SEQUENCED]
    numbers = [value for value in values if value is not None]
    if not numbers:
        return None
    if len(numbers) < len(values):
        missing = SEQUENCED[values.index(None)].name
        names = ", ".join(parameter.name for parameter in SEQUENCED)
        raise ApiError(MALFORMED, f"query parameter {missing} is missing: {names} belong together")
    producer_id, epoch, sequence = numbers
    return ProducerSequence(producer_id, epoch, sequence)


def _compression(params: Params, codecs: Collection[str]) -> str | None:
    """Return the requested codec. Raises 42207 for a codec that the store's format does not have."""
    codec = params.get(COMPRESSION)
    if codec is not None and codec not in codecs:
        raise ApiError(
            NOT_OFFERED,
            f"compression {codec} is not one of this store: {', '.join(sorted(codecs))}",
        )
    return codec
