"""A new RocketMQ store, made from its commit log alone: messages are written one after another, then the engine makes
all other files.

Owns the position of a message in the log and the padding at the end of a file; must not decide queue offsets or the
order. Any number of writers may write side by side, each writer whole files of its own.

    DIR/commitlog/00000000000000000000     by a writer
    then: topics.json; queues, key index, checkpoint by the recovery of a store that is opened
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from storage.contract import Clock, StoreOptions
from storage.conversion.records import QueuedMessage
from storage.errors import UnrepresentableRecord
from storage.files import FileSystem, HandleCache
from storage.model import TopicPartition
from storage.rocketmq.format import names
from storage.rocketmq.format.message import (
    BORN_HOST_V6,
    HOST_SIZE_V4,
    PADDING_SIZE,
    STORE_HOST_V6,
    encode_padding,
    magic_for,
    message_size,
)
from storage.rocketmq.format.message_encoding import Placement, encode_messages
from storage.rocketmq.format.properties import closed_record, has_crc_property
from storage.rocketmq.index.sizes import resolve_sizes
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.state.root import StoreDirectory, StoreFile
from storage.rocketmq.state.settings import Sizes, parse_store_settings
from storage.rocketmq.state.topics_file import TopicTable
from storage.rocketmq.store import open_rocketmq
from storage.rocketmq.tools.rebuild.recount import count_records
from storage.shared.recount import Contents

WRITE_BYTES: Final = 1 << 20
OPEN_FILES: Final = 4


@lru_cache(maxsize=1024)
def _form_of(topic: str) -> tuple[bytes, int]:
    """Return (the topic's bytes, the magic of its records)."""
    return topic.encode(), magic_for(topic)


def size_of(topic: str, queued: QueuedMessage) -> int:
    """Return the size of a message in the log, in bytes."""
    message = queued.message
    utf8, magic = _form_of(topic)
    hosts = BORN_HOST_V6 if len(message.born_host) != HOST_SIZE_V4 else 0
    hosts |= STORE_HOST_V6 if len(queued.store_host) != HOST_SIZE_V4 else 0
    return message_size(
        topic_bytes=len(utf8),
        body_bytes=len(message.body),
        properties_bytes=len(message.properties),
        sys_flag=hosts,
        magic=magic,
    )


def check_size(topic: str, queued: QueuedMessage, file_bytes: int) -> None:
    """Raise UnrepresentableRecord for a message that no file of the log can hold."""
    if size_of(topic, queued) > file_bytes - PADDING_SIZE:
        raise UnrepresentableRecord("takes more than a file of the commit log", field="value")


class LogWriter:
    """A writer of messages, from the beginning of a file on. Memory: WRITE_BYTES and a message."""

    def __init__(self, fs: FileSystem, root: Path, file_bytes: int, *, position: int) -> None:
        self._files = HandleCache(fs, OPEN_FILES)
        folder = root / names.COMMIT_LOG
        self._run = FileSequence(self._files, folder, file_bytes, kind=names.COMMIT_LOG)
        fs.make_dir(folder)
        self._start = self._position = self._file_end = position
        self._buffer: list[bytes] = []
        self._buffered = 0

    @property
    def files(self) -> int:
        """The number of files written so far."""
        return (self._file_end - self._start) // self._run.file_bytes

    def add(self, address: TopicPartition, queued: QueuedMessage) -> None:
        """Add a message at its own queue offset. The caller has checked its size."""
        topic, queue_id = address
        utf8, magic = _form_of(topic)
        if size_of(topic, queued) + PADDING_SIZE > self._file_end - self._position:
            self._next_file()
        (data,) = encode_messages(
            [queued.message],
            Placement(
                utf8,
                magic,
                queue_id,
                queued.offset,
                self._position,
                queued.store_timestamp_ms,
                queued.store_host,
            ),
        )
        if has_crc_property(data):
            data = closed_record(data)  # the CRC in the message covers its old position
        self._put(data)

    def _put(self, data: bytes) -> None:
        self._buffer.append(data)
        self._buffered += len(data)
        self._position += len(data)
        if self._buffered >= WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._buffered:
            self._run.write(self._position - self._buffered, b"".join(self._buffer))
            self._buffer, self._buffered = [], 0

    def _next_file(self) -> None:
        self._flush()
        self._close_file()
        self._run.create(self._file_end)
        self._position = self._file_end
        self._file_end += self._run.file_bytes

    def _close_file(self) -> None:
        left = self._file_end - self._position
        if left:
            self._run.write(self._position, encode_padding(left))
            self._run.sync(self._position, self._file_end)

    def finish(self, *, last: bool) -> None:
        """Write all messages; durable on return. `last`: no file follows, so the last file is not padded."""
        self._flush()
        if not last:
            self._close_file()
        if self._run.bases:
            self._run.sync(self._run.start, self._run.limit)
        self.abandon()

    def abandon(self) -> None:
        """Close the files without writing more."""
        self._files.close(sync=False)


def sizes_for(root: Path, options: StoreOptions, *, fs: FileSystem) -> Sizes:
    """Return the lengths of a new store's files. Raises InvalidConfig."""
    return resolve_sizes(fs, root, parse_store_settings(options.settings), None)


def complete(
    root: Path,
    topics: Mapping[str, int],
    options: StoreOptions,
    *,
    fs: FileSystem,
    clock: Clock,
) -> Mapping[TopicPartition, Contents]:
    """Make a store, durable and cleanly stopped, from the log in `root`; return its contents.

    `topics`: the number of queues of each topic.
    """
    directory = StoreDirectory(fs, root)
    table = TopicTable()
    for topic, queues in topics.items():
        table = table.created(topic, queues, {}, now_ms=clock())
    fs.make_dir(directory.config)
    directory.write_topics(table)
    settings = parse_store_settings(options.settings)
    sizes = resolve_sizes(fs, root, settings, None)
    directory.write_store_file(StoreFile(created=True, sizes=sizes))
    fs.sync_dir(root)
    store = open_rocketmq(root, options, fs=fs, clock=clock, read_only=False)
    with store:
        addresses = [TopicPartition(t, n) for t, queues in topics.items() for n in range(queues)]
        return count_records(store, addresses)
