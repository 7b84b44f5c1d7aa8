"""The journal of request keys: its content after any cut, and the entries that agree with the log."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logserver.errors import KeyReused
from logserver.idempotency.journal import (
    KEPT_MS,
    Entry,
    Keybook,
    KeyedPart,
    Stock,
    open_book,
    replayed,
)
from logserver.service.commit import AppendOutcome
from logserver.service.requests import RequestKey
from storage import Loss, OffsetBounds, ProducerSequence, TopicPartition
from storage.errors import UnknownTopic
from storage.files import OverlayFileSystem
from storage.shared.journal import Journal
from tests.contract.harness import ManualClock

T0 = TopicPartition("t", 0)
DURABLE = Stock(T0, durable=True)


def journal_on(fs: OverlayFileSystem) -> Journal:
    return Journal(fs, Path("/"), "idempotency", generation_entries=1000)


def book_on(
    fs: OverlayFileSystem, *, ends: dict[str, int] | None = None, now_ms: int = 0, keys: int = 100
) -> Keybook:
    """Return the book that a start finds; `ends` gives the end of the first partition by topic."""
    known = {"t": 1000} if ends is None else ends

    def bounds(partition: TopicPartition) -> OffsetBounds:
        if partition.topic not in known:
            raise UnknownTopic(partition.topic)
        return OffsetBounds(0, known[partition.topic], known[partition.topic])

    return open_book(journal_on(fs), bounds, clock=ManualClock(now_ms), max_keys=keys)


def attempt(book: Keybook, key: str, base_offset: int | None, *, producer_id: int = 7) -> Entry:
    """Make one request of two records, which is answered if an offset is given; return its entry."""
    entry = book.entry(RequestKey(key, b"d"), "t")
    mark = ProducerSequence(producer_id, 0, 0)
    entry.parts[0] = KeyedPart(mark, 2, DURABLE)
    note = book.note(entry, [0])
    book.journal.append([note.begun], sync=True)
    if base_offset is not None:
        runs = [AppendOutcome(0, range(2), base_offset)]
        ended = note.ended(runs)
        assert ended is not None
        book.journal.append([ended], sync=False)
        note.kept = True
        book.stored(entry, runs, note)
    return entry


def told(book: Keybook, key: str) -> KeyedPart | None:
    return book.entry(RequestKey(key, b"d"), "t").parts.get(0)


def test_what_was_stored_and_what_was_begun_is_known_after_a_start() -> None:
    fs = OverlayFileSystem()
    book = book_on(fs)
    attempt(book, "stored", 5)
    attempt(book, "begun", None, producer_id=8)
    again = book_on(fs)
    assert told(again, "stored") == KeyedPart(ProducerSequence(7, 0, 0), 2, None, 5)
    assert told(again, "begun") == KeyedPart(ProducerSequence(8, 0, 0), 2, None, None)
    with pytest.raises(KeyReused):
        again.entry(RequestKey("begun", b"other"), "t")


def test_a_following_mark_is_for_requests_that_sync_alike() -> None:
    book = book_on(OverlayFileSystem())
    attempt(book, "k", 5)
    assert book.idle_mark(Stock(T0, durable=False)) is None
    assert book.idle_mark(Stock(TopicPartition("t", 1), durable=True)) is None
    assert book.idle_mark(DURABLE) == ProducerSequence(7, 0, 2)
    assert book.idle_mark(DURABLE) is None


def test_marks_of_before_a_start_are_not_gone_on_with() -> None:
    fs = OverlayFileSystem()
    attempt(book_on(fs), "k", None)
    book = book_on(fs)
    entry = book.entry(RequestKey("k", b"d"), "t")
    note = book.note(entry, [0])
    note.kept = True
    book.stored(entry, [AppendOutcome(0, range(2), 5)], note)
    assert entry.parts[0].base_offset == 5
    assert book.idle_mark(DURABLE) is None


@pytest.mark.parametrize(("end", "there"), [(4, False), (5, False), (6, False), (7, True)])
def test_offsets_behind_the_end_go_at_the_start_and_for_good(end: int, *, there: bool) -> None:
    fs = OverlayFileSystem()
    attempt(book_on(fs), "k", 5)
    assert (told(book_on(fs, ends={"t": end}), "k") is not None) is there
    assert (told(book_on(fs, ends={"t": 1000}), "k") is not None) is there


def test_keys_of_a_topic_that_is_gone_go_with_it() -> None:
    fs = OverlayFileSystem()
    attempt(book_on(fs), "k", 5)
    assert told(book_on(fs, ends={}), "k") is None
    assert told(book_on(fs), "k") is None


def test_a_topic_that_is_deleted_is_noted() -> None:
    fs = OverlayFileSystem()
    book = book_on(fs)
    attempt(book, "k", 5)
    line = book.forget_topic("t")
    assert line is not None
    book.journal.append([line], sync=True)
    assert (
        book.forget_topic("t") is not None
    )  # older entries may name it, although none of its keys is in memory
    assert book_on(OverlayFileSystem()).forget_topic("t") is None
    assert book.idle_mark(DURABLE) is None
    attempt(book, "new", 1)
    again = book_on(fs)
    assert told(again, "k") is None
    assert told(again, "new") is not None


def test_a_key_is_known_for_a_day() -> None:
    fs = OverlayFileSystem()
    attempt(book_on(fs), "k", 5)
    assert told(book_on(fs, now_ms=KEPT_MS - 1), "k") is not None
    assert told(book_on(fs, now_ms=KEPT_MS), "k") is None


def test_a_start_that_finds_nothing_wrong_writes_nothing() -> None:
    fs = OverlayFileSystem()
    attempt(book_on(fs), "k", 5)
    before = fs.read_bytes(Path("/.logserver.idempotency"))
    book_on(fs)
    assert fs.read_bytes(Path("/.logserver.idempotency")) == before


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12), st.data())
def test_the_beginning_of_a_journal_never_tells_an_offset_too_many(
    requests: list[tuple[str, bool]], data: st.DataObject
) -> None:
    fs = OverlayFileSystem()
    book = book_on(fs)
    for number, (key, answered) in enumerate(requests):
        if told(book, key) is None:
            attempt(book, key, number * 2 if answered else None, producer_id=number)
    lines = list(journal_on(fs).take())
    whole = replayed(lines)
    cut = replayed(lines[: data.draw(st.integers(0, len(lines)))])
    assert cut.keys() <= whole.keys()
    for key, entry in cut.items():
        for number, part in entry.parts.items():
            known = whole[key].parts[number]
            assert part.mark == known.mark
            assert part.base_offset in {None, known.base_offset}


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=5))
def test_entries_of_another_kind_are_passed_over(lines: list[bytes]) -> None:
    replayed(lines)


@pytest.mark.parametrize("keys", [1, 2, 3])
async def test_a_key_whose_request_is_under_way_stays(keys: int) -> None:
    """A repeat of the request would be stored a second time. After its answer the key may be dropped."""
    book = book_on(OverlayFileSystem(), keys=keys)
    first = book.entry(RequestKey("first", b"d"), "t")
    first.under_way = asyncio.get_running_loop().create_future()
    for number in range(5):
        book.entry(RequestKey(f"other-{number}", b"d"), "t")
    assert book.entry(RequestKey("first", b"d"), "t") is first
    with pytest.raises(KeyReused):
        book.entry(RequestKey("first", b"another"), "t")
    first.under_way = None
    book.entry(RequestKey("last", b"d"), "t")
    assert len(book) == keys
    assert book.entry(RequestKey("first", b"d"), "t") is not first


@pytest.mark.parametrize("lost", [range(5, 6), range(0, 6), range(6, 9)], ids=str)
def test_a_key_whose_records_were_lost_is_a_new_request(lost: range) -> None:
    """The log continued above the lost records, so its end proves nothing."""
    fs = OverlayFileSystem()
    attempt(book_on(fs), "k", 5)
    loss = Loss(
        topic="t",
        partition=0,
        path="p",
        position=0,
        size_bytes=0,
        first_offset=lost.start,
        next_offset=lost.stop,
        reason="missing",
    )
    bounds = OffsetBounds(0, 1000, 1000)
    for losses in ([loss], []):  # the second start: no entry of the key is left in the journal
        journal = journal_on(fs)
        book = open_book(journal, lambda _: bounds, clock=ManualClock(0), max_keys=9, losses=losses)
        assert told(book, "k") is None


@pytest.mark.parametrize("lost", [range(0, 5), range(7, 9)], ids=str)
def test_a_loss_of_other_records_leaves_the_key(lost: range) -> None:
    fs = OverlayFileSystem()
    attempt(book_on(fs), "k", 5)
    loss = Loss(
        topic="t",
        partition=0,
        path="p",
        position=0,
        size_bytes=0,
        first_offset=lost.start,
        next_offset=lost.stop,
        reason="missing",
    )
    bounds = OffsetBounds(0, 1000, 1000)
    book = open_book(
        journal_on(fs), lambda _: bounds, clock=ManualClock(0), max_keys=9, losses=[loss]
    )
    assert told(book, "k") is not None
