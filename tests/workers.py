"""Worker processes for tests, which end with the test: also where it times out.

Owns how they are started and ended; must not know what they do.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context


@contextmanager
def worker_processes(count: int) -> Iterator[Executor]:
    """A pool of new processes; an exception in the body kills them.

    The executor alone would wait for what they are at: a test that timed out would then never end.
    """
    others = set(active_children())
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        try:
            yield pool
        except BaseException:
            for process in set(active_children()) - others:
                process.kill()
            raise
