"""The data that a conversion will leave out, as far as it is known in advance: whole topics, and fields of records.

Owns the check of names and of the first records of each partition; must not change anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from storage.conversion import mapping
from storage.conversion.counters import Fates
from storage.conversion.selection import Selection
from storage.conversion.sources import KafkaSource, RocketMQSource
from storage.errors import UnrepresentableRecord
from storage.model import ConversionNote

SAMPLE_RECORDS: Final = 1000


def foreseen(
    source: KafkaSource | RocketMQSource, selection: Selection, fates: Fates, *, encode: bool
) -> Sequence[ConversionNote]:
    """Return notes on the topics that `fates` leaves out already, and on sampled record fields that a message cannot
    keep.

    The sample is the first records of each other partition of a Kafka source without `encode`. A Kafka record keeps all
    data of a message, and with `encode` a message keeps nearly all data of a record.
    """
    sampled = Fates()
    if isinstance(source, KafkaSource) and not encode:
        for address in selection.addresses():
            for record in islice(source.records(address, Fates()), SAMPLE_RECORDS):
                try:
                    mapping.to_rocketmq(record, least_store_ms=0, encode=False)
                except UnrepresentableRecord as error:
                    field = str(error.facts().get("field", ""))
                    sampled.left_out.add(address, record.offset, field, error.message)
    return [*fates.left_out.notes(), *sampled.left_out.notes()]
