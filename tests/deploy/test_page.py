"""docs/deploy.md is true: the names in its commands exist, and its fixture works with the image of the Dockerfile."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import logserver
from logserver.cli import COMMANDS
from logserver.config import PREFIX, SETTINGS
from tests.deploy.files import (
    COMPOSE,
    KUBERNETES,
    PORT,
    UNIT,
    Machine,
    documents,
    image_config,
)
from tests.sources import ROOT

PAGE = (ROOT / "docs" / "deploy.md").read_text()
BLOCKS = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# A library with the names of Testcontainers that the fixture uses. It runs the image's command on this machine.
CONTAINER = """
from tests.deploy.files import Machine, image_config
import pathlib, tempfile

class DockerContainer:
    def __init__(self, image):
        self.image, self.environment, self.ports, self.strategy = image, {}, (), None
    def with_envs(self, **variables):
        self.environment.update(variables)
        return self
    def with_exposed_ports(self, *ports):
        self.ports = ports
        return self
    def waiting_for(self, strategy):
        self.strategy = strategy
        return self
    def __enter__(self):
        from logserver.bench.targets.tools import free_ports
        self.folder = tempfile.TemporaryDirectory()
        self.machine = Machine(pathlib.Path(self.folder.name), free_ports())
        config = image_config()
        assert config.port in self.ports
        server = self.machine.start(config.command, config.environment | self.environment)
        self.machine.wait_until_ready(server)
        assert self.machine.status(self.strategy.path) == 200
        return self
    def __exit__(self, *error):
        self.machine.stop()
        self.folder.cleanup()
    def get_container_host_ip(self):
        return "127.0.0.1"
    def get_exposed_port(self, port):
        assert port in self.ports
        return int(self.machine.address.rpartition(":")[2])
"""
STRATEGIES = """
class HttpWaitStrategy:
    def __init__(self, port, path):
        self.port, self.path = port, path
"""


def commands() -> Iterator[list[str]]:
    """Yield the words of each command of the page."""
    for kind, text in BLOCKS.findall(PAGE):
        if kind == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                yield shlex.split(line, comments=True)


def after(words: list[str], option: str) -> list[str]:
    """Return the values of an option."""
    return [value for name, value in itertools.pairwise(words) if name == option]


def test_every_block_is_known() -> None:
    assert {kind for kind, _ in BLOCKS.findall(PAGE)} == {"sh", "python"}
    programs = {words[1 if words[0] == "sudo" else 0] for words in commands()}
    tools = {"docker", "kubectl", "systemctl", "useradd", "install", "python3", "chgrp", "chmod"}
    assert programs - tools == {"/opt/logserver/bin/pip"}


def test_the_image_has_one_name() -> None:
    compose = {service["image"] for service in documents(COMPOSE)[0]["services"].values()}
    (image,) = compose
    texts = [path.read_text() for path in (ROOT / "docs" / "deploy").rglob("*.y*ml")]
    names = {name for text in (*texts, PAGE) for name in re.findall(r"duolog:[\w.]+", text)}
    assert names == {image}


def test_image_and_package_have_name_and_version_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    files = [COMPOSE, ROOT / "Dockerfile", *(ROOT / "docs" / "deploy").rglob("*.y*ml")]
    text = PAGE + "".join(path.read_text() for path in files)
    pinned = set(re.findall(r"\b([a-z]+)(?:==|:)(\d+\.\d+\.\d+)", text))
    assert pinned == {(project["name"], logserver.__version__)}
    extras = set(re.findall(rf"{project['name']}\[(\w+)\]", text))
    assert extras == {"re2"}
    assert extras <= project["optional-dependencies"].keys()
    installed = re.findall(r"pip install (?:--\w+ )*'?([a-z]+)", text)
    assert set(installed) == {project["name"]}


def test_runs_of_the_image_fit_it() -> None:
    config = image_config()
    runs = [words for words in commands() if words[:2] == ["docker", "run"]]
    assert len(runs) == 4
    for words in runs:
        for variable in after(words, "-e"):
            name = variable.partition("=")[0]
            assert name.removeprefix(PREFIX).lower() in SETTINGS, name
        for port in after(words, "-p"):
            assert port.endswith(f":{config.port}"), port
        places = [volume.split(":")[1] for volume in after(words, "-v")]
        data = config.environment["LOGSERVER_DATA"]
        assert set(places) <= {config.volume, data, "/etc/logserver/tokens"}
        image = next(at for at, word in enumerate(words) if word.startswith("duolog:"))
        assert [word in COMMANDS for word in words[image + 1 : image + 2]] in ([], [True])


def test_files_and_names_of_the_other_commands_exist() -> None:
    text = "\n".join(" ".join(words) for words in commands())
    assert re.findall(r"docs/deploy/\S+", text) == [
        f"docs/deploy/{UNIT.name}",
        f"docs/deploy/{KUBERNETES.name}",
    ]
    (stateful,) = [one for one in documents(KUBERNETES) if one["kind"] == "StatefulSet"]
    name = stateful["metadata"]["name"]
    assert f"statefulset/{name}" in text
    assert f"exec {name}-0 --" in text
    secrets = [one["secret"] for one in stateful["spec"]["template"]["spec"]["volumes"]]
    assert f"secret generic {secrets[0]['secretName']} " in text
    unit = UNIT.read_text()
    program = re.search(r"^ExecStart=(\S+)/bin/logserver", unit, re.MULTILINE)
    assert program
    assert f"python3 -m venv {program[1]}\n" in text
    assert "User=logserver\n" in unit
    (exec_in_compose,) = [
        words for words in commands() if words[:3] == ["docker", "compose", "exec"]
    ]
    assert exec_in_compose[3] in documents(COMPOSE)[0]["services"]
    assert exec_in_compose[5] in COMMANDS


def test_the_ports_in_the_text_are_the_image_s() -> None:
    assert set(re.findall(r"127\.0\.0\.1:(\d+)", PAGE)) == {str(PORT)}


def test_the_fixture_of_testcontainers(machine: Machine) -> None:
    """The shown program runs unchanged, with a library of the same names that needs no Docker."""
    (program,) = [text for kind, text in BLOCKS.findall(PAGE) if kind == "python"]
    library = machine.folder / "library" / "testcontainers" / "core"
    library.mkdir(parents=True)
    (library / "container.py").write_text(CONTAINER)
    (library / "wait_strategies.py").write_text(STRATEGIES)
    path = machine.folder / "test_shown.py"
    path.write_text(program)
    plugins = ("no:logserver", "no:cacheprovider", "no:randomly")
    ended = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "pytest",
            "-q",
            *(p for one in plugins for p in ("-p", one)),
            path,
        ],
        env={**os.environ, "PYTHONPATH": f"{machine.folder}/library:{ROOT}"},
        cwd=machine.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 passed" in ended.stdout
