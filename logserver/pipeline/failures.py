"""Storage errors as Spark returns them: a Python traceback in the text of one of Spark's own exceptions.

Owns finding the error in that text. Must not know PySpark's classes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from storage import StorageError

_RAISED: Final = re.compile(
    r"^(?:storage|logserver)(?:\.\w+)+\.(\w+): (.+(?:\n(?! SQLSTATE|\s*at |\n).*)*)", re.MULTILINE
)


def storage_error(error: BaseException) -> StorageError | None:
    """Return the storage error, with its class and message, that a task or a planner raised.

    Returns None if the exception of PySpark has another cause.
    """
    for name, message in reversed(_RAISED.findall(str(error))):
        for kind in _classes(StorageError):
            if kind.__name__ == name:
                found = kind.__new__(kind)
                StorageError.__init__(found, message.strip())
                return found
    return None


def _classes(kind: type[StorageError]) -> Iterator[type[StorageError]]:
    yield kind
    for inner in kind.__subclasses__():
        yield from _classes(inner)
