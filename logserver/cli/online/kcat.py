"""`logserver kcat`: kcat's command line, for the HTTP API of a server or for Kafka brokers.

Owns kcat's options and their translation to the readings of `consume` and the sendings of `produce`; must not
read, send or format records itself. An option without a meaning here is refused; one without an effect is accepted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from logserver.cli.auth_options import Access, access_options
from logserver.cli.online.consume import Reading, Watch, read, read_as_member
from logserver.cli.online.consume_output import Show, by_format, unescaped
from logserver.cli.online.kcat_output import Listing, envelope, write
from logserver.cli.online.kcat_properties import (
    Properties,
    named_address,
    pairs_of,
    parse_kafka_properties,
    parse_properties,
)
from logserver.cli.online.options import (
    DEFAULT_URL,
    OFFSET_NAMES,
    READING_NAMES,
    STORED,
    URL_VARIABLE,
    complete_topics,
    run_with_client,
)
from logserver.cli.online.produce import (
    CODECS,
    Sending,
    Sent,
    from_line,
    send,
)
from logserver.cli.options import Command, check_address, is_url, parse_time
from logserver.client import FetchedPage, FetchedRecord, LogClient
from storage import Header
from storage.display import one_line

CONSUME, PRODUCE, LIST, QUERY, GROUP = "-C", "-P", "-L", "-Q", "-G"
EARLIEST_TIME, LATEST_TIME = -2, -1  # Kafka's special times of a query
TIMESTAMP_TYPE: Final = "message.timestamp.type"
LOG_APPEND: Final = "LogAppendTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The values of the options."""

    consumes: bool
    produces: bool
    lists: bool
    queries: bool
    group: str | None
    topics: tuple[str, ...]
    partition: int | None
    delimiter: bytes
    key_delimiter: bytes | None
    key: str | None
    headers: tuple[str, ...]
    compression: str | None
    starts: tuple[str, ...]
    at_end: bool
    count: int | None
    template: str | None
    is_json: bool
    shows_null: bool
    shows_offset: bool
    is_tee: bool
    by_lines: bool
    timeout_s: float
    quiet: bool
    verbosity: int
    properties: Properties
    words: tuple[str, ...]

    def say(self, text: str, level: int = 1) -> None:
        """Print a line on standard error; -q silences it, and a level of 2 needs -v."""
        if not self.quiet and level <= 1 + self.verbosity:
            click.echo(one_line(f"% {text}"), err=True)

    @property
    def null(self) -> bytes:
        """The text for a null key or value."""
        return b"NULL" if self.shows_null else b""


def _address(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else check_address(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _separator(_: click.Context, __: click.Parameter, value: str | None) -> bytes | None:
    """Convert text with escapes to bytes; only on output it may be empty."""
    return None if value is None else unescaped(value)


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"logserver kcat, version {ctx.find_root().obj['version']}")
        ctx.exit()


def _refused(
    flag: str, name: str, reason: str, *, about: str, **attributes: Any
) -> Callable[[Command], Command]:
    """Return an option of kcat that has no meaning here: a value is refused with the reason."""

    def refuse(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value:
            raise click.BadParameter(reason, ctx, param)

    return click.option(
        flag, name, expose_value=False, callback=refuse, help=f"Refused: {about}", **attributes
    )


_NOT_READ: Final = "a file of librdkafka's properties is not read: give the options themselves"
_NO_SERDES: Final = "keys and values are printed as they are stored: unpack them after kcat"
_NO_REGISTRY: Final = "there is no schema registry here"
_NO_MOCK: Final = "for a server of its own, run: logserver serve --ephemeral --port 0"
_IGNORED: Final = "Accepted, without effect here."

_OPTIONS: Final = (
    click.option("-C", "consumes", is_flag=True, help="Consume: print records."),
    click.option("-P", "produces", is_flag=True, help="Produce: send lines as records."),
    click.option("-L", "lists", is_flag=True, help="List topics and partitions."),
    click.option("-Q", "queries", is_flag=True, help="Query offsets: -t TOPIC:PARTITION:MS."),
    click.option("-G", "group", metavar="GROUP", help="Consume the TOPICs as a member of GROUP."),
    click.option(
        "-b",
        "url",
        metavar="URL|HOST:PORT",
        callback=_address,
        help="The server's address; HOST:PORT[,...]: brokers, by Kafka's protocol (needs the extra kafka). "
        f"[env var: {URL_VARIABLE}; default: {DEFAULT_URL}]",
    ),
    click.option(
        "-t",
        "topics",
        metavar="TOPIC",
        multiple=True,
        shell_complete=complete_topics,
        help="Topic.",
    ),
    click.option(
        "-p", "partition", type=click.IntRange(-1), metavar="N", help="Partition; -1: any."
    ),
    click.option(
        "-o",
        "starts",
        metavar="OFFSET",
        multiple=True,
        help="Where to begin: beginning, end, stored, N, -N (the last N) or s@MS; where to end: e@MS.",
    ),
    click.option("-e", "at_end", is_flag=True, help="Exit at the end of the topic."),
    click.option("-c", "count", type=click.IntRange(1), metavar="N", help="Exit after N records."),
    click.option(
        "-f",
        "template",
        metavar="FORMAT",
        help="The form of a record: %t %p %o %k %s %h %T %S %K %R %%.",
    ),
    click.option("-J", "is_json", is_flag=True, help="Print a JSON envelope for each record."),
    click.option(
        "-D",
        "delimiter",
        default="\\n",
        show_default=True,
        metavar="SEP",
        callback=_separator,
        help="Ends a record, also on output.",
    ),
    click.option(
        "-K",
        "key_delimiter",
        metavar="SEP",
        callback=_separator,
        help="Ends the key in front of the value, also on output.",
    ),
    click.option("-k", "key", metavar="KEY", help="The key of records without one."),
    click.option(
        "-H", "headers", multiple=True, metavar="NAME=VALUE", help="A header of all records."
    ),
    click.option("-Z", "shows_null", is_flag=True, help="Send empty as null; print null as NULL."),
    click.option("-z", "compression", type=click.Choice(CODECS), help="Compression."),
    click.option("-O", "shows_offset", is_flag=True, help="Print the offset in front, with -K."),
    click.option("-l", "by_lines", is_flag=True, help="A FILE has lines; else it is one record."),
    click.option("-T", "is_tee", is_flag=True, help="Print the records that were sent."),
    click.option(
        "-m",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for an answer.",
    ),
    click.option(
        "-X",
        "properties",
        multiple=True,
        metavar="NAME=VALUE",
        help="A property of librdkafka; with a URL, where it has a meaning there.",
    ),
    click.option("-q", "quiet", is_flag=True, help="No notices on standard error."),
    click.option("-v", "verbosity", count=True, help="More notices on standard error."),
    click.option("-E", "-u", is_flag=True, expose_value=False, help=_IGNORED),
    click.option("-d", "debug", metavar="AREAS", expose_value=False, help=_IGNORED),
    _refused("-F", "file", _NOT_READ, about="no file of properties is read.", metavar="FILE"),
    _refused("-s", "serdes", _NO_SERDES, about="nothing is unpacked.", multiple=True),
    _refused("-r", "registry", _NO_REGISTRY, about="no schema registry.", metavar="URL"),
    _refused("-M", "mock", _NO_MOCK, about="see `logserver serve --ephemeral`.", metavar="N"),
    click.option(
        "-V",
        "shows_version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_version,
        help="Show the version and exit.",
    ),
    click.argument("words", nargs=-1, metavar="[FILE|TOPIC]..."),
)


def _command(access: Access, properties: Sequence[str], url: str | None, **options: Any) -> None:
    try:
        given = pairs_of(properties)
        url = url or named_address(given) or os.environ.get(URL_VARIABLE) or DEFAULT_URL
        parsed = parse_properties(given) if is_url(url) else parse_kafka_properties(given)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="-X") from None
    line = Line(properties=parsed, **options)
    mode = _mode(line)
    if line.words and mode not in (PRODUCE, GROUP):
        raise click.UsageError(f"{line.words[0]!r} is unexpected: files need -P, topics -G")
    if mode in (CONSUME, PRODUCE, QUERY) and not line.topics:
        raise click.UsageError("-t TOPIC is missing")
    for name in parsed.ignored:
        line.say(f"-X {name} has no effect here")
    access = Access(
        access.token_file,
        access.ca_file or parsed.ca_file,
        access.cert_file or parsed.cert_file,
    )
    modes: Mapping[str, Callable[[LogClient], Any]] = {
        CONSUME: lambda client: _consume(client, line),
        GROUP: lambda client: _consume_as_member(client, line),
        PRODUCE: lambda client: _produce(client, line),
        LIST: lambda client: _list(client, line),
        QUERY: lambda client: _query(client, line),
    }
    run_with_client(url, access, modes[mode], timeout_s=line.timeout_s, properties=parsed.of_kafka)


def _mode(line: Line) -> str:
    chosen = {
        CONSUME: line.consumes,
        PRODUCE: line.produces,
        LIST: line.lists,
        QUERY: line.queries,
        GROUP: line.group is not None,
    }
    modes = [mode for mode, is_chosen in chosen.items() if is_chosen]
    if len(modes) > 1:
        raise click.UsageError(f"{' and '.join(modes)} exclude each other: give one")
    if modes:
        return modes[0]
    mode = CONSUME if sys.stdin.isatty() else PRODUCE
    reason = "a terminal" if mode == CONSUME else "no terminal"
    line.say(f"{mode} is chosen, since standard input is {reason}; give -C or -P to choose")
    return mode


# ---- consume --------------------------------------------------------------------------------------


class Ends(Watch):
    """Notices of the end of each partition, and the end of a reading at a time (-o e@MS)."""

    def __init__(self, line: Line, partitions: Sequence[int], until_ms: int | None) -> None:
        self._line = line
        self._partitions = set(partitions)
        self._until_ms = until_ms
        self._stopped: dict[int, int] = {}
        self._said: dict[int, int] = {}

    def select(self, page: FetchedPage) -> Sequence[FetchedRecord]:
        """Return the records before the end time; a partition has none after its first later record."""
        if self._until_ms is None:
            return page.records
        if page.partition in self._stopped:
            return ()
        for number, record in enumerate(page.records):
            if record.timestamp_ms >= self._until_ms:
                self._stopped[page.partition] = record.offset
                return page.records[:number]
        return page.records

    def is_over(self, page: FetchedPage) -> bool:
        """Return whether all partitions have reached the end time; report each end once."""
        stop = self._stopped.get(page.partition)
        if stop is not None:
            self._say(page.partition, stop, "stop timestamp for topic", "")
        elif page.next_offset >= page.end_offset:
            is_last = self._line.at_end and len({*self._said, page.partition}) == len(
                self._partitions
            )
            self._say(page.partition, page.end_offset, "end of topic", is_last * ": exiting")
        return self._stopped.keys() == self._partitions

    def _say(self, partition: int, offset: int, what: str, ending: str) -> None:
        if self._said.get(partition) != offset:
            self._said[partition] = offset
            topic = self._line.topics[-1]
            self._line.say(f"Reached {what} {topic} [{partition}] at offset {offset}{ending}")


async def _consume(client: LogClient, line: Line) -> None:
    topic, (start, until_ms) = line.topics[-1], _range(line.starts)
    if start == STORED:
        raise click.UsageError("-o stored needs a group: give -G")
    show = _show(line)
    described = await client.topic(topic)
    number = None if line.partition == -1 else line.partition
    partitions = described.partitions if number is None else [number]
    has_append_times = line.is_json and described.configs.get(TIMESTAMP_TYPE) == LOG_APPEND
    reading = Reading(
        topics=[topic],
        partition=number,
        start=start,
        at_end=line.at_end,
        count=line.count,
        isolation=line.properties.isolation,
        show=show if not has_append_times else envelope(line.delimiter, [topic]),
        watch=Ends(line, partitions, until_ms),
    )
    await read(client, reading)


async def _consume_as_member(client: LogClient, line: Line) -> None:
    topics = [*line.topics, *line.words]
    patterns = [topic for topic in topics if topic.startswith("^")]
    if not topics:
        raise click.UsageError("-G needs TOPICs")
    if patterns and len(topics) > 1:
        raise click.UsageError("a group has one ^PATTERN, or any number of TOPICs: not both")
    start, until_ms = _range(line.starts) if line.starts else (line.properties.start, None)
    if until_ms is not None:
        raise click.UsageError("-o e@MS and -G exclude each other: a group reads everything")
    reading = Reading(
        topics=[] if patterns else topics,
        pattern=patterns[0] if patterns else None,
        partition=None if line.partition == -1 else line.partition,
        start=start,
        at_end=line.at_end,
        count=line.count,
        show=_show(line),
    )
    assert line.group is not None
    await read_as_member(client, line.group, reading)


def _range(starts: Sequence[str]) -> tuple[int | str, int | None]:
    """Return the client's value for the start, and the time of the end, from the values of -o."""
    start: int | str = OFFSET_NAMES["beginning"]
    until_ms = None
    for text in starts:
        try:
            if text in READING_NAMES:
                start = READING_NAMES[text]
            elif text.startswith("s@"):
                start = f"@{parse_time(text[2:])}"
            elif text.startswith("e@"):
                until_ms = parse_time(text[2:])
            else:
                start = int(text)
        except ValueError:
            forms = "beginning, end, stored, N, -N, s@MS and e@MS"
            raise click.BadParameter(f"{text!r} is none of {forms}", param_hint="-o") from None
    if start == STORED and len(starts) > 1:
        raise click.UsageError("-o stored stands alone")
    return start, until_ms


def _show(line: Line) -> Show:
    if line.is_json:
        return envelope(line.delimiter)
    if line.template is not None:
        return by_format(line.template, null=line.null)
    null, ends_key = line.null, line.key_delimiter or b""

    def show(record: FetchedRecord) -> bytes:
        key = b""
        if line.key_delimiter is not None:
            key = (null if record.key is None else record.key) + ends_key
        offset = b"%d%b" % (record.offset, ends_key) if line.shows_offset else b""
        value = null if record.value is None else record.value
        return offset + key + value + line.delimiter

    return show


# ---- produce, list, query -------------------------------------------------------------------------


async def _produce(client: LogClient, line: Line) -> None:
    properties, number = line.properties, line.partition
    if not line.delimiter or line.key_delimiter == b"":
        raise click.UsageError("-D and -K must not be empty with -P")
    sending = Sending(
        topic=line.topics[-1],
        partition=None if number == -1 else number,
        delimiter=None if line.words and not line.by_lines else line.delimiter,
        compression=line.compression or properties.compression,
        acks=properties.acks,
        count=line.count,
        tee=(lambda lines: write(b"".join(one + line.delimiter for one in lines)))
        if line.is_tee
        else None,
        to_record=from_line(
            key_delimiter=line.key_delimiter,
            key=line.key,
            headers=list(map(_header, line.headers)),
            tag=None,
            empty_is_null=line.shows_null,
        ),
    )
    sent = Sent(sending.topic, is_placed=properties.acks != "0")
    await send(client, [Path(word) for word in line.words], sending, sent)
    line.say(str(sent), level=2)


def _header(text: str) -> Header:
    """Return the header of NAME=VALUE; NAME alone has no value."""
    name, equals, value = text.partition("=")
    if not name:
        raise click.BadParameter(f"{text!r} is neither NAME=VALUE nor NAME", param_hint="-H")
    return name, os.fsencode(value) if equals else None


async def _list(client: LogClient, line: Line) -> None:
    topic = line.topics[-1] if line.topics else None
    listing = Listing(topic, await client.cluster(topic))
    if line.is_json:
        write(msgspec.json.encode(listing.document()) + b"\n")
    else:
        write(listing.text().encode())


async def _query(client: LogClient, line: Line) -> None:
    rows = [(await _offset(client, text)) for text in line.topics]
    if line.is_json:
        document: dict[str, dict[str, object]] = {}
        for topic, partition, offset in rows:
            of_topic = document.setdefault(topic, {"topic": topic})
            of_topic[str(partition)] = {"partition": partition, "offset": offset}
        write(msgspec.json.encode(document) + b"\n")
    else:
        lines = (one_line(f"{topic} [{number}] offset {offset}") for topic, number, offset in rows)
        write("".join(f"{text}\n" for text in lines).encode())


async def _offset(client: LogClient, text: str) -> tuple[str, int, int]:
    """Return the partition and the first offset from the time of TOPIC:PARTITION:MS on; -1 without such a record."""
    topic, *numbers = text.rsplit(":", 2)
    try:
        partition, time_ms = map(int, numbers)
    except ValueError:
        message = f"{text!r} is not TOPIC:PARTITION:MS"
        raise click.BadParameter(message, param_hint="-t") from None
    if time_ms in (EARLIEST_TIME, LATEST_TIME):
        held = await client.offsets(topic, partition)
        is_first = time_ms == EARLIEST_TIME
        return topic, partition, held.beginning_offset if is_first else held.end_offset
    found = await client.offset_for_time(topic, partition, max(time_ms, 0))
    return topic, partition, -1 if found is None else found.offset


def _with_options(run: Callable[..., None]) -> click.Command:
    decorated: Any = access_options(run)
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return click.command(
        "kcat",
        help="Consume, produce and list with kcat's options: through a server's HTTP API, or from Kafka brokers.\n\n"
        "-C, -P, -L, -Q or -G chooses the mode; without one it is -C where standard input is a terminal, else -P. "
        "The form of the output is kcat's; the exit codes are the same as for other commands.",
        epilog="Example: logserver kcat -C -t orders -o -5 -e -J",
    )(decorated)


command: Final = _with_options(_command)
