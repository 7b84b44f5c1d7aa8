"""The end of commands: exit codes, and a single plain line for every error."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

import logserver
from logserver.__main__ import group
from logserver.cli import COMMANDS, LazyGroup
from logserver.config import SETTINGS
from storage.registry import resolve
from tests.cli.runner import Ended, run
from tests.golden import stores

ROOT = stores.KAFKA / "parts/data"
OFFLINE = ("inspect", "dump", "offsets", "verify", "rebuild")


def reported(ended: Ended, code: int) -> str:
    """Return the error line of a failed command; it must be the only output."""
    assert (ended.code, ended.out) == (code, b"")
    (line,) = ended.err.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["produces"], " Did you mean 'produce'?"),
        (["pipeline", "exprot"], " Did you mean 'export'?"),
        (["xyzzy"], ""),
    ],
)
def test_an_unknown_command_names_the_similar_ones(words: list[str], advice: str) -> None:
    ended = run(*words)
    assert ended.code == 2
    assert ended.err.endswith(f"Error: No such command {words[-1]!r}.{advice}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_and_helps(name: str) -> None:
    command = resolve(COMMANDS[name].target)
    assert isinstance(command, click.Command)
    assert command.name == name
    ended = run(name, "--help")
    assert ended.code == 0
    assert ended.out.startswith(b"Usage: logserver " + name.encode())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is_for(name: str) -> None:
    command = resolve(COMMANDS[name].target)
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    silent = [
        f"{one.name} {option.opts[0]}"
        for one in (command, *inner)
        for option in one.params
        if isinstance(option, click.Option) and not option.help
    ]
    assert silent == []


def test_tail_knows_no_groups() -> None:
    assert b"-G" not in run("tail", "--help").out
    assert b"-G: may be repeated" in run("consume", "--help").out


@pytest.mark.parametrize("name", ["consume", "find", "salvage"])
def test_the_example_of_a_help_is_understood(name: str) -> None:
    example = run(name, "--help").out.decode().splitlines()[-1].strip()
    assert example.startswith(f"Example: logserver {name} ")
    command = resolve(COMMANDS[name].target)
    assert command.make_context(name, shlex.split(example)[3:]).params


def test_help_lists_the_commands_without_importing_them() -> None:
    ended = run("--help")
    assert ended.code == 0
    for name, lazy in COMMANDS.items():
        assert name in ended.out.decode()
        assert lazy.about in ended.out.decode()


def test_the_version() -> None:
    for option in ("--version", "-V"):
        assert run(option).out.decode() == f"logserver, version {logserver.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["dump"],
        ["dump", ROOT, "surplus"],
        ["dump", ROOT, "--nonsense"],
        ["dump", ROOT, "--output", "xml"],
        ["dump", ROOT, "--partition", "-1"],
        ["dump", ROOT, "--partition", "x"],
        ["dump", ROOT, "--isolation", "serializable"],
        ["dump", ROOT, "--set", "segment.bytes"],
        ["dump", ROOT, "--set", "=1"],
        ["dump", ""],
        ["offsets", ROOT, "--time", "2023-13-01"],
        ["offsets", ROOT, "--time", "99999999999999999999"],
        ["inspect", "http://127.0.0.1:8082"],
        ["find", "http://127.0.0.1:8082", "--key", "a", "--raw"],
        ["topic", "alter", "t"],
        ["consume"],
        ["consume", "-t", "t", "-o", "stored"],
        ["consume", "-t", "t", "-o", "middle"],
        ["consume", "-t", "t", "-o", "@yesterday"],
        ["consume", "-t", "t", "-c", "0"],
        ["consume", "-t", "t", "-f", "%s", "-J"],
        ["produce", "-t", "t", "-z", "rar"],
        ["produce", "-t", "t", "-D", ""],
    ],
)
def test_wrong_use(arguments: list[object]) -> None:
    ended = run(*arguments)
    assert (ended.code, ended.out) == (2, b"")
    assert "Error: " in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("command", OFFLINE)
@pytest.mark.parametrize(
    ("setting", "code"),
    [("no.such.setting=1", "invalid-config"), ("segment.bytes=none", "invalid-config")],
)
def test_a_store_option_that_is_none(command: str, setting: str, code: str) -> None:
    assert f"[{code}]" in reported(run(command, ROOT, "--set", setting), 2)


@pytest.mark.parametrize("what", ["commitlog", "consumequeue", "indexfile", ""])
def test_a_kind_that_kafka_has_not(what: str) -> None:
    line = reported(run("dump", ROOT, "--what", what or "nonsense"), 2)
    assert "choose one of records, batches, index" in line


@pytest.mark.parametrize("command", OFFLINE)
def test_nothing_there(command: str, tmp_path: Path) -> None:
    line = reported(run(command, tmp_path / "nowhere"), 3)
    assert f"{tmp_path / 'nowhere'} does not exist" in line
    assert line.endswith("[io-failure]")


def zookeeper_like(root: Path) -> Path:
    """Create folders of another server's data."""
    (root / "version-2").mkdir(parents=True)
    (root / "version-2/log.1").write_bytes(b"ZKLG" + bytes(100))
    (root / "myid").write_text("1")
    return root


@pytest.mark.parametrize("command", OFFLINE)
def test_a_directory_of_something_else(command: str, tmp_path: Path) -> None:
    line = reported(run(command, zookeeper_like(tmp_path / "store")), 2)
    assert line.endswith("[unsupported-format]")
    assert str(tmp_path / "store") in line


@pytest.mark.parametrize("command", OFFLINE)
def test_an_empty_directory_and_a_strange_file(command: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    for name in ("notes.txt", "empty"):
        assert reported(run(command, tmp_path / name), 2).endswith("[unsupported-format]")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_directory_that_may_not_be_read(tmp_path: Path) -> None:
    root = stores.copy_store(ROOT, tmp_path / "data")
    root.chmod(0)
    try:
        assert reported(run("inspect", root), 3).endswith("[io-failure]")
    finally:
        root.chmod(0o700)


def test_a_link_in_place_of_a_log_is_followed(tmp_path: Path) -> None:
    root = stores.copy_store(ROOT, tmp_path / "data")
    log = root / "keyed-0/00000000000000000000.log"
    whole = run("dump", root).out
    log.rename(tmp_path / "elsewhere.log")
    log.symlink_to(tmp_path / "elsewhere.log")
    ended = run("dump", root)
    assert (ended.code, ended.out) == (0, whole)
    ended = run("verify", root)
    assert [(row["code"], row["path"]) for row in ended.rows] == [("symbolic-link", str(log))]
    assert ended.code == 0


def test_errors_as_json() -> None:
    ended = run("dump", ROOT, "--topic", "nope", "--output", "json")
    assert (ended.code, ended.out) == (2, b"")
    assert json.loads(ended.err) == {
        "error": "topic 'nope' does not exist",
        "code": "unknown-topic",
        "topic": "nope",
    }


def test_a_bug_is_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Any:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr("logserver.cli.options.open_inspector", broken)
    line = reported(run("inspect", ROOT), 3)
    assert line == "error: ZeroDivisionError: by zero [internal-error]: this is a bug"


def test_an_interrupt_is_no_failure_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("logserver.cli.options.open_inspector", interrupted)
    ended = run("inspect", ROOT)
    assert (ended.code, ended.out, ended.err) == (130, b"", "interrupted\n")


def test_paths_may_be_relative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "keyed-1")
    assert run("offsets", ".").document["latest"] == 542
    assert run("offsets", "00000000000000000000.log").document["topic"] == "keyed"
    assert len(run("offsets", "..").rows) == 3
    assert run("inspect", "../keyed-2").document["topics"][0]["partitions"][0]["latest"] == 449


# ---- config show ----------------------------------------------------------------------------------


def test_settings_and_their_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toml = tmp_path / "logserver.toml"
    toml.write_text('flush = "async"\nopen_files = 99\n')
    monkeypatch.setenv("LOGSERVER_OPEN_FILES", "77")
    options = ["--config", toml, "--listen", "127.0.0.1:0", "--set", "segment.ms=5"]
    ended = run("config", "show", *options)
    assert ended.code == 0
    rows = {row["name"]: row for row in ended.document["settings"]}
    assert rows.keys() == SETTINGS.keys()
    seen = {name: (row["value"], row["source"]) for name, row in rows.items()}
    assert seen["listen"] == ("127.0.0.1:0", "flag")
    assert seen["open_files"] == (77, "environment")
    assert seen["flush"] == ("async", "file")
    assert seen["read_only"] == (False, "default")
    assert seen["set"] == ({"segment.ms": "5"}, "flag")
    assert isinstance(ended.document["compiled"], bool)


def test_settings_for_a_person() -> None:
    lines = run("config", "show", "--output", "table").out.decode().splitlines()
    assert [line.split()[0] for line in lines[:-1]] == list(SETTINGS)
    assert lines[-1].startswith("codecs run ")


def listens(*options: object) -> tuple[str, str]:
    """Return the address to listen on, and its source."""
    rows = run("config", "show", *options).document["settings"]
    (row,) = [row for row in rows if row["name"] == "listen"]
    return row["value"], row["source"]


def test_a_port_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert listens("--port", 0) == ("127.0.0.1:0", "flag")
    toml = tmp_path / "logserver.toml"
    toml.write_text('listen = "[::1]:1234"')
    assert listens("--config", toml, "--port", 99) == ("[::1]:99", "flag")
    monkeypatch.setenv("LOGSERVER_PORT", "tcp://10.0.0.1:8082")  # Kubernetes sets such names
    assert listens() == ("127.0.0.1:8082", "default")
    for options in (["--port", 99, "--listen", "127.0.0.1:98"], ["--port", 65536]):
        ended = run("config", "show", *options)
        assert (ended.code, ended.out) == (2, b"")
    monkeypatch.setenv("LOGSERVER_LISTEN", "0.0.0.0:1")
    assert "without any access control" in reported(run("serve", "--port", 99), 2)


def test_a_file_of_settings_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_bytes(b'flush = "\xff"')
    line = reported(run("config", "show", "--config", tmp_path / "wrong.toml"), 2)
    assert "wrong.toml: is not UTF-8: wrong byte at 9" in line


def test_a_bad_setting() -> None:
    line = reported(run("config", "show", "--flush", "never"), 2)
    assert line.endswith("[settings-error]")


# ---- the composition root -------------------------------------------------------------------------


def test_the_commands_are_loaded_when_they_are_used() -> None:
    assert isinstance(group(), LazyGroup)


def test_serve_gets_the_server_from_above(tmp_path: Path) -> None:
    """A wrong setting ends `serve` before any file is opened; exit codes are the same as for other commands."""
    ended = run("serve", "--data", tmp_path / "data", "--flush", "never")
    assert ended.code == 2
    assert not (tmp_path / "data").exists()
