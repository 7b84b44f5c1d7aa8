"""The files for GitHub and GitLab are true: their scripts, run here, start a server and use it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.files import ACTION, GITLAB, PORT, WORKFLOW, Machine, documents, image_config

EXPRESSION = re.compile(r"\$\{\{ inputs\.(\w+) \}\}")


def action() -> Any:
    (found,) = documents(ACTION)
    return found


def step(name: str) -> Any:
    (found,) = [one for one in action()["runs"]["steps"] if one["name"] == name]
    return found


def run_step(machine: Machine, name: str, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run a step of the action as a runner does, with a Python that has the package."""
    defaults = {name: text["default"] for name, text in action()["inputs"].items()}
    values = {**defaults, "port": machine.address.rpartition(":")[2], **inputs}
    files = ("GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_PATH")
    variables = {file: str(machine.folder / file) for file in files}
    variables["RUNNER_TEMP"] = str(machine.folder)
    for variable, text in step(name)["env"].items():
        variables[variable] = EXPRESSION.sub(lambda found: values[found[1]], text)
    return machine.run(["bash", "-eo", "pipefail", "-c", step(name)["run"]], variables)


@pytest.fixture
def installed(machine: Machine) -> Machine:
    """A machine on which the step `Install` has run: `logserver` is where it puts it."""
    target = machine.folder / "logserver" / "bin" / "logserver"
    target.parent.mkdir(parents=True)
    target.symlink_to(machine.programs / "logserver")
    return machine


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_the_action_installs_what_it_is_told(machine: Machine) -> None:
    """With a `python3` that only notes its arguments, and makes the environment's pip do the same."""
    program = machine.programs / "python3"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {machine.folder}/noted\nmkdir -p "$3/bin"\ncp "$0" "$3/bin/pip"\n'
    )
    program.chmod(0o755)
    assert run_step(machine, "Install", package="a b.whl").returncode == 0
    place = machine.folder / "logserver"
    assert read(machine.folder / "noted").splitlines() == [
        f"-m venv {place}",
        "install --quiet a b.whl",
    ]
    assert read(machine.folder / "GITHUB_PATH") == f"{place}/bin\n"


def test_the_action_starts_a_server_and_waits(installed: Machine) -> None:
    ended = run_step(installed, "Start", backend="rocketmq", options="--log-level debug")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert installed.status("/readyz") == 200
    log = installed.folder / "logserver.log"
    announced = json.loads(read(installed.folder / "logserver.out"))
    assert announced["kafka"].startswith("127.0.0.1:")
    assert read(installed.folder / "GITHUB_OUTPUT").splitlines() == [
        f"url={installed.url}",
        f"kafka={announced['kafka']}",
        f"log={log}",
    ]
    assert read(installed.folder / "GITHUB_ENV") == f"LOGSERVER_URL={installed.url}\n"
    assert "rocketmq store" in read(log)


def test_the_action_shows_why_a_server_does_not_start(installed: Machine) -> None:
    ended = run_step(installed, "Start", options="--flush never")
    assert ended.returncode == 1
    assert "::error::" in ended.stdout
    assert "flush" in ended.stdout.partition("not ready")[2]
    assert read(installed.folder / "GITHUB_ENV") == ""


def test_the_action_takes_no_other_server_for_its_own(installed: Machine) -> None:
    listen = {"LOGSERVER_LISTEN": installed.address}
    other = installed.start(["logserver", "serve", "--ephemeral"], listen)
    installed.wait_until_ready(other)
    ended = run_step(installed, "Start")
    assert ended.returncode == 1
    assert "in use" in ended.stdout


def test_the_files_of_the_log_are_named_where_a_job_fails() -> None:
    outputs = action()["outputs"]
    used = jobs()["with-the-action"]["steps"][-1]
    assert "steps.server.outputs.log" in used["env"]["LOG"]
    assert "log" in outputs
    (kept,) = gitlab("test-with-pip")["artifacts"]["paths"]
    assert any(f"2> {kept}" in line for line in gitlab("test-with-pip")["before_script"])


def test_the_action_gives_no_input_to_a_shell_as_code() -> None:
    scripts = [one["run"] for one in action()["runs"]["steps"]]
    assert [script for script in scripts if "${{" in script] == []
    used = {
        name for one in action()["runs"]["steps"] for name in EXPRESSION.findall(str(one["env"]))
    }
    assert used == action()["inputs"].keys()


def jobs() -> dict[str, Any]:
    (workflow,) = documents(WORKFLOW)
    found: dict[str, Any] = workflow["jobs"]
    return found


def test_the_workflow_uses_the_inputs_of_the_action() -> None:
    uses = [one for one in jobs()["with-the-action"]["steps"] if "with" in one]
    assert [one["with"].keys() <= action()["inputs"].keys() for one in uses] == [True]
    (service,) = jobs()["with-a-container"]["services"].values()
    assert service["ports"] == [f"{PORT}:{image_config().port}"]


def gitlab(name: str) -> Any:
    (found,) = documents(GITLAB)
    return found[name]


def used_in_container_jobs() -> list[tuple[str, dict[str, str], list[str]]]:
    """Return the place of each job with a container, the variables of its container, and its commands."""
    (on_github,) = jobs()["with-a-container"]["services"].values()
    commands = [one["run"] for one in jobs()["with-a-container"]["steps"] if "run" in one]
    (on_gitlab,) = gitlab("test-with-a-container")["services"]
    assert on_gitlab["name"] == on_github["image"]
    script = gitlab("test-with-a-container")["script"]
    return [
        ("github", on_github["env"], commands),
        ("gitlab", on_gitlab["variables"], script),
    ]


@pytest.mark.parametrize(
    ("where", "environment", "commands"),
    used_in_container_jobs(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_job_with_a_container(
    machine: Machine, where: str, environment: dict[str, str], commands: list[str]
) -> None:
    config = image_config()
    server = machine.start(config.command, config.environment | environment)
    machine.wait_until_ready(server)
    job = {"github": {}, "gitlab": gitlab("test-with-a-container")["variables"]}[where]
    for command in commands:
        ended = machine.run(["bash", "-ec", machine.local(command)], job)
        assert ended.returncode == 0, ended.stderr
    assert machine.status("/topics/orders") == 200


def test_a_job_of_gitlab_with_pip(machine: Machine) -> None:
    """The job's script with a pip that installs nothing."""
    (machine.programs / "pip").symlink_to("/bin/true")
    job = gitlab("test-with-pip")
    script = "\n".join([*job["before_script"], *job["script"]])
    given = {"LOGSERVER_LISTEN": machine.address, "LOGSERVER_URL": machine.url}
    ended = machine.run(["bash", "-eo", "pipefail", "-c", script], given)
    assert ended.returncode == 0, ended.stderr
    assert machine.status("/topics/orders") == 200


def test_a_job_of_gitlab_shows_why_a_server_does_not_start(machine: Machine) -> None:
    (machine.programs / "pip").symlink_to("/bin/true")
    job = gitlab("test-with-pip")
    script = "\n".join(job["before_script"]).replace("timeout 60", "timeout 3")
    given = {"LOGSERVER_LISTEN": machine.address, "LOGSERVER_FLUSH": "never"}
    ended = machine.run(["bash", "-eo", "pipefail", "-c", script], given)
    assert ended.returncode == 1
    assert "flush" in ended.stdout
