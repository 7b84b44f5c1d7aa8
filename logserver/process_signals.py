"""The times at which a process receives SIGINT and SIGTERM.

Owns the mask of these signals; must not import anything but the standard library: the command line holds the signals
from its first line. Python reports a signal as an exception at any line. The exception is printed and lost if it is
raised in a callback of the interpreter: in the callback of a weak reference (every import has one), or in a
finalizer. Code that must not lose a signal therefore holds the signals: the system keeps them pending until they are
let through.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

STOPS: Final = frozenset({signal.SIGINT, signal.SIGTERM})


@contextmanager
def held() -> Iterator[None]:
    """Hold the signals inside the block, in this thread and in the threads that it starts.

    A signal that arrived meanwhile is delivered at the end, where SIGINT may raise KeyboardInterrupt.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def let_through() -> Iterator[None]:
    """Deliver signals inside the block, pending ones at once. After it the mask is as before."""
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def forget() -> None:
    """Drop pending signals, inside `held`: the stop that they ask for is done."""
    while waiting := signal.sigpending() & STOPS:
        signal.sigwait(waiting)


@contextmanager
def ended_as_interrupted(*, dies: bool = False) -> Iterator[None]:
    """Handle SIGTERM inside the block like Ctrl-C, with the handler of SIGINT that is set at that moment.

    That way a running event loop cancels its task, which cleans up, while an exception raised inside a callback could
    be lost. `dies`: SIGTERM ends the process at the end of the block, so that its parent sees the usual end.
    """
    came = False

    def interrupt(_: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        heard = signal.getsignal(signal.SIGINT)
        (heard if callable(heard) else signal.default_int_handler)(signal.SIGINT, frame)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if came and dies:
            signal.raise_signal(signal.SIGTERM)
