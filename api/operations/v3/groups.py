"""Consumer groups of the Kafka REST v3 API: groups, their consumers and assignments, and their lag.

Owns these operations and their shapes; must not know how a group works. They show the groups of `/groups`: a consumer
is a consumer instance, and every offset is the next offset. Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from aiohttp import web
from msgspec import Struct

from api.http.errors import JSON, UNKNOWN_PARTITION, ApiError
from api.operation import Answer, Example, Resource
from api.operations.topics import BROKER_ID
from api.operations.v3.topics import (
    CLUSTER,
    V3_TOPICS,
    Listed,
    ListMetadata,
    Metadata,
    Related,
    Resources,
    resources_of,
)
from api.request_context import RequestContext
from logserver.errors import UnknownConsumer
from logserver.groups.overview import MemberOverview, Progress
from storage import TopicPartition

V3_GROUPS: Final = Resource(V3_TOPICS.tag)

GROUPS: Final = f"{CLUSTER}/consumer-groups"
GROUP: Final = f"{GROUPS}/{{group}}"
CONSUMER: Final = f"{GROUP}/consumers/{{consumer_id}}"
PARTITION: Final = "{topic}/partitions/{partition}"


class GroupData(Struct):
    """A group. `state` is STABLE if it has members, else EMPTY. `is_simple`: no member subscribes to topics."""

    kind: str
    metadata: Metadata
    cluster_id: str
    consumer_group_id: str
    is_simple: bool
    partition_assignor: str
    state: str
    type: str
    is_mixed_consumer_group: bool
    coordinator: Related
    consumers: Related
    lag_summary: Related


class ConsumerData(Struct):
    """A consumer instance, whose `client_id` is its name too, or a member that uses Kafka's protocol."""

    kind: str
    metadata: Metadata
    cluster_id: str
    consumer_group_id: str
    consumer_id: str
    instance_id: str | None
    client_id: str
    assignments: Related


class AssignmentData(Struct):
    """A partition that a consumer instance reads."""

    kind: str
    metadata: Metadata
    cluster_id: str
    consumer_group_id: str
    consumer_id: str
    topic_name: str
    partition_id: int
    partition: Related
    lag: Related


class LagData(Struct):
    """The lag of a group in one partition. `consumer_id` is empty if no instance reads the partition."""

    kind: str
    metadata: Metadata
    cluster_id: str
    consumer_group_id: str
    topic_name: str
    partition_id: int
    consumer_id: str
    instance_id: str | None
    client_id: str
    current_offset: int
    log_end_offset: int
    lag: int


class LagSummaryData(Struct):
    """The lag of a group in all partitions, and the partition with the largest lag."""

    kind: str
    metadata: Metadata
    cluster_id: str
    consumer_group_id: str
    max_lag_consumer_id: str
    max_lag_instance_id: str | None
    max_lag_client_id: str
    max_lag_topic_name: str
    max_lag_partition_id: int
    max_lag: int
    total_lag: int
    max_lag_consumer: Related
    max_lag_partition: Related


class GroupResources:
    """Creates the resources of one group; `of` creates the resources of its cluster."""

    def __init__(self, of: Resources, group: str) -> None:
        self._of = of
        self._group = group
        self._url = f"{of.url}/consumer-groups/{quote(group, safe='')}"

    def group(self, members: Sequence[MemberOverview]) -> GroupData:
        """Return the group."""
        return GroupData(
            "KafkaConsumerGroup",
            self._metadata(""),
            self._of.cluster_id,
            self._group,
            is_simple=not any(member.is_subscribed for member in members),
            partition_assignor="",  # the server's own rule has no name in Kafka
            state="STABLE" if members else "EMPTY",
            type="CLASSIC",
            is_mixed_consumer_group=False,
            coordinator=Related(f"{self._of.url}/brokers/{BROKER_ID}"),
            consumers=Related(f"{self._url}/consumers"),
            lag_summary=Related(f"{self._url}/lag-summary"),
        )

    def consumers(self, members: Sequence[MemberOverview]) -> Listed[ConsumerData]:
        """Return the list of these members."""
        metadata = ListMetadata(f"{self._url}/consumers")
        return Listed("KafkaConsumerList", metadata, [self.consumer(one) for one in members])

    def consumer(self, member: MemberOverview) -> ConsumerData:
        """Return one member."""
        url = self._consumer_url(member.name)
        return ConsumerData(
            "KafkaConsumer",
            self._metadata(f"/consumers/{quote(member.name, safe='')}", f"/consumer={member.name}"),
            self._of.cluster_id,
            self._group,
            member.name,
            instance_id=member.instance_id,
            client_id=member.client_id,
            assignments=Related(f"{url}/assignments"),
        )

    def assignments(self, member: MemberOverview) -> Listed[AssignmentData]:
        """Return the list of the partitions that a member reads."""
        metadata = ListMetadata(f"{self._consumer_url(member.name)}/assignments")
        data = [self.assignment(member, at) for at in member.partitions]
        return Listed("KafkaConsumerAssignmentList", metadata, data)

    def assignment(self, member: MemberOverview, at: TopicPartition) -> AssignmentData:
        """Return one partition that a member reads."""
        return AssignmentData(
            "KafkaConsumerAssignment",
            self._metadata(
                f"/consumers/{quote(member.name, safe='')}/assignments/{self._path(at)}",
                f"/consumer={member.name}/assignment={at.topic}/partition={at.partition}",
            ),
            self._of.cluster_id,
            self._group,
            member.name,
            *at,
            partition=Related(self._partition_url(at)),
            lag=Related(f"{self._url}/lags/{self._path(at)}"),
        )

    def lags(self, progress: Sequence[Progress]) -> Listed[LagData]:
        """Return the list of the lags in these partitions."""
        data = [lag for one in progress if (lag := self.lag(one)) is not None]
        return Listed("KafkaConsumerLagList", ListMetadata(f"{self._url}/lags"), data)

    def lag(self, progress: Progress) -> LagData | None:
        """Return the lag in one partition; None if nothing is committed there, or it does not exist."""
        at, committed, bounds = progress.partition, progress.committed, progress.bounds
        if committed is None or bounds is None:
            return None
        return LagData(
            "KafkaConsumerLag",
            self._metadata(f"/lags/{self._path(at)}", f"/lag={at.topic}/partition={at.partition}"),
            self._of.cluster_id,
            self._group,
            *at,
            consumer_id=progress.member or "",
            instance_id=None,
            client_id=progress.member or "",
            current_offset=committed.offset,
            log_end_offset=bounds.end,
            lag=progress.lag or 0,
        )

    def lag_summary(self, progress: Sequence[Progress]) -> LagSummaryData:
        """Return the sum and the largest of the lags. Raises 404 if the group has committed no offset."""
        lags = self.lags(progress).data
        if not lags:
            raise ApiError(404, f"group {self._group!r} has committed no offset: there is no lag")
        largest = max(lags, key=lambda lag: lag.lag)
        return LagSummaryData(
            "KafkaConsumerGroupLagSummary",
            self._metadata("/lag-summary", "/lag-summary"),
            self._of.cluster_id,
            self._group,
            max_lag_consumer_id=largest.consumer_id,
            max_lag_instance_id=None,
            max_lag_client_id=largest.client_id,
            max_lag_topic_name=largest.topic_name,
            max_lag_partition_id=largest.partition_id,
            max_lag=largest.lag,
            total_lag=sum(lag.lag for lag in lags),
            max_lag_consumer=Related(self._consumer_url(largest.consumer_id)),
            max_lag_partition=Related(
                self._partition_url(TopicPartition(largest.topic_name, largest.partition_id))
            ),
        )

    def _metadata(self, path: str, name: str = "") -> Metadata:
        """Return the metadata of the group, or of the part at `path` below it."""
        named = self._of.resource_name(f"/consumer-group={self._group}{name}")
        return Metadata(f"{self._url}{path}", named)

    def _consumer_url(self, name: str) -> str:
        return f"{self._url}/consumers/{quote(name, safe='')}"

    def _partition_url(self, at: TopicPartition) -> str:
        return f"{self._of.topic_url(at.topic)}/partitions/{at.partition}"

    def _path(self, at: TopicPartition) -> str:
        return f"{quote(at.topic, safe='')}/partitions/{at.partition}"


_ACCOUNTING: Final = {"group": "accounting"}
_GROUP: Final = {"kind": "KafkaConsumerGroup", "consumer_group_id": "billing", "state": "STABLE"}
_CONSUMER: Final = {"kind": "KafkaConsumer", "consumer_id": "worker-1"}
_ASSIGNMENT: Final = {"kind": "KafkaConsumerAssignment", "topic_name": "orders", "partition_id": 0}
_LAG: Final = {
    "kind": "KafkaConsumerLag",
    "topic_name": "orders",
    "partition_id": 0,
    "consumer_id": "",
    "current_offset": 1,
    "log_end_offset": 2,
    "lag": 1,
}


@V3_GROUPS.get(
    GROUPS,
    Answer(200, "The groups, in order of their names.", {JSON: Listed[GroupData]}),
    errors=(404,),
    examples=(Example(answer={"kind": "KafkaConsumerGroupList"}),),
)
async def v3_list_consumer_groups(call: RequestContext) -> web.Response:
    """All consumer groups.

    Groups with members or committed offsets.
    """
    resources, groups = resources_of(call), call.service.groups
    data = [
        GroupResources(resources, name).group(groups.members(name)) for name in await groups.names()
    ]
    metadata = ListMetadata(f"{resources.url}/consumer-groups")
    return call.json(Listed("KafkaConsumerGroupList", metadata, data))


@V3_GROUPS.get(
    GROUP,
    Answer(200, "The group.", {JSON: GroupData}),
    errors=(404, 40405),
    examples=(Example(answer=_GROUP),),
)
async def v3_get_consumer_group(call: RequestContext) -> web.Response:
    """One consumer group."""
    resources = _resources(call)
    group = await call.service.groups.overview(call.group)
    return call.json(resources.group(group.members))


@V3_GROUPS.get(
    f"{GROUP}/consumers",
    Answer(200, "The consumer instances, in order of their names.", {JSON: Listed[ConsumerData]}),
    errors=(404, 40405),
    examples=(Example(answer={"kind": "KafkaConsumerList"}),),
)
async def v3_list_consumers(call: RequestContext) -> web.Response:
    """The consumer instances of a group."""
    resources = _resources(call)
    group = await call.service.groups.overview(call.group)
    return call.json(resources.consumers(group.members))


@V3_GROUPS.get(
    CONSUMER,
    Answer(200, "The consumer instance.", {JSON: ConsumerData}),
    errors=(404, 40403, 40405),
    examples=(Example(answer=_CONSUMER),),
)
async def v3_get_consumer(call: RequestContext) -> web.Response:
    """One consumer instance."""
    resources = _resources(call)
    return call.json(resources.consumer(await _member(call)))


@V3_GROUPS.get(
    f"{CONSUMER}/assignments",
    Answer(200, "The partitions that it reads.", {JSON: Listed[AssignmentData]}),
    errors=(404, 40403, 40405),
    examples=(Example(answer={"kind": "KafkaConsumerAssignmentList", "data": [_ASSIGNMENT]}),),
)
async def v3_list_consumer_assignments(call: RequestContext) -> web.Response:
    """The partitions of a consumer instance."""
    resources = _resources(call)
    return call.json(resources.assignments(await _member(call)))


@V3_GROUPS.get(
    f"{CONSUMER}/assignments/{PARTITION}",
    Answer(200, "The partition.", {JSON: AssignmentData}),
    errors=(404, 40401, 40402, 40403, 40405, 50302),
    examples=(Example(answer=_ASSIGNMENT),),
)
async def v3_get_consumer_assignment(call: RequestContext) -> web.Response:
    """One partition of a consumer instance."""
    resources, member, at = _resources(call), await _member(call), call.partition
    if at not in member.partitions:
        raise ApiError(
            UNKNOWN_PARTITION, f"consumer {member.name!r} does not read {at.topic}-{at.partition}"
        )
    return call.json(resources.assignment(member, at))


@V3_GROUPS.get(
    f"{GROUP}/lags",
    Answer(200, "The lag of each partition with a committed offset.", {JSON: Listed[LagData]}),
    errors=(404, 40405),
    examples=(Example(path=_ACCOUNTING, answer={"kind": "KafkaConsumerLagList", "data": [_LAG]}),),
)
async def v3_list_consumer_lags(call: RequestContext) -> web.Response:
    """The lag of a group, by partition.

    Partitions that do not exist any more are left out.
    """
    resources = _resources(call)
    group = await call.service.groups.overview(call.group)
    return call.json(resources.lags(group.progress))


@V3_GROUPS.get(
    f"{GROUP}/lags/{PARTITION}",
    Answer(200, "The lag.", {JSON: LagData}),
    errors=(404, 40401, 40402, 40405, 50302),
    examples=(Example(path=_ACCOUNTING, answer=_LAG),),
)
async def v3_get_consumer_lag(call: RequestContext) -> web.Response:
    """The lag of a group in one partition.

    404 if the group has committed no offset there.
    """
    resources, at = _resources(call), call.partition
    group = await call.service.groups.overview(call.group)
    lags = [resources.lag(progress) for progress in group.progress if progress.partition == at]
    if not lags or lags[0] is None:
        problem = f"group {call.group!r} has committed no offset in {at.topic}-{at.partition}"
        raise ApiError(404, problem)
    return call.json(lags[0])


@V3_GROUPS.get(
    f"{GROUP}/lag-summary",
    Answer(200, "The sum and the largest of the lags.", {JSON: LagSummaryData}),
    errors=(404, 40405),
    examples=(
        Example(
            path=_ACCOUNTING,
            answer={
                "kind": "KafkaConsumerGroupLagSummary",
                "max_lag_topic_name": "orders",
                "max_lag_partition_id": 0,
                "max_lag": 1,
                "total_lag": 1,
            },
        ),
    ),
)
async def v3_get_consumer_group_lag_summary(call: RequestContext) -> web.Response:
    """The lag of a group, in all.

    404 if the group has committed no offset.
    """
    resources = _resources(call)
    group = await call.service.groups.overview(call.group)
    return call.json(resources.lag_summary(group.progress))


def _resources(call: RequestContext) -> GroupResources:
    """Return the resources of the group in the path. Raises 404 for another cluster."""
    return GroupResources(resources_of(call), call.group)


async def _member(call: RequestContext) -> MemberOverview:
    """Return the consumer instance in the path. Raises UnknownGroup, UnknownConsumer."""
    group, name = await call.service.groups.overview(call.group), call.path["consumer_id"]
    for member in group.members:
        if member.name == name:
            return member
    raise UnknownConsumer(group=call.group, instance=name)
