"""What is remembered of requests with a key: which there were, what they stored, and by which marks
their records are known.

Owns the entries in memory, their counterparts in the journal, and what of them holds after a start;
must not know HTTP, the event loop's tasks or a backend. Lives on the event loop but for `open_book`
and the two functions for the lane's thread.

Each part of such a request (its records for one partition) is appended under a mark, a producer id
and sequence that no other append bears, and the store takes a marked append once. So only two things
must be known for certain: which mark a request has, before its records are written, and that no
mark is given to two. A group commit therefore does, in this order:

    1  Begun: key, digest, marks         written, and synced where the answer waits for the disk
    2  the records, each part marked     all or nothing per part, by the store
    3  Ended: key, base offsets          written; synced with the next Begun at the latest
    4  the log's flush, the answers

What a crash leaves, and what a repeat then meets:

    before 1    neither entry nor records: the request is a new one
    1 to 3      Begun alone: the part is appended again under its mark, and the store knows whether
                it is there (its producer appended nothing since: see below)
    behind 3    Begun and Ended: the offsets of then
    3, but the log lost the end of it (what was not flushed): Ended tells of offsets that are not
                there. A start drops such entries from the journal before anything can take these
                offsets, and the request is a new one

A producer id is reused, with the next sequence, only after a Begun, whose sync takes every earlier
Ended to the disk with it. It is not reused if its Ended could not be written, after a restart, or if
attempts of one request differed in whether they waited for the disk. So only a producer's last append
can lack its Ended, and stores recognise exactly that one. A Begun that does not wait for the disk takes
nothing with it: such requests have producers of their own, and only they can be stored twice, after a
power loss; not once a repeat that waits for the disk was answered, which syncs journal and records.
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
    from logserver.requests import RequestKey
    from logserver.writer import Request, Run

KEPT_MS: Final = 86_400_000
ENTRIES_OF_A_KEY: Final = 2


class Stock(NamedTuple):
    """Producers of one partition whose appends wait for the disk, or do not."""

    partition: TopicPartition
    durable: bool


@dataclass(slots=True)
class KeyedPart:
    """The records for one partition. `base_offset` None: whether they are stored only the store can
    tell. `stock`: where a following mark of this producer belongs, None where it is not to be used again.
    """

    mark: ProducerSequence
    count: int
    stock: Stock | None = None
    base_offset: int | None = None


@dataclass(slots=True, eq=False)
class Entry:
    """One request, by its key. `under_way` ends with the attempt that is being made."""

    key: str
    digest: bytes
    time_ms: int
    topic: str
    parts: dict[int, KeyedPart] = field(default_factory=dict)
    under_way: Future[None] | None = None


@dataclass(slots=True, eq=False)
class Note:
    """What the lane's thread writes down of one request, before and behind its records. `kept`: the
    second was written too.
    """

    journal: Journal
    key: str
    begun: bytes
    kept: bool = False

    def ended(self, runs: Iterable[Run]) -> bytes | None:
        """The entry behind the records; None where none were stored."""
        offsets = [(run.partition, run.base_offset) for run in runs if run.error is None]
        return encode_entry(Ended(self.key, offsets)) if offsets else None


def begin_notes(requests: Sequence[Request], *, durable: bool) -> None:
    """Before the records of a group: a request whose note cannot be written has failed."""
    notes = [request.note for request in requests if request.note is not None]
    try:
        notes[0].journal.append([note.begun for note in notes], sync=durable)
    except StorageError as error:
        for request in requests:
            request.error = error


def end_notes(requests: Sequence[Request]) -> None:
    """Behind the records of a group. The store itself knows what cannot be written here."""
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
    """The keys of a day, at most `max_keys`: the oldest go first. `entries` as of the start."""

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
        """What is known of this key; a new one from here on. Raises KeyReused."""
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
        """A mark that no other append has or had; None where there is none in stock."""
        idle = self._idle_marks.get(stock)
        return idle.pop() if idle else None

    def note(self, entry: Entry, numbers: Iterable[int]) -> Note:
        """What the journal is told of an attempt at these partitions."""
        return Note(self.journal, entry.key, _begun(entry, numbers))

    def stored(self, entry: Entry, runs: Iterable[Run], note: Note) -> None:
        """An attempt was answered: its parts are where the runs say."""
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
        """Let go of the oldest, as far as they are too old or too many; who is under way stays."""
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
    """The keys that a journal tells of, as far as they hold. Blocking. What does not hold is gone
    from the journal too on return, durably: nothing may be appended before that.

    `losses`: what the start of the store lost. A log may go on above the offsets of lost records.
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
    """What a journal's entries tell, oldest key first. What cannot be read is passed over."""
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
    """Take out the parts whose records are not in the log; how many they were."""
    lost = []
    for number, part in entry.parts.items():
        try:
            end = bounds(TopicPartition(entry.topic, number)).end
        except CallerError:  # the topic is gone
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
