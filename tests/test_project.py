"""The project describes itself correctly: error codes and findings in the docs, locks, version, names in tables."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import logserver
from api.http.errors import CODES, status_of
from logserver.cli import COMMANDS
from logserver.errors import CannotListen, ClientError, SettingsError, SparkFailed
from scripts.diff_fuzz_cases import WIRE
from storage.errors import StorageError
from storage.findings import catalogue, finding
from storage.kafka.format import names
from storage.kafka.state import settings as kafka
from storage.registry import BACKENDS, resolve
from storage.rocketmq.index.sizes import DEFAULTS
from storage.rocketmq.state import settings as rocketmq
from tests.sources import FOREIGN, PACKAGES, ROOT, import_all, modules, text_of, tree

LOCKS = ("requirements.lock", "requirements-test.lock")

FILE_NAMES = {value for value in vars(names).values() if isinstance(value, str)}


def error_classes() -> set[type[StorageError]]:
    """Return all classes of the error tree, including the errors of the service."""
    for package in PACKAGES:
        import_all(package)
    found: set[type[StorageError]] = set()
    waiting: list[type[StorageError]] = [StorageError]
    while waiting:
        error = waiting.pop()
        if error.__module__.split(".")[0] in PACKAGES:
            found.add(error)
        waiting += error.__subclasses__()
    return found


def table(page: str, heading: str = "") -> dict[str, list[str]]:
    """Map the first cell of the table rows after a heading to their other cells, for rows that begin with `code`."""
    rows = {}
    text = text_of(Path("docs") / page)
    for line in text[text.index(heading) :].splitlines():
        if line.startswith("| `"):
            name, *cells = (cell.strip() for cell in line.strip().strip("|").split("|"))
            rows[name.strip("`")] = cells
    return rows


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [error.code for error in error_classes()]
    assert sorted(codes) == sorted(set(codes))
    assert [code for code in codes if not re.fullmatch(r"[a-z]+(-[a-z]+)*", code)] == []
    assert [e.__name__ for e in error_classes() if "code" not in e.__dict__] == []


def test_every_error_is_documented() -> None:
    assert sorted(table("errors.md")) == sorted(error.code for error in error_classes())


def test_every_fact_of_an_error_is_documented() -> None:
    """A class names `Facts: path, pid (None when unknown).`; the page's row has the same names."""
    rows = table("errors.md")
    missing = [
        f"{error.code}: {name}"
        for error in error_classes()
        for name in _facts(error)
        if f"`{name}`" not in rows[error.code][1]
    ]
    assert missing == []


def _facts(error: type[StorageError]) -> list[str]:
    _, _, facts = (error.__doc__ or "").partition("Facts:")
    without_notes = re.sub(r"\([^)]*\)", "", facts.partition(".")[0])
    return re.findall(r"(?:^|,) *(?:and )?([a-z_]+)", without_notes.strip())


def test_the_page_has_the_codes_of_the_api() -> None:
    rows = table("errors.md")
    for error in error_classes() - {
        SettingsError,
        CannotListen,
        SparkFailed,
    }:  # these errors end a start or a job, not a request
        if issubclass(error, ClientError):
            continue  # created from answers, never sent as an answer
        code = CODES[error]
        assert rows[error.code][2:] == [str(status_of(code)), str(code)], error.code


def test_every_finding_is_documented() -> None:
    """In a module that creates findings, every literal of the form `some-words` is a code or a file name."""
    codes = {
        node.value
        for path in modules("storage")
        if re.search(r"\bfinding\(|import .*\bFinding\b|^ +Finding,", text_of(path), re.MULTILINE)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"[a-z]+(-[a-z]+)+", node.value)
    }
    assert codes - FILE_NAMES == table("findings.md").keys()


@pytest.mark.parametrize("script", ["cli_page", "findings_page"])
def test_generated_pages_are_current(script: str) -> None:
    subprocess.run([sys.executable, "-P", f"scripts/{script}", "--check"], check=True)


def test_a_finding_has_the_severity_and_the_meaning_of_its_code() -> None:
    assert finding("torn-tail", "a.log").severity == "warning"
    assert finding("torn-tail", "a.log").message == catalogue()["torn-tail"].meaning
    assert finding("zero-tail", "a.log", severity="warning", message="m").message == "m"
    with pytest.raises(ValueError, match="cannot be 'error'"):
        finding("torn-tail", "a.log", severity="error")
    with pytest.raises(KeyError):
        finding("no-such-code", "a.log")


def test_every_option_of_a_store_is_documented() -> None:
    known = [*kafka.STORE_SETTINGS, *kafka.TOPIC_CONFIGS]
    known += [*rocketmq.STORE_SETTINGS, *rocketmq.TOPIC_CONFIGS]
    assert sorted(table("settings.md", "## Store options")) == sorted(known)


def test_the_defaults_of_rocketmqs_options_are_documented() -> None:
    settings = {
        name: row[0].strip("`") for name, row in table("settings.md", "## Store options").items()
    }
    given = {name: settings[name] for name in rocketmq.STORE_SETTINGS if settings[name]}
    reported, default = rocketmq.parse_store_settings(given), rocketmq.parse_store_settings({})
    sizes = {name: getattr(DEFAULTS, name) for name in DEFAULTS.__struct_fields__}
    assert reported == dataclasses.replace(default, **sizes)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_can_be_imported(package: str) -> None:
    assert import_all(package)


def test_every_backend_of_the_registry_is_there() -> None:
    for backend in BACKENDS.values():
        doors = backend._replace(settings=None)
        assert [door for door in doors if door is not None and not callable(resolve(door))] == []
        assert backend.settings is None or all(resolve(backend.settings))


def test_every_command_of_the_table_is_there() -> None:
    commands = {name: resolve(lazy.target) for name, lazy in COMMANDS.items()}
    assert {name: command.name for name, command in commands.items()} == {n: n for n in COMMANDS}


def test_the_compiled_modules_are_there() -> None:
    compiled = assigned("setup.py", "COMPILED")
    assert compiled == sorted(set(compiled))
    assert [path for path in compiled if not (ROOT / path).is_file()] == []


def test_scripts_are_checked_as_modules_are() -> None:
    """Ruff and mypy find files by their suffix; the others are listed."""
    scripts = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "scripts").iterdir()
        if not path.suffix
        and path.is_file()
        and path.read_text().startswith("#!/usr/bin/env python3\n")
    }
    tools = tomllib.loads(text_of(Path("pyproject.toml")))["tool"]
    assert scripts == set(tools["ruff"]["extend-include"])
    assert scripts <= set(tools["mypy"]["files"])


def test_messages_that_can_be_compiled_are_compiled() -> None:
    folder = "api/kafka/protocol/messages"
    compiled = [path for path in assigned("setup.py", "COMPILED") if path.startswith(folder)]
    assert compiled == [f"{folder}/{name}.py" for name in assigned("scripts/kafka_messages", "HOT")]


def test_every_compiled_message_is_compared_with_the_interpreted_one() -> None:
    hot = [
        f"api.kafka.protocol.messages.{name}" for name in assigned("scripts/kafka_messages", "HOT")
    ]
    assert set(hot) <= {kind.__module__ for kind, *_ in WIRE}


def test_no_compiled_generator_holds_anything() -> None:
    """Compiled, a generator that is dropped before its end does not run its `finally`: a file would stay open."""
    holding = [
        f"{path}: {function.name}"
        for path in assigned("setup.py", "COMPILED")
        for function in ast.walk(tree(Path(path)))
        if isinstance(function, ast.FunctionDef)
        and "contextmanager" not in map(ast.unparse, function.decorator_list)
        and any(
            isinstance(inner, ast.Yield | ast.YieldFrom)
            for block in ast.walk(function)
            if isinstance(block, ast.With) or (isinstance(block, ast.Try) and block.finalbody)
            for inner in ast.walk(block)
        )
    ]
    assert holding == []


def assigned(module: str, name: str) -> Any:
    """Return the literal that a module assigns to a name."""
    for node in tree(Path(module)).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if ast.unparse(target) == name:
                return ast.literal_eval(node.value)
    raise AssertionError(f"{module} has no {name}")


def settings() -> dict[str, Any]:
    """Return the content of pyproject.toml."""
    return tomllib.loads(text_of(Path("pyproject.toml")))


def pins(lock: str) -> dict[str, str]:
    """Return the versions of a lock file by project name."""
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text_of(Path(lock)), re.MULTILINE))


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_hashes_everything_and_names_no_index(lock: str) -> None:
    blocks = re.split(r"^(?=[\w.-]+==)", text_of(Path(lock)), flags=re.MULTILINE)
    assert len(blocks) > 1
    assert [block for block in blocks[1:] if "--hash=sha256:" not in block] == []
    assert "://" not in "".join(blocks)
    assert {line.strip()[:14] for line in "".join(blocks[1:]).splitlines() if line[:1] == " "} == {
        "--hash=sha256:"
    }


def test_the_locks_agree_with_each_other_and_with_the_project() -> None:
    run, test = (pins(lock) for lock in LOCKS)
    assert run.items() <= test.items()
    build = settings()["build-system"]["requires"]
    assert settings()["dependency-groups"]["build"] == build
    assert _names([*settings()["project"]["dependencies"], *build]) <= run.keys()
    assert _names(settings()["project"]["optional-dependencies"]["dev"]) <= test.keys()


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in requirements}


def test_the_changelog_knows_this_version() -> None:
    text = text_of(Path("CHANGELOG.md"))
    assert "## [Unreleased]" in text or f"## [{logserver.__version__}]" in text


def test_no_file_names_a_machine_or_a_registry() -> None:
    hosts = ("py" + "pi.org", "python" + "hosted", "repo1?" + r"\.maven", "registry." + "npmjs")
    homes = ("/wo" + "rk/", "/ro" + "ot/", "/far" + "m/", r"\.\./sha" + "red")
    banned = re.compile("|".join((*hosts, *homes)))
    assert [str(path) for path in _texts() if banned.search(text_of(path))] == []


def _texts() -> list[Path]:
    """Return every text file of the project that is not generated by a tool."""
    found = []
    for folder, inner, files in os.walk(ROOT):
        here = Path(folder)
        inner[:] = [
            name
            for name in inner
            if here / name not in FOREIGN
            and name not in ("build", "data", "dist", "__pycache__")
            and (not name.startswith(".") or name == ".ci")
        ]
        found += [(here / name).relative_to(ROOT) for name in files if _is_text(here / name)]
    return found


def _is_text(path: Path) -> bool:
    if path.name.startswith("."):
        return path.name in {".gitignore", ".gitattributes"}
    return path.suffix in {".py", ".md", ".toml", ".lock", ".sh", ".yaml", ".yml", ".service", ""}
