"""Topics: created, listed, altered and deleted; rejected names and shapes."""

from __future__ import annotations

import re

import pytest

from storage.contract import LogStore
from storage.errors import (
    InvalidArgument,
    InvalidConfig,
    InvalidTopic,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from storage.model import OffsetBounds, ProducerSequence, TopicPartition
from tests.contract.flavours import Flavour
from tests.contract.harness import StoreFactory, read_all, texts

NAMES = {
    "letter": "a",
    "hyphen": "-",
    "underscore": "_",
    "three dots": "...",
    "dots inside": "A.b_c-9",
    "retry": "%RETRY%group",
    "pipe": "a|b",
    "127 characters": "x" * 127,
    "128 characters": "x" * 128,
    "249 characters": "x" * 249,
    "as a partition's folder": "a-0",
    "as a partition's folder, twice": "a-0-1",
    "as a queue's folder": "0",
}
BAD_NAMES = {
    "empty": "",
    "dot": ".",
    "dots": "..",
    "slash": "a/b",
    "climbing": "../a",
    "backslash": "a\\b",
    "nul": "a\0b",
    "newline": "a\n",
    "space": "a b",
    "colon": "a:b",
    "umlaut": "zürich",
    "kanji": "名前",
    "250 characters": "x" * 250,
}


def test_create_gives_its_shape(store: LogStore, flavour: Flavour) -> None:
    """A new topic has partitions 0 to n-1, its configs, and no records."""
    name, value, _ = flavour.config
    info = store.create_topic("orders", 3, {name: value})
    assert (info.name, list(info.partitions)) == ("orders", [0, 1, 2])
    assert dict(info.configs) == {name: value}
    assert store.topics()["orders"] == info
    for number in info.partitions:
        assert store.bounds(TopicPartition("orders", number)) == OffsetBounds(0, 0, 0)


def test_default_partitions_is_a_setting(store_factory: StoreFactory) -> None:
    """Without a count a topic gets the number of partitions in the store's setting."""
    store = store_factory.open(settings={store_factory.flavour.partitions_setting: "4"})
    assert list(store.create_topic("a").partitions) == [0, 1, 2, 3]


def test_default_partitions(store: LogStore, flavour: Flavour) -> None:
    """Without a count and a setting a topic gets the default number of partitions of the reference implementation."""
    assert list(store.create_topic("a").partitions) == list(range(flavour.default_partitions))


def test_listed_in_name_order(store: LogStore) -> None:
    """`topics` returns a snapshot in name order, whatever the order of creation."""
    for name in ("b", "a-b", "Z", "a_c", "10", "a-1", "9"):
        store.create_topic(name)
    before = store.topics()
    assert list(before) == ["10", "9", "Z", "a-1", "a-b", "a_c", "b"]
    store.create_topic("later")
    assert "later" not in before


def is_legal(flavour: Flavour, name: str) -> bool:
    """Return whether a new topic may have the name."""
    return re.fullmatch(flavour.topic_name, name) is not None


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_names_allowed(store: LogStore, flavour: Flavour, name: str) -> None:
    """Exactly the names legal in the reference implementation are accepted, even a name like a partition's folder."""
    if not is_legal(flavour, name):
        with pytest.raises(InvalidTopic):
            store.create_topic(name, 2)
        assert dict(store.topics()) == {}
        return
    store.create_topic(name, 2)
    store.append(TopicPartition(name, 1), texts("v"))
    assert len(read_all(store, TopicPartition(name, 1))) == 1
    assert list(store.topics()) == [name]


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES.keys())
def test_names_refused(store: LogStore, name: str) -> None:
    """Any other name is InvalidTopic and creates nothing."""
    with pytest.raises(InvalidTopic) as refused:
        store.create_topic(name, 1)
    assert refused.value.facts()["topic"] == name
    assert dict(store.topics()) == {}


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES.keys())
def test_names_refused_are_just_unknown_elsewhere(store: LogStore, name: str) -> None:
    """Name rules apply to creation only: reading a topic with a bad name is UnknownTopic."""
    with pytest.raises(UnknownTopic):
        store.read(TopicPartition(name, 0), 0)


@pytest.mark.parametrize(("name", "alike"), [("a.b", "a_b"), ("a_b", "a.b"), ("a._", "a_.")])
def test_names_alike_are_refused(store: LogStore, flavour: Flavour, name: str, alike: str) -> None:
    """Two names must not differ only in . and _, because they would collide in Kafka's metrics.

    A backend without dots in names has no such pair.
    """
    legal = [given for given in (name, alike) if is_legal(flavour, given)]
    assert (len(legal) == 2) == ((name, alike) in flavour.names_alike)
    store.create_topic(legal[0] if legal else "other")
    with pytest.raises(InvalidTopic):
        store.create_topic(alike if len(legal) == 2 else name if alike in legal else alike)
    assert len(store.topics()) == 1


def test_same_again_changes_nothing(store: LogStore, flavour: Flavour) -> None:
    """Creating an existing topic in the same shape returns the topic and keeps its records."""
    name, value, _ = flavour.config
    info = store.create_topic("a", 2, {name: value})
    store.append(TopicPartition("a", 1), texts("kept"))
    assert store.create_topic("a", 2, {name: value}) == info
    assert store.create_topic("a") == info, "a config that is not given is not requested"
    assert store.bounds(TopicPartition("a", 1)).end == 1


@pytest.mark.parametrize(
    ("partitions", "which"), [(3, "same"), (1, "same"), (2, "other"), (2, "none")]
)
def test_other_shape_is_refused(
    store: LogStore, flavour: Flavour, partitions: int, which: str
) -> None:
    """Creating an existing topic with other partitions or configs is TopicExists, and the topic stays unchanged."""
    name, value, other = flavour.config
    configs = {"same": {name: value}, "other": {name: other}, "none": {}}[which]
    info = store.create_topic("a", 2, {name: value})
    with pytest.raises(TopicExists) as refused:
        store.create_topic("a", partitions, configs)
    assert refused.value.facts()["topic"] == "a"
    assert store.topics()["a"] == info


@pytest.mark.parametrize("partitions", [0, -1])
def test_partitions_are_one_or_more(store: LogStore, partitions: int) -> None:
    """A topic without partitions cannot be created."""
    with pytest.raises(InvalidArgument) as refused:
        store.create_topic("a", partitions)
    assert refused.value.facts()["field"] == "partitions"
    assert dict(store.topics()) == {}


def test_configs_refused(store: LogStore, flavour: Flavour) -> None:
    """An unknown config or a bad value is InvalidConfig at create and alter; nothing changes."""
    second = {flavour.second.name: flavour.second.value}
    info = store.create_topic("old", 1, {flavour.config.name: flavour.config.value})
    for name, value in flavour.bad_configs:
        with pytest.raises(InvalidConfig) as refused:
            store.create_topic("new", 1, {name: value})
        assert (refused.value.facts()["name"], refused.value.facts()["value"]) == (name, value)
        with pytest.raises(InvalidConfig):
            store.alter_topic("old", {**second, name: value})
    assert dict(store.topics()) == {"old": info}


def test_alter_sets_and_resets(store: LogStore, flavour: Flavour) -> None:
    """A value sets a config, None resets it, and configs that are not named stay."""
    first, second, third = flavour.config, flavour.second, flavour.third
    store.create_topic("a", 2, {first.name: first.value, second.name: second.value})
    info = store.alter_topic("a", {first.name: None, third.name: third.value})
    assert dict(info.configs) == {second.name: second.value, third.name: third.value}
    assert list(info.partitions) == [0, 1]
    assert store.topics()["a"] == info


def test_alter_refuses_a_reset_of_the_unknown(store: LogStore) -> None:
    """A config that does not exist cannot be reset either."""
    store.create_topic("a")
    with pytest.raises(InvalidConfig):
        store.alter_topic("a", {"no.such.config": None})


def test_delete_takes_all_of_it(store: LogStore, flavour: Flavour) -> None:
    """A deleted topic is unknown. Created again, it starts empty: offsets at 0, and no known producers."""
    partition = TopicPartition("a", 0)
    store.create_topic("a", 1, {flavour.config.name: flavour.config.value})
    store.create_topic("a-0")
    store.append(partition, texts("old"), producer=ProducerSequence(7, 3, 0))
    store.delete_topic("a")
    assert list(store.topics()) == ["a-0"]
    with pytest.raises(UnknownTopic):
        store.bounds(partition)
    assert dict(store.create_topic("a", 1).configs) == {}
    assert store.bounds(partition).end == 0
    result = store.append(partition, texts("new"), producer=ProducerSequence(7, 0, 0))
    assert (result.base_offset, result.duplicate) == (0, False)
    assert [r.value for r in read_all(store, partition)] == [b"new"]
    assert len(store.find("a").records) == 1


def test_sizes_of_partitions(store: LogStore, flavour: Flavour) -> None:
    """The sizes of the partitions' logs add up to the store's; partitions that share a log have no size."""
    store.create_topic("a", 2)
    for number, count in ((0, 1), (1, 20)):
        store.append(TopicPartition("a", number), texts(*["value"] * count))
    sizes = [store.log_bytes(TopicPartition("a", number)) for number in (0, 1)]
    if flavour.shares_log:
        assert sizes == [None, None]
        return
    small, large = sizes
    assert small is not None
    assert large is not None
    assert 0 < small < large
    assert small + large == store.stats().size_bytes


def test_unknown_topic(store: LogStore) -> None:
    """Every call for a topic that does not exist is UnknownTopic with the name."""
    partition = TopicPartition("none", 0)
    for call in (
        lambda: store.alter_topic("none", {}),
        lambda: store.delete_topic("none"),
        lambda: store.append(partition, texts("v")),
        lambda: store.read(partition, 0),
        lambda: store.bounds(partition),
        lambda: store.log_bytes(partition),
        lambda: store.flush([partition]),
        lambda: store.offset_for_time(partition, 0),
        lambda: store.find("none", key="k"),
        lambda: list(store.scan(partition)),
    ):
        with pytest.raises(UnknownTopic) as refused:
            call()
        assert refused.value.code == "unknown-topic"
        assert refused.value.facts() == {"topic": "none"}


@pytest.mark.parametrize("number", [2, -1, 2**31])
def test_unknown_partition(store: LogStore, number: int) -> None:
    """A partition that the topic does not have is UnknownPartition with the topic's number of partitions."""
    store.create_topic("a", 2)
    partition = TopicPartition("a", number)
    for call in (
        lambda: store.append(partition, texts("v")),
        lambda: store.read(partition, 0),
        lambda: store.bounds(partition),
        lambda: store.log_bytes(partition),
        lambda: store.flush([partition]),
        lambda: store.offset_for_time(partition, 0),
        lambda: list(store.scan(partition)),
    ):
        with pytest.raises(UnknownPartition) as refused:
            call()
        assert refused.value.facts() == {"topic": "a", "partition": number, "partitions": 2}


def test_topics_outlive_the_process(durable_factory: StoreFactory) -> None:
    """Create, alter and delete are durable on return: a kill right afterwards does not lose them."""
    store, flavour = durable_factory.open(), durable_factory.flavour
    store.create_topic("kept", 3, {flavour.config.name: flavour.config.value})
    store.create_topic("gone", 2)
    store.alter_topic("kept", {flavour.second.name: flavour.second.value})
    store.delete_topic("gone")
    expected = dict(store.topics())
    assert dict(durable_factory.after_kill().topics()) == expected
    assert dict(durable_factory.reopen(store).topics()) == expected
