"""The Python client of a running server: asynchronous and typed.

Owns the names that programs import. Must not import the server: a program that is only a client needs nothing of it.

    async with LogClient("http://127.0.0.1:8082") as client:
        await client.produce("orders", {"apples": 3}, key="ann")
        async for record in client.records("orders", follow=True):
            ...
"""

from logserver.client.blocking import BlockingClient
from logserver.client.broadcast import BroadcastConsumer
from logserver.client.client import LogClient
from logserver.client.consumer import GroupConsumer
from logserver.client.groups import GroupDescription, GroupMember, GroupPartition
from logserver.client.outgoing import as_bytes, as_record
from logserver.client.producer import IdempotentProducer
from logserver.client.retries import GroupRetries, HandedBack
from logserver.client.transactions import (
    BegunTransaction,
    ListedTransaction,
    Transaction,
    TransactionPartition,
)
from logserver.client.transport import Retry
from logserver.client.values import (
    Delay,
    FetchedBatches,
    FetchedPage,
    FetchedRecord,
    MessagesFound,
    OffsetRange,
    Placed,
    PlacedBatches,
    PlacedLater,
    ProducedRow,
    ProducerId,
    RetryPlace,
    TopicDescription,
)
from logserver.errors import (
    ClientError,
    PartlyStored,
    ServerRefused,
    ServerUnreachable,
    StrangeAnswer,
)
from storage import Isolation, Record, TimedOffset, TopicPartition

__all__ = [
    "BegunTransaction",
    "BlockingClient",
    "BroadcastConsumer",
    "ClientError",
    "Delay",
    "FetchedBatches",
    "FetchedPage",
    "FetchedRecord",
    "GroupConsumer",
    "GroupDescription",
    "GroupMember",
    "GroupPartition",
    "GroupRetries",
    "HandedBack",
    "IdempotentProducer",
    "Isolation",
    "ListedTransaction",
    "LogClient",
    "MessagesFound",
    "OffsetRange",
    "PartlyStored",
    "Placed",
    "PlacedBatches",
    "PlacedLater",
    "ProducedRow",
    "ProducerId",
    "Record",
    "Retry",
    "RetryPlace",
    "ServerRefused",
    "ServerUnreachable",
    "StrangeAnswer",
    "TimedOffset",
    "TopicDescription",
    "TopicPartition",
    "Transaction",
    "TransactionPartition",
    "as_bytes",
    "as_record",
]
