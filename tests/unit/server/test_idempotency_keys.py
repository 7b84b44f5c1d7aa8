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
    IdempotencyStore,
    KeyedPart,
    KeyedRequest,
    ProducerPool,
    load_keys,
    replayed,
)
from logserver.service.requests import AppendOutcome, RequestKey
from storage import Loss, OffsetBounds, ProducerSequence, TopicPartition
from storage.errors import UnknownTopic
from storage.files import OverlayFileSystem
from storage.shared.journal import Journal
from tests.contract.harness import ManualClock

T0 = TopicPartition("t", 0)
DURABLE = ProducerPool(T0, durable=True)


def journal_on(fs: OverlayFileSystem) -> Journal:
    return Journal(fs, Path("/"), "idempotency", generation_entries=1000)


def keys_on(
    fs: OverlayFileSystem, *, ends: dict[str, int] | None = None, now_ms: int = 0, limit: int = 100
) -> IdempotencyStore:
    """Return the keys that a start finds; `ends` gives the end of the first partition by topic."""
    known = {"t": 1000} if ends is None else ends

    def bounds(partition: TopicPartition) -> OffsetBounds:
        if partition.topic not in known:
            raise UnknownTopic(partition.topic)
        return OffsetBounds(0, known[partition.topic], known[partition.topic])

    return load_keys(journal_on(fs), bounds, clock=ManualClock(now_ms), max_keys=limit)


def attempt(
    keys: IdempotencyStore, key: str, base_offset: int | None, *, producer_id: int = 7
) -> KeyedRequest:
    """Make one request of two records, which is answered if an offset is given; return it."""
    request = keys.request(RequestKey(key, b"d"), "t")
    mark = ProducerSequence(producer_id, 0, 0)
    request.parts[0] = KeyedPart(mark, 2, DURABLE)
    entries = keys.journal_entries(request, [0])
    keys.journal.append([entries.started], sync=True)
    if base_offset is not None:
        outcomes = [AppendOutcome(0, range(2), base_offset)]
        completed = entries.completed(outcomes)
        assert completed is not None
        keys.journal.append([completed], sync=False)
        entries.are_complete = True
        keys.stored(request, outcomes, entries)
    return request


def known_part(keys: IdempotencyStore, key: str) -> KeyedPart | None:
    return keys.request(RequestKey(key, b"d"), "t").parts.get(0)


def test_what_was_stored_and_what_was_begun_is_known_after_a_start() -> None:
    fs = OverlayFileSystem()
    keys = keys_on(fs)
    attempt(keys, "stored", 5)
    attempt(keys, "begun", None, producer_id=8)
    again = keys_on(fs)
    assert known_part(again, "stored") == KeyedPart(ProducerSequence(7, 0, 0), 2, None, 5)
    assert known_part(again, "begun") == KeyedPart(ProducerSequence(8, 0, 0), 2, None, None)
    with pytest.raises(KeyReused):
        again.request(RequestKey("begun", b"other"), "t")


def test_a_following_mark_is_for_requests_that_sync_alike() -> None:
    keys = keys_on(OverlayFileSystem())
    attempt(keys, "k", 5)
    assert keys.idle_mark(ProducerPool(T0, durable=False)) is None
    assert keys.idle_mark(ProducerPool(TopicPartition("t", 1), durable=True)) is None
    assert keys.idle_mark(DURABLE) == ProducerSequence(7, 0, 2)
    assert keys.idle_mark(DURABLE) is None


def test_marks_of_before_a_start_are_not_gone_on_with() -> None:
    fs = OverlayFileSystem()
    attempt(keys_on(fs), "k", None)
    keys = keys_on(fs)
    request = keys.request(RequestKey("k", b"d"), "t")
    entries = keys.journal_entries(request, [0])
    entries.are_complete = True
    keys.stored(request, [AppendOutcome(0, range(2), 5)], entries)
    assert request.parts[0].base_offset == 5
    assert keys.idle_mark(DURABLE) is None


@pytest.mark.parametrize(("end", "there"), [(4, False), (5, False), (6, False), (7, True)])
def test_offsets_behind_the_end_go_at_the_start_and_for_good(end: int, *, there: bool) -> None:
    fs = OverlayFileSystem()
    attempt(keys_on(fs), "k", 5)
    assert (known_part(keys_on(fs, ends={"t": end}), "k") is not None) is there
    assert (known_part(keys_on(fs, ends={"t": 1000}), "k") is not None) is there


def test_keys_of_a_topic_that_is_gone_go_with_it() -> None:
    fs = OverlayFileSystem()
    attempt(keys_on(fs), "k", 5)
    assert known_part(keys_on(fs, ends={}), "k") is None
    assert known_part(keys_on(fs), "k") is None


def test_a_topic_that_is_deleted_is_noted() -> None:
    fs = OverlayFileSystem()
    keys = keys_on(fs)
    attempt(keys, "k", 5)
    line = keys.forget_topic("t")
    assert line is not None
    keys.journal.append([line], sync=True)
    assert (
        keys.forget_topic("t") is not None
    )  # older entries may name it, although none of its keys is in memory
    assert keys_on(OverlayFileSystem()).forget_topic("t") is None
    assert keys.idle_mark(DURABLE) is None
    attempt(keys, "new", 1)
    again = keys_on(fs)
    assert known_part(again, "k") is None
    assert known_part(again, "new") is not None


def test_a_key_is_known_for_a_day() -> None:
    fs = OverlayFileSystem()
    attempt(keys_on(fs), "k", 5)
    assert known_part(keys_on(fs, now_ms=KEPT_MS - 1), "k") is not None
    assert known_part(keys_on(fs, now_ms=KEPT_MS), "k") is None


def test_a_start_that_finds_nothing_wrong_writes_nothing() -> None:
    fs = OverlayFileSystem()
    attempt(keys_on(fs), "k", 5)
    before = fs.read_bytes(Path("/.logserver.idempotency"))
    keys_on(fs)
    assert fs.read_bytes(Path("/.logserver.idempotency")) == before


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12), st.data())
def test_the_beginning_of_a_journal_never_tells_an_offset_too_many(
    requests: list[tuple[str, bool]], data: st.DataObject
) -> None:
    fs = OverlayFileSystem()
    keys = keys_on(fs)
    for number, (key, answered) in enumerate(requests):
        if known_part(keys, key) is None:
            attempt(keys, key, number * 2 if answered else None, producer_id=number)
    lines = list(journal_on(fs).take())
    whole = replayed(lines)
    cut = replayed(lines[: data.draw(st.integers(0, len(lines)))])
    assert cut.keys() <= whole.keys()
    for key, request in cut.items():
        for number, part in request.parts.items():
            known = whole[key].parts[number]
            assert part.mark == known.mark
            assert part.base_offset in {None, known.base_offset}


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=5))
def test_entries_of_another_kind_are_passed_over(lines: list[bytes]) -> None:
    replayed(lines)


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_a_key_whose_request_is_under_way_stays(limit: int) -> None:
    """A repeat of the request would be stored a second time. After its answer the key may be dropped."""
    keys = keys_on(OverlayFileSystem(), limit=limit)
    first = keys.request(RequestKey("first", b"d"), "t")
    first.under_way = asyncio.get_running_loop().create_future()
    for number in range(5):
        keys.request(RequestKey(f"other-{number}", b"d"), "t")
    assert keys.request(RequestKey("first", b"d"), "t") is first
    with pytest.raises(KeyReused):
        keys.request(RequestKey("first", b"another"), "t")
    first.under_way = None
    keys.request(RequestKey("last", b"d"), "t")
    assert len(keys) == limit
    assert keys.request(RequestKey("first", b"d"), "t") is not first


@pytest.mark.parametrize("lost", [range(5, 6), range(0, 6), range(6, 9)], ids=str)
def test_a_key_whose_records_were_lost_is_a_new_request(lost: range) -> None:
    """The log continued above the lost records, so its end proves nothing."""
    fs = OverlayFileSystem()
    attempt(keys_on(fs), "k", 5)
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
    for losses in ([loss], []):  # the second start: no request of the key is left in the journal
        journal = journal_on(fs)
        keys = load_keys(journal, lambda _: bounds, clock=ManualClock(0), max_keys=9, losses=losses)
        assert known_part(keys, "k") is None


@pytest.mark.parametrize("lost", [range(0, 5), range(7, 9)], ids=str)
def test_a_loss_of_other_records_leaves_the_key(lost: range) -> None:
    fs = OverlayFileSystem()
    attempt(keys_on(fs), "k", 5)
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
    keys = load_keys(
        journal_on(fs), lambda _: bounds, clock=ManualClock(0), max_keys=9, losses=[loss]
    )
    assert known_part(keys, "k") is not None
