"""Messages of the wire protocol: SaslAuthenticate, SaslHandshake. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from api.kafka.protocol.primitives import Reader, Writer


class SaslAuthenticateRequest(Struct, kw_only=True):
    """Message of API 36: versions 0 to 2, flexible from 2."""

    API_KEY: ClassVar[int] = 36

    auth_bytes: bytes = b""

    @classmethod
    def read(cls, r: Reader, v: int) -> SaslAuthenticateRequest:
        """Read one of version `v`."""
        m = SaslAuthenticateRequest()
        m.auth_bytes = r.data()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.data(self.auth_bytes)
        w.end_struct()


class SaslAuthenticateResponse(Struct, kw_only=True):
    """Message of API 36: versions 0 to 2, flexible from 2."""

    API_KEY: ClassVar[int] = 36

    error_code: int = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> SaslAuthenticateResponse:
        """Read one of version `v`."""
        m = SaslAuthenticateResponse()
        m.error_code = r.int16()
        m.error_message = r.nullable_string()
        m.auth_bytes = r.data()
        if v >= 1:
            m.session_lifetime_ms = r.int64()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        w.data(self.auth_bytes)
        if v >= 1:
            w.int64(self.session_lifetime_ms)
        w.end_struct()


class SaslHandshakeRequest(Struct, kw_only=True):
    """Message of API 17: versions 0 to 1, never flexible."""

    API_KEY: ClassVar[int] = 17

    mechanism: str = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> SaslHandshakeRequest:
        """Read one of version `v`."""
        m = SaslHandshakeRequest()
        m.mechanism = r.string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.mechanism)
        w.end_struct()


class SaslHandshakeResponse(Struct, kw_only=True):
    """Message of API 17: versions 0 to 1, never flexible."""

    API_KEY: ClassVar[int] = 17

    error_code: int = 0
    mechanisms: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> SaslHandshakeResponse:
        """Read one of version `v`."""
        m = SaslHandshakeResponse()
        m.error_code = r.int16()
        m.mechanisms = [r.string() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        for mechanisms_item in w.array(self.mechanisms):
            w.string(mechanisms_item)
        w.end_struct()
