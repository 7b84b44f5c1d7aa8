"""Private names of the HTTP library: only one module uses them, and the installed version has them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from aiohttp import web

from api.connection import aiohttp_private
from api.connection.aiohttp_private import PRIVATE_NAMES
from tests.sources import PACKAGES, modules, text_of, tree

OWNER = Path("api/connection/aiohttp_private.py")
PUBLIC = {"_replace"}  # of a named tuple
PRIVATE = re.compile(r"_[a-z]\w*")


def library_names() -> set[str]:
    """Return the private attributes of the library's protocol of a connection."""
    bases = [kind for kind in web.RequestHandler.__mro__ if kind.__module__.startswith("aiohttp.")]
    names = {name for kind in bases for name in (*vars(kind), *getattr(kind, "__slots__", ()))}
    return {name for name in names if PRIVATE.fullmatch(name)}


def private_uses(path: Path) -> Iterator[tuple[bool, str]]:
    """Yield each private attribute that a module uses, and whether its object is `self` or `cls`."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr):
            yield isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}, node.attr


def test_the_library_has_each_name_and_each_is_used() -> None:
    assert library_names() >= PRIVATE_NAMES
    assert {name for _, name in private_uses(OWNER)} == PRIVATE_NAMES
    assert Path(aiohttp_private.__file__).as_posix().endswith(OWNER.as_posix())


def test_no_other_module_uses_a_private_name() -> None:
    importing = [p for p in modules(*PACKAGES) if "aiohttp" in text_of(p) and p != OWNER]
    assert Path("api/connection/protocol.py") in importing
    inherited = library_names()
    found = [
        f"{path}: {name}"
        for path in importing
        for own, name in private_uses(path)
        if name not in PUBLIC
        and (not own or ("OpenHandler" in text_of(path) and name in inherited))
    ]
    assert found == []
