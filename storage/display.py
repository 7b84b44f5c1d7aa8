"""Text and JSON for people and programs, with names that may be any bytes, and readable sizes.

Python stores a byte of a file name that is not UTF-8 as a lone surrogate, which neither UTF-8 nor JSON can contain.
Owns the form in which a name is shown: `\\xe9` for such a byte, `\\ud800` for half of a surrogate pair, and in a line
of text `\\n` or `\\x1b` for a character that cannot be printed. Values in memory keep the name that opens the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

_LONE: Final = re.compile("[\ud800-\udfff]")
# Work with a name that ends so is counted; all other work is measured in bytes (`contract.Progress`).
_COUNTED: Final = "partitions"
_ENCODER: Final = msgspec.json.Encoder()


def readable(text: str) -> str:
    """Return the text with an escape in place of each byte that is not UTF-8."""
    return text if text.isascii() else _LONE.sub(_escape, text)


def one_line(text: str) -> str:
    """Return the text on one line, with an escape in place of each character that cannot be printed, as in `readable`.

    A name may contain line ends, and sequences that a terminal obeys.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in readable(text))


def size_text(size_bytes: int) -> str:
    """Return a readable size: 12345678 is "11.8 MiB"."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def counted(number: int, things: str) -> str:
    """Return a number with its things, which are given in the plural: counted(1, "records") is "1 record"."""
    return f"{number} {things.removesuffix('s') if number == 1 else things}"


def progress_text(what: str, done: int, total: int) -> str:
    """Return the line of a `Progress` report: "examining partitions: 12 of 40 (30 %)"."""
    share = f" ({done * 100 // total} %)" if total > 0 else ""
    if what.endswith(_COUNTED):
        return f"{what}: {done} of {total}{share}"
    return f"{what}: {size_text(done)} of {size_text(total)}{share}"


def encode_text(text: str) -> bytes:
    """Return the text as UTF-8, as `readable` shows it."""
    return readable(text).encode()


def encode_json(value: object, *, enc_hook: Callable[[Any], object] | None = None) -> bytes:
    """Return the value as JSON, with its text as `readable` shows it. `enc_hook` is the one of msgspec."""
    try:
        return msgspec.json.encode(value, enc_hook=enc_hook)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, enc_hook=enc_hook, str_keys=True)
        return msgspec.json.encode(readable_values(plain))


def encode_json_lines(values: Iterable[object]) -> bytes:
    """Return each value as a line of JSON."""
    values = list(values)
    try:
        return _ENCODER.encode_lines(values)
    except UnicodeEncodeError:
        return b"".join(encode_json(value) + b"\n" for value in values)


def readable_values(value: Any, show: Callable[[str], str] = readable) -> Any:
    """Return plain values, as in JSON, with all text as `show` returns it."""
    if isinstance(value, str):
        return show(value)
    if isinstance(value, Mapping):
        return {
            readable_values(key, show): readable_values(item, show) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [readable_values(item, show) for item in value]
    return value


def _escape(lone: re.Match[str]) -> str:
    number = ord(lone[0])
    return f"\\x{number - 0xDC00:02x}" if 0xDC80 <= number <= 0xDCFF else f"\\u{number:04x}"
