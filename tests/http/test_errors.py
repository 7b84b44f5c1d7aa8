"""The table of errors: every class has a row, every code is documented, facts are in the answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.http.errors import CODES, as_api_error, code_of, error_response, status_of
from logserver import errors as service_errors
from storage import StorageError, errors
from tests.http.harness import Api


def every(kind: type[StorageError]) -> Iterator[type[StorageError]]:
    yield kind
    for child in kind.__subclasses__():
        if child is service_errors.ClientError:
            continue  # created from answers, never sent as an answer
        if child.__module__ in {errors.__name__, service_errors.__name__}:
            yield from every(child)


def test_every_error_class_has_a_row() -> None:
    assert [kind.__name__ for kind in every(StorageError) if kind not in CODES] == []


def test_no_two_classes_share_a_stable_code() -> None:
    codes = [kind.code for kind in every(StorageError)]
    assert len(codes) == len(set(codes))


def test_every_code_is_documented(repo_root: Path) -> None:
    documented = set(
        re.findall(r"^\| (\d{5}) \|", (repo_root / "docs/http-api.md").read_text(), re.M)
    )
    used = {str(code) for code in CODES.values()}
    for path in (repo_root / "api").rglob("*.py"):
        used |= set(re.findall(r"\b[45]\d{4}\b", path.read_text()))
    assert used - documented == set()


@pytest.mark.parametrize("kind", CODES)
def test_a_status_is_a_real_one(kind: type[StorageError]) -> None:
    status = status_of(CODES[kind])
    assert 400 <= status < 600
    if issubclass(kind, errors.CallerError):
        assert status < 500
    error = errors.StorageError.__new__(kind)
    StorageError.__init__(error, "the reason", fact=1)
    response = error_response(as_api_error(error))
    assert response.status == status
    assert b'"fact":1' in bytes(response.body)  # type: ignore[arg-type]  # always bytes here


def test_a_class_without_a_row_has_its_parents() -> None:
    class Unheard(errors.UnknownTopic):
        """A class that a later version may add."""

    assert code_of(Unheard("t")) == 40401


def test_facts_do_not_replace_code_or_message() -> None:
    error = errors.InvalidArgument("real", error_code=1, detail="x", path=Path("/a"))
    body = bytes(error_response(as_api_error(error)).body)  # type: ignore[arg-type]  # always bytes here
    assert body == b'{"error_code":42201,"message":"real","detail":"x","path":"/a"}'


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/topics/t/partitions/7/records", ["partition 7", "it has", "numbered from 0"]),
        ("/topics/t/partitions/0/records?max_bytes=x", ["max_bytes", "'x'", "from", "to"]),
        ("/topics/t/partitions/0/records?nope=1", ["'nope'", "it takes"]),
        ("/topics/t/partitions/0/records?offset=x", ["offset", "'x'", "earliest, latest"]),
    ],
)
async def test_a_refusal_names_the_parameter_its_value_and_what_is_taken(
    api: Api, path: str, words: list[str]
) -> None:
    await api.create("t")
    answer = await api.get(path)
    assert answer.status in (400, 404)
    assert [word for word in words if word not in answer.json["message"]] == []
