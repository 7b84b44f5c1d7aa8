"""The store's error is extracted from Spark's message; of any other failure the cause, in one line."""

from __future__ import annotations

import pytest

from logserver.errors import SparkFailed
from logserver.pipeline.failures import not_started, reason, spark_failure, storage_error
from storage.errors import Corrupt, InvalidArgument, OffsetOutOfRange, UnsupportedFormat

PLANNED = """[PYTHON_DATA_SOURCE_ERROR] Failed to initialize reader: Traceback (most recent call last):
  File "/x/logserver/pipeline/read/schema.py", line 92, in _checked
    raise InvalidArgument(f"schema: column {name!r} is unknown: {hint}", field=name)
storage.errors.InvalidArgument: schema: column 'ofset' is unknown: did you mean offset?
 SQLSTATE: 38000"""

IN_A_TASK = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/x/storage/kafka/columns/read.py", line 115, in _good_batches
    file.close()
storage.errors.Corrupt: /d/t-0/0.log: damaged batch at position 115: expected CRC 1, found CRC 2"""

LOST = """x: Traceback (most recent call last):
storage.errors.OffsetOutOfRange: offset 5 of t-0 is out of range: the first is 9, the next to be written is 12
 SQLSTATE: 38000"""

WITHOUT_A_TRACE = (
    "[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: storage.errors.UnsupportedFormat: "
    "/nowhere holds no store: it is missing or empty\n SQLSTATE: 38000"
)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (WITHOUT_A_TRACE, UnsupportedFormat, "/nowhere holds no store: it is missing or empty"),
        (PLANNED, InvalidArgument, "schema: column 'ofset' is unknown: did you mean offset?"),
        (
            IN_A_TASK,
            Corrupt,
            "/d/t-0/0.log: damaged batch at position 115: expected CRC 1, found CRC 2",
        ),
        (
            LOST,
            OffsetOutOfRange,
            "offset 5 of t-0 is out of range: the first is 9, the next to be written is 12",
        ),
    ],
)
def test_the_stores_error_is_found(text: str, kind: type[Exception], message: str) -> None:
    found = storage_error(RuntimeError(text))
    assert type(found) is kind
    assert found is not None
    assert found.message == message


def test_another_error_stays_what_it_is() -> None:
    assert storage_error(RuntimeError("Job aborted: no space")) is None
    assert storage_error(RuntimeError("storage.errors.NoSuchClass: x")) is None


FULL_DISK = """An error occurred while calling o52.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 1.0 (TID 1) (localhost executor driver): java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2887)
"""
IN_A_CAUSE = """An error occurred while calling o52.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows. SQLSTATE: 58030
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(Errors.scala:785)
Caused by: java.lang.RuntimeException: wrapped
\t... 17 more
Caused by: java.lang.OutOfMemoryError: Java heap space
\tat org.apache.parquet.bytes.HeapByteBufferAllocator.allocate(HeapByteBufferAllocator.java:34)
"""
OWN_FUNCTION = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/job.py", line 3, in f
    1 // 0
    ~~^^~~
ZeroDivisionError: integer division or modulo by zero
 SQLSTATE: 38000"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (FULL_DISK, "IOException: No space left on device"),
        (IN_A_CAUSE, "OutOfMemoryError: Java heap space"),
        (OWN_FUNCTION, "ZeroDivisionError: integer division or modulo by zero"),
        ("[TABLE_OR_VIEW_NOT_FOUND] No table x.\nmore", "[TABLE_OR_VIEW_NOT_FOUND] No table x."),
        (
            "An error\n: org.apache.spark.SparkException: Could not parse Master URL: 'x'\n\tat o.a",
            "Could not parse Master URL: 'x'",
        ),
    ],
)
def test_the_cause_is_one_line(text: str, cause: str) -> None:
    assert reason(text) == cause


def made(module: str, name: str, text: str) -> Exception:
    """Return an exception of a class with this module and name."""
    kind: type[Exception] = type(name, (Exception,), {"__module__": module})
    return kind(text)


def test_a_failure_of_spark_is_no_bug_of_ours() -> None:
    found = spark_failure(made("py4j.protocol", "Py4JJavaError", FULL_DISK))
    assert isinstance(found, SparkFailed)
    assert found.message.startswith("Spark: IOException: No space left on device (")
    found = spark_failure(made("pyspark.errors.exceptions.captured", "AnalysisException", PLANNED))
    assert isinstance(found, InvalidArgument)
    assert spark_failure(made("logserver.x", "KeyError", "x")) is None


@pytest.mark.parametrize("name", ["Py4JNetworkError", "ConnectionRefusedError"])
def test_a_java_that_has_ended(name: str) -> None:
    found = spark_failure(made("py4j.protocol", name, "Answer from Java side is empty"))
    assert found is not None
    assert "Java process has ended" in found.message


def test_a_start_that_fails_reports_the_words_of_java() -> None:
    error = RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited\nmore")
    found = not_started(error, "Invalid maximum heap size: -Xmx1x")
    assert "does not start: Invalid maximum heap size: -Xmx1x (check --master" in found.message
    assert "[JAVA_GATEWAY_EXITED] Java gateway" in not_started(error, "").message
