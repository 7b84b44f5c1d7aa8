"""`logserver help` and `logserver completion`: the texts on topics, and the completion of shells."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete

from logserver import LogServer
from logserver.__main__ import group
from logserver.cli import COMMANDS
from logserver.cli.completion import FILES, VARIABLE
from logserver.cli.failures import EXIT_CODES
from logserver.cli.help import OMITTED, pages
from logserver.cli.online import options
from tests.cli.runner import command_line, fine, run

DOCS = Path(__file__).parents[2] / "docs"

_TERMS = {
    "segment": "kafka-directory",
    "consume queue": "rocketmq-queue",
    "record batch": "kafka-record-batch",
    "SCRAM": "security",
}


def complete(*words: str) -> list[str]:
    """Return the completions of the last word."""
    completion = BashComplete(group(), {}, "logserver", VARIABLE)
    return [item.value for item in completion.get_completions(list(words[:-1]), words[-1])]


# ---- help -----------------------------------------------------------------------------------------


def test_the_topics() -> None:
    lines = fine("help").out.decode().splitlines()
    topics = {line.split()[0] for line in lines if line.startswith("  ")}
    assert {"formats", "findings", "settings", "errors", "exit-codes", "kcat"} <= topics
    assert {path.stem for path in DOCS.glob("*.md")} - OMITTED <= topics


@pytest.mark.parametrize("topic", pages())
def test_a_topic_shows_its_page(topic: str) -> None:
    text = pages()[topic].read_text("utf-8")
    assert fine("help", topic).out.decode() == text.rstrip("\n") + "\n"


def test_exit_codes() -> None:
    lines = fine("help", "exit", "codes").out.decode().splitlines()
    assert [int(line.split()[0]) for line in lines] == list(EXIT_CODES)


@pytest.mark.parametrize("words", [["consume"], ["topic", "create"], ["explain"]])
def test_the_help_of_a_command(words: list[str]) -> None:
    assert fine("help", *words).out == fine(*words, "--help").out


def test_the_lists_of_commands_are_not_cut() -> None:
    root = group()
    ctx = click.Context(root, info_name="logserver")
    for name in COMMANDS:
        command = root.get_command(ctx, name)
        if isinstance(command, click.Group):
            shown = fine(name, "--help").out.decode().partition("Commands:")[2]
            assert [line for line in shown.splitlines() if line.endswith("...")] == [], name


def test_what_is_unknown_has_suggestions() -> None:
    ended = run("help", "setings")
    assert (ended.code, ended.out) == (2, b"")
    assert "similar: settings" in " ".join(ended.err.split())


def test_a_word_of_the_pages_leads_to_them() -> None:
    said = {word: " ".join(run("help", *word.split()).err.split()) for word in _TERMS}
    for word, page in _TERMS.items():
        assert page in said[word].partition("pages with these words: ")[2]
    assert "pages with" not in " ".join(run("help", "zzyzx").err.split())


# ---- completion -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", FILES)
def test_the_script_of_a_shell_says_how_to_install_it(shell: str) -> None:
    text = fine("completion", shell).out.decode()
    assert f"logserver completion {shell} > {FILES[shell]}" in text
    assert f"_LOGSERVER_COMPLETE={shell}_complete" in text
    assert text.startswith("#compdef logserver\n") == (shell == "zsh")
    assert text.count("#compdef") == (shell == "zsh")
    program = shutil.which(shell)
    if program is not None:
        checked = subprocess.run([program, "-n"], input=text, text=True, check=False, timeout=60)
        assert checked.returncode == 0


def test_commands_and_options_are_completed() -> None:
    assert complete("con") == ["consume", "convert", "config"]
    assert complete("") == list(COMMANDS)
    assert complete("topic", "c") == ["create"]
    assert "--server" in complete("consume", "--s")


def test_arguments_are_completed() -> None:
    assert complete("help", "kc") == ["kcat"]
    assert {"cli", "config", "consume", "conversion"} < set(complete("help", "c"))
    assert complete("help", "topic", "c") == ["create"]
    assert complete("help", "settings", "") == []
    assert complete("explain", "torn-t") == ["torn-tail"]
    assert complete("serve", "--flush", "") == ["sync", "async", "os"]
    assert complete("serve", "--log-format", "j") == ["json"]
    assert complete("serve", "--backend", "") == ["kafka", "rocketmq"]
    assert complete("serve", "--listen", "") == []


@pytest.mark.parametrize(
    "words",
    [
        *([command] for command in ("inspect", "dump", "verify", "rebuild", "salvage", "convert")),
        *([command] for command in ("serve", "find", "offsets")),
        *(["serve", option] for option in ("--data", "--config", "--token-file", "--tls-key")),
    ],
    ids=" ".join,
)
def test_names_of_files_are_left_to_the_shell(words: list[str]) -> None:
    completion = BashComplete(group(), {}, "logserver", VARIABLE)
    (item,) = completion.get_completions(words, "de")
    assert (item.type, item.value) == ("file", "de")


def test_fish_shows_descriptions_to_their_end(tmp_path: Path) -> None:
    """The script of click cuts them at a comma."""
    text = fine("completion", "fish").out.decode()
    assert 'string split --max 1 "," $completion' in text
    fish = shutil.which("fish")
    if fish is None:
        return
    program = tmp_path / "logserver"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command_line())} "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        [fish, "--no-config", "-c", f'{text}\ncomplete -C "logserver compa"'],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"compare\t{COMMANDS['compare'].about}\n"


def test_the_script_is_answered() -> None:
    """As the script for bash asks: by variables of the environment."""
    asked = {VARIABLE: "bash_complete", "COMP_WORDS": "logserver sal", "COMP_CWORD": "1"}
    done = subprocess.run(
        command_line(), env={**os.environ, **asked}, capture_output=True, check=True
    )
    assert done.stdout == b"plain,salvage\n"


def test_topics_are_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "COMPLETION_S", 60.0)  # a busy machine is no error
    with LogServer(backend="memory") as server:
        monkeypatch.setenv("LOGSERVER_URL", server.url)
        for name in ("orders", "other", "letters"):
            fine("topic", "create", name)
        assert complete("consume", "-t", "o") == ["orders", "other"]
        assert complete("topic", "show", "let") == ["letters"]
        assert complete("kcat", "-C", "-t", "") == ["letters", "orders", "other"]
        monkeypatch.setenv("LOGSERVER_URL", "http://127.0.0.1:1")
        assert complete("consume", "-t", "o") == []
        assert complete("consume", "--server", server.url, "-t", "le") == ["letters"]
