"""Login over SASL: PLAIN with a token as the password, OAUTHBEARER with a token as the bearer token.

Owns the exchanges; must not know where tokens are stored. No token is logged or put into a message. RFC 4616:
`[authzid] NUL authcid NUL passwd`; the user name is free. RFC 7628: `gs2-header ^A auth=Bearer TOKEN ^A ^A`.
"""

from __future__ import annotations

from typing import Final

from api.kafka.call import Call
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, OAUTHBEARER)
_BEARER: Final = b"auth=bearer "


async def sasl_handshake(call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Choose the mechanism of the login that follows."""
    known = request.mechanism in MECHANISMS
    call.client.mechanism = request.mechanism if known else None
    code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
    return SaslHandshakeResponse(error_code=code, mechanisms=list(MECHANISMS))


async def sasl_authenticate(
    call: Call, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Check the token. The connection ends after an answer with an error."""
    client = call.client
    mechanism, client.mechanism = client.mechanism, None
    if mechanism is None or call.scopes_of is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="a handshake comes first"
        )
    read = plain_token if mechanism == PLAIN else bearer_token
    token = read(request.auth_bytes)
    client.scopes = None if token is None else call.scopes_of(token)
    if client.scopes is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            error_message="the token is unknown: with PLAIN it is the password",
        )
    return SaslAuthenticateResponse()


def plain_token(data: bytes) -> bytes | None:
    """Return the password of a PLAIN message; None if the message is malformed.

    >>> plain_token(b"\\0ann\\0secret")
    b'secret'
    """
    parts = data.split(b"\0")
    if len(parts) != 3 or parts[0] not in (b"", parts[1]):
        return None
    return parts[2] or None


def bearer_token(data: bytes) -> bytes | None:
    """Return the token of an OAUTHBEARER message; None if the message is malformed.

    >>> bearer_token(b"n,,\\1auth=Bearer secret\\1\\1")
    b'secret'
    """
    header, *pairs = data.split(b"\1")
    if not header.startswith((b"n,", b"y,")):
        return None
    for pair in pairs:
        if pair[: len(_BEARER)].lower() == _BEARER:
            return pair[len(_BEARER) :].strip() or None
    return None
