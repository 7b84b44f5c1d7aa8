"""What a fuzz target is: checks of one kind, each with the real bytes it starts from.

Owns how an input is handed to a check (its first byte chooses one) and what a decoder may do with bytes that are none
of its own: give a value or raise a DataError. Must not know a format.
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
"""What anything compressed may measure here."""
SEED_BYTES = 4096
"""Longer pieces of real files are cut to this: short inputs are tried more often."""


class Check(NamedTuple):
    """`run` takes any bytes and raises AssertionError, or whatever else should not come, where a promise is broken."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    run: Callable[[bytes], None]
    tries: int = 300  # of the quick run

    def mutations(self) -> Iterator[bytes]:
        """The same inputs in every run: seeds as they are, and changed ones."""
        seeds = self.seeds()
        rng = Random(self.name)
        yield from rng.sample(seeds, min(len(seeds), self.tries))
        for _ in range(self.tries):
            yield mutated(rng, rng.choice(seeds))


class Target(NamedTuple):
    """Checks that one process fuzzes together. `share`: of the time that all targets have."""

    name: str
    checks: Sequence[Check]
    share: int = 1

    def run(self, data: bytes) -> None:
        """One input."""
        if data:
            self.checks[data[0] % len(self.checks)].run(data[1:])

    def corpus(self) -> Iterator[bytes]:
        """What fuzzing starts from."""
        for number, check in enumerate(self.checks):
            for seed in check.seeds():
                yield bytes([number]) + seed


def tried(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T | None:
    """What a decoder makes of this; None where it raises a DataError."""
    return unless(DataError, function, *args, **options)


def unless(
    refusal: type[StorageError], function: Callable[P, T], *args: P.args, **options: P.kwargs
) -> T | None:
    """What the function makes of this; None where it refuses it in the way it may."""
    try:
        return function(*args, **options)
    except refusal:
        return None


def text_of(data: bytes) -> str:
    """Any text, lone surrogates included."""
    return data.decode("utf-8", "surrogateescape")
