"""The partition of a record: the one that the record names, else by the hash of its key, else in turn (round robin).

Owns the choice and the turns; must not know how a key is hashed (the storage package does) and must not append
anything. A repeated request must reach the same partitions, so two kinds of request take no turn:
- A request with a producer sequence must lead to one partition by itself.
- A request with an idempotency key uses the hash of this key.
"""

from __future__ import annotations

from collections.abc import Sequence

from logserver.service.requests import AppendOutcome, PartitionAppend, Produce
from storage import TopicInfo, TopicPartition, partition_for_key
from storage.errors import InvalidArgument, MissingPartitions, UnknownPartition


class Partitioner:
    """Places records by key like Kafka's default partitioner; keyless records of one request go to one partition, in
    turn.
    """

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def parts(
        self, info: TopicInfo, request: Produce
    ) -> tuple[list[PartitionAppend], list[AppendOutcome]]:
        """Return the records by partition, in order, and the failed records. A record fails in two cases:
        - It names a partition that does not exist.
        - It has a key while partitions of the topic are missing.

        Raises InvalidArgument for a sequenced request that does not lead to one partition. Raises UnknownPartition if
        the request as a whole names a partition that does not exist.
        """
        if request.partitions is None:
            number = request.partition
            if number is None and len(info.partitions) == 1 and not info.missing:
                number = info.partitions[0]
            if number is not None:
                return [_part(info, number, range(len(request.records)), request)], []
        placed, failed = self._placed(info, request)
        if request.producer is not None and (failed or len(placed) > 1):
            raise _not_one_partition()
        return [_part(info, number, placed[number], request) for number in placed], failed

    def forget(self, topic: str) -> None:
        """Forget the turns of a deleted topic: a new topic of the same name starts at its first partition."""
        self._turns.pop(topic, None)

    def _placed(
        self, info: TopicInfo, request: Produce
    ) -> tuple[dict[int, list[int]], list[AppendOutcome]]:
        """Return the positions of the records by partition, and the failed records."""
        placed: dict[int, list[int]] = {}
        failed: list[AppendOutcome] = []
        keyless: int | None = request.partition
        partitions = request.partitions or (request.partition,) * len(request.records)
        for position, (record, named) in enumerate(zip(request.records, partitions, strict=True)):
            number = named
            if number is None and record.key is not None:
                # A hash over fewer partitions gives a partition in which no client looks for the key.
                if info.missing:
                    error = MissingPartitions(info.name, info.missing)
                    failed.append(AppendOutcome(min(info.missing), (position,), -1, error))
                    continue
                number = self._by_key(record.key, info.partitions)
            if number is None:
                if keyless is None:
                    keyless = self._next_turn(info, request)
                number = keyless
            if number in info.partitions:
                placed.setdefault(number, []).append(position)
            else:
                failed.append(AppendOutcome(number, (position,), -1, not_served(info, number)))
        return placed, failed

    def _by_key(self, key: bytes, partitions: Sequence[int]) -> int:
        if len(partitions) == 1:
            return partitions[0]
        return partitions[partition_for_key(key, len(partitions))]

    def _next_turn(self, info: TopicInfo, request: Produce) -> int:
        if not info.partitions:
            raise MissingPartitions(info.name, info.missing)
        if request.key is not None:
            return self._by_key(request.key.key.encode(), info.partitions)
        if request.producer is not None and len(info.partitions) > 1:
            raise _not_one_partition()
        turn = self._turns.get(info.name, 0)
        self._turns[info.name] = turn + 1
        return info.partitions[turn % len(info.partitions)]


def address(info: TopicInfo, number: int) -> TopicPartition:
    """Return the address of a partition of a topic. Raises UnknownPartition, MissingPartitions."""
    if number not in info.partitions:
        raise not_served(info, number)
    return TopicPartition(info.name, number)


def not_served(info: TopicInfo, number: int) -> UnknownPartition | MissingPartitions:
    """Return the error for a partition that is not served: it is missing, or the topic has no partition of this
    number.
    """
    if number in info.missing:
        return MissingPartitions(info.name, info.missing, partition=number)
    return UnknownPartition(info.name, number, len(info.partitions) + len(info.missing))


def only_partition(info: TopicInfo) -> int:
    """Return the partition of a topic that has exactly one. Raises InvalidArgument, MissingPartitions."""
    if info.missing:
        raise MissingPartitions(info.name, info.missing)
    if len(info.partitions) != 1:
        raise InvalidArgument(
            f"record batches go to one partition, and topic {info.name!r} has "
            f"{len(info.partitions)}: name one in the path",
            field="partition",
        )
    return info.partitions[0]


def _part(
    info: TopicInfo, number: int, positions: Sequence[int], request: Produce
) -> PartitionAppend:
    records = request.records
    if len(positions) != len(records):
        records = [records[position] for position in positions]
    return PartitionAppend(
        address(info, number),
        records,
        positions,
        request.compression,
        request.producer,
        request.born_host,
    )


def _not_one_partition() -> InvalidArgument:
    return InvalidArgument(
        "a request with a producer sequence goes to one partition: name it in the path, "
        "or give every record a key or a partition that leads to the same one",
        field="partition",
    )
