"""Kafka's messages by the table of their schemas: both directions, every version, and bytes that do not fit."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import DataError, InvalidArgument, UnsupportedFormat
from storage.kafka.format.messages.codec import UNKNOWN_TAGS, decode, encode
from storage.kafka.format.messages.records import decode_control, decode_record
from storage.kafka.format.messages.schema import messages
from tests.formats.files.random_messages import every_version, random_fields

NAMES = sorted(messages())


def test_every_message_in_every_version_comes_back() -> None:
    seed = random.Random(1)
    for message, version in every_version():
        fields = random_fields(message.fields, version, seed)
        data = encode(message.name, version, fields)
        found, end = decode(message.name, version, data)
        assert end == len(data)
        assert encode(message.name, version, found) == data, (message.name, version)


def test_what_follows_a_message_is_not_looked_at() -> None:
    data = encode("OffsetCommitValue", 4, {"offset": 7, "metadata": "m"})
    fields, end = decode("OffsetCommitValue", 4, b"xx" + data + b"yy", 2)
    assert (fields["offset"], fields["metadata"], fields["leaderEpoch"]) == (7, "m", -1)
    assert end == 2 + len(data)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("OffsetCommitValue", 5),
        ("OffsetCommitValue", -1),
        ("NoSuchMessage", 0),
        ("TopicRecord", 99),
    ],
)
def test_an_unknown_message_or_version(name: str, version: int) -> None:
    with pytest.raises(UnsupportedFormat):
        decode(name, version, bytes(100))
    with pytest.raises(UnsupportedFormat):
        encode(name, version, {})


@pytest.mark.parametrize(
    "name", ["FetchRequest", "RegisterBrokerRecord", "GroupMetadataValue", "VotersRecord"]
)
def test_a_cut_is_seen_at_every_byte(name: str) -> None:
    message = messages()[name]
    version = message.versions[-1]
    data = encode(name, version, random_fields(message.fields, version, random.Random(3)))
    for cut in range(len(data)):
        with pytest.raises(DataError):
            decode(name, version, data[:cut])


@given(st.sampled_from(NAMES), st.binary(max_size=80), st.integers(0, 20))
def test_any_bytes_decode_or_raise_in_the_tree(name: str, data: bytes, version: int) -> None:
    with suppress(DataError):
        decode(name, version, data)


def test_tags_that_are_not_known_are_kept() -> None:
    """Tags that a later version added are written back."""
    data = encode("OffsetCommitValue", 4, {"offset": 1, UNKNOWN_TAGS: {9: b"later", 3: b""}})
    fields, _ = decode("OffsetCommitValue", 4, data)
    assert fields[UNKNOWN_TAGS] == {3: b"", 9: b"later"}
    assert encode("OffsetCommitValue", 4, fields) == data


@pytest.mark.parametrize(
    ("version", "fields"),
    [
        (4, {"offset": "7"}),
        (4, {"offset": 1 << 63}),
        (4, {"metadata": None}),
        (4, {"metadata": 7}),
        (4, {"nosuch": 1}),
        (4, {"topicId": b"short"}),
        (3, {UNKNOWN_TAGS: {1: b"x"}}),
    ],
)
def test_values_that_do_not_fit(version: int, fields: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        encode("OffsetCommitValue", version, fields)


def test_a_field_that_a_version_lacks() -> None:
    """A field with a value is rejected; a field that may be dropped is dropped."""
    assert encode("OffsetCommitValue", 0, {"leaderEpoch": 5}) == encode("OffsetCommitValue", 0, {})
    assert encode("PartitionRecord", 0, {"directories": []}) == encode("PartitionRecord", 0, {})
    with pytest.raises(InvalidArgument, match="directories is not in this version"):
        encode("PartitionRecord", 0, {"directories": [bytes(16)]})


@pytest.mark.parametrize("value", [None, {"sessionTimeoutMs": 9}, {}])
def test_a_tagged_struct_that_may_be_null(value: dict[str, int] | None) -> None:
    """A null is written as by the real broker, because null is not the default."""
    data = encode("ConsumerGroupMemberMetadataValue", 0, {"classicMemberMetadata": value})
    fields, _ = decode("ConsumerGroupMemberMetadataValue", 0, data)
    found = fields["classicMemberMetadata"]
    read = None if found is None else found["sessionTimeoutMs"]
    assert read == (None if value is None else value.get("sessionTimeoutMs", 0))
    assert data.endswith(b"\x01\x00\x01\x00") == (value is None)


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [
        ("__consumer_offsets", b"\x00\x63later", b"\x00\x00"),
        ("__consumer_offsets", b"\x00\x02\x00\x01g", b"\x00\x09new"),
        ("__transaction_state", b"\x00\x00\x00\x01t", b"\x00\x01cut"),
        ("__share_group_state", b"\x00", b""),
        ("__cluster_metadata", None, b"\x01\x7f\x00"),
        ("__cluster_metadata", None, b"\x02\x02\x00"),
        ("__cluster_metadata", None, None),
        ("__remote_log_metadata", None, b"\x01\x00\x05"),
    ],
)
def test_a_record_that_is_not_known_stays_bytes(
    topic: str, key: bytes | None, value: bytes | None
) -> None:
    content = decode_record(topic, key, value)
    assert content.problem is not None
    assert content.value == value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00\x00\x00\x09", b"\x00\x00"),
        (b"", b""),
        (b"\x00\x00\x00\x02", b"\x00\x05x"),
        (None, None),
    ],
)
def test_a_control_record_that_is_not_known_stays_bytes(
    key: bytes | None, value: bytes | None
) -> None:
    content = decode_control(key, value)
    assert (content.type, content.key, content.value) == (None, key, value)
    assert content.problem is not None


def test_a_marker_of_a_transaction() -> None:
    content = decode_control(b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x07")
    assert (content.type, content.value) == ("COMMIT", {"coordinatorEpoch": 7})
