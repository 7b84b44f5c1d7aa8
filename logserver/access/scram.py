"""SCRAM: a login by a password that neither side sends, nor the server stores (RFC 5802, RFC 7677).

Owns verifiers, their lines in a token file, and the exchange, from bytes to bytes; must not know files or connections.
Mechanisms are SCRAM-SHA-256 and SCRAM-SHA-512, without channel binding, as Kafka's. Passwords and names are UTF-8 as
they are: like Kafka's clients, nothing here prepares them (SASLprep).

    client   n,[a=authzid],n=NAME,r=CLIENT
    server   r=CLIENT SERVER,s=SALT,i=ITERATIONS
    client   c=base64 of "n,[a=authzid],",r=CLIENT SERVER,p=PROOF
    server   v=SIGNATURE

    SaltedPassword  PBKDF2(password, salt, iterations)
    ClientKey       HMAC(SaltedPassword, "Client Key")     StoredKey  H(ClientKey)
    ServerKey       HMAC(SaltedPassword, "Server Key")
    PROOF           ClientKey XOR HMAC(StoredKey, the first two messages and the third without its proof)
    SIGNATURE       HMAC(ServerKey, the same)
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash of each mechanism."""
ITERATIONS: Final = range(4096, 1_000_001)  # Kafka's clients refuse fewer
DEFAULT_ITERATIONS: Final = 8192
SALT_BYTES: Final = 24
NONCE_BYTES: Final = 24
MAX_MESSAGE_BYTES: Final = 4096
NAME: Final = re.compile(r"[A-Za-z0-9._@+/-]{1,128}")
"""The names of users that a token file can hold."""
_EXTENSIONS: Final = r"(?:,(?!m=)[A-Za-z]+=[^,]*)*"  # m= is one that a server must know
_FIRST: Final = re.compile(
    r"(?P<gs2>[ny],(?:a=(?P<authzid>[^,]+))?,)"
    rf"(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>[!-+\--~]+){_EXTENSIONS})"
)
_FINAL: Final = re.compile(
    rf"(?P<bare>c=(?P<binding>[^,]+),r=(?P<nonce>[^,]+){_EXTENSIONS}),p=(?P<proof>[^,]+)"
)
_STRAY: Final = re.compile(r"=(?!2C|3D)")
_SECRET: Final = secrets.token_bytes(32)  # for salts of unknown users, which do not change either


class ScramError(ValueError):
    """The login fails: a malformed message, an unknown user or a wrong password. The message names no user."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """What a server keeps of a password for one mechanism. It is not enough to log in."""

    mechanism: str
    name: str
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def line(self) -> str:
        """Return the first word of a line of the token file."""
        numbers = (
            b64encode(data).decode() for data in (self.salt, self.stored_key, self.server_key)
        )
        return ":".join((self.mechanism.lower(), self.name, str(self.iterations), *numbers))


def made(
    mechanism: str,
    name: str,
    password: str,
    *,
    iterations: int = DEFAULT_ITERATIONS,
    salt: bytes | None = None,
) -> Verifier:
    """Return the verifier of a password; `salt` None: a new random one. Takes milliseconds, by the iterations."""
    digest = HASHES[mechanism]
    chosen = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), chosen, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    return Verifier(
        mechanism,
        name,
        iterations,
        chosen,
        hashlib.new(digest, client_key).digest(),
        hmac.digest(salted, b"Server Key", digest),
    )


def parsed(word: str) -> Verifier:
    """Return the verifier of a line's first word. Raises ValueError, whose message does not quote the word."""
    mechanism, *rest = word.split(":")
    if mechanism.upper() not in HASHES or len(rest) != 5:
        raise ValueError("a verifier is MECHANISM:NAME:ITERATIONS:SALT:STORED_KEY:SERVER_KEY")
    name, iterations, *keys = rest
    if not NAME.fullmatch(name):
        raise ValueError("the name of a user has 1 to 128 of A-Z a-z 0-9 . _ @ + / -")
    if not iterations.isdecimal() or int(iterations) not in ITERATIONS:
        raise ValueError(f"a verifier has {ITERATIONS[0]} to {ITERATIONS[-1]} iterations")
    salt, stored_key, server_key = (b64decode(key, validate=True) for key in keys)
    size = hashlib.new(HASHES[mechanism.upper()]).digest_size
    if not salt or len(stored_key) != size or len(server_key) != size:
        raise ValueError(f"the keys of {mechanism} have {size} bytes, and a salt has some")
    return Verifier(mechanism.upper(), name, int(iterations), salt, stored_key, server_key)


class Exchange:
    """The server's side of one login. Call `first` with the first message, then `final` with the second one.

    `find` returns the verifier of a user, or None. A user without one gets the messages of a user with one, until the
    password is wrong: so a client does not learn which users there are.
    """

    def __init__(
        self, mechanism: str, find: Callable[[str], Verifier | None], *, nonce: str | None = None
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._nonce = (
            b64encode(secrets.token_bytes(NONCE_BYTES)).decode() if nonce is None else nonce
        )
        self._verifier: Verifier | None = None
        self._gs2 = b""
        self._transcript = ""

    @property
    def is_begun(self) -> bool:
        """True once `first` has been called."""
        return bool(self._transcript)

    def first(self, data: bytes) -> bytes:
        """Return the answer to the client's first message. Raises ScramError."""
        match = _FIRST.fullmatch(_text(data))
        if match is None or _STRAY.search(match["name"]):
            raise ScramError("the first message of SCRAM is malformed, or asks for channel binding")
        name = _unescaped(match["name"])
        if match["authzid"] is not None and _unescaped(match["authzid"]) != name:
            raise ScramError("a user logs in as no other user")
        self._verifier = self._find(name)
        salt, iterations = self._salt_of(name)
        self._gs2 = match["gs2"].encode()
        self._nonce = match["nonce"] + self._nonce
        answer = f"r={self._nonce},s={b64encode(salt).decode()},i={iterations}"
        self._transcript = f"{match['bare']},{answer},"
        return answer.encode()

    def final(self, data: bytes) -> tuple[bytes, Verifier]:
        """Return the answer to the client's second message, and the verifier of the user. Raises ScramError."""
        match = _FINAL.fullmatch(_text(data))
        if match is None:
            raise ScramError("the second message of SCRAM is malformed")
        # librdkafka before 2.6.1 puts its own part in front once more; as from the real server, that is accepted.
        if _decoded(match["binding"]) != self._gs2 or not match["nonce"].endswith(self._nonce):
            raise ScramError("the second message of SCRAM does not continue the first")
        verifier = self._verifier
        proof = _decoded(match["proof"])
        digest = HASHES[self._mechanism]
        if verifier is None or len(proof) != len(verifier.stored_key):
            raise ScramError("the user is unknown, or the password is wrong")
        signed = (self._transcript + match["bare"]).encode()
        signature = hmac.digest(verifier.stored_key, signed, digest)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(digest, client_key).digest(), verifier.stored_key):
            raise ScramError("the user is unknown, or the password is wrong")
        answer = hmac.digest(verifier.server_key, signed, digest)
        return b"v=" + b64encode(answer), verifier

    def _salt_of(self, name: str) -> tuple[bytes, int]:
        if self._verifier is not None:
            return self._verifier.salt, self._verifier.iterations
        made_up = hmac.digest(_SECRET, f"{self._mechanism} {name}".encode(), "sha256")
        return made_up[:SALT_BYTES], DEFAULT_ITERATIONS


def _text(data: bytes) -> str:
    if len(data) > MAX_MESSAGE_BYTES:
        raise ScramError(f"a message of SCRAM has at most {MAX_MESSAGE_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ScramError("a message of SCRAM is UTF-8") from None


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise ScramError("the second message of SCRAM is malformed") from None
