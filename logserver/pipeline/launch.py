"""The Java process of a session: its start with the session's settings, and what it prints on standard error.

Owns the choice of the lines that a user sees. Must not be used where a program has a session of its own.

Java and Spark greet a user with warnings that mean nothing to a local job. The process writes to a pipe, and a thread
passes on what matters: messages of tasks, such as damage that PERMISSIVE skips. Spark's log is passed on if a user has
chosen its level.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock, Thread
from typing import Final

_GREETING: Final = re.compile(
    r"WARNING: Using incubator modules|Using Spark's default log4j|Setting default log level"
    r"|To adjust logging level|Setting Spark log level"
    r"|\d\d/\d\d/\d\d \d\d:\d\d:\d\d |\s+at |\s+\.\.\. \d+ more|Caused by: "
)
ENDS_IN_S: Final = 5
_EMPTY: Final = "Error: Could not create the Java Virtual Machine."


class JavaOutput:
    """Lines that Java prints: kept until the session runs, because they explain a failed start, and later passed on."""

    def __init__(self, *, with_log: bool) -> None:
        self._with_log = with_log
        self._lock = Lock()
        self._kept: list[str] | None = []

    def follow(self, descriptor: int) -> Thread:
        """Read a pipe to its end in a thread of its own, and close it."""
        thread = Thread(target=self._read, args=(descriptor,), name="java output", daemon=True)
        thread.start()
        return thread

    def take(self) -> str:
        """Return what Java printed so far, in one line."""
        with self._lock:
            kept = self._kept or []
            self._kept = []
        return "; ".join(line.strip() for line in kept if line.strip() and _EMPTY not in line)

    def pass_on(self) -> None:
        """Print the kept lines, and from now on each line when it arrives."""
        with self._lock:
            kept, self._kept = self._kept or [], None
            for line in kept:
                _print(line)

    def _read(self, descriptor: int) -> None:
        with open(descriptor, "rb") as stream:
            for data in stream:
                line = data.decode("utf-8", "replace")
                if self._with_log or not _GREETING.match(line):
                    self._add(line)

    def _add(self, line: str) -> None:
        with self._lock:
            if self._kept is not None:
                self._kept.append(line)
            else:
                _print(line)


def _print(line: str) -> None:
    with suppress(OSError, ValueError):
        sys.stderr.write(line)
        sys.stderr.flush()


def start_java(settings: Mapping[str, str], output: JavaOutput) -> None:
    """Start the Java process with a session's settings, unless this process already has one (of spark-submit, too).

    Raises PySparkRuntimeError if it ends at once; then `output` is complete.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    conf = SparkConf().setAll(list(settings.items()))
    ours, of_java = os.pipe()
    reader = output.follow(ours)
    try:
        gateway = launch_gateway(conf, {"stderr": of_java})  # type: ignore[no-untyped-call]  # untyped
    except BaseException:
        os.close(of_java)
        reader.join(timeout=ENDS_IN_S)
        raise
    os.close(of_java)
    SparkContext._ensure_initialized(gateway=gateway)
