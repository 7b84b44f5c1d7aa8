"""The documentation of the API: every route is described, and the descriptions are true."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.app import all_operations
from api.docs_page import target
from api.http.errors import CODES, MEANINGS
from api.openapi import ApiDocs, Json
from api.operation import Example, Operation
from api.operations.parameters import PATH, SAMPLES
from logserver.config import Settings
from tests.http.harness import JSON, Api, opener, serving, settings

OPERATIONS = all_operations(Settings())
EXAMPLES = [
    pytest.param(operation, example, id=f"{operation.id}-{example.name}")
    for operation in OPERATIONS
    for example in operation.examples
]
DESCRIBED = [pytest.param(operation, id=operation.id) for operation in OPERATIONS]


def document(settings: Settings) -> Json:
    return ApiDocs(OPERATIONS, settings).document()


async def prepared(api: Api, pattern: str) -> str:
    """Create the data that the examples of a route need, and return the id of the first record.

    - A topic `orders` with two records.
    - The group `billing` with an instance that reads the topic and an instance that reads nothing.
    - For routes of groups: the group `accounting` with an offset (on Kafka this adds a topic) and without members.
    - For routes of transactions, on Kafka: an open transaction with a record.
    """
    await api.create("orders")
    if api.backend == "kafka":
        await api.call("PATCH", "/topics/orders", json={"configs": {"retention.ms": "-1"}})
    rows = [
        {"key": "k1", "value": {"total": 12}, "timestamp": 1760000000000},
        {"key": "k2", "value": {"total": 7}, "timestamp": 1760000000001},
    ]
    answer = await api.post("/topics/orders", {"records": rows}, content_type=JSON)
    message_id: str = answer.json["offsets"][0].get("message_id", SAMPLES["message_id"])
    reset = {"topic": "orders", "to": {"offset": 1}}
    if "groups" in pattern:
        await api.call("PUT", "/groups/accounting/offsets", json=reset)
    if "transactions" in pattern and api.backend == "kafka":
        begun = await api.post("/transactions", {"transactional_id": "billing-1"})
        assert begun.json["id"] == SAMPLES["transaction"]
        records = {"records": [{"value": "x"}]}
        await api.post(f"/topics/orders?transaction={begun.json['id']}", records)
    for name in ("worker-0", "worker-1"):
        await api.post("/consumers/billing", {"name": name, "auto.offset.reset": "earliest"})
    topics = {"topics": ["orders"]}
    await api.post("/consumers/billing/instances/worker-1/subscription", topics)
    return message_id


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("operation", "example"), EXAMPLES)
async def test_an_example_is_answered_as_it_says(
    api: Api, operation: Operation, example: Example
) -> None:
    if example.backends and api.backend not in example.backends:
        pytest.skip("of another backend")
    message_id = await prepared(api, operation.pattern)
    path = target(operation.pattern, example).replace(SAMPLES["message_id"], message_id)
    path = path.replace(SAMPLES["cluster_id"], api.cluster_id)
    headers = dict(example.headers)
    options: dict[str, Any] = {}
    if example.media_type is not None:
        headers["Content-Type"] = example.media_type
        is_text = isinstance(example.body, str | bytes)
        body = example.body if is_text else msgspec.json.encode(example.body).decode()
        named = isinstance(body, str)
        options["data"] = body.replace(SAMPLES["message_id"], message_id) if named else body
    answer = await api.call(operation.method, path, headers=headers, **options)
    assert answer.status == example.status, answer.body
    if example.answer is not None:
        assert "json" in answer.headers["Content-Type"]
        assert shape(example.answer) == shape(answer.json, like=example.answer)


def shape(value: Any, like: Any = None) -> Any:
    """Return names and types of a JSON value; with `like`, only the members that `like` has too."""
    if isinstance(value, dict):
        names = value.keys() if not isinstance(like, dict) else value.keys() & like.keys()
        return {name: shape(value[name], like and like.get(name)) for name in sorted(names)}
    if isinstance(value, list):
        likes = like if isinstance(like, list) and len(like) == len(value) else [None] * len(value)
        return [shape(one, other) for one, other in zip(value, likes, strict=True)]
    return type(value).__name__


@pytest.mark.parametrize("operation", DESCRIBED)
def test_a_route_is_described(operation: Operation) -> None:
    assert operation.summary
    assert not operation.summary.endswith(".")
    assert operation.answers
    assert operation.examples
    assert {part[1:-1] for part in operation.pattern.split("/") if "{" in part} <= PATH.keys()
    assert (
        set(ApiDocs(OPERATIONS, Settings(token_file=Path("tokens"))).codes_of(operation))
        <= MEANINGS.keys()
    )
    names = [example.name for example in operation.examples]
    assert len(set(names)) == len(names)
    for example in operation.examples:
        assert example.query.keys() <= set(operation.query_names)
        assert example.media_type is None or example.media_type in operation.bodies
        assert example.status in {answer.status for answer in operation.answers}


def test_ids_are_unique() -> None:
    counts = Counter(operation.id for operation in OPERATIONS)
    assert [name for name, count in counts.items() if count > 1] == []


def test_what_changes_something_asks_for_more_than_reading() -> None:
    reading = {
        operation.scope
        for operation in OPERATIONS
        if operation.method in {"PUT", "PATCH", "DELETE"}
    }
    assert None not in reading
    opened = {operation.pattern for operation in OPERATIONS if operation.scope is None}
    assert opened == {"/livez", "/readyz", "/ready", "/health", "/healthz"}


def test_every_code_has_a_meaning_and_stands_in_the_docs(repo_root: Path) -> None:
    assert set(CODES.values()) <= MEANINGS.keys()
    text = (repo_root / "docs/http-api.md").read_text(encoding="utf-8")
    reported = {int(code) for code in re.findall(r"^\| (\d{5}) \|", text, re.MULTILINE)}
    assert reported == {code for code in MEANINGS if code > 999}


def test_limits_are_those_in_force() -> None:
    reported = document(Settings(max_wait_ms=77, max_records_per_request=5))
    parameters = reported["paths"]["/topics/{topic}/partitions/{partition}/records"]["get"]
    schemas = {one["name"]: one["schema"] for one in parameters["parameters"]}
    assert schemas["timeout"]["maximum"] == 77
    assert schemas["max_records"] == {
        "type": "integer",
        "format": "int64",
        "minimum": 1,
        "maximum": 5,
        "default": 5,
    }


def test_references_lead_somewhere() -> None:
    reported = document(Settings())
    text = msgspec.json.encode(reported).decode()
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert named <= reported["components"]["schemas"].keys()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in named)


def test_whole_numbers_have_64_bits() -> None:
    def integers(value: Any) -> list[Any]:
        if isinstance(value, dict):
            own = [value] if value.get("type") == "integer" else []
            return own + [one for inner in value.values() for one in integers(inner)]
        return (
            [one for inner in value for one in integers(inner)] if isinstance(value, list) else []
        )

    found = integers(document(Settings()))
    assert found
    assert all(one["format"] == "int64" for one in found)


async def test_an_undescribed_parameter_is_refused_everywhere(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    async with serving(chosen, opener("memory", chosen)) as api:
        for operation in OPERATIONS:
            path = target(operation.pattern, Example())
            answer = await api.call(
                operation.method, f"{path}?no_such=1", headers=some_type(operation), data=b"x"
            )
            assert answer.code == 40000, operation.pattern
            assert "no_such" in answer.json["message"]


def some_type(operation: Operation) -> dict[str, str]:
    """Return a Content-Type that the call accepts."""
    return {"Content-Type": next(iter(operation.bodies), "application/json")}


# -- the page


class Checker(HTMLParser):
    """A collector of tags, ids, links and problems of a page: tags that do not match, resources that are loaded."""

    VOID = frozenset({"meta", "br"})
    LOADING = frozenset({"src", "srcset", "data", "action"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.problems: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        given = dict(attrs)
        self.problems += [f"{tag} loads {name}" for name in given.keys() & self.LOADING]
        if "id" in given:
            self.ids.append(str(given["id"]))
        if "href" in given:
            self.links.append(str(given["href"]))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"{tag} ends an element that is not open, at {self.getpos()}")


async def test_the_page_is_whole_and_loads_nothing(api: Api) -> None:
    answer = await api.get("/docs", accept="text/html")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    checker = Checker()
    checker.feed(answer.body.decode())
    checker.close()
    assert checker.problems == []
    assert checker.open == []
    assert [name for name, count in Counter(checker.ids).items() if count > 1] == []
    inside = {link.removeprefix("#") for link in checker.links if link.startswith("#")}
    assert inside <= set(checker.ids)
    assert [link for link in checker.links if not link.startswith("#")] == ["openapi.json"]
    for operation in OPERATIONS:
        assert operation.id in checker.ids


async def test_the_document_is_served(api: Api) -> None:
    answer = await api.get("/openapi.json")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json["openapi"].startswith("3.1.")
    assert answer.body == msgspec.json.encode(document(api.service.settings))
