"""The memory of requests with a key: which requests were received, what they stored, and the marks of their records.

Owns the entries in memory, their counterparts in the journal, and which of them are valid after a start; must not
know HTTP, the event loop's tasks or a backend. Use it on the event loop only, except `load_keys` and the two
functions for the writer's thread.

Each part of such a request (its records for one partition) is appended with a mark: a producer id and a sequence
number that no other append has. The store accepts a marked append once. So only two things must hold for certain: the
mark of a request is known before its records are written, and no mark is used for two requests. A group commit
therefore runs in this order:

    1  Started: key, digest, marks       written, and synced if the answer waits for the disk
    2  the records, each part marked     all or nothing per part, by the store
    3  Completed: key, base offsets      written; synced with the next Started at the latest
    4  the log's flush, the answers

The state after a crash, and how a repeated request is handled:

    before 1    neither entry nor records: the request is a new one
    1 to 3      Started alone: the part is appended again with its mark, and the store detects whether
                it is stored (its producer appended nothing since: see below)
    after 3     Started and Completed: the offsets of the first attempt
    3, but the log lost its unflushed end: Completed names offsets that do not exist. A start drops
                such entries from the journal before any record can get these offsets, and the
                request is a new one

A producer id is reused, with the next sequence number, only after a Started: its sync makes every earlier Completed
durable. It is not reused in three cases:
- its Completed could not be written
- the server was restarted
- the attempts of one request differed in whether they waited for the disk

So only the last append of a producer can lack its Completed, and stores recognise exactly that append.

A Started that does not wait for the disk makes nothing durable, so such requests have producers of their own. Only such
requests can be stored twice, after a power loss. They no longer can once a repeat that waits for the disk was
answered: it syncs journal and records.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from logserver.errors import KeyReused
from logserver.service.requests import AppendOutcome, RequestKey
from storage import (
    Clock,
    Journal,
    Loss,
    OffsetBounds,
    ProducerSequence,
    StorageError,
    TopicPartition,
    next_sequence,
)
from storage.errors import CallerError
from storage.request_journal import (
    Completed,
    Forgotten,
    Marked,
    Started,
    decoded_entries,
    encode_entry,
)

KEPT_MS: Final = 86_400_000
ENTRIES_OF_A_KEY: Final = 2


class ProducerPool(NamedTuple):
    """Key of a pool of reusable producer ids: partition and durability."""

    partition: TopicPartition
    durable: bool


@dataclass(slots=True)
class KeyedPart:
    """The records of a request for one partition.

    `base_offset` None: only the store knows whether the records are stored. `pool`: the pool for the next mark of
    this producer; None if the producer must not be reused.
    """

    mark: ProducerSequence
    count: int
    pool: ProducerPool | None = None
    base_offset: int | None = None


@dataclass(slots=True, eq=False)
class KeyedRequest:
    """One request, by its key. `under_way` is done when the attempt in progress has ended."""

    key: str
    digest: bytes
    time_ms: int
    topic: str
    parts: dict[int, KeyedPart] = field(default_factory=dict)
    under_way: Future[None] | None = None


@dataclass(slots=True, eq=False)
class JournalEntries:
    """The journal entries of one attempt, which the writer's thread writes before and after its records.
    `are_complete`: the second entry was written too.
    """

    journal: Journal
    key: str
    started: bytes
    are_complete: bool = False

    def completed(self, outcomes: Iterable[AppendOutcome]) -> bytes | None:
        """Return the entry to write after the records; None if no records were stored."""
        offsets = [
            (outcome.partition, outcome.base_offset)
            for outcome in outcomes
            if outcome.error is None
        ]
        return encode_entry(Completed(self.key, offsets)) if offsets else None


def write_started(attempts: Sequence[JournalEntries], *, durable: bool) -> None:
    """Write the Started entries before the records of a group. Raises what `Journal.append` raises."""
    attempts[0].journal.append([entries.started for entries in attempts], sync=durable)


def write_completed(attempts: Iterable[tuple[JournalEntries, Sequence[AppendOutcome]]]) -> None:
    """Write the Completed entries after the records of a group. An error is ignored: the store itself recognises the
    records.
    """
    written = [
        (entries, completed)
        for entries, outcomes in attempts
        if (completed := entries.completed(outcomes)) is not None
    ]
    if not written:
        return
    with suppress(StorageError):
        written[0][0].journal.append([completed for _, completed in written], sync=False)
        for entries, _ in written:
            entries.are_complete = True


class IdempotencyStore:
    """The keys of the last 24 hours, at most `max_keys`: the oldest are dropped first."""

    def __init__(
        self,
        journal: Journal,
        requests: Iterable[KeyedRequest] = (),
        *,
        clock: Clock,
        max_keys: int,
    ) -> None:
        self.journal = journal
        self._clock = clock
        self._max_keys = max_keys
        self._requests = {request.key: request for request in requests}
        self._idle_marks: dict[ProducerPool, list[ProducerSequence]] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def request(self, key: RequestKey, topic: str) -> KeyedRequest:
        """Return the request of this key, or add a new one. Raises KeyReused."""
        now_ms = self._clock()
        request = self._requests.get(key.key)
        if request is None or (request.under_way is None and _is_old(request, now_ms)):
            self._requests.pop(key.key, None)
            self._make_room(now_ms)
            request = self._requests[key.key] = KeyedRequest(key.key, key.digest, now_ms, topic)
        if request.digest != key.digest:
            raise KeyReused(
                f"Idempotency-Key {key.key!r} was given to another request of the last day",
                key=key.key,
            )
        return request

    def idle_mark(self, pool: ProducerPool) -> ProducerSequence | None:
        """Return a mark that no other append has used; None if the pool is empty."""
        idle = self._idle_marks.get(pool)
        return idle.pop() if idle else None

    def journal_entries(self, request: KeyedRequest, numbers: Iterable[int]) -> JournalEntries:
        """Return the journal entries of an attempt at these partitions."""
        return JournalEntries(self.journal, request.key, _started(request, numbers))

    def stored(
        self,
        request: KeyedRequest,
        outcomes: Iterable[AppendOutcome],
        entries: JournalEntries,
    ) -> None:
        """Record the offsets of a stored attempt. Its producers may be reused if its Completed entry was written."""
        for outcome in outcomes:
            part = request.parts[outcome.partition]
            part.base_offset = outcome.base_offset
            if entries.are_complete and part.pool is not None:
                producer_id, epoch, sequence, _ = part.mark
                following = next_sequence(sequence, part.count)
                idle = self._idle_marks.setdefault(part.pool, [])
                idle.append(ProducerSequence(producer_id, epoch, following))

    def forget_topic(self, topic: str) -> bytes | None:
        """Forget the keys of a deleted topic. Return the entry to write, None for an empty journal.

        The journal may name offsets of keys that are no longer in memory: a topic of the same name may use them again.
        """
        self._requests = {k: r for k, r in self._requests.items() if r.topic != topic}
        self._idle_marks = {
            pool: marks for pool, marks in self._idle_marks.items() if pool.partition.topic != topic
        }
        return None if self.journal.is_empty else encode_entry(Forgotten(topic))

    def _make_room(self, now_ms: int) -> None:
        """Drop the oldest requests while they are too old or too many; stop at a request in progress."""
        while self._requests:
            oldest = next(iter(self._requests.values()))
            too_many = len(self._requests) >= self._max_keys
            if oldest.under_way is not None or not (too_many or _is_old(oldest, now_ms)):
                return
            del self._requests[oldest.key]


def load_keys(
    journal: Journal,
    bounds: Callable[[TopicPartition], OffsetBounds],
    *,
    clock: Clock,
    max_keys: int,
    losses: Sequence[Loss] = (),
) -> IdempotencyStore:
    """Read the keys of a journal that are still valid. Blocking.

    On return invalid entries are durably removed from the journal too: no record may be appended before that.
    `losses`: the records that the start of the store lost. A log may continue above the offsets of lost records.
    """
    now_ms = clock()
    requests = [r for r in replayed(journal.take()).values() if not _is_old(r, now_ms)]
    stale = sum(_drop_lost(request, bounds, losses) for request in requests)
    requests = [request for request in requests if request.parts]
    if stale:
        journal.replace([line for request in requests for line in _encoded(request)])
    return IdempotencyStore(journal, requests, clock=clock, max_keys=max_keys)


def replayed(lines: Iterable[bytes]) -> dict[str, KeyedRequest]:
    """Return the requests of a journal, oldest key first. Unreadable entries are skipped."""
    requests: dict[str, KeyedRequest] = {}
    for entry in decoded_entries(lines):
        match entry:
            case Started():
                _replay_started(requests, entry)
            case Completed(key, offsets):
                parts = requests[key].parts if key in requests else {}
                for number, base_offset in offsets:
                    if number in parts:
                        parts[number].base_offset = base_offset
            case Forgotten(topic):
                requests = {key: r for key, r in requests.items() if r.topic != topic}
    return requests


def _replay_started(requests: dict[str, KeyedRequest], entry: Started) -> None:
    key, digest, time_ms = entry.key, entry.digest, entry.time_ms
    request = requests.get(key)
    if request is None or (request.digest, request.time_ms) != (digest, time_ms):
        requests.pop(key, None)
        request = requests[key] = KeyedRequest(key, digest, time_ms, entry.topic)
    for number, producer_id, sequence, count in entry.parts:
        mark = ProducerSequence(producer_id, 0, sequence)
        known = request.parts.get(number)
        if known is None or known.mark != mark:
            request.parts[number] = KeyedPart(mark, count)


def _drop_lost(
    request: KeyedRequest,
    bounds: Callable[[TopicPartition], OffsetBounds],
    losses: Sequence[Loss],
) -> int:
    """Remove the parts of which the log has no records. Return their number."""
    lost = []
    for number, part in request.parts.items():
        try:
            end = bounds(TopicPartition(request.topic, number)).end
        except CallerError:  # the topic no longer exists
            lost.append(number)
            continue
        if part.base_offset is None:
            continue
        next_offset = part.base_offset + part.count
        if next_offset > end or any(
            (loss.topic, loss.partition) == (request.topic, number)
            and loss.first_offset < next_offset
            and (loss.next_offset is None or part.base_offset < loss.next_offset)
            for loss in losses
        ):
            lost.append(number)
    for number in lost:
        del request.parts[number]
    return len(lost)


def _started(request: KeyedRequest, numbers: Iterable[int]) -> bytes:
    parts = [
        Marked(number, part.mark.producer_id, part.mark.sequence, part.count)
        for number in numbers
        for part in (request.parts[number],)
    ]
    return encode_entry(Started(request.key, request.digest, request.time_ms, request.topic, parts))


def _encoded(request: KeyedRequest) -> Iterable[bytes]:
    """Yield the journal entries that restore a request."""
    yield _started(request, request.parts)
    offsets = [
        (number, part.base_offset)
        for number, part in request.parts.items()
        if part.base_offset is not None
    ]
    if offsets:
        yield encode_entry(Completed(request.key, offsets))


def _is_old(request: KeyedRequest, now_ms: int) -> bool:
    return now_ms - request.time_ms >= KEPT_MS
