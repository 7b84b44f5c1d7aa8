"""Metrics: names follow the Prometheus conventions, series are few, and the dashboard shows existing metrics."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from api.app import all_operations
from logserver.config import Settings
from logserver.metrics import Children, Count, Spread
from tests.http.harness import Api, opener, records, serving, settings
from tests.wire.harness import FREE, Broker, fetch

SCALED = re.compile(r"_(ms|millis\w*|micros\w*|minutes|kb|mb|kilobytes|percent)(_|$)")
NAME = re.compile(r"\b(?:logserver|process)_[a-z_]+")


async def scraped(api: Api) -> list[Any]:
    """Return the metric families after some traffic."""
    await api.post("/topics/t", records("aGk="))
    await api.get("/topics/t/partitions/0/records")
    await api.get("/nothing/at/all")
    text = (await api.get("/metrics")).body.decode()
    return list(text_string_to_metric_families(text))


async def test_names_follow_the_conventions(api: Api) -> None:
    for family in await scraped(api):
        assert re.fullmatch(r"(logserver|process)_[a-z_]+", family.name), family.name
        assert family.documentation.endswith("."), family.name
        assert not SCALED.search(family.name), f"{family.name}: seconds and bytes are the units"
        if family.type == "counter":
            names = {sample.name for sample in family.samples}
            assert f"{family.name}_total" in names
        else:
            assert not family.name.endswith("_total"), family.name


async def test_labels_have_few_values(api: Api) -> None:
    """A client cannot create a series with another path or another method."""
    for number in range(20):
        await api.get(f"/topics/unknown-{number}")
        await api.call(f"ODD{number}", "/topics")
    allowed = {
        "route": {operation.pattern for operation in all_operations(Settings())} | {"none"},
        "service": {
            "journal",
            "flush",
            "checkpoint",
            "retention",
            "compaction",
            "delivery",
            "transactions",
        },
        "port": {"http", "kafka"},
        "group": set(),  # limited by a setting
        "topic": set(),
    }
    for family in await scraped(api):
        for sample in family.samples:
            assert sample.labels.keys() <= {*allowed, "method", "status", "le"}, sample
            for name in allowed.keys() & sample.labels.keys():
                assert sample.labels[name] in allowed[name], sample
            assert not sample.labels.get("method", "").startswith("ODD")


def lines(text: bytes) -> list[str]:
    """Return the lines of metrics without the times of their creation."""
    return [line for line in text.decode().splitlines() if "_created" not in line]


def test_plain_numbers_are_rendered_like_those_of_the_library() -> None:
    """Values on a bound, below and above all bounds; a counter without an increment; labels."""
    library = CollectorRegistry()
    counter = Counter("logserver_http_requests", "Answered.", ["route"], registry=library)
    times = Histogram("logserver_seconds", "Time.", ["route"], buckets=(0.1, 2.5), registry=library)
    idle = Counter("logserver_idle", "None.", registry=library)
    plain = CollectorRegistry()
    counts = Children(
        Count,
        partial(CounterMetricFamily, "logserver_http_requests", "Answered.", labels=["route"]),
    )
    spreads = Children(
        partial(Spread, (0.1, 2.5)),
        partial(HistogramMetricFamily, "logserver_seconds", "Time.", labels=["route"]),
    )
    none = Children(Count, partial(CounterMetricFamily, "logserver_idle", "None.", labels=[]))
    for children in (counts, spreads, none):
        plain.register(children)
    assert idle is not None
    assert none.child().value == 0
    for route in ("/a", '/"b"'):
        for value in (0.05, 0.1, 0.3, 2.5, 7.0):
            counter.labels(route).inc()
            counts.child(route).value += 1
            times.labels(route).observe(value)
            spreads.child(route).observe(value)
    assert lines(generate_latest(plain)) == lines(generate_latest(library))
    created = [name for name in generate_latest(plain).decode().split() if "_created" in name]
    assert created == [
        name for name in generate_latest(library).decode().split() if "_created" in name
    ]


async def test_a_scrape_counts_every_request_before_it(api: Api) -> None:
    for _ in range(7):
        await api.post("/topics/t?acks=1", records("aGk="))
    text = (await api.get("/metrics")).body.decode()
    route = 'route="/topics/{topic}"'
    assert f'logserver_http_requests_total{{method="POST",{route},status="200"}} 7.0' in text
    assert f"logserver_http_request_seconds_count{{{route}}} 7.0" in text
    assert "logserver_produced_records_total 7.0" in text
    assert "logserver_store_appends_total 7.0" in text


def lags(families: list[Any]) -> dict[tuple[str, str], float]:
    """Return the lags of groups, by group and topic."""
    return {
        (sample.labels["group"], sample.labels["topic"]): sample.value
        for family in families
        for sample in family.samples
        if sample.name == "logserver_group_lag_offsets"
    }


async def commit(api: Api, group: str, topic: str, to: str) -> None:
    answer = await api.call("PUT", f"/groups/{group}/offsets", json={"topic": topic, "to": to})
    assert answer.status == 200


async def test_the_lag_of_groups(api: Api) -> None:
    """From the commits; a partition without a commit, and one that is gone, do not count."""
    for topic in ("t", "u"):
        assert (await api.post(f"/topics/{topic}", records("aGk=", "aGk=", "aGk="))).status == 200
    assert lags(await scraped(api)) == {}
    await commit(api, "late", "t", "earliest")
    await commit(api, "late", "u", "earliest")
    await commit(api, "done", "t", "latest")
    # Each `scraped` sends a record to "t".
    assert lags(await scraped(api)) == {
        ("late", "t"): 5,
        ("late", "u"): 3,
        ("done", "t"): 1,
    }
    assert (await api.call("DELETE", "/topics/u")).status == 204
    assert ("late", "u") not in lags(await scraped(api))


@pytest.mark.parametrize(("most", "shown"), [(0, {}), (1, {("late", "t"): 2})])
async def test_the_largest_lags(
    tmp_path: Path, most: int, shown: dict[tuple[str, str], int]
) -> None:
    chosen = settings(tmp_path / "store", metrics_group_lags=most)
    async with serving(chosen, opener("kafka", chosen)) as api:
        assert (await api.post("/topics/t", records("aGk="))).status == 200
        await commit(api, "late", "t", "earliest")
        await commit(api, "done", "t", "latest")
        assert lags(await scraped(api)) == shown


async def test_the_dashboard_shows_what_there_is(tmp_path: Path, repo_root: Path) -> None:
    chosen = settings(tmp_path / "store", listen_kafka=FREE)
    async with serving(chosen, opener("rocketmq", chosen)) as api:
        await api.server.listen_kafka()
        async with Broker(api).connect() as client:
            await client.call(fetch("unknown", (0, 0)), 12)
            client.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await client.is_ended()
        assert (await api.post("/topics/t", records("aGk="))).status == 200
        await commit(api, "g", "t", "earliest")
        known = {sample.name for family in await scraped(api) for sample in family.samples}
    dashboard = msgspec.json.decode((repo_root / "docs/grafana-dashboard.json").read_bytes())
    panels = dashboard["panels"]
    shown = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in NAME.findall(target["expr"])
    }
    assert shown <= known
    assert {name for name in known if name.endswith("_total") and "logserver" in name} <= shown
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
