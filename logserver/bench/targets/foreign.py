"""A server run by others, over HTTP, by the description of its calls.

Owns its topics, which are deleted after each repeat. Must not know its process: no processor time, no disk.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import Final

from logserver.bench.http_load import HttpLoad, not_done
from logserver.bench.http_templates import load_shape
from logserver.bench.result import NotDone, Repeat, TargetFacts
from logserver.bench.targets.base import Bench, Tell
from logserver.bench.wire import Address, call
from logserver.bench.workload import Workload
from logserver.errors import ClientError, ServerUnreachable

UNANSWERED: Final = (OSError, ClientError)


class ForeignServer:
    """An HTTP server, by the path of its description. Raises ServerUnreachable if no server answers there, and
    StrangeAnswer.
    """

    def __init__(self, bench: Bench, path: str) -> None:
        self._shape = load_shape(path)
        self._bench = bench
        self._address = Address.of(self._shape.url)
        self._prefix = f"bench-{secrets.token_hex(3)}"
        self.facts = TargetFacts(name=self._shape.name, kind="http", version=self._shape.version)
        try:
            call(self._address, "GET", "/")
        except OSError as error:
            message = f"{self._shape.name}: {self._shape.url}: {error}"
            raise ServerUnreachable(message, url=self._shape.url) from error

    def not_done(self, workload: Workload) -> list[NotDone]:
        """Return the fields that its description has no call for, and the fields that need its process."""
        missing = not_done(workload, self._shape)
        if workload.own.kill:
            missing.append(NotDone("logserver.kill", "its process is not ours"))
        return [*missing, NotDone("logserver.flush", "as it is set up")]

    def repeat(self, workload: Workload, number: int, tell: Tell) -> Repeat:
        """Run one repeat on new topics."""
        load = HttpLoad(
            workload,
            self._shape,
            self._address,
            runner=self._bench.runner,
            prefix=f"{self._prefix}-{workload.name}-{number}",
            tell=tell,
        )
        try:
            load.run()
        except BaseException:
            with suppress(*UNANSWERED):  # the first error says more
                load.topics.delete()
            raise
        try:
            load.topics.delete()
        except UNANSWERED as error:
            load.errors.append(f"its topics could not be deleted: {error}")
        return Repeat(**load.values, errors=load.errors)

    def close(self) -> None:
        """Do nothing: each repeat has deleted its topics."""
