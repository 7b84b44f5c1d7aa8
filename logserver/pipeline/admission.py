"""How much a streaming query takes at a time: offsets as JSON, the share of each partition, and waiting for more.

Owns the arithmetic, which is that of Spark's Kafka source. Must not know Spark, a store or a clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from storage import TopicPartition

Offsets: TypeAlias = Mapping[TopicPartition, int]
JsonOffsets: TypeAlias = Mapping[str, Mapping[str, int]]


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """{"topic": {"0": 12}}, as Spark's Kafka source writes into its checkpoints; in order."""
    found: dict[str, dict[str, int]] = {}
    for address in sorted(offsets):
        found.setdefault(address.topic, {})[str(address.partition)] = offsets[address]
    return found


def from_json(offsets: JsonOffsets) -> dict[TopicPartition, int]:
    """The inverse of `to_json`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def share_out(limit: int, starts: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
    """Ends so that about `limit` offsets lie between: every partition gives in proportion to what it has,
    and at least one offset if it has any, so that a small one does not starve.
    """
    sizes = {at: max(0, end - starts[at]) for at, end in ends.items()}
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    shared = {}
    for address, end in ends.items():
        share = limit * sizes[address] / total
        taken = math.ceil(share) if share < 1 else math.floor(share)
        shared[address] = min(end, starts[address] + taken) if sizes[address] else end
    return shared


def waiting(starts: Offsets, ends: Offsets) -> int:
    """How many offsets lie between."""
    return sum(max(0, end - starts[address]) for address, end in ends.items())
