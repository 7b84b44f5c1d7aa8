"""Stores whose broker keeps queues or configs in RocksDB: told from the commit log, and never written.

Owns what is said of them and what is refused; which databases there are the directory tells. With
`storeType=defaultRocksDB` all of `consumequeue` is a database, and each of topics, groups and offsets in
`config`. Who appends without them hands out queue offsets that the broker has given or gives again, and the
broker never finds those records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from storage.errors import UnsupportedFormat
from storage.findings import finding
from storage.model import Finding
from storage.rocketmq.directory import StoreDirectory

CODE: Final = "rocksdb-store"


def refuse(directory: StoreDirectory) -> None:
    """Raise UnsupportedFormat for a store that is to be written and has such a database."""
    for folder in directory.databases():
        raise UnsupportedFormat(
            f"{folder} is a RocksDB database of the broker (storeType=defaultRocksDB), and such a store is not "
            "written. Nothing has been changed. Serve what its log has with --read-only",
            path=str(folder),
        )


def findings(directory: StoreDirectory) -> Iterator[Finding]:
    """That there are some, told once."""
    found = directory.databases()
    if found:
        yield finding(
            CODE,
            found[0],
            message="a RocksDB database, which is not read: "
            + (
                "records are those of the commit log, and no queue is looked at"
                if directory.queues_in_database()
                else "what the broker's configs say is not known"
            ),
        )
