"""A service manager for tests: a datagram socket that receives the reports of a server, as systemd does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

MOST_BYTES = 4096
PATIENCE_S = 30.0


class Manager:
    """The reports that arrive at a socket, as tables of their lines."""

    def __init__(self, receiving: socket.socket) -> None:
        self._receiving = receiving

    def next(self) -> dict[str, str]:
        """Wait for the next report."""
        lines = self._receiving.recv(MOST_BYTES).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def until(self, name: str) -> list[dict[str, str]]:
        """Return the reports up to the first one that has a line with this name."""
        reports = [self.next()]
        while name not in reports[-1]:
            reports.append(self.next())
        return reports

    def is_silent(self) -> bool:
        """Return whether no report waits."""
        self._receiving.setblocking(False)
        try:
            return not self._receiving.recv(MOST_BYTES)
        except BlockingIOError:
            return True
        finally:
            self._receiving.settimeout(PATIENCE_S)


@contextmanager
def managing(address: str) -> Iterator[Manager]:
    """Receive reports at an address in the form of NOTIFY_SOCKET: a path, or an abstract name after `@`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        receiving.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        receiving.settimeout(PATIENCE_S)
        yield Manager(receiving)
