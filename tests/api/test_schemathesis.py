"""Good and bad requests generated from the server's own OpenAPI document: schemathesis finds no answer that the
document does not describe, and no 5xx.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.api.harness import ONE_PARTITION, Api, opener, serving, settings
from tests.api.test_openapi import prepared

EXAMPLES_PER_OPERATION = 20
CONFIG = Path(__file__).with_name("schemathesis.toml")
TIME_LIMIT_S = 850  # pytest ends a hanging test after 900 s; a slow machine takes minutes


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "topics"), [("kafka", "any"), ("rocketmq", "one")])
async def test_no_request_finds_a_fault(tmp_path: Path, backend: str, topics: str) -> None:
    """No generated request finds a fault. `any`: topic names are generated too; `one`: all requests use one topic."""
    chosen = settings(tmp_path / "store", set=ONE_PARTITION.get(backend, {}))
    async with serving(chosen, opener(backend, chosen)) as api:
        config = tmp_path / "schemathesis.toml"
        config.write_text(await configuration(api, topics), encoding="utf-8")
        status, told = await schemathesis(api, config)
        metrics = (await api.get("/metrics")).body.decode()
    assert status == 0, told
    assert 'status="5' not in metrics, told


async def configuration(api: Api, topics: str) -> str:
    """Return the options, with path parameters of existing objects if `topics` is `one`."""
    message_id = await prepared(api, "/groups")
    common = CONFIG.read_text(encoding="utf-8")
    if topics == "any":
        return common
    fixed = {"topic": '"orders"', "partition": "0", "message_id": f'"{message_id}"'}
    lines = [f'"path.{name}" = {value}' for name, value in fixed.items()]
    return "\n".join([common, "[parameters]", *lines])


async def schemathesis(api: Api, config: Path) -> tuple[int, str]:
    """Run schemathesis against the server; return its exit status and output."""
    command = (
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config)),
        *("run", f"{api.url}/openapi.json", "--checks", "all", "--no-color"),
        *("--phases", "examples,coverage,fuzzing", "--max-examples", str(EXAMPLES_PER_OPERATION)),
        *("--generation-deterministic",),
    )
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=config.parent,
        env={**os.environ, "PYTHONPATH": str(CONFIG.parents[2])},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(TIME_LIMIT_S):
        told, _ = await process.communicate()
    return process.returncode or 0, told.decode()
