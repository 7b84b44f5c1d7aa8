"""The examples in the client's docstrings are run on a server, and print the shown results."""

from __future__ import annotations

import ast
import doctest
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import logserver.client
from logserver import LogServer, embedding, testing
from logserver.cli.online import consume_output
from logserver.client import LogClient, as_record, blocking, outgoing
from tests.http.harness import Api

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
EXAMPLES = [
    found
    for value in (LogClient, *LogClient.__bases__)
    for found in doctest.DocTestFinder().find(value)
    if found.examples
]


async def run(example: doctest.Example, names: dict[str, Any]) -> str:
    """Run a statement, which may await, and return the output of a console."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    shown: list[str] = []
    tree = ast.parse(example.source)
    target: Any = tree.body[-1]
    while isinstance(target, ast.AsyncWith):
        target = target.body[-1]
    if isinstance(target, ast.Expr):
        target.value = ast.copy_location(
            ast.Call(ast.Name("show", ast.Load()), [target.value], []), target
        )
    names["show"] = lambda value: shown.append(f"{value!r}\n") if value is not None else None
    code = compile(ast.fix_missing_locations(tree), "<example>", "exec", flags=flags)
    waiting = eval(code, names)
    if inspect.iscoroutine(waiting):
        await waiting
    return "".join(shown)


@pytest.mark.parametrize("found", EXAMPLES, ids=lambda found: found.name)
async def test_example(api: Api, client: LogClient, found: doctest.DocTest) -> None:
    await client.produce("orders", "first", key="ann")
    names: dict[str, Any] = {
        **vars(logserver.client),
        "client": client,
        "url": api.url,
        "as_record": as_record,
    }
    for example in found.examples:
        shown = await run(example, names)
        assert doctest.OutputChecker().check_output(example.want, shown, FLAGS), shown


@pytest.fixture(scope="module")
def server() -> Iterator[LogServer]:
    """A server for the examples of all modules."""
    with LogServer(backend="memory") as running:
        yield running


@pytest.mark.parametrize(
    "module",
    [outgoing, embedding, consume_output, testing, blocking],
    ids=lambda module: module.__name__,
)
def test_examples_of_a_module(module: ModuleType, server: LogServer) -> None:
    ended = doctest.testmod(module, optionflags=FLAGS, extraglobs={"url": server.url})
    assert ended.attempted > 0
    assert ended.failed == 0


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 10
