"""A topic's name in the other format: the same name if both formats allow it, otherwise escaped reversibly.

Owns that mapping; must not do IO. An escaped character is written as a mark and two hexadecimal digits for each byte of
its UTF-8 form. The mark does not occur in names of the other side:

    RocketMQ -> Kafka   %RETRY%group  ->  _.25RETRY_.25group        mark _.
    Kafka -> RocketMQ   orders.v1     ->  orders%2Ev1               mark %

A name that reads as an escaped name, and that escaping would produce, is converted back. In a name that is reserved for
the target's server the first character is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from storage.errors import InvalidTopic
from storage.kafka.format import names as kafka
from storage.rocketmq.format import names as rocketmq


class _Side(NamedTuple):
    """The rules of one format for a topic's name, and the form of other names in it."""

    mark: str
    legal: re.Pattern[str]
    check: Callable[[str], None]


_KAFKA: Final = _Side("_.", re.compile(r"[a-zA-Z0-9._-]"), kafka.validate_new_topic)
_ROCKETMQ: Final = _Side("%", re.compile(r"[a-zA-Z0-9%|_-]"), rocketmq.validate_new_topic)
_SIDES: Final = {"kafka": _KAFKA, "rocketmq": _ROCKETMQ}


def topic_name(name: str, *, to: str, encode: bool) -> str:
    """Return the topic's name in a store of the backend `to`.

    Raises InvalidTopic for a name that is not legal there, unless `encode` is set and the escaped name is legal.
    """
    target = _SIDES[to]
    (other,) = (backend for backend in _SIDES if backend != to)
    source = _SIDES[other]
    meant = _unescaped(name, source.mark)
    if meant is not None and _encoded(meant, to=other) == name:
        return meant
    if (
        _is_legal(name, target)
        and _is_legal(name, source)
        and _unescaped(name, target.mark) is None
    ):
        return name
    escaped = _escaped(name, target, by=source)
    if not encode or not _is_legal(escaped, target):
        target.check(name)
        target.check(escaped)
        reason = (
            "would be read back as an escaped name"
            if _is_legal(name, source)
            else f"is one that a {other} broker gives to no client: a topic of its own, or not allowed"
        )
        raise InvalidTopic(f"topic name {name!r} {reason}", topic=name)
    return escaped


def _encoded(name: str, *, to: str) -> str | None:
    """Return the name with `encode`; None if no legal name exists."""
    try:
        return topic_name(name, to=to, encode=True)
    except InvalidTopic:
        return None


def _is_legal(name: str, side: _Side) -> bool:
    try:
        side.check(name)
    except InvalidTopic:
        return False
    return True


def _escaped(name: str, side: _Side, *, by: _Side) -> str:
    """Return a name of the side `by` as a name of `side`: at least its first character is escaped."""
    legal, mark = side.legal, side.mark
    done = [
        character if legal.fullmatch(character) and character != mark[-1] else _hex(character, mark)
        for character in name
    ]
    if not any(len(piece) > 1 for piece in done) and name:
        done[0] = _hex(name[0], mark)
    return "".join(done)


def _hex(character: str, mark: str) -> str:
    return "".join(f"{mark}{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def _unescaped(name: str, mark: str) -> str | None:
    """Return the name that an escaped name represents; None if it contains no escaped character."""
    pattern = rf"(?:{re.escape(mark)}[0-9A-F]{{2}})+"
    if re.search(pattern, name) is None:
        return None
    try:
        return re.sub(pattern, lambda run: _bytes(run[0], mark).decode(), name)
    except UnicodeDecodeError:
        return None


def _bytes(run: str, mark: str) -> bytes:
    return bytes.fromhex(run.replace(mark, ""))
