"""Config files of the broker: one table for both directions, bare keys, and each form of invalid JSON."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import storage
from storage.errors import Corrupt, InvalidArgument
from storage.rocketmq.format.config_json import MAX_DEPTH, decode_config, encode_config

OFFSETS: dict[str, Any] = {"offsetTable": {"T@G": {0: 12, 1: 7}, "U@G": {}}, "n": [1, "x"]}
OFFSETS_TEXT = (
    '{\n\t"offsetTable":{\n\t\t"T@G":{\n\t\t\t0:12,\n\t\t\t1:7\n\t\t},\n\t\t"U@G":{}\n\t},'
    '\n\t"n":[\n\t\t1,\n\t\t"x"\n\t]\n}'
)
CASES = [
    pytest.param({}, "{}", id="empty object"),
    pytest.param([], "[]", id="empty array"),
    pytest.param(OFFSETS, OFFSETS_TEXT, id="offsets"),
    pytest.param({-5: True, 0: False, 2**62: None}, None, id="number keys"),
    pytest.param({"1": 1, 1: "1"}, '{\n\t"1":1,\n\t1:"1"\n}', id="a quoted number is a name"),
    pytest.param({"n1": 1, "s1": 2, "": 3}, None, id="names like our marks"),
    pytest.param({'a"b\\c:{1:2}': '{0:1},"x":'}, None, id="text that looks like keys"),
    pytest.param("é\U0001f600\t\n", '"é\U0001f600\\t\\n"', id="text"),
    pytest.param({"t": 1795227255093, "f": 0.5}, '{\n\t"t":1795227255093,\n\t"f":0.5\n}', id="n"),
]


@pytest.mark.parametrize(("value", "text"), CASES)
def test_both_directions(value: Any, text: str | None) -> None:
    data = encode_config(value)
    if text is not None:
        assert data == text.encode()
    assert decode_config(data) == value
    assert typed(decode_config(data)) == typed(value)


def typed(value: Any) -> Any:
    """Return the value with the types of keys and values: 1 and "1" differ, and True is not 1."""
    if isinstance(value, dict):
        return [(type(key), key, typed(item)) for key, item in value.items()]
    return (type(value), value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{0:1}", {0: 1}),
        (" { 0 : 1 , -7 : {2:3} } ", {0: 1, -7: {2: 3}}),
        ('{"a":1,0:2,"0":3}', {"a": 1, 0: 2, "0": 3}),
        ('{"a":1,"a":2}', {"a": 2}),
        ('{"0:1":"{0:1}"}', {"0:1": "{0:1}"}),
        ('{"a\\"":[{1:"\\u0041"}]}', {'a"': [{1: "A"}]}),
        ("{\n\t1:2\n}\n", {1: 2}),
    ],
)
def test_other_layouts_are_read(text: str, value: Any) -> None:
    assert typed(decode_config(text.encode())) == typed(value)


@pytest.mark.parametrize("cut", range(len(OFFSETS_TEXT)))
def test_cut_at_every_byte(cut: int) -> None:
    with pytest.raises(Corrupt) as caught:
        decode_config(OFFSETS_TEXT[:cut].encode())
    assert caught.value.facts()["kind"] == "config file"
    assert caught.value.facts()["found"]


@pytest.mark.parametrize("bit", range(len(OFFSETS_TEXT) * 8))
def test_a_flipped_bit_is_another_value_or_corrupt(bit: int) -> None:
    data = bytearray(OFFSETS_TEXT.encode())
    white = data[bit // 8] in b" \t\n,"  # a comma may be missing, or become the point of 1.
    data[bit // 8] ^= 1 << bit % 8
    try:
        value = decode_config(bytes(data))
    except Corrupt:
        return
    assert white or typed(value) != typed(OFFSETS)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"{0}",
        b"{a:1}",
        b"{0:1,,}",
        b"[0:1]",
        b"{0:NaN}",
        b"{0:-Infinity}",
        b"{} {}",
        b"\xff",
        b"[" * 100_000,
        b'{"a":' + b'"\\"' * 50_000,
        b'{"a":"b\\',
        b'"' + b"\\a" * 500_000 + b"\\",
        b"9" * 5000,
    ],
    ids=lambda data: repr(data[:12]),
)
def test_what_is_no_config_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_config(data)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        {(1, 2): 3},
        {None: 1},
        {True: 1},
        {1.5: 1},
        {2**63: 1},
        b"bytes",
        {1, 2},
        float("nan"),
        [float("inf")],
        nested(MAX_DEPTH + 1),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_json_cannot_hold_is_not_encoded(value: Any) -> None:
    with pytest.raises(InvalidArgument):
        encode_config(value)


def test_nesting_up_to_the_limit() -> None:
    assert decode_config(encode_config(nested(MAX_DEPTH))) == nested(MAX_DEPTH)


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.integers(-9, 99), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values)
def test_round_trip(value: Any) -> None:
    assert typed(decode_config(encode_config(value))) == typed(value)


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_raise_in_the_tree(data: bytes) -> None:
    try:
        value = decode_config(data)
    except Corrupt:
        return
    assert decode_config(encode_config(value)) == value


def test_no_pattern_of_a_format_is_matched_wrongly_by_an_older_python() -> None:
    """Before Python 3.11.5 a possessive group that fails midway loses its position (gh-106052)."""
    possessive = re.compile(r"\)(?:[*+?]|\{[0-9,]+\})\+")
    for path in Path(storage.__file__).parent.rglob("*.py"):
        assert not possessive.search(path.read_text(encoding="utf-8")), path
