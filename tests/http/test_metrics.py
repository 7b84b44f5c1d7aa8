"""Metrics: names follow the Prometheus conventions, series are few, and the dashboard shows existing metrics."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from api.app import all_operations
from logserver.config import Settings
from tests.http.harness import Api, opener, records, serving, settings

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
    allowed = {"route": {operation.pattern for operation in all_operations(Settings())} | {"none"}}
    for family in await scraped(api):
        for sample in family.samples:
            assert sample.labels.keys() <= {"route", "method", "status", "le"}, sample
            if "route" in sample.labels:
                assert sample.labels["route"] in allowed["route"], sample
            assert not sample.labels.get("method", "").startswith("ODD")


async def test_the_dashboard_shows_what_there_is(tmp_path: Path, repo_root: Path) -> None:
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener("rocketmq", chosen)) as api:
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
