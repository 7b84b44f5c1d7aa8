"""Servers without a store, as the ceiling of the others: `no-store` and `bare`.

Owns their place in a checkout: scripts/load_test serves them. They acknowledge records and store nothing, so counts of
stored records, lookups and restarts are not possible. Must not know what the servers are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from logserver.bench.http_load import HttpLoad, not_done
from logserver.bench.http_templates import our_shape
from logserver.bench.processes import running
from logserver.bench.result import NotDone, Repeat, TargetFacts
from logserver.bench.targets.base import Bench, Tell
from logserver.bench.wire import Address
from logserver.bench.workload import Workload
from logserver.errors import ServerNotStarted

NO_STORE, BARE = "no-store", "bare"
CEILINGS: Final = (NO_STORE, BARE)


def serve_command(scripts: Path, name: str) -> Sequence[str]:
    """Return the command of a server without a store. Raises ServerNotStarted if its script is missing."""
    script = scripts / "load_test"
    if not script.is_file():
        message = f"{name}: there is no {script}: --peers is tests/interop/peers of a checkout"
        raise ServerNotStarted(message, exit_code=None)
    return [str(script), "serve", f"--{name}"]


class Ceiling:
    """A server without a store."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.facts = TargetFacts(name=name, kind="http")
        self._bench = bench
        checkout = bench.peers.resolve().parent.parent.parent
        self._command = serve_command(checkout / "scripts", name)
        self._shape = msgspec.structs.replace(
            our_shape(), end_offset=None, key_lookup=None, time_lookup=None
        )

    def not_done(self, workload: Workload) -> list[NotDone]:
        """Return the fields of a workload that need a store."""
        missing = not_done(workload, self._shape)
        if workload.own.kill:
            missing.append(NotDone("logserver.kill", "there is no store to recover"))
        return missing

    def repeat(self, workload: Workload, number: int, tell: Tell) -> Repeat:
        """Run one repeat on a new server."""
        with running(self._command, self._bench.cores.servers) as server:
            load = HttpLoad(
                workload,
                self._shape,
                Address.of(server.url),
                runner=self._bench.runner,
                prefix=f"bench-{number}",
                pid=server.pid,
                tell=tell,
            )
            load.run()
        return Repeat(**load.values, errors=load.errors)

    def close(self) -> None:
        """Do nothing: each repeat has stopped its server."""
