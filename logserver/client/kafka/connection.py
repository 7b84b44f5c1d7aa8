"""The connections of a KafkaClient: librdkafka's configuration, its blocking calls in threads, its errors.

Owns the configuration, and which error of Kafka is which error of the client; must not know the calls of a client.
librdkafka has threads of its own and blocks: every call that may block runs in a thread here, and no call that may
wait for records lasts longer than POLL_S, so that an interrupt ends a command at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from importlib import import_module
from typing import Any, Final, NoReturn

from logserver.errors import ClientError, ServerRefused, ServerUnreachable
from storage.errors import NotOffered, UnknownTopic

EXTRA: Final = "pip install 'duolog[kafka]'"
POLL_S: Final = 0.1
METADATA_S: Final = 5.0  # of a server that does not answer
CLIENT_ID: Final = "logserver"

_UNREACHABLE: Final = frozenset(
    {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_MSG_TIMED_OUT", "_SSL"}
)
_LOGIN: Final = frozenset(
    {"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM"}
)
# Names of Kafka's errors, with the status and the code that HTTP has for the same thing.
_REFUSED: Final[Mapping[str, tuple[int, int]]] = {
    "UNKNOWN_TOPIC_OR_PART": (404, 40401),
    "_UNKNOWN_TOPIC": (404, 40401),
    "_UNKNOWN_PARTITION": (404, 40402),
    "TOPIC_ALREADY_EXISTS": (409, 40901),
    "GROUP_ID_NOT_FOUND": (404, 40405),
    "NON_EMPTY_GROUP": (409, 40903),
    "UNKNOWN_MEMBER_ID": (409, 40903),
    "MSG_SIZE_TOO_LARGE": (413, 41302),
    "OFFSET_OUT_OF_RANGE": (416, 41601),
    "_AUTO_OFFSET_RESET": (416, 41601),
    "TOPIC_EXCEPTION": (422, 42203),
    "INVALID_CONFIG": (422, 42205),
    "UNSUPPORTED_VERSION": (422, 42207),
    "TOPIC_AUTHORIZATION_FAILED": (403, 403),
    "GROUP_AUTHORIZATION_FAILED": (403, 403),
    "CLUSTER_AUTHORIZATION_FAILED": (403, 403),
}
_OTHER: Final = (400, 400)
# For errors to which librdkafka gives no words of the broker, or none that help.
_WORDS: Final[Mapping[str, str]] = {
    "INVALID_RECORD": (
        "the broker does not accept such a record: a compacted topic needs keys; a RocketMQ store needs values, keys "
        "of text, and each header once"
    ),
    "UNSUPPORTED_VERSION": (
        "the broker does not offer this: its version is too old, or its store cannot do it (a RocketMQ store keeps the "
        "records of all topics in one log, and deletes none of a single topic)"
    ),
}
# An answer of HTTP begins with "HTTP", which librdkafka reads as a size.
_HTTP_SIZE: Final = f"Invalid response size {int.from_bytes(b'HTTP')}"
_MAY_PASS: Final = (503, 50301)


def library(name: str = "confluent_kafka") -> Any:
    """Import confluent-kafka, or a module of it. Raises NotOffered, which names the extra, if it is missing."""
    try:
        return import_module(name)
    except ImportError:
        raise NotOffered(
            f"HOST:PORT means Kafka's protocol, which needs the package confluent-kafka: {EXTRA}; or give the URL of a "
            "server's HTTP API",
            feature="kafka",
        ) from None


class Connection:
    """The address of brokers, and how to call them. `properties` are librdkafka's, and come last."""

    def __init__(self, brokers: str, properties: Mapping[str, str], timeout_s: float) -> None:
        self.brokers = brokers
        self.timeout_s = timeout_s
        self.kafka = library()
        self._properties = properties
        self.listen: Callable[[float], object] = lambda _: None
        """Lets librdkafka report problems outside of a call; set to the poll of a client."""
        self._problem = ""
        self._is_login_refused = False

    def config(self, **options: object) -> dict[str, object]:
        """Return a configuration of librdkafka; `_` stands for `.` in names."""
        return {
            "bootstrap.servers": self.brokers,
            "client.id": CLIENT_ID,
            "log_level": 0,
            "error_cb": self._note,
            **{name.replace("_", "."): value for name, value in options.items()},
            **self._properties,
        }

    def created(self, make: Callable[[dict[str, object]], Any], **options: object) -> Any:
        """Create a client of librdkafka. Raises ServerRefused for a property that it does not take."""
        try:
            return make(self.config(**options))
        except self.kafka.KafkaException as error:
            self.fail(error)

    def _note(self, error: Any) -> None:
        is_login = error.name() in _LOGIN
        if is_login or not self._problem:
            self._problem = error.str()
        self._is_login_refused |= is_login

    async def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function that blocks, in a thread. Raises ServerRefused, ServerUnreachable."""
        try:
            return await asyncio.to_thread(function, *arguments, **options)
        except self.kafka.KafkaException as error:
            self.fail(error)

    async def done(self, future: Future[Any], topic: str | None = None) -> Any:
        """Return the result of an administrative request. `topic`: the one that an error is about."""
        try:
            return await asyncio.wrap_future(future)
        except self.kafka.KafkaException as error:
            self.fail(error, topic)

    def fail(self, raised: BaseException, topic: str | None = None) -> NoReturn:
        """Raise the client's error for one of librdkafka."""
        raise self.error(raised.args[0], topic) from None

    def error(self, error: Any, topic: str | None = None) -> ClientError:
        """Return the client's error for an error of librdkafka."""
        name, text = error.name(), error.str()
        if name in _UNREACHABLE:
            self.listen(0)
            if self._is_login_refused:
                return ServerRefused(self._problem, status=401, error_code=401, answer={})
            problem = self._problem or text
            if _HTTP_SIZE in problem:
                problem = "the port answers in HTTP"
            first = self.brokers.split(",", maxsplit=1)[0]
            return ServerUnreachable(
                f"no answer from {self.brokers}: {problem}; for the HTTP API of a server give http://{first}",
                url=self.brokers,
            )
        text = _WORDS.get(name, text)
        if name in _LOGIN:
            return ServerRefused(text, status=401, error_code=401, answer={})
        status, code = _REFUSED.get(name, _MAY_PASS if error.retriable() else _OTHER)
        facts: dict[str, object] = {} if topic is None else {"topic": topic}
        if topic is not None and code == _REFUSED["UNKNOWN_TOPIC_OR_PART"][1]:
            text = UnknownTopic(topic).message
        return ServerRefused(
            text, status=status, error_code=code, answer={**facts, "kafka_error": name}
        )
