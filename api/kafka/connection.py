"""One connection of a Kafka client: frames in, answers out in the order of the requests.

Owns the frames, the limits of one connection, and which requests may overlap; must not know APIs beyond that. A frame
is an i32 size and that many bytes.

    bytes -> frames -> queue -> at most one request at work -> answers, in order
                                (or several Produce requests: appended in order, their syncs overlap)

A Produce or Fetch request that waits for nothing is answered without a task (`first_step`). Its answer waits until the
requests are read that have arrived meanwhile: of a client that sends ahead, several answers take one write. After it
the loop looks for the client's next request for a short time before it sleeps (`idle_poll`).

Back-pressure: no bytes are read while MAX_QUEUED requests wait, or while the budget of request bytes has no room for
the next frame. No request begins while the client takes no answers. So a slow or hostile client holds one frame, a few
small requests and one answer, and everything else waits in its own socket.

The bytes of a frame are reserved before it arrives: if they were reserved as they come, frames of many clients could
fill the budget, each waiting for the others. So a size costs a client nothing. Therefore all frames that are arriving
share a part of the budget (`Connections.arriving`), a frame that is slow gives way when others wait, and a frame of
SMALL_BYTES or less is reserved when it is whole: clients that only send sizes cannot stop HTTP, nor heartbeats.
"""

from __future__ import annotations

import asyncio
import io
import logging
from collections import deque
from time import perf_counter
from typing import Final, Protocol, cast

from api.connection.kernel import has_unread_bytes, untaken_bytes
from api.kafka import first_step
from api.kafka.call import FETCH, PRODUCE, TURN_S, Client, Ended
from api.kafka.dispatch import HEADER_BYTES, Answer, Dispatcher
from api.kafka.idle_poll import IdlePoll
from api.kafka.protocol.primitives import Malformed
from logserver.config import Address
from logserver.errors import Busy, NotReady
from logserver.metrics import KafkaMetrics
from logserver.service.memory_budget import SMALL_BYTES, MemoryBudget, Reservation
from logserver.service.requests import host_bytes
from logserver.service.service import LogService

log = logging.getLogger(__name__)

SIZE_BYTES: Final = 4
MAX_QUEUED: Final = 64
MAX_OVERLAPPING: Final = 16  # clients have 5 requests in flight
MAX_PARTS: Final = 1 << 20
"""Most buffers of one write: uvloop ends a connection that is given more (EINVAL)."""
MAX_AT_ONCE: Final = 4  # requests of one client that are answered before the loop goes on
MAX_UNWRITTEN: Final = 8  # answers of one client that are written at once
NO_FRAME: Final = -1
ANSWERED_AT_ONCE: Final = frozenset((PRODUCE, FETCH))
_HTTP_STARTS: Final = frozenset((b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"PRI "))
_TLS_START: Final = b"\x16\x03"
TLS_CLOSE_S: Final = 1.0
MAX_LOGIN_FRAME_BYTES: Final = 512 << 10  # the real server's sasl.server.max.receive.size


class _Waiting:
    """A request in the queue: its frame, and the budget of its bytes."""

    def __init__(self, frame: bytes, reservation: Reservation) -> None:
        self.frame = frame
        self.reservation = reservation

    @property
    def api(self) -> int:
        """The number of its API."""
        return int.from_bytes(self.frame[:2], "big")


class _Running:
    """A request at work. `answer_bytes`: the budget of its answer."""

    def __init__(
        self,
        task: asyncio.Future[Answer | None],
        *,
        is_produce: bool,
        reservation: Reservation,
        answer_bytes: Reservation,
    ) -> None:
        self.task = task
        self.is_produce = is_produce
        self.reservation = reservation
        self.answer_bytes = answer_bytes


class Connections(Protocol):
    """The listener, as a connection needs it."""

    @property
    def service(self) -> LogService: ...
    @property
    def dispatcher(self) -> Dispatcher: ...
    @property
    def metrics(self) -> KafkaMetrics: ...
    @property
    def arriving(self) -> MemoryBudget: ...
    @property
    def received(self) -> memoryview: ...
    @property
    def idle_poll(self) -> IdlePoll: ...

    def take(self, connection: KafkaConnection) -> bool:
        """Count a connection; return False if there are too many."""
        ...

    def drop(self, connection: KafkaConnection) -> None:
        """Forget a connection that has ended."""
        ...


class _LongFrame:
    """A frame of more than SMALL_BYTES that is arriving: the kernel writes into the object that the request gets."""

    def __init__(self, size_bytes: int, begin: bytearray) -> None:
        # The only object of the standard library that gives out its bytes without a copy after it was written to.
        self._holder = io.BytesIO(bytes(size_bytes))
        self._view = self._holder.getbuffer()
        self._filled_bytes = len(begin)
        self._view[: len(begin)] = begin

    def room(self) -> memoryview:
        """Return the part that has not arrived."""
        return self._view[self._filled_bytes :]

    def add(self, count_bytes: int) -> bool:
        """Count bytes that were written into `room`. Return True if the frame is whole."""
        self._filled_bytes += count_bytes
        return self._filled_bytes == len(self._view)

    def take(self) -> bytes:
        """Return the whole frame, once."""
        self._view.release()
        return self._holder.getvalue()

    def drop(self) -> None:
        """Forget the frame: the garbage collector would complain of a holder that gives out its bytes."""
        self._view.release()


class KafkaConnection(asyncio.BufferedProtocol):
    """The protocol object of one connection; the listener makes one for each."""

    def __init__(self, listener: Connections) -> None:
        self._listener = listener
        self._dispatcher = listener.dispatcher
        self._settings = listener.service.settings
        self._idle_poll = listener.idle_poll
        self._now = asyncio.get_running_loop().time
        self._buffer = bytearray()
        self._long: _LongFrame | None = None  # the frame that is arriving, without `_buffer`
        self._frame_bytes = NO_FRAME  # size of the frame that is arriving
        self._frame: Reservation | None = None  # of its bytes
        self._frame_begun_s = 0.0
        self._arriving: Reservation | None = None  # of its share of `Connections.arriving`
        self._reserving: asyncio.Task[None] | None = None
        self._queue: deque[_Waiting] = deque()
        self._running: deque[_Running] = deque()
        self._unwritten: list[bytes | bytearray] = []  # of answers, before the transport has them
        self._unwritten_bytes = self._unwritten_answers = 0
        self._unsent: list[Reservation] = []  # of answers that the client has not taken
        self._writable = True
        self._untaken_bytes = 0  # at the last look of `check_time`, while there are any
        self._taken_s = 0.0  # the last time that they changed
        self._reading = True
        self._ending = False
        self._moved_s = self._begun_s = self._now()  # the last progress of the client
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1
        self._received_bytes = listener.metrics.received_bytes
        self._sent_bytes = listener.metrics.sent_bytes
        self.client = Client("")
        self._node = Address("", 0)

    # -- the event loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, or close it if there are too many. The protocol has no answer for that."""
        self._transport = cast("asyncio.Transport", transport)
        if not self._listener.take(self):
            self._ending = True
            self._transport.abort()
            return
        self._descriptor = transport.get_extra_info("socket").fileno()
        peer = transport.get_extra_info("peername") or ("",)
        self.client = Client(str(peer[0]), host_bytes(*peer[:2]) if peer[0] else None)
        own = transport.get_extra_info("sockname") or ("", 0)
        self._node = self._settings.advertise_kafka or Address(str(own[0]), int(own[1]))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Drop what only this client waits for. Appends that are queued go on."""
        self._ending = True
        self._transport = None
        self._listener.drop(self)
        if self._reserving is not None:
            self._reserving.cancel()
        for waiting in self._queue:
            waiting.reservation.release()
        self._queue.clear()
        if self._frame is not None:
            self._frame.release()
        if self._long is not None:
            self._long.drop()
            self._long = None
        self._has_arrived()
        self._release_unsent()
        for running in self._running:
            if not running.is_produce:
                running.task.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next bytes: of the frame, or what all connections share until `buffer_updated`."""
        return self._listener.received if self._long is None else self._long.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Take received bytes."""
        self._received_bytes.value += nbytes
        self._idle_poll.arrived()
        if self._ending:
            return
        self._moved_s = self._now()
        if self._long is None:
            self._buffer += self._listener.received[:nbytes]
        elif self._long.add(nbytes):
            frame, self._long = self._long.take(), None
            self._queue_frame(frame)
        else:
            return
        self._take_frames()

    def pause_writing(self) -> None:
        """Begin no request while the client takes no answers."""
        self._writable = False

    def resume_writing(self) -> None:
        """Go on: the client has taken its answers."""
        self._writable = True
        self._moved_s = self._now()
        self._write()
        self._take_frames()

    # -- frames

    def _take_frames(self) -> None:
        """Queue the whole frames of the buffer, then stop or go on reading."""
        buffer = self._buffer
        while self._may_take():
            if self._frame_bytes == NO_FRAME and not self._begin_frame():
                break
            stop = SIZE_BYTES + self._frame_bytes
            is_whole = len(buffer) >= stop
            if not is_whole and self._frame_bytes <= SMALL_BYTES:
                break
            if self._frame is None and not self._reserve(self._frame_bytes):
                break
            if self._frame is None:
                break
            if not is_whole:
                self._long = _LongFrame(self._frame_bytes, buffer[SIZE_BYTES:])
                buffer.clear()
                break
            frame = bytes(memoryview(buffer)[SIZE_BYTES:stop])
            del buffer[:stop]
            self._queue_frame(frame)
        self._begin_next()
        self._control_reading()
        if not (buffer or self._long or self._queue or self._running):
            self._idle_poll.answered()

    def _may_take(self) -> bool:
        return (
            self._long is None
            and self._reserving is None
            and len(self._queue) < MAX_QUEUED
            and not self._ending
        )

    def _queue_frame(self, frame: bytes) -> None:
        """Queue a whole frame, with the reservation of its bytes."""
        if self._frame is not None:
            self._queue.append(_Waiting(frame, self._frame))
        self._frame, self._frame_bytes = None, NO_FRAME
        self._has_arrived()

    def _begin_frame(self) -> bool:
        """Read the size of the next frame. Return False if it is not there yet, or beyond the limit."""
        if len(self._buffer) < SIZE_BYTES:
            return False
        size = int.from_bytes(self._buffer[:SIZE_BYTES], "big", signed=True)
        limit = self._settings.max_body_bytes
        if self._dispatcher.needs_login and self.client.scopes is None:
            limit = min(limit, MAX_LOGIN_FRAME_BYTES)
        if not HEADER_BYTES <= size <= limit:
            other = _other_protocol(bytes(self._buffer[:SIZE_BYTES]))
            problem = f"a frame of {size} bytes: the limit is {limit}"
            self.end(f"it speaks {other}" if other else problem, "frame")
            return False
        self._frame_bytes = size
        return True

    def _reserve(self, size_bytes: int) -> bool:
        """Reserve the bytes of the frame. Return False if there is no room: then a task waits for it."""
        try:
            if size_bytes > SMALL_BYTES:
                self._arriving = self._listener.arriving.reserve(size_bytes)
            self._frame = self._listener.service.budget.reserve(size_bytes)
        except Busy:
            self._has_arrived()
            waiting = self._reserve_when_free(size_bytes)
            self._reserving = asyncio.get_running_loop().create_task(waiting)
            return False
        self._frame_begun_s = self._now()
        return True

    async def _reserve_when_free(self, size_bytes: int) -> None:
        """Wait for room in the budgets; nothing is read meanwhile."""
        timeout_s = self._settings.body_timeout_ms / 1000
        try:
            if size_bytes > SMALL_BYTES:
                self._arriving = await self._listener.arriving.reserve_when_free(
                    size_bytes, timeout_s=timeout_s
                )
            self._frame = await self._listener.service.budget.reserve_when_free(
                size_bytes, timeout_s=timeout_s
            )
        except Busy as error:
            self.end(error.message, "busy")
            return
        finally:
            self._reserving = None
        self._moved_s = self._frame_begun_s = self._now()
        self._take_frames()

    def _has_arrived(self) -> None:
        """Release the frame's share of the bytes that are arriving."""
        if self._arriving is not None:
            self._arriving.release()
            self._arriving = None

    def _control_reading(self) -> None:
        """Read on, or stop reading while nothing more can be taken."""
        want = self._reserving is None and len(self._queue) < MAX_QUEUED
        if self._transport is None or self._transport.is_closing() or want == self._reading:
            return
        self._reading = want
        if want:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # -- requests

    def _begin_next(self) -> None:
        """Begin the next requests of the queue, as far as they may run now, and send the answers that are ready."""
        left_at_once = MAX_AT_ONCE
        stop_s = perf_counter() + TURN_S
        while self._queue and self._writable and not self._ending and self._may_begin():
            waiting = self._queue.popleft()
            answer_bytes = Reservation(self._listener.service.answers)
            work = self._dispatcher.answer(
                waiting.frame, self.client, self._node, waiting.reservation, answer_bytes
            )
            api = waiting.api
            if left_at_once and not self._running and api in ANSWERED_AT_ONCE:
                left_at_once -= 1
                task = first_step.begin(work)
            else:
                task = asyncio.get_running_loop().create_task(work)
            running = _Running(
                task,
                is_produce=api == PRODUCE,
                reservation=waiting.reservation,
                answer_bytes=answer_bytes,
            )
            if task.done():
                if perf_counter() > stop_s:
                    left_at_once = 0
                running.reservation.release()
                self._send(running)
            else:
                self._running.append(running)
                task.add_done_callback(self._finished)

    def _may_begin(self) -> bool:
        if not self._running:
            return True
        return (
            len(self._running) < MAX_OVERLAPPING
            and self._queue[0].api == PRODUCE
            and all(running.is_produce for running in self._running)
        )

    def _finished(self, _: asyncio.Future[Answer | None]) -> None:
        """Send the answers that are next in order, and begin the next requests."""
        while self._running and self._running[0].task.done():
            running = self._running.popleft()
            running.reservation.release()
            self._send(running)
        if self._transport is None:
            return
        self._moved_s = self._now()
        self._take_frames()
        if self._ending and not self._running:
            self._close()

    def _send(self, running: _Running) -> None:
        """Write an answer, or end the connection with the task's error."""
        answer: Answer | None = None
        if running.task.cancelled():
            pass
        elif (error := running.task.exception()) is None:
            answer = running.task.result()
        elif isinstance(error, Malformed):
            self.end(str(error), "malformed")
        elif isinstance(error, Ended | NotReady):
            self.end(str(error), "refused")
        else:
            log.error("a request of Kafka client %s broke", self.client, exc_info=error)
            self.end("a bug", "bug")
        if answer is None or self._transport is None or self._transport.is_closing():
            running.answer_bytes.release()
            return
        size = sum(map(len, answer.parts))
        self._unwritten.append(size.to_bytes(SIZE_BYTES, "big"))
        self._unwritten += answer.parts
        self._unsent.append(running.answer_bytes)
        self._unwritten_answers += 1
        self._unwritten_bytes += SIZE_BYTES + size
        if answer.last:
            self.end("the login failed", "login")
        elif (
            self._unwritten_bytes > SMALL_BYTES
            or self._unwritten_answers == MAX_UNWRITTEN
            or not (self._queue or has_unread_bytes(self._descriptor))
        ):
            self._write()
        elif self._unwritten_answers == 1:
            self._write_soon()

    def _write_soon(self, turns: int = 2) -> None:
        """Write the answers after the loop has read what has arrived: it does so between two turns."""
        if turns:
            asyncio.get_running_loop().call_soon(self._write_soon, turns - 1)
        else:
            self._write()

    def _write(self) -> None:
        """Give the answers to the transport. Their budget is free as soon as the client can take them."""
        parts, self._unwritten = self._unwritten, []
        size_bytes = self._unwritten_bytes
        self._unwritten_answers = self._unwritten_bytes = 0
        if parts and self._transport is not None and not self._transport.is_closing():
            self._sent_bytes.value += size_bytes
            self._transport.writelines(parts if len(parts) < MAX_PARTS else [b"".join(parts)])
        if self._writable:
            self._release_unsent()

    def _release_unsent(self) -> None:
        for reservation in self._unsent:
            reservation.release()
        self._unsent.clear()

    # -- the end

    def end(self, problem: str, reason: str) -> None:
        """End the connection after the answers that are written already; `reason` is counted."""
        if self._ending:
            return
        self._ending = True
        self._listener.metrics.ended(reason)
        log.info("the connection of Kafka client %s ends: %s", self.client, problem)
        self._close()

    def _close(self) -> None:
        """Close the connection once its answers are sent. With TLS, the client is given a second to close its side."""
        if self._transport is not None:
            self._write()
            self._transport.close()
            is_tls = self._transport.get_extra_info("sslcontext") is not None
            if is_tls and not self._transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(TLS_CLOSE_S, self.abort)

    def stop(self) -> None:
        """Begin no more requests; end once those at work are answered."""
        self._ending = True
        if not self._running:
            self._close()

    def abort(self) -> None:
        """End at once."""
        self._ending = True
        if self._transport is not None:
            self._transport.abort()

    def check_time(self, now_s: float) -> None:
        """End the connection if its client has taken too long. Called once a second."""
        settings = self._settings
        quiet_s = now_s - self._moved_s
        is_out = self._dispatcher.needs_login and self.client.scopes is None
        if is_out and now_s - self._begun_s > settings.handshake_timeout_ms / 1000:
            self.end("no login within handshake_timeout_ms", "login")
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size():
            self._check_taken(self._transport, now_s, settings.body_timeout_ms / 1000)
            return
        self._untaken_bytes = 0
        if (self._buffer or self._long is not None) and self._reading:
            self._check_frame(now_s, settings.body_timeout_ms / 1000)
        elif self._running or self._reserving is not None:
            return
        elif quiet_s > settings.kafka_idle_ms / 1000:
            self.end("idle for kafka_idle_ms", "idle")

    def _check_taken(self, transport: asyncio.Transport, now_s: float, pause_s: float) -> None:
        """End the connection at once if its client takes nothing of its answers. A slow client gets the time that it
        needs. A connection that has ended is still open until its answers are taken.
        """
        untaken = untaken_bytes(transport)
        if untaken != self._untaken_bytes:
            self._untaken_bytes, self._taken_s = untaken, now_s
        elif now_s - self._taken_s > pause_s:
            self.end("the client takes no answer", "slow")
            self.abort()

    def _check_frame(self, now_s: float, pause_s: float) -> None:
        """End the connection if its frame pauses for too long, or is slow while other clients wait for its share."""
        if now_s - self._moved_s > pause_s:
            self.end("half a frame, and nothing more", "slow")
        elif (
            self._arriving is not None
            and self._listener.arriving.is_wanted
            and now_s - self._frame_begun_s > pause_s / 2
        ):
            self.end("a frame that is slow, while others wait", "slow")


def _other_protocol(start: bytes) -> str | None:
    """Return the protocol that a client speaks instead of Kafka's, as far as its first bytes tell."""
    if start in _HTTP_STARTS:
        return "HTTP"
    return "TLS, and this port does not" if start.startswith(_TLS_START) else None
