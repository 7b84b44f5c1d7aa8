"""`logserver serve`: run a server on one store until SIGTERM or SIGINT.

Owns the options (one per setting, made from the table of settings) and the messages at the start; must not import HTTP.
The composition root passes the server as `obj["run_server"]`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import click
from click.shell_completion import CompletionItem

from logserver import process_signals
from logserver.cli.offline.findings import finding_lines
from logserver.cli.options import complete_files
from logserver.cli.progress import LateProgress
from logserver.config import (
    CHOICES,
    DEFAULT,
    FLAG,
    MAX_PORT,
    SETTINGS,
    Address,
    Settings,
    load_settings,
)
from logserver.logs import log_to_stderr
from logserver.remedies import Inspected
from storage import Progress, RecoveryReport, backends, serves_kafka_clients
from storage.display import counted, encode_json, one_line

Completion: TypeAlias = Callable[
    [click.Context, click.Parameter, str], list[CompletionItem] | list[str]
]

_FILES: Final = frozenset({"data", "token_file", "tls_cert", "tls_key", "tls_client_ca"})
_FORMATS: Final = ("kafka", "rocketmq")  # of a new store on disk

_CURL_WITH_TOKEN: Final = "curl -H 'Authorization: Bearer TOKEN'"


class Plan(Protocol):
    """The opened store."""

    @property
    def backend(self) -> str: ...
    @property
    def path(self) -> Path: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def notice(self) -> str | None: ...


class Started(Protocol):
    """The facts that a server reports when it is ready."""

    @property
    def url(self) -> str: ...
    @property
    def kafka(self) -> str | None: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def recovery(self) -> RecoveryReport: ...


Tell = Callable[[Started], None]
RunServer = Callable[[Settings, Tell, Progress], None]


def _options() -> list[click.Parameter]:
    """Return DIR, and one option per setting, under its name; the settings' own rules parse the values."""
    options: list[click.Parameter] = [
        click.Argument(
            ["directory"], metavar="[DIR]", required=False, shell_complete=complete_files
        ),
        click.Option(
            ["--config"],
            metavar="FILE",
            help="A TOML file of settings.",
            shell_complete=complete_files,
        ),
        click.Option(
            ["--port"],
            type=click.IntRange(0, MAX_PORT),
            metavar="N",
            help="The port of --listen alone: its host stays. Port 0 takes any free one.",
        ),
    ]
    defaults = Settings()
    for name, (_, text) in SETTINGS.items():
        flag = "--" + name.replace("_", "-")
        default = getattr(defaults, name)
        about = text if default in (None, False, {}, ()) else f"{text} [default: {default}]"
        if isinstance(default, bool):
            names = [f"{flag}/--no-{name.replace('_', '-')}"]
            options.append(click.Option(names, default=None, help=about))
        elif name == "set":
            options.append(click.Option([flag], multiple=True, metavar="NAME=VALUE", help=about))
        else:
            completed = _completion_of(name)
            options.append(
                click.Option([flag], metavar="VALUE", help=about, shell_complete=completed)
            )
    return options


def _completion_of(setting: str) -> Completion | None:
    """Return what completes the value of a setting in a shell: its words, or the names of files."""
    if setting in _FILES:
        return complete_files
    words = _FORMATS if setting == "backend" else CHOICES.get(setting)
    if words is None:
        return None
    return lambda ctx, param, incomplete: [
        CompletionItem(word) for word in words if word.startswith(incomplete)
    ]


def settings_of(
    config: str | None, port: int | None, directory: str | None, **flags: Any
) -> Settings:
    """Return the settings that the values of the options give. `port` replaces the port of the setting `listen`;
    `directory` is the setting `data`.

    It is no setting of its own: LOGSERVER_PORT is a name that Kubernetes sets for its services.
    """
    if port is not None and flags["listen"] is not None:
        raise click.UsageError("--listen has a port: give --listen or --port, not both")
    if directory is not None:
        if flags["data"] is not None:
            raise click.UsageError(f"give {directory!r} or --data, not both")
        flags["data"] = directory
    flags["set"] = flags["set"] or None
    settings = load_settings(flags, toml_path=Path(config) if config is not None else None)
    if port is None:
        return settings
    address = settings.listen._replace(port=port)
    return replace(settings, listen=address, sources={**settings.sources, "listen": FLAG})


def _serve(**flags: Any) -> None:
    """Read the settings, then run the server with stop signals held, so that a signal during the start is not lost.

    The server lets the signals through when it is ready. After the server ends, they are held until its temporary
    directory is removed.
    """
    settings = settings_of(**flags)
    with process_signals.held():
        try:
            _run(settings)
        finally:
            process_signals.forget()


def _run(settings: Settings) -> None:
    run_server: RunServer = click.get_current_context().obj["run_server"]
    log_to_stderr(settings.log_level, settings.log_format)
    curl = "curl" if settings.token_file is None else _CURL_WITH_TOKEN
    with LateProgress() as progress:

        def tell(started: Started) -> None:
            progress.close()
            _tell(started, curl=curl, options=settings.set)

        if settings.ephemeral:
            with tempfile.TemporaryDirectory(prefix="logserver-") as folder:
                run_server(_ephemeral(settings, Path(folder)), tell, progress)
        else:
            run_server(settings, tell, progress)


command: Final = click.Command(
    "serve",
    callback=_serve,
    params=_options(),
    help="Serve the store in DIR, which is the same as --data DIR, over HTTP until SIGTERM or SIGINT.",
    short_help="Serve a store over HTTP.",
)


def _ephemeral(settings: Settings, folder: Path) -> Settings:
    """Return the settings of a store that is never opened again: its data need not be synced. It has a port for Kafka
    clients too, on this machine, unless its format is not for them.
    """
    flush = "os" if settings.sources["flush"] == DEFAULT else settings.flush
    listen_kafka = settings.listen_kafka
    is_offered = settings.backend is None or (
        settings.backend in backends() and serves_kafka_clients(settings.backend)
    )
    if listen_kafka is None and is_offered:
        listen_kafka = Address("127.0.0.1", 0)
    return replace(settings, data=folder / "data", flush=flush, listen_kafka=listen_kafka)


def _tell(started: Started, *, curl: str, options: Mapping[str, str]) -> None:
    """Print one JSON line for a program that started this process, and for a person the served store and commands to
    try with `curl`. `options`: the store options.
    """
    plan = started.plan
    facts: Mapping[str, object] = {
        "url": started.url,
        "backend": plan.backend,
        "data": str(plan.path.absolute()),
        "read_only": plan.read_only,
    }
    if started.kafka is not None:
        facts = {**facts, "kafka": started.kafka}
    if not sys.stdout.isatty():
        click.echo(encode_json(facts))
    mode = " (read-only)" if plan.read_only else ""
    lines = [f"{plan.backend} store {plan.path}{mode} at {started.url}"]
    if started.kafka is not None:
        lines.append(f"Kafka clients connect to {started.kafka}")
    if plan.notice is not None:
        lines.append(plan.notice)
    inspected = Inspected(plan.path, options)
    lines += _recovery_lines(started.recovery, inspected, read_only=plan.read_only)
    to_try = _to_try(started.url, read_only=plan.read_only)
    lines += ["try:", *(f"  {curl} {words}" for words in to_try)]
    click.echo("\n".join(map(one_line, lines)), err=True)


def _recovery_lines(report: RecoveryReport, inspected: Inspected, *, read_only: bool) -> list[str]:
    lines: list[str] = []
    if not report.clean_shutdown:
        lines.append(
            f"recovered after an unclean stop: {counted(report.segments_scanned, 'segments')} scanned, "
            f"{counted(report.indexes_rebuilt, 'index files')} rebuilt in {report.elapsed_ms} ms"
        )
    lines += [
        f"{'left out' if read_only else 'cut'}: {loss.path} from position {loss.position}, {loss.size_bytes} bytes "
        f"({loss.reason})" + (f", kept in {loss.kept_at}" if loss.kept_at else "")
        for loss in report.losses
    ]
    errors = [finding for finding in report.findings if finding.severity == "error"]
    return [*lines, *finding_lines(errors, inspected)]


def _to_try(url: str, *, read_only: bool) -> tuple[str, str, str]:
    """Return arguments for `curl`."""
    json_type = "application/vnd.kafka.json.v2+json"
    if read_only:
        return (
            f"{url}/topics",
            f"{url}/store",
            f"'{url}/topics/TOPIC/partitions/0/records?offset=earliest&format=text'",
        )
    return (
        f"{url}/topics/hello/partitions/0 -H 'Content-Type: {json_type}' "
        """-d '{"records":[{"key":"k","value":{"n":1}}]}'""",
        f"'{url}/topics/hello/partitions/0/records?format=json'",
        f"{url}/topics/hello",
    )
