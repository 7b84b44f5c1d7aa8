"""One request of a Kafka client as its handler sees it, and the shape of a handler.

Owns the values that belong to a request, apart from its message: the service, the client, the address of this node as
the client knows it. Must not read or write bytes.

A handler is a coroutine function of a Call and the request message; it returns the response message, or None where the
protocol has no answer (Produce with acks=0). An error of one topic, partition or group is a number in its part of the
response. An error that the handler raises becomes the response that `api.kafka.refusals` builds: the same number in
every part. A handler that changes something checks nothing of who may do so: `api.kafka.apis` names the scope that
each API needs, and the dispatcher checks it before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeAlias

from api.kafka.client_topics import ClientTopics
from api.kafka.protocol.messages import Api
from api.kafka.sessions import FetchSessions
from logserver.access.scram import Exchange
from logserver.access.tokens import Scope, Tokens
from logserver.config import Address
from logserver.service.memory_budget import Reservation
from logserver.service.service import LogService
from logserver.service.topics import TopicIds

# What a client may do with a resource is a set of bits, numbered as AclOperation: read 3, write 4, create 5, delete 6,
# alter 7, describe 8, cluster action 9, describe configs 10, alter configs 11, idempotent write 12.
_READ: Final = 1 << 3 | 1 << 8 | 1 << 10
_WRITE: Final = 1 << 4 | 1 << 8 | 1 << 12
_EVERYTHING: Final = (1 << 13) - (1 << 3)
TOPIC_OPERATIONS: Final = 0b1101_1111_1000
GROUP_OPERATIONS: Final = 0b1101_0100_1000
CLUSTER_OPERATIONS: Final = 0b1_1111_1010_0000
"""Everything that can be done with a topic, a group, the cluster. From AclEntry.supportedOperations."""
PRODUCE: Final = 0
"""The API whose requests may overlap on one connection."""
FETCH: Final = 1
TURN_S: Final = 0.005
"""A request that needs the event loop for longer lets it serve other clients after each such time."""


class Ended(Exception):  # the protocol's way to refuse a client
    """The connection must end, without an answer to this request."""


@dataclass(slots=True)
class Client:
    """A connected client, for the life of its connection.

    `host`: its address as text. `address`: the same with the port, in the form of `born_host`; None if it is not known.
    `software`: the name and version that it gives of itself; empty if it gives none. `scopes`: what its token allows;
    None where the server needs no token, or before the client has sent one. `mechanism`: the SASL mechanism of its
    handshake. `exchange`: its login by SCRAM, between the two steps. `is_raw`: the steps of its login have no header,
    since its handshake had version 0. `produce_order`: held while a produce request is checked and queued, so that the
    requests of a connection are appended in the order in which they arrived. `queued`: the appends of the newest of
    them. `are_durable`: they have acks=all, which may have a queue of its own.
    """

    host: str
    address: bytes | None = None
    software: str = ""
    scopes: frozenset[Scope] | None = None
    mechanism: str | None = None
    exchange: Exchange | None = None
    is_raw: bool = False
    produce_order: asyncio.Lock = field(default_factory=asyncio.Lock)
    queued: Sequence[asyncio.Future[Any]] = ()
    are_durable: bool = False

    def __str__(self) -> str:
        return f"{self.host} ({self.software})" if self.software else self.host


class Call:
    """One request. `topics`: those that clients may see; changes go through the service. `node`: host and port of this
    node for this client. `answer`: the budget that the answer's bytes are counted in; the connection releases it when
    they are sent. `request`: the budget of the request's own bytes; who keeps them beyond the answer takes it over with
    `release_when`. `errors`: the numbers of the errors in the answer, to be counted; of APIs other than Produce and
    Fetch the dispatcher collects them.
    """

    def __init__(
        self,
        *,
        service: LogService,
        topics: ClientTopics,
        node: Address,
        node_id: int,
        client: Client,
        client_id: str | None,
        version: int,
        sessions: FetchSessions,
        ids: TopicIds,
        request: Reservation,
        answer: Reservation,
        tokens: Callable[[], Tokens | None] | None = None,
        offered: Collection[Served] = (),
    ) -> None:
        self.service = service
        self.topics = topics
        self.node = node
        self.node_id = node_id
        self.client = client
        self.client_id = client_id
        self.version = version
        self.sessions = sessions
        self.ids = ids
        self.request = request
        self.answer = answer
        self.tokens = tokens
        self.offered = offered
        self.errors: list[int] = []
        self._turn_ends_s: float | None = None

    async def give_way(self) -> None:
        """Let other clients be served, if this request has used the event loop for more than TURN_S. To be called for
        each row of a request, which may have a quarter of a million.
        """
        now_s = perf_counter()
        if self._turn_ends_s is None:
            self._turn_ends_s = now_s + TURN_S
        elif now_s > self._turn_ends_s:
            await asyncio.sleep(0)
            self._turn_ends_s = perf_counter() + TURN_S

    def allows(self, scope: Scope) -> bool:
        """Return whether the client may do what needs `scope`. Without tokens every client may do everything."""
        if self.tokens is None:
            return True
        return bool((self.client.scopes or frozenset()) & {scope, Scope.ADMIN})

    def topic_name(self, topic_id: bytes) -> str:
        """Return the name of the topic with an id; an empty one if clients have no such topic."""
        name = self.ids.name_of(topic_id)
        return name if name is not None and name in self.topics else ""

    def operations(self, of_resource: int) -> int:
        """Return what the client may do, of everything that can be done with a resource; both as bits."""
        if self.allows(Scope.ADMIN):
            return of_resource & _EVERYTHING
        read = _READ if self.allows(Scope.READ) else 0
        write = _WRITE if self.allows(Scope.PRODUCE) else 0
        return of_resource & (read | write)


Handler: TypeAlias = Callable[[Call, Any], Awaitable[Any]]


class Served(NamedTuple):
    """An API that is offered, from version `first` to `last`.

    `scope`: what a client's token must allow; None: every client may call. `before_login`: a client may call it before
    it has sent a token.
    """

    api: Api
    first: int
    last: int
    handler: Handler
    scope: Scope | None
    before_login: bool = False
