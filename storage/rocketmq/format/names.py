"""Names in a RocketMQ store: its files and folders, the files of a run, and valid topic names.

Owns every file name that the RocketMQ backend writes or recognises; must not touch a file.

    commitlog/%020d                     the physical offset of the file's first byte
    consumequeue/TOPIC/QUEUE/%020d      the position in the queue of the file's first byte
    index/yyyyMMddHHmmssSSS             creation time, local time; only the order counts

All files of a run have the same length. From RocketMQ's MessageStoreConfig, StorePathConfigHelper,
UtilAll and TopicValidator.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from storage.coding.varint import INT64_MAX
from storage.errors import InvalidArgument, InvalidTopic

COMMIT_LOG: Final = "commitlog"
CONSUME_QUEUE: Final = "consumequeue"
INDEX: Final = "index"
CONFIG: Final = "config"

CHECKPOINT: Final = "checkpoint"
ABORT: Final = "abort"
ABORT_BACKUP: Final = "abort.bak"
LOCK: Final = "lock"
LOCK_CONTENT: Final = b"lock"

TOPICS: Final = "topics.json"
OFFSETS: Final = "consumerOffset.json"
LMQ_OFFSETS: Final = "lmqConsumerOffset.json"
DELAY_OFFSETS: Final = "delayOffset.json"
SUBSCRIPTION_GROUPS: Final = "subscriptionGroup.json"
BACKUP: Final = ".bak"
TEMPORARY: Final = ".tmp"

STORE_FILE: Final = ".logserver.store.json"
PRODUCERS_FILE: Final = ".logserver.producers.json"
INDEX_FILE: Final = ".logserver.index.json"
DELETED_FILE: Final = ".logserver.deleted.json"

QUEUE_EXTENSION: Final = "consumequeue_ext"
BATCH_QUEUE: Final = "batchconsumequeue"
ROCKSDB_QUEUE: Final = "consumequeue_rocksdb"
ROCKSDB_CURRENT: Final = "CURRENT"
"""The file by which RocksDB and the broker recognise a database folder."""
COMPACTION: Final = "compaction"
COMPACTION_LOG: Final = "compactionLog"
COMPACTION_QUEUE: Final = "compactionCq"
COMPACTION_CHECKPOINT: Final = "position-checkpoint"
TIMER_LOG: Final = "timerlog"
TIMER_WHEEL: Final = "timerwheel"
OTHER_FOLDERS: Final = (
    "rocksdbstore",
    COMPACTION,
    TIMER_LOG,
    QUEUE_EXTENSION,
    BATCH_QUEUE,
    ROCKSDB_QUEUE,
)
OTHER_FILES: Final = (TIMER_WHEEL,)
ROOT_NAMES: Final = frozenset(
    {
        *(COMMIT_LOG, CONSUME_QUEUE, INDEX, CONFIG, CHECKPOINT, ABORT, ABORT_BACKUP, LOCK),
        *(STORE_FILE, PRODUCERS_FILE, DELETED_FILE, INDEX_FILE, *OTHER_FOLDERS, *OTHER_FILES),
    }
)
"""Every name that has a meaning at the root of a store."""

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Messages whose producers did not end their transaction."""
DEFAULT_TOPIC: Final = "TBW102"
_CLOSED_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        CHECK_MAX_TIME_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
SYSTEM_TOPICS: Final = _CLOSED_TOPICS | {DEFAULT_TOPIC, "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC"}
SYSTEM_PREFIX: Final = "rmq_sys_"
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"

MAX_TOPIC_LENGTH: Final = 127
MAX_RETRY_TOPIC_LENGTH: Final = 255
"""Limit for retry and dead letter topics: their names are a prefix plus a consumer group name, and so may be longer."""

_FILE_NAME = re.compile(r"[0-9]{20}")
_INDEX_NAME = re.compile(r"[0-9]{17}")
_QUEUE_ID = re.compile(r"0|[1-9][0-9]{0,9}")
_TOPIC_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_dledger_name(name: str) -> bool:
    """Return whether a root folder has a name in DLedger's form (DLedgerConfig.getDataStorePath)."""
    return name.startswith("dledger-")


def is_live_data(name: str) -> bool:
    """Return whether this root name holds live data of the broker that this program does not read."""
    return name in OTHER_FOLDERS + OTHER_FILES or is_dledger_name(name)


def file_name(position: int) -> str:
    """Return the file name of a position: `file_name(1024)` is `00000000000000001024`.

    Raises InvalidArgument outside [0, 2^63).
    """
    if not 0 <= position <= INT64_MAX:
        raise InvalidArgument(f"position {position} is outside [0, 2^63)", field="position")
    return f"{position:020d}"


def parse_file_name(name: str) -> int | None:
    """Return the position at which a log or queue file begins; None for any other name."""
    if _FILE_NAME.fullmatch(name) is None or int(name) > INT64_MAX:
        return None
    return int(name)


def parse_queue_id(name: str) -> int | None:
    """Return the queue id of a folder below a topic's folder; None for any other name."""
    if _QUEUE_ID.fullmatch(name) is None or int(name) >= 1 << 31:
        return None
    return int(name)


def index_name(time_ms: int, after: str | None = None) -> str:
    """Return the name of an index file created at this time. The name always sorts after `after`.

    Two files may be created within a millisecond, and local time is set back in autumn. Raises
    InvalidArgument for a time outside the calendar.
    """
    try:
        created = (_EPOCH + timedelta(milliseconds=time_ms)).astimezone()
    except (OverflowError, ValueError) as error:
        raise InvalidArgument(f"time {time_ms} is in no calendar", field="time_ms") from error
    name = f"{created.year:04d}{created:%m%d%H%M%S}{created.microsecond // 1000:03d}"
    return name if after is None or name > after else f"{int(after) + 1:017d}"


def parse_index_name(name: str) -> int | None:
    """Return the number that orders an index file among the others; None for any other name."""
    return int(name) if _INDEX_NAME.fullmatch(name) else None


def is_system_topic(name: str) -> bool:
    """Return whether the broker reserves this topic for itself."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_PREFIX)


def is_closed_topic(name: str) -> bool:
    """Return whether clients must not write to this topic. The broker rejects such writes
    (TopicValidator.isNotAllowedSendTopic), or would fail on a client's records there, as in its timer state.
    """
    return name in _CLOSED_TOPICS or name.startswith(SYSTEM_PREFIX)


def validate_new_topic(name: str) -> None:
    """Raise InvalidTopic unless the broker would allow a new topic with this name.

    Applies to creation only: every topic on disk can be addressed.
    """
    problem = _topic_problem(name)
    if problem is not None:
        shown = name if len(name) <= 80 else name[:80] + "..."
        raise InvalidTopic(f"topic name {shown!r} {problem}", topic=name)


def _topic_problem(name: str) -> str | None:
    if not name:
        return "is empty"
    limit = MAX_TOPIC_LENGTH
    if name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        limit = MAX_RETRY_TOPIC_LENGTH
    if len(name) > limit:
        return f"has {len(name)} characters, the limit is {limit}"
    if _TOPIC_NAME.fullmatch(name) is None:
        return "holds a character other than a-z, A-Z, 0-9, '%', '|', '_' and '-'"
    if is_system_topic(name):
        return "is kept for the broker itself"
    return None
