"""`logserver produce`: send records from lines of standard input or of files, with kcat's options.

Owns the conversion of lines to records and requests; must not know the limits of a store. Each read of the input goes
in one request, so that a typed line is sent at once, and a file in large pieces.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

import click
import msgspec
from msgspec import Struct

from logserver.cli.online.consume_output import unescaped
from logserver.cli.online.options import (
    online,
    parse_pairs,
    partition_option,
    topic_option,
)
from logserver.cli.options import time_option, time_text
from logserver.client import Delay, LogClient, Placed, PlacedLater, Record, as_bytes
from logserver.validation import in_words
from storage import Header
from storage.display import one_line
from storage.errors import InvalidArgument

READ_BYTES: Final = 256 << 10
MAX_LINE_BYTES: Final = 64 << 20  # more than a server accepts in a request by default
REQUEST_RECORDS: Final = 1000
MAX_NAMED_PARTITIONS: Final = 4  # in the summary
REQUEST_BYTES: Final = 4 << 20
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd", "zlib")

ToRecord: TypeAlias = Callable[[bytes], Record]


class _JsonHeader(Struct):
    key: str
    value: str | None = None
    value_b64: bytes | None = None


class _JsonRecord(Struct):
    """A record as `consume` prints it; fields that only a stored record has are ignored."""

    key: Any = None
    value: Any = msgspec.UNSET
    key_b64: bytes | None = None
    value_b64: bytes | None = None
    headers: Sequence[_JsonHeader] = ()
    timestamp: int | None = None
    tag: str | None = None
    keys: Sequence[str] = ()


def parse_delimiter(ctx: click.Context, param: click.Parameter, value: str | None) -> bytes | None:
    """Parse text with escapes into bytes; a callback of click."""
    if value is None:
        return None
    data = unescaped(value)
    if not data:
        raise click.BadParameter("must not be empty", ctx, param)
    return data


@click.command("produce")
@topic_option
@partition_option
@click.option(
    "-D",
    "delimiter",
    default="\\n",
    show_default=True,
    callback=parse_delimiter,
    help="Ends a record.",
)
@click.option(
    "-K", "key_delimiter", metavar="SEP", callback=parse_delimiter, help="Ends the key in a record."
)
@click.option("-k", "key", metavar="KEY", help="The key of all records.")
@click.option("-H", "headers", multiple=True, metavar="NAME=VALUE", help="A header of all records.")
@click.option("-T", "--tag", metavar="TAG", help="The tag of all records.")
@click.option("-Z", "empty_is_null", is_flag=True, help="Send null for an empty key or value.")
@click.option("-z", "compression", type=click.Choice(CODECS), help="Compression of the batches.")
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="When a request counts as done: durable, written, or sent.",
)
@click.option(
    "--delay-level",
    type=click.IntRange(min=0),
    metavar="N",
    help="Deliver the records after the delay of this level (RocketMQ).",
)
@click.option(
    "--delay",
    "delay_ms",
    type=click.IntRange(min=0),
    metavar="MS",
    help="Deliver the records after this time, rounded up to a level (RocketMQ).",
)
@time_option(
    "--deliver-at",
    "deliver_at_ms",
    about="Deliver the records at this time (ms or ISO 8601), rounded up to a level (RocketMQ).",
)
@click.option(
    "--transaction",
    metavar="ID",
    help="Send the records in this transaction (see transaction begin).",
)
@click.option(
    "--json", "is_json", is_flag=True, help="Each line is a record in JSON, as consume prints it."
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@online
async def command(
    client: LogClient,
    files: Sequence[Path],
    *,
    topic: str,
    partition: int | None,
    delimiter: bytes,
    compression: str | None,
    acks: str,
    transaction: str | None,
    is_json: bool,
    delay_level: int | None,
    delay_ms: int | None,
    deliver_at_ms: int | None,
    headers: Sequence[str],
    **shape: Any,
) -> None:
    """Store each line of standard input, or of files, as a record. Empty lines are skipped.

    With -K the key stands before the value. The command ends with an error at the first rejected request.
    On a terminal it prints how many records were stored, and where.
    """
    delay = Delay(delay_level, deliver_at_ms, delay_ms)
    pairs = [(name, os.fsencode(value)) for name, value in parse_pairs(headers, "header")]
    sending = Sending(
        topic=topic,
        partition=partition,
        delimiter=delimiter,
        compression=compression,
        acks=acks,
        delay=None if delay == Delay() else delay,
        transaction=transaction,
        to_record=_from_json if is_json else from_line(headers=pairs, **shape),
    )
    sent = Sent(topic, is_placed=acks != "0")
    try:
        await send(client, files, sending, sent)
    finally:
        if sys.stdout.isatty():
            click.echo(one_line(str(sent)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """The target of records, and how the input is cut into them.

    `delimiter` None: an input is one record. `count`: stop after this number of records. `tee` gets the lines of each
    request after it is answered. `delay`: of all records.
    """

    topic: str
    to_record: ToRecord
    partition: int | None = None
    delimiter: bytes | None = b"\n"
    compression: str | None = None
    acks: str = "all"
    delay: Delay | None = None
    transaction: str | None = None
    count: int | None = None
    tee: Callable[[Sequence[bytes]], None] | None = None


class Sent:
    """The records that the server has accepted: their number, and their offsets in each partition."""

    def __init__(self, topic: str, *, is_placed: bool) -> None:
        self.topic = topic
        self.count = 0
        self.last_delivery_ms: int | None = None  # of delayed records
        self.ranges: dict[int, tuple[int, int]] = {}
        self._is_placed = is_placed

    def add(self, count: int, placed: Sequence[Placed]) -> None:
        """Count the records of one request, and note their places."""
        self.count += count
        for place in placed:
            if isinstance(place, PlacedLater):
                self.last_delivery_ms = max(self.last_delivery_ms or 0, place.deliver_at_ms or 0)
                continue
            first, _ = self.ranges.get(place.partition, (place.offset, place.offset))
            self.ranges[place.partition] = first, place.offset

    def __str__(self) -> str:
        """Return a line for a person."""
        records = "1 record" if self.count == 1 else f"{self.count} records"
        if not self._is_placed:
            return f"sent {records} to {self.topic}; with --acks 0 the server reports no offsets"
        if self.last_delivery_ms is not None:
            until = time_text(self.last_delivery_ms)
            return f"stored {records} for {self.topic}; the last one is delivered at {until}"
        text = f"stored {records} in {self.topic}"
        if len(self.ranges) > MAX_NAMED_PARTITIONS:
            return f"{text}, in {len(self.ranges)} partitions"
        places = [
            f"partition {partition}, "
            + (f"offset {first}" if first == last else f"offsets {first} to {last}")
            for partition, (first, last) in sorted(self.ranges.items())
        ]
        return f"{text}: {'; '.join(places)}" if places else text


async def send(client: LogClient, files: Sequence[Path], sending: Sending, sent: Sent) -> None:
    """Send the records of the files, or else of standard input; count them in `sent` as they are stored."""
    with ExitStack() as opened:
        sources: list[tuple[str, IO[bytes]]] = [
            (f"{path}: ", opened.enter_context(path.open("rb", buffering=0))) for path in files
        ]
        for place, source in sources or [("", _stdin())]:
            before = 0
            async for lines in _runs(source, sending.delimiter):
                records = list(_records(lines, sending.to_record, f"{place}line", before))
                before += len(lines)
                if sending.count is not None:
                    records = records[: sending.count - sent.count]
                if records:
                    placed = await client.produce_many(
                        sending.topic,
                        records,
                        partition=sending.partition,
                        acks=sending.acks,
                        compression=sending.compression,
                        delay=sending.delay,
                        transaction=sending.transaction,
                    )
                    sent.add(len(records), placed)
                if sending.tee is not None:
                    sending.tee([line for line in lines if line][: len(records)])
                if sending.count is not None and sent.count >= sending.count:
                    return


def _records(
    lines: Sequence[bytes], to_record: ToRecord, place: str, before: int
) -> Iterator[Record]:
    """Yield the records of the lines that are not empty. `before` is the number of lines before them.

    Raises InvalidArgument, which names `place` and the number of the line.
    """
    for number, line in enumerate(lines, before + 1):
        try:
            if line:
                yield to_record(line)
        except ValueError as error:
            raise InvalidArgument(
                f"{place} {number} is not a record: {error}", field="record"
            ) from None


def _stdin() -> IO[bytes]:
    """Return standard input such that a read returns the available data."""
    buffer = sys.stdin.buffer
    return buffer.raw if isinstance(buffer, io.BufferedReader) else buffer


async def _runs(source: IO[bytes], delimiter: bytes | None) -> AsyncGenerator[list[bytes], None]:
    """Yield lines without their delimiter, also empty lines: the lines of one read, cut to what a request may hold.
    Without a delimiter the whole input is one line.

    Raises InvalidArgument for a line over MAX_LINE_BYTES: the input may never end.
    """
    rest = b""
    while data := await _read(source):
        *lines, rest = (rest + data).split(delimiter) if delimiter else [rest + data]
        for run in _requests(lines):
            yield run
        if len(rest) > MAX_LINE_BYTES:
            raise InvalidArgument(
                f"a record is longer than {MAX_LINE_BYTES} bytes: -D sets the delimiter",
                field="line",
            )
    if rest:
        yield [rest]


async def _read(source: IO[bytes]) -> bytes:
    """Read the available data, after waiting for it in the event loop: a blocking read cannot be interrupted."""
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(source, came.set)
    except (OSError, ValueError):  # a file on a disk always has data, or has ended
        return await asyncio.to_thread(source.read, READ_BYTES)
    try:
        await came.wait()
    finally:
        loop.remove_reader(source)
    return source.read(READ_BYTES)


def _requests(lines: Sequence[bytes]) -> Iterator[list[bytes]]:
    run: list[bytes] = []
    size_bytes = 0
    for line in lines:
        if run and (len(run) == REQUEST_RECORDS or size_bytes + len(line) > REQUEST_BYTES):
            yield run
            run, size_bytes = [], 0
        run.append(line)
        size_bytes += len(line)
    if run:
        yield run


def from_line(
    *,
    key_delimiter: bytes | None,
    key: str | None,
    headers: Sequence[Header],
    tag: str | None,
    empty_is_null: bool,
) -> ToRecord:
    """Return the conversion of a line to a record with these parts; the key may stand in front of the value."""
    common_key = None if key is None else os.fsencode(key)

    def to_record(line: bytes) -> Record:
        own_key, value = common_key, line
        if key_delimiter is not None and key_delimiter in line:
            own_key, _, value = line.partition(key_delimiter)
        if empty_is_null:
            return Record(own_key or None, value or None, headers, tag=tag)
        return Record(own_key, value, headers, tag=tag)

    return to_record


def _from_json(line: bytes) -> Record:
    """Parse a record from a line of JSON. Raises ValueError."""
    try:
        given = msgspec.json.decode(line, type=_JsonRecord)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(in_words(error, _JsonRecord, line, whole="it")) from None
    if given.value is msgspec.UNSET and given.value_b64 is None:
        raise ValueError("it has no value")
    # Kafka's stores keep tag and lookup keys in these headers; `consume` prints both forms.
    names = {one.key for one in given.headers}
    return Record(
        as_bytes(given.key) if given.key_b64 is None else given.key_b64,
        as_bytes(given.value) if given.value_b64 is None else given.value_b64,
        [
            (one.key, as_bytes(one.value) if one.value_b64 is None else one.value_b64)
            for one in given.headers
        ],
        given.timestamp,
        None if "TAGS" in names else given.tag,
        () if "KEYS" in names else given.keys,
    )
