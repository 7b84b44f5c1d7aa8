"""Running parts as several processes would: pickled parts, planned a wave at a time, run in random order."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from random import Random
from typing import TypeVar

P = TypeVar("P")
R = TypeVar("R")


class Shared:
    """A `TaskRunner` that plans `wave` parts before it runs any of them, in a random order."""

    def __init__(self, wave: int, seed: int = 1) -> None:
        self.done = 0
        self._wave = wave
        self._random = Random(seed)

    def __call__(self, work: Callable[[P], R], parts: Iterable[P], /) -> Iterator[R]:
        waiting = iter(parts)
        while wave := list(islice(waiting, self._wave)):
            task = pickle.dumps(work)
            given = [pickle.dumps(part) for part in wave]
            results: dict[int, bytes] = {}
            for at in self._random.sample(range(len(given)), len(given)):
                results[at] = pickle.dumps(pickle.loads(task)(pickle.loads(given[at])))
            self.done += len(given)
            yield from (pickle.loads(results[at]) for at in range(len(given)))
