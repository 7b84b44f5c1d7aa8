"""The definition of a fuzz target: checks of one kind, each with the real bytes it starts from.

Owns the choice of a check for an input (by its first byte) and the permitted results of a decoder on foreign bytes: a
value or a DataError. Must not know a format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple, ParamSpec, TypeVar

from scripts.diff_fuzz_cases import mutated
from storage.errors import DataError, StorageError

P = ParamSpec("P")
T = TypeVar("T")

LIMIT_BYTES = 1 << 20
"""Upper limit of the size of decompressed data."""
SEED_BYTES = 4096
"""Longer parts of real files are cut to this size: short inputs run more often."""


class Check(NamedTuple):
    """A check.

    `run` accepts any bytes and raises AssertionError, or another unexpected error, if a guarantee is violated.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    run: Callable[[bytes], None]
    tries: int = 300  # of the quick run

    def mutations(self) -> Iterator[bytes]:
        """Yield the same inputs in every run: unchanged seeds, then changed ones."""
        seeds = self.seeds()
        rng = Random(self.name)
        yield from rng.sample(seeds, min(len(seeds), self.tries))
        for _ in range(self.tries):
            yield mutated(rng, rng.choice(seeds))


class Target(NamedTuple):
    """Checks that one process fuzzes together. `share`: of the total time of all targets."""

    name: str
    checks: Sequence[Check]
    share: int = 1

    def run(self, data: bytes) -> None:
        """Run the check that the first byte selects."""
        if data:
            self.checks[data[0] % len(self.checks)].run(data[1:])

    def corpus(self) -> Iterator[bytes]:
        """Yield the inputs that fuzzing starts from."""
        for number, check in enumerate(self.checks):
            for seed in check.seeds():
                yield bytes([number]) + seed


def tried(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T | None:
    """Return the result of a decoder; None if it raises a DataError."""
    return unless(DataError, function, *args, **options)


def unless(
    refusal: type[StorageError], function: Callable[P, T], *args: P.args, **options: P.kwargs
) -> T | None:
    """Return the result of the function; None if it raises the permitted error."""
    try:
        return function(*args, **options)
    except refusal:
        return None


def text_of(data: bytes) -> str:
    """Return any text, including lone surrogates."""
    return data.decode("utf-8", "surrogateescape")
