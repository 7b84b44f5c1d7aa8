"""Several log directories of a broker (`log.dirs`): commands show the same as for one directory with everything."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import storage
from storage import OffsetRange, Record, StoreOptions, TopicPartition
from storage.errors import InvalidConfig, IoFailure, UnsupportedFormat
from storage.files import FollowingFileSystem
from storage.kafka.format import names
from storage.kafka.format.checkpoints import decode_offsets, encode_offsets
from tests.cli.runner import Ended, fine, run
from tests.golden.stores import KAFKA

CHECKPOINTS = (
    *(names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.LOG_STARTS, names.CLEANER_OFFSETS),
)
SPLITS = [("parts", 2), ("offsets", 3), ("txn", 3), ("deleted", 2), ("compacted", 3)]


def identity(directory: int, *, cluster: str = "AAAAAAAAQACAAAAAAAAAAQ", node: int = 1) -> str:
    ids = "abc"[directory] * 21 + "A"
    return f"version=1\ncluster.id={cluster}\nnode.id={node}\ndirectory.id={ids}\n"


def split(whole: Path, roots: Sequence[Path]) -> None:
    """Distribute the partitions of a log directory, each with its checkpoint lines, as a broker does."""
    lines = {name: decode_offsets((whole / name).read_bytes()) for name in CHECKPOINTS}
    folders = sorted(path.name for path in whole.iterdir() if path.is_dir())
    homes = {name: roots[place % len(roots)] for place, name in enumerate(folders)}
    for number, root in enumerate(roots):
        root.mkdir()
        (root / "meta.properties").write_text(identity(number))
        shutil.copyfile(whole / names.CLEAN_SHUTDOWN, root / names.CLEAN_SHUTDOWN)
        for name in folders[number :: len(roots)]:
            shutil.copytree(whole / name, root / name)
        for name, offsets in lines.items():
            here = {p: o for p, o in offsets.items() if homes.get(str(p), roots[0]) == root}
            (root / name).write_bytes(encode_offsets(here))


class Split:
    """A golden store in its original form, and split into several directories."""

    def __init__(self, place: Path, store: str, count: int) -> None:
        self.whole = place / "whole"
        shutil.copytree(KAFKA / store / "data", self.whole, copy_function=shutil.copyfile)
        (self.whole / "meta.properties").write_text(identity(0))
        self.roots = [place / f"disk{number}" for number in range(count)]
        split(self.whole, self.roots)
        self.options = log_dirs(*self.roots)

    def as_whole(self, text: str) -> str:
        """Return an answer with its paths replaced by paths of the whole directory."""
        for root in self.roots:
            text = text.replace(f"{root}/", f"{self.whole}/")
        return text

    def rows(self, ended: Ended) -> list[Any]:
        lines = self.as_whole(ended.out.decode()).splitlines()
        return sorted(map(json.loads, lines), key=json.dumps)

    def same(self, command: str, *arguments: object) -> list[Any]:
        """Return the output of a command for the directories, which must equal its output for the whole store."""
        wanted = run(command, self.whole, *arguments)
        ended = run(command, self.roots[0], *self.options, *arguments)
        assert (ended.code, self.rows(ended)) == (wanted.code, self.rows(wanted))
        return self.rows(wanted)


def log_dirs(*roots: Path) -> list[str]:
    return ["--set", "log.dirs=" + ",".join(map(str, roots))]


@pytest.fixture(params=SPLITS, ids=lambda case: f"{case[0]}-{case[1]}")
def parted(request: pytest.FixtureRequest, tmp_path: Path) -> Split:
    return Split(tmp_path, *request.param)


@pytest.fixture
def keyed(tmp_path: Path) -> Split:
    """A store with `keyed-0` and `keyed-2` in disk0, and `keyed-1` in disk1."""
    return Split(tmp_path, "parts", 2)


# ---- commands ------------------------------------------------------------------------------------


def test_every_command_shows_the_union(parted: Split) -> None:
    rows = parted.same("dump")
    parted.same("verify")
    parted.same("find", "--from", "0", "--limit", "100000")
    for address in {(row["topic"], row["partition"]) for row in rows}:
        parted.same("offsets", "--topic", address[0], "--partition", address[1])
    kinds = "batches index timeindex txnindex snapshot"
    for kind in kinds.split():
        parted.same("dump", "--what", kind)
    parted.same("dump", "--what", "offsets")


def test_inspect_shows_the_union(parted: Split) -> None:
    wanted = run("inspect", parted.whole).document
    ended = run("inspect", parted.roots[0], *parted.options)
    found = json.loads(parted.as_whole(ended.out.decode()))
    assert found.pop("logDirs") == [str(root) for root in parted.roots]
    assert wanted.pop("logDirs") == [str(parted.whole)]
    assert found.pop("path") == str(parted.roots[0])
    assert wanted.pop("path") == str(parted.whole)
    assert found == wanted


def test_the_lines_of_all_checkpoints_are_dumped(parted: Split) -> None:
    def lines(ended: Ended) -> list[str]:
        found = [row for row in ended.rows if row["file"] in CHECKPOINTS]
        return sorted(json.dumps(entry) for row in found for entry in row["entries"])

    everything = ("--what", "checkpoints")
    found = run("dump", parted.roots[0], *parted.options, *everything)
    assert lines(found) == lines(run("dump", parted.whole, *everything))


def test_a_salvage_makes_one_directory(parted: Split, tmp_path: Path) -> None:
    wanted = run("salvage", parted.whole, "--to", tmp_path / "a")
    ended = run("salvage", parted.roots[0], "--to", tmp_path / "b", *parted.options)
    assert (ended.code, wanted.code) == (0, 0)
    made, other = tmp_path / "b", tmp_path / "a"
    files = {path.relative_to(made) for path in made.rglob("*")}
    assert files == {path.relative_to(other) for path in other.rglob("*")}
    for path in sorted(files):
        found, wanted_file = made / path, other / path
        if path.name in CHECKPOINTS:
            assert decode_offsets(found.read_bytes()) == decode_offsets(wanted_file.read_bytes())
        elif path.name != ".logserver.salvage.json" and found.is_file():
            assert found.read_bytes() == wanted_file.read_bytes(), path
    assert fine("dump", made).rows == fine("dump", other).rows


def test_a_conversion_takes_everything(parted: Split, tmp_path: Path) -> None:
    common = ("--to", "rocketmq", "--encode", "--target-set", "mappedFileSizeCommitLog=1048576")
    wanted = run("convert", parted.whole, tmp_path / "a", *common)
    ended = run("convert", parted.roots[0], tmp_path / "b", *common, *parted.options)
    assert ended.code == wanted.code
    assert run("dump", tmp_path / "b").out == run("dump", tmp_path / "a").out


def test_a_read_only_store_serves_the_union(parted: Split) -> None:
    settings = {"log.dirs": ",".join(map(str, parted.roots))}
    with (
        storage.open_store("kafka", parted.whole, read_only=True) as whole,
        storage.open_store(
            "kafka", parted.roots[0], StoreOptions(settings=settings), read_only=True
        ) as store,
    ):
        assert dict(store.topics()) == dict(whole.topics())
        for name, info in whole.topics().items():
            for number in info.partitions:
                address = TopicPartition(name, number)
                bounds = whole.bounds(address)
                assert store.bounds(address) == bounds
                wanted = list(whole.read(address, bounds.start, max_records=10_000).records)
                assert list(store.read(address, bounds.start, max_records=10_000).records) == wanted
        shown = [(f.code, parted.as_whole(f.path)) for f in store.recovery.findings]
        assert shown == [(f.code, f.path) for f in whole.recovery.findings]


def test_spark_splits_cover_the_union(parted: Split) -> None:
    options = StoreOptions(settings={"log.dirs": ",".join(map(str, parted.roots))})
    counts = []
    for path, chosen in ((parted.whole, None), (parted.roots[0], options)):
        with closing(storage.open_splitter(path, chosen)) as splitter:
            ranges = [OffsetRange(p, *splitter.bounds(p)[::2]) for p in splitter.partitions()]
            chunks = [c for s in splitter.plan(ranges) for c in storage.read_split(s, ["offset"])]
            counts.append((ranges, sum(chunk.rows for chunk in chunks)))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("count", [2, 3])
def test_any_of_the_directories_can_be_the_path(tmp_path: Path, count: int) -> None:
    """PATH need not be in `log.dirs`, and a directory named twice is read once."""
    parted = Split(tmp_path, "offsets", count)
    wanted = parted.rows(run("dump", parted.whole))
    for number, path in enumerate(parted.roots):
        others = [root for root in parted.roots if root != path]
        for named in (others, [*others, path, others[0]], [path / ".." / path.name, *others]):
            assert parted.rows(fine("dump", path, *log_dirs(*named))) == wanted, (number, named)


# ---- missing, moved, duplicate -------------------------------------------------------------------


def named_in(root: Path, partition: TopicPartition, offset: int) -> None:
    """Add a line to a checkpoint."""
    path = root / names.HIGH_WATERMARKS
    path.write_bytes(encode_offsets({**decode_offsets(path.read_bytes()), partition: offset}))


def test_a_partition_of_another_directory_is_not_missing(keyed: Split) -> None:
    named_in(keyed.roots[0], TopicPartition("keyed", 1), 542)
    (row,) = [r for r in run("verify", keyed.roots[0]).rows if r["severity"] == "error"]
    assert (row["code"], row["partition"]) == ("partition-without-folder", 1)
    assert run("verify", keyed.roots[0], *keyed.options).code == 0


@pytest.mark.parametrize("number", [0, 1])
def test_a_partition_that_no_directory_has_is_missing(keyed: Split, number: int) -> None:
    """The reported path of a missing partition is in the directory with its checkpoint line."""
    address = TopicPartition("keyed", 7)
    root = keyed.roots[number]
    named_in(root, address, 12)
    found = {r["partition"]: r["path"] for r in run("verify", keyed.roots[0], *keyed.options).rows}
    assert found[7] == str(root / "keyed-7")


@pytest.mark.parametrize("name", ["keyed-0", "keyed-1", "keyed-2"])
def test_a_duplicate_is_an_error_and_the_first_is_read(
    keyed: Split, tmp_path: Path, name: str
) -> None:
    first = next(root for root in keyed.roots if (root / name).exists())
    other = next(root for root in keyed.roots if root != first)
    (other / name).mkdir()
    shutil.copyfile(first / name / "partition.metadata", other / name / "partition.metadata")
    number = int(name[-1])
    for roots in ([first, other], [other, first]):
        options = log_dirs(*roots)
        second = roots[1] / name
        rows = [r for r in run("verify", roots[0], *options).rows if r["severity"] == "error"]
        (stated,) = [r for r in rows if r["code"] == "duplicate-partition"]
        assert (stated["path"], stated["partition"]) == (str(second), number)
        assert str(roots[0] / name) in stated["message"]
        findings = run("inspect", roots[0], *options).document["findings"]
        assert "duplicate-partition" in [f["code"] for f in findings]
        dumped = run("dump", roots[0], *options, "--topic", "keyed", "--partition", number)
        assert bool(dumped.rows) == (roots[0] == first)
        assert "duplicate-partition" in dumped.err
        salvaged = run("salvage", roots[0], "--to", tmp_path / f"new-{roots[0].name}", *options)
        assert str(second) in salvaged.out.decode() + salvaged.err


@pytest.mark.parametrize("name", ["keyed-0", "keyed-1", "keyed-2"])
def test_a_move_in_progress_is_reported(keyed: Split, name: str) -> None:
    home = next(root for root in keyed.roots if (root / name).exists())
    other = next(root for root in keyed.roots if root != home)
    future = other / f"{name}.{'0a' * 16}-future"
    shutil.copytree(home / name, future)
    named_in(other, TopicPartition("keyed", int(name[-1])), 3)
    (row,) = run("verify", keyed.roots[0], *keyed.options).rows
    assert (row["code"], row["path"], row["severity"]) == ("renamed-folder", str(future), "info")
    assert str(home / name) in row["message"]
    assert keyed.rows(run("dump", keyed.roots[0], *keyed.options)) == keyed.rows(
        run("dump", keyed.whole)
    )


@pytest.mark.parametrize(("number", "offset"), [(0, 100), (1, 200), (1, 541)])
def test_the_line_of_the_partitions_own_directory_counts(
    keyed: Split, number: int, offset: int
) -> None:
    """An old line in another directory, which a move leaves for a while, is ignored. `number`: the first directory
    named.
    """
    address = TopicPartition("keyed", 1)
    for root, start in ((keyed.roots[0], 3), (keyed.roots[1], offset)):
        (root / names.LOG_STARTS).write_bytes(encode_offsets({address: start}))
    place = ("--topic", "keyed", "--partition", 1)
    (row,) = fine("offsets", keyed.roots[number], *keyed.options, *place).rows
    assert row["earliest"] == offset


def test_a_checkpoint_that_is_ahead_is_named_with_its_directory(keyed: Split) -> None:
    for root, partition in zip(keyed.roots, (0, 1), strict=True):
        named_in(root, TopicPartition("keyed", partition), 5_000)
    rows = run("verify", keyed.roots[0], *keyed.options).rows
    found = {(r["partition"], r["path"]) for r in rows if r["code"] == "checkpoint-ahead"}
    assert found == {(n, str(root / names.HIGH_WATERMARKS)) for n, root in enumerate(keyed.roots)}


@pytest.mark.parametrize("name", ["keyed-0", "keyed-1", "keyed-2"])
def test_findings_name_the_real_path(keyed: Split, name: str) -> None:
    home = next(root for root in keyed.roots if (root / name).exists())
    (log, *_) = sorted((home / name).glob("*.log"))
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    rows = run("verify", keyed.roots[0], *keyed.options).rows
    assert str(log) in [r["path"] for r in rows if r["severity"] == "error"]


def test_each_directory_has_a_marker(keyed: Split) -> None:
    for root in keyed.roots:
        marker = root / names.CLEAN_SHUTDOWN
        data = marker.read_bytes()
        marker.unlink()
        stated = [
            r["path"]
            for r in run("verify", keyed.roots[0], *keyed.options).rows
            if r["code"] == "unclean-stop"
        ]
        assert stated == [str(marker)]
        marker.write_bytes(data)


@pytest.mark.parametrize("name", ["lost+found", "backup", "x.y"])
def test_names_of_every_root_are_looked_at(keyed: Split, tmp_path: Path, name: str) -> None:
    for root in keyed.roots:
        (root / name).mkdir()
        (root / "notes.txt").write_text("x")
    rows = run("verify", keyed.roots[0], *keyed.options).rows
    stated = sorted((r["code"], r["path"]) for r in rows)
    assert stated == sorted(
        [("foreign-folder", str(root / name)) for root in keyed.roots]
        + [("unknown-file", str(root / "notes.txt")) for root in keyed.roots]
    )
    salvaged = run("salvage", keyed.roots[0], "--to", tmp_path / "new", *keyed.options)
    for root in keyed.roots:
        assert str(root / name) in salvaged.out.decode() + salvaged.err


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (identity(1, cluster="BBBBBBBBQACAAAAAAAAAAQ"), "cluster.id"),
        (identity(1, node=2), "node.id"),
        (identity(0), "directory.id"),
    ],
)
def test_directories_of_several_brokers_are_told(keyed: Split, second: str, said: str) -> None:
    path = keyed.roots[1] / "meta.properties"
    path.write_text(second)
    for rows in (
        run("verify", keyed.roots[0], *keyed.options).rows,
        run("inspect", keyed.roots[0], *keyed.options).document["findings"],
    ):
        (row,) = rows
        assert (row["code"], row["path"]) == ("mixed-log-dirs", str(path))
        assert said in row["message"]


# ---- refusals ------------------------------------------------------------------------------------


def nothing(path: Path) -> None:
    """Create no directory."""


def a_file(path: Path) -> None:
    path.write_text("x")


def a_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("make", [nothing, a_file, a_dangling_link])
def test_a_directory_that_cannot_be_read_is_named(
    keyed: Split, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    bad = tmp_path / "bad"
    make(bad)
    options = log_dirs(keyed.roots[1], bad)
    for command in (["inspect"], ["verify"], ["dump"], ["find", "--from", "0"]):
        ended = run(*command, keyed.roots[0], *options)
        assert ended.code == 3
        assert str(bad) in ended.err
    settings = StoreOptions(settings={"log.dirs": str(bad)})
    with pytest.raises(IoFailure, match="bad"):
        storage.open_store("kafka", keyed.roots[0], settings, read_only=True)


class _Closed(FollowingFileSystem):
    """A file system with one folder that cannot be listed."""

    def __init__(self, closed: Path) -> None:
        super().__init__()
        self._closed = closed

    def list_dir(self, path: Path) -> Sequence[str]:
        if path == self._closed:
            raise IoFailure(
                f"list {path}: Permission denied",
                path=str(path),
                operation="list",
                errno=errno.EACCES,
            )
        return super().list_dir(path)


@pytest.mark.parametrize("number", [0, 1])
def test_a_directory_without_access_is_named(keyed: Split, number: int) -> None:
    bad = keyed.roots[number]
    fs, path = _Closed(bad), keyed.roots[1 - number]
    options = StoreOptions(settings={"log.dirs": str(bad)})
    with pytest.raises(IoFailure, match=f"{bad.name}: Permission denied"):
        storage.open_inspector(path, options, fs=fs)
    with pytest.raises(IoFailure, match=f"{bad.name}: Permission denied"):
        storage.open_store("kafka", path, options, fs=fs, read_only=True)
    for permissive in (False, True):
        with pytest.raises(IoFailure, match=f"{bad.name}: Permission denied"):
            storage.open_splitter(path, options, permissive=permissive, fs=fs)


def test_a_directory_of_something_else_is_refused(keyed: Split, tmp_path: Path) -> None:
    other = tmp_path / "photos"
    other.mkdir()
    (other / "1.jpg").write_text("x")
    ended = run("verify", keyed.roots[0], *log_dirs(other))
    assert ended.code != 0
    assert f"{other} is no Kafka log directory" in ended.err
    with pytest.raises(UnsupportedFormat):
        storage.open_inspector(keyed.roots[0], StoreOptions(settings={"log.dirs": str(other)}))


@pytest.mark.parametrize("value", ["", "a,,b", ",", "a, "])
def test_a_directory_has_a_name(keyed: Split, value: str) -> None:
    with pytest.raises(InvalidConfig, match=r"log\.dirs"):
        storage.open_inspector(keyed.roots[0], StoreOptions(settings={"log.dirs": value}))


def test_several_directories_are_not_written(keyed: Split) -> None:
    before = {p: p.read_bytes() for r in keyed.roots for p in r.rglob("*") if p.is_file()}
    settings = {"log.dirs": ",".join(map(str, keyed.roots))}
    for path in keyed.roots:
        with pytest.raises(InvalidConfig, match="several directories") as caught:
            storage.open_store("kafka", path, StoreOptions(settings=settings))
        assert all(str(root) in str(caught.value) for root in keyed.roots)
    assert run("rebuild", keyed.roots[0], *keyed.options).code in {0, 1}
    ended = run("rebuild", keyed.roots[0], *keyed.options, "--write")
    assert ended.code == 2
    assert "several directories" in ended.err
    after = {p: p.read_bytes() for r in keyed.roots for p in r.rglob("*") if p.is_file()}
    assert after == before


def test_one_directory_is_written(keyed: Split) -> None:
    """With one directory in `log.dirs`, the store can be written."""
    address = TopicPartition("keyed", 0)
    settings = StoreOptions(settings={"log.dirs": f" {keyed.roots[0]} "})
    shutil.copytree(keyed.roots[1] / "keyed-1", keyed.roots[0] / "keyed-1")
    with storage.open_store("kafka", keyed.roots[0], settings) as store:
        end = store.bounds(address).end
        assert store.append(address, [Record(None, b"new")]).base_offset == end


@pytest.mark.parametrize("number", [0, 1])
def test_the_target_is_in_none_of_the_directories(keyed: Split, number: int) -> None:
    target = keyed.roots[number] / "new"
    for arguments in (
        ("salvage", keyed.roots[0], "--to", target, *keyed.options),
        ("convert", keyed.roots[0], target, "--to", "rocketmq", *keyed.options),
    ):
        ended = run(*arguments)
        assert ended.code == 2
        assert f"is inside {keyed.roots[number]}" in ended.err
    assert not target.exists()
