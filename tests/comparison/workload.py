"""Workloads for both backends, generated from a seed, and the expected answers, computed independently.

Owns the appends, the questions and the expected answers; must not open a store. A `Workload` contains only records that
both formats can represent. Its times rise with the store's clock: so the record's time, which Kafka looks up, equals
the append's time, which RocketMQ looks up. `out_of_order` returns a workload with arbitrary record times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final, NamedTuple

from storage import Bound, OffsetBounds, Record, StoredRecord, TopicPartition
from tests.contract.harness import START_MS
from tests.robustness.stateful.answers import Outcome, content

TOPICS: Final[Mapping[str, int]] = {"orders": 3, "Parcels_1-x": 1, "quiet": 2, "empty": 1}
CODECS: Final = (None, "none", "lz4", "zstd")  # codecs of both backends
KEYS: Final = (None, None, *(f"key-{n}" for n in range(8)), "with spaces in it", "ключ")
LOOKUP_KEYS: Final = ("l-0", "l-1", "l-2", "key-1")
TAGS: Final = (None, None, "red", "blue")
APPENDS: Final = 48
PAUSES_MS: Final = (0, 0, 1, 7, 900, 3_600_000)
COUNTS: Final = (1, 1, 1, 2, 5, 17, 60)  # records in an append
LARGE_BYTES: Final = 1500  # largest value in a short append
SMALL_BYTES: Final = 90  # largest value in a long append
FAR_MS: Final = 10_000_000_000  # distance of a time outside all times


class Step(NamedTuple):
    """An append, at `now_ms` of the store's clock; with `flush` all data so far is durable afterwards."""

    partition: TopicPartition
    records: Sequence[Record]
    codec: str | None
    now_ms: int
    flush: bool


class KeyQuestion(NamedTuple):
    """Arguments of `find` in a topic."""

    topic: str
    key: str | None = None
    tag: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None


class TimeQuestion(NamedTuple):
    """Arguments of `offset_for_time`."""

    partition: TopicPartition
    time_ms: int
    bound: Bound


class Answers(NamedTuple):
    """All answers for a reader, in the form in which backends must agree."""

    records: Mapping[TopicPartition, Sequence[Outcome]]
    bounds: Mapping[TopicPartition, OffsetBounds]
    times: Mapping[TimeQuestion, tuple[int, int] | None]
    found: Mapping[KeyQuestion, Sequence[Outcome]]


@dataclass(frozen=True)
class Workload:
    """Appends in their order."""

    steps: Sequence[Step]

    @classmethod
    def of(cls, seed: int) -> Workload:
        """Generate a workload; the same seed gives the same workload."""
        dice = Random(seed)
        now_ms = START_MS
        steps: list[Step] = []
        for _ in range(APPENDS):
            now_ms += dice.choice(PAUSES_MS)
            partition = dice.choice([p for p in partitions() if p.topic != "empty"])
            count = dice.choice(COUNTS)
            most = SMALL_BYTES if count > 5 else LARGE_BYTES
            records = [_record(dice, now_ms, most) for _ in range(count)]
            codec = dice.choice(CODECS)
            steps.append(Step(partition, records, codec, now_ms, dice.random() < 0.2))
        return cls(steps)

    def out_of_order(self, seed: int) -> Workload:
        """Return the same workload with a time of its own for each record, in any order."""
        dice = Random(seed)

        def moved(record: Record) -> Record:
            return record._replace(timestamp_ms=START_MS + dice.randrange(-FAR_MS, FAR_MS) // 2)

        return replace(
            self, steps=[s._replace(records=[*map(moved, s.records)]) for s in self.steps]
        )

    def stored(self, *, by_append: bool = False) -> Mapping[TopicPartition, list[StoredRecord]]:
        """Return the final records of each partition; with `by_append` each has the time of its append."""
        found: dict[TopicPartition, list[StoredRecord]] = {p: [] for p in partitions()}
        for step in self.steps:
            log = found[step.partition]
            for record in step.records:
                assert record.timestamp_ms is not None
                time_ms = step.now_ms if by_append else record.timestamp_ms
                headers, keys = list(record.headers), list(record.lookup_keys)
                log.append(
                    StoredRecord(
                        len(log), time_ms, record.key, record.value, headers,
                        tag=record.tag, lookup_keys=keys,
                    )
                )  # fmt: skip
        return found

    def time_questions(self) -> Iterator[TimeQuestion]:
        """Yield lookups for each partition: at times of appends, 1 ms before and after them, and outside all times."""
        for partition in partitions():
            at = {step.now_ms for step in self.steps if step.partition == partition}
            beside = {time_ms + by for time_ms in at for by in (-1, 1)}
            outside = {0, START_MS - FAR_MS, START_MS + FAR_MS}
            for time_ms in sorted(at | beside | outside):
                yield TimeQuestion(partition, time_ms, Bound.LOWER)
            for time_ms in sorted(at | outside):
                yield TimeQuestion(partition, time_ms, Bound.UPPER)

    def key_questions(self) -> Iterator[KeyQuestion]:
        """Yield queries by each key, lookup key and tag, some with a time range, and for values that no record has."""
        early, late = (self.steps[len(self.steps) * part // 3].now_ms for part in (1, 2))
        for topic in TOPICS:
            for key in sorted(
                {*filter(None, KEYS[2::3]), *LOOKUP_KEYS, "with spaces in it", "l-0 l-1"}
            ):
                yield KeyQuestion(topic, key)
            for tag in ("red", "blue", "absent"):
                yield KeyQuestion(topic, tag=tag)
            yield KeyQuestion(topic, "key-1", "red")
            yield KeyQuestion(topic, "key-2", from_ms=early, to_ms=late)
            yield KeyQuestion(topic, "l-1", from_ms=late)
            yield KeyQuestion(topic, from_ms=early, to_ms=early)
            yield KeyQuestion(topic, to_ms=early - 1)

    def answers(self) -> Answers:
        """Return the answers of a store that contains all steps."""
        stored = self.stored()
        topics = {
            topic: [(p.partition, r) for p, log in stored.items() if p.topic == topic for r in log]
            for topic in TOPICS
        }
        return Answers(
            records={p: [content(r) for r in log] for p, log in stored.items()},
            bounds={p: OffsetBounds(0, len(log), len(log)) for p, log in stored.items()},
            times={q: at_time(stored[q.partition], q) for q in self.time_questions()},
            found={
                q: [(n, *content(r)) for n, r in topics[q.topic] if _matches(r, q)]
                for q in self.key_questions()
            },
        )


def partitions() -> Sequence[TopicPartition]:
    """Return the partitions of every topic of a workload."""
    return [TopicPartition(topic, n) for topic, count in TOPICS.items() for n in range(count)]


def at_time(log: Sequence[StoredRecord], question: TimeQuestion) -> tuple[int, int] | None:
    """Apply the rule record by record: the first record that is not earlier, or the last record that is not later."""
    asked_ms = question.time_ms
    if question.bound is Bound.LOWER:
        hits = (r for r in log if r.timestamp_ms >= asked_ms)
    else:
        hits = (r for r in reversed(log) if r.timestamp_ms <= asked_ms)
    return next(((r.offset, r.timestamp_ms) for r in hits), None)


def _matches(record: StoredRecord, question: KeyQuestion) -> bool:
    keys = {record.key, *(name.encode() for name in record.lookup_keys)}
    first_ms = -FAR_MS if question.from_ms is None else question.from_ms
    last_ms = START_MS + FAR_MS if question.to_ms is None else question.to_ms
    return (
        (question.key is None or question.key.encode() in keys)
        and (question.tag is None or question.tag == record.tag)
        and first_ms <= record.timestamp_ms <= last_ms
    )


def _record(dice: Random, time_ms: int, most_bytes: int) -> Record:
    """Return a record that both formats can represent.

    - Key and headers are text, and header names are unique.
    - The value is not null.
    - The lookup keys differ from the key.
    """
    key = dice.choice(KEYS)
    size = dice.choice((0, 1, 20, most_bytes))
    value = dice.randbytes(size) if dice.random() < 0.5 else b"the same " * (size // 9)
    names = dice.sample(("trace", "größe", "名", "h"), dice.choice((0, 0, 1, 4)))
    return Record(
        None if key is None else key.encode(),
        value,
        [(name, f"{name} {dice.randrange(100)} 😀".encode()) for name in names],
        time_ms,
        dice.choice(TAGS),
        [name for name in dice.sample(LOOKUP_KEYS, dice.choice((0, 0, 1, 3))) if name != key],
    )
