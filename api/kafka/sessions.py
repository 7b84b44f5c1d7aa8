"""Fetch sessions: a consumer names its partitions once, and later only changes (KIP-227).

Owns the sessions of one server, their number, and the choice of the partitions that an answer holds; must not read
records. A session is an optimization: a client whose session is missing begins with a full request again. From
FetchManager, FetchSession and FullFetchContext.

    session id, epoch    the request                               the answer
    0, -1                all partitions, no session                all partitions
    any, 0               all partitions, begins a session          all partitions; id 0 if there is no room
    ID, -1               all partitions, ends session ID           all partitions
    ID, N                changes, and partitions to forget         partitions with news; N must be the next epoch

A session that grows beyond the limit of partitions ends.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchResponsePartitionData,
)

FINAL_EPOCH: Final = -1
FIRST_EPOCH: Final = 0
LAST_EPOCH: Final = (1 << 31) - 1
MAX_SESSIONS: Final = 1000
MAX_SESSION_PARTITIONS: Final = 100_000  # of all sessions together


@dataclass(slots=True)
class Asked:
    """A partition of a fetch: its topic by name or id (the other is empty), and the wishes of the client.

    `last`: high watermark, stable end and log start of the last answer.
    """

    topic: str
    topic_id: bytes
    wish: FetchRequestPartition
    last: tuple[int, int, int] | None = None

    @property
    def key(self) -> tuple[str, bytes, int]:
        """The partition as the client names it."""
        return self.topic, self.topic_id, self.wish.partition


@dataclass(slots=True)
class Session:
    """One session. `by_id`: topics have ids in its requests. Epoch: the one that its next request must have."""

    number: int
    by_id: bool
    epoch: int = 1
    partitions: OrderedDict[tuple[str, bytes, int], Asked] = field(default_factory=OrderedDict)

    def change(self, request: FetchRequest) -> None:
        """Take the changes of the next request, and move to the next epoch."""
        self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1
        for one in _asked(request):
            known = self.partitions.setdefault(one.key, one)
            known.wish = one.wish
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                self.partitions.pop((topic.topic, topic.topic_id, number), None)


class RefusedSession(Exception):  # an answer, not a fault
    """A request whose session cannot go on. The client begins a new one."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(slots=True)
class Context:
    """The partitions of one fetch, and its session if it has one. `incremental`: the answer holds news only."""

    asked: Sequence[Asked]
    session: Session | None
    incremental: bool

    @property
    def session_id(self) -> int:
        """The session id of the answer."""
        return 0 if self.session is None else self.session.number

    def has_news(self, asked: Asked, answer: FetchResponsePartitionData) -> bool:
        """Return whether an answer holds this partition, and remember what it says."""
        found = answer.high_watermark, answer.last_stable_offset, answer.log_start_offset
        is_new = (
            not self.incremental
            or bool(answer.records)
            or answer.error_code != 0
            or answer.diverging_epoch.epoch >= 0
            or asked.last != found
        )
        # An error is sent again with the next answer, as long as it lasts.
        asked.last = None if answer.error_code else found
        return is_new

    def note_served(self, served: Sequence[Asked]) -> None:
        """Move the partitions with records to the end of the session, so that the next answer begins with others."""
        if self.session is not None:
            for asked in served:
                if asked.key in self.session.partitions:
                    self.session.partitions.move_to_end(asked.key)


class FetchSessions:
    """The sessions of one server, the least recently used first. Use it on the event loop only."""

    def __init__(
        self, limit: int = MAX_SESSIONS, partitions_limit: int = MAX_SESSION_PARTITIONS
    ) -> None:
        self._limit = limit
        self._partitions_limit = partitions_limit
        self._sessions: OrderedDict[int, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def context(self, request: FetchRequest, *, by_id: bool) -> Context:
        """Return the partitions that a request asks for. Raises RefusedSession."""
        if request.session_epoch in {FINAL_EPOCH, FIRST_EPOCH}:
            self._sessions.pop(request.session_id, None)
            asked = list(_asked(request))
            if request.session_epoch == FINAL_EPOCH:
                return Context(asked, None, incremental=False)
            return Context(asked, self._begun(asked, by_id=by_id), incremental=False)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise RefusedSession(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise RefusedSession(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise RefusedSession(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._sessions.move_to_end(session.number)
        before = len(session.partitions)
        session.change(request)
        if len(session.partitions) > before and self._partitions() > self._partitions_limit:
            del self._sessions[session.number]
            raise RefusedSession(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            del self._sessions[session.number]
            return Context([], None, incremental=True)
        return Context(list(session.partitions.values()), session, incremental=True)

    def _partitions(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def _begun(self, asked: Sequence[Asked], *, by_id: bool) -> Session | None:
        """Begin a session; the least recently used ones end for it. None: it is too large."""
        if self._limit == 0 or len(asked) > self._partitions_limit:
            return None
        held = self._partitions()
        while self._sessions and (
            len(self._sessions) >= self._limit or held + len(asked) > self._partitions_limit
        ):
            _, ended = self._sessions.popitem(last=False)
            held -= len(ended.partitions)
        number = 0
        while number == 0 or number in self._sessions:
            number = secrets.randbelow(LAST_EPOCH) + 1
        session = Session(number, by_id)
        for one in asked:
            session.partitions[one.key] = one
        self._sessions[number] = session
        return session


def _asked(request: FetchRequest) -> Iterator[Asked]:
    for topic in request.topics:
        for wish in topic.partitions:
            yield Asked(topic.topic, topic.topic_id, wish)
