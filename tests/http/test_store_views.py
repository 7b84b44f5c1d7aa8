"""Files of the store over HTTP: every file once, in pages, with the facts in its name. What it deletes, and when."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import storage
from storage import TopicPartition
from tests.http.harness import ONE_PARTITION, Api, opener, records, serving, settings

FILES = "/store/topics/t/partitions/0/files"
ROW = {
    *("path", "kind", "topic", "partition", "base_offset", "physical_offset"),
    *("size_bytes", "last_modified_ms"),
}


@pytest.fixture(params=["kafka", "rocketmq"])
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Api]:
    """A server on a store on the disk: two records in a topic of two partitions."""
    chosen = settings(tmp_path / "store", set=ONE_PARTITION.get(request.param, {}))
    async with serving(chosen, opener(request.param, chosen)) as api:
        await api.create("t", 2)
        assert (await api.post("/topics/t/partitions/0", records(1, key="k"))).status == 200
        assert (await api.post("/topics/t/partitions/1", records(2))).status == 200
        await until_settled(api)
        yield api


async def until_settled(api: Api) -> None:
    """Wait until queues and index contain all of the log: after that no more files are created."""
    while (await api.get("/store")).json["stats"]["details"].get("dispatch_lag_bytes"):  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def on_disk(api: Api) -> dict[str, Path]:
    """Return every file of the store, by its path relative to the store."""
    root = api.service.settings.data
    return {str(p.relative_to(root)): p for p in root.rglob("*") if p.is_file()}


async def pages(api: Api, path: str) -> list[list[dict[str, Any]]]:
    """Follow the links between pages; return all pages."""
    found = []
    link: str | None = path
    while link is not None:
        answer = await api.get(link)
        assert answer.status == 200, answer.body
        found.append(answer.json["files"])
        link = answer.json["next"]
    return found


@pytest.mark.parametrize("limit", [1, 2, 1000])
async def test_the_pages_together_are_every_file_once(kept: Api, limit: int) -> None:
    found = await pages(kept, f"/store/files?limit={limit}")
    assert all(len(page) == limit for page in found[:-1])
    rows = [row for page in found for row in page]
    expected = on_disk(kept)
    assert [row["path"] for row in rows] == sorted(expected, key=lambda path: path.split("/"))
    for row in rows:
        assert row.keys() == ROW
        status = expected[row["path"]].stat()
        assert row["size_bytes"] == status.st_size
        assert row["last_modified_ms"] == status.st_mtime_ns // 1_000_000


async def test_the_files_of_a_partition(kept: Api) -> None:
    whole = await pages(kept, "/store/files?limit=1000")
    own = [row for page in whole for row in page if (row["topic"], row["partition"]) == ("t", 0)]
    rows = [row for page in await pages(kept, f"{FILES}?limit=1") for row in page]
    assert rows == own
    assert {row["base_offset"] for row in rows if row["kind"] in {"log", "consumequeue"}} == {0}
    if kept.backend == "kafka":
        assert {"log", "index", "timeindex", "metadata"} <= {row["kind"] for row in rows}
    else:
        assert [row["path"] for row in rows] == ["consumequeue/t/0/00000000000000000000"]
        log, *_ = [row for page in whole for row in page if row["kind"] == "commitlog"]
        assert (log["path"], log["physical_offset"]) == ("commitlog/00000000000000000000", 0)


async def test_a_cursor_leads_nowhere_else(kept: Api) -> None:
    assert (await kept.get(f"{FILES}?cursor=z")).json == {"files": [], "next": None}
    everything = [row for page in await pages(kept, FILES) for row in page]
    for cursor in ("../../etc", "/etc/passwd", "", "A"):
        answer = await kept.get(f"{FILES}?cursor={cursor}")
        assert answer.json == {"files": everything, "next": None}


async def test_what_is_no_regular_file_is_left_out(kept: Api, tmp_path: Path) -> None:
    before = await pages(kept, "/store/files?limit=1000")
    root = kept.service.settings.data
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "f").write_bytes(b"x")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "linked").symlink_to(tmp_path / "folder")
    os.mkfifo(root / "pipe")
    (root / "half\udc80").write_bytes(b"x")
    (root / "line\nfeed").write_bytes(b"x")
    assert await pages(kept, "/store/files?limit=1000") == before


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/store/files?limit=0", 40000),
        ("/store/files?limit=1001", 40000),
        ("/store/files?offset=1", 40000),
        ("/store/topics/no/partitions/0/files", 40401),
        ("/store/topics/t/partitions/2/files", 40402),
        ("/store/topics/..%2F..%2Fetc/partitions/0/files", 40401),
    ],
)
async def test_what_is_asked_wrongly(kept: Api, path: str, code: int) -> None:
    assert (await kept.get(path)).code == code


async def test_a_store_in_memory_has_no_files(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener("memory", chosen)) as api:
        await api.create("t")
        assert (await api.get("/store/files")).code == 42207
        assert (await api.get(FILES)).code == 42207


KINDS = {
    "kafka": {
        ".kafka_cleanshutdown": "marker",
        ".lock": "lock",
        ".logserver.store.json": "logserver",
        "meta.properties": "metadata",
        "notes.txt": "other",
        "recovery-point-offset-checkpoint": "checkpoint",
        "t-0/00000000000000000007.log": "log t-0 7",
        "t-0/00000000000000000007.log.deleted": "log.deleted t-0 7",
        "t-0/00000000000000000007.snapshot": "snapshot t-0 7",
        "t-0/00000000000000000007.timeindex": "timeindex t-0 7",
        "t-0/00000000000000000007.txnindex": "txnindex t-0 7",
        "t-0/deeper/00000000000000000007.log": "other",
        "t-0/leader-epoch-checkpoint": "checkpoint t-0",
        "t-0/partition.metadata": "metadata t-0",
        "t/00000000000000000007.log": "other",
    },
    "rocketmq": {
        ".logserver.store.json": "logserver",
        "abort": "marker",
        "checkpoint": "checkpoint",
        "commitlog/00000000001073741824": "commitlog @1073741824",
        "commitlog/notes": "other",
        "config/topics.json": "config",
        "consumequeue/t/0/00000000000006000000": "consumequeue t-0 300000",
        "consumequeue/t/0/notes": "other",
        "consumequeue/t/x/00000000000006000000": "other",
        "index/20260102030405006": "indexfile",
        "index/notes": "other",
        "lock": "lock",
    },
}


@pytest.mark.parametrize("backend", KINDS)
def test_kinds_by_name(tmp_path: Path, backend: str) -> None:
    for name in KINDS[backend]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert {file.path: reported(file) for file in storage.list_files(backend, tmp_path)} == KINDS[
        backend
    ]
    own = [name for name, kind in KINDS[backend].items() if " t-0" in kind or "t-0/" in name]
    in_folder = storage.list_files(backend, tmp_path, TopicPartition("t", 0))
    assert set(own) <= {file.path for file in in_folder} <= set(KINDS[backend])


def reported(file: storage.StoredFile) -> str:
    """Return a file's facts as a line."""
    words = [file.kind]
    if file.topic is not None:
        words.append(f"{file.topic}-{file.partition}")
    if file.base_offset is not None:
        words.append(str(file.base_offset))
    if file.physical_offset is not None:
        words.append(f"@{file.physical_offset}")
    return " ".join(words)


# ---- retention -------------------------------------------------------------------------------------------------------

SWITCH = {"kafka": ("log.retention.ms", 0), "rocketmq": ("diskMaxUsedSpaceRatio", 95)}


async def test_retention_is_switched_while_the_server_runs(kept: Api) -> None:
    name, value = SWITCH[kept.backend]
    before = (await kept.get("/store")).json["retention"]
    assert set(before.values()) == {None}
    changed = await kept.call("PATCH", "/store", json={"retention": {name: value}})
    assert changed.status == 200
    assert changed.json["retention"] == {**before, name: str(value)}
    assert (await kept.get("/store")).json["retention"] == changed.json["retention"]
    if kept.backend == "kafka":
        store = kept.service.store
        assert store.enforce_retention(1 << 50).segments_deleted == 2
        assert (await kept.get("/topics/t/partitions/0/records?offset=0")).code == 41601
        stats = (await kept.get("/store")).json["stats"]
        assert stats["deleted_segments"] == 2
        assert stats["details"]["deleted_files_waiting"] > 0
        assert b"logserver_store_deleted_segments_total 2.0" in (await kept.get("/metrics")).body
    back = await kept.call("PATCH", "/store", json={"retention": {name: None}})
    assert back.json["retention"] == before


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"retention": {"no.such": 1}}, 42205),
        ({"retention": {"log.retention.ms": "soon"}}, 42205),
        ({"retention": {"deleteWhen": "25"}}, 42205),
        ({"retention": 5}, 42201),
        ({"flush": "os"}, 42201),
        ({}, 42201),
    ],
)
async def test_other_changes_of_a_store_are_refused(
    kept: Api, body: dict[str, object], code: int
) -> None:
    before = (await kept.get("/store")).json["retention"]
    assert (await kept.call("PATCH", "/store", json=body)).code == code
    assert (await kept.get("/store")).json["retention"] == before


async def test_a_store_that_deletes_nothing_has_no_retention(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener("memory", chosen)) as api:
        assert (await api.get("/store")).json["retention"] == {}
        assert (await api.call("PATCH", "/store", json={"retention": {}})).code == 42207
