"""The rule of conversion: what one record becomes in the other format, both ways.

Owns which of the two mappings a record goes by; no IO. A record that came from the other format is
given back as it was; any other becomes one that can be given back.

    to_kafka     a message that was a record -> that record     any other -> a record that holds the message
    to_rocketmq  a record that was a message -> that message    any other -> a message that holds the record
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.conversion import message_in_record, record_in_message
from storage.conversion.shapes import KafkaRecord, Problem, QueuedMessage
from storage.errors import UnrepresentableRecord


def to_kafka(queued: QueuedMessage) -> KafkaRecord:
    """The record of a message; nothing of it is lost. Raises Corrupt for a body that cannot be
    unpacked.
    """
    return record_in_message.decode(queued) or message_in_record.wrap(queued)


def to_rocketmq(
    record: KafkaRecord, *, least_store_ms: int, encode: bool
) -> tuple[QueuedMessage, Sequence[Problem]]:
    """(the message of a record, what of it was encoded). Its store time is the one that it had as a
    message, else the record's time, but not less than `least_store_ms`.

    Raises UnrepresentableRecord (field) for what a message cannot keep: without `encode` anything that
    would have to be encoded, with it properties that are too large.
    """
    queued = message_in_record.unwrap(record)
    if queued is not None:
        return queued, ()
    found, problems = record_in_message.encode(record, max(record.timestamp_ms, least_store_ms, 0))
    if problems and not encode:
        raise UnrepresentableRecord(problems[0].problem, field=problems[0].field)
    return found, problems
