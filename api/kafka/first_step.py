"""The first step of a coroutine, made where it is created: a request that waits for nothing needs no task.

Owns the hand-over of a coroutine that waits to a task; must not know requests. A task costs three turns of the event
loop: to begin, to end, and to call back. While the first step runs, `asyncio.current_task()` is None, so a coroutine
must not use `asyncio.timeout` before its first wait.

    coroutine -> first step -> it ended: a future that is done
                            -> it waits: a task, which makes the other steps
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar, overload

T = TypeVar("T")


def begin(work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    """Make the first step of a coroutine. Return the future of its result: it is done if the coroutine has ended, else
    it is the task of the other steps.
    """
    loop = asyncio.get_running_loop()
    try:
        awaited = work.send(None)
    except StopIteration as end:
        done: asyncio.Future[T] = loop.create_future()
        done.set_result(end.value)
        return done
    except asyncio.CancelledError:
        done = loop.create_future()
        done.cancel()
        return done
    except Exception as error:  # noqa: BLE001  # the future has it, as a task would
        done = loop.create_future()
        done.set_exception(error)
        return done
    return loop.create_task(_OtherSteps(work, awaited))


class _OtherSteps(Coroutine[Any, Any, T]):
    """A coroutine after its first step, as a task runs it. `awaited`: the future that the first step waits for, which
    the task has not seen.
    """

    __slots__ = ("_awaited", "_is_seen", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], awaited: Any) -> None:
        self._work = work
        self._awaited = awaited
        self._is_seen = False

    def send(self, value: Any) -> Any:
        if self._is_seen:
            return self._work.send(value)
        self._is_seen = True
        return self._awaited

    @overload
    def throw(
        self,
        typ: type[BaseException],
        val: BaseException | object = None,
        tb: TracebackType | None = None,
        /,
    ) -> Any: ...
    @overload
    def throw(
        self, typ: BaseException, val: None = None, tb: TracebackType | None = None, /
    ) -> Any: ...
    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None, /) -> Any:
        if not self._is_seen and isinstance(self._awaited, asyncio.Future):
            self._awaited.cancel()  # as the task does with a future that it has seen
        self._is_seen = True
        return self._work.throw(typ if val is None else val)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        raise NotImplementedError  # only a task runs it
