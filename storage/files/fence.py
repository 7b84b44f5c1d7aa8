"""The fence: after a failed write or sync the store takes no more writes until it is opened anew.

Owns that one fact, shared by all partitions; must not do IO. The kernel has dropped the pages that
it could not write, so a later sync that succeeds would prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.errors import DiskFull, IoFailure, StoreFenced


class Fence:
    """Open until it is tripped, then closed for good. Set once, read by any thread: a plain
    attribute is enough.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cause: str | None = None

    def check(self) -> None:
        """Raise StoreFenced once something has failed."""
        if self.cause is not None:
            raise StoreFenced(
                f"{self._path} is fenced after a failed write: {self.cause}; restart to recover",
                path=str(self._path),
                cause=self.cause,
            )

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Around writes and syncs: a failure trips the fence and comes out as StoreFenced.

        But for a disk that was full when something was written: there the writer has put back what
        it began. (A sync that fails is never a DiskFull, whatever the reason: its pages are lost.)
        """
        self.check()
        with self.tripping():
            yield

    @contextmanager
    def tripping(self) -> Iterator[None]:
        """As `guarding`, but also when the fence is closed already: for files that are derived from
        others, without which nothing that was stored before could be read.
        """
        try:
            yield
        except DiskFull:
            raise
        except IoFailure as error:
            self.cause = self.cause or error.message
            self.check()
