"""Rows of the RocketMQ benchmark: our store next to the real store of RocketMQ 5.5.0, turn by turn.

Owns the rows, and the real store: one JVM that stays warm and runs a turn on request
(tests/interop/peers/rocketmq/turns). The work of our store is in rocketmq_store.py. `scripts/bench_rocketmq` runs it.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from logserver.bench.environment import versions
from logserver.bench.goals import ROCKETMQ
from scripts.bench import rocketmq_store as store
from scripts.bench.harness import (
    Bench,
    Row,
    Turn,
    Work,
    parser,
    run,
)
from storage import LogStore, is_compiled

ROOT = Path(__file__).resolve().parents[2]
TURNS = ROOT / "tests" / "interop" / "peers" / "rocketmq" / "turns"
SMALL, LARGE = 100, 1000  # bytes of a body
PEER_NAME = "RocketMQ"
SEED = 5  # of the choice of keys to look up
SYNC_PEERS = {1: 1, 4: 4, 16: 16, 64: 16}  # our producers, and the threads of the real store


class Answer(NamedTuple):
    """The result of a turn: units done and seconds taken. `p99_s` is set if `seconds` is a median."""

    units: int
    seconds: float
    p99_s: float = 0.0

    @property
    def turn(self) -> Turn:
        """The result as a turn of a benchmark."""
        return Turn(self.units, self.seconds)


class Peer:
    """The real store. Leaving the `with` block ends it; its first start on a machine downloads and compiles it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [str(TURNS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.communicate()

    def ask(self, *words: object) -> Answer:
        """Run one turn; see the head of Turns.java for the commands. Raises SystemExit if the store fails."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\t".join(map(str, words)) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"the real store failed at: {' '.join(map(str, words))}")
        answer = json.loads(line)
        return Answer(answer["units"], answer["seconds"], answer.get("p99", 0.0))


class Amounts(NamedTuple):
    """The amounts of work in a row."""

    codec_peer: int
    appended: int
    synced: Mapping[int, int]  # by number of producers
    big: int
    queries: int
    sizes: Mapping[str, str]  # file sizes of the store that is read and recovered
    append_sizes: Mapping[str, str]


FULL = Amounts(
    codec_peer=1_000_000,
    appended=100_000,
    synced={1: 3_000, 4: 10_000, 16: 30_000, 64: 60_000},
    big=640_000,
    queries=20_000,
    sizes=store.BIG_SIZES,
    append_sizes={},
)
QUICK = Amounts(
    codec_peer=store.DIFFERENT,
    appended=2_000,
    synced={1: 100, 4: 400, 16: 1_600, 64: 2_000},
    big=5_000,
    queries=200,
    sizes=store.SMALL_SIZES,
    append_sizes=store.SMALL_SIZES,
)


class Rows:
    """All rows, over one scratch folder. `peer` None: only our store runs."""

    def __init__(self, folder: Path, amounts: Amounts, peer: Peer | None) -> None:
        self._folder = folder
        self._amounts = amounts
        self._peer = peer

    def all(self) -> Iterator[Row]:
        """Yield every row. The large store for the last rows is created before the first of them is yielded."""
        yield from self.codecs()
        yield from self.appends()
        yield from self.synced_appends()
        big = self._folder / "big"
        self._make_big(big)
        yield from self.reads(big)
        yield from self.starts(big)

    def _asked(self, *words: object) -> Work | None:
        """Return a turn of the real store; None without it."""
        peer = self._peer
        if peer is None:
            return None
        return lambda: peer.ask(*words).turn

    def codecs(self) -> Iterator[Row]:
        """Yield rows that encode messages, and decode them with their properties; processor time on both sides."""
        for body_bytes in (SMALL, LARGE):
            codec = store.Codec(body_bytes)
            codec.check()
            for name, ours in (("encode", codec.encode), ("decode", codec.decode)):
                yield Row(
                    name=f"{name} {body_bytes} B",
                    unit="msg",
                    ours=ours,
                    peer=self._codec_turn(name, body_bytes),
                    peer_name=PEER_NAME,
                    expected=store.DIFFERENT,
                )

    def _query_turn(self, count: int, *, p99: bool) -> Work | None:
        """Return a turn with as many queries as ours; its time is the time of one query."""
        peer = self._peer
        if peer is None:
            return None

        def turn() -> Turn:
            answer = peer.ask("query", count, SEED)
            return Turn(answer.units, answer.p99_s if p99 else answer.seconds, 1)

        return turn

    def _codec_turn(self, name: str, body_bytes: int) -> Work | None:
        peer, count = self._peer, self._amounts.codec_peer
        if peer is None:
            return None

        def turn() -> Turn:
            answer = peer.ask(name, body_bytes, count)
            return Turn(store.DIFFERENT if answer.units == count else -1, answer.seconds, count)

        return turn

    def appends(self) -> Iterator[Row]:
        """Yield rows of one producer with asynchronous flush, timed until queues and index have all messages."""
        path, count = self._folder / "append", self._amounts.appended
        for body_bytes in (SMALL, LARGE):
            for at_a_time in (1, 100):
                sizes = self._amounts.append_sizes
                yield Row(
                    name=f"append {body_bytes} B, {at_a_time} at a time",
                    unit="msg",
                    ours=partial(store.append, path, sizes, count, body_bytes, at_a_time),
                    peer=self._asked("put", path, 1, body_bytes, "async", count),
                    peer_name=PEER_NAME,
                    expected=count,
                )

    def synced_appends(self) -> Iterator[Row]:
        """Yield rows of producers that wait for the disk, each with one message at a time."""
        path, sizes = self._folder / "sync", self._amounts.append_sizes
        for producers, count in self._amounts.synced.items():
            threads = SYNC_PEERS[producers]
            yield Row(
                name=f"sync append, {producers} producers"
                + f" ({threads})" * (threads != producers),
                unit="msg",
                ours=partial(store.append_synced, path, sizes, count, SMALL, producers),
                peer=self._asked("put", path, threads, SMALL, "sync", count),
                peer_name=PEER_NAME,
                expected=count,
            )

    def _make_big(self, path: Path) -> None:
        """Create the large store with the real store; with our store if there is no real one or in a quick run."""
        if self._peer is not None and self._amounts is FULL:
            self._peer.ask("makebig", path, self._amounts.big, SMALL)
        else:
            store.make_big(path, self._amounts.sizes, self._amounts.big)

    def reads(self, big: Path) -> Iterator[Row]:
        """Yield rows that read. Both stores have the log open at the same time, each its own copy."""
        count, queries, sizes = self._amounts.big, self._amounts.queries, self._amounts.sizes
        own = self._folder / "read"
        store.copy(big, own)
        with store.opened(own, sizes) as opened, ExitStack() as closing:
            if self._peer is not None:
                self._peer.ask("open", big)
                closing.callback(self._peer.ask, "close")
            yield Row(
                name="read, one queue after another",
                unit="msg",
                ours=partial(store.read_all, opened),
                peer=self._asked("read"),
                peer_name=PEER_NAME,
                expected=count,
            )
            for name, p99 in (("p50", False), ("p99", True)):
                yield Row(
                    name=f"query by key, {name}",
                    unit="query",
                    ours=partial(_queried, opened, queries, count, p99),
                    peer=self._query_turn(queries, p99=p99),
                    peer_name=PEER_NAME,
                    expected=queries,
                    latency=True,
                )

    def starts(self, big: Path) -> Iterator[Row]:
        """Yield rows of the cost of a crash: a start with all files, a start with only the log, and the offline
        tool.
        """
        path, count, sizes = self._folder / "start", self._amounts.big, self._amounts.sizes
        adopted = self._folder / "adopted"
        store.copy(big, adopted)
        store.adopt(adopted, sizes)
        for name, source in (
            ("start after an abort, same files", big),
            ("the same, own checkpoint", adopted),
        ):
            yield Row(
                name=name,
                unit="msg",
                ours=partial(store.load, source, path, sizes, drop=False),
                peer=self._asked("load", big, path, "keep"),
                peer_name=PEER_NAME,
                expected=count,
            )
        for name, ours in (
            ("rebuild by a start", partial(store.load, adopted, path, sizes, drop=True)),
            ("rebuild by the tool", partial(store.rebuild, adopted, path, sizes)),
        ):
            yield Row(
                name=name,
                unit="msg",
                ours=ours,
                peer=self._asked("load", big, path, "drop"),
                peer_name=PEER_NAME,
                expected=count,
            )


def _queried(opened: LogStore, queries: int, count: int, p99: bool) -> Turn:
    return store.query(opened, queries, count, SEED).turn(p99=p99)


def main() -> int:
    """Measure every selected row and report."""
    options = parser(
        "the RocketMQ backend against the real store", "ours alone, without the real store"
    )
    options.add_argument("--dir", type=Path, help="where stores are made; the temporary folder")
    given = options.parse_args()
    bench = Bench(name=ROCKETMQ, compiled=is_compiled(), quick=given.quick, repeats=given.repeats)
    amounts = QUICK if given.quick else FULL
    about = {"RocketMQ": "none" if given.no_java else "5.5.0"} | versions("msgspec", "uvloop")
    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(dir=given.dir)))
        peer = None if given.no_java else closing.enter_context(Peer())
        return run(bench, Rows(folder, amounts, peer).all(), given, about)
