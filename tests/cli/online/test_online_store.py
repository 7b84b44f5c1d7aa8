"""`store`: what a running server says about its store, and changes of retention."""

from __future__ import annotations

import pytest

from logserver import LogServer
from tests.cli.runner import fine, run


def settings() -> dict[str, str | None]:
    return {row["setting"]: row["value"] for row in fine("store", "retention").rows}


def test_show(server: LogServer) -> None:
    shown = fine("store", "show").document
    assert shown["read_only"] is False
    assert "retention" in shown["services"] or shown["services"]


def test_retention_is_changed_and_turned_off(server: LogServer) -> None:
    before = settings()
    name = next(iter(before))  # a time, on both formats
    try:
        fine("store", "retention", "--set", f"{name}=72")
        assert settings() == before | {name: "72"}
    finally:
        fine("store", "retention", "--off", name)
    assert settings() == before


@pytest.mark.parametrize(
    "options", [("{}",), ("{}=soon",), ("no.such.setting=1",), ("{}=72", "--off", "{}")]
)
def test_wrong_settings(server: LogServer, options: tuple[str, ...]) -> None:
    before = settings()
    words = [word.format(next(iter(before))) for word in options]
    assert run("store", "retention", "--set", *words).code == 2
    assert settings() == before
