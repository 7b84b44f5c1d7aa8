"""A check, at every write, that a field is written under its lock: for tests, in plain Python.

Owns the mechanism. A test replaces the locks of `threading` by locks that know their owner, and opens a store. It then
names the fields of an object that only the holder of a lock may change. Setting such a field, or changing the list or
dictionary in it, without the lock is recorded. So a missing lock shows in any workload that writes the field, and no
race has to occur.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

_MUTATORS: Final = (
    *("append", "appendleft", "extend", "insert", "remove", "pop", "popleft", "popitem", "clear"),
    *("__setitem__", "__delitem__", "update", "setdefault", "add", "discard", "move_to_end"),
)


class OwnedLock:
    """A lock, plain or re-entrant, that knows which thread holds it."""

    def __init__(self, lock: Any) -> None:
        self._inner = lock
        self._owner: int | None = None
        self._depth = 0

    def acquire(self, *args: Any, **kwargs: Any) -> bool:
        """Acquire the lock."""
        taken: bool = self._inner.acquire(*args, **kwargs)
        if taken:
            self._owner = threading.get_ident()
            self._depth += 1
        return taken

    def release(self) -> None:
        """Release the lock."""
        self._depth -= 1
        if not self._depth:
            self._owner = None
        self._inner.release()

    def locked(self) -> bool:
        """Return whether any thread holds the lock."""
        return self._depth > 0

    def is_mine(self) -> bool:
        """Return whether the calling thread holds the lock."""
        return self._owner == threading.get_ident()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self.release()


def with_owned_locks(patch: pytest.MonkeyPatch) -> None:
    """Let `threading` create locks that know their owner."""
    plain, reentrant = threading.Lock, threading.RLock
    patch.setattr(threading, "Lock", lambda: OwnedLock(plain()))
    patch.setattr(threading, "RLock", lambda: OwnedLock(reentrant()))


class Guards:
    """The watched objects, and their writes that happened without the lock."""

    def __init__(self) -> None:
        self.breaches: list[str] = []
        self.writes: dict[str, int] = {}

    def watch(self, watched: Any, lock: OwnedLock, *fields: str) -> None:
        """Record, from now on, every write to these fields of the object that happens without the lock."""
        kind: Any = type(watched)
        name = kind.__name__
        self.writes |= {f"{name}.{field}": 0 for field in fields}

        def check(field: str) -> None:
            self.writes[f"{name}.{field}"] += 1
            if not lock.is_mine():
                frames = traceback.extract_stack()[:-2]
                place = next(f for f in reversed(frames) if f.filename != __file__)
                self.breaches.append(f"{name}.{field} at {place.filename}:{place.lineno}")

        def set_field(one: Any, field: str, value: object) -> None:
            if field in fields:
                check(field)
                value = _watched(value, partial(check, field))
            kind.__setattr__(one, field, value)

        for field in fields:
            value = _watched(getattr(watched, field), partial(check, field))
            kind.__setattr__(watched, field, value)
        watched.__class__ = type(name, (kind,), {"__slots__": (), "__setattr__": set_field})


def _watched(value: object, check: Callable[[], None]) -> object:
    """Return a copy of a list, dictionary or set that calls `check` before each change; any other value unchanged."""
    kind = type(value)
    if kind not in (list, dict, set) and not hasattr(value, "move_to_end"):
        return value

    def checking(name: str) -> Callable[..., object]:
        def change(one: Any, *args: Any, **kwargs: Any) -> object:
            check()
            return getattr(kind, name)(one, *args, **kwargs)

        return change

    members = {name: checking(name) for name in _MUTATORS if hasattr(kind, name)}
    return type(kind.__name__, (kind,), members)(value)
