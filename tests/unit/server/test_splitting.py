"""Record ends in a stream: all cuts give the same records, sizes and depths are bounded, no byte is scanned twice."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.http.errors import ApiError
from api.records.splitter import Bounds, Item, LineSplitter, ObjectSplitter, Splitter

BOUNDS = Bounds(max_bytes=1000, max_depth=8)
SMALL = Bounds(max_bytes=12, max_depth=3)

# The path for input in which whole objects cannot be found in one go.
BY_BRACKETS = partial(ObjectSplitter, try_flat=False)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\{}[]é\n', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)
OBJECTS = st.lists(st.dictionaries(st.text(alphabet='k"\\}', max_size=2), JSON, max_size=3))
SPACE = st.text(alphabet=" \t\r\n", max_size=2).map(str.encode)
CUTS = st.lists(st.integers(0, 2000), max_size=40)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges)]


def split(splitter: Splitter, pieces: Sequence[bytes]) -> list[bytes | int]:
    """Return the records, with the error code in the place of each failed record."""
    items: list[Item] = []
    for piece in pieces:
        items += splitter.feed(piece)
    items += splitter.close()
    return [item.error_code if isinstance(item, ApiError) else item for item in items]


@given(OBJECTS, SPACE, CUTS)
def test_any_cutting_gives_the_same_objects(
    objects: list[dict[str, object]], space: bytes, places: list[int]
) -> None:
    texts = [json.dumps(one, ensure_ascii=False).encode() for one in objects]
    stream = space + space.join(texts) + space
    bounds = Bounds(max_bytes=1 << 20, max_depth=64)
    for make in (ObjectSplitter, BY_BRACKETS):
        assert split(make(bounds), cut(stream, places)) == texts
        assert split(make(bounds), [bytes([byte]) for byte in stream]) == texts


@given(st.lists(st.binary(max_size=30)), CUTS)
def test_any_cutting_gives_the_same_lines(lines: list[bytes], places: list[int]) -> None:
    stream = b"\n".join(lines)
    wanted = [line for line in stream.split(b"\n") if line.strip()]
    assert split(LineSplitter(BOUNDS), cut(stream, places)) == wanted


@given(st.binary(max_size=200) | st.text(alphabet='{}[]" \\a\n', max_size=99).map(str.encode), CUTS)
def test_any_bytes_give_the_same_items_however_they_are_cut(data: bytes, places: list[int]) -> None:
    for make in (LineSplitter, ObjectSplitter, BY_BRACKETS):
        whole = split(make(SMALL), [data])
        assert split(make(SMALL), cut(data, places)) == whole
        assert all(isinstance(item, int) or len(item) <= SMALL.max_bytes for item in whole)


OBJECT_CASES = {
    "nothing": (b"", []),
    "white space": (b" \r\n\t", []),
    "one": (b'{"a":1}', [b'{"a":1}']),
    "no space between": (b"{}{}", [b"{}", b"{}"]),
    "brackets in a string": (b'{"a":"}{"}', [b'{"a":"}{"}']),
    "an escaped quote": (b'{"a":"\\"}"}', [b'{"a":"\\"}"}']),
    "an escaped backslash": (b'{"a":"\\\\"}{}', [b'{"a":"\\\\"}', b"{}"]),
    "wrong inside goes on": (b'{"a":tru}{}', [b'{"a":tru}', b"{}"]),
    "brackets of two kinds": (b'{"a":[}}{}', [b'{"a":[}}', b"{}"]),
    "at the limit": (b'{"a":"1234"}', [b'{"a":"1234"}']),
    "one byte over": (b'{"a":"12345"}', [41302]),
    "cut short": (b'{}{"a":', [b"{}", 40000]),
    "within a string": (b'{"a":"', [40000]),
    "no object": (b"{}[1]{}", [b"{}", 40000]),
    "a number": (b"12", [40000]),
    "a comma": (b"{},{}", [b"{}", 40000]),
    "too deep": (b'{"a":{"b":{"c":{}}}}{}', [42201, b"{}"]),
    "as deep as can be": (b'{"":{"":[]}}', [b'{"":{"":[]}}']),
    "too large": (b'{"a":"123456"}{}', [41302, b"{}"]),
    "too large without an end": (b'{"a":"123456', [40000]),
}


@pytest.mark.parametrize(("data", "wanted"), OBJECT_CASES.values(), ids=OBJECT_CASES.keys())
def test_objects(data: bytes, wanted: list[bytes | int]) -> None:
    bounds = Bounds(max_bytes=12, max_depth=3)
    assert split(ObjectSplitter(bounds), [data]) == wanted
    assert split(ObjectSplitter(bounds), [bytes([byte]) for byte in data]) == wanted


@given(st.integers(1, 9), st.integers(3, 9))
def test_depth_counts_every_bracket(depth: int, max_depth: int) -> None:
    data = b'{"":' * (depth - 1) + b"{}" + b"}" * (depth - 1)
    for make in (ObjectSplitter, BY_BRACKETS):
        found = split(make(Bounds(max_bytes=1000, max_depth=max_depth)), [data + b"{}"])
        assert found == [data if depth <= max_depth else 42201, b"{}"]


LINE_CASES = {
    "nothing": (b"", []),
    "one": (b"{}\n", [b"{}"]),
    "without its end": (b"{}\n{}", [b"{}", b"{}"]),
    "blank lines": (b"\n\r\n \n{}\r\n\n", [b"{}\r"]),
    "at the limit": (b"123456789012\n1", [b"123456789012", b"1"]),
    "one byte over": (b"1234567890123\n1", [41302, b"1"]),
    "over without an end": (b"1\n1234567890123", [b"1", 41302]),
}


@pytest.mark.parametrize(("data", "wanted"), LINE_CASES.values(), ids=LINE_CASES.keys())
def test_lines(data: bytes, wanted: list[bytes | int]) -> None:
    assert split(LineSplitter(SMALL), [data]) == wanted
    assert split(LineSplitter(SMALL), [bytes([byte]) for byte in data]) == wanted


def test_a_stream_that_cannot_go_on_says_so() -> None:
    splitter = ObjectSplitter(BOUNDS)
    (error,) = splitter.feed(b"null {}")
    assert isinstance(error, ApiError)
    assert error.message == "records are JSON objects one after the other, and 'n' begins none"
    assert splitter.ended
    assert splitter.feed(b"{}") == []
    assert splitter.close() == []


@pytest.mark.parametrize("make", [LineSplitter, ObjectSplitter])
def test_what_is_too_large_is_not_kept(make: Callable[[Bounds], Splitter]) -> None:
    splitter = make(Bounds(max_bytes=1 << 20, max_depth=8))
    piece = b"x" * (64 << 10)
    splitter.feed(b'{"a":"')
    tracemalloc.start()
    for _ in range(1000):
        assert splitter.feed(piece) == []
        assert splitter.pending_bytes <= 1 << 20
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 4 << 20


@pytest.mark.parametrize("filling", [b"x", b'\\"', b"\\", b"\n", b"[],"])
def test_a_large_object_is_scanned_once_in_bounded_memory(filling: bytes) -> None:
    """This holds for pieces of any size: a second scan of earlier bytes would make the time quadratic."""
    inside = filling * ((1 << 20) // len(filling))
    data = b'{"a":[' + (inside if filling == b"[]," else b'"' + inside + b'"') + b"]}"
    pieces = [data[at : at + 1000] for at in range(0, len(data), 1000)]
    splitter = ObjectSplitter(Bounds(max_bytes=2 << 20, max_depth=8))
    tracemalloc.start()
    splitter.feed(data)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 4 * len(data)
    begun = perf_counter()
    assert split(ObjectSplitter(Bounds(max_bytes=2 << 20, max_depth=8)), pieces) == [data]
    assert perf_counter() - begun < 20
