"""The manifest is true: its command, variables, probes and secret fit the image and a server."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from api.server import Server
from logserver.access.tokens import Scope, load_tokens
from logserver.config import PREFIX, SETTINGS
from logserver.service.service import LogService
from storage import LogStore, Progress
from tests.deploy.files import KUBERNETES, PORT, VOLUME, Machine, documents, image_config
from tests.http.harness import opener, settings

PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
TOKENS = ("0123456789abcdef", "fedcba9876543210")


def resource(kind: str) -> Any:
    (found,) = [document for document in documents(KUBERNETES) if document["kind"] == kind]
    return found


def pod() -> Any:
    return resource("StatefulSet")["spec"]["template"]["spec"]


def container() -> Any:
    (one,) = pod()["containers"]
    return one


def variables() -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container()["env"]}


def test_names_and_ports_fit_each_other() -> None:
    service, stateful = resource("Service"), resource("StatefulSet")
    assert stateful["spec"]["serviceName"] == service["metadata"]["name"]
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == stateful["spec"]["selector"]["matchLabels"] == labels
    (port,) = container()["ports"]
    assert port == {"name": "http", "containerPort": PORT}
    assert service["spec"]["ports"] == [{"name": "http", "port": PORT, "targetPort": "http"}]
    assert {container()[probe]["httpGet"]["port"] for probe in PROBES} == {"http"}


def test_volumes_user_and_secret_fit_the_image() -> None:
    config = image_config()
    mounts = {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]}
    assert mounts["store"] == config.volume == VOLUME
    assert Path(variables()["LOGSERVER_TOKEN_FILE"]).parent == Path(mounts["tokens"])
    security = pod()["securityContext"]
    assert security["runAsNonRoot"] is True
    assert f"{security['runAsUser']}:{security['runAsGroup']}" == config.user
    assert security["fsGroup"] == security["runAsGroup"]
    assert container()["securityContext"]["readOnlyRootFilesystem"] is True
    assert config.command == ["logserver", *container()["args"]]


def test_the_variables_are_settings() -> None:
    assert {name.removeprefix(PREFIX).lower() for name in variables()} <= SETTINGS.keys()


def secret_mount(folder: Path, token: str) -> Path:
    """Return the file `tokens` of a secret, laid out and with the mode as the kubelet does it."""
    (secret,) = [volume["secret"] for volume in pod()["volumes"] if volume["name"] == "tokens"]
    version = folder / f"..{token}"
    version.mkdir(parents=True)
    (version / "tokens").write_text(f"{token} read\n")
    (version / "tokens").chmod(secret["defaultMode"])
    (folder / "..new").symlink_to(version.name)
    (folder / "..new").rename(folder / "..data")
    path = folder / "tokens"
    if not path.is_symlink():
        path.symlink_to("..data/tokens")
    return path


def test_the_secret_is_accepted_and_can_be_replaced(tmp_path: Path) -> None:
    for token in TOKENS:
        path = secret_mount(tmp_path / "mount", token)
        assert path.stat().st_mode & 0o777 == 0o440
        assert load_tokens(path).scopes_of(token.encode()) == frozenset({Scope.READ})


def test_the_pod_serves_with_its_secret(machine: Machine) -> None:
    """The variables that Kubernetes may add for a service of this name change nothing."""
    path = secret_mount(machine.folder / "mount", TOKENS[0])
    links = {
        "LOGSERVER_SERVICE_HOST": "10.0.0.1",
        "LOGSERVER_SERVICE_PORT": str(PORT),
        "LOGSERVER_PORT_8082_TCP": f"tcp://10.0.0.1:{PORT}",
    }
    given = {**variables(), "LOGSERVER_TOKEN_FILE": str(path)}
    config = image_config()
    server = machine.start(config.command, {**config.environment, **links, **given})
    machine.wait_until_ready(server)
    assert machine.status("/topics") == 401


async def statuses(server: Server) -> dict[str, int]:
    """Return the status of the answer to each probe."""
    parts = server.url.removeprefix("http://").rsplit(":", 1)
    found = {}
    for probe in PROBES:
        reader, writer = await asyncio.open_connection(parts[0], int(parts[1]))
        path = container()[probe]["httpGet"]["path"]
        writer.write(f"GET {path} HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n".encode())
        found[probe] = int((await reader.read()).split()[1])
        writer.close()
        await writer.wait_closed()
    return found


async def test_a_recovery_delays_the_readiness_only(tmp_path: Path) -> None:
    go_on = threading.Event()
    chosen = settings(tmp_path / "data")
    usual = opener("kafka", chosen)

    def slow(progress: Progress) -> LogStore:
        progress("examining partitions", 1, 2)
        assert go_on.wait(30)
        return usual(progress)

    server = Server(LogService(chosen, slow))
    await server.listen()
    opening = asyncio.create_task(server.service.start())
    try:
        assert await statuses(server) == dict(zip(PROBES, (200, 200, 503), strict=True))
        go_on.set()
        await opening
        assert await statuses(server) == dict.fromkeys(PROBES, 200)
    finally:
        go_on.set()
        await server.stop()
