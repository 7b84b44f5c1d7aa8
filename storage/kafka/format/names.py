"""Names in a Kafka log directory: its files, its partition folders, the files of a segment, and
legal topic names.

Owns every file name that the Kafka backend writes or recognises; must not touch a file.

    position  bytes  field        note
    0         20     base offset  decimal, zeros in front: 00000000000000001113.log
    20        4-10   suffix       .log .index .timeindex .txnindex .snapshot
    ...       0-8    left over    .deleted .cleaned .swap: a file on its way out or in

A partition folder is `topic-partition`, split at the LAST `-`, since topics may contain `-`. A folder that the broker
has renamed is a partition that is not served:

- `topic-0.<id>-delete`: it waits for its deletion;
- `topic-0.<id>-stray`: the cluster's metadata did not contain it;
- `topic-0.<id>-future`: it is a copy that is being moved here from another disk.

A broker does not start if the directory contains any other folder. From Kafka's LogFileUtils,
LocalLog.parseTopicPartitionName, LogManager.loadLogs and Topic.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from storage.coding.varint import INT32_MAX, INT64_MAX
from storage.errors import InvalidArgument, InvalidTopic
from storage.model import TopicPartition

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT)

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
LEFTOVER_SUFFIXES: Final = (DELETED, CLEANED, SWAP)
TEMPORARY: Final = ".tmp"

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
META_PROPERTIES: Final = "meta.properties"
BOOTSTRAP: Final = "bootstrap.checkpoint"
LOCK: Final = ".lock"
ROOT_FILES: Final = (
    CLEAN_SHUTDOWN,
    RECOVERY_POINTS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    CLEANER_OFFSETS,
    META_PROPERTIES,
    BOOTSTRAP,
    LOCK,
)

OURS: Final = ".logserver."
"""The beginning of the names of files that this server adds."""

REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"
"""The one folder at the root that is not a partition: the broker's cache for segments in remote storage."""

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
GROUP_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"

MAX_NAME_LENGTH: Final = 255
MAX_TOPIC_LENGTH: Final = 249
"""With `-` and five digits of partition this is 255 characters: the limit of file systems for a name."""

_SEGMENT_NAME = re.compile(
    r"([0-9]{20})"  # base offset
    r"((?:\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(?:\.deleted|\.cleaned|\.swap)?)"
)
_METADATA_SNAPSHOT = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint(?:\.part|\.deleted)?")
_PARTITION_DIR = re.compile(r"([a-zA-Z0-9._-]+)-(0|[1-9][0-9]{0,9})")
_DELETED_DIR = re.compile(r"[a-zA-Z0-9._-]+-[0-9]{1,10}\.[0-9a-f]{32}-delete")
_RENAMED_DIR = re.compile(r"(\S+)\.[^\s.]+-(delete|stray|future)")
_BROKER_TAKES = re.compile(r".+-\+?[0-9]+")
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def segment_name(base_offset: int, suffix: str = LOG) -> str:
    """Return a segment's file name: `segment_name(1113, ".index")` is `00000000000000001113.index`.

    Raises InvalidArgument outside [0, 2^63).
    """
    if not 0 <= base_offset <= INT64_MAX:
        raise InvalidArgument(
            f"base offset {base_offset} is outside [0, 2^63)", field="base_offset"
        )
    return f"{base_offset:020d}{suffix}"


def parse_segment_name(name: str) -> tuple[int, str] | None:
    """Return (base offset, suffix) of a segment's file, None for any other name.

    A left-over file has both parts of its suffix (`.log.deleted`).
    """
    match = _SEGMENT_NAME.fullmatch(name)
    if match is None or int(match[1]) > INT64_MAX:
        return None
    return int(match[1]), match[2]


def is_metadata_snapshot(name: str) -> bool:
    """Whether a file is a snapshot of the cluster's metadata, `END-EPOCH.checkpoint`, or the bootstrap file from which
    a cluster was created. Both contain record batches, as a log.
    """
    return name == BOOTSTRAP or _METADATA_SNAPSHOT.fullmatch(name) is not None


def partition_dir_name(topic: str, partition: int) -> str:
    """Return the folder name of a partition: `topic-partition`."""
    return f"{topic}-{partition}"


def parse_partition_dir(name: str) -> TopicPartition | None:
    """Return the partition of a folder name; None for any other name, also for folders renamed for
    deletion.
    """
    match = _PARTITION_DIR.fullmatch(name)
    if match is None or int(match[2]) > INT32_MAX:
        return None
    return TopicPartition(match[1], int(match[2]))


class RenamedFolder(NamedTuple):
    """The partition and the state of a folder that the broker renamed. `state`: delete, stray or future."""

    partition: TopicPartition
    state: str


def parse_renamed_dir(name: str) -> RenamedFolder | None:
    """Return partition and state of a renamed folder, `topic-partition.ID-STATE`; None for any other name.

    The name of a long topic was cut when its folder was renamed, so that the new name fits.
    """
    match = _RENAMED_DIR.fullmatch(name)
    partition = None if match is None else parse_partition_dir(match[1])
    if match is None or partition is None:
        return None
    return RenamedFolder(partition, match[2])


def partition_of_dir(name: str) -> TopicPartition | None:
    """Return the partition of a folder name, renamed or not; None for any other name."""
    renamed = parse_renamed_dir(name)
    return parse_partition_dir(name) if renamed is None else renamed.partition


def is_foreign_dir(name: str) -> bool:
    """Whether a folder of this name keeps a real broker from starting."""
    if name == REMOTE_INDEX_CACHE or parse_renamed_dir(name) is not None:
        return False
    return _BROKER_TAKES.fullmatch(name) is None


def deleted_dir_name(topic: str, partition: int, unique_id: str) -> str:
    """Return the name of a partition's folder during its deletion: `topic-partition.<32 hex>-delete`.

    The topic is cut so that the name fits (UnifiedLog.logDeleteDirName).
    """
    suffix = f"-{partition}.{unique_id}-delete"
    return topic[: MAX_NAME_LENGTH - len(suffix)] + suffix


def is_deleted_dir(name: str) -> bool:
    """Whether the broker would treat this folder as one with an interrupted deletion."""
    return _DELETED_DIR.fullmatch(name) is not None


def validate_new_topic(name: str) -> None:
    """Raise InvalidTopic unless Kafka would allow the creation of a topic with this name.

    Applies to creation only: any topic that is on disk can be addressed. The metadata log's name is
    rejected too.
    """
    problem = _topic_problem(name)
    if problem is not None:
        raise InvalidTopic(f"topic name {_shortened(name)} {problem}", topic=name)


def is_internal_topic(name: str) -> bool:
    """Whether the topic is reserved for the servers' own use."""
    return name.startswith("__")


def collision_key(topic: str) -> str:
    """Return a key: a topic must not be created if another has the same key, because metrics write `.` as `_`."""
    return topic.replace(".", "_")


def _topic_problem(name: str) -> str | None:
    if not name:
        return "is empty"
    if name in {".", ".."}:
        return "is a name of the file system"
    if len(name) > MAX_TOPIC_LENGTH:
        return f"has {len(name)} characters, the limit is {MAX_TOPIC_LENGTH}"
    if _TOPIC_NAME.fullmatch(name) is None:
        return "holds a character other than a-z, A-Z, 0-9, '.', '_' and '-'"
    if name == CLUSTER_METADATA_TOPIC:
        return "is the metadata log's own"
    return None


def _shortened(name: str) -> str:
    return repr(name if len(name) <= 80 else name[:80] + "...")
