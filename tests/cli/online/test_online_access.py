"""A server with access control: tokens and certificates, from the shell and from Python."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from logserver import LogServer
from logserver.client import BlockingClient, ServerRefused
from tests.cli.runner import fine, run
from tests.http.test_security import certificates

__all__ = ["certificates"]

READER, ADMIN = "a-token-that-may-read", "a-token-that-may-do-all"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """A server's file of tokens."""
    path = tmp_path / "tokens"
    path.write_text(f"# who may what\n\n{READER}  read\n{ADMIN}  admin\n")
    path.chmod(0o600)
    return path


def test_tokens(tokens: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text(f"{ADMIN}\n")
    (tmp_path / "none").write_text("sha256:00\n")
    with LogServer(backend="memory", token_file=tokens) as server:
        options = ("--server", server.url)
        refused = run("topic", "list", *options)
        assert (refused.code, "; --token-file FILE has the token" in refused.err) == (2, True)
        assert fine("topic", "list", *options, "--token-file", tokens).rows == []
        assert run("topic", "create", "t", *options, "--token-file", tokens).code == 2
        fine("topic", "create", "t", *options, "--token-file", tmp_path / "mine")
        assert fine("offsets", server.url, "--token-file", tokens).document["topic"] == "t"
        ended = run("find", server.url, "--key", "k", "--token-file", tmp_path / "none")
        assert (ended.code, "holds no token" in ended.err) == (2, True)
        with BlockingClient(server.url, READER) as reader:
            assert reader.topics() == ["t"]
            with pytest.raises(ServerRefused) as raised:
                reader.delete_topic("t")
        assert raised.value.status == 403


def test_certificates(certificates: Path) -> None:  # the imported fixture
    ca, mine = certificates / "ca.pem", certificates / "client.pem"
    files: dict[str, Any] = {"tls_cert": certificates / "server.pem", "tls_client_ca": ca}
    with LogServer(backend="memory", **files) as server:
        assert server.url.startswith("https://")
        options = ("topic", "list", "--server", server.url)
        assert fine(*options, "--ca-file", ca, "--cert-file", mine).rows == []
        ended = run(*options).err
        assert "its certificate is not accepted: " in ended
        assert "; --ca-file names the authority to trust [server-unreachable]" in ended
        refused = run(*options, "--ca-file", ca)
        assert (refused.code, "Operation not permitted" in refused.err) == (3, False)
        plain = server.url.replace("https", "http")
        assert "An HTTPS port needs https://" in run(*options[:-1], plain, "--ca-file", ca).err
        assert run(*options, "--ca-file", certificates / "nothing").code == 3
        context = ssl.create_default_context(cafile=str(ca))
        context.load_cert_chain(mine)
        with BlockingClient(server.url, tls=context) as client:
            assert client.topics() == []


def test_a_port_without_tls() -> None:
    with LogServer(backend="memory") as server:
        ended = run("topic", "list", "--server", server.url.replace("http", "https"))
    assert ended.code == 3
    assert "TLS fails: " in ended.err
    assert "a port without TLS needs http://" in ended.err
