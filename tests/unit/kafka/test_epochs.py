"""Leader epoch entries: the rules by which they are added and removed."""

from __future__ import annotations

import pytest

from storage.kafka.state.epochs import LeaderEpochs

ENTRIES = ((0, 0), (2, 10), (5, 30))


def test_an_empty_one() -> None:
    epochs = LeaderEpochs()
    assert (epochs.entries, epochs.latest) == ((), None)


@pytest.mark.parametrize(
    ("epoch", "start", "after"),
    [
        (6, 40, (*ENTRIES, (6, 40))),
        (6, 30, ((0, 0), (2, 10), (6, 30))),
        (6, 10, ((0, 0), (6, 10))),
        (6, 0, ((6, 0),)),
        (5, 50, None),
        (4, 50, None),
        (-1, 50, None),
    ],
)
def test_only_a_newer_epoch_makes_an_entry_and_takes_those_without_records(
    epoch: int, start: int, after: tuple[tuple[int, int], ...] | None
) -> None:
    epochs = LeaderEpochs(ENTRIES)
    assert epochs.assign(epoch, start) is (after is not None)
    assert epochs.entries == (after or ENTRIES)


@pytest.mark.parametrize(
    ("start", "after"),
    [
        (0, ENTRIES),
        (9, ((0, 9), (2, 10), (5, 30))),
        (10, ((2, 10), (5, 30))),
        (29, ((2, 29), (5, 30))),
        (30, ((5, 30),)),
        (99, ((5, 99),)),
    ],
)
def test_a_later_start_cuts_the_entry_in_force(
    start: int, after: tuple[tuple[int, int], ...]
) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate_start(start)
    assert epochs.entries == after


def test_a_start_before_the_first_entry_changes_nothing() -> None:
    epochs = LeaderEpochs([(3, 20)])
    epochs.truncate_start(5)
    assert epochs.entries == ((3, 20),)


@pytest.mark.parametrize(
    ("end", "after"),
    [(99, ENTRIES), (31, ENTRIES), (30, ENTRIES[:2]), (10, ENTRIES[:1]), (1, ENTRIES[:1]), (0, ())],
)
def test_an_earlier_end_takes_the_entries_behind_it(
    end: int, after: tuple[tuple[int, int], ...]
) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate_end(end)
    assert epochs.entries == after
