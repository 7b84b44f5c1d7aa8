"""The table of parameters, with allowed values and meaning. The documentation shows it, and the check uses it.

Owns names, kinds, defaults and texts; must not know routes or handlers. A word that stands for a value of the service
is mapped to it here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from api.http.negotiation import FORMATS
from api.http.parameters import (
    MAX_INT16,
    MAX_INT32,
    Choice,
    Integer,
    Parameter,
    StartPosition,
    Text,
)
from logserver.service.requests import Acks
from storage import Isolation

MAX_PAGE_BYTES: Final = 64 << 20
MAX_PAGE_FILES: Final = 1000

# -- path

TOPIC: Final = Parameter("topic", Text(1), "Name of the topic, percent-encoded.")
PARTITION: Final = Parameter("partition", Integer(0, MAX_INT32), "Number of the partition.")
MESSAGE_ID: Final = Parameter(
    "message_id",
    Text(1),
    "Id of a record: `topic:partition:offset` (Kafka), or the offset id, 32 or 56 hex digits (RocketMQ).",
)
GROUP: Final = Parameter("group", Text(1), "Name of the consumer group, percent-encoded.")
INSTANCE: Final = Parameter("instance", Text(1), "Name of the consumer instance, percent-encoded.")
CLUSTER_ID: Final = Parameter(
    "cluster_id",
    Text(1),
    "The cluster: `cluster.id` of a Kafka store's `meta.properties`, else `logserver`.",
)
CONFIG_NAME: Final = Parameter("name", Text(1), "Name of a config.")
PATH: Final[Mapping[str, Parameter[Any]]] = {
    parameter.name: parameter
    for parameter in (TOPIC, PARTITION, MESSAGE_ID, GROUP, INSTANCE, CLUSTER_ID, CONFIG_NAME)
}
# The values of path parameters in examples.
SAMPLES: Final[Mapping[str, str]] = {
    "topic": "orders",
    "partition": "0",
    "message_id": "orders:0:0",
    "group": "billing",
    "instance": "worker-1",
    "cluster_id": "MkU3OEVBNTcwNTJENDM2Qg",
    "name": "retention.ms",
}

# -- common to several calls

FORMAT: Final = Parameter(
    "format",
    Choice(FORMATS),
    "Form of keys and values in JSON: base64, JSON itself, or text. Takes precedence over the media types.",
)
TAG: Final = Parameter("tag", Text(), "Only records with this tag.")
TIMESTAMP: Final = Parameter(
    "timestamp", Integer(), "Milliseconds since the epoch: the first record at or after this time."
)

# -- produce

ACKS: Final = Parameter(
    "acks",
    Choice({"all": Acks.ALL, "-1": Acks.ALL, "1": Acks.WRITTEN, "0": Acks.NONE}),
    "When the request is answered: when the store's flush mode is met (`all`), when the records are with the "
    "operating system (`1`), or when the body has been checked (`0`).",
    default="all",
)
PRODUCE_TIMEOUT: Final = Parameter(
    "timeout",
    Integer(1, "max_wait_ms"),
    "How long to wait for the records to be stored, in milliseconds; they may still be stored later.",
)
COMPRESSION: Final = Parameter(
    "compression",
    Choice({name: name for name in ("none", "gzip", "snappy", "lz4", "zstd", "zlib")}),
    "Codec of this request's records; else the topic's. Kafka: all but `zlib`; RocketMQ: `none`, `zlib`, `lz4`, "
    "`zstd`.",
)
PRODUCER_ID: Final = Parameter(
    "producer_id", Integer(), "The producer; needs `producer_epoch` and `sequence` too."
)
PRODUCER_EPOCH: Final = Parameter(
    "producer_epoch",
    Integer(0, MAX_INT16),
    "The producer's epoch: a newer one fences the older.",
)
SEQUENCE: Final = Parameter(
    "sequence",
    Integer(0, MAX_INT32),
    "Number of the first record in this producer's records of the partition. A repeat is stored once.",
)
IDEMPOTENCY_KEY: Final = Parameter(
    "Idempotency-Key",
    Text(1),
    "Your own name for this request, up to 255 characters: for a day a repeat is answered with the first offsets and "
    "stored once.",
)

# -- headers of a record that is sent as a plain body

X_KEY: Final = Parameter("X-Key", Text(), "`application/octet-stream`: the key, as UTF-8.")
X_KEY_BASE64: Final = Parameter(
    "X-Key-Base64", Text(), "`application/octet-stream`: the key in base64, in place of `X-Key`."
)
X_TAG: Final = Parameter("X-Tag", Text(), "`application/octet-stream`: the tag.")
X_HEADER: Final = Parameter(
    "X-Header-NAME",
    Text(),
    "`application/octet-stream`: a header of the record. Its NAME is stored in lower case.",
)

# -- fetch

OFFSET: Final = Parameter(
    "offset",
    StartPosition(),
    "Where to begin: `N`, `earliest`, `latest` (only new records), `-N` (the last N), `@MS` (the first at or after "
    "that time).",
    default="earliest",
)
MAX_RECORDS: Final = Parameter(
    "max_records",
    Integer(1, "max_records_per_request"),
    "At most this many records. A stream ends after this many, without it never.",
    "500",
)
MAX_BYTES: Final = Parameter(
    "max_bytes",
    Integer(1, MAX_PAGE_BYTES),
    "About this many bytes; at least one record is returned, of any size.",
    str(1 << 20),
)
MIN_BYTES: Final = Parameter(
    "min_bytes",
    Integer(0, MAX_PAGE_BYTES),
    "The wait ends at this many bytes of keys and values.",
    "1",
)
FETCH_TIMEOUT: Final = Parameter(
    "timeout",
    Integer(0, "max_wait_ms"),
    "How long to wait for `min_bytes`, in milliseconds. A stream ends when no record has come for this "
    "long, without it never.",
    "0",
)
ISOLATION: Final = Parameter(
    "isolation",
    Choice({level.value: level for level in Isolation}),
    "`read_committed` leaves out aborted transactions and ends at the last stable offset.",
    Isolation.READ_UNCOMMITTED.value,
)
FOLLOW: Final = Parameter(
    "follow",
    Choice({"true": True, "false": False}),
    "For a stream. `false`: it ends at the end that the log has when the request arrives.",
)
# The meaning for a stream of two parameters that a page has too.
STREAM_RECORDS: Final = Parameter(
    "max_records", Integer(1), "The stream ends after this many records."
)
STREAM_TIMEOUT: Final = Parameter(
    "timeout",
    Integer(0, "max_wait_ms"),
    "The stream ends when no record has come for this long, in milliseconds.",
)
LAST_EVENT_ID: Final = Parameter(
    "Last-Event-ID",
    Text(),
    "`partition:offset` of the last received event: takes precedence over `offset`.",
)
IF_NONE_MATCH: Final = Parameter(
    "If-None-Match", Text(), "The `ETag` of a cached page: 304 if it is still valid."
)

# -- query

KEY: Final = Parameter("key", Text(), "Records whose key this is, or one of their lookup keys.")
UNIQUE_ID: Final = Parameter(
    "unique_id", Text(), "RocketMQ: the property `UNIQ_KEY`. Not together with `key`."
)
BEGIN: Final = Parameter("begin", Integer(), "Records at or after this time, in milliseconds.")
END: Final = Parameter("end", Integer(), "Records at or before this time, in milliseconds.")
LIMIT: Final = Parameter(
    "limit", Integer(1, "max_records_per_request"), "At most this many records.", "32"
)
FILES_LIMIT: Final = Parameter(
    "limit", Integer(1, MAX_PAGE_FILES), "At most this many files.", "100"
)
CURSOR: Final = Parameter("cursor", Text(), "Where to continue: take it from `next`.")
DIRECTION: Final = Parameter(
    "direction",
    Choice({"forward": False, "backward": True}),
    "`backward`: the same records in reverse order, newest first.",
    "forward",
)
SCAN: Final = Parameter(
    "scan",
    Choice({"false": False, "true": True}),
    "`true`: read the records themselves, without an index.",
    "false",
)

# -- consumers and groups

CONSUMER_TIMEOUT: Final = Parameter(
    "timeout",
    Integer(0, "max_wait_ms"),
    "How long to wait for `fetch.min.bytes`, in milliseconds; else the instance's "
    "`consumer.request.timeout.ms`.",
)
CONSUMER_MAX_BYTES: Final = Parameter(
    "max_bytes",
    Integer(1, MAX_PAGE_BYTES),
    "About this many bytes; at least one record is returned, of any size. Else the instance's `fetch.max.bytes`.",
)
ASYNC: Final = Parameter(
    "async",
    Choice({"false": False, "true": True}),
    "Accepted for older clients: a commit is answered when it is stored, with both values.",
    "false",
)
OF_TOPIC: Final = Parameter("topic", Text(1), "Only offsets of this topic.")
OF_PARTITION: Final = Parameter(
    "partition", Integer(0, MAX_INT32), "Only the offset of this partition; needs `topic` too."
)
