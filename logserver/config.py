"""Settings: one frozen value, checked once, that records the source of each setting.

Owns names, defaults, limits and precedence: flag, then LOGSERVER_* in the environment, then the TOML file, then the
default. Must not know click or HTTP. The environment may hold other LOGSERVER_* names (an orchestrator sets some), so
only known names are read from it. An unknown key in the file or among the flags is rejected. docs/settings.md lists
every setting; a test compares it with `Settings`.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from logserver.errors import SettingsError

Parser: TypeAlias = Callable[[object], Any]

PREFIX: Final = "LOGSERVER_"
FLAG, ENVIRONMENT, FILE, DEFAULT = "flag", "environment", "file", "default"

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_MAX_INT: Final = (1 << 63) - 1
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/,;?#@]+")
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
MAX_PORT: Final = 65535

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
CHOICES: Final[Mapping[str, Sequence[str]]] = {
    "flush": ("sync", "async", "os"),
    "log_level": LOG_LEVELS,
    "log_format": ("text", "json"),
}
"""The values of the settings that take one of a few words."""


class Address(NamedTuple):
    """An address to listen on; with port 0 the system chooses the port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the address. A host name other than localhost counts as reachable."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def is_unspecified(self) -> bool:
        """True for 0.0.0.0 and [::]: a server listens on them, and no client can connect to them."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False


class _Refused(Exception):
    """The reason why a value, or its `part`, is invalid. It is converted to a SettingsError that names the setting
    and its source.
    """

    def __init__(self, problem: str, part: str | None = None) -> None:
        super().__init__(problem)
        self.part = part


def _text(value: object) -> str:
    if not isinstance(value, str | Path):
        raise _Refused("must be text")
    return str(value)


def _path(value: object) -> Path:
    text = _text(value)
    if not text or "\0" in text:
        raise _Refused("must be a path")
    return Path(text)


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise _Refused("must be true or false")


def _integer(low: int, high: int = _MAX_INT) -> Parser:
    def parse(value: object) -> int:
        text = "" if isinstance(value, bool) else str(value)
        if not re.fullmatch(r"-?\d{1,20}", text) or not low <= int(text) <= high:
            raise _Refused(f"must be a whole number from {low} to {high}")
        return int(text)

    return parse


def _choice(*names: str) -> Parser:
    def parse(value: object) -> str:
        if value not in names:
            raise _Refused(f"must be one of {', '.join(names)}")
        return str(value)

    return parse


def _address(value: object) -> Address:
    host, colon, port = _text(value).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not re.fullmatch(r"\d{1,5}", port) or int(port) > MAX_PORT:
        raise _Refused(f"must be HOST:PORT with a port from 0 to {MAX_PORT}")
    return Address(host, int(port))


def _store_options(value: object) -> dict[str, str]:
    """Parse NAME=VALUE texts (a list, or one text separated by `;`) or a table."""
    if isinstance(value, Mapping):
        return {str(name): _option_text(option) for name, option in value.items()}
    texts = value.split(";") if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        raise _Refused("must be NAME=VALUE texts or a table")
    options = {}
    for text in texts:
        name, equals, option = str(text).partition("=")
        if not equals or not name.strip():
            raise _Refused("must be NAME=VALUE", str(text))
        options[name.strip()] = option.strip()
    return options


def _origins(value: object) -> tuple[str, ...]:
    """Parse origins: a list, or one text separated by commas. A default port is left out, as browsers do."""
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise _Refused("must be origins, separated by commas, or *")
    origins = [text.strip().lower() for text in texts if text.strip()]
    if "*" in origins and len(origins) > 1:
        raise _Refused("must be origins, or * alone")
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise _Refused("must be SCHEME://HOST or SCHEME://HOST:PORT, without a path", origin)
    return tuple(dict.fromkeys(_without_default_port(origin) for origin in origins))


def _without_default_port(origin: str) -> str:
    port = _DEFAULT_PORTS.get(origin.partition(":")[0])
    return origin if port is None else origin.removesuffix(port)


def _option_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise _Refused("values must be text, numbers or booleans")


DEFAULT_ADDRESS: Final = Address("127.0.0.1", 8082)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting with its default; SETTINGS describes each one. `load_settings` creates and checks it."""

    data: Path = Path("data")
    backend: str | None = None
    read_only: bool = False
    write: bool = False
    accept_loss: bool = False
    listen: Address = DEFAULT_ADDRESS
    listen_kafka: Address | None = None
    advertise_kafka: Address | None = None
    insecure: bool = False
    token_file: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    cors_origins: tuple[str, ...] = ()
    cors_credentials: bool = False
    flush: str = "sync"
    flush_interval_ms: int = 500
    set: Mapping[str, str] = field(default_factory=dict)
    ephemeral: bool = False
    exit_with_stdin: bool = False
    auto_create_topics: bool = True
    open_files: int = 512
    checkpoint_interval_ms: int = 60_000
    retention_interval_ms: int = 300_000
    delivery_interval_ms: int = 100
    shutdown_grace_ms: int = 10_000
    max_body_bytes: int = 16 << 20
    max_header_bytes: int = 16 << 10
    max_records_per_request: int = 10_000
    max_connections: int = 1000
    max_waiting_fetches: int = 10_000
    max_in_flight_bytes: int = 64 << 20
    max_stream_errors: int = 1000
    max_stream_inflation: int = 100
    max_answer_bytes: int = 256 << 20
    max_json_depth: int = 64
    max_idempotency_keys: int = 100_000
    max_scanned_records: int = 100_000
    max_wait_ms: int = 300_000
    max_consumer_instances: int = 1000
    max_groups: int = 10_000
    max_group_metadata_bytes: int = 4096
    max_group_member_bytes: int = 64 << 20
    max_auto_created_topics: int = 1000
    max_transactional_ids: int = 100_000
    consumer_idle_ms: int = 300_000
    group_initial_delay_ms: int = 0
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 10_000
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_assignment_interval_ms: int = 1_000
    handshake_timeout_ms: int = 10_000
    keep_alive_ms: int = 75_000
    kafka_idle_ms: int = 600_000
    kafka_poll_us: int = 100
    body_timeout_ms: int = 30_000
    heartbeat_ms: int = 15_000
    metrics_group_lags: int = 100
    log_level: str = "info"
    log_format: str = "text"
    access_log: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)


SETTINGS: Final[Mapping[str, tuple[Parser, str]]] = {
    "data": (_path, "The store's directory. A missing or empty one becomes a new store."),
    "backend": (_text, "Format of a new store: kafka (the default) or rocketmq."),
    "read_only": (
        _boolean,
        "Serve the data that exists when the store is opened; change no byte, take no lock.",
    ),
    "write": (_boolean, "Take over a directory that a real server made (else read-only)."),
    "accept_loss": (_boolean, "Cut at damage even if good records follow it."),
    "listen": (_address, "HOST:PORT to listen on. Port 0 takes any free one."),
    "listen_kafka": (
        _address,
        "HOST:PORT for Kafka clients. Port 0 takes any free one. Not set: Kafka clients are not served.",
    ),
    "advertise_kafka": (
        _address,
        "HOST:PORT that Kafka clients are to connect to, if it is not the one they connected to.",
    ),
    "insecure": (_boolean, "Allow an address that other machines reach, without access control."),
    "token_file": (_path, "Tokens, and what each allows; then nearly every call needs one."),
    "tls_cert": (_path, "Certificate chain in PEM; then the server speaks HTTPS only."),
    "tls_key": (_path, "Private key of tls_cert in PEM, if it is not in the same file."),
    "tls_client_ca": (_path, "CA certificates in PEM; then clients need a certificate too."),
    "cors_origins": (
        _origins,
        "Origins whose pages may read answers, separated by commas; * is every origin.",
    ),
    "cors_credentials": (
        _boolean,
        "Pages of cors_origins may use client certificates that the browser holds.",
    ),
    "flush": (
        _choice(*CHOICES["flush"]),
        "When acknowledged records are put on disk: sync, async or os.",
    ),
    "flush_interval_ms": (
        _integer(1, HOUR_MS),
        "How often records acknowledged without waiting for the disk are synced.",
    ),
    "set": (_store_options, "The store's own options, NAME=VALUE, under the reference's names."),
    "ephemeral": (_boolean, "Use a temporary directory instead of data; it is removed at the end."),
    "exit_with_stdin": (
        _boolean,
        "Stop, in order, when standard input ends.",
    ),
    "auto_create_topics": (_boolean, "Create an unknown topic when records are produced to it."),
    "open_files": (_integer(16, 1_000_000), "How many files of the store may be open at once."),
    "checkpoint_interval_ms": (
        _integer(100, DAY_MS),
        "How often the store records how far its logs are on disk.",
    ),
    "retention_interval_ms": (
        _integer(100, DAY_MS),
        "How often retention runs.",
    ),
    "delivery_interval_ms": (
        _integer(1, HOUR_MS),
        "How often delayed messages that are due are delivered (RocketMQ's format).",
    ),
    "shutdown_grace_ms": (_integer(0, HOUR_MS), "How long requests may take to end at a stop."),
    "max_body_bytes": (
        _integer(1 << 10, 1 << 30),
        "Largest request body, also decompressed; largest record of a stream.",
    ),
    "max_header_bytes": (_integer(1 << 10, 1 << 20), "Longest request line, longest header."),
    "max_records_per_request": (
        _integer(1, 1_000_000),
        "Most records to produce or fetch at once.",
    ),
    "max_connections": (
        _integer(1, 100_000),
        "Most connections at once, of HTTP and of Kafka clients each; others are rejected.",
    ),
    "max_waiting_fetches": (_integer(0, 100_000), "Most fetches that wait for records at once."),
    "max_in_flight_bytes": (_integer(1 << 10), "Most request bytes read or being written at once."),
    "max_stream_errors": (
        _integer(1),
        "Most records of one stream that may fail before it is ended.",
    ),
    "max_stream_inflation": (
        _integer(1, 1_000_000),
        "Most bytes that a stream packed with gzip may hold for each byte sent, beyond 32 MiB.",
    ),
    "max_answer_bytes": (
        _integer(1 << 20),
        "Most bytes of answers that are being made or that clients have not taken yet.",
    ),
    "max_json_depth": (_integer(4, 500), "Deepest nesting of a JSON body."),
    "max_idempotency_keys": (
        _integer(1, 10_000_000),
        "Most keys of requests that are remembered; the oldest are dropped first.",
    ),
    "max_scanned_records": (
        _integer(1, 1_000_000_000),
        "Most records that one query looks at before it hands out a cursor.",
    ),
    "max_wait_ms": (_integer(0, HOUR_MS), "Longest `timeout` that a request may ask for."),
    "max_consumer_instances": (_integer(0, 100_000), "Most consumer instances at once."),
    "max_groups": (_integer(0), "Most groups that have members or committed offsets."),
    "max_group_metadata_bytes": (
        _integer(0, 1 << 20),
        "Most bytes of metadata with a committed offset.",
    ),
    "max_group_member_bytes": (
        _integer(1 << 16),
        "Most bytes that the members of all groups hold (Kafka's protocol).",
    ),
    "max_auto_created_topics": (
        _integer(0),
        "Most topics that produce requests create from one start to the next.",
    ),
    "max_transactional_ids": (
        _integer(1, 10_000_000),
        "Most transactional ids that are remembered, ids of open transactions included.",
    ),
    "consumer_idle_ms": (
        _integer(1000, DAY_MS),
        "How long a consumer instance may be idle before it is closed.",
    ),
    "group_initial_delay_ms": (
        _integer(0, HOUR_MS),
        "How long the first rebalance of a group waits for more members (Kafka's protocol).",
    ),
    "group_min_session_timeout_ms": (
        _integer(1, DAY_MS),
        "Shortest session timeout that a member may ask for (Kafka's protocol).",
    ),
    "group_max_session_timeout_ms": (
        _integer(1, DAY_MS),
        "Longest session timeout that a member may ask for (Kafka's protocol).",
    ),
    "group_max_size": (_integer(1), "Most members of one group (Kafka's protocol)."),
    "group_consumer_session_timeout_ms": (
        _integer(1, DAY_MS),
        "How long a member may be silent before it is removed (Kafka's new group protocol).",
    ),
    "group_consumer_heartbeat_interval_ms": (
        _integer(1, HOUR_MS),
        "How often a member sends a heartbeat (Kafka's new group protocol).",
    ),
    "group_consumer_assignment_interval_ms": (
        _integer(0, HOUR_MS),
        "Shortest time between two assignments of a group's partitions (Kafka's new group protocol).",
    ),
    "handshake_timeout_ms": (_integer(100, HOUR_MS), "Longest TLS handshake."),
    "keep_alive_ms": (_integer(1000, HOUR_MS), "Longest wait for the next request's headers."),
    "kafka_idle_ms": (
        _integer(1000, DAY_MS),
        "Longest that a Kafka client may stay connected without a request.",
    ),
    "kafka_poll_us": (
        _integer(0, 1000),
        "How many microseconds the server looks for a Kafka client's next request before it sleeps.",
    ),
    "body_timeout_ms": (
        _integer(100, HOUR_MS),
        "Longest pause within a request's body; longest that a client takes nothing of its answer.",
    ),
    "heartbeat_ms": (_integer(10, HOUR_MS), "Longest silence of a stream that follows records."),
    "metrics_group_lags": (
        _integer(0, 100_000),
        "Most groups and topics whose lag is in the metrics: the ones with the largest.",
    ),
    "log_level": (
        _choice(*CHOICES["log_level"]),
        "The level of messages on standard error: debug, info, warning or error.",
    ),
    "log_format": (_choice(*CHOICES["log_format"]), "How it is logged: text or json."),
    "access_log": (_boolean, "Log each request: its id, path, status and time."),
}


def load_settings(
    flags: Mapping[str, object],
    environ: Mapping[str, str] = os.environ,
    toml_path: Path | None = None,
) -> Settings:
    """Return the effective settings. `flags` holds the values of the command line; None means that a flag was not
    given.

    Options of `set` are merged by name, each with its own source (`set.segment.bytes`). Raises SettingsError, which
    names the setting, its source and the problem.
    """
    from_flags = {name: value for name, value in flags.items() if value is not None}
    from_environment = {
        name: environ[PREFIX + name.upper()]
        for name in SETTINGS
        if PREFIX + name.upper() in environ
    }
    layers = (
        (FILE, _read_toml(toml_path)),
        (ENVIRONMENT, from_environment),
        (FLAG, from_flags),
    )
    values: dict[str, Any] = {}
    options: dict[str, str] = {}
    sources = dict.fromkeys(SETTINGS, DEFAULT)
    for source, layer in layers:
        for name, raw in layer.items():
            value = _parsed(name, raw, source)
            sources[name] = source
            if name == "set":
                options |= value
                sources |= {f"set.{option}": source for option in value}
            else:
                values[name] = value
    settings = Settings(**values, set=options, sources=sources)
    _check_together(settings)
    return settings


def _read_toml(path: Path | None) -> Mapping[str, object]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        problem = error.strerror or "cannot be read"
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8: wrong byte at {error.start}"
    except tomllib.TOMLDecodeError as error:
        problem = f"is not TOML: {error}"
    raise SettingsError(f"settings file {path}: {problem}", setting="config", source=FLAG)


def _parsed(name: str, raw: object, source: str) -> Any:
    if name not in SETTINGS:
        raise SettingsError(f"setting {name!r} ({source}) is unknown", setting=name, source=source)
    try:
        return SETTINGS[name][0](raw)
    except _Refused as problem:
        shown = (str(raw) if problem.part is None else problem.part)[:80]
        raise SettingsError(
            f"setting {name} ({source}) is {shown!r}: it {problem}", setting=name, source=source
        ) from None


def _check_together(settings: Settings) -> None:
    """Check the conditions that involve two settings. Raises SettingsError."""
    checks = (
        (settings.read_only and settings.write, "write", "excludes read_only"),
        (settings.read_only and settings.accept_loss, "accept_loss", "excludes read_only"),
        (
            settings.ephemeral and settings.sources["data"] == FLAG,
            "data",
            "excludes ephemeral, which serves a temporary directory",
        ),
        (
            not (settings.listen.is_loopback or settings.token_file or settings.insecure),
            "listen",
            f"is {settings.listen}, which other machines can reach without any access control: "
            "choose a loopback address, give a token_file, or allow it with insecure",
        ),
        (
            not (
                settings.listen_kafka is None
                or settings.listen_kafka.is_loopback
                or settings.token_file
                or settings.insecure
            ),
            "listen_kafka",
            f"is {settings.listen_kafka}, which other machines can reach without any access control: "
            "choose a loopback address, give a token_file, or allow it with insecure",
        ),
        (
            settings.advertise_kafka and not settings.listen_kafka,
            "advertise_kafka",
            "needs listen_kafka",
        ),
        (
            settings.advertise_kafka is not None and settings.advertise_kafka.port == 0,
            "advertise_kafka",
            "needs a port that clients can connect to, not 0",
        ),
        (
            settings.advertise_kafka is not None and settings.advertise_kafka.is_unspecified,
            "advertise_kafka",
            "needs an address that clients can connect to, not the one that stands for all",
        ),
        (settings.tls_key and not settings.tls_cert, "tls_key", "needs tls_cert"),
        (settings.tls_client_ca and not settings.tls_cert, "tls_client_ca", "needs tls_cert"),
        (
            settings.cors_credentials and not set(settings.cors_origins) - {"*"},
            "cors_credentials",
            "needs cors_origins with origins by name, not *",
        ),
        (
            settings.max_in_flight_bytes < settings.max_body_bytes,
            "max_in_flight_bytes",
            f"must be at least max_body_bytes ({settings.max_body_bytes})",
        ),
    )
    for wrong, name, problem in checks:
        if wrong:
            source = settings.sources[name]
            raise SettingsError(f"setting {name} ({source}) {problem}", setting=name, source=source)
