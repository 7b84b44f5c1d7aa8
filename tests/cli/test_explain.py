"""`logserver explain`: the page of a code, the list of codes, and a code that does not exist."""

from __future__ import annotations

import pytest

from storage.findings import catalogue
from tests.cli.runner import fine, run


@pytest.mark.parametrize("code", catalogue())
def test_every_code_has_a_page(code: str) -> None:
    kind = catalogue()[code]
    page = fine("explain", code, "--output", "table").out.decode()
    assert page.startswith(f"{code} (")
    assert kind.meaning in page
    assert kind.remedy in page
    assert kind.command in page
    assert fine("explain", code).document["severities"] == list(kind.severities)


def test_a_code_may_be_copied_with_its_brackets() -> None:
    assert fine("explain", "[torn-tail]").document["code"] == "torn-tail"


def test_all_codes_are_listed() -> None:
    assert [row["code"] for row in fine("explain").rows] == list(catalogue())
    listed = fine("explain", "--output", "table").out.decode().splitlines()
    assert len(listed) == len(catalogue()) + 1


@pytest.mark.parametrize(("code", "similar"), [("bad-idnex", "bad-index"), ("torn", "torn-tail")])
def test_an_unknown_code_is_wrong_use(code: str, similar: str) -> None:
    ended = run("explain", code)
    assert ended.code == 2
    assert "is not a code of a finding" in ended.err
    assert similar in ended.err


def test_every_command_can_be_called() -> None:
    """The commands of the catalogue exist, with their options."""
    for kind in catalogue().values():
        if kind.command:
            program, command, *words = kind.command.split()
            assert program == "logserver"
            known = fine(command, "--help").out.decode()
            assert all(word in known for word in words if word.startswith("--")), kind.code
