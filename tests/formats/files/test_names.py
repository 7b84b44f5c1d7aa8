"""File and folder names in both directions, foreign names, and the rules for new topic names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import InvalidArgument, InvalidTopic
from storage.kafka.format import names
from storage.model import TopicPartition

SEGMENT_NAMES = [
    (0, ".log", "00000000000000000000.log"),
    (1113, ".index", "00000000000000001113.index"),
    (1113, ".timeindex", "00000000000000001113.timeindex"),
    (7, ".txnindex", "00000000000000000007.txnindex"),
    (1203, ".snapshot", "00000000000000001203.snapshot"),
    (475, ".log.deleted", "00000000000000000475.log.deleted"),
    (475, ".timeindex.cleaned", "00000000000000000475.timeindex.cleaned"),
    (475, ".index.swap", "00000000000000000475.index.swap"),
    (2**63 - 1, ".log", "09223372036854775807.log"),
]
PARTITION_DIRS = [
    ("orders", 0, "orders-0"),
    ("a-b.c_d", 12, "a-b.c_d-12"),
    ("orders-1", 2, "orders-1-2"),
    ("-", 0, "--0"),
    ("__consumer_offsets", 49, "__consumer_offsets-49"),
    ("t", 2**31 - 1, "t-2147483647"),
]


@pytest.mark.parametrize(("base_offset", "suffix", "name"), SEGMENT_NAMES)
def test_segment_names(base_offset: int, suffix: str, name: str) -> None:
    assert names.segment_name(base_offset, suffix) == name
    assert names.parse_segment_name(name) == (base_offset, suffix)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".log",
        "1113.log",
        "0000000000000001113.log",  # 19 digits
        "000000000000000001113.log",  # 21 digits
        "09223372036854775808.log",  # 2^63
        "00000000000000001113",
        "00000000000000001113.log2",
        "00000000000000001113.LOG",
        "00000000000000001113.log.swap.deleted",
        "00000000000000001113.deleted",
        "00000000000000001113.log\n",
        "0000000000000000111\u0663.log",
        "leader-epoch-checkpoint",
    ],
)
def test_other_names_are_no_segments(name: str) -> None:
    assert names.parse_segment_name(name) is None


@pytest.mark.parametrize("base_offset", [-1, 2**63])
def test_no_name_for_an_impossible_offset(base_offset: int) -> None:
    with pytest.raises(InvalidArgument):
        names.segment_name(base_offset)


@pytest.mark.parametrize(("topic", "partition", "name"), PARTITION_DIRS)
def test_partition_folders(topic: str, partition: int, name: str) -> None:
    assert names.partition_dir_name(topic, partition) == name
    assert names.parse_partition_dir(name) == TopicPartition(topic, partition)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "orders",
        "-0",
        "orders-",
        "orders-01",
        "orders-+1",
        "orders-2147483648",
        "orders-0.a1b2c3-delete",
        "orders-0.a1b2c3-future",
        "orders-0.a1b2c3-stray",
        "two words-0",
        "orders-0\n",
        "orders-\u0663",
        "a/b-0",
        "lost+found",
        "meta.properties",
    ],
)
def test_other_names_are_no_partitions(name: str) -> None:
    assert names.parse_partition_dir(name) is None


@pytest.mark.parametrize(
    "name", ["a", "A.b_c-9", "__consumer_offsets", "...", "-", "x" * names.MAX_TOPIC_LENGTH]
)
def test_names_for_new_topics(name: str) -> None:
    names.validate_new_topic(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "empty"),
        (".", "file system"),
        ("..", "file system"),
        ("x" * 250, "250 characters, the limit is 249"),
        ("a/b", "character"),
        ("a\0", "character"),
        ("a b", "character"),
        ("a\n", "character"),
        ("é", "character"),
        ("__cluster_metadata", "metadata log"),
    ],
)
def test_names_refused_for_new_topics(name: str, problem: str) -> None:
    with pytest.raises(InvalidTopic, match=problem) as caught:
        names.validate_new_topic(name)
    assert caught.value.facts() == {"topic": name}
    assert len(caught.value.message) < 200


def test_names_that_collide() -> None:
    assert names.collision_key("a.b_c") == names.collision_key("a_b.c")
    assert names.collision_key("a.b") != names.collision_key("a-b")


@given(st.integers(0, 2**63 - 1), st.sampled_from(names.SEGMENT_SUFFIXES))
def test_every_segment_name_parses(base_offset: int, suffix: str) -> None:
    name = names.segment_name(base_offset, suffix)
    assert names.parse_segment_name(name) == (base_offset, suffix)


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True), st.integers(0, 2**31 - 1))
def test_every_partition_folder_parses(topic: str, partition: int) -> None:
    name = names.partition_dir_name(topic, partition)
    assert names.parse_partition_dir(name) == TopicPartition(topic, partition)


def test_longest_partition_folder_fits_a_file_system() -> None:
    assert len(names.partition_dir_name("x" * names.MAX_TOPIC_LENGTH, 99_999)) == 255


@pytest.mark.parametrize("topic", ["t", "a" * 249])
def test_a_folder_being_deleted_keeps_its_partition_in_its_name(topic: str) -> None:
    """The name keeps the partition; otherwise the broker would not recognise the folder, and would not start."""
    name = names.deleted_dir_name(topic, 17, "0f" * 16)
    assert name.endswith(f"-17.{'0f' * 16}-delete")
    assert len(name) <= 255
    assert names.is_deleted_dir(name)
    assert names.parse_partition_dir(name) is None
