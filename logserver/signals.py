"""When the signals that ask a process to end are heard.

Python tells of a signal by an exception wherever it is, and one that is raised where nobody called is printed and
lost: in what a weak reference calls at its end, as every import has one, or in a finalizer. Who may not lose a
signal holds them: the system keeps them until they are let through. Must not import but the standard library: the
command line is held from its first line.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

STOPS: Final = frozenset({signal.SIGINT, signal.SIGTERM})


@contextmanager
def held() -> Iterator[None]:
    """Within it they wait, in this thread and those that it starts; what came is told at the end, where SIGINT may
    raise KeyboardInterrupt.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def let_through() -> Iterator[None]:
    """Within it they are heard, what waited at once; behind it they are held again if they were."""
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def forget() -> None:
    """Drop those that wait, within `held`: what they ask for is done."""
    while waiting := signal.sigpending() & STOPS:
        signal.sigwait(waiting)
