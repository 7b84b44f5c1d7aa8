"""Errors of Spark as one line: the storage error of a task or a planner, or the cause in the text of Java or Python.

Owns the search in Spark's texts. Must not import PySpark: commands search in any exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from logserver.errors import SparkFailed
from storage import StorageError
from storage.errors import NotOffered

_RAISED: Final = re.compile(
    r"(?:^|: )(?:storage|logserver)(?:\.\w+)+\.([A-Z]\w+): (.+(?:\n(?! SQLSTATE|\s*at |\n).*)*)",
    re.MULTILINE,
)
_PYTHON_TRACE: Final = "Traceback (most recent call last):"
_IN_A_TASK: Final = re.compile(r"\(TID \d+\) \([^)]*\): (.+)")
_CAUSE: Final = re.compile(r"^Caused by: (.+)", re.MULTILINE)
_CALL: Final = re.compile(r"^: (.+)$", re.MULTILINE)
_CLASS: Final = re.compile(r"^(?:[a-z_]\w*\.)+(?=[A-Z])")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+\s*$")
_LOST: Final = ("Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError")


def spark_failure(error: BaseException) -> StorageError | None:
    """Return the error that a command reports for an exception of Spark, or None if it is not Spark's."""
    found = storage_error(error)
    if found is not None:
        return found
    if type(error).__name__ in _LOST:
        return SparkFailed(
            "Spark: its Java process has ended; if it had too little memory, give it more: "
            "--conf spark.driver.memory=4g"
        )
    if type(error).__module__.partition(".")[0] not in {"py4j", "pyspark"}:
        return None
    return SparkFailed(f"Spark: {reason(str(error))} (pipeline --debug shows Spark's log)")


def not_started(error: BaseException, said: str) -> NotOffered:
    """Return the error of a Spark that does not start; `said`: Java's own message, if it printed one."""
    return NotOffered(
        f"Spark does not start: {said or reason(str(error))} "
        "(check --master, --conf and the Java that is used)",
        feature="pipeline",
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


def reason(text: str) -> str:
    """Return the line of Spark's text that names the cause: the end of a Python trace, or Java's innermost cause."""
    _, trace, after = text.rpartition(_PYTHON_TRACE)
    if trace:
        for line in after.splitlines():
            if line and not line[0].isspace():
                return _STATE.sub("", line)
    causes = _CAUSE.findall(text)
    for found in (causes[-1:], _IN_A_TASK.findall(text)[-1:], _CALL.findall(text)[:1]):
        if found:
            return _plain(found[0])
    return _plain(text.strip().partition("\n")[0])


def _plain(line: str) -> str:
    """Return a line of Java without the package of its class; Spark's own exception says nothing by its name."""
    return _STATE.sub("", _CLASS.sub("", line)).removeprefix("SparkException: ")
