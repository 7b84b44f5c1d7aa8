"""Turns of the event loop without a sleep: when they are made, when they end, and how misses are avoided."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from itertools import pairwise

import pytest

from api.kafka import idle_poll
from api.kafka.idle_poll import MAX_SKIPPED, IdlePoll

LIMIT_US = 100


class Loop:
    """A loop whose turns and clock the test moves."""

    def __init__(self) -> None:
        self.now_s = 1.0
        self.calls: list[Callable[[], object]] = []

    def call_soon(self, call: Callable[[], object]) -> None:
        """Keep a call for the next turn."""
        self.calls.append(call)

    def turn(self, us: int) -> None:
        """Let time pass, then make a turn."""
        self.now_s += us / 1_000_000
        calls, self.calls = self.calls, []
        for call in calls:
            call()

    @property
    def sleeps(self) -> bool:
        """Whether it would sleep now."""
        return not self.calls


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    """Return the loop that the code under test finds. The process may use two processors."""
    loop = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    monkeypatch.setattr(idle_poll, "perf_counter", lambda: loop.now_s)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    return loop


def polled_answers(poll: IdlePoll, loop: Loop, answers: int) -> list[int]:
    """Return which of so many answers were followed by turns. No bytes arrive in time."""
    polled = []
    for number in range(answers):
        poll.answered()
        if not loop.sleeps:
            polled.append(number)
            loop.turn(LIMIT_US)
        assert loop.sleeps
    return polled


def test_the_loop_turns_until_bytes_arrive(loop: Loop) -> None:
    poll = IdlePoll(LIMIT_US)
    for _ in range(3):
        poll.answered()
        for _ in range(3):
            loop.turn(30)
            assert len(loop.calls) == 1
        poll.arrived()
    loop.turn(1)  # the request is at work: a hop to a thread, a wait for the disk
    assert loop.sleeps


def test_the_loop_turns_no_longer_than_the_limit(loop: Loop) -> None:
    poll = IdlePoll(LIMIT_US)
    poll.answered()
    loop.turn(LIMIT_US - 1)
    assert not loop.sleeps
    loop.turn(1)
    assert loop.sleeps


def test_an_answer_during_the_turns_extends_them(loop: Loop) -> None:
    poll = IdlePoll(LIMIT_US)
    poll.answered()
    loop.turn(60)
    poll.answered()  # of another client
    loop.turn(60)
    assert len(loop.calls) == 1
    loop.turn(40)
    assert loop.sleeps


def test_misses_become_rare(loop: Loop) -> None:
    poll = IdlePoll(LIMIT_US)
    polled = polled_answers(poll, loop, 10_000)
    gaps = [after - before for before, after in pairwise(polled)]
    assert gaps == [2**n for n in range(1, 11)] + [MAX_SKIPPED + 1] * (len(gaps) - 10)
    assert len(polled) < 20


def test_a_hit_forgets_the_misses(loop: Loop) -> None:
    poll = IdlePoll(LIMIT_US)
    assert polled_answers(poll, loop, 40) == [0, 2, 6, 14, 30]
    for _ in range(63):
        poll.answered()
        if not loop.sleeps:
            break
    poll.arrived()
    loop.turn(1)
    assert polled_answers(poll, loop, 8) == [0, 2, 6]


def test_bytes_that_nobody_waited_for_are_no_hit(loop: Loop) -> None:
    poll = IdlePoll(LIMIT_US)
    assert polled_answers(poll, loop, 3) == [0, 2]
    poll.arrived()
    assert polled_answers(poll, loop, 4) == [3]


@pytest.mark.parametrize(("limit_us", "processors"), [(0, {0, 1}), (LIMIT_US, {1})])
def test_the_loop_sleeps_at_once(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, limit_us: int, processors: set[int]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: processors, raising=False)
    assert polled_answers(IdlePoll(limit_us), loop, 10) == []


def test_a_system_that_does_not_say_which_processors(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert polled_answers(IdlePoll(LIMIT_US), loop, 1) == [0]
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert polled_answers(IdlePoll(LIMIT_US), loop, 1) == []
