"""Reads of a store in parallel with writes to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

DEADLINE_S = 600  # only a hanging test takes so long


def beside(writing: Callable[[], object], *looks: Callable[[], object]) -> None:
    """Repeat each of `looks` in its own thread until `writing` returns; raise the first failure."""
    done = threading.Event()

    def repeat(look: Callable[[], object]) -> None:
        while not done.is_set():
            look()

    def write() -> None:
        try:
            writing()
        finally:
            done.set()

    with ThreadPoolExecutor(len(looks) + 1) as threads:
        for future in [threads.submit(write), *(threads.submit(repeat, look) for look in looks)]:
            future.result(DEADLINE_S)
