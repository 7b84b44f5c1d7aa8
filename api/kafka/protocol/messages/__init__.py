"""The messages of the wire protocol, and the table of their APIs.

Made by scripts/kafka_messages; not to be changed by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple, Protocol, Self

from api.kafka.protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse, DescribeClusterRequest, DescribeClusterResponse, DescribeQuorumRequest, DescribeQuorumResponse, FindCoordinatorRequest, FindCoordinatorResponse
from api.kafka.protocol.messages.configs import AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, ListConfigResourcesRequest, ListConfigResourcesResponse
from api.kafka.protocol.messages.fetch import FetchRequest, FetchResponse
from api.kafka.protocol.messages.group_admin import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse, ListGroupsRequest, ListGroupsResponse
from api.kafka.protocol.messages.group_offsets import OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse, OffsetFetchRequest, OffsetFetchResponse
from api.kafka.protocol.messages.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse
from api.kafka.protocol.messages.metadata import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, MetadataRequest, MetadataResponse
from api.kafka.protocol.messages.offsets import DeleteRecordsRequest, DeleteRecordsResponse, ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from api.kafka.protocol.messages.placement import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, DescribeLogDirsRequest, DescribeLogDirsResponse, ElectLeadersRequest, ElectLeadersResponse, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from api.kafka.protocol.messages.produce import InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProduceResponse
from api.kafka.protocol.messages.security import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse
from api.kafka.protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse
from api.kafka.protocol.messages.transaction_admin import DescribeProducersRequest, DescribeProducersResponse, DescribeTransactionsRequest, DescribeTransactionsResponse, ListTransactionsRequest, ListTransactionsResponse, WriteTxnMarkersRequest, WriteTxnMarkersResponse
from api.kafka.protocol.messages.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, EndTxnRequest, EndTxnResponse, TxnOffsetCommitRequest, TxnOffsetCommitResponse
from api.kafka.protocol.primitives import Reader, Writer

__all__ = [
    "APIS",
    "Api",
    "Message",
    "AddOffsetsToTxnRequest",
    "AddOffsetsToTxnResponse",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AlterConfigsRequest",
    "AlterConfigsResponse",
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "AlterReplicaLogDirsRequest",
    "AlterReplicaLogDirsResponse",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "EndTxnRequest",
    "EndTxnResponse",
    "FetchRequest",
    "FetchResponse",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "ListConfigResourcesRequest",
    "ListConfigResourcesResponse",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "ListTransactionsRequest",
    "ListTransactionsResponse",
    "MetadataRequest",
    "MetadataResponse",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetDeleteRequest",
    "OffsetDeleteResponse",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "ProduceRequest",
    "ProduceResponse",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
    "SyncGroupRequest",
    "SyncGroupResponse",
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitResponse",
    "WriteTxnMarkersRequest",
    "WriteTxnMarkersResponse",
]


class Message(Protocol):
    """A request or response message of any API."""

    API_KEY: ClassVar[int]

    @classmethod
    def read(cls, r: Reader, v: int) -> Self:
        """Read a message of version `v`."""
        ...

    def write(self, w: Writer, v: int) -> None:
        """Write the message in version `v`."""
        ...


class Api(NamedTuple):
    """An API: its number, name, versions (first to last), first flexible version, and messages."""

    key: int
    name: str
    first: int
    last: int
    flexible_from: int
    request: type[Message]
    response: type[Message]


NEVER: Final = 1 << 15
"""The first flexible version of an API that has none."""

APIS: Final[Mapping[int, Api]] = {
    0: Api(0, "Produce", 3, 13, 9, ProduceRequest, ProduceResponse),
    1: Api(1, "Fetch", 4, 18, 12, FetchRequest, FetchResponse),
    2: Api(2, "ListOffsets", 1, 11, 6, ListOffsetsRequest, ListOffsetsResponse),
    3: Api(3, "Metadata", 0, 13, 9, MetadataRequest, MetadataResponse),
    8: Api(8, "OffsetCommit", 2, 10, 8, OffsetCommitRequest, OffsetCommitResponse),
    9: Api(9, "OffsetFetch", 1, 10, 6, OffsetFetchRequest, OffsetFetchResponse),
    10: Api(10, "FindCoordinator", 0, 6, 3, FindCoordinatorRequest, FindCoordinatorResponse),
    11: Api(11, "JoinGroup", 0, 9, 6, JoinGroupRequest, JoinGroupResponse),
    12: Api(12, "Heartbeat", 0, 4, 4, HeartbeatRequest, HeartbeatResponse),
    13: Api(13, "LeaveGroup", 0, 5, 4, LeaveGroupRequest, LeaveGroupResponse),
    14: Api(14, "SyncGroup", 0, 5, 4, SyncGroupRequest, SyncGroupResponse),
    15: Api(15, "DescribeGroups", 0, 6, 5, DescribeGroupsRequest, DescribeGroupsResponse),
    16: Api(16, "ListGroups", 0, 5, 3, ListGroupsRequest, ListGroupsResponse),
    17: Api(17, "SaslHandshake", 0, 1, NEVER, SaslHandshakeRequest, SaslHandshakeResponse),
    18: Api(18, "ApiVersions", 0, 4, 3, ApiVersionsRequest, ApiVersionsResponse),
    19: Api(19, "CreateTopics", 2, 7, 5, CreateTopicsRequest, CreateTopicsResponse),
    20: Api(20, "DeleteTopics", 1, 6, 4, DeleteTopicsRequest, DeleteTopicsResponse),
    21: Api(21, "DeleteRecords", 0, 2, 2, DeleteRecordsRequest, DeleteRecordsResponse),
    22: Api(22, "InitProducerId", 0, 6, 2, InitProducerIdRequest, InitProducerIdResponse),
    23: Api(23, "OffsetForLeaderEpoch", 2, 4, 4, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    24: Api(24, "AddPartitionsToTxn", 0, 5, 3, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    25: Api(25, "AddOffsetsToTxn", 0, 4, 3, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    26: Api(26, "EndTxn", 0, 5, 3, EndTxnRequest, EndTxnResponse),
    27: Api(27, "WriteTxnMarkers", 1, 2, 1, WriteTxnMarkersRequest, WriteTxnMarkersResponse),
    28: Api(28, "TxnOffsetCommit", 0, 5, 3, TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    32: Api(32, "DescribeConfigs", 1, 4, 4, DescribeConfigsRequest, DescribeConfigsResponse),
    33: Api(33, "AlterConfigs", 0, 2, 2, AlterConfigsRequest, AlterConfigsResponse),
    34: Api(34, "AlterReplicaLogDirs", 1, 2, 2, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
    35: Api(35, "DescribeLogDirs", 1, 5, 2, DescribeLogDirsRequest, DescribeLogDirsResponse),
    36: Api(36, "SaslAuthenticate", 0, 2, 2, SaslAuthenticateRequest, SaslAuthenticateResponse),
    37: Api(37, "CreatePartitions", 0, 3, 2, CreatePartitionsRequest, CreatePartitionsResponse),
    42: Api(42, "DeleteGroups", 0, 2, 2, DeleteGroupsRequest, DeleteGroupsResponse),
    43: Api(43, "ElectLeaders", 0, 2, 2, ElectLeadersRequest, ElectLeadersResponse),
    44: Api(44, "IncrementalAlterConfigs", 0, 1, 1, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    45: Api(45, "AlterPartitionReassignments", 0, 1, 0, AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
    46: Api(46, "ListPartitionReassignments", 0, 0, 0, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
    47: Api(47, "OffsetDelete", 0, 0, NEVER, OffsetDeleteRequest, OffsetDeleteResponse),
    55: Api(55, "DescribeQuorum", 0, 2, 0, DescribeQuorumRequest, DescribeQuorumResponse),
    60: Api(60, "DescribeCluster", 0, 2, 0, DescribeClusterRequest, DescribeClusterResponse),
    61: Api(61, "DescribeProducers", 0, 0, 0, DescribeProducersRequest, DescribeProducersResponse),
    65: Api(65, "DescribeTransactions", 0, 0, 0, DescribeTransactionsRequest, DescribeTransactionsResponse),
    66: Api(66, "ListTransactions", 0, 2, 0, ListTransactionsRequest, ListTransactionsResponse),
    68: Api(68, "ConsumerGroupHeartbeat", 0, 1, 0, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
    69: Api(69, "ConsumerGroupDescribe", 0, 1, 0, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    74: Api(74, "ListConfigResources", 0, 1, 0, ListConfigResourcesRequest, ListConfigResourcesResponse),
    75: Api(75, "DescribeTopicPartitions", 0, 0, 0, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
}
