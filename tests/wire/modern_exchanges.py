"""Consumer groups of the new protocol (KIP-848), and requests that name topics by id: the same for the real broker and
for this server.

Owns the requests and the groups' state between them; must not know the answers. `python -P -m
tests.wire.modern_exchanges HOST:PORT` prints the answers of a running broker with an empty store as JSON:
recorded_modern.json holds the real one's (Kafka 4.3.1, with
group.consumer.assignment.interval.ms=0 and group.consumer.migration.policy=disabled).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from api.kafka.protocol.messages.cluster import (
    FindCoordinatorRequest,
)
from api.kafka.protocol.messages.group_admin import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from api.kafka.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from api.kafka.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    HeartbeatRequest,
    LeaveGroupRequest,
    LeaveGroupRequestMemberIdentity,
)
from api.kafka.protocol.messages.metadata import MetadataRequest
from api.kafka.protocol.messages.produce import ProduceRequest, ProduceRequestTopicProduceData
from api.kafka.protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
    DeleteTopicsRequest,
)
from tests.wire.exchanges import comparable, print_answers
from tests.wire.group_requests import commit, fetched_as, join, sync
from tests.wire.harness import Connection, batch, produce

COORDINATOR_LOADS: Final = (14, 15, 16)
NO_ID: Final = bytes(16)
UNKNOWN: Final = bytes(15) + b"\7"
LEAVE: Final = -1
LEAVE_FOR_NOW: Final = -2
SERVERS_OWN: Final = frozenset({"client_host", "client_id", "authorized_operations"})

Owned = Mapping[str, Sequence[int]]


class Script:
    """The requests of one run, and the answers that were given."""

    def __init__(self, connection: Connection, pause_s: float) -> None:
        self.connection = connection
        self.pause_s = pause_s
        self.answers: dict[str, Any] = {}
        self.ids: dict[str, bytes] = {}
        self.names: dict[bytes, str] = {}

    async def create(self, **topics: int) -> None:
        """Create topics by name and partition count, and learn their ids."""
        rows = [
            CreateTopicsRequestCreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in topics.items()
        ]
        await self.connection.call(CreateTopicsRequest(topics=rows, timeout_ms=10_000), 7)
        found = await self.connection.call(MetadataRequest(topics=None), 12)
        self.ids = {topic.name: topic.topic_id for topic in found.topics}
        self.names = {topic_id: name for name, topic_id in self.ids.items()}

    def owned(self, partitions: Owned) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
        """Return partitions by topic as a member reports them."""
        return [
            ConsumerGroupHeartbeatRequestTopicPartitions(
                topic_id=self.ids[name], partitions=list(numbers)
            )
            for name, numbers in partitions.items()
        ]

    async def send(self, name: str, message: Any, version: int) -> Any:
        """Send a request, and note its answer."""
        answer = await self.connection.call(message, version)
        self.answers[name] = self._named(comparable(answer))
        return answer

    async def send_by_id(self, name: str, message: Any, version: int) -> None:
        """Send a request that names topics by id, and note the rows of its answer by the topics' names."""
        answer = await self.connection.call(message, version)
        groups = getattr(answer, "groups", [answer])
        rows = [
            (
                self.names.get(topic.topic_id, topic.topic_id.hex()),
                topic.name,
                self._named(
                    comparable(
                        getattr(topic, "partitions", None)
                        or getattr(topic, "partition_responses", [])
                    )
                ),
            )
            for group in groups
            for topic in getattr(group, "topics", None) or getattr(group, "responses", [])
        ]
        codes = [getattr(group, "error_code", 0) for group in groups]
        self.answers[f"by id: {name}"] = {"codes": codes, "rows": sorted(rows, key=json.dumps)}

    def _named(self, value: Any, field: str = "") -> Any:
        if field in SERVERS_OWN:
            return None
        if isinstance(value, dict):
            return {key: self._named(inner, key) for key, inner in value.items()}
        return [self._named(item) for item in value] if isinstance(value, list) else value

    async def beat(
        self,
        name: str,
        member: str,
        epoch: int,
        *,
        version: int = 1,
        owned: Owned | None = None,
        topics: Sequence[str] | None = None,
        **changed: Any,
    ) -> Any:
        """Send a heartbeat, and note its answer with the topics by name."""
        joins = epoch == 0
        fields: dict[str, Any] = {
            "group_id": "g",
            "member_id": member,
            "member_epoch": epoch,
            "rebalance_timeout_ms": 60_000 if joins else -1,
            "subscribed_topic_names": (["t"] if joins else None) if topics is None else [*topics],
            "topic_partitions": (([] if joins else None) if owned is None else self.owned(owned)),
        }
        request = ConsumerGroupHeartbeatRequest(**{**fields, **changed})
        answer = await self.connection.call(request, version)
        assigned = None
        if answer.assignment is not None:
            assigned = {
                self.names[row.topic_id]: sorted(row.partitions)
                for row in answer.assignment.topic_partitions
            }
        self.answers[name] = {
            "error": answer.error_code,
            "message": answer.error_message is not None,
            "member": answer.member_id,
            "epoch": answer.member_epoch,
            "interval": answer.heartbeat_interval_ms,
            "assigned": assigned,
        }
        return answer

    async def describe(self, name: str, *groups: str, version: int = 1) -> None:
        """Describe groups of the new protocol."""
        await self.send(name, ConsumerGroupDescribeRequest(group_ids=[*groups]), version)

    async def commit(self, name: str, member: str, epoch: int, *, version: int = 9) -> None:
        """Commit an offset of t-0."""
        request = commit({("t", 0): 0}, member_id=member, generation=epoch)
        await self.send(name, request, version)

    async def fetch(self, name: str, member: str | None, epoch: int) -> None:
        """Fetch the offset of t-0 as a member."""
        await self.send(name, fetched_as(member, epoch), 9)


async def answers(connection: Connection, *, pause_s: float = 0) -> dict[str, Any]:
    """Send the requests, and return the comparable answers by name.

    `pause_s`: after the topics are created, since a real coordinator hears of them later than the creator.
    """
    script = Script(connection, pause_s)
    await _until_coordinating(connection)
    await script.create(t=4, u=2)
    await asyncio.sleep(pause_s)
    parts = (
        _bad_input, _two_members, _offsets, _static, _subscriptions, _views, _kinds, _reports, _by_id,
    )  # fmt: skip
    for part in parts:
        await part(script)
    return _without_member_ids(script.answers)


async def _until_coordinating(connection: Connection) -> None:
    """Wait until a new broker has created and loaded its groups."""
    ready = False
    while not ready:
        await connection.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        found = await connection.call(DescribeGroupsRequest(groups=["g"]), 5)
        ready = found.groups[0].error_code not in COORDINATOR_LOADS


async def _bad_input(script: Script) -> None:
    beat = script.beat
    await beat("no group", "m", 0, group_id="")
    await beat("no member id", "", 0)
    await beat("no member id later", "", 3)
    await beat("empty instance id", "m", 0, instance_id="")
    await beat("empty rack", "m", 0, rack_id="")
    await beat("no rebalance timeout", "m", 0, rebalance_timeout_ms=-1)
    await beat("no topics", "m", 0, topics=(), group_id="e")
    await beat("m leaves", "m", LEAVE, group_id="e")
    await beat("null topics", "m", 0, subscribed_topic_names=None)
    await beat("partitions at a join", "m", 0, owned={"t": (0,)})
    await beat("null partitions at a join", "m", 0, topic_partitions=None)
    await beat("epoch -3", "m", -3)
    await beat("leave for now without an instance", "m", LEAVE_FOR_NOW)
    await beat("unknown assignor", "m", 0, server_assignor="sticky")
    await beat("bad pattern", "m", 0, topics=(), subscribed_topic_regex="(")
    await beat("unknown group", "m", 5, group_id="none")
    await beat("leave an unknown group", "m", LEAVE, group_id="none")
    await script.describe("describe unknown groups", "none", "")


async def _two_members(script: Script) -> None:
    beat = script.beat
    await beat("a joins", "a", 0)
    await script.describe("one member", "g")
    await beat("a goes on", "a", 2, owned={"t": (0, 1, 2, 3)})
    await beat("a goes on without partitions", "a", 2)
    await beat(
        "a asks for all",
        "a",
        2,
        owned={"t": (0, 1, 2, 3)},
        topics=("t",),
        rebalance_timeout_ms=60_000,
    )
    await beat("b joins", "b", 0)
    await script.describe("two members", "g")
    await beat("b waits", "b", 3, owned={})
    await beat("a is asked to revoke", "a", 2, owned={"t": (0, 1, 2, 3)})
    await beat("a has not revoked", "a", 2, owned={"t": (0, 1, 2, 3)})
    await beat("a says nothing of partitions", "a", 2)
    await script.describe("while a revokes", "g", version=0)
    await beat("b waits again", "b", 3, owned={})
    await beat("a has revoked", "a", 2, owned={"t": (0, 1)})
    await beat("b gets its partitions", "b", 3, owned={})
    await beat("b has them", "b", 3, owned={"t": (2, 3)})
    await script.describe("stable again", "g")
    await beat("a sends its last epoch", "a", 2, owned={"t": (0, 1)})
    await beat("a sends its last epoch with other partitions", "a", 2, owned={"t": (3,)})
    await beat("a sends a later epoch", "a", 9)
    await beat("an unknown member", "x", 3)
    await beat("a joins again", "a", 0)
    await script.describe("after a joined again", "g")
    await beat("c joins with range", "c", 0, server_assignor="range")
    await script.describe("three members", "g")


async def _offsets(script: Script) -> None:
    await script.commit("commit as an unknown member", "x", 3)
    await script.commit("commit with an old epoch", "b", 2)
    await script.commit("commit with a later epoch", "b", 8)
    await script.commit("commit without a member", "", -1)
    await script.commit("commit in an old version", "b", 3, version=8)
    await script.fetch("fetch as an unknown member", "x", 3)
    await script.fetch("fetch with an old epoch", "b", 2)
    await script.fetch("fetch with a later epoch", "b", 8)
    await script.fetch("fetch without a member", None, -1)
    for member in "abc":
        await script.beat(f"{member} leaves", member, LEAVE)
    await script.beat("a leaves twice", "a", LEAVE)
    await script.describe("all have left", "g")
    await script.commit("commit to the empty group", "", -1)
    await script.commit("commit to the empty group with an epoch", "", 3)
    await script.fetch("fetch from the empty group", None, -1)


async def _static(script: Script) -> None:
    beat = script.beat
    ids: dict[str, Any] = {"group_id": "s", "instance_id": "i"}
    await beat("s1 joins", "s1", 0, **ids)
    await beat("s2 cannot join", "s2", 0, **ids)
    await beat("s2 goes on", "s2", 2, **ids)
    await beat("another instance", "s1", 2, group_id="s", instance_id="j")
    await beat("s1 without its instance", "s1", 2, group_id="s")
    await beat("s1 leaves for now", "s1", LEAVE_FOR_NOW, **ids)
    await script.describe("without s1", "s")
    await beat("s1 goes on after it left", "s1", 2, **ids)
    await beat("s2 leaves", "s2", LEAVE, **ids)
    await beat("s2 takes its place", "s2", 0, **ids)
    await script.describe("s2 in its place", "s")
    await beat("s1 is fenced", "s1", 2, **ids)
    await beat("s2 has the partitions", "s2", 2, owned={"t": (0, 1, 2, 3)}, **ids)
    await beat("s2 leaves for good", "s2", LEAVE, **ids)
    await script.describe("no static member", "s")


async def _subscriptions(script: Script) -> None:
    beat = script.beat
    await beat("h1 joins", "h1", 0, group_id="h", topics=("t", "u"))
    await beat("h2 joins for another topic", "h2", 0, group_id="h", topics=("u",))
    await beat("h1 must revoke", "h1", 2, group_id="h", owned={"t": (0, 1, 2, 3), "u": (0, 1)})
    await beat("h1 has revoked", "h1", 2, group_id="h", owned={"t": (0, 1, 2, 3)})
    await beat("h2 gets the topic", "h2", 3, group_id="h", owned={})
    await beat(
        "h2 subscribes to no topic that exists",
        "h2",
        3,
        group_id="h",
        topics=("w",),
        owned={"u": (0, 1)},
    )
    await beat("h2 has revoked", "h2", 3, group_id="h", owned={})
    await beat("h1 gets all", "h1", 3, group_id="h", owned={"t": (0, 1, 2, 3)})
    await script.describe("different topics", "h")
    for member in ("h1", "h2"):
        await beat(f"{member} leaves", member, LEAVE, group_id="h")
    await beat("a topic that does not exist", "n1", 0, group_id="n", topics=("w",))
    await script.describe("nothing to assign", "n")
    await beat("n1 leaves", "n1", LEAVE, group_id="n")
    await beat("version 0", "v1", 0, group_id="v", version=0)
    await beat("v1 leaves", "v1", LEAVE, group_id="v", version=0)


async def _views(script: Script) -> None:
    await script.beat("d joins", "d", 0, group_id="d")
    await script.send("describe as classic", DescribeGroupsRequest(groups=["d"]), 5)
    await script.send("describe as classic, version 6", DescribeGroupsRequest(groups=["d"]), 6)
    await script.send("list all", ListGroupsRequest(), 5)
    await script.send("list consumer groups", ListGroupsRequest(types_filter=["Consumer"]), 5)
    await script.send("list classic groups", ListGroupsRequest(types_filter=["classic"]), 5)
    await script.send("list stable groups", ListGroupsRequest(states_filter=["stable"]), 5)
    await script.send("list empty groups", ListGroupsRequest(states_filter=["Empty"]), 5)
    await script.send("list in version 4", ListGroupsRequest(), 4)
    await script.send("delete with members", DeleteGroupsRequest(groups_names=["d", "g"]), 2)
    await script.describe("after the deletion", "g", "d")


async def _kinds(script: Script) -> None:
    heartbeat = HeartbeatRequest(group_id="d", member_id="d", generation_id=1)
    await script.send("classic heartbeat", heartbeat, 4)
    await script.send("classic sync", sync("d", 1, group_id="d"), 5)
    await script.send("classic join with members", join("d"), 3)
    members = [
        LeaveGroupRequestMemberIdentity(member_id="x"),
        LeaveGroupRequestMemberIdentity(member_id="", group_instance_id="i"),
        LeaveGroupRequestMemberIdentity(member_id="d"),
    ]
    await script.send("classic leave", LeaveGroupRequest(group_id="d", members=members), 5)
    await script.beat("d has left", "d", LEAVE, group_id="d")
    await script.send("classic join of an empty group", join("d"), 3)
    await script.describe("describe a classic group", "d")
    await script.beat("join a classic group", "e", 0, group_id="d")
    await script.beat("go on in a classic group", "e", 1, group_id="d")
    await script.beat("leave a classic group", "e", LEAVE, group_id="d")


async def _reports(script: Script) -> None:
    """A member that reports none of its new partitions gives them up at once; another one gets them."""
    ids: dict[str, Any] = {"group_id": "r"}
    await script.beat("r1 joins", "r1", 0, **ids)
    await script.beat("r2 joins after r1", "r2", 0, **ids)
    await script.beat("r1 has taken nothing", "r1", 2, owned={}, **ids)
    await script.beat("r2 gets partitions of r1", "r2", 3, owned={}, **ids)
    late = commit({("t", 3): 0}, member_id="r1", generation=2, group="r")
    await script.send("r1 commits what r2 has", late, 9)
    taken = {"t": (0, 1, 2, 3)}
    await script.beat("r1 has taken all", "r1", 2, owned=taken, **ids)


async def _by_id(script: Script) -> None:
    """Produce 13, OffsetCommit 10, OffsetFetch 10."""
    t, u = script.ids["t"], script.ids["u"]
    good = (0, batch(b"a")), (9, batch(b"a"))
    await script.send_by_id("produce", produce_to({t: good, u: good[:1], UNKNOWN: good}), 13)
    await script.send_by_id("produce to no id", produce_to({NO_ID: good[:1]}), 13)
    await script.send_by_id("produce without records", produce_to({UNKNOWN: [(0, None)]}), 13)
    everything = {t: [0, 9], u: [1], UNKNOWN: [0, 1], NO_ID: [0]}
    await script.send_by_id("commit to an empty group", commit_to(everything, group="i"), 10)
    await script.send_by_id("commit of unknown ids", commit_to({UNKNOWN: [0]}, group="i"), 10)
    unknown = commit_to({t: [0], UNKNOWN: [0]}, group="i", member="x", epoch=3)
    await script.send_by_id("commit as no member", unknown, 10)
    await script.send_by_id("fetch", fetch_of(everything, group="i"), 10)
    await script.send_by_id("fetch all", fetch_of(None, group="i"), 10)
    await script.beat("o joins", "o", 0, group_id="o")
    for epoch in (1, 2, 3):
        member: dict[str, Any] = {"group": "o", "member": "o", "epoch": epoch}
        await script.send_by_id(f"commit, epoch {epoch}", commit_to({t: [0]}, **member), 10)
        await script.send_by_id(f"fetch, epoch {epoch}", fetch_of({t: [0]}, **member), 10)
    request = DeleteTopicsRequest(topic_names=["u"], timeout_ms=10_000)
    await script.connection.call(request, 5)
    await asyncio.sleep(script.pause_s)
    await script.send_by_id("produce after a deletion", produce_to({u: good[:1]}), 13)
    await script.send_by_id("commit after a deletion", commit_to({u: [1]}, group="i"), 10)
    await script.send_by_id("fetch after a deletion", fetch_of({u: [1], t: [0]}, group="i"), 10)
    await script.send_by_id("fetch all after a deletion", fetch_of(None, group="i"), 10)


def produce_to(parts: Mapping[bytes, Sequence[tuple[int, bytes | None]]]) -> ProduceRequest:
    """Return a request to produce to partitions of topics by id."""
    rows = [
        ProduceRequestTopicProduceData(
            topic_id=topic_id, partition_data=produce("", *data).topic_data[0].partition_data
        )
        for topic_id, data in parts.items()
    ]
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=5_000, topic_data=rows)


def commit_to(
    partitions: Mapping[bytes, Sequence[int]], *, group: str, member: str = "", epoch: int = -1
) -> OffsetCommitRequest:
    """Return a commit of offset 0 of partitions of topics by id."""
    rows = [
        OffsetCommitRequestTopic(
            topic_id=topic_id,
            partitions=[OffsetCommitRequestPartition(partition_index=number) for number in numbers],
        )
        for topic_id, numbers in partitions.items()
    ]
    return OffsetCommitRequest(
        group_id=group, member_id=member, generation_id_or_member_epoch=epoch, topics=rows
    )


def fetch_of(
    partitions: Mapping[bytes, Sequence[int]] | None,
    *,
    group: str,
    member: str | None = None,
    epoch: int = -1,
) -> OffsetFetchRequest:
    """Return a fetch of the offsets of partitions of topics by id; None: all."""
    rows = [
        OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[*numbers])
        for topic_id, numbers in (partitions or {}).items()
    ]
    asked = OffsetFetchRequestGroup(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        topics=None if partitions is None else rows,
    )
    return OffsetFetchRequest(groups=[asked])


def _without_member_ids(found: dict[str, Any]) -> dict[str, Any]:
    """Leave out the ids that a server chose."""
    for name in ("no member id", "classic join of an empty group"):
        for field in ("member", "member_id", "leader", "members"):
            found[name].pop(field, None)
    return found


if __name__ == "__main__":
    print_answers(partial(answers, pause_s=3))
