"""Search: a query as it is compared with records, and the rule of pages and cursors.

Owns the comparison with a StoredRecord, the limits of a page, the errors of cursors, and how a page ends at damage;
must not know how a backend finds records. The server's lookups and the tools use the same conditions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from storage.errors import Corrupt, InvalidArgument
from storage.model import FindQuery, FoundPage, StoredRecord, weight_bytes

P = TypeVar("P")

_REPLACEMENT: Final = "\ufffd"
_PARTITION_CURSOR: Final = re.compile(r"(-?)([0-9]{1,10}):([0-9]{1,19})")


class Search:
    """A query, ready for comparison: its key as bytes."""

    def __init__(self, query: FindQuery) -> None:
        self.query = query
        self.key = None if query.key is None else query.key.encode("utf-8", "surrogateescape")

    @property
    def needle(self) -> bytes:
        """Bytes that every match contains as it is stored, if it is not compressed."""
        return needle_of(self.query.key or self.query.unique_id or self.query.tag or "")

    def is_in_time(self, time_ms: int) -> bool:
        """Return whether a time is in the query's range, both ends included."""
        from_ms, to_ms = self.query.from_ms, self.query.to_ms
        return (from_ms is None or time_ms >= from_ms) and (to_ms is None or time_ms <= to_ms)


def needle_of(text: str) -> bytes:
    """Return the stored bytes of a text; b"" if they are not known."""
    # Invalid UTF-8 is decoded with replacement characters, which are not in the stored bytes.
    return b"" if _REPLACEMENT in text else text.encode("utf-8", "surrogateescape")


class RecordSearch(Search):
    """A query that is compared with stored records."""

    def matches(self, record: StoredRecord) -> bool:
        """Return whether a record meets all conditions. A lookup key is as good as the record's key."""
        query = self.query
        return (
            (self.key is None or self._has_key(record))
            and (query.tag is None or record.tag == query.tag)
            and self.is_in_time(record.timestamp_ms)
            and query.has_text(record.value, record.key)
        )

    def _has_key(self, record: StoredRecord) -> bool:
        return record.key == self.key or any(k.encode() == self.key for k in record.lookup_keys)


# ---- pages ---------------------------------------------------------------------------------------


class Inspected(NamedTuple):
    """A step of a search: the record at a place, None if it does not match; or damage, with the cursor after it (None:
    no record is left).
    """

    partition: int
    record: StoredRecord | None = None
    damage: Corrupt | None = None
    onward: str | None = None


def check_limits(query: FindQuery) -> None:
    """Raise InvalidArgument for limits below 1, with which a search would make no progress."""
    for field in ("limit", "max_scanned"):
        if getattr(query, field) < 1:
            raise InvalidArgument(f"{field} must be at least 1", field=field)


def page_of(
    steps: Iterable[tuple[P, Inspected]],
    query: FindQuery,
    cursor: Callable[[P], str | None],
    *,
    time_axis: str,
    indexed: bool = False,
) -> FoundPage:
    """Return one page of the steps, which ends at a limit of the query; `cursor` makes the cursor that continues at a
    place.

    Raises Corrupt at damage, with the `cursor` after it. A page with a match ends before the damage instead.
    """
    found: list[tuple[int, StoredRecord]] = []
    scanned = found_bytes = 0
    for place, (partition, record, damage, onward) in steps:
        if record is not None:
            found_bytes += weight_bytes(record)
        full = len(found) >= query.limit or (
            found and (found_bytes > query.max_bytes or damage is not None)
        )
        if full or scanned >= query.max_scanned:
            rest = cursor(place)
            return FoundPage(found, scanned, indexed, rest is None, rest, time_axis)
        if damage is not None:
            raise Corrupt(damage.message, **{**damage.facts(), "cursor": onward}) from damage
        scanned += 1
        if record is not None:
            found.append((partition, record))
    return FoundPage(found, scanned, indexed, complete=True, cursor=None, time_axis=time_axis)


# ---- cursors -------------------------------------------------------------------------------------


def parse_cursor(query: FindQuery, form: re.Pattern[str]) -> re.Match[str] | None:
    """Return the parts of the query's cursor, None without one. The first part is "-" in a backward search.

    Raises InvalidArgument.
    """
    if query.cursor is None:
        return None
    parts = form.fullmatch(query.cursor)
    if parts is None or (parts[1] == "-") is not query.backward:
        raise InvalidArgument(
            f"cursor {query.cursor[:80]!r} is none that was given for this direction",
            field="cursor",
        )
    return parts


def partition_cursor(partition: int, offset: int, *, backward: bool) -> str:
    """Return the cursor of a search that goes partition by partition: "partition:offset", or "-partition:offset"."""
    return f"{'-' if backward else ''}{partition}:{offset}"


def parse_partition_cursor(query: FindQuery, partitions: Sequence[int]) -> tuple[int, int] | None:
    """Return (partition, offset) of the query's cursor, None without one. Raises InvalidArgument."""
    parts = parse_cursor(query, _PARTITION_CURSOR)
    if parts is None:
        return None
    if int(parts[2]) not in partitions:
        raise InvalidArgument(f"cursor {query.cursor!r} names no partition here", field="cursor")
    return int(parts[2]), int(parts[3])
