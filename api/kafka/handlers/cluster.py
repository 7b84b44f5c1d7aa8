"""A cluster of one node: its APIs, itself as the coordinator of groups and transactions, its log directory.

Owns the answers that depend on no topic but for sizes; must not change anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from api.kafka.call import Call, Served
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApiKeys,
    ApiVersionsResponseFinalizedFeatures,
    ApiVersionsResponseSupportedFeatures,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseBrokers,
)
from api.kafka.protocol.messages.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinators,
)
from api.kafka.protocol.messages.log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResponseResults,
    DescribeLogDirsResponseResultsTopics,
    DescribeLogDirsResponseResultsTopicsPartitions,
)
from storage import LogStore, StorageError, TopicPartition
from storage.transactions import EPOCH_A_TRANSACTION

COORDINATORS: Final = frozenset({0, 1})  # types of a coordinator's key: group, transactional id
TRANSACTION_VERSION: Final = "transaction.version"
LEVEL_0_FROM: Final = 4  # older clients cannot read a feature whose first level is 0
FIRST_WITH_KEYS: Final = 4
FIRST_WITH_ENDPOINT_TYPE: Final = 1
BROKERS: Final = 1


async def api_versions(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Return the APIs and versions that are offered. Clients use version 2 of transactions where it is finalised."""
    call.client.software = f"{request.client_software_name} {request.client_software_version}"
    response = api_versions_response(call.offered, ErrorCode.NONE)
    if call.version >= LEVEL_0_FROM:
        response.supported_features = [
            ApiVersionsResponseSupportedFeatures(
                name=TRANSACTION_VERSION, min_version=0, max_version=EPOCH_A_TRANSACTION
            )
        ]
    response.finalized_features_epoch = 0
    response.finalized_features = [
        ApiVersionsResponseFinalizedFeatures(
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
            ApiVersionsResponseApiKeys(
                api_key=row.api.key, min_version=row.first, max_version=row.last
            )
            for row in served
        ],
    )


async def describe_cluster(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Return this node; there are no controllers to connect to."""
    if call.version >= FIRST_WITH_ENDPOINT_TYPE and request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="only brokers can be described",
            endpoint_type=request.endpoint_type,
        )
    node = DescribeClusterResponseBrokers(
        broker_id=call.node_id, host=call.node.host, port=call.node.port
    )
    return DescribeClusterResponse(
        cluster_id=call.service.cluster_id, controller_id=call.node_id, brokers=[node]
    )


async def find_coordinator(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Return this node as the coordinator of groups and transactional ids. Share groups are not offered."""
    is_offered = request.key_type in COORDINATORS
    code = ErrorCode.NONE if is_offered else ErrorCode.UNSUPPORTED_VERSION
    node_id = call.node_id if code is ErrorCode.NONE else -1
    host, port = call.node if code is ErrorCode.NONE else ("", -1)
    message = (
        None
        if code is ErrorCode.NONE
        else "only groups and transactional ids have a coordinator here"
    )
    if call.version < FIRST_WITH_KEYS:
        return FindCoordinatorResponse(
            error_code=code, error_message=message, node_id=node_id, host=host, port=port
        )
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponseCoordinators(
                key=key,
                node_id=node_id,
                host=host,
                port=port,
                error_code=code,
                error_message=message,
            )
            for key in request.coordinator_keys
        ]
    )


async def describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Return the store's directory with the sizes of the partitions that are asked for; null asks for all."""
    topics = call.service.topics
    if request.topics is None:
        wanted = [(info.name, info.partitions) for info in topics.values()]
    else:
        present = {
            asked.topic: set(topics[asked.topic].partitions)
            for asked in request.topics
            if asked.topic in topics
        }
        wanted = [
            (asked.topic, [n for n in asked.partitions if n in present[asked.topic]])
            for asked in request.topics
            if asked.topic in present
        ]
    path = call.service.settings.data
    rows, total_bytes, usable_bytes = await topics.access.run(
        _sizes, call.service.store, path, wanted
    )
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResponseResults(
                log_dir=str(path.absolute()),
                topics=rows,
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
            )
        ]
    )


def _sizes(
    store: LogStore, path: Path, wanted: Sequence[tuple[str, Sequence[int]]]
) -> tuple[list[DescribeLogDirsResponseResultsTopics], int, int]:
    """Return a row of each topic, and the size and the free bytes of the file system (-1: unknown). Blocking."""
    rows = []
    for name, numbers in wanted:
        row = DescribeLogDirsResponseResultsTopics(name=name)
        for number in numbers:
            with suppress(StorageError):  # deleted meanwhile
                size_bytes = store.log_bytes(TopicPartition(name, number))
                row.partitions.append(
                    DescribeLogDirsResponseResultsTopicsPartitions(
                        partition_index=number, partition_size=size_bytes or 0
                    )
                )
        rows.append(row)
    try:
        space = os.statvfs(path)
    except OSError:
        return rows, -1, -1
    return rows, space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
