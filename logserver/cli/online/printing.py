"""Printing records as they arrive, for commands that wait for more.

Owns standard output of these commands. It is written and flushed run by run, so that the reader of a pipe gets each
record at once. It is also watched, so that the command ends at once when the reader closes the pipe.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from logserver.cli.online.consume_output import Show
from logserver.client import FetchedRecord

STDOUT: Final = 1


@asynccontextmanager
async def while_somebody_reads() -> AsyncIterator[None]:
    """Raise BrokenPipeError as soon as the reader of standard output closes it.

    A command that waits for records would not notice this before the next record.
    """
    loop, task, has_gone = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()

    def leave() -> None:
        has_gone.set()
        loop.remove_reader(STDOUT)
        if task is not None:
            task.cancel()

    is_pipe = stat.S_ISFIFO(os.fstat(STDOUT).st_mode)
    if is_pipe:
        loop.add_reader(STDOUT, leave)  # never readable; reports when the reader closes its end
    try:
        yield
    except asyncio.CancelledError:
        if has_gone.is_set():
            raise BrokenPipeError from None
        raise
    finally:
        loop.remove_reader(STDOUT)


class Printer:
    """A printer of records as they arrive. `left` records are still to be printed (None: any number)."""

    def __init__(self, show: Show, count: int | None) -> None:
        self._show = show
        self.left = count

    def write(self, records: Sequence[FetchedRecord]) -> bool:
        """Print and flush; return True if all wanted records have been printed."""
        taken = records if self.left is None else records[: self.left]
        sys.stdout.buffer.write(b"".join(map(self._show, taken)))
        sys.stdout.buffer.flush()
        if self.left is not None:
            self.left -= len(taken)
        return self.left == 0
