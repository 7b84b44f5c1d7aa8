"""Committed offsets in a file in config/: the broker's file, this program's file, damage, and the cost of a write."""

from __future__ import annotations

import errno
import json

import pytest

from storage import CommittedOffset, GroupCommit, LogStore, SupportsGroupOffsets, TopicPartition
from storage.errors import Corrupt, DiskFull, InvalidArgument, StoreFenced
from storage.files import OverlayFileSystem, RealFileSystem
from storage.rocketmq.format.config_json import decode_config
from storage.rocketmq.state.offsets_file import StoredOffsets
from tests.golden import rocketmq_stores as stores
from tests.robustness.crash.faulty import (
    FaultyFileSystem,
    Killed,
    at_change,
    disk_full,
    fails,
    killed,
    no_fault,
)
from tests.unit.files.guarded import Watched
from tests.unit.rocketmq.workshop import ROOT, T0, Workshop, put_file, put_value

OFFSETS = ROOT / "config" / "consumerOffset.json"
BACKUP = ROOT / "config" / "consumerOffset.json.bak"
LMQ_OFFSETS = ROOT / "config" / "lmqConsumerOffset.json"
OLD = b'{"offsetTable":{"t@old":{0:1}}}'
BROKER = stores.golden("broker")
LIVE = [TopicPartition("order-live", number) for number in range(3)]
# Content that the broker reads and this program does not use: other tables, keys of another form, an offset below 0.
STRANGE = b"""{
"resetOffsetTable":{"t@g":{"0":3}},"dataVersion":{"counter":41,"stateVersion":7,"timestamp":1},
"pullOffsetTable":{"t@pull":{0:9}},
"offsetTable":{"t@g":{0:4,"1":5},"nogroup":{0:1},"a@b@c":{0:2},"t@bad":{0:-1},"t@none":{}}
}"""
ABOVE_THE_END = "queue-ends-early"
"""The code of the finding about offsets above the end of a queue: most of these queues are empty."""
UNDERSTOOD = {"g": {T0: 4, TopicPartition("t", 1): 5}}


def offsets_of(store: LogStore) -> SupportsGroupOffsets:
    assert isinstance(store, SupportsGroupOffsets)
    return store


def stated(store: LogStore) -> dict[str, dict[TopicPartition, int]]:
    offsets = offsets_of(store)
    return {
        group: {partition: at.offset for partition, at in offsets.committed(group).items()}
        for group in offsets.groups()
    }


def commit(store: LogStore, offset: int, group: str = "g") -> None:
    offsets_of(store).commit_offsets([GroupCommit(group, {T0: CommittedOffset(offset)})])


def codes(store: LogStore) -> set[str]:
    return {finding.code for finding in store.recovery.findings}


def with_files(**files: bytes) -> Workshop:
    """Return a cleanly stopped store with the topic t (two queues), and with these files in config/."""
    shop = Workshop()
    shop.open_with_topic(partitions=2).close()
    for name, data in files.items():
        put_file(shop.fs, ROOT / "config" / name, data)
    return shop


@pytest.mark.parametrize("read_only", [True, False])
def test_a_real_brokers(read_only: bool) -> None:
    """The offsets of the real broker are read; a commit changes one entry, and the former file becomes the `.bak`."""
    fs = OverlayFileSystem(RealFileSystem())
    path = BROKER.root / "config" / OFFSETS.name
    before = path.read_bytes()
    with stores.open_golden(BROKER, fs=fs, read_only=read_only) as store:
        assert stated(store)["order-group"] == dict(zip(LIVE, (29, 30, 28), strict=True))
        assert offsets_of(store).groups() == ["CID_RMQ_SYS_TRANS", "order-group"]
        if read_only:
            return
        change = GroupCommit("order-group", {LIVE[1]: CommittedOffset(31)})
        offsets_of(store).commit_offsets([change])
    assert fs.read_bytes(path.with_name(BACKUP.name)) == before
    expected = decode_config(before)
    expected["offsetTable"]["order-live@order-group"][1] = 31
    after = decode_config(fs.read_bytes(path))
    assert after["dataVersion"].pop("timestamp") > 0
    assert after["dataVersion"] == {"counter": 1, "stateVersion": 0}
    assert {**after, "dataVersion": expected["dataVersion"]} == expected


def test_the_text_is_the_brokers() -> None:
    """The layout is the broker's: its order of keys, number keys without quotes, tabs, no newline at the end."""
    shop = Workshop()
    store = shop.open_with_topic(partitions=2)
    assert not shop.fs.exists(OFFSETS)
    commit(store, 3)
    assert shop.fs.read_bytes(OFFSETS) == (
        b'{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"stateVersion":0,\n\t\t"timestamp":1700000000000\n\t},\n'
        b'\t"groupTopicMap":{\n\t\t"g":[\n\t\t\t"t"\n\t\t]\n\t},\n'
        b'\t"offsetTable":{\n\t\t"t@g":{\n\t\t\t0:3\n\t\t}\n\t},\n'
        b'\t"pullOffsetTable":{}\n}'
    )
    assert not shop.fs.exists(BACKUP)


def test_what_is_not_known_is_kept() -> None:
    shop = with_files(**{OFFSETS.name: STRANGE})
    store = shop.open()
    assert stated(store) == UNDERSTOOD
    commit(store, 8, "new")
    before, after = decode_config(STRANGE), decode_config(shop.fs.read_bytes(OFFSETS))
    assert after["dataVersion"]["counter"] == 42
    assert after["dataVersion"]["stateVersion"] == 7
    for name in ("resetOffsetTable", "pullOffsetTable"):
        assert after[name] == before[name]
    table = before["offsetTable"] | {"t@g": {0: 4, 1: 5}, "t@new": {0: 8}}
    del table["t@none"]
    assert after["offsetTable"] == table
    assert after["groupTopicMap"] == {"bad": ["t"], "g": ["t"], "new": ["t"]}


BROKEN = {
    "null as an offset": b'{"offsetTable":{"t@g":{0:4,1:5,7:null},"u@h":{3:9}}}',
    "an entry that is a list": b'{"offsetTable":{"t@g":{0:4,1:5},"u@h":{3:9},"t@list":[1]}}',
    "a queue that is no number": b'{"offsetTable":{"t@g":{0:4,1:5,"x":1},"u@h":{3:9}}}',
    "an offset beyond 2^63": b'{"offsetTable":{"t@g":{0:4,1:5,2:9223372036854775808},"u@h":{3:9}}}',
    "number keys in a table without a group": b'{"x":{0:1.50},"offsetTable":{"t@g":{0:4,1:5},"u@h":{3:9}}}',
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_what_the_broker_cannot_read_is_kept(broken: bytes) -> None:
    """The broker would read the missing `.bak`. Here the rest is understood, and no commit erases unknown content."""
    shop = with_files(**{OFFSETS.name: broken})
    with shop.open() as store:
        assert stated(store) == UNDERSTOOD | {"h": {TopicPartition("u", 3): 9}}
        # The offsets that are understood name records and a topic that this store never had.
        named = {"queue-ends-early", "name-of-deleted-topic"}
        codes = [f.code for f in store.recovery.findings if f.code not in named]
        assert codes == ["bad-config-file"]
        commit(store, 8)
        commit(store, 9)
    before, after = decode_config(broken), decode_config(shop.fs.read_bytes(OFFSETS))
    before["offsetTable"]["t@g"][0] = 9
    assert after["offsetTable"] == before["offsetTable"]
    assert {name: after[name] for name in before} == before
    assert shop.fs.read_bytes(ROOT / ".logserver.consumerOffset.damaged.json") == broken
    assert not shop.fs.exists(BACKUP), "with both unreadable the broker does not start"


@pytest.mark.parametrize("odd", ["0:-1", '"0":-7', "5:-9223372036854775808"])
def test_an_offset_below_0_is_kept_until_its_queue_is_committed(odd: str) -> None:
    shop = with_files(**{OFFSETS.name: b'{"offsetTable":{"t@g":{%s,1:5}}}' % odd.encode()})
    key, _, value = odd.replace('"', "").partition(":")
    with shop.open() as store:
        assert stated(store) == {"g": {TopicPartition("t", 1): 5}}
        offsets_of(store).commit_offsets(
            [GroupCommit("g", {TopicPartition("t", 1): CommittedOffset(6)})]
        )
        entry = decode_config(shop.fs.read_bytes(OFFSETS))["offsetTable"]["t@g"]
        assert {int(name): offset for name, offset in entry.items()} == {int(key): int(value), 1: 6}
        commit(store, 3)
        entry = decode_config(shop.fs.read_bytes(OFFSETS))["offsetTable"]["t@g"]
        assert {name: entry[name] for name in (0, 1)} == {0: 3, 1: 6}
        offsets_of(store).delete_offsets("g")
        assert decode_config(shop.fs.read_bytes(OFFSETS))["offsetTable"] == {}


@pytest.mark.parametrize("name", [LMQ_OFFSETS.name, LMQ_OFFSETS.name + ".bak"])
def test_those_of_a_broker_with_light_queues_are_in_another_file(name: str) -> None:
    """Such a broker reads only that file, so the offsets in the other file no longer count."""
    light = STRANGE.replace(b'"resetOffsetTable":{"t@g":{"0":3}}', b'"lmqOffsetTable":{"t@g":3}')
    shop = with_files(**{OFFSETS.name: OLD, name: light})
    with shop.open() as store:
        assert stated(store) == UNDERSTOOD
        commit(store, 8)
    assert shop.fs.read_bytes(OFFSETS) == OLD
    after = decode_config(shop.fs.read_bytes(LMQ_OFFSETS))
    assert after["lmqOffsetTable"] == {"t@g": 3}
    assert after["offsetTable"]["t@g"] == {0: 8, 1: 5}
    with shop.open({"enableLmq": "false"}) as store:
        assert stated(store) == {"old": {T0: 1}}


def test_the_setting_says_which_file_it_is() -> None:
    shop = with_files(**{OFFSETS.name: OLD})
    with shop.open({"enableLmq": "true"}) as store:
        assert stated(store) == {}
        commit(store, 2)
    assert shop.fs.read_bytes(OFFSETS) == OLD
    with shop.open() as store:
        assert stated(store) == {"g": {T0: 2}}


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"offsetTable":3}', STRANGE[:-9]])
@pytest.mark.parametrize("read_only", [True, False])
def test_a_damaged_file_is_read_from_its_backup(damage: bytes, read_only: bool) -> None:
    shop = with_files(**{OFFSETS.name: damage, BACKUP.name: STRANGE})
    with shop.open(read_only=read_only) as store:
        assert stated(store) == UNDERSTOOD
        found = [(f.code, f.path) for f in store.recovery.findings if f.code != ABOVE_THE_END]
        assert found == [("bad-config-file", str(OFFSETS))]
        if not read_only:
            commit(store, 6)
            assert shop.fs.read_bytes(BACKUP) == STRANGE, "the last good one"
            kept = ROOT / ".logserver.consumerOffset.damaged.json"
            assert shop.fs.read_bytes(kept) == damage
    with shop.open() as store:
        assert stated(store)["g"][T0] == (4 if read_only else 6)


@pytest.mark.parametrize("backup", [None, b"", b"}"])
def test_without_a_good_file_a_start_goes_on(backup: bytes | None) -> None:
    """No group has offsets then, which is reported; the damaged file is kept aside when it is replaced."""
    files = {OFFSETS.name: b"{"} | ({} if backup is None else {BACKUP.name: backup})
    shop = with_files(**files)
    with shop.open() as store:
        assert stated(store) == {}
        assert codes(store) == {"bad-config-file"}
        commit(store, 2)
        assert shop.fs.read_bytes(ROOT / ".logserver.consumerOffset.damaged.json") == b"{"
    with shop.open() as store:
        assert stated(store) == {"g": {T0: 2}}
        assert codes(store) == {ABOVE_THE_END}


def test_decoding_refuses_what_is_no_table() -> None:
    for data in (b"", b"{", b"3", b'{"offsetTable":[1]}', b"\xff"):
        with pytest.raises(Corrupt):
            StoredOffsets.decode(data)
    assert StoredOffsets.decode(b"{}").table.groups() == []
    assert json.loads(StoredOffsets().encode()) == {}


def test_a_group_with_the_separator_is_refused(shop: Workshop) -> None:
    """Group and topic could not be separated again."""
    store = shop.open_with_topic()
    with pytest.raises(InvalidArgument) as refused:
        commit(store, 1, "a@b")
    assert refused.value.facts()["field"] == "group"
    assert stated(store) == {}


def test_one_write_for_many_groups() -> None:
    """A call writes the file and its `.bak` once for any number of groups; without a change it writes nothing."""
    watched = Watched(with_files().fs)
    shop = Workshop(watched)
    store = shop.open()
    commit(store, 0)
    watched.log.clear()
    commits = [GroupCommit(f"g{n}", {T0: CommittedOffset(n)}) for n in range(100)]
    offsets_of(store).commit_offsets(commits)
    renamed = [entry for entry in watched.log if entry[0] == "rename"]
    assert len(renamed) == 2
    watched.log.clear()
    offsets_of(store).delete_offsets("nobody")
    offsets_of(store).commit_offsets([GroupCommit("g", {})])
    assert watched.log == []


def test_records_are_durable_before_the_offset_that_counts_them(shop: Workshop) -> None:
    """A durable commit syncs the log up to the queue's records, including records published without a sync."""
    store = shop.open_with_topic()
    put_value(store, b"x")
    assert store.log.flushed < store.log.end
    commit(store, 1)
    assert store.log.flushed == store.log.end


def test_at_every_moment_the_old_offset_or_the_new_one() -> None:
    """This holds for a kill at each change of the disk."""
    seen = set()
    for count in range(1, 40):
        shop = with_files(**{OFFSETS.name: STRANGE})
        fs = FaultyFileSystem(shop.fs)
        store = Workshop(fs).open()
        fs.fault = at_change(fs, count, killed)
        try:
            commit(store, 7)
        except Killed:
            after = shop.after_kill().open(read_only=True)
            seen.add(stated(after)["g"][T0])
            assert [f for f in after.recovery.findings if f.code == "bad-config-file"] == []
        else:
            break
    assert seen == {4, 7}


def test_a_full_disk_refuses_the_commit(shop: Workshop) -> None:
    """The refused commit has no effect, and the next commit succeeds once there is space."""
    fs = FaultyFileSystem(shop.fs)
    store = Workshop(fs).open_with_topic()
    commit(store, 1)
    fs.fault = at_change(fs, 1, disk_full)
    with pytest.raises(DiskFull):
        commit(store, 2)
    fs.fault = no_fault
    assert stated(store) == {"g": {T0: 1}}
    commit(store, 3)
    assert stated(store) == {"g": {T0: 3}}


def test_a_failed_sync_fences(shop: Workshop) -> None:
    fs = FaultyFileSystem(shop.fs)
    store = Workshop(fs).open_with_topic()
    commit(store, 1)
    fs.fault = fails(errno.EIO, "datasync", name=f"{BACKUP.name}.tmp")
    with pytest.raises(StoreFenced):
        commit(store, 2)
    assert stated(store) == {"g": {T0: 1}}
