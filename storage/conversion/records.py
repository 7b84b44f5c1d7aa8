"""The shapes of a record in transit: a Kafka record and a RocketMQ message before they are stored.

Owns the shapes and the names of the data that is added to a record so that it can be restored; must not do IO.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final, NamedTuple

from storage.errors import InvalidArgument
from storage.model import Header, RawMessage
from storage.rocketmq.format.message_id import encode_host, host_text

# ---- headers of a Kafka record that was a message ----

STORE_TIME: Final = "__store_ts"
BORN_TIME: Final = "__born_ts"
FLAG: Final = "__rocketmq_flag"
SYS_FLAG: Final = "__rocketmq_sys_flag"
RECONSUME_TIMES: Final = "__rocketmq_reconsume_times"
PREPARED_OFFSET: Final = "__rocketmq_prepared_offset"
BORN_HOST: Final = "__rocketmq_born_host"
STORE_HOST: Final = "__rocketmq_store_host"
PROPERTIES: Final = "__rocketmq_properties"
_HEADERS: Final = frozenset({STORE_TIME, BORN_TIME})
_HEADER_PREFIX: Final = "__rocketmq_"

# ---- properties of a message that was a Kafka record ----

PROPERTY_PREFIX: Final = "__kafka_"
OFFSET: Final = "__kafka_offset"
TIME_TYPE: Final = "__kafka_time_type"
KEYS_HEADER: Final = "__kafka_keys"
NULL_VALUE: Final = "__kafka_null_value"
KEY: Final = "__kafka_key"
HEADER: Final = "__kafka_header_"  # followed by a number

APPEND_TIME: Final = "LogAppendTime"
HOST: Final = encode_host("127.0.0.1", 10911)
"""The store host and born host of a message that was a Kafka record."""


class KafkaRecord(NamedTuple):
    """A record as a Kafka log holds it, without the fields of its batch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    log_append_time: bool = False


class QueuedMessage(NamedTuple):
    """A message as a RocketMQ queue holds it, without its position in the log."""

    message: RawMessage
    offset: int
    store_timestamp_ms: int
    store_host: bytes = HOST


class Problem(NamedTuple):
    """A field of a record that has no place in the other format, and the reason."""

    field: str
    problem: str


def is_ours(header: str) -> bool:
    """Return whether a header of this name belongs to the conversion."""
    return header in _HEADERS or header.startswith(_HEADER_PREFIX)


def host_as_text(host: bytes) -> str:
    """Return `10.1.2.7:40002`, or hexadecimal if the text would lose bytes."""
    text = host_text(host)
    return text if _host_of(text) == host else host.hex()


def host_from_text(text: str) -> bytes:
    """Return the bytes from which `host_as_text` made the text. Raises ValueError."""
    host = _host_of(text) or bytes.fromhex(text)
    if len(host) not in (8, 20):
        raise ValueError(text)
    return host


def _host_of(text: str) -> bytes | None:
    address, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or len(port) > 5:
        return None
    try:
        return encode_host(address.removeprefix("[").removesuffix("]"), int(port))
    except InvalidArgument:
        return None


def base64_text(data: bytes) -> str:
    """Return bytes as text; it contains no separator, no `-` and no `.`."""
    return base64.b64encode(data).decode()


def from_base64(text: str) -> bytes:
    """Return the bytes from which `base64_text` made the text. Raises ValueError."""
    return base64.b64decode(text, validate=True)
