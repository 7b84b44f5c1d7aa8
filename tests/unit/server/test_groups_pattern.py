"""Topic patterns: the same answers as Python's own matcher, at a bounded price."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logserver.groups.pattern import TopicPattern
from storage.errors import InvalidArgument

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\.", "1"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda both: f"({both[0]}|{both[1]})"),
        st.tuples(
            inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,1}", "{1,}", "*?"])
        ).map(lambda both: f"(?:{both[0]}){both[1]}"),
    ),
    max_leaves=6,
)


@given(PATTERNS, st.text("ab1.c", max_size=7))
def test_it_matches_what_python_matches(pattern: str, name: str) -> None:
    expected = re.fullmatch(pattern, name, re.ASCII) is not None
    assert TopicPattern(pattern).matches(name) is expected


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("", "", True),
        ("", "a", False),
        ("^orders-.*$", "orders-eu", True),
        ("orders|clicks", "clicks", True),
        ("orders|", "", True),
        ("a|^b", "b", True),
        (r"%RETRY%\w+", "%RETRY%group_1", True),
        ("[a-c-]+", "a-c", True),
        (r"[\d.]+", "1.2", True),
        ("a{0}", "", True),
        ("(a*)*b", "aaab", True),
        ("x+", "", False),
    ],
)
def test_cases(pattern: str, name: str, expected: bool) -> None:
    assert TopicPattern(pattern).matches(name) is expected


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a)", "*", "a**", "[", "[]", "a{2,1}", "a{256}", r"\b", r"(a)\1", "(?!a)", "(?i)a", "[a&&b]", "{",
     "x" * 501, "(" * 11 + ")" * 11],
)  # fmt: skip
def test_what_is_not_taken_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidArgument, match="topic_pattern "):
        TopicPattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*)*b", ".*.*.*.*.*b", "((a{1,255}){1,255}){1,255}b"],
)
def test_no_pattern_is_slow(pattern: str) -> None:
    begun = time.process_time()
    assert not TopicPattern(pattern).matches("a" * 249)
    assert time.process_time() - begun < 1
