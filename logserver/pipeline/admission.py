"""Rate limits of a streaming query: offsets as JSON, the share of each partition, and the number of waiting offsets.

Owns the arithmetic, which is the same as in Spark's Kafka source. Must not know Spark, a store or a clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from storage import TopicPartition

Offsets: TypeAlias = Mapping[TopicPartition, int]
JsonOffsets: TypeAlias = Mapping[str, Mapping[str, int]]


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Convert offsets to {"topic": {"0": 12}}, sorted, as Spark's Kafka source writes them into its checkpoints."""
    found: dict[str, dict[str, int]] = {}
    for address in sorted(offsets):
        found.setdefault(address.topic, {})[str(address.partition)] = offsets[address]
    return found


def from_json(offsets: JsonOffsets) -> dict[TopicPartition, int]:
    """Convert JSON offsets back; the inverse of `to_json`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def share_out(limit: int, starts: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
    """Return end offsets such that about `limit` offsets are between `starts` and the result.

    Each partition gets a share in proportion to its available offsets. A partition with any offset gets at least one,
    so that a small partition does not starve.
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
    """Return the number of offsets between `starts` and `ends`."""
    return sum(max(0, end - starts[address]) for address, end in ends.items())
