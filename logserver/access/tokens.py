"""Bearer tokens and the scopes that they allow.

Owns the token file and the comparison; must not know HTTP. Only hashes of the tokens are kept in memory, and no
message ever holds a token.

    # token                         scopes
    3yZk0c6mZ1Wv9tQ2bX8u            read,produce
    sha256:9f86d081884c7d65...      admin           the token's SHA-256 in hex, in place of the token
    scram-sha-256:ann:8192:...      read            the verifier of ann's password (`logserver.access.scram`)
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

from logserver.access.scram import HASHES, Verifier, parsed
from logserver.errors import SettingsError

MAX_FILE_BYTES: Final = 1 << 20
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{16,512}=*")
_HASHED: Final = re.compile(r"sha256:([0-9a-fA-F]{64})")
_SCRAM: Final = "scram-"
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


@dataclass(frozen=True, slots=True)
class _User:
    verifier: Verifier
    scopes: frozenset[Scope]

    @property
    def key(self) -> tuple[str, str]:
        return self.verifier.mechanism, self.verifier.name


class Tokens:
    """The tokens and the users of one file, as of the time it was read."""

    def __init__(self, entries: Sequence[_Entry], users: Sequence[_User] = ()) -> None:
        self._entries = entries
        self._users = {user.key: user for user in users}

    def __eq__(self, other: object) -> bool:
        """Return whether both allow the same."""
        if not isinstance(other, Tokens):
            return NotImplemented
        return (self._entries, self._users) == (other._entries, other._users)

    @property
    def mechanisms(self) -> Sequence[str]:
        """The mechanisms of SCRAM that some user can log in by, in the order of `scram.HASHES`."""
        present = {mechanism for mechanism, _ in self._users}
        return [mechanism for mechanism in HASHES if mechanism in present]

    def verifier(self, mechanism: str, name: str) -> Verifier | None:
        """Return the verifier of a user for a mechanism of SCRAM; None for an unknown user."""
        user = self._users.get((mechanism, name))
        return None if user is None else user.verifier

    def scopes_of_user(self, verifier: Verifier) -> frozenset[Scope] | None:
        """Return the scopes of the user of a verifier; None if the file has this verifier no longer."""
        user = self._users.get((verifier.mechanism, verifier.name))
        return user.scopes if user is not None and user.verifier == verifier else None

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
        raise _refused(path, f"cannot be read: {error.strerror}") from None
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
    tokens = [entry for entry in entries if isinstance(entry, _Entry)]
    users = [entry for entry in entries if isinstance(entry, _User)]
    if len({entry.digest for entry in tokens}) < len(tokens):
        raise _refused(path, "holds a token twice")
    if len({user.key for user in users}) < len(users):
        raise _refused(path, "holds two verifiers of a user for one mechanism")
    return Tokens(tokens, users)


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


def _entry(path: Path, number: int, line: str) -> _Entry | _User:
    fields = line.split()
    if len(fields) != 2:
        raise _refused(path, f"line {number} is not a token and its scopes")
    token, names = fields[0], fields[1].split(",")
    known = {scope.value for scope in Scope}
    if not set(names) <= known:
        raise _refused(path, f"line {number}: scopes are {', '.join(sorted(known))}, with commas")
    scopes = frozenset(map(Scope, names))
    if token.lower().startswith(_SCRAM):
        try:
            return _User(parsed(token), scopes)
        except ValueError as error:
            raise _refused(path, f"line {number}: {error}") from None
    hashed = _HASHED.fullmatch(token)
    if hashed is None and not _TOKEN.fullmatch(token):
        raise _refused(
            path,
            f"line {number}: a token has 16 to 512 of A-Z a-z 0-9 . _ ~ + / - (and = at its end)",
        )
    digest = bytes.fromhex(hashed[1]) if hashed else sha256(token.encode()).digest()
    return _Entry(digest, scopes)


def _refused(path: Path, problem: str) -> SettingsError:
    return SettingsError(f"token file {path} {problem}", setting="token_file")
