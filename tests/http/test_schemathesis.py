"""Good and bad requests generated from the server's own OpenAPI document: schemathesis finds no answer that the
document does not describe, and no 5xx.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.http.harness import ONE_PARTITION, Api, opener, serving, settings
from tests.http.test_openapi import prepared

EXAMPLES_PER_OPERATION = 20
SOAKED_EXAMPLES = 20_000
METHODS = ("get", "put", "post", "delete", "patch")
CONFIG = Path(__file__).with_name("schemathesis.toml")
TIME_LIMIT_S = 850  # pytest ends a hanging test after 900 s; a slow machine takes minutes
SOAK_LIMIT_S = 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "topics"), [("kafka", "any"), ("rocketmq", "one")])
async def test_no_request_finds_a_fault(
    tmp_path: Path,
    backend: str,
    topics: str,
    amount: Callable[[int, int], int],
    turn: Callable[[int], slice],
) -> None:
    """No generated request finds a fault. `any`: topic names are generated too; `one`: all requests use one topic.

    In CI an operation is tried on one of the backends, the next commit tries it on the other.
    """
    chosen = settings(tmp_path / "store", set=ONE_PARTITION.get(backend, {}))
    async with serving(chosen, opener(backend, chosen)) as api:
        config = tmp_path / "schemathesis.toml"
        config.write_text(await configuration(api, topics), encoding="utf-8")
        every = await operations(api)
        tried = every[turn(2)]
        if backend == "rocketmq":
            tried = [name for name in every if name not in tried] or every
        options = ["--max-examples", str(amount(EXAMPLES_PER_OPERATION, SOAKED_EXAMPLES))]
        options += [word for name in tried for word in ("--include-operation-id", name)]
        async with asyncio.timeout(amount(TIME_LIMIT_S, SOAK_LIMIT_S)):
            status, output = await schemathesis(api, config, *options)
        metrics = (await api.get("/metrics")).body.decode()
    assert status == 0, output
    assert f"Selected: {len(tried)}/" in output, output
    assert 'status="5' not in metrics, output


async def operations(api: Api) -> list[str]:
    """Return the ids of all operations."""
    paths = (await api.get("/openapi.json")).json["paths"].values()
    return [one["operationId"] for path in paths for name, one in path.items() if name in METHODS]


async def configuration(api: Api, topics: str) -> str:
    """Return the options, with path parameters of existing objects if `topics` is `one`."""
    message_id = await prepared(api, "/groups")
    common = CONFIG.read_text(encoding="utf-8")
    if topics == "any":
        return common
    fixed = {"topic": '"orders"', "partition": "0", "message_id": f'"{message_id}"'}
    lines = [f'"path.{name}" = {value}' for name, value in fixed.items()]
    return "\n".join([common, "[parameters]", *lines])


async def schemathesis(api: Api, config: Path, *options: str) -> tuple[int, str]:
    """Run schemathesis against the server; return its exit status and output."""
    command = (
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config)),
        *("run", f"{api.url}/openapi.json", "--checks", "all", "--no-color"),
        *("--phases", "examples,coverage,fuzzing", "--generation-deterministic", *options),
    )
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=config.parent,
        env={**os.environ, "PYTHONPATH": str(CONFIG.parents[2])},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()
