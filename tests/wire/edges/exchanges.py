"""Requests at the edges of the protocol: the same for the real broker and for this server, leader epochs included.

Owns the requests; must not know the answers. `python -m tests.wire.edges.exchanges HOST:PORT` prints the answers of
a running broker with an empty store as JSON: recorded.json holds the real one's (Kafka 4.3.1).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from functools import partial
from typing import Any, Final
from zlib import crc32

from api.kafka.protocol.messages.cluster import FindCoordinatorRequest
from api.kafka.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestAlterableConfig,
    AlterConfigsRequestResource,
    IncrementalAlterConfigsRequest,
)
from api.kafka.protocol.messages.fetch import FetchRequest
from api.kafka.protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from api.kafka.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from api.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from api.kafka.protocol.messages.offsets import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestOffsetForLeaderPartition,
    OffsetForLeaderEpochRequestOffsetForLeaderTopic,
)
from api.kafka.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreateTopicsRequest,
    CreateTopicsRequestCreatableReplicaAssignment,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsRequestCreatableTopicConfig,
    DeleteTopicsRequest,
    DeleteTopicsRequestDeleteTopicState,
)
from storage.coding.checksum import crc32c
from storage.kafka.format.batch import CRC_START
from storage.kafka.format.compression import CODECS
from tests.wire.exchanges import SERVERS_OWN, Exchange, alteration, answered, print_answers
from tests.wire.group_requests import join
from tests.wire.harness import Connection, batch, fetch, produce

TIMES: Final = (-1, -2, -3, -4, -5, -6, 0, 1_700_000_000_000, 1 << 50)


def exchanges() -> Sequence[Exchange]:
    """Return the requests in order, each with a name and its version."""
    return (
        *_records(),
        *_epochs(),
        *_bad_batches(),
        *_too_late(),
        *_no_group(),
        *_codecs(),
        *_bad_configs(),
        *_two_errors(),
    )


def _create(name: str, partitions: int = 1, timeout_ms: int = 10_000) -> CreateTopicsRequest:
    topic = CreateTopicsRequestCreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)


def _offsets(time: int, number: int) -> ListOffsetsRequest:
    asked = ListOffsetsRequestPartition(partition_index=number, timestamp=time)
    return ListOffsetsRequest(topics=[ListOffsetsRequestTopic(name="t", partitions=[asked])])


def _records() -> Sequence[Exchange]:
    """Partition 0 has four records, partition 1 has none."""
    return (
        ("create", _create("t", 2), 4),
        *((f"produce {number}", produce("t", (0, batch(b"a", b"b"))), 9) for number in range(2)),
        *(
            (f"time {time} of {number}, version {version}", _offsets(time, number), version)
            for time in TIMES
            for number in (0, 1)
            for version in (4, 11)
        ),
    )


def _end(epoch: int, number: int) -> OffsetForLeaderEpochRequest:
    asked = OffsetForLeaderEpochRequestOffsetForLeaderPartition(
        partition=number, leader_epoch=epoch
    )
    topic = OffsetForLeaderEpochRequestOffsetForLeaderTopic(topic="t", partitions=[asked])
    return OffsetForLeaderEpochRequest(topics=[topic])


def _after(epoch: int, *parts: tuple[int, int], **options: Any) -> FetchRequest:
    """Return a fetch of a client whose last record has this epoch, in the first of these partitions."""
    request = fetch("t", *parts, **options)
    request.topics[0].partitions[0].last_fetched_epoch = epoch
    return request


def _epochs() -> Sequence[Exchange]:
    wait = {"min_bytes": 1 << 20, "max_wait_ms": 10_000}
    return (
        *((f"end of {epoch} in {number}", _end(epoch, number), 4)
          for epoch in (-1, 0, 1) for number in (0, 1)),
        *((f"fetch {offset} of {number} after {epoch}", _after(epoch, (number, offset)), 12)
          for number, offset in ((0, 0), (0, 2), (0, 4), (0, 5), (0, -1), (1, 0), (1, 1))
          for epoch in (-2, -1, 0, 1)),
        ("diverging does not wait", _after(0, (0, 5), (1, 0), **wait), 12),
        ("unknown epoch does not wait", _after(7, (0, 0), (1, 0), **wait), 12),
        ("diverging in an old version", _after(0, (0, 5)), 11),
    )  # fmt: skip


def _message(magic: int, value: bytes = b"v" * 100, offset: int = 0) -> bytes:
    """Return a message as clients sent it before record batches."""
    time = struct.pack(">q", 1_700_000_000_000) if magic else b""
    body = struct.pack(">bb", magic, 0) + time + struct.pack(">ii", -1, len(value)) + value
    crc = struct.pack(">I", crc32(body))
    return struct.pack(">qi", offset, len(body) + len(crc)) + crc + body


def _bad_batches() -> Sequence[Exchange]:
    """Batches of old formats, cut ones, and those with another head."""
    good = batch(b"a", b"b")
    found = {
        **{f"a message of magic {magic}": _message(magic) for magic in (0, 1)},
        **{f"a small message of magic {magic}": _message(magic, b"v") for magic in (0, 1)},
        "two messages": _message(1) + _message(1, offset=1),
        "a cut message": _message(1)[:-1],
        **{f"magic {magic}": good[:16] + bytes([magic]) + good[17:] for magic in (0, 1, 3, 255)},
        **{f"{size} bytes": good[:size] for size in (1, 11, 12, 16, 17, 60, 61, len(good) - 1)},
        **{f"length {size}": good[:8] + struct.pack(">i", size) + good[12:]
           for size in (-1, 0, 13, 14, 48, 49, len(good) - 13, len(good) - 11, 10_000)},
        "zeros": bytes(100),
    }  # fmt: skip
    return [
        (f"produce {name}, version {version}", produce("t", (0, data)), version)
        for name, data in found.items()
        for version in (3, 7, 12)
    ]


def _too_late() -> Sequence[Exchange]:
    """Requests that are too late for their timeout when they arrive."""
    found: list[Exchange] = []
    for timeout_ms in (0, -1):
        more = CreatePartitionsRequest(
            topics=[CreatePartitionsRequestTopic(name="t", count=9, assignments=None)],
            timeout_ms=timeout_ms,
        )
        by_name = DeleteTopicsRequest(topic_names=["t", "none"], timeout_ms=timeout_ms)
        state = DeleteTopicsRequestDeleteTopicState(name="t")
        by_state = DeleteTopicsRequest(topics=[state], timeout_ms=timeout_ms)
        late = f"timeout {timeout_ms}"
        found += [
            *((f"create, {late}, version {version}", _create("new", 1, timeout_ms), version)
              for version in (2, 5, 7)),
            (f"create what exists, {late}", _create("t", 1, timeout_ms), 7),
            (f"more partitions, {late}", more, 3),
            (f"delete, {late}", by_name, 5),
            (f"delete, {late}, version 6", by_state, 6),
        ]  # fmt: skip
    metadata = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in ("t", "new")],
        allow_auto_topic_creation=False,
    )
    return (*found, ("nothing was done", metadata, 12))


def _commit(generation: int = -1, member: str = "") -> OffsetCommitRequest:
    row = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=3, committed_leader_epoch=0
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=[row])
    return OffsetCommitRequest(
        group_id="", generation_id_or_member_epoch=generation, member_id=member, topics=[topic]
    )


def _no_group() -> Sequence[Exchange]:
    """Clients without a group: their group has an empty name."""
    asked = OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
    one = OffsetFetchRequest(group_id="", topics=[asked])
    everything = OffsetFetchRequest(group_id="", topics=None)
    many = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id="", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
            )
        ]
    )
    described = DescribeGroupsRequest(groups=[""])
    deleted = DeleteGroupsRequest(groups_names=[""])
    topic = OffsetDeleteRequestTopic(
        name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)]
    )
    fetched: list[Exchange] = [
        *((f"fetch, version {version}", one, version) for version in (1, 2, 5, 7)),
        ("fetch all", everything, 7),
        *((f"fetch, version {version}", many, version) for version in (8, 9)),
        *((f"describe, version {version}", described, version) for version in (5, 6)),
        ("list", ListGroupsRequest(), 4),
    ]
    return [
        ("create the groups", FindCoordinatorRequest(key="g"), 2),
        ("load the groups", _commit(3), 8),
        *((f"before a commit, {name}", message, version) for name, message, version in fetched),
        ("delete an unknown group", deleted, 2),
        *((f"commit of generation {generation} as {member!r}, version {version}",
           _commit(generation, member), version)
          for generation, member in ((3, ""), (3, "m"), (-1, "m"), (-1, ""), (0, ""), (-2, ""))
          for version in (2, 8, 9)),
        *((f"of no group, {name}", message, version) for name, message, version in fetched),
        ("find the coordinator", FindCoordinatorRequest(key=""), 2),
        ("find the coordinator, version 4", FindCoordinatorRequest(coordinator_keys=[""]), 4),
        ("join", join(""), 3),
        ("delete offsets", OffsetDeleteRequest(group_id="", topics=[topic]), 0),
        ("delete", deleted, 2),
        ("delete twice", deleted, 2),
    ]  # fmt: skip


def _of_codec(codec: int, *, good_crc: bool = True) -> bytes:
    """Return a batch whose attributes name a codec, with records of no codec if there is no such codec."""
    known = codec if codec < len(CODECS) else 0
    data = batch(b"a", b"b", codec=known)
    body = data[CRC_START : CRC_START + 1] + bytes([codec]) + data[CRC_START + 2 :]
    crc = crc32c(body) if good_crc else 0
    return data[: CRC_START - 4] + crc.to_bytes(4, "big") + body


def _codecs() -> Sequence[Exchange]:
    """Codecs that Kafka does not have, and Zstandard in versions that are older than it (KIP-110)."""
    created: list[Exchange] = []
    for name, codec in (("u", "producer"), ("z", "zstd")):
        request = _create(name)
        config = CreateTopicsRequestCreatableTopicConfig(name="compression.type", value=codec)
        request.topics[0].configs = [config]
        created.append((f"create with codec {codec}", request, 5))
    versions, fetched = (3, 6, 7, 9, 12), (4, 9, 10, 12)
    return [
        *created,
        *((f"produce of codec {codec}, version {version}", produce("u", (0, _of_codec(codec))), version)
          for codec in (5, 6, 7) for version in versions),
        *((f"produce of codec {codec} with a wrong CRC, version {version}",
           produce("u", (0, _of_codec(codec, good_crc=False))), version)
          for codec in (4, 5) for version in versions),
        *((f"produce of codec 4, version {version}", produce("u", (0, _of_codec(4))), version)
          for version in (3, 4, 5, 6, 7)),
        *((f"fetch of codec 4, version {version}", fetch("u", (0, 0)), version) for version in fetched),
        ("produce to a topic of codec 4", produce("z", (0, _of_codec(4))), 7),
        *((f"fetch from a topic of codec 4, version {version}", fetch("z", (0, 0)), version)
          for version in fetched),
    ]  # fmt: skip


def _bad_configs() -> Sequence[Exchange]:
    """Configs that there are none of, and bad values, of topics that exist or cannot."""
    changes: dict[str, tuple[str, int, str | None]] = {
        "set": ("retention.ms", 0, "7"),
        "set to no number": ("retention.ms", 0, "x"),
        "set an unknown config": ("nosuch", 0, "1"),
        "reset an unknown config": ("nosuch", 1, None),
        "append to a number": ("retention.ms", 2, "1"),
        "append to a list": ("cleanup.policy", 2, "compact"),
        "append to an unknown config": ("nosuch", 2, "1"),
    }
    found: list[Exchange] = []
    for topic in ("none", "a b", "t"):
        for check_only in (True, False):
            where = f"topic {topic!r}, {'only checked' if check_only else 'done'}"
            for what, (name, operation, value) in changes.items():
                rows = [alteration(topic, (name, operation, value))]
                request = IncrementalAlterConfigsRequest(resources=rows, validate_only=check_only)
                found.append((f"{what}: {where}", request, 1))
                if operation == 0:
                    config = AlterConfigsRequestAlterableConfig(name=name, value=value)
                    row = AlterConfigsRequestResource(
                        resource_type=2, resource_name=topic, configs=[config]
                    )
                    all_of_it = AlterConfigsRequest(resources=[row], validate_only=check_only)
                    found.append((f"{what}, nothing else: {where}", all_of_it, 2))
    return found


def _placed(
    name: str, *replicas: int, config: tuple[str, str] | None = None
) -> CreateTopicsRequest:
    """Return a request for a topic with one partition on these nodes."""
    request = _create(name, -1)
    topic = request.topics[0]
    topic.replication_factor = -1
    topic.assignments = [
        CreateTopicsRequestCreatableReplicaAssignment(partition_index=0, broker_ids=[*replicas])
    ]
    if config is not None:
        topic.configs = [CreateTopicsRequestCreatableTopicConfig(name=config[0], value=config[1])]
    return request


def _deletion(name: str, offset: int) -> DeleteRecordsRequest:
    asked = DeleteRecordsRequestPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsRequestTopic(name=name, partitions=[asked])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)


def _long_commit(topic: str, member: str, generation: int) -> OffsetCommitRequest:
    row = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=3, committed_metadata="m" * 5000
    )
    return OffsetCommitRequest(
        group_id="two",
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])],
    )


def _two_errors() -> Sequence[Exchange]:
    """Requests with two errors: the answer has the one that the broker looks for first."""
    compacted = _create("k")
    compacted.topics[0].configs = [
        CreateTopicsRequestCreatableTopicConfig(name="cleanup.policy", value="compact")
    ]
    zstd = _of_codec(4)
    by_id = MetadataRequest(
        topics=[MetadataRequestTopic(name=None, topic_id=bytes(15) + b"\7")],
        allow_auto_topic_creation=False,
    )
    by_both = MetadataRequest(
        topics=[MetadataRequestTopic(name="t", topic_id=bytes(15) + b"\7")],
        allow_auto_topic_creation=False,
    )
    commits = {
        "no member": _long_commit("t", "m", 3),
        "no group member": _long_commit("t", "", -1),
        "no topic": _long_commit("none", "", -1),
    }
    return [
        ("create what exists on no node", _placed("t", 7), 5),
        ("create what exists with no replica", _create("t", 0), 5),
        ("create on no node with a bad config", _placed("n", 7, config=("flush.messages", "0")), 5),
        ("create twice on a node", _placed("n", 1, 1), 5),
        ("create a compacted topic", compacted, 5),
        *((f"delete compacted records, offset {offset}", _deletion("k", offset), 2)
          for offset in (0, -1, 99)),
        *((f"{name}, version {version}", produce(topic, (number, data)), version)
          for name, topic, number, data in (
              ("zstd to no topic", "none", 0, zstd), ("zstd to no partition", "t", 9, zstd),
              ("a cut batch to no partition", "t", 9, zstd[:-1]), ("nothing to no partition", "t", 9, None))
          for version in (3, 9)),
        *((f"metadata by {name}, version {version}", request, version)
          for name, request in (("id", by_id), ("name and id", by_both)) for version in (10, 11, 12)),
        *((f"commit long metadata as {name}", request, 8) for name, request in commits.items()),
        *((f"fetch in epoch 7, version {version}", _in_epoch(7), version) for version in (9, 12)),
    ]  # fmt: skip


def _in_epoch(epoch: int) -> FetchRequest:
    """Return a fetch of a client that knows this epoch of the partition."""
    request = fetch("t", (0, 0))
    request.topics[0].partitions[0].current_leader_epoch = epoch
    return request


async def answers(connection: Connection, *, pause_s: float = 0) -> dict[str, Any]:
    """Send the requests, and return the comparable answers by name.

    `pause_s`: after a topic is created, since a real broker hears of it later than the creator.
    """
    found, own = {}, SERVERS_OWN - {"leader_epoch"}
    for name, message, version in exchanges():
        found[name] = await answered(connection, message, version, own=own)
        if isinstance(message, CreateTopicsRequest):
            await asyncio.sleep(pause_s)
    return found


if __name__ == "__main__":
    print_answers(partial(answers, pause_s=1))
