"""Authorization of calls, and TLS.

Owns the Authorization header and the TLS context; must not know which scopes a token has (`logserver.tokens`) or
which scope a call needs (its description). No token is ever logged or put into a message.
"""

from __future__ import annotations

import logging
import ssl
import stat
from pathlib import Path
from typing import Final

from aiohttp import web

from api.http.errors import ApiError
from logserver.config import Settings
from logserver.errors import SettingsError
from logserver.tokens import Scope, Tokens, load_tokens

log = logging.getLogger(__name__)

_SCHEME: Final = "bearer"
_REALM: Final = 'Bearer realm="logserver"'


class Guard:
    """The check of a request's token."""

    def __init__(self, settings: Settings) -> None:
        """Read the token file, if there is one. Raises SettingsError."""
        self._path = settings.token_file
        self._tokens: Tokens | None = None
        self.reload()

    def reload(self) -> None:
        """Read the token file again; if that raises SettingsError the tokens stay unchanged."""
        if self._path is not None:
            self._tokens = load_tokens(self._path)

    def check(self, request: web.BaseRequest, scope: Scope | None) -> None:
        """Raise 401 for a missing or unknown token, 403 for a token that does not allow `scope`. None: every client
        may call.
        """
        if self._tokens is None or scope is None:
            return
        header = request.headers.get("Authorization")
        if header is None:
            raise _unauthorized(_REALM, "this call needs a token: send Authorization: Bearer TOKEN")
        scheme, _, token = header.partition(" ")
        invalid = f'{_REALM}, error="invalid_token"'
        if scheme.lower() != _SCHEME:
            raise _unauthorized(_REALM, "the only Authorization that is taken is Bearer")
        scopes = self._tokens.scopes_of(token.strip().encode(errors="surrogateescape"))
        if scopes is None:
            raise _unauthorized(invalid, "the token is unknown")
        if not scopes & {scope, Scope.ADMIN}:
            challenge = f'{_REALM}, error="insufficient_scope", scope="{scope.value}"'
            raise ApiError(
                403,
                f"the token does not allow {scope.value}, which this call needs",
                headers={"WWW-Authenticate": challenge},
                facts={"scope": scope.value},
            )


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context; None for plain HTTP. Raises SettingsError."""
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
        raise SettingsError(
            f"setting {setting}: {getattr(settings, setting)} cannot be used: {error}",
            setting=setting,
        ) from None
    return context


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
        except OSError:
            continue  # loading the file reports the problem
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
