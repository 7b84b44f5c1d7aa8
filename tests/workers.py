"""Worker processes for tests. They end with the test, even if it times out.

Owns how worker processes are started and ended; must not know what they do.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context


@contextmanager
def worker_processes(count: int) -> Iterator[Executor]:
    """Yield a pool of new processes; kill them if the body raises.

    Without the kill the executor waits for running work to finish: a test that timed out would never end.
    """
    others = set(active_children())
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        try:
            yield pool
        except BaseException:
            for process in set(active_children()) - others:
                process.kill()
            raise
