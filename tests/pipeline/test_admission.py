"""The number of records that a streaming query reads at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logserver.pipeline.read.ranges import from_json, share_out, to_json, waiting
from storage import TopicPartition

A0, A1, B10 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 10)


def test_json_is_that_of_the_kafka_source() -> None:
    offsets = {B10: 4, A1: 0, A0: 12}
    assert to_json(offsets) == {"a": {"0": 12, "1": 0}, "b": {"10": 4}}
    assert list(to_json(offsets)["a"]) == ["0", "1"]
    assert from_json(to_json(offsets)) == offsets


def test_a_share_in_proportion() -> None:
    starts, ends = {A0: 0, A1: 100}, {A0: 900, A1: 200}
    assert share_out(10, starts, ends) == {A0: 9, A1: 101}
    assert share_out(1, starts, ends) == {A0: 1, A1: 101}  # every partition gets a share
    assert share_out(1000, starts, ends) == ends


def test_a_partition_that_went_back_is_left_alone() -> None:
    assert share_out(10, {A0: 50, A1: 0}, {A0: 20, A1: 100}) == {A0: 20, A1: 10}
    assert waiting({A0: 50, A1: 0}, {A0: 20, A1: 100}) == 100


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)), min_size=1), st.data())
def test_shares_stay_within_what_is_there(
    pairs: list[tuple[int, int]], data: st.DataObject
) -> None:
    limit = data.draw(st.integers(1, 1 << 41))
    starts = {TopicPartition("t", n): start for n, (start, _) in enumerate(pairs)}
    ends = {TopicPartition("t", n): start + size for n, (start, size) in enumerate(pairs)}
    shared = share_out(limit, starts, ends)
    assert all(starts[at] <= shared[at] <= ends[at] for at in ends)
    assert all(shared[at] > starts[at] for at in ends if ends[at] > starts[at])
    taken = sum(shared[at] - starts[at] for at in ends)
    assert taken <= limit + len(pairs)
