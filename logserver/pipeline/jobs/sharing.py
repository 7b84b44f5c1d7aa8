"""Parts of work on a store (storage.parallel), executed by Spark's executors.

Owns the number of parts that run at once; must not know what a part does. A task is one part. Parts are planned,
executed and combined wave by wave. So the driver only holds the parts and the results of one wave, whatever the size of
the store. Results are some numbers and findings, never records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from storage import StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = TypeVar("P")
R = TypeVar("R")

TASKS_A_CORE: Final = 64
"""Tasks per core in a wave: enough that cores seldom wait for the last task of the wave."""


class OnExecutors:
    """A `storage.RunParts` on a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._wave = self._context.defaultParallelism * TASKS_A_CORE

    def __call__(self, work: Callable[[P], R], parts: Iterable[P], /) -> Iterator[R]:
        waiting = iter(parts)
        while wave := list(islice(waiting, self._wave)):
            tasks = self._context.parallelize(wave, len(wave))
            results: list[R | _Failed] = tasks.map(_Guarded(work)).collect()
            for result in results:
                if isinstance(result, _Failed):
                    raise result.error
                yield result


@dataclass(frozen=True)
class _Failed:
    error: StorageError


class _Guarded(Generic[P, R]):
    """A wrapper of work that returns errors as results. Spark would repeat the task and then report text."""

    def __init__(self, work: Callable[[P], R]) -> None:
        self._work = work

    def __call__(self, part: P) -> R | _Failed:
        try:
            return self._work(part)
        except StorageError as error:
            return _Failed(error)
