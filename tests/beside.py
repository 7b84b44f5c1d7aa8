"""Looking at something while it is written to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

DEADLINE_S = 600  # only what hangs takes so long


def beside(writing: Callable[[], object], *looks: Callable[[], object]) -> None:
    """Each look again and again, in a thread of its own, until the writing is done; the first failure is raised."""
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
