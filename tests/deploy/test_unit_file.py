"""The unit is true: its command, run here under a service manager, serves, reloads tokens and stops as it says."""

from __future__ import annotations

import shlex
import signal
import time
from pathlib import Path

import pytest

from logserver.config import PREFIX, SETTINGS
from logserver.service_manager import START_EXTENSION_S
from tests.deploy.files import UNIT, VOLUME, Machine
from tests.deploy.manager import managing

TOKENS = ("0123456789abcdef", "fedcba9876543210")
PATIENCE_S = 30.0


def settings() -> dict[str, list[str]]:
    """Return the settings of the unit by name."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def command() -> list[str]:
    """Return the unit's command, with the program of the test's machine."""
    (line,) = settings()["ExecStart"]
    program, *words = shlex.split(line)
    assert Path(program).name == "logserver"
    return ["logserver", *words]


def variables(machine: Machine, address: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": address, "LOGSERVER_LISTEN": machine.address}


@pytest.fixture
def address(machine: Machine) -> str:
    """The address of the service manager."""
    return str(machine.folder / "notify")


def test_it_is_ready_when_it_serves_and_stops_cleanly(machine: Machine, address: str) -> None:
    assert settings()["Type"] == ["notify"]
    with managing(address) as manager:
        server = machine.start(command(), variables(machine, address))
        ready = manager.until("READY")[-1]
        assert ready["STATUS"].endswith(f"{machine.volume}/data at {machine.url}")
        assert machine.status("/readyz") == 200
        assert machine.end(server)[0] == 0
        assert "STOPPING" in manager.next()


def test_the_command_writes_in_the_folder_that_the_unit_allows() -> None:
    assert settings()["ProtectSystem"] == ["strict"]
    assert settings()["StateDirectory"] == [Path(VOLUME).name]
    data = command()[command().index("--data") + 1]
    assert Path(data).parent == Path(VOLUME), "the store is inside: copies are written next to it"


def test_a_reload_reads_the_tokens_again(machine: Machine, address: str) -> None:
    assert settings()["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    tokens = machine.folder / "tokens"
    tokens.write_text(f"{TOKENS[0]} admin\n")
    tokens.chmod(0o640)
    given = {**variables(machine, address), "LOGSERVER_TOKEN_FILE": str(tokens)}
    with managing(address) as manager:
        server = machine.start(command(), given)
        manager.until("READY")
    topics = ["logserver", "topic", "list", "--token-file", str(machine.folder / "mine")]
    (machine.folder / "mine").write_text(TOKENS[1])
    client = {"LOGSERVER_URL": machine.url}
    assert machine.run(topics, client).returncode == 2
    tokens.write_text(f"{TOKENS[1]} admin\n")
    server.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + PATIENCE_S
    while machine.run(topics, client).returncode:
        assert time.monotonic() < deadline, "the tokens are not read again"


def test_a_reload_without_tokens_does_not_end_the_server(machine: Machine, address: str) -> None:
    with managing(address) as manager:
        server = machine.start(command(), variables(machine, address))
        manager.until("READY")
        server.send_signal(signal.SIGHUP)
        code, errors = machine.end(server)
    assert code == 0
    assert "SIGHUP: the token file is not set" in errors
    assert "SIGHUP: the certificate is not set" in errors


@pytest.mark.parametrize(
    ("name", "value"), [("LOGSERVER_FLUSH", "never"), ("LOGSERVER_LISTEN", "0.0.0.0:1")]
)
def test_a_wrong_setting_is_not_tried_again(machine: Machine, name: str, value: str) -> None:
    code = machine.run(command(), {name: value}).returncode
    assert str(code) in settings()["RestartPreventExitStatus"][0].split()


def test_a_damaged_store_is_not_tried_again(machine: Machine, repo_root: Path) -> None:
    golden = repo_root / "tests/golden/kafka/torn/flip-active/data"
    data = machine.volume / "data"
    data.mkdir()
    for path in golden.rglob("*"):
        target = data / path.relative_to(golden)
        if path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    ended = machine.run([*command(), "--write"], {"LOGSERVER_LISTEN": machine.address})
    assert str(ended.returncode) in settings()["RestartPreventExitStatus"][0].split(), ended.stderr


def test_the_time_of_a_start_is_not_longer_than_its_extension() -> None:
    """A later report than that would come after the end of the start."""
    assert int(settings()["TimeoutStartSec"][0]) >= START_EXTENSION_S


def test_the_variables_in_its_comments_are_settings() -> None:
    names = [word.partition("=")[0] for word in UNIT.read_text().split() if word.startswith(PREFIX)]
    assert len(names) >= 2
    assert [name for name in names if name.removeprefix(PREFIX).lower() not in SETTINGS] == []
