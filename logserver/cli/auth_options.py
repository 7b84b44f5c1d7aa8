"""Credentials of a command for a server: a token, and certificates.

Owns these options; must not import the client, because commands that read files have these options too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from ssl import SSLContext

_OPTIONS: Final = (
    ("--token-file", "A file with the token for a server (its first word)."),
    ("--ca-file", "CA certificates in PEM, to check a server's certificate."),
    ("--cert-file", "A client certificate with its key in PEM."),
)


@dataclass(frozen=True, slots=True)
class Access:
    """The files given to the options."""

    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None

    def token(self) -> str | None:
        """Return the first word outside comments, so that a server's own token list works; None without a file."""
        if self.token_file is None:
            return None
        lines = self.token_file.read_bytes().decode("ascii", "replace").splitlines()
        words = [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
        if not words or words[0].startswith("sha256:") or not words[0].isascii():
            raise click.UsageError(f"{self.token_file} holds no token")
        return words[0]

    def kafka_properties(self) -> dict[str, str]:
        """Return the properties of librdkafka for the same: the token is the password of SASL PLAIN."""
        token = self.token()
        has_tls = self.ca_file is not None or self.cert_file is not None
        properties: dict[str, str] = {}
        if has_tls or token is not None:
            protocol = "SSL" if has_tls else "PLAINTEXT"
            properties["security.protocol"] = protocol if token is None else f"SASL_{protocol}"
        if token is not None:
            properties |= {
                "sasl.mechanism": "PLAIN",
                "sasl.username": "token",
                "sasl.password": token,
            }
        if self.ca_file is not None:
            properties["ssl.ca.location"] = str(self.ca_file)
        if self.cert_file is not None:
            properties["ssl.certificate.location"] = str(self.cert_file)
            properties["ssl.key.location"] = str(self.cert_file)
        return properties

    def tls(self) -> SSLContext | None:
        """Return the TLS context; None: use the system's certificates."""
        if self.ca_file is None and self.cert_file is None:
            return None
        import ssl

        path = self.ca_file
        try:
            context = ssl.create_default_context(cafile=path)
            if self.cert_file is not None:
                path = self.cert_file
                context.load_cert_chain(path)
        except OSError as error:  # the error names no file
            raise OSError(error.errno, error.strerror, str(path)) from None
        return context


def access_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command; the command gets them as `access`."""

    def run(
        *arguments: Any,
        token_file: Path | None,
        ca_file: Path | None,
        cert_file: Path | None,
        **options: Any,
    ) -> Any:
        return command(*arguments, access=Access(token_file, ca_file, cert_file), **options)

    wrapped = update_wrapper(run, command)
    for name, about in reversed(_OPTIONS):
        option = click.option(name, metavar="FILE", type=click.Path(path_type=Path), help=about)
        wrapped = option(wrapped)
    return wrapped
