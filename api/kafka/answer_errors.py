"""The numbers of the errors in an answer, for the metrics. As AbstractResponse.errorCounts.

Owns how they are found in a message of any API; must not know what they mean. Produce and Fetch count their errors
themselves, since they go through their rows anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple


class _Places(NamedTuple):
    """The fields of a struct that are numbers of errors, and those that may be lists of structs."""

    codes: Sequence[Callable[[Any], int]]
    lists: Sequence[Callable[[Any], Sequence[Any]]]


_KNOWN: dict[type, _Places | None] = {}


def _places(kind: type) -> _Places | None:
    """Return where a struct of this class may have errors; None if it has no place for them, or is no struct."""
    if kind not in _KNOWN:
        _KNOWN[kind] = _found_places(kind)
    return _KNOWN[kind]


def _found_places(kind: type) -> _Places | None:
    names: Sequence[str] = getattr(kind, "FIELDS", getattr(kind, "__struct_fields__", ()))
    if not names:
        return None
    empty = kind()
    codes = [attrgetter(name) for name in names if name.endswith("error_code")]
    lists = [attrgetter(name) for name in names if getattr(empty, name) == []]
    return _Places(codes, lists) if codes or lists else None


def error_codes(response: Any) -> list[int]:
    """Return the numbers of the errors in a response: one of the whole, and one of each part that has an error.

    >>> from api.kafka.protocol.messages.groups import HeartbeatResponse
    >>> error_codes(HeartbeatResponse()), error_codes(HeartbeatResponse(error_code=25))
    ([], [25])
    """
    found: list[int] = []
    _collect([response], found)
    return found


def _collect(structs: Sequence[Any], found: list[int]) -> None:
    """Add the errors of structs of one class. There may be a quarter of a million: no row takes a call of Python."""
    places = _places(type(structs[0]))
    if places is None:
        return
    for code_of in places.codes:
        found.extend(filter(None, map(code_of, structs)))
    for list_of in places.lists:
        for rows in filter(None, map(list_of, structs)):
            _collect(rows, found)
