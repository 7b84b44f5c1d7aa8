"""The store's error is extracted from Spark's message."""

from __future__ import annotations

import pytest

from logserver.pipeline.session import storage_error
from storage.errors import Corrupt, InvalidArgument, OffsetOutOfRange

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


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
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
