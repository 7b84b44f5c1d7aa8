"""Stores whose broker keeps queues or configs in RocksDB: read from the commit log, and never written.

Owns the findings about them and the refusal to write; must not find the databases: the directory does. With
`storeType=defaultRocksDB` all of `consumequeue` is a database, and so is each of topics, groups and offsets in
`config`. An append without them would assign queue offsets that the broker has assigned already, or assigns again
later. The broker would never find those records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from storage.errors import UnsupportedFormat
from storage.findings import finding
from storage.model import Finding
from storage.rocketmq.state.root import StoreDirectory

CODE: Final = "rocksdb-store"


def refuse(directory: StoreDirectory) -> None:
    """Raise UnsupportedFormat if a store that is to be written has such a database."""
    for folder in directory.databases():
        raise UnsupportedFormat(
            f"{folder} is a RocksDB database of the broker (storeType=defaultRocksDB), and such a store is not "
            "written. Nothing has been changed. Serve what its log has with --read-only",
            path=str(folder),
        )


def findings(directory: StoreDirectory) -> Iterator[Finding]:
    """Yield one finding if the store has such databases."""
    found = directory.databases()
    if found:
        yield finding(
            CODE,
            found[0],
            message="a RocksDB database, which is not read: "
            + (
                "records come from the commit log, and no queue is read"
                if directory.queues_in_database()
                else "what the broker's configs say is not known"
            ),
        )
