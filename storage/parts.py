"""Work on a store that is cut into parts, which many may do side by side.

Owns the shapes and the promise; must not know a backend, nor who runs the parts. A part is planned
where the whole store is seen and done elsewhere, in another process or on another machine that sees
the same path: it is picklable and names files and positions. What one part hands to the next is put
together where they were planned:

    planned   part 1    part 2    part 3          each with a guess of what came before it
    done      result 1  result 2  result 3        side by side
    folded    -> state -> state -> state          in order; a part whose guess was wrong is done again

A command does the same parts one after another, each with what is known before it, so that nothing is
guessed: there is one implementation of every rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar, runtime_checkable

from storage.interface import Counted, Progress, no_progress, not_counted
from storage.model import Finding, RebuildReport

P = TypeVar("P")
R = TypeVar("R")


class RunParts(Protocol):
    """Does parts, perhaps side by side; the results come in the order of the parts.

    `work` and the parts are picklable, a result too. The parts are taken from an iterator: whoever
    takes some, does them and hands their results out before it takes more, needs no more memory than
    for those. What `work` raises is raised.
    """

    def __call__(self, work: Callable[[P], R], parts: Iterable[P], /) -> Iterable[R]: ...


def one_by_one(work: Callable[[P], R], parts: Iterable[P], /) -> Iterator[R]:
    """Parts done here, each when the result before it was taken."""
    return map(work, parts)


@runtime_checkable
class SupportsParts(Protocol):
    """An inspector whose work on a whole store can be shared out; see SupportsInspect for the rest."""

    def audit(
        self, run: RunParts, *, progress: Progress = no_progress, counted: Counted = not_counted
    ) -> Iterator[Finding]:
        """As `verify`, with the same findings, its parts done by `run`. `counted` gets every file after its
        last part.
        """

    def rebuild_in_parts(
        self, what: str, run: RunParts, *, write: bool = False, progress: Progress = no_progress
    ) -> RebuildReport:
        """As `rebuild`, with the same files, its parts done by `run`. Also without `write` the parts
        write to a folder beside the store, which is gone at the end, and which all that do parts have
        to reach under the same path.
        """
