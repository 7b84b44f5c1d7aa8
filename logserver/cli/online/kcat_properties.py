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
from logserver.cli.options import check_address
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

    start: str = "latest"
    acks: str = "all"
    compression: str | None = None
    isolation: Isolation | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    ignored: list[str] = field(default_factory=list)
    of_kafka: Mapping[str, str] = field(default_factory=dict)


def pairs_of(texts: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Return name and value of NAME=VALUE texts; a prefix `topic.` changes nothing. Raises ValueError."""
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().removeprefix("topic.")
        if not equals or not name:
            raise ValueError(f"{text!r} is not NAME=VALUE: there is no list of properties here")
        pairs.append((name, value))
    return pairs


def named_address(pairs: Sequence[tuple[str, str]]) -> str | None:
    """Return the server's address, if a property has it. Raises ValueError."""
    found = [value for name, value in pairs if name in _ADDRESSES]
    return check_address(found[-1]) if found else None


def parse_kafka_properties(pairs: Sequence[tuple[str, str]]) -> Properties:
    """Return the properties for Kafka brokers: all go to librdkafka, which checks them. Raises ValueError."""
    own = [(name, value) for name, value in pairs if name in _KNOWN and name not in _OF_FILES]
    properties = parse_properties(own)
    mine = {"acks", "request.required.acks", "auto.offset.reset", "isolation.level"}
    properties.of_kafka = {
        name: value
        for name, value in pairs
        if name not in mine | _ADDRESSES and name != "compression.codec"
    }
    return properties


def parse_properties(pairs: Sequence[tuple[str, str]]) -> Properties:
    """Return the properties for an HTTP API. Raises ValueError."""
    properties = Properties()
    for name, value in pairs:
        for start, reason in _REFUSED.items():
            if f"{name}={value.lower()}".startswith(start):
                raise ValueError(f"{name} is not possible: {reason}")
        if name in _ADDRESSES:
            continue
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


_ADDRESSES: Final = frozenset({"bootstrap.servers", "metadata.broker.list"})
_OF_FILES: Final = frozenset({"ssl.ca.location", "ssl.certificate.location"})
_CODEC: Final = ("compression", _choice({name: name for name in CODECS}))
_KNOWN: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "auto.offset.reset": ("start", _choice(_STARTS)),
    "acks": ("acks", _choice(_ACKS)),
    "request.required.acks": ("acks", _choice(_ACKS)),
    "compression.codec": _CODEC,
    "compression.type": _CODEC,
    "isolation.level": ("isolation", _choice({level.value: level for level in Isolation})),
    "ssl.ca.location": ("ca_file", Path),
    "ssl.certificate.location": ("cert_file", Path),
}
