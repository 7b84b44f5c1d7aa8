"""Broadcast mode: each member gets every record, and keeps in its own folder how far it has read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from logserver.client import ClientError, LogClient, TopicPartition, as_record, broadcast
from logserver.client.broadcast import BACKUP, OFFSETS_FILE, store_offsets, stored_offsets

ALL = [f"{partition}-{n}" for partition in range(2) for n in range(3)]
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(autouse=True)
async def topic(client: LogClient) -> None:
    """A topic of two partitions with three records in each."""
    await client.create_topic("t", partitions=2)
    await add(client, 3)


async def add(client: LogClient, count: int, first: int = 0) -> None:
    for partition in range(2):
        records = [as_record(f"{partition}-{n}") for n in range(first, first + count)]
        await client.produce_many("t", records, partition=partition)


async def polled(
    client: LogClient, folder: Path, *, commits: bool = True, offset_reset: str = "earliest"
) -> list[str]:
    """Return the texts of all records that a member gets."""
    texts: list[str] = []
    async with client.broadcast("g", ["t"], folder, offset_reset=offset_reset) as member:
        while records := await member.poll(timeout_ms=0):
            texts += [record.text for record in records]
        if commits:
            await member.commit()
    return sorted(texts)


async def test_each_member_gets_everything(client: LogClient, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert await polled(client, tmp_path / name) == ALL
    await add(client, 1, first=3)
    for name in ("one", "two"):
        assert await polled(client, tmp_path / name) == ["0-3", "1-3"]
        assert await polled(client, tmp_path / name) == []
    assert await client.groups() == [], "the server keeps no offset"


async def test_what_was_not_stored_comes_again(client: LogClient, tmp_path: Path) -> None:
    for _ in range(2):
        assert await polled(client, tmp_path, commits=False) == ALL
    assert stored_offsets(tmp_path / OFFSETS_FILE) == {}


async def test_commits_of_the_group_do_not_count(client: LogClient, tmp_path: Path) -> None:
    async with client.consumer("g", ["t"]) as member:
        await member.poll()
        await member.commit()
    assert await polled(client, tmp_path) == ALL


async def test_the_end_as_the_beginning(client: LogClient, tmp_path: Path) -> None:
    assert await polled(client, tmp_path, offset_reset="latest") == []
    async with client.broadcast("g", ["t"], tmp_path, offset_reset="latest") as member:
        await add(client, 1, first=3)
        assert sorted(one.text for one in await member.poll()) == ["0-3", "1-3"]


@pytest.mark.parametrize("offset_reset", ["earliest", "latest"])
async def test_partitions_that_are_added_later(
    client: LogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset_reset: str
) -> None:
    """They are read from their first record; the others continue where they were."""
    monkeypatch.setattr(broadcast, "LOOK_AGAIN_S", 0)
    async with client.broadcast("g", ["t"], tmp_path, offset_reset=offset_reset) as member:
        while await member.poll(timeout_ms=0):
            pass
        await client.add_partitions("t", 3)
        await client.produce_many("t", [as_record("2-0")], partition=2)
        await add(client, 1, first=3)
        texts: list[str] = []
        for _ in range(10):
            texts += [record.text for record in await member.poll(timeout_ms=100)]
        await member.commit()
    assert sorted(texts) == ["0-3", "1-3", "2-0"]
    assert stored_offsets(tmp_path / OFFSETS_FILE)[TopicPartition("t", 2)] == 1


async def test_offsets_that_the_log_does_not_have(client: LogClient, tmp_path: Path) -> None:
    store_offsets(tmp_path / OFFSETS_FILE, {T0: 99, T1: 2, TopicPartition("gone", 0): 1})
    assert await polled(client, tmp_path) == ["0-0", "0-1", "0-2", "1-2"]
    assert stored_offsets(tmp_path / OFFSETS_FILE) == {
        T0: 3,
        T1: 3,
        TopicPartition("gone", 0): 1,
    }


def test_the_file_and_its_backup(tmp_path: Path) -> None:
    path = tmp_path / "of" / "g" / OFFSETS_FILE
    backup = path.with_name(OFFSETS_FILE + BACKUP)
    assert stored_offsets(path) == {}
    for offset in (1, 2):
        store_offsets(path, {T0: offset})
    row = {"topic": "t", "partition": 0, "offset": 2}
    assert msgspec.json.decode(path.read_bytes()) == {"offsets": [row]}
    assert msgspec.json.decode(backup.read_bytes()) == {"offsets": [row | {"offset": 1}]}
    assert sorted(file.name for file in path.parent.iterdir()) == [OFFSETS_FILE, backup.name]
    for content in (b"", b"{", b'{"offsets":[{"topic":"t"}]}', None):
        path.unlink() if content is None else path.write_bytes(content)
        assert stored_offsets(path) == {T0: 1}
    path.write_bytes(b"{")
    store_offsets(path, {T0: 3})
    path.write_bytes(b"")
    assert stored_offsets(path) == {T0: 1}, "a damaged file did not replace the backup"
    backup.write_bytes(b"?")
    with pytest.raises(ClientError, match=OFFSETS_FILE):
        stored_offsets(path)
