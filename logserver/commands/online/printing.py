"""Printing records as they come, for commands that wait for more.

Owns standard output of these commands: it is written and flushed run by run, so that a reader behind a
pipe sees what there is, and watched, so that a reader who leaves is noticed at once.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from logserver.client import FetchedRecord
from logserver.commands.online.showing import Show

STDOUT: Final = 1


@asynccontextmanager
async def while_somebody_reads() -> AsyncIterator[None]:
    """Raises BrokenPipeError as soon as the reader of standard output has gone: who waits for records
    would not see it before the next one.
    """
    loop, task, has_gone = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()

    def leave() -> None:
        has_gone.set()
        loop.remove_reader(STDOUT)
        if task is not None:
            task.cancel()

    is_pipe = stat.S_ISFIFO(os.fstat(STDOUT).st_mode)
    if is_pipe:
        loop.add_reader(
            STDOUT, leave
        )  # nothing comes to be read: this end tells when the other closes
    try:
        yield
    except asyncio.CancelledError:
        if has_gone.is_set():
            raise BrokenPipeError from None
        raise
    finally:
        loop.remove_reader(STDOUT)


class Printer:
    """Prints records as they come, at most `count`; `left` are still to come (None: any number)."""

    def __init__(self, show: Show, count: int | None) -> None:
        self._show = show
        self.left = count

    def write(self, records: Sequence[FetchedRecord]) -> bool:
        """Print and flush; True when all that was wanted has been printed."""
        taken = records if self.left is None else records[: self.left]
        sys.stdout.buffer.write(b"".join(map(self._show, taken)))
        sys.stdout.buffer.flush()
        if self.left is not None:
            self.left -= len(taken)
        return self.left == 0
