"""One record as an HTTP message: the body is its value, headers hold the other parts. Pure.

Owns the names of these headers and the decoding of their bytes; must not know the service.

    X-Key: text            the key, UTF-8            X-Key-Base64: a2V5    the key, any bytes
    X-Tag: text            the tag                   X-Header-NAME: text   a header, UTF-8

HTTP does not keep the case of a header's name, and proxies change it: NAME is stored in lower case.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import Final

from api.http.errors import BASE64, PAYLOAD, ApiError
from api.http.parameters import Parameter, Text
from storage import Header, Record

HEADER_PREFIX: Final = "x-header-"

X_KEY: Final = Parameter("X-Key", Text(), "`application/octet-stream`: the key, as UTF-8.")
X_KEY_BASE64: Final = Parameter(
    "X-Key-Base64", Text(), "`application/octet-stream`: the key in base64, in place of `X-Key`."
)
X_TAG: Final = Parameter("X-Tag", Text(), "`application/octet-stream`: the tag.")
X_HEADER: Final = Parameter(
    "X-Header-NAME",
    Text(),
    "`application/octet-stream`: a header of the record. Its NAME is stored in lower case.",
)
RECORD_HEADERS: Final = (X_KEY, X_KEY_BASE64, X_TAG, X_HEADER)


def record_of(headers: Mapping[str, str], body: bytes) -> Record:
    """Return the record of a request.

    Raises 42201 for a header that is not UTF-8 or for two keys, 42202 for a key that is not base64.
    """
    return Record(_key(headers), body, _headers(headers), tag=_text(headers, X_TAG.name))


def _key(headers: Mapping[str, str]) -> bytes | None:
    if X_KEY_BASE64.name not in headers:
        key = _text(headers, X_KEY.name)
        return None if key is None else key.encode()
    if X_KEY.name in headers:
        raise ApiError(
            PAYLOAD, f"{X_KEY.name} and {X_KEY_BASE64.name} are both there: send one of them"
        )
    try:
        return binascii.a2b_base64(headers[X_KEY_BASE64.name], strict_mode=True)
    except ValueError as error:
        raise ApiError(BASE64, f"header {X_KEY_BASE64.name}: {error}") from None


def _headers(headers: Mapping[str, str]) -> list[Header]:
    """Return the headers of the record, in order; names may repeat."""
    record_headers: list[Header] = []
    for name, value in headers.items():
        lower = name.lower()
        if lower.startswith(HEADER_PREFIX) and len(lower) > len(HEADER_PREFIX):
            record_headers.append(
                (lower.removeprefix(HEADER_PREFIX), _checked(name, value).encode())
            )
    return record_headers


def _text(headers: Mapping[str, str], name: str) -> str | None:
    value = headers.get(name)
    return None if value is None else _checked(name, value)


def _checked(name: str, value: str) -> str:
    """Check that a header's value is UTF-8: aiohttp passes on other bytes as lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ApiError(PAYLOAD, f"header {name[:80]} is not UTF-8") from None
    return value
