"""Backend names and the factories behind them, imported only when asked for.

Owns the one table of backends and the detection of what a directory holds; must not import a
backend by itself. The strings are invisible to the import checker: a test imports each of them.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from storage.errors import InvalidArgument, IoFailure, UnsupportedFormat
from storage.files import FileSystem, RealFileSystem
from storage.interface import Clock, LogStore, StoreOptions, SupportsInspect

# A first start that was cut off leaves its lock.
_NO_CONTENT: Final = frozenset({"lost+found", ".lock", "lock"})


class Backend(NamedTuple):
    """Where a backend's doors are, as module:function; None where it has no such door."""

    open_store: str
    detect: str | None
    open_inspector: str | None


class Detected(NamedTuple):
    """What a directory holds. `adopted`: made by us, or taken over before (`.logserver.store.json`
    is there).
    """

    backend: str
    adopted: bool


BACKENDS: Final[dict[str, Backend]] = {
    "kafka": Backend(
        open_store="storage.kafka.store:open_kafka",
        detect="storage.kafka.directory:detect",
        open_inspector="storage.kafka.tools:open_inspector",
    ),
    "rocketmq": Backend(
        open_store="storage.rocketmq.store:open_rocketmq",
        detect="storage.rocketmq.directory:detect",
        open_inspector="storage.rocketmq.tools:open_inspector",
    ),
    "memory": Backend(open_store="storage.memory:open_memory", detect=None, open_inspector=None),
}


def wall_clock_ms() -> int:
    """Milliseconds since the epoch by the machine's clock: the default `Clock`."""
    return time.time_ns() // 1_000_000


def backends() -> Sequence[str]:
    """The names that `open_store` takes."""
    return tuple(BACKENDS)


def is_compiled() -> bool:
    """Whether the hot codec modules run compiled (one source, built by mypyc) or interpreted."""
    spec = importlib.util.find_spec("storage.coding.varint")
    return spec is not None and not (spec.origin or "").endswith(".py")


def resolve(target: str) -> Any:
    """The object that "module:name" means, importing the module now."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def open_store(
    backend: str,
    path: Path | str,
    options: StoreOptions | None = None,
    *,
    fs: FileSystem | None = None,
    clock: Clock = wall_clock_ms,
    read_only: bool = False,
) -> LogStore:
    """Open (or make, unless `read_only`) the store at `path`; it has recovered when this returns.

    Raises InvalidArgument for an unknown backend, UnsupportedFormat for another format's directory,
    StoreLocked, DamagedStore (see `RecoveryReport`), InvalidConfig for a bad setting, IoFailure.
    """
    if backend not in BACKENDS:
        raise InvalidArgument(
            f"backend {backend!r} is unknown: choose one of {', '.join(BACKENDS)}", field="backend"
        )
    factory = resolve(BACKENDS[backend].open_store)
    store: LogStore = factory(
        Path(path),
        options or StoreOptions(),
        fs=fs or RealFileSystem(),
        clock=clock,
        read_only=read_only,
    )
    return store


def detect(path: Path | str, *, fs: FileSystem | None = None) -> Detected | None:
    """Which backend's store the directory holds; None when it is missing or empty.

    Raises UnsupportedFormat when it holds something else, IoFailure when it cannot be read.
    """
    fs = fs or RealFileSystem()
    path = Path(path)
    if not fs.exists(path):
        return None
    if not fs.is_dir(path):
        raise UnsupportedFormat(f"{path} is a file, not a store's directory", path=str(path))
    for name, backend in BACKENDS.items():
        if backend.detect is not None:
            adopted: bool | None = resolve(backend.detect)(fs, path)
            if adopted is not None:
                return Detected(name, adopted)
    names = [name for name in fs.list_dir(path) if name not in _NO_CONTENT]
    if not names:
        return None
    shown = ", ".join(names[:5])
    raise UnsupportedFormat(
        f"{path} is no store of a known backend ({', '.join(BACKENDS)}): it holds {shown}",
        path=str(path),
    )


def open_inspector(
    path: Path | str,
    options: StoreOptions | None = None,
    *,
    fs: FileSystem | None = None,
    clock: Clock = wall_clock_ms,
) -> SupportsInspect:
    """Open PATH (a store, a partition directory or one file) for looking only; see SupportsInspect.

    Raises UnsupportedFormat when no backend knows it, IoFailure when it cannot be read.
    """
    fs = fs or RealFileSystem()
    path = Path(path)
    if not fs.exists(path):
        raise IoFailure(f"{path} does not exist", path=str(path), operation="open", errno=2)
    for backend in BACKENDS.values():
        if backend.open_inspector is None:
            continue
        found: SupportsInspect | None = resolve(backend.open_inspector)(
            path, options or StoreOptions(), fs=fs, clock=clock
        )
        if found is not None:
            return found
    raise UnsupportedFormat(
        f"{path} is no store, partition directory or file of a known backend", path=str(path)
    )
