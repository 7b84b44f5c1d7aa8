"""The output of `logserver kcat`: records in a JSON envelope, and the listing of topics, in kcat's forms.

Owns these forms, which scripts parse; must not make requests. In JSON, data that is not UTF-8 has U+FFFD for wrong
bytes, and all its bytes in `key_b64` or `payload_b64`, which kcat does not have.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from logserver.cli.online.consume_output import Show
from logserver.client import FetchedRecord, TopicDescription
from storage.display import one_line

BROKER_ID = 1  # of a server without topics; topics name their own


class Listing(NamedTuple):
    """The topics of a server, and its address as HOST:PORT. `topic`: the only topic that was asked for."""

    address: str
    topic: str | None
    topics: Sequence[TopicDescription]

    @property
    def broker(self) -> int:
        """The id of the server, which leads all partitions."""
        rows = [row for topic in self.topics for row in topic.partition_rows]
        return rows[0].leader if rows else BROKER_ID

    def text(self) -> str:
        """Return the listing as lines."""
        broker = self.broker
        lines = [
            f"Metadata for {self.topic or 'all topics'} (from broker {broker}: {self.address}/{broker}):",
            " 1 brokers:",
            f"  broker {broker} at {self.address} (controller)",
            f" {len(self.topics)} topics:",
        ]
        for topic in self.topics:
            lines.append(f'  topic "{topic.name}" with {len(topic.partition_rows)} partitions:')
            lines += [
                f"    partition {row.partition}, leader {row.leader}, "
                f"replicas: {row.leader}, isrs: {row.leader}"
                for row in topic.partition_rows
            ]
        return "".join(f"{one_line(line)}\n" for line in lines)

    def document(self) -> Mapping[str, object]:
        """Return the listing as a JSON document."""
        broker = self.broker
        return {
            "originating_broker": {"id": broker, "name": f"{self.address}/{broker}"},
            "query": {"topic": self.topic or "*"},
            "controllerid": broker,
            "brokers": [{"id": broker, "name": self.address}],
            "topics": [
                {
                    "topic": topic.name,
                    "partitions": [
                        {
                            "partition": row.partition,
                            "leader": row.leader,
                            "replicas": [{"id": row.leader}],
                            "isrs": [{"id": row.leader}],
                        }
                        for row in topic.partition_rows
                    ],
                }
                for topic in self.topics
            ],
        }


def envelope(delimiter: bytes, log_append_topics: Collection[str] = ()) -> Show:
    """Return a function that formats records as JSON. `log_append_topics`: topics whose times are set at the append."""

    def show(record: FetchedRecord) -> bytes:
        kind = "logappend" if record.topic in log_append_topics else "create"
        row: dict[str, object] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "tstype": kind,
            "ts": record.timestamp_ms,
            "broker": BROKER_ID,
        }
        if record.headers:
            row["headers"] = [
                part for name, value in record.headers for part in (name, _text(value))
            ]
        row["key"] = _text(record.key)
        row["payload"] = _text(record.value)
        bytes_of = {"key_b64": record.key, "payload_b64": record.value}
        row |= {name: data for name, data in bytes_of.items() if not _is_text(data)}
        return msgspec.json.encode(row) + delimiter

    return show


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _is_text(data: bytes | None) -> bool:
    try:
        (data or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def write(data: bytes) -> None:
    """Write to standard output at once."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
