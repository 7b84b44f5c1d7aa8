"""The jobs of the pipeline, one module each: `run(spark, ...)` does the work and returns a DataFrame that reports it.

Owns the code that jobs share. Must not import a job by itself, print, or know the command line, which is
`logserver.cli.spark`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def job(run: Callable[P, R]) -> Callable[P, R]:
    """Decorate a job so that all its paths become absolute: its tasks run in other working directories."""

    @wraps(run)
    def with_absolute_paths(*args: P.args, **kwargs: P.kwargs) -> R:
        given: Any = map(_absolute, args)
        named: Any = {name: _absolute(value) for name, value in kwargs.items()}
        return run(*given, **named)

    return with_absolute_paths


def _absolute(value: object) -> object:
    return value.absolute() if isinstance(value, Path) else value
