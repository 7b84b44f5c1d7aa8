"""Conversion of a topic's name to the other format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.conversion.topic_names import topic_name
from storage.errors import InvalidTopic

OTHER = {"kafka": "rocketmq", "rocketmq": "kafka"}
ESCAPED = [
    ("rocketmq", "orders.v1", "orders%2Ev1"),
    ("rocketmq", "..", "%2E%2E"),
    ("rocketmq", "TBW102", "%54BW102"),
    ("rocketmq", "_.52", "_%2E52"),  # reads as an escaped R, which needs no escaping
    ("kafka", "%RETRY%group", "_.25RETRY_.25group"),
    ("kafka", "a|b", "a_.7Cb"),
    ("kafka", "größe", "gr_.C3_.B6_.C3_.9Fe"),
    ("kafka", "SCHEDULE_TOPIC_XXXX", "_.53CHEDULE_TOPIC_XXXX"),
    ("kafka", "__cluster_metadata", "_.5F_cluster_metadata"),
]


@pytest.mark.parametrize("to", OTHER)
def test_a_name_that_both_take(to: str) -> None:
    assert topic_name("orders_eu-1", to=to, encode=False) == "orders_eu-1"


@pytest.mark.parametrize(("to", "name", "escaped"), ESCAPED)
def test_a_name_that_the_other_does_not_take(to: str, name: str, escaped: str) -> None:
    with pytest.raises(InvalidTopic):
        topic_name(name, to=to, encode=False)
    assert topic_name(name, to=to, encode=True) == escaped
    assert topic_name(escaped, to=OTHER[to], encode=False) == name


@pytest.mark.parametrize(
    ("to", "name", "reason"),
    [
        ("kafka", "SCHEDULE_TOPIC_XXXX", "that a rocketmq broker gives to no client"),
        ("rocketmq", "__cluster_metadata", "that a kafka broker gives to no client"),
        ("kafka", "a%41b", "holds a character"),
    ],
)
def test_the_reason_against_a_name(to: str, name: str, reason: str) -> None:
    with pytest.raises(InvalidTopic, match=reason):
        topic_name(name, to=to, encode=False)


def test_a_name_that_is_too_long() -> None:
    with pytest.raises(InvalidTopic, match="the limit is 127"):
        topic_name("x" * 128, to="rocketmq", encode=True)


@pytest.mark.parametrize(("to", "alphabet"), [("rocketmq", "a.2E5_-"), ("kafka", "a%|2E5_-.é")])
@given(data=st.data())
def test_every_name_comes_back(to: str, alphabet: str, data: st.DataObject) -> None:
    name = data.draw(st.text(alphabet, min_size=1, max_size=12))
    assert topic_name(topic_name(name, to=to, encode=True), to=OTHER[to], encode=True) == name
