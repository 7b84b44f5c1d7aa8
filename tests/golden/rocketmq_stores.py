"""The golden stores of the real RocketMQ, and the results that it read from them: paths and expectations for the tests.

Owns paths, expectations, the forms of rows and the recipes of damage; must not hold a test. A store made elsewhere by
the same tool (`write-store --golden`) is a `GoldenStore` of another folder.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from storage import LogStore, StoredRecord, StoreOptions, TopicPartition, open_store
from storage.contract import Clock
from storage.files import FileSystem, OverlayFileSystem, RealFileSystem
from storage.rocketmq.format.config_json import encode_config
from storage.rocketmq.format.message import MAGIC_PADDING, Message, decode_message, peek

ROCKETMQ = Path(__file__).parent / "rocketmq"
REWRITTEN = ("basic", "bodies", "system", "batch", "edges", "times", "small", "many")
UNCLEAN = ("unclean", "unclean-late")
DAMAGED = ("small", "many")
CLEAN = (*REWRITTEN, "broker", "deleted-head")
BATCHES = "batch"
LIGHT = "lmq"  # its records are each in several queues: not in all_stores
SIZES = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
WHOLE_BODY_BYTES = 2048
MADE_AT_MS = 1_795_227_286_000
"""The wall clock when the stores were made; record times are before it."""

Row = dict[str, Any]


class GoldenStore(NamedTuple):
    """One golden store with its expectations."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def root(self) -> Path:
        return self.folder / "store"

    @property
    def settings(self) -> dict[str, str]:
        """The store's file sizes, in the engine's form."""
        params = self.json("params.json")
        return {name: str(params[name]) for name in SIZES}

    @property
    def file_bytes(self) -> int:
        """The length of a commit log file."""
        return int(self.settings["mappedFileSizeCommitLog"])

    @property
    def clean(self) -> bool:
        return not (self.root / "abort").exists()

    @property
    def after(self) -> Mapping[str, Any]:
        """The state of a copy after the real store opened and closed it."""
        found: Mapping[str, Any] = self.json("store.json")["afterOpenAndClose"]
        return found

    @property
    def start(self) -> int:
        """The physical offset of the first byte that exists."""
        return int(self.after["minPhyOffset"])

    @property
    def queues(self) -> dict[TopicPartition, tuple[int, int]]:
        """(first, next) offset of each queue."""
        return {
            TopicPartition(queue["topic"], queue["queueId"]): (queue["min"], queue["max"])
            for queue in self.after["queues"]
        }

    @property
    def index_dump(self) -> list[Row]:
        """The index files; for a store left by a crash, as the real recovery made them."""
        name = "index-dump.json" if self.clean else "index-dump-after-recovery.json"
        found: list[Row] = self.json(name)
        return found

    def json(self, name: str) -> Any:
        """Return one of the JSON expectations."""
        return json.loads((self.folder / name).read_text())

    def lines(self, name: str) -> list[Row]:
        """Return one of the JSON-lines expectations."""
        return [json.loads(line) for line in (self.folder / name).read_bytes().splitlines()]

    @property
    def longest_body(self) -> int:
        """The largest length of a body that expected.jsonl contains in full."""
        whole = [row["bodyLength"] for row in self.expected() if "body" in row]
        return max(whole, default=WHOLE_BODY_BYTES)

    def expected(self) -> list[Row]:
        """Return every record of every queue, by topic, queue and offset."""
        return _expected(self.folder)

    def messages(self) -> Iterator[Message]:
        """Yield every commit log record that the real store keeps, in physical order."""
        for row in self.lines("commitlog.jsonl"):
            if row["kind"] == "log":
                yield self.message(row["physicalOffset"])

    def message(self, physical_offset: int) -> Message:
        """Return the record at a physical offset."""
        base = physical_offset - physical_offset % self.file_bytes
        data = _file_bytes(self.root / "commitlog" / f"{base:020}")
        return decode_message(data, physical_offset - base)

    def __str__(self) -> str:
        return self.name


@cache
def _expected(folder: Path) -> list[Row]:
    return GoldenStore(folder).lines("expected.jsonl")


@cache
def _file_bytes(path: Path) -> bytes:
    return path.read_bytes()


def golden(name: str) -> GoldenStore:
    """Return the public golden store of this name."""
    return GoldenStore(ROCKETMQ / name)


def all_stores() -> list[GoldenStore]:
    """Return every public golden store."""
    return [golden(name) for name in (*CLEAN, *UNCLEAN)]


def overlay() -> OverlayFileSystem:
    """Return the disk with an overlay that keeps all changes in memory."""
    return OverlayFileSystem(RealFileSystem())


def open_golden(
    store: GoldenStore,
    *,
    path: Path | None = None,
    fs: FileSystem | None = None,
    clock: Clock = lambda: MADE_AT_MS,
    read_only: bool = False,
    accept_loss: bool = False,
) -> LogStore:
    """Open a store of the real RocketMQ: in place if `read_only` or on an overlay, otherwise pass a copy."""
    options = StoreOptions(settings=store.settings, accept_loss=accept_loss)
    root = store.root if path is None else path
    return open_store("rocketmq", root, options, fs=fs, clock=clock, read_only=read_only)


def copy_store(store: GoldenStore, target: Path) -> Path:
    """Make a writable copy of a store's directory."""
    shutil.copytree(store.root, target, copy_function=shutil.copyfile)
    return target


# ---- rows ------------------------------------------------------------------------------------------------------------


def shown(row: Mapping[str, Any], *, longest_body: int = WHOLE_BODY_BYTES) -> Row:
    """Convert one of our rows, with its complete body, to the form of expected.jsonl: a long body is its SHA-256."""
    found: Row = {}
    for name, value in row.items():
        if name == "body" and row["bodyLength"] > longest_body:
            found["bodySha256"] = hashlib.sha256(base64.b64decode(value)).hexdigest()
        else:
            found[name] = value
    return found


def in_order(document: Any) -> str:
    """Return a JSON value as text that keeps the field order; the order of properties has no meaning."""
    return json.dumps(document, ensure_ascii=False)


def by_golden_order(row: Mapping[str, Any]) -> Row:
    """Return the row with its properties in the order of the golden file: by name."""
    return {
        name: dict(sorted(value.items(), key=_utf16)) if name == "properties" else value
        for name, value in row.items()
    }


def _utf16(item: tuple[str, str]) -> bytes:
    return item[0].encode("utf-16-be")


def library_row(store: LogStore, address: TopicPartition, record: StoredRecord) -> Row:
    """Return the fields of a record as the library reports them, under the golden names."""
    assert record.value is not None
    return {
        "topic": address.topic,
        "queueId": address.partition,
        "queueOffset": record.offset,
        "storeTimestamp": record.store_timestamp_ms,
        "bornTimestamp": record.timestamp_ms,
        "tags": record.tag,
        "properties": dict(record.properties or {}),
        "msgId": store.record_id(address, record.locator),
        "plain": (len(record.value), hashlib.sha256(record.value).hexdigest()),
    }


def library_view(row: Mapping[str, Any]) -> Row:
    """Return the part of a row of expected.jsonl that `library_row` contains."""
    names = ("topic", "queueId", "queueOffset", "storeTimestamp", "bornTimestamp", "tags")
    found = {name: row[name] for name in (*names, "properties", "msgId")}
    return {**found, "plain": plain(row)}


def plain(row: Mapping[str, Any]) -> tuple[int, str]:
    """Return the length and SHA-256 of a golden row's decompressed body."""
    if "plainSha256" in row:
        return row["plainLength"], row["plainSha256"]
    if "bodySha256" in row:
        return row["bodyLength"], row["bodySha256"]
    return row["bodyLength"], hashlib.sha256(base64.b64decode(row["body"])).hexdigest()


def physical_offset(store: LogStore, address: TopicPartition, record: StoredRecord) -> int:
    """Return the record's position in the commit log: the last 8 bytes of its offset id."""
    return int(store.record_id(address, record.locator)[-16:], 16)


def addresses(store: LogStore) -> list[TopicPartition]:
    """Return every queue, in order."""
    return [TopicPartition(t.name, n) for t in store.topics().values() for n in t.partitions]


# ---- files -----------------------------------------------------------------------------------------------------------


def put(fs: FileSystem, path: Path, data: bytes, position: int | None = None) -> None:
    """Write these bytes at a position; without a position they replace the file."""
    fs.make_dir(path.parent)
    file = fs.open(path, create=True)
    if position is None:
        file.truncate(0)
    file.pwrite(data, position or 0)
    file.close()


def put_topics(fs: FileSystem, root: Path, topics: Mapping[str, int]) -> None:
    """Create a store without records: an empty commit log, and config/topics.json with these queue counts by topic."""
    table = {
        name: {
            "attributes": {},
            "order": False,
            "perm": 6,
            "readQueueNums": queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
            "writeQueueNums": queues,
        }
        for name, queues in topics.items()
    }
    version = {"counter": len(table), "stateVersion": 0, "timestamp": MADE_AT_MS}
    document = {"dataVersion": version, "topicConfigTable": table}
    put(fs, root / "config" / "topics.json", encode_config(document))
    fs.make_dir(root / "commitlog")


def files_below(fs: FileSystem, root: Path, *parts: str) -> dict[str, bytes]:
    """Return the bytes of every file below root/PART for these parts, by path from `root`."""
    found: dict[str, bytes] = {}
    waiting = [root / part for part in parts]
    while waiting:
        path = waiting.pop()
        if fs.is_dir(path):
            waiting += [path / name for name in fs.list_dir(path)]
        elif fs.exists(path):
            found[str(path.relative_to(root))] = fs.read_bytes(path)
    return found


def walk(data: Mapping[str, bytes]) -> Iterator[Message]:
    """Yield the records of commit log files (by name) that begin with a record, up to the first non-record."""
    for _, content in sorted(data.items()):
        at = 0
        while at + 8 <= len(content):
            size, magic = peek(content, at)
            if size <= 0 or magic == MAGIC_PADDING:
                break
            yield decode_message(content, at)
            at += size


# ---- damage ----------------------------------------------------------------------------------------------------------


class Recipe(NamedTuple):
    """One case of damage.json: the damage done to the store, and the result of the real store's recovery."""

    store: GoldenStore
    case: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.case["name"])

    @property
    def real(self) -> Mapping[str, Any]:
        """The real store afterwards."""
        found: Mapping[str, Any] = self.case["after"]
        return found

    @property
    def refused(self) -> bool:
        """Whether the real store did not open it."""
        return not self.real["loads"]

    @property
    def queue_ends(self) -> dict[TopicPartition, int]:
        """The next offset of each queue that the real store still has."""
        queues = self.real["queues"]
        return {TopicPartition(q["topic"], q["queueId"]): q["max"] for q in queues}

    @property
    def readable(self) -> set[int]:
        """The physical offsets that the real store could still read; it does not check bodies in that read."""
        missing = set(self.real["missingPhysicalOffsets"])
        return {row["physicalOffset"] for row in self.store.expected()} - missing

    @property
    def touched(self) -> set[int]:
        """The physical offsets of the records that contain changed bytes."""
        found: set[int] = set()
        for folder, _, base, begin, size in self._edits():
            if folder == "commitlog":
                found |= {
                    row["physicalOffset"]
                    for row in self.store.expected()
                    if row["physicalOffset"] < base + begin + size
                    and base + begin < row["physicalOffset"] + row["size"]
                }
        return found

    def _edits(self) -> Iterator[tuple[str, Path, int, int, int]]:
        for edit in self.case["edits"]:
            path = Path(edit["file"])
            size = len(edit["hex"]) // 2 if "hex" in edit else edit["zeros"]
            yield path.parts[0], path, int(path.name), edit["offset"], size

    def apply(self, fs: FileSystem, root: Path | None = None) -> None:
        """Apply the damage to the store at `root` (the golden store needs an overlay)."""
        root = self.store.root if root is None else root
        for name in self.case["delete"]:
            path = root / name
            if fs.is_dir(path):
                fs.remove_tree(path)
            else:
                fs.remove(path)
        for edit in self.case["edits"]:
            data = bytes.fromhex(edit["hex"]) if "hex" in edit else bytes(edit["zeros"])
            put(fs, root / edit["file"], data, edit["offset"])
        if self.case["truncate"]:
            file = fs.open(root / self.case["truncate"]["file"], write=True)
            file.truncate(self.case["truncate"]["length"])
            file.close()
        if self.case["abort"]:
            put(fs, root / "abort", b"1")

    def __str__(self) -> str:
        return f"{self.store}:{self.name}"


@cache
def recipes() -> Sequence[Recipe]:
    """Return every recipe of damage of every store that has recipes."""
    return [
        Recipe(golden(name), case) for name in DAMAGED for case in golden(name).json("damage.json")
    ]


def recipe(store: str, name: str) -> Recipe:
    """Return one of the recipes."""
    (found,) = [r for r in recipes() if (r.store.name, r.name) == (store, name)]
    return found


def by_id(value: object) -> str:
    """Return a store or recipe as the id of a test."""
    return str(value)
