"""Delayed records: the level and target of each record of a request, and the delivery of messages that are due.

Owns the rules of a request with delays, and how a time becomes a level; must not know how a store keeps such messages.
`split` is called on the event loop and does no IO; the delivery is a service of upkeep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from logserver.config import DAY_MS
from logserver.service.requests import AppendOutcome, Delay, Delayed, PartitionAppend, Produce
from logserver.service.upkeep import Service
from storage import Delays, LogStore, Record, SupportsDelay, TopicInfo, TopicPartition
from storage.errors import InvalidArgument, NotOffered, StorageError

MAX_DELAY_MS: Final = 40 * DAY_MS
DELIVERED_AT_ONCE: Final = 4096
"""Messages of one delivery: after it the progress is on disk."""
STEP_SECONDS: Final = 0.5
"""A step begins no delivery later than this after its begin: the rest waits for the next step. So after a long stop,
when many messages are due, flush and retention are not held back, and neither is the end of the server."""


Delivered: TypeAlias = Callable[[Sequence[TopicPartition], Mapping[str, TopicInfo]], None]
"""Called with the partitions that have new records, and all topics."""


class Waits(NamedTuple):
    """Where a delayed record is to be delivered: the number of a partition, and the level of its delay."""

    partition: int
    level: int


def level_of(delay: Delay, delays: Delays, now_ms: int) -> int | None:
    """Return the level of a delay, rounded up; None if the record is due already. Raises InvalidArgument."""
    if delay.level is not None:
        if delay.level > len(delays.levels):
            raise InvalidArgument(
                f"delay_level is {delay.level}: this store has the levels 1 to {len(delays.levels)}",
                field="delay_level",
            )
        return delay.level or None
    name, delay_ms = _name_of(delay), delay.delay_ms or 0
    if delay.deliver_at_ms is not None:
        delay_ms = delay.deliver_at_ms - now_ms
    if delay_ms <= 0:
        return None
    longest_ms = max(level.delay_ms for level in delays.levels)
    if delay_ms > min(longest_ms, MAX_DELAY_MS):
        limit = "40 days" if delay_ms > MAX_DELAY_MS else f"{longest_ms} ms, this store's longest"
        raise InvalidArgument(
            f"{name} asks for a delay of {delay_ms} ms: the limit is {limit} (setting messageDelayLevel)",
            field=name,
        )
    fitting = (level for level in delays.levels if level.delay_ms >= delay_ms)
    return min(fitting, key=lambda level: (level.delay_ms, level.level)).level


class Split(NamedTuple):
    """A request whose delayed records are parts of their own. `waits`: these records by their positions."""

    parts: list[PartitionAppend]
    failed: list[AppendOutcome]
    waits: Mapping[int, Waits]


def split(
    store: LogStore, request: Produce, parts: Sequence[PartitionAppend], now_ms: int
) -> Split:
    """Return the parts with each delayed record where it waits. A record with an impossible delay fails alone.

    Raises InvalidArgument if the request as a whole cannot have delays.
    """
    delays = request.delays or ()
    kept: list[PartitionAppend] = []
    failed: list[AppendOutcome] = []
    waits: dict[int, Waits] = {}
    waiting: dict[TopicPartition, list[tuple[int, Record]]] = {}
    for part in parts:
        at_once: list[tuple[int, Record]] = []
        for position, record in zip(part.positions, part.records, strict=True):
            assert isinstance(record, Record)
            try:
                level = _level(store, delays[position], now_ms)
            except StorageError as error:
                failed.append(AppendOutcome(part.partition.partition, (position,), -1, error))
                continue
            if level is None or not isinstance(store, SupportsDelay):
                at_once.append((position, record))
                continue
            target, delayed = store.delays.delayed(record, part.partition, level)
            waits[position] = Waits(part.partition.partition, level)
            waiting.setdefault(target, []).append((position, delayed))
        if at_once:
            kept.append(_part(part.partition, at_once, request))
    kept += [_part(target, waiting[target], request) for target in sorted(waiting)]
    if waits:
        _check(request, kept, waits)
    return Split(kept, failed, waits)


def _level(store: LogStore, delay: Delay | None, now_ms: int) -> int | None:
    if delay is None:
        return None
    if not isinstance(store, SupportsDelay):
        if delay.level == 0 or delay.delay_ms == 0:
            return None
        raise no_delays(store, _name_of(delay))
    return level_of(delay, store.delays, now_ms)


def no_delays(store: LogStore, asked: str) -> NotOffered:
    """Return the error of a store that keeps no delayed messages; `asked`: what asks for them."""
    return NotOffered(
        f"{asked}: delayed records are not offered by the {store.capabilities.backend} backend: only RocketMQ's format "
        "has them",
        feature="delay",
    )


def _name_of(delay: Delay) -> str:
    if delay.level is not None:
        return "delay_level"
    return "delay_ms" if delay.delay_ms is not None else "deliver_at"


def _part(
    target: TopicPartition, records: Sequence[tuple[int, Record]], request: Produce
) -> PartitionAppend:
    return PartitionAppend(
        target,
        [record for _, record in records],
        [position for position, _ in records],
        request.compression,
        request.producer,
        request.born_host,
    )


def _check(request: Produce, parts: Sequence[PartitionAppend], waits: Mapping[int, Waits]) -> None:
    """Check the conditions of a request with delayed records. Raises InvalidArgument."""
    if request.producer is not None:
        raise InvalidArgument(
            "delayed records have no sequence: send them without producer_id, for example with an Idempotency-Key",
            field="producer_id",
        )
    if request.key is None:
        return
    if sum(len(part.positions) for part in parts) > len(waits):
        raise InvalidArgument(
            "a request with an Idempotency-Key has delayed records only, or none: send the others by themselves",
            field="Idempotency-Key",
        )
    if any(delay is not None and delay.deliver_at_ms is not None for delay in request.delays or ()):
        raise InvalidArgument(
            "deliver_at does not go with an Idempotency-Key, because a repeat would get another level: send delay_ms "
            "or delay_level",
            field="deliver_at",
        )


def outcomes_of(
    outcomes: Sequence[AppendOutcome], waits: Mapping[int, Waits], store: LogStore
) -> list[AppendOutcome]:
    """Return the outcomes in the terms of the request: a delayed record has the partition that it is for, and the time
    of its delivery. May read records of an earlier request; blocks.
    """
    converted: list[AppendOutcome] = []
    for outcome in outcomes:
        if outcome.positions[0] not in waits:
            converted.append(outcome)
            continue
        for index, position in enumerate(outcome.positions):
            wait = waits[position]
            if outcome.error is not None:
                error = outcome.error
                converted.append(AppendOutcome(wait.partition, (position,), -1, error))
                continue
            locators = outcome.locators[index : index + 1]
            converted.append(
                AppendOutcome(
                    wait.partition,
                    (position,),
                    -1,
                    locators=locators,
                    delayed=_delayed(outcome, wait, locators, store),
                )
            )
    return converted


def _delayed(
    outcome: AppendOutcome, wait: Waits, locators: Sequence[int], store: LogStore
) -> Delayed | None:
    assert isinstance(store, SupportsDelay)
    from_ms = outcome.timestamp_ms
    if from_ms < 0:  # a repeat: the message was stored before
        if not locators:
            return Delayed(wait.level, None)
        record_id = store.record_id(TopicPartition("", 0), locators[0])
        _, stored = store.find_by_id(record_id)
        from_ms = stored.store_timestamp_ms or 0
    return Delayed(wait.level, from_ms + store.delays.levels[wait.level - 1].delay_ms)


def delivery(
    store: LogStore,
    interval_ms: int,
    delivered: Delivered,
) -> list[Service]:
    """Return the service that delivers messages which are due; none for a store without delays.

    `delivered` is called in the thread of the step.
    """
    if not isinstance(store, SupportsDelay):
        return []
    delays = store.delays

    def step(now_ms: int) -> None:
        """Deliver messages that are due, for about STEP_SECONDS."""
        end = time.monotonic() + STEP_SECONDS
        more, refused = True, None
        while more and time.monotonic() <= end:
            partitions, _, more, refused = delays.deliver(now_ms, max_records=DELIVERED_AT_ONCE)
            if partitions:
                delivered(partitions, store.topics())
        if refused is not None:
            raise refused

    return [Service(name="delivery", interval_ms=interval_ms, step=step, lag_ms=delays.lag_ms)]
