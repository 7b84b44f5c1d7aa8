"""`logserver config show`: every setting, its value, and its source.

Owns the listing; must not define settings, their sources or checks (logserver.config), nor their options (serve).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click
import msgspec

from logserver.cli import serve
from logserver.cli.output import (
    TABLE,
    Row,
    output_parameter,
    write_document,
    write_text,
)
from logserver.config import SETTINGS, Settings
from storage import is_compiled


def _show(output: str, **flags: Any) -> None:
    settings = serve.settings_of(**flags)
    rows = list(_rows(settings))
    if output == TABLE:
        write_text(_lines(rows))
    else:
        write_document({"settings": rows, "compiled": is_compiled()}, output)


def _rows(settings: Settings) -> Iterator[Row]:
    for name, (_, about) in SETTINGS.items():
        value = getattr(settings, name)
        yield {
            "name": name,
            "value": value if isinstance(value, bool | int | None) else _plain(value),
            "source": settings.sources[name],
            "about": about,
        }


def _plain(value: object) -> object:
    if type(value) is tuple:  # a list of names; an address prints itself
        return ",".join(value)
    return value if isinstance(value, dict) else str(value)


def _lines(rows: list[Row]) -> Iterator[str]:
    texts = [(str(row["name"]), _text(row["value"]), str(row["source"])) for row in rows]
    widths = [max(len(text[column]) for text in texts) for column in range(2)]
    for name, value, source in texts:
        yield f"{name:<{widths[0]}}  {value:<{widths[1]}}  {source}"
    yield f"codecs run {'compiled' if is_compiled() else 'interpreted'}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


_ABOUT: Final = (
    "Print every setting with its value and source: flag, environment (LOGSERVER_...), file or "
    "default. Takes the options of `serve`."
)

show: Final = click.Command(
    "show",
    callback=_show,
    params=[*serve.command.params, output_parameter()],
    help=_ABOUT,
    short_help="Print every setting, its value and its source.",
)
command: Final = click.Group("config", commands=[show], help="Show the settings in force.")
