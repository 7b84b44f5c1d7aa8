"""The output of `logserver kcat`: records in a JSON envelope, and the listing of topics, in kcat's forms.

Owns these forms, which scripts parse; must not make requests. In JSON, data that is not UTF-8 has U+FFFD for wrong
bytes, and all its bytes in `key_b64` or `payload_b64`, which kcat does not have.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from logserver.cli.online.consume_output import Show
from logserver.client import FetchedRecord
from logserver.client.values import BROKER_ID, Cluster, PartitionReplicas
from storage.display import one_line


class Listing(NamedTuple):
    """A listing of a cluster. `topic`: the only topic that was asked for."""

    topic: str | None
    cluster: Cluster

    def text(self) -> str:
        """Return the listing as lines."""
        answered_by, controller, brokers, topics = self.cluster
        from_broker = "{}: {}".format(*answered_by)
        lines = [
            f"Metadata for {self.topic or 'all topics'} (from broker {from_broker}):",
            f" {len(brokers)} brokers:",
            *(
                f"  broker {broker.id} at {broker.address}"
                f"{' (controller)' if broker.id == controller else ''}"
                for broker in brokers
            ),
            f" {len(topics)} topics:",
        ]
        for name, rows in topics.items():
            lines.append(f'  topic "{name}" with {len(rows)} partitions:')
            lines += map(_partition_line, rows)
        return "".join(f"{one_line(line)}\n" for line in lines)

    def document(self) -> Mapping[str, object]:
        """Return the listing as a JSON document."""
        answered_by, controller, brokers, topics = self.cluster
        return {
            "originating_broker": dict(zip(("id", "name"), answered_by, strict=True)),
            "query": {"topic": self.topic or "*"},
            "controllerid": controller,
            "brokers": [{"id": broker.id, "name": broker.address} for broker in brokers],
            "topics": [
                {"topic": name, "partitions": [_partition_row(row) for row in rows]}
                for name, rows in topics.items()
            ],
        }


def _partition_line(row: PartitionReplicas) -> str:
    replicas, in_sync = (",".join(map(str, ids)) for ids in (row.replicas, row.in_sync))
    problem = "" if row.problem is None else f", {row.problem}"
    return (
        f"    partition {row.partition}, leader {row.leader}, "
        f"replicas: {replicas}, isrs: {in_sync}{problem}"
    )


def _partition_row(row: PartitionReplicas) -> Mapping[str, object]:
    shown: dict[str, object] = {"partition": row.partition}
    if row.problem is not None:
        shown["error"] = row.problem
    shown["leader"] = row.leader
    shown["replicas"] = [{"id": id_} for id_ in row.replicas]
    shown["isrs"] = [{"id": id_} for id_ in row.in_sync]
    return shown


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
