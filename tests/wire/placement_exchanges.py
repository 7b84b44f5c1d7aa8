"""The same requests on where partitions are for the real broker and for this server.

Owns the requests; must not know the answers. `python -m tests.wire.placement_exchanges HOST:PORT` prints the answers
of a running broker with an empty store as JSON: recorded_placement.json holds the real one's (Kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from api.kafka.protocol.messages.cluster import (
    DescribeClusterRequest,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from api.kafka.protocol.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsRequestTopicRequest,
)
from api.kafka.protocol.messages.placement import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestReassignablePartition,
    AlterPartitionReassignmentsRequestReassignableTopic,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestAlterReplicaLogDir,
    AlterReplicaLogDirsRequestAlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ElectLeadersRequestTopicPartitions,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequestTopics,
)
from api.kafka.protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
)
from api.kafka.protocol.messages.transaction_admin import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
)
from tests.wire.exchanges import comparable, print_answers
from tests.wire.harness import Connection

PREFERRED, UNCLEAN = 0, 1
LOG_OF_A_CLUSTER: Final = frozenset({"high_watermark", "log_end_offset", "endpoints"})
"""The real one has a log of its metadata and a listener of its controller."""
CLOCK: Final = frozenset({"last_fetch_timestamp", "last_caught_up_timestamp"})


def _elect(
    kind: int, *parts: tuple[str, Sequence[int]] | None, timeout_ms: int = 10_000
) -> ElectLeadersRequest:
    topics = [
        ElectLeadersRequestTopicPartitions(topic=p[0], partitions=list(p[1])) for p in parts if p
    ]
    return ElectLeadersRequest(
        election_type=kind,
        topic_partitions=topics if parts else None,
        timeout_ms=timeout_ms,
    )


def _assign(
    topic: str, number: int, replicas: list[int] | None, timeout_ms: int = 10_000
) -> AlterPartitionReassignmentsRequest:
    part = AlterPartitionReassignmentsRequestReassignablePartition(
        partition_index=number, replicas=replicas
    )
    return AlterPartitionReassignmentsRequest(
        topics=[AlterPartitionReassignmentsRequestReassignableTopic(name=topic, partitions=[part])],
        timeout_ms=timeout_ms,
    )


def _too_late(node_id: int) -> Sequence[tuple[str, Any, int]]:
    """Return requests that are too late for their timeout when they arrive, and elections of an unknown type."""
    both = ("t", (0,)), ("u", (0,))
    nothing = AlterPartitionReassignmentsRequest(topics=[], timeout_ms=0)
    return (
        *((f"elect of none, type {kind}, version {version}", _elect(kind, None), version)
          for kind in (UNCLEAN, 9) for version in (0, 1, 2)),
        ("elect of all, an unknown type", _elect(9), 2),
        *((f"elect{what}, timeout {timeout_ms}, version {version}",
           _elect(kind, *parts, timeout_ms=timeout_ms), version)
          for what, kind, parts in (("", PREFERRED, both), (" of an unknown type", 9, both),
                                    (" of none", PREFERRED, (None,)), (" of all", PREFERRED, ()))
          for timeout_ms in (0, -1) for version in (0, 1, 2)),
        *((f"assign, timeout {timeout_ms}, version {version}",
           _assign("t", 0, [node_id], timeout_ms), version)
          for timeout_ms in (0, -1) for version in (0, 1)),
        ("assign nothing, timeout 0", nothing, 1),
        ("reassignments, timeout 0", ListPartitionReassignmentsRequest(topics=None, timeout_ms=0), 0),
    )  # fmt: skip


def _producers() -> Sequence[tuple[str, Any, int]]:
    """Return the requests for the producers of partitions, most of which do not exist or cannot exist."""
    names = {
        name[:9]: name for name in ("t", "u", "a b", "", "x" * 250, "..", "__consumer_offsets")
    }
    return [
        (
            f"producers of {shown!r}",
            DescribeProducersRequest(
                topics=[DescribeProducersRequestTopicRequest(name=name, partition_indexes=[0, 7])]
            ),
            0,
        )
        for shown, name in names.items()
    ]


def _reassignments(*parts: tuple[str, Sequence[int]]) -> ListPartitionReassignmentsRequest:
    topics = [
        ListPartitionReassignmentsRequestTopics(name=name, partition_indexes=list(numbers))
        for name, numbers in parts
    ]
    return ListPartitionReassignmentsRequest(topics=topics if parts else None)


def _move(path: str, topic: str, *numbers: int) -> AlterReplicaLogDirsRequest:
    moved = AlterReplicaLogDirsRequestAlterReplicaLogDirTopic(name=topic, partitions=list(numbers))
    return AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDirsRequestAlterReplicaLogDir(path=path, topics=[moved])]
    )


def _quorum(topic: str, number: int) -> DescribeQuorumRequest:
    part = DescribeQuorumRequestPartitionData(partition_index=number)
    return DescribeQuorumRequest(
        topics=[DescribeQuorumRequestTopicData(topic_name=topic, partitions=[part])]
    )


def _describe(
    *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsRequest:
    at = None
    if cursor is not None:
        at = DescribeTopicPartitionsRequestCursor(topic_name=cursor[0], partition_index=cursor[1])
    return DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequestTopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=at,
    )


def _descriptions() -> Sequence[tuple[str, Any, int]]:
    """Return the requests that describe topics. The topics `t` with two partitions and `v` with three are there."""
    created = CreateTopicsRequest(
        topics=[CreateTopicsRequestCreatableTopic(name="v", num_partitions=3, replication_factor=1)]
    )
    return (
        ("create another", created, 6),
        ("describe", _describe("t"), 0),
        ("describe all", _describe(), 0),
        ("describe both", _describe("v", "t"), 0),
        ("describe twice", _describe("t", "t"), 0),
        ("describe an unknown topic", _describe("u", "t"), 0),
        ("describe a bad name", _describe("a b", "t"), 0),
        ("describe one partition", _describe("t", "v", limit=1), 0),
        ("describe two partitions", _describe("t", "v", limit=2), 0),
        ("describe three partitions", _describe("t", "v", limit=3), 0),
        ("describe from within a topic", _describe("t", "v", cursor=("t", 1)), 0),
        ("describe from the end of a topic", _describe("t", "v", cursor=("t", 2)), 0),
        ("describe from beyond a topic", _describe("t", "v", cursor=("t", 7)), 0),
        ("describe from another topic", _describe("t", "v", cursor=("v", 1), limit=1), 0),
        ("describe from an unknown topic", _describe("t", "v", cursor=("u", 1)), 0),
        ("describe from a topic not asked for", _describe("v", cursor=("t", 1)), 0),
        ("describe all from a topic", _describe(cursor=("t", 1), limit=2), 0),
        ("describe none", _describe("t", limit=0), 0),
        ("describe fewer than none", _describe("t", limit=-3), 0),
        ("describe from a negative partition", _describe("t", cursor=("t", -1)), 0),
        ("describe unknown ones with a limit", _describe("s", "t", "u", limit=2), 0),
    )


def exchanges(node_id: int, path: str) -> Sequence[tuple[str, Any, int]]:
    """Return the requests in order, each with a name and its version. `path`: the server's log directory."""
    created = CreateTopicsRequest(
        topics=[CreateTopicsRequestCreatableTopic(name="t", num_partitions=2, replication_factor=1)]
    )
    return (
        ("create", created, 6),
        ("elect", _elect(PREFERRED, ("t", (0, 1))), 2),
        ("elect, version 1", _elect(PREFERRED, ("t", (0,))), 1),
        ("elect, version 0", _elect(PREFERRED, ("t", (0,))), 0),
        ("elect an unclean leader", _elect(UNCLEAN, ("t", (0,))), 2),
        ("elect of all", _elect(PREFERRED), 2),
        ("elect of all, unclean", _elect(UNCLEAN), 2),
        ("elect of none", _elect(PREFERRED, None), 2),
        ("elect of unknown ones", _elect(PREFERRED, ("t", (7,)), ("u", (0,))), 2),
        ("elect, an unknown type", _elect(9, ("t", (0,))), 2),
        ("elect twice", _elect(PREFERRED, ("t", (0, 0)), ("t", (0,))), 2),
        ("assign", _assign("t", 0, [node_id]), 0),
        ("assign, version 1", _assign("t", 0, [node_id]), 1),
        ("assign to another node", _assign("t", 0, [77]), 1),
        ("assign to two nodes", _assign("t", 0, [node_id, 77]), 1),
        ("assign twice to one node", _assign("t", 0, [node_id, node_id]), 1),
        ("assign to no node", _assign("t", 0, []), 1),
        ("assign to a negative node", _assign("t", 0, [-1]), 1),
        ("cancel", _assign("t", 0, None), 1),
        ("cancel an unknown partition", _assign("t", 7, None), 1),
        ("assign an unknown partition", _assign("t", 7, [node_id]), 1),
        ("assign an unknown topic", _assign("u", 0, [node_id]), 1),
        ("assign nothing", AlterPartitionReassignmentsRequest(topics=[]), 1),
        *_too_late(node_id),
        ("reassignments", _reassignments(), 0),
        ("reassignments of a partition", _reassignments(("t", (0,))), 0),
        ("reassignments of unknown ones", _reassignments(("t", (7,)), ("u", (0,))), 0),
        ("move to the same directory", _move(path, "t", 0, 1), 2),
        ("move to the same directory, version 1", _move(path, "t", 0), 1),
        ("move to an unknown directory", _move("/no/such/directory", "t", 0), 2),
        ("move to a relative directory", _move("relative", "t", 0), 2),
        ("move an unknown topic", _move(path, "u", 0), 2),
        ("move an unknown partition", _move(path, "t", 7), 2),
        ("move nothing", AlterReplicaLogDirsRequest(dirs=[]), 2),
        ("quorum, version 0", _quorum("__cluster_metadata", 0), 0),
        ("quorum, version 1", _quorum("__cluster_metadata", 0), 1),
        ("quorum", _quorum("__cluster_metadata", 0), 2),
        ("quorum of another topic", _quorum("t", 0), 2),
        ("quorum of another partition", _quorum("__cluster_metadata", 1), 2),
        ("quorum of nothing", DescribeQuorumRequest(topics=[]), 2),
        *_descriptions(),
        *_producers(),
    )


def _shown(value: Any, name: str = "") -> Any:
    """Return a comparable value without times, and without the log that only the real broker has."""
    if name in CLOCK | LOG_OF_A_CLUSTER | {"listeners"}:
        return None
    if isinstance(value, dict):
        return {key: _shown(inner, key) for key, inner in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list) else value


async def answers(connection: Connection) -> dict[str, Any]:
    """Send the requests, and return the comparable answers by name."""
    node_id = (await connection.call(DescribeClusterRequest(), 1)).brokers[0].broker_id
    described = await connection.call(DescribeLogDirsRequest(topics=None), 4)
    requests = exchanges(node_id, described.results[0].log_dir)
    return {
        name: _shown(comparable(await connection.call(message, version)))
        for name, message, version in requests
    }


if __name__ == "__main__":
    print_answers(answers)
