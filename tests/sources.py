"""The project's own sources as data, for the tests that read them: paths, syntax trees, functions."""

from __future__ import annotations

import ast
import importlib
import io
import pkgutil
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("logserver", "storage", "api")
SPARK = ("numpy", "pyarrow", "pyspark")
FOREIGN = (
    ROOT / "tests" / "golden" / "kafka",
    ROOT / "tests" / "golden" / "rocketmq",
    ROOT / "tests" / "interop" / "peers",
)

_IN_BACKTICKS = re.compile(r"`[^`]*`")

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def modules(*folders: str) -> list[Path]:
    """Return the Python files below these folders, as paths from the root."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path.relative_to(ROOT) for path in found if not _is_foreign(path))


def _is_foreign(path: Path) -> bool:
    return any(folder in path.parents for folder in FOREIGN)


def text_of(path: Path) -> str:
    """Return the content of the file."""
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    """Return the parsed module."""
    return ast.parse(text_of(path), filename=str(path))


def functions(path: Path) -> Iterator[Function]:
    """Yield every function and method of a module, including nested functions."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every docstring and comment; names in backticks are left out."""
    text = text_of(path)
    for node in ast.walk(tree(path)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(docstring))):
                yield node.lineno, _IN_BACKTICKS.sub("", docstring)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], _IN_BACKTICKS.sub("", token.string)


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Yield every call of a module, with the dotted name of the function: `open`, `os.open`, `path.write_text`."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def import_all(package: str) -> list[str]:
    """Import every module of a package and return the names, without `__main__`.

    Modules that need Spark are left out if it is not installed.
    """
    names = [package]
    for info in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not info.name.endswith(".__main__"):
            try:
                importlib.import_module(info.name)
            except ModuleNotFoundError as error:
                if error.name not in SPARK:
                    raise
                continue
            names.append(info.name)
    return names
