"""Topic patterns: the same results as Python's own matcher, at a bounded cost."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logserver.groups.topic_pattern import TopicPattern
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
    ["(", ")", "a)", "*", "a**", "[", "[]", "a{2,1}", "a{1001}", r"(a)\1", "(?!a)", "(?<=a)b", "x" * 501,
     "((a{1,255}){1,255}){1,255}b", "(a|b|c|d){0,120}" * 31, r"\pX", "(?P<n>a"],
)  # fmt: skip
def test_what_is_not_taken_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidArgument, match="topic_pattern "):
        TopicPattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*)*b", ".*.*.*.*.*b", "a?" * 249 + "b", "(a?){250}b",
        "(a|b|c|d){0,30}" * 20 + "b", "((a|ab|b)*c?){0,30}" * 10 + "b", "(.*a.{9}.*|.*b.{9}.*)" * 20 + "b",
        ".{0,480}b",
    ],
)  # fmt: skip
def test_no_pattern_is_slow(pattern: str) -> None:
    """The pattern is matched against 1,000 topic names of the maximum length."""
    names = [f"{'a' * 245}{number:04}" for number in range(1000)]
    begun = time.process_time()
    found = TopicPattern(pattern).matching(names)
    assert not any(found.values())
    assert time.process_time() - begun < 3


@pytest.mark.parametrize("pattern", ["(", "x{5000}", r"\pX"])
def test_nothing_is_written_to_standard_error(
    pattern: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """RE2 would otherwise log the pattern that a client sent."""
    with pytest.raises(InvalidArgument):
        TopicPattern(pattern)
    assert capfd.readouterr() == ("", "")


def test_many_at_once_are_the_same_as_one_by_one() -> None:
    pattern = TopicPattern("(orders|clicks)-.*")
    names = ["orders-1", "clicks-", "orders", "x-orders-1", "orders-\u00e9"]
    assert pattern.matching(names) == {name: pattern.matches(name) for name in names}
