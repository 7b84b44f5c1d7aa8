"""Reports to the service manager that started this process: recovering, ready, stopping (sd_notify(3) of systemd).

Owns the datagrams and their socket; must not know the server. Without NOTIFY_SOCKET in the environment nothing is
sent. A report that cannot be sent is dropped: a server does not fail because of its manager.

    READY=1                   the server accepts requests
    STOPPING=1                the server is stopping
    STATUS=TEXT               the line that `systemctl status` shows
    EXTEND_TIMEOUT_USEC=N     the start is not timed out for so long
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Self, TypeAlias

from storage.display import one_line

Progress: TypeAlias = tuple[str, int, int]  # as the arguments of storage.Progress

ADDRESS_VARIABLE: Final = "NOTIFY_SOCKET"
SEND_TIMEOUT_S: Final = 1.0  # the manager reads at once; a blocked send stops the event loop
START_EXTENSION_S: Final = 120
"""How long a recovery may report the same progress before the manager may end the start."""


class ServiceManager:
    """The service manager at the address of a datagram socket; `@` begins an abstract address. None: no manager."""

    def __init__(self, address: str | None) -> None:
        self._address = f"\0{address[1:]}" if address and address[0] == "@" else address
        self._reported: Progress | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Return the manager named in the environment."""
        return cls(environment.get(ADDRESS_VARIABLE))

    @property
    def is_present(self) -> bool:
        """True if a manager waits for reports."""
        return bool(self._address)

    def recovering(self, progress: Progress) -> None:
        """Report the progress of a recovery. Extend the time of the start if there was any since the last report."""
        if progress == self._reported:
            return
        self._reported = progress
        what, done, total = progress
        self._send(
            STATUS=f"recovering: {what}, {done} of {total}",
            EXTEND_TIMEOUT_USEC=START_EXTENSION_S * 1_000_000,
        )

    def ready(self, status: str) -> None:
        """Report that the server accepts requests."""
        self._send(READY=1, STATUS=status)

    def stopping(self) -> None:
        """Report that the server answers the last requests and closes the store."""
        self._send(STOPPING=1, STATUS="stopping: answers the last requests and closes the store")

    def _send(self, **report: str | int) -> None:
        if not self._address:
            return
        lines = [f"{name}={one_line(str(value))}" for name, value in report.items()]
        # OSError: no manager listens. ValueError: the address contains a NUL.
        with (
            suppress(OSError, ValueError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending,
        ):
            sending.settimeout(SEND_TIMEOUT_S)
            sending.sendto("\n".join(lines).encode(), self._address)
