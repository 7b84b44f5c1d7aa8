"""Arguments and options of the offline commands: PATH, store options, topic, partition, times; and opening PATH.

Owns the parsing of these into plain values; must not know what a command does with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
from click.shell_completion import CompletionItem

from logserver.cli.progress import LateProgress
from logserver.config import MAX_PORT
from storage import Progress, StoreOptions, SupportsInspect, TopicPartition, open_inspector

Command: TypeAlias = Callable[..., Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_MS: Final = 1 << 63
_DIGITS_OF_SECONDS: Final = 10  # of a time since 2001; as milliseconds it is in 1970


def _path(ctx: click.Context, param: click.Parameter, value: str) -> Path:
    if is_url(value):
        message = "only find and offsets query a running server: give a PATH"
        raise click.BadParameter(message, ctx, param)
    if not value or "\0" in value:
        raise click.BadParameter(f"{value!r} is not a path", ctx, param)
    return Path(value)


_BROKER: Final = re.compile(r"([^\s:/\[\]]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


def is_url(place: str) -> bool:
    """Return whether this is a server's address and not a path."""
    return place.startswith(("http://", "https://"))


def check_address(text: str) -> str:
    """Return the address of a server: one URL of its HTTP API, or HOST:PORT[,HOST:PORT...] of Kafka brokers. Raises
    ValueError.
    """
    if "://" in text:
        if not is_url(text):
            raise ValueError(f"{text!r}: a URL begins with http:// or https://")
        if "," in text:
            raise ValueError(f"{text!r} is a list: give one URL; only HOST:PORT may be repeated")
        return text
    brokers = [_BROKER.fullmatch(part.strip()) for part in text.split(",")]
    if not all(brokers):
        raise ValueError(f"{text!r} is neither a URL nor HOST:PORT[,HOST:PORT...]")
    # librdkafka takes the lower 16 bits of a larger port, and connects to another server.
    if any(int(broker[2][1:]) > MAX_PORT for broker in brokers if broker and broker[2]):
        raise ValueError(f"{text!r}: a port is at most {MAX_PORT}")
    return text


def _place(ctx: click.Context, param: click.Parameter, value: str) -> Path | str:
    return value if is_url(value) else _path(ctx, param, value)


def _time(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        time_ms = parse_time(value)
    except ValueError:
        message = f"{value!r} is neither milliseconds nor ISO 8601"
        raise click.BadParameter(message, ctx, param) from None
    if value.isdigit() and len(value) == _DIGITS_OF_SECONDS:
        note = f"{value} is a time in 1970: numbers are milliseconds, and {value}000 is that many seconds"
        click.echo(note, err=True)
    return time_ms


def parse_time(text: str) -> int:
    """Return milliseconds since the epoch, from a number of milliseconds or ISO 8601 (UTC if it names no zone).

    Raises ValueError.
    """
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit():
        if len(digits) > 19 or not -_MAX_MS <= int(text) < _MAX_MS:
            raise ValueError(text)
        return int(text)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def time_text(time_ms: int) -> str:
    """Return a time in ISO 8601, UTC; `parse_time` reads it."""
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")


def time_option(*names: str, about: str) -> Callable[[Command], Command]:
    """Return an option for a time; the command gets milliseconds."""
    return click.option(*names, metavar="TIME", callback=_time, help=about)


def name_values(
    ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> Mapping[str, str]:
    """Parse the values of a repeatable option NAME=VALUE; a callback of click."""
    settings = {}
    for value in values:
        name, equals, setting = value.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{value!r} is not NAME=VALUE", ctx, param)
        settings[name.strip()] = setting.strip()
    return settings


def complete_files(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell complete the name of a file or folder."""
    return [CompletionItem(incomplete, type="file")]


path_argument: Final = click.argument(
    "path", metavar="PATH", callback=_path, shell_complete=complete_files
)
place_argument: Final = click.argument(
    "place", metavar="PATH|URL", callback=_place, shell_complete=complete_files
)
"""The command gets a Path, or a server's address as text."""


def settings_option(name: str, *, about: str) -> Callable[[Command], Command]:
    """Return an option for store options; `--set` is the command's `settings`, `--X-set` its `X_settings`."""
    parameter = name.removeprefix("--").replace("-", "_").removesuffix("set") + "settings"
    return click.option(
        name, parameter, multiple=True, metavar="NAME=VALUE", callback=name_values, help=about
    )


set_option: Final = settings_option(
    "--set", about="A store option under the reference's name, such as index.interval.bytes=4096."
)
topic_option: Final = click.option("--topic", metavar="TOPIC", help="Only this topic.")
partition_option: Final = click.option(
    "--partition", type=click.IntRange(min=0), metavar="N", help="Only this partition."
)
rebuilt_option: Final = click.option(
    "--what",
    metavar="KIND",
    help="Only this kind: indexes; of a RocketMQ store consumequeue or indexfile. Default: all derived files.",
)
write_option: Final = click.option(
    "--write", is_flag=True, help="Write the files; without it, only print what would change."
)


@contextmanager
def opened(path: Path, settings: Mapping[str, str]) -> Iterator[tuple[SupportsInspect, Progress]]:
    """Open PATH for inspection; yield the inspector and the progress display."""
    with LateProgress() as progress:
        options = StoreOptions(settings=settings, progress=progress)
        inspector = open_inspector(path, options)
        try:
            yield inspector, progress
        finally:
            inspector.close()


def selected(
    inspector: SupportsInspect, topic: str | None, partition: int | None
) -> Sequence[TopicPartition]:
    """Return the partitions selected by `--topic` and `--partition`; None selects all."""
    return [
        address
        for address in inspector.partitions()
        if topic in (None, address.topic) and partition in (None, address.partition)
    ]
