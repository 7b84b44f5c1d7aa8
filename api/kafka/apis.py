"""The APIs that this server offers: their versions, handlers, and the scope that each needs.

Owns the table; must not handle anything. An API or version that is not in the table is not advertised, and a request
for it is answered like one that the real server does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from api.kafka.call import Handler, Served
from api.kafka.handlers import (
    cluster,
    configs,
    consumer_groups,
    fetch,
    group_admin,
    group_offsets,
    groups,
    metadata,
    offsets,
    placement,
    produce,
    security,
    topics,
    transaction_admin,
    transactions,
)
from api.kafka.protocol.messages import APIS
from logserver.access.tokens import Scope

API_VERSIONS: Final = 18


def _served(
    key: int,
    handler: Handler,
    scope: Scope | None,
    *,
    last: int | None = None,
    before_login: bool = False,
) -> Served:
    api = APIS[key]
    return Served(
        api,
        api.first,
        api.last if last is None else last,
        handler,
        scope,
        before_login,
    )


def _table(rows: Iterable[Served]) -> Mapping[int, Served]:
    return {row.api.key: row for row in sorted(rows, key=lambda row: row.api.key)}


# InitProducerId 6 is two-phase commit: not yet stable in Kafka 4.3, whose broker does not advertise it.
# AddPartitionsToTxn 4 and 5 are sent by brokers only.
SERVED: Final = _table(
    (
        _served(0, produce.produce, Scope.PRODUCE),
        _served(1, fetch.fetch, Scope.READ),
        _served(2, offsets.list_offsets, Scope.READ),
        _served(3, metadata.metadata, None),
        _served(8, group_offsets.offset_commit, Scope.READ),
        _served(9, group_offsets.offset_fetch, Scope.READ),
        _served(10, cluster.find_coordinator, None),
        _served(11, groups.join_group, Scope.READ),
        _served(12, groups.heartbeat, Scope.READ),
        _served(13, groups.leave_group, Scope.READ),
        _served(14, groups.sync_group, Scope.READ),
        _served(15, group_admin.describe_groups, Scope.READ),
        _served(16, group_admin.list_groups, Scope.READ),
        _served(17, security.sasl_handshake, None, before_login=True),
        _served(API_VERSIONS, cluster.api_versions, None, before_login=True),
        _served(19, topics.create_topics, Scope.ADMIN),
        _served(20, topics.delete_topics, Scope.ADMIN),
        _served(21, offsets.delete_records, Scope.ADMIN),
        _served(22, transactions.init_producer_id, Scope.PRODUCE, last=5),
        _served(23, offsets.offset_for_leader_epoch, Scope.READ),
        _served(24, transactions.add_partitions, Scope.PRODUCE, last=3),
        _served(25, transactions.add_offsets, Scope.PRODUCE),
        _served(26, transactions.end, Scope.PRODUCE),
        _served(27, transaction_admin.write_markers, Scope.ADMIN),
        _served(28, transactions.commit_offsets, Scope.PRODUCE),
        _served(32, configs.describe_configs, Scope.READ),
        _served(33, configs.alter_configs, Scope.ADMIN),
        _served(34, placement.alter_replica_log_dirs, Scope.ADMIN),
        _served(35, placement.describe_log_dirs, Scope.READ),
        _served(36, security.sasl_authenticate, None, before_login=True),
        _served(37, topics.create_partitions, Scope.ADMIN),
        _served(42, group_admin.delete_groups, Scope.ADMIN),
        _served(43, placement.elect_leaders, Scope.ADMIN),
        _served(44, configs.incremental_alter_configs, Scope.ADMIN),
        _served(45, placement.alter_partition_reassignments, Scope.ADMIN),
        _served(46, placement.list_partition_reassignments, Scope.READ),
        _served(47, group_offsets.offset_delete, Scope.READ),
        _served(55, cluster.describe_quorum, Scope.READ),
        _served(60, cluster.describe_cluster, None),
        _served(61, transaction_admin.describe_producers, Scope.READ),
        _served(65, transaction_admin.describe_transactions, Scope.READ),
        _served(66, transaction_admin.list_transactions, Scope.READ),
        _served(68, consumer_groups.heartbeat, Scope.READ),
        _served(69, consumer_groups.describe, Scope.READ),
        _served(74, configs.list_config_resources, Scope.READ),
        _served(75, metadata.describe_topic_partitions, None),
    )
)
"""The APIs for every client, by key."""


TRANSACTIONS: Final = frozenset({24, 25, 26, 27, 28, 61, 65, 66})
"""The APIs of a store with transactions only."""
# Clients send these versions only if transactions of version 2 are finalised.
_LAST_WITHOUT: Final = {0: 11, 22: 4}
WITHOUT_TRANSACTIONS: Final = _table(
    row._replace(last=_LAST_WITHOUT.get(key, row.last))
    for key, row in SERVED.items()
    if key not in TRANSACTIONS
)
"""The APIs for every client of a store without transactions, by key."""


def offered(*, transactions: bool) -> Mapping[int, Served]:
    """Return the APIs of a server, by key. `transactions`: its store has transactions."""
    return SERVED if transactions else WITHOUT_TRANSACTIONS
