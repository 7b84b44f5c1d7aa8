"""The work of a load test: the requests of each case, their topic, and the expected counts.

Owns paths, bodies and counts; must not know the rate of requests. The bodies of a case are equal and are built once.
"""

from __future__ import annotations

import base64
import itertools
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from api.http.negotiation import BINARY_V2_JSON, RECORD_BATCH
from logserver.bench.wire import Address, WireResponse, call, request
from storage import Record
from storage.kafka.format.batch import encode_batch

PRODUCE, FETCH, RAW_PRODUCE, RAW_FETCH = "produce", "fetch", "raw in", "raw out"
OPERATIONS: Final = (PRODUCE, FETCH, RAW_PRODUCE, RAW_FETCH)
RAW: Final = frozenset({RAW_PRODUCE, RAW_FETCH})
VALUE_BYTES: Final = 100
RAW_VALUE_BYTES: Final = 1000
RAW_BYTES: Final = 1_000_000  # approximate size of a body of batches
RAW_RECORDS: Final = RAW_BYTES // (RAW_VALUE_BYTES + 12)
BASE_TIME_MS: Final = 1_700_000_000_000
FILLED_RECORDS: Final = 50_000  # in a topic to fetch from
FILLED_BATCHES: Final = 32
PLACES: Final = 25  # distinct offsets to fetch from, in turn


class Case(NamedTuple):
    """One row. `records` per request; for whole batches the number they contain. `acks` is None for a fetch."""

    operation: str
    records: int
    concurrency: int
    acks: str | None

    @property
    def name(self) -> str:
        """The name shown to people and used to select rows."""
        size = "1 MB" if self.operation in RAW else f"{self.records}"
        acks = "" if self.acks is None else f" acks={self.acks}"
        return f"{self.operation} {size}{acks} c={self.concurrency}"


class LoadRefused(Exception):
    """A call outside the load that the server did not perform."""


@dataclass(frozen=True, slots=True)
class Work:
    """The requests of a turn, sent in a cycle. `records`: of each request; `topic`: set if its records are counted."""

    requests: list[bytes]
    records: int
    sent_bytes: int  # of the body of a request
    topic: str | None = None


@cache
def json_body(records: int) -> bytes:
    """Build a body of records without a key, in base64."""
    values = [
        bytes([33 + (index + at) % 90 for at in range(VALUE_BYTES)]) for index in range(records)
    ]
    return msgspec.json.encode(
        {"records": [{"value": base64.b64encode(value).decode()} for value in values]}
    )


@cache
def raw_batch() -> bytes:
    """Build one record batch of about RAW_BYTES."""
    value = bytes(index % 251 for index in range(RAW_VALUE_BYTES))
    records = [Record(None, value, (), BASE_TIME_MS + index) for index in range(RAW_RECORDS)]
    return encode_batch(records, base_offset=0, leader_epoch=0, now_ms=BASE_TIME_MS)


class Target:
    """A server under load: its topics and its requests. Blocking; must not be used during a turn."""

    def __init__(self, address: Address, *, counts: bool, prefix: str = "load") -> None:
        self.address = address
        self._counts = counts  # whether the server keeps the records it gets
        self._prefix = prefix
        self._numbers = itertools.count(1)
        self._made: list[str] = []
        self._filled: dict[str, Work] = {}

    def work(self, case: Case) -> Work:
        """Return the requests of a case; a produce case gets a new topic."""
        if case.operation in {PRODUCE, RAW_PRODUCE}:
            return self._produce(case)
        key = f"{case.operation} {case.records}"
        if key not in self._filled:
            make = self._fetch if case.operation == FETCH else self._raw_fetch
            self._filled[key] = make(case.records)
        return self._filled[key]

    def stored(self, work: Work) -> int | None:
        """Return the number of records in the topic of a produce turn; None if unknown."""
        if work.topic is None or not self._counts:
            return None
        answer = self._call("GET", f"/topics/{work.topic}/partitions/0/offsets")
        offsets = answer.json()
        return int(offsets["end_offset"] - offsets["beginning_offset"])

    def drop(self, work: Work) -> None:
        """Delete the topic of a produce turn."""
        if work.topic is not None:
            self._delete(work.topic)

    def close(self) -> None:
        """Delete every topic that was created."""
        for topic in list(self._made):
            self._delete(topic)

    def _produce(self, case: Case) -> Work:
        raw = case.operation == RAW_PRODUCE
        body = raw_batch() if raw else json_body(case.records)
        topic = self._topic()
        path = f"/topics/{topic}/partitions/0?acks={case.acks}"
        headers = {"Content-Type": RECORD_BATCH if raw else BINARY_V2_JSON}
        made = request("POST", path, headers=headers, body=body)
        return Work([made], RAW_RECORDS if raw else case.records, len(body), topic)

    def _fetch(self, records: int) -> Work:
        topic = self._topic()
        for _ in range(FILLED_RECORDS // 1000 if self._counts else 0):
            self._fill(topic, BINARY_V2_JSON, json_body(1000))
        step = (FILLED_RECORDS - records) // PLACES
        paths = [
            f"/topics/{topic}/partitions/0/records?offset={place * step}&max_records={records}"
            for place in range(PLACES)
        ]
        headers = {"Accept": BINARY_V2_JSON}
        for path in paths:
            rows: list[Any] = self._call("GET", path, headers=headers).json()
            if len(rows) != records:
                raise LoadRefused(f"GET {path}: {len(rows)} records, not {records}")
        return Work([request("GET", path, headers=headers) for path in paths], records, 0)

    def _raw_fetch(self, records: int) -> Work:
        topic = self._topic()
        for _ in range(FILLED_BATCHES if self._counts else 0):
            self._fill(topic, RECORD_BATCH, raw_batch())
        paths = [
            f"/topics/{topic}/partitions/0/records?offset={place * RAW_RECORDS}&max_bytes={len(raw_batch())}"
            for place in range(FILLED_BATCHES)
        ]
        headers = {"Accept": RECORD_BATCH}
        for path in paths:
            size_bytes = len(self._call("GET", path, headers=headers).body)
            if size_bytes != len(raw_batch()):
                raise LoadRefused(f"GET {path}: {size_bytes} bytes, not {len(raw_batch())}")
        return Work([request("GET", path, headers=headers) for path in paths], records, 0)

    def _fill(self, topic: str, kind: str, body: bytes) -> None:
        path = f"/topics/{topic}/partitions/0?acks=1"
        self._call("POST", path, headers={"Content-Type": kind}, body=body)

    def _topic(self) -> str:
        topic = f"{self._prefix}-{next(self._numbers)}"
        headers = {"Content-Type": "application/json"}
        self._call("PUT", f"/topics/{topic}", headers=headers, body=b'{"partitions":1}')
        self._made.append(topic)
        return topic

    def _delete(self, topic: str) -> None:
        self._call("DELETE", f"/topics/{topic}")
        self._made.remove(topic)

    def _call(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> WireResponse:
        answer = call(self.address, method, path, headers=headers, body=body)
        if answer.status >= 300:
            raise LoadRefused(f"{method} {path}: {answer.status} {answer.body[:300]!r}")
        return answer
