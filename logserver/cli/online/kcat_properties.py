"""The properties of librdkafka that `logserver kcat -X NAME=VALUE` takes.

Owns their names, and which of them have a meaning here, are refused, or are accepted without effect. Must not act on
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from logserver.cli.online.produce import CODECS
from logserver.cli.options import is_url
from storage import Isolation

_ACKS: Final[Mapping[str, str]] = {"-1": "all", "all": "all", "1": "1", "0": "0"}
_STARTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("smallest", "earliest", "beginning"), "earliest"),
    **dict.fromkeys(("largest", "latest", "end"), "latest"),
}
_REFUSED: Final[Mapping[str, str]] = {
    "sasl.": "access is by tokens here: give --token-file",
    "transactional.id": "the server has no transactions over HTTP",
    "schema.registry.": "there is no schema registry here",
    "security.protocol=sasl": "access is by tokens here: give --token-file",
}


@dataclass(slots=True)
class Properties:
    """The values of the properties that logserver uses, and the names of the properties that it ignores."""

    url: str | None = None
    start: str = "latest"
    acks: str = "all"
    compression: str | None = None
    isolation: Isolation | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    ignored: list[str] = field(default_factory=list)


def parse_properties(texts: Sequence[str]) -> Properties:
    """Return the properties of NAME=VALUE texts; a prefix `topic.` changes nothing. Raises ValueError."""
    properties = Properties()
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().removeprefix("topic.")
        if not equals or not name:
            raise ValueError(f"{text!r} is not NAME=VALUE: there is no list of properties here")
        for start, reason in _REFUSED.items():
            if f"{name}={value.lower()}".startswith(start):
                raise ValueError(f"{name} is not possible: {reason}")
        if name not in _KNOWN:
            properties.ignored.append(name)
            continue
        attribute, parse = _KNOWN[name]
        try:
            setattr(properties, attribute, parse(value))
        except ValueError as error:
            raise ValueError(f"{name} is {value!r}: it must be {error}") from None
    return properties


def _choice(choices: Mapping[str, Any]) -> Callable[[str], Any]:
    def parse(value: str) -> Any:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return choices[value]

    return parse


def _url(value: str) -> str:
    if not is_url(value):
        raise ValueError("the URL of the server's HTTP API, as with -b")
    return value


_CODEC: Final = ("compression", _choice({name: name for name in CODECS}))
_KNOWN: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "bootstrap.servers": ("url", _url),
    "metadata.broker.list": ("url", _url),
    "auto.offset.reset": ("start", _choice(_STARTS)),
    "acks": ("acks", _choice(_ACKS)),
    "request.required.acks": ("acks", _choice(_ACKS)),
    "compression.codec": _CODEC,
    "compression.type": _CODEC,
    "isolation.level": ("isolation", _choice({level.value: level for level in Isolation})),
    "ssl.ca.location": ("ca_file", Path),
    "ssl.certificate.location": ("cert_file", Path),
}
