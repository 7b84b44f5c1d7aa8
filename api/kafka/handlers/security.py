"""Login over SASL: PLAIN with a token as the password, OAUTHBEARER with a token as the bearer token, or SCRAM.

Owns the steps of a login; must not know where tokens are stored. No token is logged or put into a message. RFC 4616:
`[authzid] NUL authcid NUL passwd`; the user name is free. RFC 7628: `gs2-header ^A auth=Bearer TOKEN ^A ^A`. SCRAM
(`logserver.access.scram`) has two steps; it is offered if the token file has verifiers for it.

After a handshake of version 0 the steps are not requests, but a size and the bytes of SASL (`login_step`). librdkafka
uses SCRAM only with servers that have this version, and then chooses version 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from api.kafka.call import Call, Ended
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from logserver.access.scram import HASHES, Exchange, ScramError
from logserver.access.tokens import Tokens

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
FAILED_S: Final = 0.1
"""A failed login is answered so late: connection.failed.authentication.delay.ms of the real server."""
_BEARER: Final = b"auth=bearer "


def _mechanisms(tokens: Tokens | None) -> Sequence[str]:
    return [PLAIN, OAUTHBEARER, *(() if tokens is None else tokens.mechanisms)]


async def sasl_handshake(call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Choose the mechanism of the login that follows. ILLEGAL_SASL_STATE, without a token file, is final."""
    if call.tokens is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    mechanisms = _mechanisms(call.tokens())
    known = request.mechanism in mechanisms
    call.client.mechanism = request.mechanism if known else None
    call.client.exchange = None
    call.client.is_raw = known and call.version == 0
    code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
    return SaslHandshakeResponse(error_code=code, mechanisms=list(mechanisms))


async def sasl_authenticate(
    call: Call, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Check the token, or take the next step of SCRAM. The connection ends after an answer with an error, which comes
    late: so guessing is slow.
    """
    response = _authenticated(call, request)
    if response.error_code != ErrorCode.NONE:
        await asyncio.sleep(FAILED_S)
    return response


def _authenticated(call: Call, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    client = call.client
    tokens = None if call.tokens is None else call.tokens()
    mechanism, client.mechanism = client.mechanism, None
    if tokens is None or (mechanism is None and client.exchange is None):
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="a handshake comes first"
        )
    if mechanism is None or mechanism in HASHES:
        return _scram(call, tokens, mechanism, request.auth_bytes)
    read = plain_token if mechanism == PLAIN else bearer_token
    token = read(request.auth_bytes)
    client.scopes = None if token is None else tokens.scopes_of(token)
    if client.scopes is None:
        return _failed("the token is unknown: with PLAIN it is the password")
    return SaslAuthenticateResponse()


async def login_step(call: Call, data: bytes) -> bytes:
    """Take a step of a login without headers. Raises Ended if it fails: there is no answer for that."""
    response = await sasl_authenticate(call, SaslAuthenticateRequest(auth_bytes=data))
    if response.error_code != ErrorCode.NONE:
        raise Ended(f"login: {response.error_message}")
    call.client.is_raw = call.client.scopes is None
    answer: bytes = response.auth_bytes
    return answer


def _scram(
    call: Call, tokens: Tokens, mechanism: str | None, data: bytes
) -> SaslAuthenticateResponse:
    """Take a step of SCRAM: the first one has the mechanism of the handshake, the second one the exchange."""
    client = call.client
    exchange, client.exchange = client.exchange, None
    try:
        if exchange is None:
            assert mechanism is not None
            client.exchange = Exchange(mechanism, partial(tokens.verifier, mechanism))
            return SaslAuthenticateResponse(auth_bytes=client.exchange.first(data))
        answer, verifier = exchange.final(data)
    except ScramError as error:
        client.exchange = None
        return _failed(str(error))
    client.scopes = tokens.scopes_of_user(verifier)
    if client.scopes is None:
        return _failed("the user is unknown, or the password is wrong")
    return SaslAuthenticateResponse(auth_bytes=answer)


def _failed(message: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message
    )


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
