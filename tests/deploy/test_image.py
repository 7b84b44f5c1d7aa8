"""The Dockerfile is true: its sources are a whole wheel, and its commands, run here, do what a container needs."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from logserver.config import PREFIX, SETTINGS
from scripts.check_wheel import expected_files
from tests.deploy.files import PORT, VOLUME, Machine, image_config, instructions
from tests.sources import ROOT

TOKEN = "0123456789abcdef"
INSECURE = {"LOGSERVER_INSECURE": "true"}
CLIENT_VARIABLES = {"LOGSERVER_URL"}

# Reports every file that Python opens for writing, and every folder that it makes.
AUDITED = """
import os, runpy, sys

def note(event, arguments):
    if event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR) or event == "os.mkdir":
        print("wrote", arguments[0], file=sys.__stderr__)

sys.addaudithook(note)
sys.argv = ["logserver", "serve"]
runpy.run_module("logserver", run_name="__main__", alter_sys=True)
"""


def copied() -> list[tuple[str, str]]:
    """Return source and target of what the first stage copies from the build context."""
    pairs = []
    for name, text in instructions():
        if name == "COPY" and not text.startswith("--from"):
            *sources, target = text.split()
            pairs += [(source, target) for source in sources]
    return pairs


def context_files() -> list[Path]:
    """Return the files of the build context: those that .dockerignore leaves."""
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    assert next(rule for rule in rules if not rule.startswith("#")) == "*"
    allowed = [rule[1:] for rule in rules if rule.startswith("!")]
    refused = [rule.removeprefix("**/") for rule in rules if rule.startswith("**/")]
    found: list[Path] = []
    for name in allowed:
        path = ROOT / name
        assert path.exists(), f".dockerignore names {name}, which does not exist"
        found += [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    parts = [(path, path.relative_to(ROOT).parts) for path in found]
    return [p for p, names in parts if not any(fnmatch.filter(names, rule) for rule in refused)]


def test_the_build_context_holds_what_is_copied_and_nothing_else() -> None:
    context = {path.relative_to(ROOT).parts[0] for path in context_files()}
    assert context == {source for source, _ in copied()}
    assert not [path for path in context_files() if path.suffix in {".so", ".pyc"}]


@pytest.mark.slow
def test_the_copied_sources_build_a_whole_wheel(tmp_path: Path) -> None:
    """The wheel's own command, on a copy of what the Dockerfile copies; not compiled, which the image does."""
    for path in context_files():
        target = tmp_path / "src" / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    (run,) = [text for name, text in instructions() if name == "RUN" and "pip wheel" in text]
    command, _, rest = run.partition("&&")
    assert "--no-build-isolation --wheel-dir /dist ." in command
    built = re.search(r"\$\(echo /dist/(\S+)\)", rest)
    words = command.replace("/dist", str(tmp_path / "dist")).split()
    subprocess.run(
        [sys.executable, "-P", "-m", *words],
        cwd=tmp_path / "src",
        env={**os.environ, "LOGSERVER_PURE": "1"},
        check=True,
    )
    assert built
    (wheel,) = (tmp_path / "dist").glob(built[1])
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == expected_files()


def test_the_variables_are_settings() -> None:
    names = {name for name in image_config().environment if name.startswith(PREFIX)}
    settings = {PREFIX + name.upper() for name in SETTINGS}
    assert names - CLIENT_VARIABLES <= settings
    assert names >= CLIENT_VARIABLES


def test_user_volume_and_port() -> None:
    config = image_config()
    assert config.user == "10001:10001"
    assert (config.volume, config.port) == (VOLUME, PORT)
    data, listen = (config.environment[f"LOGSERVER_{name}"] for name in ("DATA", "LISTEN"))
    assert Path(data).parent == Path(VOLUME), "the store is inside: copies are written next to it"
    assert listen == f"0.0.0.0:{PORT}"


def test_without_tokens_it_does_not_listen_to_the_network(machine: Machine) -> None:
    """The refusal names the two settings that the comment in the Dockerfile names."""
    config = image_config()
    variables = {**config.environment, "LOGSERVER_DATA": str(machine.volume / "data")}
    environment = machine.environment({**variables, "LOGSERVER_LISTEN": ""})
    environment["LOGSERVER_LISTEN"] = config.environment["LOGSERVER_LISTEN"]
    command = [str(machine.programs / config.command[0]), *config.command[1:]]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "token_file" in ended.stderr
    assert "insecure" in ended.stderr
    assert list(machine.volume.iterdir()) == []


def test_a_container_serves_and_is_healthy(machine: Machine) -> None:
    config = image_config()
    assert machine.run(config.health, config.environment).returncode != 0
    server = machine.start(config.command, config.environment | INSECURE)
    machine.wait_until_ready(server)
    assert machine.run(config.health, config.environment).returncode == 0
    assert [path.name for path in machine.volume.iterdir()] == ["data"]
    assert machine.end(server)[0] == 0
    assert (machine.volume / "data" / ".kafka_cleanshutdown").exists()


def test_a_container_with_tokens_is_healthy_too(machine: Machine) -> None:
    tokens = machine.folder / "tokens"
    tokens.write_text(f"{TOKEN} admin\n")
    tokens.chmod(0o440)
    config = image_config()
    server = machine.start(
        config.command, {**config.environment, "LOGSERVER_TOKEN_FILE": str(tokens)}
    )
    machine.wait_until_ready(server)
    assert machine.run(config.health, config.environment).returncode == 0
    assert machine.status("/topics") == 401


def test_an_ephemeral_container_leaves_the_volume_empty(machine: Machine) -> None:
    config = image_config()
    ephemeral = config.environment | INSECURE | {"LOGSERVER_EPHEMERAL": "true"}
    machine.wait_until_ready(machine.start(config.command, ephemeral))
    assert list(machine.volume.iterdir()) == []


@pytest.mark.parametrize("backend", ["kafka", "rocketmq"])
def test_a_read_only_root_is_enough(machine: Machine, backend: str) -> None:
    """A server writes in its volume only: no temporary files, no bytecode."""
    config = image_config()
    variables = config.environment | INSECURE | {"LOGSERVER_BACKEND": backend}
    server = machine.start(["python", "-P", "-c", AUDITED], variables)
    machine.wait_until_ready(server)
    created = machine.run(["logserver", "topic", "create", "orders"], config.environment)
    assert created.returncode == 0, created.stderr
    code, errors = machine.end(server)
    written = [line[6:] for line in errors.splitlines() if line.startswith("wrote ")]
    assert code == 0
    assert any(path.startswith(str(machine.volume)) for path in written), errors
    assert [path for path in written if not path.startswith(str(machine.volume))] == []
