"""Settings: Kafka's names, defaults and limits, and retention, which is off unless it is set."""

from __future__ import annotations

import pytest

from storage.errors import InvalidConfig
from storage.kafka.state.settings import check_topic_config, parse_store_settings, topic_settings

DAY_MS = 86_400_000


def test_the_defaults_are_kafkas_but_for_retention() -> None:
    found = topic_settings({})
    assert (found.segment_bytes, found.segment_ms, found.segment_jitter_ms) == (
        1 << 30,
        7 * DAY_MS,
        0,
    )
    assert (found.segment_index_bytes, found.index_interval_bytes) == (10 << 20, 4096)
    assert (found.max_message_bytes, found.compression) == (1_048_588, "none")
    assert (found.log_append_time, found.preallocate) == (False, False)
    assert (found.retention_ms, found.retention_bytes) == (None, None)
    store = parse_store_settings({})
    assert (store.num_partitions, store.node_id, store.producer_id_expiration_ms) == (1, 1, DAY_MS)
    assert (store.cluster_id, store.directory_id, store.topic_defaults) == (None, None, {})


@pytest.mark.parametrize(
    ("server_name", "topic_name", "value"),
    [
        ("log.segment.bytes", "segment.bytes", "2000000"),
        ("log.roll.ms", "segment.ms", "5"),
        ("log.index.size.max.bytes", "segment.index.bytes", "800"),
        ("log.index.interval.bytes", "index.interval.bytes", "0"),
        ("message.max.bytes", "max.message.bytes", "99"),
        ("log.retention.ms", "retention.ms", "7"),
        ("log.retention.bytes", "retention.bytes", "8"),
        ("log.message.timestamp.type", "message.timestamp.type", "LogAppendTime"),
        ("log.preallocate", "preallocate", "true"),
        ("compression.type", "compression.type", "zstd"),
        ("retention.ms", "retention.ms", "-1"),
    ],
)
def test_server_properties_are_the_defaults_of_topics(
    server_name: str, topic_name: str, value: str
) -> None:
    assert parse_store_settings({server_name: value}).topic_defaults == {topic_name: value}


def test_small_segments_are_an_internal_setting() -> None:
    assert topic_settings({"internal.segment.bytes": "14"}).segment_bytes == 14
    with pytest.raises(InvalidConfig):
        check_topic_config("segment.bytes", "1048575")
    check_topic_config("segment.bytes", "1048576")


@pytest.mark.parametrize(
    ("value", "codec"),
    [
        ("producer", "none"),
        ("uncompressed", "none"),
        ("gzip", "gzip"),
        ("snappy", "snappy"),
        ("lz4", "lz4"),
        ("zstd", "zstd"),
    ],
)
def test_compression(value: str, codec: str) -> None:
    check_topic_config("compression.type", value)
    assert topic_settings({"compression.type": value}).compression == codec


@pytest.mark.parametrize("value", ["0", "1", "5000"])
def test_retention_is_on_when_it_is_set(value: str) -> None:
    found = topic_settings({"retention.ms": value, "retention.bytes": value})
    assert (found.retention_ms, found.retention_bytes) == (int(value), int(value))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", "-1"),
        ("segment.bytes", str(2**31)),
        ("segment.ms", "0"),
        ("segment.ms", str(2**63)),
        ("segment.index.bytes", "11"),
        ("index.interval.bytes", "-1"),
        ("max.message.bytes", ""),
        ("max.message.bytes", "1e3"),
        ("max.message.bytes", "5 5"),
        ("max.message.bytes", "٣"),
        ("retention.ms", "-2"),
        ("retention.ms", "-"),
        ("retention.bytes", "9" * 30),
        ("compression.type", "brotli"),
        ("message.timestamp.type", "createtime"),
        ("preallocate", "yes"),
        ("no.such.config", "1"),
        ("", ""),
    ],
)
def test_bad_values_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        check_topic_config(name, value)
    assert refusal.value.facts() == {"name": name, "value": value}
    assert repr(name)[1:-1] in refusal.value.message
    with pytest.raises(InvalidConfig):
        parse_store_settings({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.partitions", "0"),
        ("num.partitions", "10001"),
        ("offsets.topic.num.partitions", "10001"),
        ("num.partitions", "many"),
        ("node.id", "-1"),
        ("producer.id.expiration.ms", "0"),
        ("cluster.id", ""),
        ("cluster.id", "a\nb"),
        ("directory.id", "x" * 256),
    ],
)
def test_bad_store_settings_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig):
        parse_store_settings({name: value})


@pytest.mark.parametrize(
    ("value", "compacts", "deletes"),
    [
        ("delete", False, True),
        ("compact", True, False),
        ("compact,delete", True, True),
        ("delete, compact", True, True),
        ("", False, False),
    ],
)
def test_cleanup_policies(value: str, compacts: bool, deletes: bool) -> None:
    check_topic_config("cleanup.policy", value)
    settings = topic_settings({"cleanup.policy": value, "retention.ms": "1"})
    assert settings.compacts is compacts
    assert settings.retention_ms == (1 if deletes else None)


@pytest.mark.parametrize("value", ["compress", "compact;delete", "compact,", ","])
def test_other_cleanup_policies_are_refused(value: str) -> None:
    with pytest.raises(InvalidConfig):
        check_topic_config("cleanup.policy", value)


def test_values_are_read_as_the_broker_reads_them() -> None:
    configs = {"segment.ms": " 5 ", "preallocate": " TRUE ", "min.cleanable.dirty.ratio": " 0.1 "}
    for name, value in configs.items():
        check_topic_config(name, value)
    settings = topic_settings(configs)
    assert (settings.segment_ms, settings.preallocate) == (5, True)
    assert settings.min_cleanable_dirty_ratio == 0.1
    lists = {"cleanup.policy": " compact , delete "}
    shown = {config.name: config.value for config in parse_store_settings({}).describe("t", lists)}
    assert shown["cleanup.policy"] == "compact,delete"


def test_a_compacted_topic_rolls_before_the_longest_lag() -> None:
    configs = {"max.compaction.lag.ms": "1000", "segment.ms": "5000"}
    assert topic_settings(configs).segment_ms == 5000
    assert topic_settings({**configs, "cleanup.policy": "compact"}).segment_ms == 1000


@pytest.mark.parametrize("value", ["-0.1", "1.1", "nan", "x", ""])
def test_a_ratio_is_from_0_to_1(value: str) -> None:
    with pytest.raises(InvalidConfig):
        check_topic_config("min.cleanable.dirty.ratio", value)
    with pytest.raises(InvalidConfig):
        parse_store_settings({"log.cleaner.io.buffer.load.factor": value})


def test_what_only_the_real_broker_goes_by_is_kept() -> None:
    for name in ("min.insync.replicas", "file.delete.delay.ms", "compression.zstd.level"):
        check_topic_config(name, "1")
    assert parse_store_settings({"flush.ms": "5"}).topic_defaults == {"flush.ms": "5"}
