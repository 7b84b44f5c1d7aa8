"""The compose file is true: its commands, run here, serve and produce."""

from __future__ import annotations

import re
import time
from typing import Any

from logserver.config import PREFIX, SETTINGS
from tests.deploy.files import COMPOSE, PORT, VOLUME, Machine, documents, image_config

PATIENCE_S = 60.0


def services() -> dict[str, Any]:
    (compose,) = documents(COMPOSE)
    found: dict[str, Any] = compose["services"]
    return found


def test_the_server_uses_the_image_as_it_is() -> None:
    server = services()["server"]
    config = image_config()
    assert server["ports"] == [f"127.0.0.1:{PORT}:{config.port}"]
    assert server["volumes"] == [f"store:{VOLUME}"]
    assert "test" not in server["healthcheck"], "the image has the only definition"
    assert {name.removeprefix(PREFIX).lower() for name in server["environment"]} <= SETTINGS.keys()


def test_the_producer_starts_when_the_server_is_healthy() -> None:
    producer = services()["producer"]
    assert producer["depends_on"] == {"server": {"condition": "service_healthy"}}
    assert producer["environment"]["LOGSERVER_URL"] == f"http://server:{PORT}"
    assert producer["image"] == services()["server"]["image"]


def test_every_service_is_confined() -> None:
    for service in services().values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_the_server_serves_what_the_producer_sends(machine: Machine) -> None:
    config = image_config()
    server, producer = services()["server"], services()["producer"]
    running = machine.start(config.command, config.environment | server["environment"])
    machine.wait_until_ready(running)
    (command,) = producer["command"]
    variables = config.environment | producer["environment"]
    machine.start([*producer["entrypoint"], command], variables)
    (topic,) = re.findall(r"-t (\w+)", command)
    consume = ["logserver", "consume", "-t", topic, "-c", "1", "-f", "%s\\n"]
    deadline = time.monotonic() + PATIENCE_S
    while machine.status(f"/topics/{topic}") != 200:
        assert time.monotonic() < deadline, "the producer sends nothing"
        time.sleep(0.1)
    produced = machine.run(consume, variables).stdout
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d\n", produced)
