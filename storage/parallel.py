"""Work on a store that is divided into parts, which many workers may do side by side.

Owns the shapes and their contract; must not know a backend, nor which program runs the parts. A part is planned where
the whole store is visible. It is done elsewhere, in another process or on another machine that sees the same path. So
it is picklable and names files and positions. State that one part passes to the next is combined where the parts were
planned:

    planned   part 1    part 2    part 3          each with a guess of the state before it
    done      result 1  result 2  result 3        side by side
    folded    -> state -> state -> state          in order; a part whose guess was wrong is done again

A command does the same parts one after another, each with the known state before it, so that no state is guessed. So
every rule has one implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar, runtime_checkable

from storage.interface import Counted, Progress, no_progress, not_counted
from storage.model import Finding, RebuildReport

P = TypeVar("P")
R = TypeVar("R")


class RunParts(Protocol):
    """A runner of parts, perhaps side by side; the results come in the order of the parts.

    `work`, the parts and the results are picklable. The parts come from an iterator. A runner that takes some parts,
    does them and yields their results before it takes more needs memory for only those parts. An error of `work` is
    raised.
    """

    def __call__(self, work: Callable[[P], R], parts: Iterable[P], /) -> Iterable[R]: ...


def one_by_one(work: Callable[[P], R], parts: Iterable[P], /) -> Iterator[R]:
    """Do the parts here, each when the previous result was taken."""
    return map(work, parts)


@runtime_checkable
class SupportsParts(Protocol):
    """An inspector whose work on a whole store can be divided; see SupportsInspect for all other methods."""

    def audit(
        self, run: RunParts, *, progress: Progress = no_progress, counted: Counted = not_counted
    ) -> Iterator[Finding]:
        """Yield the same findings as `verify`; `run` does the parts. `counted` receives every file after its
        last part.
        """

    def rebuild_in_parts(
        self, what: str, run: RunParts, *, write: bool = False, progress: Progress = no_progress
    ) -> RebuildReport:
        """Rebuild the same files as `rebuild`; `run` does the parts.

        Also without `write` the parts write to a folder next to the store, which is removed at the end. All workers
        must reach this folder under the same path.
        """
