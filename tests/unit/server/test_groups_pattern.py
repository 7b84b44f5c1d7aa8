"""Topic patterns, with RE2 and without it: the same results as Python's own matcher, at a bounded cost."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logserver.groups import topic_pattern
from logserver.groups.topic_pattern import (
    MAX_STEPS,
    PlainPatternError,
    TopicPattern,
    compile_plain,
)
from storage.errors import InvalidArgument

COSTLY = f"it could take more than {MAX_STEPS:,} steps for one name. Use fewer repetitions, "

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


@pytest.fixture(scope="module", autouse=True, params=["re2", "plain"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run each test with RE2, and as where it is not installed."""
    name: str = request.param
    with pytest.MonkeyPatch.context() as patch:
        if name == "plain":
            patch.setattr(topic_pattern, "re2", None)
        _forget_patterns()
        yield name
    _forget_patterns()


def _forget_patterns() -> None:
    topic_pattern._compiled.cache_clear()
    topic_pattern._matches.cache_clear()


@given(PATTERNS, st.text("ab1.c", max_size=7))
def test_it_matches_what_python_matches(engine: str, pattern: str, name: str) -> None:
    expected = re.fullmatch(pattern, name, re.ASCII) is not None
    try:
        found = TopicPattern(pattern)
    except InvalidArgument as error:
        assert engine == "plain"
        assert COSTLY in str(error)  # noqa: PT017 - nothing else is refused
    else:
        assert found.matches(name) is expected


@given(st.text("ab1-.|*+?{},2()[]^$\\dwP<>:", max_size=9), st.text("ab1-.", max_size=4))
@example("a{,2}", "a{,2}")
@example("[a-]", "-")
@example("[]-a]", "a")
@example("[^]a]", "b")
@example("(?P<n>a)b", "ab")
@example("x{2", "x{2")
def test_what_both_take_means_the_same(pattern: str, name: str) -> None:
    """Whatever the characters are: a pattern that RE2 takes is refused without it, or has the same matches."""
    try:
        plain = compile_plain(pattern)
        with_re2 = topic_pattern._with_re2(pattern) if topic_pattern.re2 else None
    except (PlainPatternError, InvalidArgument):
        return
    if with_re2 is not None:
        assert (plain.fullmatch(name) is None) is (with_re2.fullmatch(name) is None)


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
        ("^*a$*", "a", True),
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
def test_no_pattern_is_slow(engine: str, pattern: str) -> None:
    """The pattern is matched against 1,000 topic names of the maximum length."""
    names = [f"{'a' * 245}{number:04}" for number in range(1000)]
    begun = time.process_time()
    if engine == "plain" and pattern != ".{0,480}b":
        with pytest.raises(InvalidArgument, match=re.escape(COSTLY)):
            TopicPattern(pattern)
    else:
        assert not any(TopicPattern(pattern).matching(names).values())
    assert time.process_time() - begun < 3


@pytest.mark.parametrize(
    "pattern",
    [
        ".*.*b", "(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)a{200}b", ".*(a|a)(a|a)(a|a).{0,2}b", "(a|a){14}b",
        "(.{1,15}a){2}.*b",
    ],
)  # fmt: skip
def test_costly_patterns_that_both_take_are_not_slow(pattern: str) -> None:
    names = [f"{'a' * 245}{number:04}" for number in range(1000)]
    begun = time.process_time()
    assert not any(TopicPattern(pattern).matching(names).values())
    assert time.process_time() - begun < 4


@pytest.mark.parametrize(
    "pattern",
    [
        ".*", "orders-.*", "^(orders|clicks)-.*$", r"[a-z]+-\w+", ".*-(eu|us|asia)-.*", "%RETRY%.*", r"eu\.v\d{1,3}",
        "(eu|us)-(orders|clicks)-(live|test)-.*", "(ab)*", "(?P<region>eu|us)-.*", "a?b{2,5}.+?",
    ],
)  # fmt: skip
def test_what_is_documented_is_taken_without_re2_too(pattern: str) -> None:
    TopicPattern(pattern)


@pytest.mark.parametrize("pattern", ["(?i)a", r"\bin", "[[:alpha:]]", "[z-a]", r"[\d-z]"])
def test_the_reason_of_a_refusal_without_re2(pattern: str) -> None:
    with pytest.raises(PlainPatternError, match=r"not supported|the range"):
        compile_plain(pattern)


def test_the_server_loads_without_re2() -> None:
    code = (
        "import sys; sys.modules['re2'] = None\n"
        "import api.server\n"
        "from logserver.groups.topic_pattern import TopicPattern\n"
        "assert TopicPattern('a.*').matches('ab')\n"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


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
