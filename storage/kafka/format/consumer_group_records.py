"""Keys and values of the records in `__consumer_offsets` that contain a group of Kafka's new protocol (KIP-848).

Owns their bytes, and the order in which records and tombstones of a group are written; must not know where they are
stored. Big-endian; from GroupCoordinatorRecordHelpers and the ConsumerGroup*Key.json and *Value.json of Kafka 4.3.1.

Key. A string is an i16 length and as many bytes of UTF-8:

    position  bytes  field     note
    0         2      type      see below
    2         2 + n  group     string
    .         2 + n  owner     string; types 5, 7 and 8: member id; 16: pattern; not in the others

Value. A string is a varint of its length + 1 (0: null) and its bytes, an array a varint of its count + 1 and its items;
a value and each struct end with tagged fields: a varint count, then for each a varint tag, a varint length and as many
bytes. A null value deletes the record:

    position  bytes  field     note
    0         2      version   0, i16; a value of another version does not count
    2         .      fields    by type:

    3   ConsumerGroupMetadata                 group epoch i32; tag 0: hash of the topics, i64
    4   ConsumerGroupPartitionMetadata        of brokers before 4.1: only deleted, never written
    5   ConsumerGroupMemberMetadata           instance, rack, client id, client host: strings; topics: array of strings;
                                              pattern: string; rebalance timeout in ms, i32; assignor: string
    6   ConsumerGroupTargetAssignmentMetadata assignment epoch i32; tag 0: its time, ms, i64
    7   ConsumerGroupTargetAssignmentMember   partitions that the member will have, see below
    8   ConsumerGroupCurrentMemberAssignment  epoch i32, previous epoch i32, state i8; partitions that the member has;
                                              partitions that it must give up
    16  ConsumerGroupRegularExpression        topics that the pattern matches: array of strings; version i64; time i64

    partitions: array of topic id (16 bytes), partitions (array of i32); type 8 has in tag 0 an array of i32: the
    epoch at which the member got each partition

A broker applies these records one by one, and stops loading at a record that does not fit: a member must come before
its assignments, and their tombstones before its own; a group's tombstone comes last, when it has no members any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from storage.errors import Corrupt, DataError
from storage.groups import Slot, StoredModernGroup, StoredModernMember
from storage.kafka.format.group_records import CLASSIC_TYPE, TYPE_BYTES
from storage.kafka.format.messages.codec import decode, encode

GROUP: Final = 3
OLD_TOPICS: Final = 4
MEMBER: Final = 5
TARGET_EPOCH: Final = 6
TARGET: Final = 7
CURRENT: Final = 8
PATTERN: Final = 16
_NAMES: Final = {
    GROUP: "ConsumerGroupMetadata",
    MEMBER: "ConsumerGroupMemberMetadata",
    TARGET_EPOCH: "ConsumerGroupTargetAssignmentMetadata",
    TARGET: "ConsumerGroupTargetAssignmentMember",
    CURRENT: "ConsumerGroupCurrentMemberAssignment",
    PATTERN: "ConsumerGroupRegularExpression",
}
# The field of a key after the group's name; of other types the member id.
_OWNERS: Final = {PATTERN: "regularExpression"}
_ENDS: Final = (CLASSIC_TYPE, CURRENT, TARGET, MEMBER, PATTERN, TARGET_EPOCH, OLD_TOPICS, GROUP)
"""The order of tombstones."""
_VERSION: Final = bytes(2)
_UNKNOWN_EPOCH: Final = -1
RESOLVE_AGAIN: Final = 0
"""Version and time of a pattern's names: a broker that takes over finds them older than its topics."""


def encode_consumer_group(group: StoredModernGroup) -> Mapping[bytes, bytes]:
    """Return the records of a group by key, in the order in which they are written."""
    name = group.name
    rows = [_row(MEMBER, name, _member_fields(one), one.member_id) for one in group.members]
    for pattern, topics in sorted(group.patterns.items()):
        fields = {"topics": sorted(topics), "version": RESOLVE_AGAIN, "timestamp": RESOLVE_AGAIN}
        rows.append(_row(PATTERN, name, fields, pattern))
    rows.append(_row(GROUP, name, {"epoch": group.epoch, "metadataHash": group.topics_hash}))
    for one in group.members:
        fields = {"topicPartitions": _topics(dict.fromkeys(one.target, 0), epochs=False)}
        rows.append(_row(TARGET, name, fields, one.member_id))
    fields = {"assignmentEpoch": group.assignment_epoch, "assignmentTimestamp": group.assigned_ms}
    rows.append(_row(TARGET_EPOCH, name, fields))
    rows += [_row(CURRENT, name, _current_fields(one), one.member_id) for one in group.members]
    return dict(rows)


def _row(
    kind: int, group: str, fields: Mapping[str, Any], owner: str | None = None
) -> tuple[bytes, bytes]:
    key = {"groupId": group}
    if owner is not None:
        key[_OWNERS.get(kind, "memberId")] = owner
    name = _NAMES[kind]
    encoded = kind.to_bytes(TYPE_BYTES, "big") + encode(f"{name}Key", 0, key)
    return encoded, _VERSION + encode(f"{name}Value", 0, fields)


def _member_fields(member: StoredModernMember) -> dict[str, Any]:
    return {
        "instanceId": member.instance_id,
        "rackId": member.rack_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "subscribedTopicNames": list(member.topics),
        "subscribedTopicRegex": member.pattern,
        "rebalanceTimeoutMs": member.rebalance_timeout_ms,
        "serverAssignor": member.assignor,
        "classicMemberMetadata": None,
    }


def _current_fields(member: StoredModernMember) -> dict[str, Any]:
    return {
        "memberEpoch": member.epoch,
        "previousMemberEpoch": member.previous_epoch,
        "state": member.state,
        "assignedPartitions": _topics(member.assigned),
        "partitionsPendingRevocation": _topics(member.revoking),
    }


def _topics(slots: Mapping[Slot, int], *, epochs: bool = True) -> Sequence[dict[str, Any]]:
    """Return partitions by topic, with the epoch at which the member got each."""
    rows: dict[bytes, dict[str, Any]] = {}
    for (topic_id, number), since in sorted(slots.items()):
        row = rows.setdefault(topic_id, {"topicId": topic_id, "partitions": []})
        row["partitions"].append(number)
        if epochs:
            row.setdefault("assignmentEpochs", []).append(since)
    return list(rows.values())


def tombstone_order(keys: Iterable[bytes]) -> Sequence[bytes]:
    """Return the keys of records of a group in the order in which the records are deleted."""
    return sorted(keys, key=lambda key: (_ENDS.index(_kind(key)), key))


def _kind(key: bytes) -> int:
    return int.from_bytes(key[:TYPE_BYTES], "big")


def decode_consumer_group(name: str, records: Mapping[bytes, bytes]) -> StoredModernGroup:
    """Decode a group from its records by key. A record of another version, or that is damaged, does not count."""
    found: dict[int, dict[str, dict[str, Any]]] = {kind: {} for kind in _NAMES}
    for key, value in records.items():
        with suppress(DataError):
            kind = _kind(key)
            if kind in found:
                owner, fields = _decoded(kind, key, value)
                found[kind][owner] = fields
    group, target = found[GROUP].get("", {}), found[TARGET_EPOCH].get("", {})
    return StoredModernGroup(
        name,
        group.get("epoch", 0),
        group.get("metadataHash", 0),
        target.get("assignmentEpoch", _UNKNOWN_EPOCH),
        target.get("assignmentTimestamp", 0),
        [
            _member(
                member_id,
                fields,
                found[CURRENT].get(member_id, {}),
                found[TARGET].get(member_id, {}),
            )
            for member_id, fields in sorted(found[MEMBER].items())
        ],
        {pattern: frozenset(fields["topics"]) for pattern, fields in found[PATTERN].items()},
    )


def _decoded(kind: int, key: bytes, value: bytes) -> tuple[str, dict[str, Any]]:
    """Return member id or pattern of a record, and the fields of its value."""
    name = _NAMES[kind]
    if value[:TYPE_BYTES] != _VERSION:
        raise Corrupt(f"{name}: unknown version", kind=name, position=0, expected=None, found=None)
    owner = decode(f"{name}Key", 0, key, TYPE_BYTES).fields.get(_OWNERS.get(kind, "memberId"), "")
    return owner, decode(f"{name}Value", 0, value, TYPE_BYTES).fields


def _member(
    member_id: str, fields: Mapping[str, Any], current: Mapping[str, Any], target: Mapping[str, Any]
) -> StoredModernMember:
    epoch = current.get("memberEpoch", 0)
    return StoredModernMember(
        member_id,
        fields["instanceId"],
        fields["rackId"],
        fields["clientId"],
        fields["clientHost"],
        fields["rebalanceTimeoutMs"],
        fields["serverAssignor"],
        tuple(fields["subscribedTopicNames"]),
        fields["subscribedTopicRegex"],
        epoch,
        current.get("previousMemberEpoch", 0),
        current.get("state", 1),
        _slots(current.get("assignedPartitions", ()), epoch),
        _slots(current.get("partitionsPendingRevocation", ()), epoch),
        frozenset(_slots(target.get("topicPartitions", ()), epoch)),
    )


def _slots(rows: Collection[Mapping[str, Any]], epoch: int) -> Mapping[Slot, int]:
    """Return partitions with the epoch of each; brokers before 4.2 wrote none, and the member's own counts."""
    slots: dict[Slot, int] = {}
    for row in rows:
        numbers = row["partitions"]
        epochs = row.get("assignmentEpochs") or [epoch] * len(numbers)
        slots |= {
            (row["topicId"], number): since for number, since in zip(numbers, epochs, strict=False)
        }
    return slots
