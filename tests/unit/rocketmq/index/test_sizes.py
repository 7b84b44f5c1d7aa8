"""The four file sizes: from settings, from remembered values, from the files, from the defaults."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from storage.errors import DamagedStore, InvalidConfig
from storage.files import FileSystem, OverlayFileSystem, RealFileSystem
from storage.model import Finding
from storage.rocketmq.format.index_file import file_size
from storage.rocketmq.index.sizes import DEFAULTS, resolve_sizes
from storage.rocketmq.state.settings import Sizes, parse_store_settings

ROOT = Path("/store")
GOLDEN = Path(__file__).parents[3] / "golden/rocketmq"
STORES = sorted(path.parent.name for path in GOLDEN.glob("*/params.json"))
NAMES = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
SMALL = Sizes(commit_log_bytes=4096, consume_queue_bytes=200, index_slots=64, index_entries=200)
INDEX_BYTES = file_size(SMALL.index_slots, SMALL.index_entries)
FIRST_INDEX = "index/20260101000000000"


def files(**lengths: int) -> OverlayFileSystem:
    """Return a store in memory; `lengths` maps a path to the length of a file of zeros."""
    fs = OverlayFileSystem(None)
    fs.make_dir(ROOT)
    for name, size_bytes in lengths.items():
        path = ROOT / name
        fs.make_dir(path.parent)
        file = fs.open(path, create=True, write=True)
        file.truncate(size_bytes)
        file.close()
    return fs


def log(*lengths: int, of: int = 4096) -> dict[str, int]:
    """Return commit log files with these lengths, named as if each had `of` bytes."""
    return {f"commitlog/{n * of:020d}": size_bytes for n, size_bytes in enumerate(lengths)}


def resolve(
    fs: FileSystem,
    settings: Mapping[str, Any] | None = None,
    stored: Sizes | None = None,
    *,
    root: Path = ROOT,
    findings: list[Finding] | None = None,
) -> Sizes:
    """Call `resolve_sizes` with these settings as text."""
    texts = {name: str(value) for name, value in (settings or {}).items()}
    return resolve_sizes(fs, root, parse_store_settings(texts), stored, findings=findings)


def given(sizes: Sizes) -> dict[str, Any]:
    """Return all four sizes as settings."""
    numbers = (
        sizes.commit_log_bytes,
        sizes.consume_queue_bytes,
        sizes.index_slots,
        sizes.index_entries,
    )
    return dict(zip(NAMES, numbers, strict=True))


def test_a_new_store() -> None:
    fs = files()
    assert resolve(fs) == DEFAULTS
    assert (DEFAULTS.commit_log_bytes, DEFAULTS.consume_queue_bytes) == (1 << 30, 6_000_000)
    assert (DEFAULTS.index_slots, DEFAULTS.index_entries) == (5_000_000, 20_000_000)
    assert resolve(fs, given(SMALL)) == SMALL
    assert resolve(fs, stored=SMALL) == SMALL
    assert resolve(fs, {"maxIndexNum": 300}, SMALL).index_entries == 300
    assert resolve(fs, root=ROOT / "missing") == DEFAULTS


@pytest.mark.parametrize("store", STORES)
def test_golden_stores_tell_their_sizes(store: str) -> None:
    """The file lengths alone give the sizes that the store was written with."""
    wanted = json.loads((GOLDEN / store / "params.json").read_bytes())
    root = GOLDEN / store / "store"
    found = resolve(RealFileSystem(), root=root)
    assert given(found) == wanted
    assert resolve(RealFileSystem(), wanted, root=root) == found
    assert resolve(RealFileSystem(), stored=found, root=root) == found


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", NAMES)
def test_a_setting_that_the_files_contradict(store: str, name: str) -> None:
    wanted = json.loads((GOLDEN / store / "params.json").read_bytes())
    wanted[name] += 20
    with pytest.raises(InvalidConfig, match=str(wanted[name])) as refused:
        resolve(RealFileSystem(), wanted, root=GOLDEN / store / "store")
    assert "/store/" in refused.value.message
    assert refused.value.facts()["name"] in NAMES


@pytest.mark.parametrize("known", ["maxHashSlotNum", "maxIndexNum"])
def test_one_number_of_the_index_tells_the_other(known: str) -> None:
    fs = files(**{FIRST_INDEX: INDEX_BYTES})
    found = resolve(fs, {known: given(SMALL)[known]})
    assert (found.index_slots, found.index_entries) == (64, 200)
    with pytest.raises(InvalidConfig) as refused:
        resolve(fs, {known: 100_000})
    assert refused.value.facts() == {"name": known, "value": "100000"}


def test_an_index_that_does_not_tell() -> None:
    """Without entries a file length fits many pairs of sizes, so the settings are required."""
    fs = files(**{FIRST_INDEX: INDEX_BYTES})
    with pytest.raises(InvalidConfig, match="set maxHashSlotNum and maxIndexNum") as refused:
        resolve(fs)
    assert FIRST_INDEX in refused.value.message
    assert resolve(fs, given(SMALL)) == SMALL
    assert resolve(fs, stored=SMALL) == SMALL
    default = files(**{FIRST_INDEX: 420_000_040})
    assert resolve(default) == DEFAULTS


def test_remembered_sizes_outlive_a_damaged_index() -> None:
    """The index can be rebuilt, and its readers find the wrong size."""
    assert resolve(files(**{FIRST_INDEX: 17}), stored=SMALL) == SMALL


def test_an_index_that_cannot_be_mapped() -> None:
    with pytest.raises(InvalidConfig, match="the limit is 2147483647"):
        resolve(files(), {"maxIndexNum": 107_374_182})


def test_an_empty_last_file_is_left_by_a_crash() -> None:
    fs = files(
        **log(4096, 4096, 0),
        **{
            "consumequeue/t/0/00000000000000000000": 200,
            "consumequeue/t/0/00000000000000000200": 0,
        },
    )
    found = resolve(fs)
    assert (found.commit_log_bytes, found.consume_queue_bytes) == (4096, 200)
    assert resolve(files(**log(0))).commit_log_bytes == DEFAULTS.commit_log_bytes


@pytest.mark.parametrize(
    ("lengths", "bad"),
    [
        ((4096, 3996), 1),
        ((3996, 4096), 0),
        ((0, 4096), 0),
        ((4096, 5000, 4096), 1),
        ((100, 100, 4096, 4096), 0),
    ],
)
@pytest.mark.parametrize("source", ["files", "setting", "remembered"])
def test_a_log_file_of_another_length(lengths: tuple[int, ...], bad: int, source: str) -> None:
    """The odd file is named, judged by the lengths of the other files and by the file names."""
    fs = files(**log(*lengths))
    settings = {"mappedFileSizeCommitLog": 4096} if source == "setting" else {}
    stored = SMALL if source == "remembered" else None
    with pytest.raises(DamagedStore) as refused:
        resolve(fs, settings, stored)
    path = str(ROOT / f"commitlog/{bad * 4096:020d}")
    assert refused.value.facts()["path"] == path
    assert f"{lengths[bad]} bytes" in refused.value.message
    assert "4096" in refused.value.message
    findings: list[Finding] = []
    assert resolve(fs, settings, stored, findings=findings).commit_log_bytes == 4096
    assert (findings[0].code, findings[0].path) == ("wrong-file-length", path)
    assert (findings[0].expected, findings[0].found) == ("4096 bytes", f"{lengths[bad]} bytes")
    assert len(findings) == sum(size_bytes != 4096 for size_bytes in lengths)


def test_a_queue_file_of_another_length() -> None:
    fs = files(
        **{
            "consumequeue/a/0/00000000000000000000": 199,
            "consumequeue/b/0/00000000000000000000": 200,
            "consumequeue/b/no-queue/00000000000000000000": 7,
            "consumequeue/b/1/readme": 7,
        }
    )
    with pytest.raises(DamagedStore, match="199 bytes") as refused:
        resolve(fs)
    assert refused.value.facts()["path"] == str(ROOT / "consumequeue/a/0/00000000000000000000")


@pytest.mark.parametrize("source", ["files", "setting", "remembered"])
def test_a_log_file_where_none_can_begin(source: str) -> None:
    """A log may begin anywhere, but only at a multiple of its file size."""
    settings = {"mappedFileSizeCommitLog": 4096} if source == "setting" else {}
    stored = SMALL if source == "remembered" else None
    there = {f"commitlog/{n * 4096:020d}": 4096 for n in (7, 8, 9)}
    assert resolve(files(**there), settings, stored).commit_log_bytes == 4096
    stray = f"commitlog/{8 * 4096 + 7:020d}"
    fs = files(**there, **{stray: 4096})
    with pytest.raises(
        DamagedStore, match=f"no file of 4096 bytes can begin at {8 * 4096 + 7}"
    ) as refused:
        resolve(fs, settings, stored)
    assert refused.value.facts()["path"] == str(ROOT / stray)
    findings: list[Finding] = []
    assert resolve(fs, settings, stored, findings=findings).commit_log_bytes == 4096
    (found,) = findings
    assert (found.code, found.severity, found.path) == (
        "wrong-file-name",
        "error",
        str(ROOT / stray),
    )


def test_a_queue_file_where_none_can_begin() -> None:
    """The queue is rebuilt from the log: the file is reported, and the start is not refused."""
    stray = "consumequeue/a/0/00000000000000000207"
    fs = files(**{"consumequeue/a/0/00000000000000000000": 200, stray: 200})
    assert resolve(fs).consume_queue_bytes == 200
    findings: list[Finding] = []
    assert resolve(fs, findings=findings).consume_queue_bytes == 200
    assert [(found.code, found.severity, found.path) for found in findings] == [
        ("wrong-file-name", "warning", str(ROOT / stray))
    ]


def test_folders_with_the_names_of_files_are_none() -> None:
    folders = [
        f"commitlog/{4096:020d}",
        "commitlog/00000000000000000007",
        "consumequeue/t/0/00000000000000000200",
        "index/20260102000000000",
    ]
    fs = files(**log(4096), **{"consumequeue/t/0/00000000000000000000": 200, "consumequeue/t/1": 7})
    for folder in folders:
        fs.make_dir(ROOT / folder)
    findings: list[Finding] = []
    found = resolve(fs, findings=findings)
    assert (found.commit_log_bytes, found.consume_queue_bytes, findings) == (4096, 200, [])
    assert (found.index_slots, found.index_entries) == (
        DEFAULTS.index_slots,
        DEFAULTS.index_entries,
    )
