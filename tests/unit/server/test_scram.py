"""SCRAM: the exchanges of the RFCs byte for byte, every wrong message refused, verifiers in lines of a token file."""

from __future__ import annotations

from base64 import b64decode, b64encode
from pathlib import Path

import pytest
from aiokafka.conn import ScramAuthenticator

from logserver.access import scram
from logserver.access.scram import HASHES, Exchange, ScramError, Verifier, made, parsed
from logserver.access.tokens import Scope, load_tokens
from logserver.errors import SettingsError

# Mechanism, the server's nonce, salt, and the four messages, of user `user` with password `pencil`.
RFC_5802 = (
    "SCRAM-SHA-1",
    "3rfcNHYJY1ZVvWVs7j",
    "QSXCR+Q6sek8bf92",
    b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
    b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
    b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
)
RFC_7677 = (
    "SCRAM-SHA-256",
    "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    "W22ZaJ0SNY7soEsUEjb6gQ==",
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)
NONCE, SALT, FIRST, FINAL = RFC_7677[1], RFC_7677[2], RFC_7677[3], RFC_7677[5]


@pytest.mark.parametrize("vector", [RFC_5802, RFC_7677], ids=["RFC 5802", "RFC 7677"])
def test_the_exchange_of_the_rfc(
    monkeypatch: pytest.MonkeyPatch, vector: tuple[str, str, str, bytes, bytes, bytes, bytes]
) -> None:
    mechanism, nonce, salt, first, challenge, final, signature = vector
    monkeypatch.setattr(scram, "HASHES", {**HASHES, "SCRAM-SHA-1": "sha1"})
    verifier = made(mechanism, "user", "pencil", iterations=4096, salt=b64decode(salt))
    exchange = Exchange(mechanism, {"user": verifier}.get, nonce=nonce)
    assert exchange.first(first) == challenge
    assert exchange.final(final) == (signature, verifier)


def pencil(mechanism: str = "SCRAM-SHA-256", name: str = "user") -> Verifier:
    """Return the verifier of the RFC's user."""
    return made(mechanism, name, "pencil", iterations=4096, salt=b64decode(SALT))


def begun() -> Exchange:
    """Return an exchange after the RFC's first message."""
    exchange = Exchange("SCRAM-SHA-256", {"user": pencil()}.get, nonce=NONCE)
    exchange.first(FIRST)
    return exchange


@pytest.mark.parametrize("mechanism", list(HASHES))
@pytest.mark.parametrize("name", ["ann", "a@b.c"])
def test_another_client(mechanism: str, name: str) -> None:
    """The client of another program, with both hashes."""
    verifier = made(mechanism, name, "pässword, = and \\", iterations=4096)
    exchange = Exchange(mechanism, {name: parsed(verifier.line())}.get)
    client = ScramAuthenticator(
        loop=None,
        sasl_plain_username=name,
        sasl_plain_password="pässword, = and \\",
        sasl_mechanism=mechanism,
    ).authenticator_scram()
    first, _ = next(client)
    final, _ = client.send(exchange.first(first))
    answer, found = exchange.final(final)
    assert found == verifier
    with pytest.raises(StopIteration):
        client.send(answer)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"n,,n=user",
        b"n,,n=,r=x",
        b"n,,r=x,n=user",
        b"p=tls-unique,,n=user,r=x",
        b"n,a=other,n=user,r=x",
        b"n,,m=ext,n=user,r=x",
        b"n,,n=user,r=x,m=ext",
        b"n,,n=us=er,r=x",
        b"n,,n=user,r=a b",
        b"n,,n=user,r=x\n",
        b"n,,n=\xff,r=x",
        b"n,,n=user,r=" + b"x" * 5000,
    ],
)
def test_a_bad_first_message(data: bytes) -> None:
    with pytest.raises(ScramError):
        Exchange("SCRAM-SHA-256", {"user": pencil()}.get).first(data)


def test_names_and_extensions() -> None:
    exchange = Exchange("SCRAM-SHA-256", {"a,b=c": pencil(name="a,b=c")}.get, nonce="n")
    challenge = exchange.first(b"y,a=a=2Cb=3Dc,n=a=2Cb=3Dc,r=x,tokenauth=no")
    assert challenge.startswith(b"r=xn,s=" + SALT.encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"c=biws", b"c=*"),
        FINAL.replace(b"k0,p", b"k1,p"),
        FINAL.replace(b"p=d", b"p=e"),
        FINAL[:-4],
        FINAL + b",x=y",
        FINAL.replace(b"p=", b"p=AAAA"),
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=" + b64encode(bytes(32)),
    ],
)
def test_a_bad_second_message(data: bytes) -> None:
    with pytest.raises(ScramError):
        begun().final(data)


def test_a_proof_is_of_one_exchange() -> None:
    exchange = Exchange("SCRAM-SHA-256", {"user": pencil()}.get)
    exchange.first(FIRST)
    with pytest.raises(ScramError):
        exchange.final(FINAL)


def test_unknown_users_look_like_others() -> None:
    """The same salt each time, the usual iterations, and the error of a wrong password."""
    salts, errors = set(), set()
    for _ in range(2):
        exchange = Exchange("SCRAM-SHA-256", {"user": pencil()}.get, nonce=NONCE)
        _, salt, iterations = exchange.first(FIRST.replace(b"user", b"bob")).split(b",")
        salts.add(salt)
        assert iterations == b"i=8192"
        with pytest.raises(ScramError) as unknown:
            exchange.final(FINAL)
        errors.add(str(unknown.value))
    assert len(salts) == 1
    with pytest.raises(ScramError) as wrong:
        begun().final(FINAL.replace(b"p=d", b"p=e"))
    assert errors == {str(wrong.value)}


def token_file(path: Path, *lines: str) -> Path:
    """Write a token file that only its owner can read."""
    path.write_text("".join(f"{line}\n" for line in lines))
    path.chmod(0o600)
    return path


def test_users_of_a_token_file(tmp_path: Path) -> None:
    short, long = pencil(), pencil("SCRAM-SHA-512")
    lines = (f"{short.line()} read", f"{long.line()} produce")
    tokens = load_tokens(token_file(tmp_path / "tokens", *lines))
    assert tokens.mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert tokens.verifier("SCRAM-SHA-256", "user") == short
    assert tokens.verifier("SCRAM-SHA-256", "other") is None
    assert tokens.scopes_of_user(long) == frozenset({Scope.PRODUCE})
    assert tokens.scopes_of_user(pencil(name="other")) is None
    assert tokens.scopes_of(short.line().encode()) is None  # a verifier is no token
    changed = load_tokens(token_file(tmp_path / "tokens", f"{pencil().line()} read"))
    assert changed.mechanisms == ["SCRAM-SHA-256"]
    assert changed.scopes_of_user(long) is None


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("scram-sha-256", "scram-sha-1", "a verifier is MECHANISM"),
        (":user:", ":us er:", "is not a token and its scopes"),
        (":user:", "::", "the name of a user"),
        (":4096:", ":4095:", "4096 to 1000000 iterations"),
        (":4096:", ":+4096:", "iterations"),
        (":W22ZaJ0SNY7soEsUEjb6gQ==:", "::", "a salt has some"),
        (":W22Z", ":!22Z", "line 1"),
        ("scram-sha-256", "scram-sha-512", "keys of scram-sha-512 have 64 bytes"),
    ],
)
def test_bad_lines(tmp_path: Path, old: str, new: str, problem: str) -> None:
    line = pencil().line()
    assert old in line
    with pytest.raises(SettingsError, match=problem):
        load_tokens(token_file(tmp_path / "tokens", f"{line.replace(old, new)} read"))


def test_one_verifier_of_a_user(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="two verifiers of a user"):
        load_tokens(token_file(tmp_path / "tokens", *(f"{pencil().line()} read",) * 2))
