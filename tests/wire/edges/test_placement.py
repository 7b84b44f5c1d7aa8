"""Where partitions are: what no recording of the real broker holds, since its texts are its own."""

from __future__ import annotations

from typing import Any

import pytest

from api.kafka.client_topics import ClientTopics
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.placement import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestReassignablePartition,
    AlterPartitionReassignmentsRequestReassignableTopic,
    ElectLeadersRequest,
    ElectLeadersRequestTopicPartitions,
)
from api.kafka.protocol.primitives import MAX_STRING_BYTES
from storage import TopicInfo
from tests.wire.harness import Broker, Connection

LONGEST = "x" * MAX_STRING_BYTES
SHORT_TEXT = 100


def election(numbers: range) -> ElectLeadersRequest:
    """Return a request for partitions of a topic with the longest name that the wire has."""
    topics = [ElectLeadersRequestTopicPartitions(topic=LONGEST, partitions=list(numbers))]
    return ElectLeadersRequest(topic_partitions=topics, timeout_ms=1000)


def reassignment() -> AlterPartitionReassignmentsRequest:
    """Return a request for one partition of that topic."""
    asked = AlterPartitionReassignmentsRequestReassignablePartition(partition_index=0, replicas=[1])
    topics = [AlterPartitionReassignmentsRequestReassignableTopic(name=LONGEST, partitions=[asked])]
    return AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=1000)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_an_election_of_a_topic_with_a_long_name(
    kafka: Broker, connection: Connection, version: int
) -> None:
    answer = await connection.call(election(range(1000)), version)
    (topic,) = answer.replica_election_results
    assert topic.topic == LONGEST
    assert [row.partition_id for row in topic.partition_result] == list(range(1000))
    for row in topic.partition_result:
        check(row)


@pytest.mark.parametrize("version", [0, 1])
async def test_a_reassignment_of_a_topic_with_a_long_name(
    kafka: Broker, connection: Connection, version: int
) -> None:
    answer = await connection.call(reassignment(), version)
    (topic,) = answer.responses
    assert topic.name == LONGEST
    (row,) = topic.partitions
    check(row)


async def test_a_large_topic_that_is_named_often_is_looked_at_once(
    kafka: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look costs the number of its partitions, and the names of a megabyte are a hundred thousand."""
    await kafka.api.create("t")
    looks: list[str] = []
    find = ClientTopics.__getitem__

    def looked_at(topics: ClientTopics, name: str) -> TopicInfo:
        looks.append(name)
        return find(topics, name)

    monkeypatch.setattr(ClientTopics, "__getitem__", looked_at)
    often = [ElectLeadersRequestTopicPartitions(topic="t", partitions=[0]) for _ in range(100)]
    request = ElectLeadersRequest(topic_partitions=often, timeout_ms=1000)
    answer = await connection.call(request)
    codes = [row.partition_result[0].error_code for row in answer.replica_election_results]
    assert codes == [ErrorCode.ELECTION_NOT_NEEDED] * 100
    assert looks == ["t"]


def check(row: Any) -> None:
    """Check that a partition is refused with a text that does not grow with the request."""
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert 0 < len(row.error_message) < SHORT_TEXT
