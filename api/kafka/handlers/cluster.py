"""A cluster of one node: its APIs, itself as the coordinator of groups and transactions, and as its only voter.

Owns the answers that depend on no topic; must not change anything.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Final

from api.kafka.call import CLUSTER_OPERATIONS, Call, Served
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApiVersion,
    ApiVersionsResponseFinalizedFeatureKey,
    ApiVersionsResponseSupportedFeatureKey,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseBroker,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponseListener,
    DescribeQuorumResponseNode,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseReplicaState,
    DescribeQuorumResponseTopicData,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from storage.transactions import EPOCH_A_TRANSACTION

log = logging.getLogger(__name__)

GROUP: Final = 0
TRANSACTIONAL_ID: Final = 1
COORDINATORS: Final = frozenset({GROUP, TRANSACTIONAL_ID})  # types of a coordinator's key
SHARE: Final = 2
TRANSACTION_VERSION: Final = "transaction.version"
FIRST_WITH_SOFTWARE: Final = 3
SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?").fullmatch
"""The names and versions that a client may give of itself: ApiVersionsRequest.isValid."""
MAX_SOFTWARE: Final = 100  # characters that are kept of them
LEVEL_0_FROM: Final = 4  # older clients cannot read a feature whose first level is 0
FIRST_WITH_KEYS: Final = 4
FIRST_WITH_ENDPOINT_TYPE: Final = 1
BROKERS, CONTROLLERS = 1, 2  # types of an endpoint
CLUSTER_LOG: Final = ("__cluster_metadata", 0)
"""The topic and partition in which nodes of a cluster agree on its metadata. No topic of that name is here."""
FIRST_WITH_NODES: Final = 2
FIRST_ADVERTISED: Final = {0: 0}
"""The first version that is advertised, by key, where it is older than the first that is accepted. librdkafka sends
Produce 3 and later, but older releases compress only where they find Produce 0 (KAFKA-18659).
"""


async def api_versions(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Return the APIs and versions that are offered. Clients use version 2 of transactions where it is finalised."""
    name, version = request.client_software_name, request.client_software_version
    if call.version >= FIRST_WITH_SOFTWARE and not (SOFTWARE(name) and SOFTWARE(version)):
        return api_versions_response((), ErrorCode.INVALID_REQUEST)
    call.client.software = f"{name} {version}".strip()[:MAX_SOFTWARE]
    log.debug("Kafka client %s has client id %s", call.client, call.client_id)
    response = api_versions_response(call.offered, ErrorCode.NONE)
    if not call.service.batches.has_transactions:
        return response
    if call.version >= LEVEL_0_FROM:
        response.supported_features = [
            ApiVersionsResponseSupportedFeatureKey(
                name=TRANSACTION_VERSION, min_version=0, max_version=EPOCH_A_TRANSACTION
            )
        ]
    response.finalized_features_epoch = 0
    response.finalized_features = [
        ApiVersionsResponseFinalizedFeatureKey(
            name=TRANSACTION_VERSION,
            max_version_level=EPOCH_A_TRANSACTION,
            min_version_level=EPOCH_A_TRANSACTION,
        )
    ]
    return response


def api_versions_response(served: Iterable[Served], code: ErrorCode) -> ApiVersionsResponse:
    """Return the answer with these APIs."""
    return ApiVersionsResponse(
        error_code=code,
        api_keys=[
            ApiVersionsResponseApiVersion(
                api_key=row.api.key,
                min_version=FIRST_ADVERTISED.get(row.api.key, row.first),
                max_version=row.last,
            )
            for row in served
        ],
    )


async def describe_cluster(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Return this node; there are no controllers to connect to."""
    if call.version >= FIRST_WITH_ENDPOINT_TYPE and request.endpoint_type != BROKERS:
        controllers = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if controllers
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="only brokers can be described",
        )
    node = DescribeClusterResponseBroker(
        broker_id=call.node_id, host=call.node.host, port=call.node.port
    )
    response = DescribeClusterResponse(
        cluster_id=call.service.cluster_id, controller_id=call.node_id, brokers=[node]
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = call.operations(CLUSTER_OPERATIONS)
    return response


async def find_coordinator(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Return this node as the coordinator of groups and transactional ids. Share groups are not offered."""
    keys = [request.key] if call.version < FIRST_WITH_KEYS else request.coordinator_keys
    found = [_coordinator(call, request.key_type, key) for key in keys]
    if call.version >= FIRST_WITH_KEYS:
        return FindCoordinatorResponse(coordinators=found)
    (row,) = found
    return FindCoordinatorResponse(
        error_code=row.error_code,
        error_message=row.error_message,
        node_id=row.node_id,
        host=row.host,
        port=row.port,
    )


def _coordinator(call: Call, key_type: int, key: str) -> FindCoordinatorResponseCoordinator:
    code, message = _refused_coordinator(call, key_type, key)
    is_found = code is ErrorCode.NONE
    host, port = call.node if is_found else ("", -1)
    return FindCoordinatorResponseCoordinator(
        key=key,
        node_id=call.node_id if is_found else -1,
        host=host,
        port=port,
        error_code=code,
        error_message=message,
    )


def _refused_coordinator(call: Call, key_type: int, key: str) -> tuple[ErrorCode, str | None]:
    """Return the error of a key that has no coordinator: NONE if it has one.

    A store without transactions refuses its clients here, before InitProducerId. librdkafka, with version 2, tries
    again after every number but a missing permission; it shows the message. Clients of later versions take
    UNSUPPORTED_VERSION as final. A name that no group can have is refused here too: sarama's manager of offsets
    commits again and again whatever a commit is answered, but ends if it finds no coordinator.
    """
    if key_type == GROUP and not call.service.groups.commits.may_exist(key):
        return ErrorCode.INVALID_GROUP_ID, f"no group can have the name {key[:80]!r}"
    if key_type not in COORDINATORS:
        problem = "only groups and transactional ids have a coordinator here"
        is_known = key_type == SHARE
        return ErrorCode.UNSUPPORTED_VERSION if is_known else ErrorCode.INVALID_REQUEST, problem
    if key_type != TRANSACTIONAL_ID or call.service.batches.has_transactions:
        return ErrorCode.NONE, None
    problem = "the format of this store has no transactions of Kafka clients"
    if call.version < FIRST_WITH_KEYS:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, problem
    return ErrorCode.UNSUPPORTED_VERSION, problem


async def describe_quorum(call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Return this node as the leader and the only voter. It needs no log to agree with itself: its offsets are 0."""
    voter = DescribeQuorumResponseReplicaState(replica_id=call.node_id, log_end_offset=0)
    rows = [
        DescribeQuorumResponseTopicData(
            topic_name=topic.topic_name,
            partitions=[
                DescribeQuorumResponsePartitionData(
                    partition_index=asked.partition_index,
                    error_message=None,
                    leader_id=call.node_id,
                    current_voters=[voter],
                )
                if (topic.topic_name, asked.partition_index) == CLUSTER_LOG
                else DescribeQuorumResponsePartitionData(
                    partition_index=asked.partition_index,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=None,
                )
                for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    knows = any(not row.error_code for topic in rows for row in topic.partitions)
    response = DescribeQuorumResponse(error_message=None, topics=rows)
    if knows and call.version >= FIRST_WITH_NODES:
        listener = DescribeQuorumResponseListener(
            name="CONTROLLER", host=call.node.host, port=call.node.port
        )
        response.nodes = [DescribeQuorumResponseNode(node_id=call.node_id, listeners=[listener])]
    return response
