"""Keys and values of the records in `__consumer_offsets` that contain the members of a group.

Owns their bytes; must not know which record counts or where it is stored. Big-endian; from Kafka's
GroupMetadataKey.json, GroupMetadataValue.json and GroupCoordinatorRecordHelpers. Values are read in every version by
the table of messages, and written in version 3, as by 4.3.1. Keys of the new protocol (KIP-848) are recognised; the
rest of their records is in `consumer_group_records.py`.

Key. A string is an i16 length and as many bytes of UTF-8:

    position  bytes  field     note
    0         2      type      2: a classic group; 3 to 8 and 16: a group of the new protocol, alike up to its name
    2         2 + n  group     string

Value of a classic group, version 3. A null value means that the group was deleted:

    position  bytes  field             note
    0         2      version           3, i16
    2         2 + n  protocol type     string
    .         4      generation        i32
    .         2 + n  protocol          string; length -1: none, the group is empty
    .         2 + n  leader            string; length -1: none
    .         8      state timestamp   ms, i64
    .         4      members           i32 count, then for each:
                     member id         string
                     instance id       string; length -1: not a static member
                     client id, host   two strings
                     timeouts          rebalance and session, ms, two i32
                     subscription      i32 length and as many bytes
                     assignment        i32 length and as many bytes
"""

from __future__ import annotations

from typing import Any, Final

from storage.errors import Corrupt
from storage.groups import StoredGroup, StoredMember
from storage.kafka.format.messages.codec import decode, encode

CLASSIC_TYPE: Final = 2
NEW_TYPES: Final = frozenset((3, 4, 5, 6, 7, 8, 16))
VERSION: Final = 3
TYPE_BYTES: Final = 2
_NAME: Final = "GroupMetadata"
_KIND: Final = "group record"


def encode_group_key(group: str) -> bytes:
    """Encode the key of a classic group."""
    return CLASSIC_TYPE.to_bytes(TYPE_BYTES, "big") + encode(f"{_NAME}Key", 0, {"group": group})


def encode_group_value(group: StoredGroup) -> bytes:
    """Encode a classic group. Raises InvalidArgument for a value that a record cannot hold."""
    fields = {
        "protocolType": group.protocol_type,
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
        "currentStateTimestamp": group.changed_ms,
        "members": [
            {
                "memberId": member.member_id,
                "groupInstanceId": member.instance_id,
                "clientId": member.client_id,
                "clientHost": member.client_host,
                "rebalanceTimeout": member.rebalance_timeout_ms,
                "sessionTimeout": member.session_timeout_ms,
                "subscription": member.subscription,
                "assignment": member.assignment,
            }
            for member in group.members
        ],
    }
    return VERSION.to_bytes(TYPE_BYTES, "big") + encode(f"{_NAME}Value", VERSION, fields)


def decode_group_key(data: bytes) -> tuple[int, str] | None:
    """Return type and group of a key of these types; None for any other key. Raises Corrupt."""
    kind = int.from_bytes(data[:TYPE_BYTES], "big", signed=True)
    if kind != CLASSIC_TYPE and kind not in NEW_TYPES:
        return None
    fields = decode(f"{_NAME}Key", 0, data, TYPE_BYTES).fields
    return kind, _text(fields["group"])


def decode_group_value(group: str, data: bytes) -> StoredGroup:
    """Decode the value of a classic group, of any version. Raises UnsupportedFormat, Corrupt, Truncated."""
    if len(data) < TYPE_BYTES:
        raise Corrupt(f"{_KIND}: no version", kind=_KIND, position=None, expected=None, found=None)
    version = int.from_bytes(data[:TYPE_BYTES], "big", signed=True)
    fields = decode(f"{_NAME}Value", version, data, TYPE_BYTES).fields
    return StoredGroup(
        group,
        _text(fields["protocolType"]),
        fields["generation"],
        fields["protocol"],
        fields["leader"],
        fields.get("currentStateTimestamp", -1),
        [_member(member) for member in fields["members"]],
    )


def _member(fields: dict[str, Any]) -> StoredMember:
    session_timeout_ms = fields["sessionTimeout"]
    rebalance_timeout_ms = fields.get("rebalanceTimeout", -1)
    return StoredMember(
        _text(fields["memberId"]),
        fields.get("groupInstanceId"),
        _text(fields["clientId"]),
        _text(fields["clientHost"]),
        session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        session_timeout_ms,
        fields["subscription"],
        fields["assignment"],
    )


def _text(value: str | None) -> str:
    """Return a text that must be there. A null string has no meaning in these fields."""
    if value is None:
        raise Corrupt(f"{_KIND}: null", kind=_KIND, position=None, expected=None, found=None)
    return value
