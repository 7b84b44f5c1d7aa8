"""The choice of store and mode for a server: the directory decides, the settings may restrict.

Owns the choice of backend and of read-only; must not open anything before `open` is called. A directory that was made
by a real server is served read-only until `write` takes it over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from logserver.config import Settings
from logserver.errors import SettingsError
from storage import LogStore, Progress, StoreOptions, backends, detect, open_store

NEW_STORE_BACKEND = "kafka"
MEMORY_BACKEND = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlan:
    """The store to open. `notice` explains to the operator why the store is read-only."""

    backend: str
    path: Path
    read_only: bool
    notice: str | None
    options: StoreOptions

    def open(self, progress: Progress) -> LogStore:
        """Open the store and recover it. Blocks. Raises what `storage.open_store` raises."""
        options = replace(self.options, progress=progress)
        return open_store(self.backend, self.path, options, read_only=self.read_only)


def plan_store(settings: Settings) -> StorePlan:
    """Inspect the directory and choose the backend and the mode.

    Raises UnsupportedFormat for a directory that holds other data, IoFailure for an unreadable directory, and
    SettingsError if the settings do not fit the store.
    """
    asked = settings.backend
    if asked is not None and asked not in backends():
        _refuse(settings, "backend", f"is {asked!r}: choose one of {', '.join(backends())}")
    found = detect(settings.data)
    if found is not None and asked is not None and asked != found.backend:
        _refuse(settings, "backend", f"is {asked}, but {settings.data} is a {found.backend} store")
    if asked == MEMORY_BACKEND and not settings.ephemeral:
        _refuse(settings, "backend", f"is {asked}, which keeps nothing: it needs ephemeral")
    if found is None and settings.read_only:
        _refuse(settings, "read_only", f"needs a store, and {settings.data} holds none")
    foreign = found is not None and not found.adopted and not settings.write
    notice = None
    if foreign and not settings.read_only:
        notice = (
            f"{settings.data} was made by another server: it is served read-only and unchanged; "
            "--write takes it over"
        )
    return StorePlan(
        backend=found.backend if found is not None else asked or NEW_STORE_BACKEND,
        path=settings.data,
        read_only=settings.read_only or foreign,
        notice=notice,
        options=StoreOptions(
            settings=settings.set,
            accept_loss=settings.accept_loss,
            open_files=settings.open_files,
        ),
    )


def _refuse(settings: Settings, name: str, problem: str) -> None:
    source = settings.sources.get(name, "default")
    raise SettingsError(f"setting {name} ({source}) {problem}", setting=name, source=source)
