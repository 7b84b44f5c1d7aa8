"""Authorization of calls, and TLS.

Owns the Authorization header and the TLS context; must not know which scopes a token has (`logserver.access.tokens`) or
which scope a call needs (its description). No token is ever logged or put into a message.
"""

from __future__ import annotations

import logging
import ssl
import stat
from base64 import b64decode
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from aiohttp import web

from api.http.errors import ApiError
from logserver.access.tokens import Scope, Tokens, load_tokens
from logserver.config import Settings
from logserver.errors import SettingsError

log = logging.getLogger(__name__)

_SCHEME: Final = "bearer"
_REALM: Final = 'Bearer realm="logserver"'
_BASIC_SCHEME: Final = "basic"
_BASIC_REALM: Final = 'Basic realm="logserver", charset="UTF-8"'


class Guard:
    """The check of a request's token."""

    def __init__(self, settings: Settings) -> None:
        """Read the token file, if there is one. Raises SettingsError."""
        self._path = settings.token_file
        self._tokens: Tokens | None = None
        self.is_on = self._path is not None
        """True if calls need a token."""
        self.reload()

    def reload(self) -> None:
        """Read the token file again; if that raises SettingsError the tokens stay unchanged."""
        if self._path is not None:
            self._tokens = load_tokens(self._path)

    @property
    def tokens(self) -> Tokens | None:
        """The tokens and users as they are now; None if no call needs one."""
        return self._tokens

    def check(
        self, request: web.BaseRequest, scope: Scope | None, *, is_page: bool = False
    ) -> None:
        """Raise 401 for a missing or unknown token, 403 for a token that does not allow `scope`. None: every client
        may call.

        `is_page`: a browser asks for a page. Over TLS or a loopback address it may send the token as a password, with
        Basic, and 401 makes it ask its user for one.
        """
        if self._tokens is None or scope is None:
            return
        takes_basic = is_page and _is_private(request)
        realm = _BASIC_REALM if takes_basic else _REALM
        header = request.headers.get("Authorization")
        if header is None:
            raise _unauthorized(realm, _needed(is_page=is_page, takes_basic=takes_basic))
        scheme, _, credentials = header.partition(" ")
        token: bytes | None = None
        if scheme.lower() == _SCHEME:
            token = credentials.strip().encode(errors="surrogateescape")
        elif takes_basic and scheme.lower() == _BASIC_SCHEME:
            token = _password(credentials.strip())
        else:
            raise _unauthorized(realm, "the only Authorization that is taken is Bearer")
        scopes = None if token is None else self._tokens.scopes_of(token)
        if scopes is None:
            invalid = realm if takes_basic else f'{realm}, error="invalid_token"'
            raise _unauthorized(invalid, "the token is unknown")
        if not scopes & {scope, Scope.ADMIN}:
            challenge = f'{_REALM}, error="insufficient_scope", scope="{scope.value}"'
            raise ApiError(
                403,
                f"the token does not allow {scope.value}, which this call needs",
                headers={"WWW-Authenticate": challenge},
                facts={"scope": scope.value},
            )


def _is_private(request: web.BaseRequest) -> bool:
    """Return whether no other machine can read what the client sends: it uses TLS, or is on this machine."""
    if request.secure:
        return True
    transport = request.transport
    address = None if transport is None else transport.get_extra_info("peername")
    if address is None:
        return False
    peer = ip_address(address[0].partition("%")[0])
    return (getattr(peer, "ipv4_mapped", None) or peer).is_loopback


def _needed(*, is_page: bool, takes_basic: bool) -> str:
    """Return the message for a request without a token."""
    if takes_basic:
        return (
            "this page needs a token: give a token as the password (the user name is ignored), or send "
            "Authorization: Bearer TOKEN"
        )
    if is_page:
        return (
            "this page needs a token: send Authorization: Bearer TOKEN; a password is taken only over TLS, and from "
            "the server's own machine"
        )
    return "this call needs a token: send Authorization: Bearer TOKEN"


def _password(credentials: str) -> bytes | None:
    """Return the password of Basic credentials; None if they are malformed."""
    try:
        _, colon, password = b64decode(credentials, validate=True).partition(b":")
    except ValueError:  # binascii.Error too, and text that is not ASCII
        return None
    return password if colon else None


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context of both ports; None without a certificate. Raises SettingsError.

    By ALPN it knows HTTP only: a Kafka client that asks for another protocol gets none, and goes on.
    """
    if settings.tls_cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _check_files(settings)
    setting = "tls_cert"
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password=_no_password)
        if settings.tls_client_ca is not None:
            setting = "tls_client_ca"
            context.load_verify_locations(settings.tls_client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        problem = _unusable(settings, setting, error)
        raise _refused(setting, getattr(settings, setting), problem) from None
    return context


def _unusable(settings: Settings, setting: str, error: Exception) -> str:
    """Return in words why a file of TLS cannot be used. OpenSSL's own texts do not name the missing part."""
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return f"does not belong to the private key in {settings.tls_key or settings.tls_cert}"
    if isinstance(error, ssl.SSLError):
        data = getattr(settings, setting).read_bytes()
        if b"-----BEGIN CERTIFICATE-----" not in data:
            return "holds no certificate in PEM"
        key = settings.tls_key
        if setting == "tls_cert" and b" PRIVATE KEY-----" not in (
            key.read_bytes() if key else data
        ):
            return "holds no private key: give tls_key" if key is None else f"has no key in {key}"
    return f"cannot be used: {error}"


def _check_files(settings: Settings) -> None:
    """Raise SettingsError for a path that is not a regular file, and for a private key that other users can change.

    A read of a FIFO would block without an end. Logs a warning for a key that other users can read.
    """
    key_setting = "tls_cert" if settings.tls_key is None else "tls_key"
    for setting in ("tls_cert", "tls_key", "tls_client_ca"):
        path: Path | None = getattr(settings, setting)
        if path is None:
            continue
        try:
            mode = path.stat().st_mode
        except OSError as error:
            raise _refused(setting, path, f"cannot be read: {error.strerror}") from None
        if not stat.S_ISREG(mode):
            raise _refused(setting, path, "is not a regular file")
        if setting != key_setting:
            continue
        shown = f"{stat.S_IMODE(mode):04o}"
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise _refused(setting, path, f"has mode {shown}, so others can change it: chmod 600")
        if mode & stat.S_IROTH:
            log.warning(
                "setting %s: everybody on this machine can read %s (mode %s): chmod 600",
                setting,
                path,
                shown,
            )


def _refused(setting: str, path: Path, problem: str) -> SettingsError:
    return SettingsError(f"setting {setting}: {path} {problem}", setting=setting)


def _no_password() -> str:
    raise ValueError("its key is encrypted")


def _unauthorized(challenge: str, message: str) -> ApiError:
    return ApiError(401, message, headers={"WWW-Authenticate": challenge})
