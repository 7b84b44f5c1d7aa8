"""The error message for a row that is rejected: the column, the topic and partition of the row, and the rule.

Owns that text; must not know the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from storage import TopicPartition
from storage.errors import RecordTooLarge, UnrepresentableRecord

_INDEX = re.compile(r"^record \d+:? ?")
_FIELD = re.compile(r"^(\w+): ")


@contextmanager
def naming_rows(partition: TopicPartition | None) -> Iterator[None]:
    """Add the row's partition and column to the error for a rejected record; an error that names a column stays."""
    where = "a row" if partition is None else f"a row for {partition}"
    try:
        yield
    except (UnrepresentableRecord, RecordTooLarge) as error:
        if error.message.startswith("column "):
            raise
        facts = error.facts()
        rule = _FIELD.sub("", _INDEX.sub("", error.message))
        column = facts.get("field", "value")
        raise type(error)(f"column {column!r} of {where}: {rule}", **facts) from None
