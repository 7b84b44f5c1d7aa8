"""Errors of decoding in words: field, value and limit, and never the decoder's own text."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from logserver.validation import MAX_NAMED_FIELDS, in_words, shown, wrong_json, wrong_value

Port = Annotated[int, Meta(ge=0, le=65535)]


class Part(Struct, forbid_unknown_fields=True):
    key: str
    value: bytes | None = None


class Sample(Struct, forbid_unknown_fields=True, rename={"max_wait": "max.wait"}):
    number: Port | None = None
    least: Annotated[int, Meta(ge=1)] = 1
    most: Annotated[float, Meta(le=5)] = 0.0
    above: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    flag: bool = False
    short: Annotated[str, Meta(min_length=1, max_length=3)] = "a"
    filled: Annotated[str, Meta(min_length=1)] = "a"
    coded: Annotated[str, Meta(pattern="^[a-z]+$")] = "a"
    mode: Literal["sync", "async"] = "sync"
    reach: Literal["earliest", "latest"] | Part | None = None
    when: Annotated[datetime, Meta(tz=True)] | None = None
    parts: list[Part] = []
    few: Annotated[list[int], Meta(max_length=2)] = []
    some: Annotated[list[int], Meta(min_length=1)] | None = None
    configs: dict[str, str | int | None] = {}
    max_wait: int = 0
    data: bytes = b""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"number":"a"}', 'number is "a": it must be a whole number from 0 to 65535 or null'),
        ('{"number":65536}', "number is 65536: it must be a whole number from 0 to 65535 or null"),
        ('{"number":-1}', "number is -1: it must be a whole number from 0 to 65535 or null"),
        ('{"number":1.5}', "number is 1.5: it must be a whole number from 0 to 65535 or null"),
        ('{"number":true}', "number is true: it must be a whole number from 0 to 65535 or null"),
        ('{"least":0}', "least is 0: it must be a whole number of at least 1"),
        ('{"most":6}', "most is 6: it must be a number of at most 5"),
        ('{"above":1}', "above is 1: it must be a number above 0 and below 1"),
        ('{"flag":"yes"}', 'flag is "yes": it must be true or false'),
        ('{"short":"abcd"}', 'short is "abcd": it must be text of 1 to 3 characters'),
        ('{"filled":""}', 'filled is "": it must be text of at least 1 character'),
        ('{"coded":"A"}', 'coded is "A": it must be text that matches ^[a-z]+$'),
        ('{"mode":"now"}', 'mode is "now": it must be "async" or "sync"'),
        ('{"reach":5}', 'reach is 5: it must be "earliest" or "latest", an object or null'),
        ('{"when":"2026-01-01T00:00:00"}',
         'when is "2026-01-01T00:00:00": it must be a time in ISO 8601 with its zone or null'),
        ('{"few":[1,2,3]}', "few is [1,2,3]: it must be a list of at most 2 items"),
        ('{"few":[1,"x"]}', 'few[1] is "x": it must be a whole number'),
        ('{"some":[]}', "some is []: it must be a list of at least 1 item or null"),
        ('{"configs":{"a":"b","c.d":[1]}}',
         'configs["c.d"] is [1]: it must be text, a whole number or null'),
        ('{"max.wait":"x"}', 'max.wait is "x": it must be a whole number'),
        ('{"data":"***"}', 'data is "***": it must be base64 text'),
        ('{"data":7}', "data is 7: it must be base64 text"),
        ('{"parts":[{"key":"k"},{"value":""}]}', "parts[1].key is missing: it must be text"),
        ('{"parts":[{"kay":"k"}]}', "parts[0].kay is unknown: the possible names are key, value"),
        ('{"parts":[5]}', "parts[0] is 5: it must be an object"),
        ("[]", "the body is []: it must be an object"),
        ('{"number":"x","number":1}',
         "number has a wrong value: it must be a whole number from 0 to 65535 or null"),
        ('{"number":"x"', "number has a wrong value: it must be a whole number from 0 to 65535 or null"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_its_limit(text: str, words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(text, type=Sample)
    wrong = wrong_value(refused.value, Sample, text.encode())
    assert wrong.text == words
    assert words.startswith(wrong.field or "the body")
    assert wrong.needs_base64 == ("base64" in words)
    assert in_words(refused.value, Sample, text.encode(), whole="the body") == words


def test_the_name_of_a_map_that_cannot_be_found_is_not_guessed() -> None:
    class Timed(Struct):
        times: dict[str, datetime]

    text = b'{"times":{"a":"2026-01-01T00:00:00Z","b":"soon"}}'
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(text, type=Timed)
    words = wrong_value(refused.value, Timed, text).text
    assert words.endswith("it must be a time in ISO 8601")


def test_a_part_has_the_name_of_the_whole() -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(b'{"key":5}', type=Part)
    wrong = wrong_value(refused.value, Part, b'{"key":5}', within="records[3]")
    assert wrong.text == "records[3].key is 5: it must be text"
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(b"5", type=Part)
    wrong = wrong_value(refused.value, Part, b"5", whole="records[3]", within="records[3]")
    assert wrong.text == "records[3] is 5: it must be an object"


def test_a_decoded_value_is_explained_too() -> None:
    given = {"number": float("nan")}
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(given, Sample)
    words = wrong_value(refused.value, Sample, given).text
    assert words == "number is nan: it must be a whole number from 0 to 65535 or null"


def test_long_values_and_lists_are_cut() -> None:
    assert shown("x" * 1000) == '"' + "x" * 79 + "..."
    fields = [(f"field{number}", int, 0) for number in range(MAX_NAMED_FIELDS + 5)]
    wide: Any = msgspec.defstruct("Wide", fields, forbid_unknown_fields=True)
    text = msgspec.json.encode({"x" * 1000: 1})
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(text, type=wide)
    words = wrong_value(refused.value, wide, text).text
    assert len(words) < 400
    assert words.endswith("field19 and 5 more")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "it ends too early"),
        (b'{"a":', "it ends too early"),
        (b'{"a":"\\ud8', "it ends too early"),
        (b'{"a":"\\ud800"}', "\\ud800 is half of a surrogate pair"),
        (b"{'a':1}", "object keys must be strings at byte 1"),
        (b"[1,]", "trailing comma in array at byte 3"),
        (b"[1] x", "trailing characters at byte 5"),
        (b'{"a":"\xff"}', "it is not UTF-8 at byte 0"),
    ],
)
def test_what_is_no_json_is_said_in_words(text: bytes, words: str) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)) as refused:
        msgspec.json.decode(text)
    assert wrong_json(refused.value, text) == words
    assert in_words(refused.value, Sample, text, whole="it") == f"it is no JSON: {words}"
