"""The memory of requests with a key: which requests were received, what they stored, and the marks of their records.

Owns the entries in memory, their counterparts in the journal, and which of them are valid after a start; must not
know HTTP, the event loop's tasks or a backend. Use it on the event loop only, except `open_book` and the two
functions for the lane's thread.

Each part of such a request (its records for one partition) is appended with a mark: a producer id and a sequence
number that no other append has. The store accepts a marked append once. So only two things must hold for certain: the
mark of a request is known before its records are written, and no mark is used for two requests. A group commit
therefore runs in this order:

    1  Begun: key, digest, marks         written, and synced if the answer waits for the disk
    2  the records, each part marked     all or nothing per part, by the store
    3  Ended: key, base offsets          written; synced with the next Begun at the latest
    4  the log's flush, the answers

The state after a crash, and how a repeated request is handled:

    before 1    neither entry nor records: the request is a new one
    1 to 3      Begun alone: the part is appended again with its mark, and the store detects whether
                it is stored (its producer appended nothing since: see below)
    after 3     Begun and Ended: the offsets of the first attempt
    3, but the log lost its unflushed end: Ended names offsets that do not exist. A start drops
                such entries from the journal before any record can get these offsets, and the
                request is a new one

A producer id is reused, with the next sequence number, only after a Begun: its sync makes every earlier Ended
durable. It is not reused in three cases:
- its Ended could not be written
- the server was restarted
- the attempts of one request differed in whether they waited for the disk

So only the last append of a producer can lack its Ended, and stores recognise exactly that append.

A Begun that does not wait for the disk makes nothing durable, so such requests have producers of their own. Only such
requests can be stored twice, after a power loss. They no longer can once a repeat that waits for the disk was
answered: it syncs journal and records.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from logserver.errors import KeyReused
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
    Begun,
    Ended,
    Forgotten,
    Marked,
    decoded_entries,
    encode_entry,
)

if TYPE_CHECKING:
    from logserver.service.commit import AppendOutcome, Request
    from logserver.service.requests import RequestKey

KEPT_MS: Final = 86_400_000
ENTRIES_OF_A_KEY: Final = 2


class Stock(NamedTuple):
    """Key of a pool of reusable producer ids: partition and durability."""

    partition: TopicPartition
    durable: bool


@dataclass(slots=True)
class KeyedPart:
    """The records of a request for one partition.

    `base_offset` None: only the store knows whether the records are stored. `stock`: the pool for the next mark of
    this producer; None if the producer must not be reused.
    """

    mark: ProducerSequence
    count: int
    stock: Stock | None = None
    base_offset: int | None = None


@dataclass(slots=True, eq=False)
class Entry:
    """One request, by its key. `under_way` is done when the attempt in progress has ended."""

    key: str
    digest: bytes
    time_ms: int
    topic: str
    parts: dict[int, KeyedPart] = field(default_factory=dict)
    under_way: Future[None] | None = None


@dataclass(slots=True, eq=False)
class Note:
    """The journal entries of one request, which the lane's thread writes before and after its records. `kept`: the
    second entry was written too.
    """

    journal: Journal
    key: str
    begun: bytes
    kept: bool = False

    def ended(self, runs: Iterable[AppendOutcome]) -> bytes | None:
        """Return the entry to write after the records; None if no records were stored."""
        offsets = [(run.partition, run.base_offset) for run in runs if run.error is None]
        return encode_entry(Ended(self.key, offsets)) if offsets else None


def begin_notes(requests: Sequence[Request], *, durable: bool) -> None:
    """Write the Begun entries before the records of a group. If this fails, each of the requests fails."""
    notes = [request.note for request in requests if request.note is not None]
    try:
        notes[0].journal.append([note.begun for note in notes], sync=durable)
    except StorageError as error:
        for request in requests:
            request.error = error


def end_notes(requests: Sequence[Request]) -> None:
    """Write the Ended entries after the records of a group. An error is ignored: the store itself recognises the
    records.
    """
    ended = [
        (request.note, entry)
        for request in requests
        if request.note is not None and (entry := request.note.ended(request.runs)) is not None
    ]
    if not ended:
        return
    try:
        ended[0][0].journal.append([entry for _, entry in ended], sync=False)
    except StorageError:
        return
    for note, _ in ended:
        note.kept = True


class Keybook:
    """The keys of the last 24 hours, at most `max_keys`: the oldest are dropped first. `entries`: the entries at the
    start.
    """

    def __init__(
        self, journal: Journal, entries: Iterable[Entry] = (), *, clock: Clock, max_keys: int
    ) -> None:
        self.journal = journal
        self._clock = clock
        self._max_keys = max_keys
        self._entries = {entry.key: entry for entry in entries}
        self._idle_marks: dict[Stock, list[ProducerSequence]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, key: RequestKey, topic: str) -> Entry:
        """Return the entry of this key, or add a new entry. Raises KeyReused."""
        now_ms = self._clock()
        entry = self._entries.get(key.key)
        if entry is None or (entry.under_way is None and _is_old(entry, now_ms)):
            self._entries.pop(key.key, None)
            self._make_room(now_ms)
            entry = self._entries[key.key] = Entry(key.key, key.digest, now_ms, topic)
        if entry.digest != key.digest:
            raise KeyReused(
                f"Idempotency-Key {key.key!r} was given to another request of the last day",
                key=key.key,
            )
        return entry

    def idle_mark(self, stock: Stock) -> ProducerSequence | None:
        """Return a mark that no other append has used; None if the pool is empty."""
        idle = self._idle_marks.get(stock)
        return idle.pop() if idle else None

    def note(self, entry: Entry, numbers: Iterable[int]) -> Note:
        """Return the journal entries of an attempt at these partitions."""
        return Note(self.journal, entry.key, _begun(entry, numbers))

    def stored(self, entry: Entry, runs: Iterable[AppendOutcome], note: Note) -> None:
        """Record the offsets of a stored attempt. Its producers may be reused if its Ended entry was written."""
        for run in runs:
            part = entry.parts[run.partition]
            part.base_offset = run.base_offset
            if note.kept and part.stock is not None:
                producer_id, epoch, sequence = part.mark
                following = next_sequence(sequence, part.count)
                idle = self._idle_marks.setdefault(part.stock, [])
                idle.append(ProducerSequence(producer_id, epoch, following))

    def forget_topic(self, topic: str) -> bytes | None:
        """Forget the keys of a deleted topic. Return the entry to write, None for an empty journal.

        The journal may name offsets of keys that are no longer in memory: a topic of the same name may use them again.
        """
        of_it = [entry.key for entry in self._entries.values() if entry.topic == topic]
        for key in of_it:
            del self._entries[key]
        for stock in [stock for stock in self._idle_marks if stock.partition.topic == topic]:
            del self._idle_marks[stock]
        return None if self.journal.is_empty else encode_entry(Forgotten(topic))

    def _make_room(self, now_ms: int) -> None:
        """Drop the oldest entries while they are too old or too many; stop at an entry in progress."""
        while self._entries:
            oldest = next(iter(self._entries.values()))
            too_many = len(self._entries) >= self._max_keys
            if oldest.under_way is not None or not (too_many or _is_old(oldest, now_ms)):
                return
            del self._entries[oldest.key]


def open_book(
    journal: Journal,
    bounds: Callable[[TopicPartition], OffsetBounds],
    *,
    clock: Clock,
    max_keys: int,
    losses: Iterable[Loss] = (),
) -> Keybook:
    """Read the keys of a journal that are still valid. Blocking.

    On return invalid entries are durably removed from the journal too: no record may be appended before that.
    `losses`: what the start of the store lost. A log may continue above the offsets of lost records.
    """
    now_ms = clock()
    entries = [e for e in replayed(journal.take()).values() if not _is_old(e, now_ms)]
    lost = list(losses)
    stale = sum(_drop_lost(entry, bounds, lost) for entry in entries)
    entries = [entry for entry in entries if entry.parts]
    if stale:
        journal.replace([line for entry in entries for line in _written(entry)])
    return Keybook(journal, entries, clock=clock, max_keys=max_keys)


def replayed(lines: Iterable[bytes]) -> dict[str, Entry]:
    """Return the entries of a journal, oldest key first. Unreadable entries are skipped."""
    entries: dict[str, Entry] = {}
    for told in decoded_entries(lines):
        match told:
            case Begun():
                _replay_begun(entries, told)
            case Ended(key, offsets):
                parts = entries[key].parts if key in entries else {}
                for number, base_offset in offsets:
                    if number in parts:
                        parts[number].base_offset = base_offset
            case Forgotten(topic):
                entries = {key: e for key, e in entries.items() if e.topic != topic}
    return entries


def _replay_begun(entries: dict[str, Entry], told: Begun) -> None:
    entry = entries.get(told.key)
    if entry is None or (entry.digest, entry.time_ms) != (told.digest, told.time_ms):
        entries.pop(told.key, None)
        entry = entries[told.key] = Entry(told.key, told.digest, told.time_ms, told.topic)
    for number, producer_id, sequence, count in told.parts:
        mark = ProducerSequence(producer_id, 0, sequence)
        known = entry.parts.get(number)
        if known is None or known.mark != mark:
            entry.parts[number] = KeyedPart(mark, count)


def _drop_lost(
    entry: Entry, bounds: Callable[[TopicPartition], OffsetBounds], losses: Sequence[Loss]
) -> int:
    """Remove the parts of which the log has no records. Return their number."""
    lost = []
    for number, part in entry.parts.items():
        try:
            end = bounds(TopicPartition(entry.topic, number)).end
        except CallerError:  # the topic no longer exists
            lost.append(number)
            continue
        if part.base_offset is None:
            continue
        next_offset = part.base_offset + part.count
        if next_offset > end or any(
            (loss.topic, loss.partition) == (entry.topic, number)
            and loss.first_offset < next_offset
            and (loss.next_offset is None or part.base_offset < loss.next_offset)
            for loss in losses
        ):
            lost.append(number)
    for number in lost:
        del entry.parts[number]
    return len(lost)


def _begun(entry: Entry, numbers: Iterable[int]) -> bytes:
    parts = [
        Marked(number, mark.producer_id, mark.sequence, entry.parts[number].count)
        for number in numbers
        for mark in (entry.parts[number].mark,)
    ]
    return encode_entry(Begun(entry.key, entry.digest, entry.time_ms, entry.topic, parts))


def _written(entry: Entry) -> Iterable[bytes]:
    yield _begun(entry, entry.parts)
    offsets = [
        (number, part.base_offset)
        for number, part in entry.parts.items()
        if part.base_offset is not None
    ]
    if offsets:
        yield encode_entry(Ended(entry.key, offsets))


def _is_old(entry: Entry, now_ms: int) -> bool:
    return now_ms - entry.time_ms >= KEPT_MS
