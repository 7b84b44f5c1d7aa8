"""The jobs of the pipeline, one module each: `run(spark, ...)` does the work and returns a DataFrame that reports it.

Owns the code that jobs share: absolute paths, and the runner of a store's parts (storage.contract) on executors. Must
not import a job by itself, print, or know the command line, which is `logserver.cli.spark`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

from storage import StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Args = ParamSpec("Args")
P = TypeVar("P")
R = TypeVar("R")

TASKS_A_CORE: Final = 64
"""Tasks per core in a wave: enough that cores seldom wait for the last task of the wave."""


def job(run: Callable[Args, R]) -> Callable[Args, R]:
    """Decorate a job so that all its paths become absolute: its tasks run in other working directories."""

    @wraps(run)
    def with_absolute_paths(*args: Args.args, **kwargs: Args.kwargs) -> R:
        given: Any = map(_absolute, args)
        named: Any = {name: _absolute(value) for name, value in kwargs.items()}
        return run(*given, **named)

    return with_absolute_paths


def _absolute(value: object) -> object:
    return value.absolute() if isinstance(value, Path) else value


class OnExecutors:
    """A `storage.TaskRunner` on a Spark session.

    A task is one part. Parts are planned, executed and combined wave by wave. So the driver only holds the parts and
    the results of one wave, whatever the size of the store. Results are some numbers and findings, never records.
    """

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
