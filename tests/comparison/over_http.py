"""A workload over HTTP: the appends and questions of sides.py, to a server of either backend.

Owns the requests, and the conversion of JSON rows to the form in which answers are compared.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

import aiohttp
import msgspec

from storage import Bound, OffsetBounds, Record, TopicPartition
from tests.comparison.workload import (
    TOPICS,
    Answers,
    KeyQuestion,
    Step,
    TimeQuestion,
    Workload,
    partitions,
)
from tests.contract.harness import ManualClock
from tests.http.harness import BINARY, V2, b64
from tests.robustness.stateful.answers import Outcome

A_PAGE: Final = 50
NAMES: Final = {"from_ms": "begin", "to_ms": "end"}
OF_MARKS: Final = ("TAGS", "KEYS")  # headers in which Kafka stores tag and lookup keys


class Client:
    """A client of one server."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def _call(self, method: str, path: str, body: object = None, content: str = V2) -> Any:
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": content, "Accept": f"{BINARY}, {V2}"}
        async with self._session.request(
            method, self._url + path, data=data, headers=headers
        ) as answer:
            found = await answer.read()
            assert answer.status in {200, 201}, (method, path, answer.status, found)
            return msgspec.json.decode(found)

    async def make_topics(self) -> None:
        """Create the topics of a workload."""
        for topic, count in TOPICS.items():
            await self._call("PUT", f"/topics/{topic}", {"partitions": count})

    async def play(self, steps: Sequence[Step], clock: ManualClock) -> None:
        """Produce step by step, with the clock set for each step; the returned offsets must continue without gaps."""
        for step in steps:
            clock.now_ms = step.now_ms
            codec = "" if step.codec is None else f"?compression={step.codec}"
            body = {"records": [_given(record) for record in step.records]}
            answer = await self._call("POST", _path(step.partition) + codec, body, BINARY)
            offsets = [row["offset"] for row in answer["offsets"]]
            assert offsets == list(range(offsets[0], offsets[0] + len(step.records)))

    async def answers(self, workload: Workload) -> Answers:
        """Return the server's answers to every question; HTTP has no lookup by the upper bound of a time."""
        times = [q for q in workload.time_questions() if q.bound is Bound.LOWER]
        return Answers(
            records={p: await self._records(p) for p in partitions()},
            bounds={p: await self._bounds(p) for p in partitions()},
            times={q: await self._at_time(q) for q in times},
            found={q: await self._found(q) for q in workload.key_questions()},
        )

    async def _records(self, partition: TopicPartition) -> list[Outcome]:
        found: list[Outcome] = []
        while True:
            page = await self._call(
                "GET", f"{_path(partition)}/records?offset={len(found)}&max_records={A_PAGE}"
            )
            if not page:
                return found
            found += map(_row, page)

    async def _bounds(self, partition: TopicPartition) -> OffsetBounds:
        reported = await self._call("GET", f"{_path(partition)}/offsets")
        return OffsetBounds(
            reported["beginning_offset"], reported["end_offset"], reported["end_offset"]
        )

    async def _at_time(self, question: TimeQuestion) -> tuple[int, int] | None:
        path = f"{_path(question.partition)}/offsets?timestamp={question.time_ms}"
        reported = await self._call("GET", path)
        return (
            None if reported["timestamp"] is None else (reported["offset"], reported["timestamp"])
        )

    async def _found(self, question: KeyQuestion) -> list[Outcome]:
        asked = {NAMES.get(n, n): v for n, v in question._asdict().items() if v is not None}
        del asked["topic"]
        query = urlencode({**asked, "limit": A_PAGE}, quote_via=quote)
        path, found = f"/topics/{question.topic}/messages?{query}", list[Outcome]()
        while True:
            page = await self._call("GET", path)
            found += [(row["partition"], *_row(row)) for row in page["records"]]
            if page["complete"]:
                return sorted(found, key=lambda row: row[:2])
            path = page["next"]


def _path(partition: TopicPartition) -> str:
    return f"/topics/{partition.topic}/partitions/{partition.partition}"


def _given(record: Record) -> dict[str, object]:
    assert record.value is not None
    return {
        "key": None if record.key is None else b64(record.key),
        "value": b64(record.value),
        "timestamp": record.timestamp_ms,
        "headers": [{"key": name, "value": b64(value or b"")} for name, value in record.headers],
        **({} if record.tag is None else {"tag": record.tag}),
        "keys": list(record.lookup_keys),
    }


def _row(row: Mapping[str, Any]) -> Outcome:
    """Convert a row to the form of a record in `tests.robustness.stateful.answers.content`."""
    headers = [(h["key"], _bytes(h["value"])) for h in row["headers"] if h["key"] not in OF_MARKS]
    key, value = _bytes(row["key"]), _bytes(row["value"])
    marks = (row.get("tag"), row.get("keys", []))
    return (row["offset"], row["timestamp"], "CreateTime", key, value, headers, *marks)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
