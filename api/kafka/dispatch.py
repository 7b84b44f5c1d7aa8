"""From the bytes of a request to the bytes of its answer.

Owns the header of a request, the check of API, version, login and scope, and the answer to an error that a handler
raises; must not know connections. From RequestHeader, RequestContext and KafkaApis.

    request   i16 API, i16 version, i32 correlation id, string client id (plain form), [tagged fields], message
    answer    i32 correlation id, [tagged fields], message

Tagged fields are there in flexible versions. The answer to ApiVersions never has them: a client that does not know
the server's versions yet must be able to read it. An ApiVersions request of an unknown version is answered in version
0, with UNSUPPORTED_VERSION and the versions that there are (KIP-511).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Final

from api.kafka.answer_errors import error_codes
from api.kafka.apis import API_VERSIONS, offered
from api.kafka.call import FETCH, PRODUCE, Call, Client, Ended, Served
from api.kafka.client_topics import ClientTopics
from api.kafka.handlers.cluster import api_versions_response
from api.kafka.handlers.security import login_step
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.primitives import Malformed, Reader, Writer
from api.kafka.refusals import code_of, refusal
from api.kafka.sessions import FetchSessions
from logserver.access.tokens import Tokens
from logserver.config import Address
from logserver.errors import NotReady
from logserver.metrics import KafkaMetrics
from logserver.service.memory_budget import Reservation
from logserver.service.service import LogService
from storage.errors import StorageError

log = logging.getLogger(__name__)

SASL_AUTHENTICATE: Final = 36
OF_GROUPS: Final = frozenset((8, 9, 11, 12, 13, 14, 15, 16, 28, 42, 47, 68, 69))
"""The APIs of groups: offsets, members and administration."""
ERROR_NAMES: Final = {code.value: code.name for code in ErrorCode}
HEADER_BYTES: Final = 10  # API, version, correlation id, length of the client id


class Answer:
    """The parts of an answer, without the length before it. `last`: the connection ends after it."""

    def __init__(self, parts: list[bytes | bytearray], *, last: bool = False) -> None:
        self.parts = parts
        self.last = last


class Dispatcher:
    """Answers requests for one service. `tokens` returns the tokens as they are now; None: the server needs none."""

    def __init__(
        self,
        service: LogService,
        metrics: KafkaMetrics,
        *,
        node_id: int,
        tokens: Callable[[], Tokens | None] | None,
    ) -> None:
        self.service = service
        self._metrics = metrics
        self._node_id = node_id
        self._tokens = tokens
        self.served: Mapping[int, Served] = offered(transactions=service.batches.has_transactions)
        self._sessions = FetchSessions()
        self._topics = ClientTopics(service.topics)
        self._ids = service.topics.ids

    @property
    def needs_login(self) -> bool:
        """True if clients must send a token first."""
        return self._tokens is not None

    async def answer(
        self, frame: bytes, client: Client, node: Address, request: Reservation, answer: Reservation
    ) -> Answer | None:
        """Answer one request; None: the protocol has no answer to it.

        `request`, `answer`: the budgets of the bytes of both. Raises Malformed, Ended, and NotReady while the server
        stops, after which no more requests of the connection can be answered.
        """
        begun = perf_counter()
        if client.is_raw:
            call = self._call(client, node, request, answer)
            return Answer([await login_step(call, bytes(frame))])
        reader = Reader(frame)
        key, version, correlation_id = reader.int16(), reader.int16(), reader.int32()
        served = self.served.get(key)
        if served is None or not served.first <= version <= served.last:
            return self._unknown(key, version, correlation_id)
        reader.flexible = version >= served.api.flexible_from
        client_id = reader.client_id()
        reader.skip_tags()
        # Bytes after the message are ignored, as the real server does: librdkafka sends some after a Metadata request.
        message = served.api.request.read(reader, version)
        if self.needs_login and client.scopes is None and not served.before_login:
            raise Ended(f"{served.api.name} before the login")
        call = self._call(client, node, request, answer, client_id=client_id, version=version)
        response = await self._handled(served, call, message)
        self._metrics.answered(
            api=served.api.name, version=version, elapsed_s=perf_counter() - begun
        )
        if response is None:
            return None
        if key not in (PRODUCE, FETCH):
            call.errors = error_codes(response)
        if call.errors:
            self._count_errors(served, call.errors)
        parts = self._encoded(served, version, correlation_id, response)
        failed = key == SASL_AUTHENTICATE and response.error_code != ErrorCode.NONE
        return Answer(parts, last=failed)

    def _call(
        self,
        client: Client,
        node: Address,
        request: Reservation,
        answer: Reservation,
        *,
        client_id: str | None = None,
        version: int = 0,
    ) -> Call:
        return Call(
            service=self.service,
            topics=self._topics,
            node=node,
            node_id=self._node_id,
            client=client,
            client_id=client_id,
            version=version,
            sessions=self._sessions,
            ids=self._ids,
            request=request,
            answer=answer,
            tokens=self._tokens,
            offered=self.served.values(),
        )

    async def _handled(self, served: Served, call: Call, message: Any) -> Any:
        """Return the handler's response, or the response for its error."""
        if served.scope is not None and not call.allows(served.scope):
            return self._refused(served, call, message, None)
        try:
            if served.api.key in OF_GROUPS:  # members of before a restart are read first
                await self.service.groups.loaded()
            return await served.handler(call, message)
        except (Malformed, Ended, NotReady):  # the connection ends, and the client connects again
            raise
        except StorageError as error:
            code = code_of(error)
            if code is ErrorCode.UNKNOWN_SERVER_ERROR:
                log.exception("%s version %d of %s", served.api.name, call.version, call.client)
        except Exception:  # a bug: reported, and the other connections go on
            log.exception("%s version %d of %s broke", served.api.name, call.version, call.client)
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        return self._refused(served, call, message, code)

    def _refused(self, served: Served, call: Call, message: Any, code: ErrorCode | None) -> Any:
        """Return the response to a request that is refused as a whole."""
        response = refusal(served.api.key, message, code)
        call.errors = error_codes(response)
        return response

    def _unknown(self, key: int, version: int, correlation_id: int) -> Answer:
        """Answer a request of an API or version that is not offered: only ApiVersions has an answer."""
        if key != API_VERSIONS:
            raise Ended(f"API {key} version {version} is not offered")
        response = api_versions_response(self.served.values(), ErrorCode.UNSUPPORTED_VERSION)
        api_versions = self.served[key]
        self._count_errors(api_versions, error_codes(response))
        return Answer(self._encoded(api_versions, 0, correlation_id, response))

    def _count_errors(self, served: Served, codes: Sequence[int]) -> None:
        self._metrics.failed(
            api=served.api.name, errors=[ERROR_NAMES.get(code, str(code)) for code in codes]
        )

    def _encoded(
        self, served: Served, version: int, correlation_id: int, response: Any
    ) -> list[bytes | bytearray]:
        flexible = version >= served.api.flexible_from
        writer = Writer(flexible=flexible)
        writer.int32(correlation_id)
        if flexible and served.api.key != API_VERSIONS:
            writer.end_struct()
        response.write(writer, version)
        return writer.parts
