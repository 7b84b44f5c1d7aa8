"""Looking for the next request at once instead of sleeping, while a client waits for each answer.

Owns the decision whether the event loop sleeps after an answer; must not know requests or connections.

A process that sleeps is woken by the kernel. In a virtual machine this takes 20 us, and the code that runs then takes
twice its time, since its caches are cold. A client that sends a record when it has the answer to the last one waits for
that with each record. So for a short time after an answer the loop makes turns that do not sleep:

    answer -> turns without a sleep -> bytes arrive: a hit
                                    -> the time is over: a miss, and the loop sleeps

A miss has used a processor for nothing. After one, the next answer is not followed by such turns; after a second the
next 3 are not, then 7, up to MAX_SKIPPED. A hit forgets the misses. So clients that pause for longer cost the limit
once in a thousand answers. Decision 32 has the measurements.
"""

from __future__ import annotations

import asyncio
import os
from time import perf_counter
from typing import Final

MAX_SKIPPED: Final = 1023


class IdlePoll:
    """The turns without a sleep of one event loop. Use it on this loop only.

    `limit_us`: the longest time after an answer; 0: the loop sleeps at once. So it does where the process may use only
    one processor: the client could not run meanwhile.
    """

    def __init__(self, limit_us: int) -> None:
        self._limit_s = limit_us / 1_000_000 if _usable_processors() > 1 else 0.0
        self._stop_s = 0.0  # when the turns end; 0 while no bytes are waited for
        self._is_turning = False
        self._skipped = 0  # answers without such turns, after the last miss
        self._left_to_skip = 0

    def answered(self) -> None:
        """Note that the requests of a client are answered, and nothing of it is at work."""
        if not self._limit_s:
            return
        if self._left_to_skip:
            self._left_to_skip -= 1
            return
        self._stop_s = perf_counter() + self._limit_s
        if not self._is_turning:
            self._is_turning = True
            asyncio.get_running_loop().call_soon(self._turn)

    def arrived(self) -> None:
        """Note that bytes of a client have arrived: a hit, if they were waited for."""
        if self._stop_s:
            self._stop_s = 0.0
            self._skipped = 0

    def _turn(self) -> None:
        """Make one more turn of the loop without a sleep, unless bytes have arrived or the time is over."""
        if self._stop_s and perf_counter() < self._stop_s:
            asyncio.get_running_loop().call_soon(self._turn)
            return
        self._is_turning = False
        if self._stop_s:
            self._stop_s = 0.0
            self._skipped = self._left_to_skip = min(2 * self._skipped + 1, MAX_SKIPPED)


def _usable_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
