"""Fuzz target: frames of Kafka's protocol, through the dispatcher, the readers, the handlers, the service and a store,
without a socket.

An input of `wire-frames` is what one connection sends, each frame after an u16 size; its bytes are arbitrary. One of
`wire-messages` is an API (index among those that are offered), a version (counted from the oldest) and the message, so
that more inputs pass the header; the batches of a Produce request get a correct CRC. `wire-login` is as `wire-frames`,
of a server that needs a login.

Guarantee: a frame is answered, or refused by Malformed, Ended or NotReady. No handler breaks. An answer is a message of
its API and version, and nothing follows it. An answer that waits, as one to JoinGroup may, is given up as if its client
had gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

from api.kafka.apis import API_VERSIONS, SERVED, WITHOUT_TRANSACTIONS
from api.kafka.call import PRODUCE, Client, Ended, Served
from api.kafka.dispatch import Answer, Dispatcher
from api.kafka.protocol.messages.metadata import MetadataRequest
from api.kafka.protocol.messages.produce import ProduceRequest
from api.kafka.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from api.kafka.protocol.primitives import Malformed, Reader, Writer
from logserver.access.scram import made
from logserver.access.tokens import Tokens, load_tokens
from logserver.config import Address, Settings
from logserver.errors import NotReady
from logserver.metrics import KafkaMetrics
from logserver.service.memory_budget import Reservation
from logserver.service.service import LogService
from storage.kafka.format.messages.codec import encode
from storage.kafka.format.messages.schema import STRUCT, Field, messages
from tests.robustness.fuzz.http_bodies import DATA, open_in_memory, sealed
from tests.robustness.fuzz.target import LIMIT_BYTES, Check, Target
from tests.wire.harness import BACKENDS, batch, frame

FRAMES_A_STORE: Final = 500
"""After this number of frames a new in-memory store replaces the old one."""
SIZE_BYTES: Final = 2
MAX_FRAMES: Final = 4
WAIT_MS: Final = 5
WAIT_S: Final = 0.05
LOGIN_WAIT_S: Final = 0.002  # a failed login is answered late
TOKEN: Final = b"fuzz-0123456789abcdef"
SCRAM: Final = "SCRAM-SHA-256"
PATIENCE_S: Final = 10
LOGIN: Final = "login"
HERE: Final = Address("127.0.0.1", 9092)
CORRELATION_ID: Final = 7
QUICK_TRIES: Final = 150


class Broken(logging.Handler):
    """The errors that the protocol's modules log: a handler that breaks is answered, and logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.errors.append(record)

    def check(self) -> None:
        """Raise the first error."""
        if not self.errors:
            return
        record = self.errors[0]
        self.errors.clear()
        error = record.exc_info[1] if record.exc_info else None
        raise AssertionError(record.getMessage()) from error


class Front:
    """The protocol in front of an empty store, driven frame by frame. `tokens`: clients must log in."""

    def __init__(self, backend: str, tokens: Tokens | None = None) -> None:
        self._backend = backend
        self._tokens = None if tokens is None else lambda: tokens
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._note)
        self._left = 0
        self._service: LogService | None = None
        self._dispatcher = cast("Dispatcher", None)
        self._broken = Broken()
        logging.getLogger("api.kafka").addHandler(self._broken)

    def check_frames(self, data: bytes) -> None:
        """Send the frames of an input as one client."""
        self._loop.run_until_complete(self._check(list(frames_of(data))))

    def check_message(self, data: bytes) -> None:
        """Send one message."""
        table = list(offered(self._backend).values())
        if len(data) < 2:
            return
        served = table[data[0] % len(table)]
        version = served.first + data[1] % (served.last - served.first + 1)
        body = data[2:]
        if served.api.key == PRODUCE:
            body = with_crcs(version, body)
        self._loop.run_until_complete(self._check([head(served, version) + body]))

    def close(self) -> None:
        """Stop the service."""
        logging.getLogger("api.kafka").removeHandler(self._broken)
        if self._service is not None:
            self._loop.run_until_complete(self._service.stop())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _note(self, _: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        error = context.get("exception")
        exc_info = None if error is None else (type(error), error, error.__traceback__)
        record = logging.LogRecord("", logging.ERROR, "", 0, context["message"], (), exc_info)
        self._broken.emit(record)

    async def _check(self, frames: Sequence[bytes]) -> None:
        service = await self._running()
        if "t" not in service.topics:
            await service.topics.create("t", 2, None)
        client = Client("127.0.0.1", bytes(8))
        for one in frames:
            is_raw = client.is_raw
            try:
                answer = await self._answer(service, one, client)
            except (Malformed, Ended, NotReady):
                break
            finally:
                self._broken.check()
            if answer is not None and not is_raw:
                check_answer(offered(self._backend), one, b"".join(answer.parts))
            if answer is not None and answer.last:
                break
        # An append that outlasts its request holds the bytes of it, and ends.
        async with asyncio.timeout(PATIENCE_S):
            while service.budget.held_bytes:  # noqa: ASYNC110  # the budget has no event for tests
                await asyncio.sleep(0)

    async def _answer(self, service: LogService, frame: bytes, client: Client) -> Answer | None:
        """Return the answer to a frame; None if it has none, or waits."""
        request = service.budget.reserve(len(frame))
        held = Reservation(service.answers)
        work = self._dispatcher.answer(frame, client, HERE, request, held)
        task = self._loop.create_task(work)
        try:
            await asyncio.wait((task,), timeout=WAIT_S if self._tokens is None else LOGIN_WAIT_S)
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                return None
            return task.result()
        finally:
            request.release()
            held.release()

    async def _running(self) -> LogService:
        if self._left <= 0 and self._service is not None:
            await self._service.stop()
        if self._left <= 0:
            settings = Settings(
                data=DATA, max_body_bytes=LIMIT_BYTES, max_wait_ms=WAIT_MS, flush="os"
            )
            self._service = LogService(settings, partial(open_in_memory, self._backend))
            await self._service.start()
            metrics = KafkaMetrics(self._service.metrics)
            self._dispatcher = Dispatcher(self._service, metrics, node_id=1, tokens=self._tokens)
            self._left = FRAMES_A_STORE
        self._left -= 1
        assert self._service is not None
        return self._service


def offered(backend: str) -> Mapping[int, Served]:
    """Return the APIs of a backend."""
    return SERVED if backend == "kafka" else WITHOUT_TRANSACTIONS


def frames_of(data: bytes) -> Iterator[bytes]:
    """Yield the frames in an input."""
    at = 0
    for _ in range(MAX_FRAMES):
        size = int.from_bytes(data[at : at + SIZE_BYTES])
        at += SIZE_BYTES
        if at >= len(data):
            return
        yield data[at : at + size]
        at += size


def head(served: Served, version: int) -> bytes:
    """Return the header of a request."""
    writer = Writer(flexible=version >= served.api.flexible_from)
    writer.int16(served.api.key)
    writer.int16(version)
    writer.int32(CORRELATION_ID)
    writer.plain_nullable_string("fuzz")
    writer.end_struct()
    return b"".join(writer.parts)


def with_crcs(version: int, body: bytes) -> bytes:
    """Return a Produce request whose batches have a correct CRC, or the same bytes if they are no request."""
    flexible = version >= SERVED[PRODUCE].api.flexible_from
    try:
        message = ProduceRequest.read(Reader(body, flexible=flexible), version)
    except Malformed:
        return body
    for topic in message.topic_data:
        for partition in topic.partition_data:
            partition.records = partition.records and sealed(partition.records)
    writer = Writer(flexible=flexible)
    message.write(writer, version)
    return b"".join(writer.parts)


def check_answer(table: Mapping[int, Served], frame: bytes, data: bytes) -> None:
    """Check that an answer is one of the frame's API and version."""
    reader = Reader(frame)
    key, version, correlation_id = reader.int16(), reader.int16(), reader.int32()
    served = table[key]
    if not served.first <= version <= served.last:
        assert key == API_VERSIONS, (key, version)
        version = 0
    found = Reader(data, flexible=version >= served.api.flexible_from)
    assert found.int32() == correlation_id
    if key != API_VERSIONS:
        found.skip_tags()
    served.api.response.read(found, version)
    assert found.left == 0


_TEXTS: Final = {
    **{"group_id": "g", "member_id": "", "group_instance_id": None, "transactional_id": "tx"},
    **{"protocol_type": "consumer", "mechanism": "PLAIN", "rack_id": "", "host": "127.0.0.1"},
}
_NUMBERS: Final = {
    **{"timeout_ms": 5, "rebalance_timeout_ms": 10_000, "session_timeout_ms": 10_000},
    **{"transaction_timeout_ms": 60_000, "max_wait_ms": 0, "acks": -1, "replica_id": -1},
    **{"max_bytes": 1 << 20, "partition_max_bytes": 1 << 20, "num_partitions": 1},
    **{"replication_factor": 1, "count": 3, "resource_type": 2, "member_epoch": 0},
}
"""The values of the seeds, by the end of the field's name; other texts are t, other numbers are 0."""


def _value(field: Field, version: int) -> Any:
    """Return a value of a field that is not empty."""
    if field.type == STRUCT:
        one: Any = example(field.fields, version)
    elif field.type == "string":
        one = next((text for end, text in _TEXTS.items() if field.name.endswith(end)), "t")
        if one is None and version not in field.nullable:
            one = ""
    elif field.type in {"bytes", "records"}:
        one = batch(b"a", b"b") if field.type == "records" else b"abc"
    elif field.type == "uuid":
        one = bytes(16)
    elif field.type == "bool":
        one = True
    else:
        one = next((n for end, n in _NUMBERS.items() if field.name.endswith(end)), 0)
    return [one] if field.is_array else one


def example(fields: Sequence[Field], version: int) -> dict[str, Any]:
    """Return the fields of a message in which no array is empty."""
    return {
        field.name: _value(field, version)
        for field in fields
        if version in field.versions or version in field.tagged
    }


def bodies(backend: str) -> Iterator[tuple[Served, int, bytes]]:
    """Yield requests of every API that is offered, in its oldest version, its newest and the first flexible one."""
    for served in offered(backend).values():
        for version in sorted({served.first, served.last, served.api.flexible_from}):
            if served.first <= version <= served.last:
                name = served.api.request.__name__
                yield (
                    served,
                    version,
                    encode(name, version, example(messages()[name].fields, version)),
                )
                yield served, version, encode(name, version, {})


def frame_seeds(backend: str) -> Sequence[bytes]:
    """Return connections of one frame, and some of several."""
    frames = [head(served, version) + body for served, version, body in bodies(backend)]
    packed = [len(frame).to_bytes(SIZE_BYTES) + frame for frame in frames]
    return packed + [b"".join(packed[at : at + MAX_FRAMES]) for at in range(0, len(packed), 16)]


def message_seeds(backend: str) -> Sequence[bytes]:
    """Return one message each."""
    numbers = {key: number for number, key in enumerate(offered(backend))}
    return [
        bytes((numbers[served.api.key], version - served.first)) + body
        for served, version, body in bodies(backend)
    ]


def login_seeds() -> Sequence[bytes]:
    """Return logins by each mechanism, in both forms, and a request after them."""
    steps = {
        "PLAIN": b"\0ann\0" + TOKEN,
        "OAUTHBEARER": b"n,,\1auth=Bearer " + TOKEN + b"\1\1",
        SCRAM: b"n,,n=ann,r=x",
    }
    found = []
    for mechanism, step in steps.items():
        last = b"c=biws,r=x,p=" + bytes(64)
        for version in (0, 1):
            handshake = SaslHandshakeRequest(mechanism=mechanism)
            raw = [step, *([last] if mechanism == SCRAM else [])]
            requests = [SaslAuthenticateRequest(auth_bytes=data) for data in raw]
            sent = raw if version == 0 else [frame(request, 2)[4:] for request in requests]
            sent = [
                frame(handshake, version)[4:],
                *sent,
                frame(MetadataRequest(topics=None), 12)[4:],
            ]
            found.append(b"".join(len(one).to_bytes(SIZE_BYTES) + one for one in sent))
    return found


_fronts: dict[str, Front] = {}


def front(backend: str) -> Front:
    """Return this backend's front."""
    if backend not in _fronts:
        _fronts[backend] = Front(backend)
    return _fronts[backend]


def check_login(data: bytes) -> None:
    """Send frames to a server that needs a login."""
    if LOGIN not in _fronts:
        with TemporaryDirectory() as folder:
            file = Path(folder, "tokens")
            user = made(SCRAM, "ann", "secret", iterations=4096, salt=bytes(16))
            file.write_text(f"{TOKEN.decode()} read\n{user.line()} produce\n")
            file.chmod(0o600)
            _fronts[LOGIN] = Front(BACKENDS[0], load_tokens(file))
    _fronts[LOGIN].check_frames(data)


def close_fronts() -> None:
    """Stop and drop the services of this process."""
    while _fronts:
        _fronts.popitem()[1].close()


def check_frames(backend: str, data: bytes) -> None:
    """Send frames to this backend's front."""
    front(backend).check_frames(data)


def check_message(backend: str, data: bytes) -> None:
    """Send a message to this backend's front."""
    front(backend).check_message(data)


WIRE: Final = Target(
    "wire",
    [
        Check("wire-login", login_seeds, check_login, QUICK_TRIES),
        *(
            check
            for backend in BACKENDS
            for check in (
                Check(
                    f"wire-frames-{backend}",
                    partial(frame_seeds, backend),
                    partial(check_frames, backend),
                    QUICK_TRIES,
                ),
                Check(
                    f"wire-messages-{backend}",
                    partial(message_seeds, backend),
                    partial(check_message, backend),
                    QUICK_TRIES,
                ),
            )
        ),
    ],
    share=5,
)
