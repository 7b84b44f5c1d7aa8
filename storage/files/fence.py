"""The fence: after a failed write or sync the store takes no more writes until it is opened anew.

Owns that one fact, shared by all partitions; must not do IO. The kernel has dropped the pages that
it could not write, so a later sync that succeeds would prove nothing.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from storage.errors import DiskFull, IoFailure, StoreFenced


class Guard:
    """What `guarding` and `tripping` give: enter it around writes and syncs. It holds nothing of one
    use, so a fence has one of each (an append that made its own would pay 2.6 us for it).
    """

    __slots__ = ("_checked", "_fence")

    def __init__(self, fence: Fence, *, checked: bool) -> None:
        self._fence = fence
        self._checked = checked

    def __enter__(self) -> None:
        if self._checked:
            self._fence.check()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, IoFailure) and not isinstance(error, DiskFull):
            self._fence.cause = self._fence.cause or error.message
            self._fence.check()


class Fence:
    """Open until it is tripped, then closed for good. Set once, read by any thread: a plain
    attribute is enough.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cause: str | None = None
        self._guarding = Guard(self, checked=True)
        self._tripping = Guard(self, checked=False)

    def check(self) -> None:
        """Raise StoreFenced once something has failed."""
        if self.cause is not None:
            raise StoreFenced(
                f"{self._path} is fenced after a failed write: {self.cause}; restart the server to recover",
                path=str(self._path),
                cause=self.cause,
            )

    def guarding(self) -> Guard:
        """Around writes and syncs: a failure trips the fence and comes out as StoreFenced.

        But for a disk that was full when something was written: there the writer has put back what
        it began. (A sync that fails is never a DiskFull, whatever the reason: its pages are lost.)
        """
        return self._guarding

    def tripping(self) -> Guard:
        """As `guarding`, but also when the fence is closed already: for files that are derived from
        others, without which nothing that was stored before could be read.
        """
        return self._tripping
