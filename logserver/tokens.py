"""Bearer tokens and the scopes that they allow.

Owns the token file and the comparison; must not know HTTP. Only hashes of the tokens are kept in memory, and no
message ever holds a token.

    # token                         scopes
    3yZk0c6mZ1Wv9tQ2bX8u            read,produce
    sha256:9f86d081884c7d65...      admin           the token's SHA-256 in hex, in place of the token
"""

from __future__ import annotations

import enum
import hmac
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from logserver.errors import SettingsError

MAX_FILE_BYTES: Final = 1 << 20
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{16,512}=*")
_HASHED: Final = re.compile(r"sha256:([0-9a-fA-F]{64})")
_OTHERS: Final = stat.S_IWGRP | stat.S_IRWXO


class Scope(enum.Enum):
    """A permission of a token; `admin` allows everything."""

    READ = "read"
    PRODUCE = "produce"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class _Entry:
    digest: bytes
    scopes: frozenset[Scope]


class Tokens:
    """The tokens of one file, as of the time it was read."""

    def __init__(self, entries: Sequence[_Entry]) -> None:
        self._entries = entries

    def scopes_of(self, token: bytes) -> frozenset[Scope] | None:
        """Return the scopes of a token; None if it is not in the file. The time does not depend on the token."""
        digest = sha256(token).digest()
        scopes: frozenset[Scope] | None = None
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, digest):
                scopes = entry.scopes
        return scopes


def load_tokens(path: Path) -> Tokens:
    """Read a token file.

    Raises SettingsError, which names the line, for a malformed file. Also raises it for a file that users other than
    owner and group can access, or that the group can change.
    """
    try:
        mode, data = _read(path)
    except OSError as error:
        raise _refused(path, error.strerror or "cannot be read") from None
    if mode & _OTHERS:
        raise _refused(
            path,
            f"has mode {mode:04o}, so others can read or change it: chmod 600, "
            "or for a secret in Kubernetes set fsGroup and defaultMode: 0440",
        )
    if len(data) > MAX_FILE_BYTES:
        raise _refused(path, f"is larger than {MAX_FILE_BYTES} bytes")
    try:
        lines = data.decode("ascii").splitlines()
    except UnicodeDecodeError:
        raise _refused(path, "is not ASCII text") from None
    entries = [
        _entry(path, number, line)
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not entries:
        raise _refused(path, "holds no token")
    if len({entry.digest for entry in entries}) < len(entries):
        raise _refused(path, "holds a token twice")
    return Tokens(entries)


def _read(path: Path) -> tuple[int, bytes]:
    """Return the mode and the content of a regular file."""
    # O_NONBLOCK: the open of a FIFO without a writer would never return, and no signal would end it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _refused(path, "is not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return stat.S_IMODE(status.st_mode), file.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)


def _entry(path: Path, number: int, line: str) -> _Entry:
    fields = line.split()
    if len(fields) != 2:
        raise _refused(path, f"line {number} is not a token and its scopes")
    token, names = fields[0], fields[1].split(",")
    known = {scope.value for scope in Scope}
    if not set(names) <= known:
        raise _refused(path, f"line {number}: scopes are {', '.join(sorted(known))}, with commas")
    hashed = _HASHED.fullmatch(token)
    if hashed is None and not _TOKEN.fullmatch(token):
        raise _refused(
            path,
            f"line {number}: a token has 16 to 512 of A-Z a-z 0-9 . _ ~ + / - (and = at its end)",
        )
    digest = bytes.fromhex(hashed[1]) if hashed else sha256(token.encode()).digest()
    return _Entry(digest, frozenset(map(Scope, names)))


def _refused(path: Path, problem: str) -> SettingsError:
    return SettingsError(f"token file {path} {problem}", setting="token_file")
