"""The kernel's view of a TCP connection: its state, and the bytes that the client has not received.

Owns the system calls and Linux's numbers; must not read, write or close a connection.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import termios
from array import array
from contextlib import suppress
from typing import Final

# Linux's numbers of TCP connection states, as in the first byte of TCP_INFO.
ESTABLISHED: Final = 1
CLOSED: Final = 7
_STATES_BYTES: Final = 104
_NO_BYTES: Final = bytes(4)  # the answer of FIONREAD without unread bytes


def state(transport: asyncio.Transport) -> int:
    """Return the connection's state from the kernel: the event loop may not have seen the client's FIN yet."""
    try:
        info = transport.get_extra_info("socket").getsockopt(
            socket.IPPROTO_TCP, socket.TCP_INFO, _STATES_BYTES
        )
    except OSError:
        return CLOSED
    return int(info[0])


def untaken_bytes(transport: asyncio.Transport) -> int:
    """Return the bytes that the client has not received, including the kernel's send buffer.

    That buffer holds megabytes, which may last a slow client for minutes before the kernel accepts more.
    """
    system_bytes = array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, system_bytes)
    return transport.get_write_buffer_size() + system_bytes[0]


def has_unread_bytes(descriptor: int) -> bool:
    """Return whether the client of an open connection has sent bytes that the event loop has not read yet."""
    try:
        return fcntl.ioctl(descriptor, termios.FIONREAD, _NO_BYTES) != _NO_BYTES
    except OSError:
        return False
