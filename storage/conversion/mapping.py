"""The rule of conversion: the form of one record in the other format, in both directions.

Owns which of the two mappings applies to a record; must not do IO. A record that came from the other format is restored
exactly. Any other record is converted to a form from which it can be restored.

    to_kafka     a message that was a record -> that record     any other -> a record that holds the message
    to_rocketmq  a record that was a message -> that message    any other -> a message that holds the record
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.conversion import message_to_record, record_to_message
from storage.conversion.records import KafkaRecord, Problem, QueuedMessage
from storage.errors import UnrepresentableRecord


def to_kafka(queued: QueuedMessage) -> KafkaRecord:
    """Return the record of a message, without loss. Raises Corrupt for a body that cannot be decompressed."""
    return record_to_message.decode(queued) or message_to_record.wrap(queued)


def to_rocketmq(
    record: KafkaRecord, *, least_store_ms: int, encode: bool
) -> tuple[QueuedMessage, Sequence[Problem]]:
    """Return (the message of a record, the problems that were encoded). A record that was a message keeps its store
    time; for other records it is the record's time, but at least `least_store_ms`.

    Raises UnrepresentableRecord (field) for data that a message cannot keep. Without `encode` that is all data that
    would have to be encoded; with it only properties that are too large.
    """
    queued = message_to_record.unwrap(record)
    if queued is not None:
        return queued, ()
    found, problems = record_to_message.encode(record, max(record.timestamp_ms, least_store_ms, 0))
    if problems and not encode:
        raise UnrepresentableRecord(problems[0].problem, field=problems[0].field)
    return found, problems
