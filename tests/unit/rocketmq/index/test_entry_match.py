"""The comparison of index entries with strings, against one that makes sets for every record."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from storage.rocketmq.format.index_file import ENTRY, FIRST_ENTRY, time_diff_s
from storage.rocketmq.index.entry_match import EntryBlock, EntryMatch
from storage.rocketmq.index.record_pass import NO_STRING, STRING

T0 = 1_700_000_000_000


class Record(NamedTuple):
    at: int
    time_ms: int
    keys: list[int]  # hashes
    tags: list[int]


class Entry(NamedTuple):
    file: int
    number: int
    key_hash: int
    at: int
    seconds: int


def strings_of(records: Sequence[Record], *, with_tags: bool) -> bytes:
    return b"".join(
        STRING.pack(hashed, record.at, record.time_ms)
        for record in records
        for hashed in (record.keys + record.tags * with_tags or [NO_STRING])
    )


def blocks_of(entries: Sequence[Entry], size: int) -> Iterator[EntryBlock]:
    """Yield the entries in blocks of one file, of `size` entries at most."""
    for file in sorted({entry.file for entry in entries}):
        of_file = [entry for entry in entries if entry.file == file]
        for start in range(0, len(of_file), size):
            part = of_file[start : start + size]
            data = b"".join(ENTRY.pack(e.key_hash, e.at, e.seconds, 0) for e in part)
            yield EntryBlock(file, part[0].number, T0, data)


def expected(
    records: Sequence[Record], entries: Sequence[Entry], low: int
) -> tuple[list[int], set[int]]:
    """Return the records that lack an entry, and the wrong files."""
    wrong: set[int] = set()

    def in_order() -> Iterator[Entry]:
        last = -1
        for entry in entries:
            if entry.at < last:
                wrong.add(entry.file)
                continue
            last = entry.at
            if entry.at >= low:
                yield entry

    left = in_order()
    entry = next(left, None)
    lacking: list[int] = []
    for record in records:
        found: set[int] = set()
        while entry is not None and entry.at <= record.at:
            seconds = time_diff_s(record.time_ms, T0)
            is_timed = (
                record.time_ms == T0 if entry.number == FIRST_ENTRY else entry.seconds == seconds
            )
            known = entry.at == record.at and entry.key_hash in record.keys + record.tags
            if not (known and is_timed):
                wrong.add(entry.file)
            found |= {entry.key_hash} if entry.at == record.at else set()
            entry = next(left, None)
        if not found.issuperset(record.keys):
            lacking.append(record.at)
    return lacking, wrong


def indexed(records: Sequence[Record], of_file: int, *, with_tags: bool = True) -> list[Entry]:
    """Return the entries that an index has for these records."""
    strings = [(hashed, r) for r in records for hashed in r.keys + r.tags * with_tags]
    return [
        Entry(n // of_file, FIRST_ENTRY + n % of_file, hashed, r.at, time_diff_s(r.time_ms, T0))
        for n, (hashed, r) in enumerate(strings)
    ]


def check(
    records: Sequence[Record], entries: Sequence[Entry], *, low: int = 0, block: int = 3
) -> tuple[list[int], set[int]]:
    """Compare, half of the records at a time; check the result against `expected` and return it."""
    wrong: set[int] = set()
    match = EntryMatch(blocks_of(entries, block), low, wrong)
    lacking: list[int] = []
    half = len(records) // 2
    for part in (records[:half], records[half:]):
        strings = strings_of(part, with_tags=True)
        lacking += match.lacking(strings, lambda part=part: strings_of(part, with_tags=False))  # type: ignore[misc]
    assert (lacking, wrong) == expected(records, entries, low)
    return lacking, wrong


def records_of(rng: random.Random, count: int) -> list[Record]:
    times = sorted(T0 + rng.choice((0, 500, 1500, 90_000)) for _ in range(count))
    return [
        Record(100 * n, time_ms, rng.choices(range(4), k=rng.randrange(4)), [9][: rng.randrange(2)])
        for n, time_ms in enumerate(times)
    ]


@pytest.mark.parametrize("with_tags", [True, False])
def test_a_good_index(with_tags: bool) -> None:
    """Files end inside the entries of a record, and blocks too."""
    records = [Record(100 * n, T0, [n, n, n + 1], [99]) for n in range(12)]
    assert check(records, indexed(records, 5, with_tags=with_tags)) == ([], set())


def test_an_index_that_ends_early() -> None:
    records = [Record(100 * n, T0, [n], []) for n in range(6)]
    assert check(records, indexed(records, 9)[:4]) == ([400, 500], set())
    assert check(records, []) == ([100 * n for n in range(6)], set())


def test_a_record_without_strings_lacks_nothing() -> None:
    records = [Record(0, T0, [], []), Record(100, T0, [], [7])]
    assert check(records, []) == ([], set())


@pytest.mark.parametrize(
    "odd",
    [(3, 100, 0), (-1, 100, 0), (1, 150, 0), (1, -5, 0), (1, 100, 77)],
    ids=["hash", "no hash", "place", "negative place", "time"],
)
def test_a_wrong_entry(odd: tuple[int, int, int]) -> None:
    records = [Record(100 * n, T0, [n], []) for n in range(4)]
    entries = indexed(records, 99)
    entries.insert(2, Entry(0, 3, *odd))
    _, wrong = check(records, entries)
    assert wrong == {0}


def test_an_entry_after_all_records_hides_the_entries_that_follow_it() -> None:
    records = [Record(100 * n, T0, [n], []) for n in range(4)]
    entries = indexed(records, 99)
    entries.insert(2, Entry(0, 3, 1, 1 << 62, 0))
    assert check(records, entries)[0] == [200, 300]


@pytest.mark.parametrize("seed", range(300))
def test_like_sets_of_every_record(seed: int) -> None:
    rng = random.Random(seed)
    records = records_of(rng, rng.randrange(12))
    entries = indexed(records, rng.choice((1, 4, 99)), with_tags=rng.random() < 0.5)
    for _ in range(rng.randrange(3)):
        if entries:
            place = rng.randrange(len(entries))
            change = rng.choice(("key_hash", "at", "seconds", "gone"))
            if change == "gone":
                del entries[place]
            else:
                value = rng.choice((-1, 0, 2, 250, 300))
                entries[place] = entries[place]._replace(**{change: value})
    check(records, entries, low=rng.choice((0, 0, 300)), block=rng.randrange(1, 9))
