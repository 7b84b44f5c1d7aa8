"""The fence: after a failed write or sync the store accepts no more writes until it is opened again.

Owns that one fact, shared by all partitions; must not do IO. The kernel has dropped the pages that it could not write.
So a later successful sync would prove nothing.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from storage.errors import DiskFull, IoFailure, StoreFenced


class Guard:
    """The context manager that `guarding` and `tripping` return: enter it around writes and syncs.

    It has no state of one use, so a fence has one object of each kind; an object per append would cost 2.6 us.
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
    """A switch that is open until a failure trips it, and then closed for good.

    It is set once and read by any thread, so a plain attribute is enough.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cause: str | None = None
        self._guarding = Guard(self, checked=True)
        self._tripping = Guard(self, checked=False)

    def check(self) -> None:
        """Raise StoreFenced after the first failure."""
        if self.cause is not None:
            raise StoreFenced(
                f"{self._path} is fenced after a failed write: {self.cause}; restart the server to recover",
                path=str(self._path),
                cause=self.cause,
            )

    def guarding(self) -> Guard:
        """Return the guard for writes and syncs: a failure trips the fence and is raised as StoreFenced.

        A disk that is full at a write is an exception: the writer has undone its partial write. (A failed sync is never
        a DiskFull, whatever the reason, because its pages are lost.)
        """
        return self._guarding

    def tripping(self) -> Guard:
        """Return a guard like `guarding` that may also be entered when the fence is closed.

        It is used for derived files, without which data stored earlier could not be read.
        """
        return self._tripping
